"""A scene: the shapes, lines and words of one picture, each with a role, drawn as SVG or on matplotlib's axes.

Units are pixels, the origin is at the top left, y goes down. Pure Python: it runs wherever Python does, in a page too.
"""

from __future__ import annotations

import contextlib
import html
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from flashlearn.core.signs import signed
from flashlearn.show.draw.letters import Piece, pieces, width
from flashlearn.show.draw.style import ROLES, TONES, stylesheet

WIDE, NARROW = 880, 360  # pixels: the width of a scene on a page or in a hall, and on a phone
SLIM = 1.6  # axes of less than so many times their height get the narrow layout
EDGE = 1  # pixels around a scene, for the other half of the lines at its edges
SIZE, SMALLEST = 14, 12  # pixels: of words, unless given, and at least
THINNEST = 4  # pixels: smaller cells get no lines between them
FILLS, HATCHES, LINES, WORDS, FRAMES, TOP = range(6)  # what covers what
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}
BASELINES = {"base": 0.0, "middle": 0.36, "top": 0.76, "bottom": -0.22}  # of the size, below y
Span = tuple[int, int]
Point = tuple[float, float]


class Rect(NamedTuple):
    """A rectangle with its top left corner at (x, y)."""

    x: float
    y: float
    w: float
    h: float

    @property
    def right(self) -> float:
        return self.x + self.w

    @property
    def bottom(self) -> float:
        return self.y + self.h

    @property
    def centre(self) -> Point:
        return self.x + self.w / 2, self.y + self.h / 2

    def inset(self, by: float) -> Rect:
        """The rectangle that is `by` smaller on every side."""
        return Rect(self.x + by, self.y + by, self.w - 2 * by, self.h - 2 * by)


@dataclass(frozen=True)
class Grid:
    """A matrix of rows by cols cells, each w by h pixels, with its top left corner at (x, y)."""

    x: float
    y: float
    rows: int
    cols: int
    w: float
    h: float

    def rect(self, rows: Span | None = None, cols: Span | None = None) -> Rect:
        """The rectangle of a block of cells; all rows or columns unless given."""
        (r0, r1), (c0, c1) = rows or (0, self.rows), cols or (0, self.cols)
        return Rect(self.x + c0 * self.w, self.y + r0 * self.h, (c1 - c0) * self.w, (r1 - r0) * self.h)

    def cell(self, row: int, col: int) -> Rect:
        """The rectangle of one cell."""
        return self.rect((row, row + 1), (col, col + 1))

    @property
    def right(self) -> float:
        return self.x + self.cols * self.w

    @property
    def bottom(self) -> float:
        return self.y + self.rows * self.h

    @property
    def middle(self) -> float:
        return (self.x + self.right) / 2


class Look(NamedTuple):
    """How a shape looks: its colour as a role and a tone, its edge as a role, and whether it is hatched or dashed."""

    face: str = ""
    tone: str = ""
    edge: str = ""
    width: float = 1.0
    dashed: bool = False
    hatched: bool = False


@dataclass(frozen=True)
class Shape:
    """Rings of corners, filled together: a ring inside another, the other way round, is a hole. Open: lines."""

    rings: tuple[tuple[Point, ...], ...]
    look: Look
    layer: int
    id: str = ""
    rect: Rect | None = None  # if it is one
    round: float = 0.0
    open: bool = False
    came: Rect | None = None  # where it comes from, in this scene
    circle: tuple[float, float, float] | None = None  # its middle and radius, if it is one


class Type(NamedTuple):
    """How words look: pixels, role, weight, face, where they are anchored, and the role of a halo around them."""

    size: float = SIZE
    role: str = "ink"
    bold: bool = False
    mono: bool = False
    anchor: str = "start"
    halo: bool = False


@dataclass(frozen=True)
class Words:
    """Words with their baseline at y; `text` is plain, `pieces` has what is raised or lowered."""

    text: str
    pieces: tuple[Piece, ...]
    x: float
    y: float
    type: Type
    layer: int = WORDS
    id: str = ""

    @property
    def box(self) -> Rect:
        """The room that they take, by the widest of the faces."""
        size = self.type.size
        w = width(self.text, size, self.type.bold) if len(self.pieces) == 1 else self.breadth
        return Rect(self.x - ANCHORS[self.type.anchor] * w, self.y - 0.76 * size, w, 0.98 * size)

    @property
    def breadth(self) -> float:
        """Pixels from the first letter to the last."""
        return sum(width(piece.text, piece.size(self.type.size), self.type.bold) for piece in self.pieces)


@dataclass(frozen=True)
class Group:
    """What moves together: `at` is its box, `came` the box in the same scene that it comes from."""

    id: str
    at: Rect
    came: Rect | None
    layer: int
    items: list[Shape | Words | Group] = field(default_factory=list)


Item = Shape | Words | Group


class Scene:
    """A picture of `width` by `height` pixels, to which shapes and words are added."""

    def __init__(self, width: float, height: float):
        self.width, self.height = width, height
        self.items: list[Item] = []
        self._into = self.items

    # --- shapes ---

    def rect(
        self, rect: Sequence[float], face: str = "", tone: str = "", edge: str = "", stroke: float = 1.0, **how: Any
    ) -> None:
        """A rectangle in the colour of a role; without `face` an outline alone.

        edge, stroke   the role of its edge, and pixels
        how            id, layer, round (pixels), dashed, hatched, came (the Rect that it comes from)
        """
        r = Rect(*rect)
        look = _checked(face, tone, edge, stroke, how.pop("dashed", False), how.pop("hatched", False))
        self._into.append(Shape((_ring(r),), look, how.pop("layer", FILLS), rect=r, **how))

    def polygon(
        self, *rings: Sequence[Point], face: str = "", tone: str = "", edge: str = "", stroke: float = 1.0, **how: Any
    ) -> None:
        """A shape with these corners; further rings, in the opposite direction, are holes."""
        look = _checked(face, tone, edge, stroke, how.pop("dashed", False), how.pop("hatched", False))
        self._into.append(Shape(tuple(map(tuple, rings)), look, how.pop("layer", FILLS), **how))

    def hatch(self, rect: Sequence[float], face: str = "") -> None:
        """Hatching, which runs on from rectangle to rectangle; on a ground of that role, if given."""
        if face:
            self.rect(rect, face)
        self.rect(rect, layer=HATCHES, hatched=True)

    def outline(self, rect: Sequence[float], stroke: float = 2.0, dashed: bool = False, id: str = "") -> None:
        """A frame in ink around what this step is about, above everything."""
        self.rect(rect, edge="ink", stroke=stroke, dashed=dashed, layer=FRAMES, id=id)

    def line(
        self,
        *points: Point,
        role: str = "ink",
        stroke: float = 1.5,
        dashed: bool = False,
        id: str = "",
        layer: int = LINES,
    ) -> None:
        """A line through points; nothing if there is one point or none."""
        if len(points) > 1:
            self._into.append(Shape((points,), Look("", "", role, stroke, dashed), layer, id, open=True))

    def arrow(
        self, start: Point, end: Point, role: str = "ink", stroke: float = 1.5, head: float = 7.0, **how: Any
    ) -> None:
        """A line with a head at its end."""
        (x0, y0), (x1, y1) = start, end
        long = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
        u, v = (x1 - x0) / long * head, (y1 - y0) / long * head
        self.line(start, (x1 - u / 2, y1 - v / 2), role=role, stroke=stroke, **how)
        corners = ((x1, y1), (x1 - u - v / 2, y1 - v + u / 2), (x1 - u + v / 2, y1 - v - u / 2))
        self.polygon(corners, face=role, layer=LINES)

    def dot(self, x: float, y: float, r: float, face: str = "", tone: str = "", edge: str = "", **how: Any) -> None:
        """A point as a polygon of so many `sides` around (x, y), a circle unless given; `how` as `polygon`."""
        sides = how.pop("sides", 16)
        how["circle"] = (x, y, r) if sides == 16 else None
        turned = math.pi / sides - math.pi / 2 if sides == 4 else -math.pi / 2
        angles = [turned + 2 * math.pi * at / sides for at in range(sides)]
        corners = tuple((x + r * math.cos(a), y + r * math.sin(a)) for a in angles)
        self.polygon(corners, face=face, tone=tone, edge=edge, **how)

    def cell_lines(self, grid: Grid, frame: str = "quiet", dashed: bool = False) -> None:
        """Thin lines between the cells of a matrix, and a frame around it."""
        across = [grid.x + c * grid.w for c in range(1, grid.cols)] if grid.w >= THINNEST else []
        down = [grid.y + r * grid.h for r in range(1, grid.rows)] if grid.h >= THINNEST else []
        lines = [((x, grid.y), (x, grid.bottom)) for x in across] + [((grid.x, y), (grid.right, y)) for y in down]
        if lines:
            self._into.append(Shape(tuple(lines), Look("", "", "line", 0.7), LINES, open=True))
        self.rect(grid.rect(), edge=frame, dashed=dashed, layer=LINES)

    # --- words ---

    def text(
        self,
        x: float,
        y: float,
        words: Any,
        size: float = SIZE,
        *,
        va: str = "middle",
        id: str = "",
        layer: int = WORDS,
        **type: Any,
    ) -> Rect:
        """Words at (x, y), with the signs that people write; the room that they take.

        words   "x_{0}" is lowered, "e^{3−5}" raised
        va      what is at y: "middle", "top", "bottom", "base"
        type    role, bold, mono, anchor ("start", "middle", "end"), halo: see `Type`
        """
        found = pieces(signed(str(words)))
        plain = "".join(piece.text for piece in found)
        item = Words(plain, found, x, y + BASELINES[va] * size, Type(size, **type), layer, id)
        self._into.append(item)
        return item.box

    def numbers(self, grid: Grid, values: Sequence[Sequence[float]], show: Callable[[float], str], **type: Any) -> None:
        """A number in every cell, as `show` writes it; none where a score is masked, -inf."""
        for r, row in enumerate(values):
            for c, value in enumerate(row):
                if value != -float("inf"):
                    self.text(*grid.cell(r, c).centre, show(value), anchor="middle", **type)

    def legend(
        self, x: float, y: float, entries: Iterable[tuple[str, Look]], size: float = 12, right: float = WIDE
    ) -> float:
        """Swatches with their words after them, in lines that end at `right`; "now" is framed. The y of the last line."""
        left = x
        for words, look in entries:
            wide = 20 + 5 + width(words, size)
            if left > x and left + wide > right:
                left, y = x, y + 1.5 * size
            swatch = Rect(left, y - 7, 20, 14)
            self.rect(swatch, look.face, look.tone, "quiet")
            if look.hatched:
                self.hatch(swatch)
            if words == "now":
                self.outline(swatch, 2)
            self.text(swatch.right + 5, y, words, size)
            left += wide + 12
        return y

    @contextlib.contextmanager
    def group(self, id: str, at: Rect, came: Rect | None = None, layer: int = FILLS) -> Iterator[None]:
        """What is added here moves together from `came`, where it is in this scene, to `at`."""
        inner = Group(id, at, came, layer)
        self._into.append(inner)
        outer, self._into = self._into, inner.items
        try:
            yield
        finally:
            self._into = outer

    # --- what is in it ---

    def walk(self) -> Iterator[Shape | Words]:
        """Every shape and all words, in the order in which they were added."""
        yield from _walk(self.items)

    def words(self) -> list[Words]:
        """All words."""
        return [item for item in self.walk() if isinstance(item, Words)]

    def texts(self) -> list[str]:
        """All words, as plain text."""
        return [item.text for item in self.words()]

    def shapes(self, face: str | None = None, **look: Any) -> list[Shape]:
        """The shapes of this face, and of this look: `shapes("S", tone="light")`, `shapes("", hatched=True)`."""
        wanted = look if face is None else {"face": face, **look}
        found = (item for item in self.walk() if isinstance(item, Shape))
        return [shape for shape in found if all(getattr(shape.look, name) == value for name, value in wanted.items())]

    def __getitem__(self, id: str) -> Shape | Words | Group:
        """What has this id; KeyError if nothing has."""
        for item in _walk(self.items, groups=True):
            if item.id == id:
                return item
        raise KeyError(id)

    # --- how it is drawn ---

    def svg(self, label: str = "", key: str = "s", standalone: bool = False) -> str:
        """The picture as SVG.

        label        what it shows, for those who cannot see it
        key          what its ids begin with: another one for every player of a page
        standalone   whether it is a file of its own, with its stylesheet in it
        """
        head = f'<svg class="scene" viewBox="-1 -1 {short(self.width + 2 * EDGE)} {short(self.height + 2 * EDGE)}"'
        head += f' role="img" aria-label="{html.escape(label)}"' if label else ' aria-hidden="true"'
        head += (
            f' xmlns="http://www.w3.org/2000/svg" width="{short(self.width)}" height="{short(self.height)}"'
            if standalone
            else ""
        )
        style = f"<style>{stylesheet(plain=True)}</style>" if standalone else ""
        hatched = any(isinstance(item, Shape) and item.look.hatched for item in self.walk())
        pattern = HATCH.format(key=html.escape(key)) if hatched else ""
        return f"{head}>{style}{pattern}{''.join(_svg(self.items, key))}</svg>"

    def axes(self, ax: Any) -> None:
        """The picture on matplotlib's axes, as large as fits."""
        from flashlearn.show.draw.on_axes import put

        put(self, ax)


def scene_of(draw: Callable, step: Any, narrow: bool = False) -> Scene | None:
    """The scene of `draw(step)`; None for a painter that wants axes, `draw(ax, step)`, or does not say what it takes."""
    own = _parameters(draw)
    try:
        inspect.Signature(own).bind(step)
    except TypeError:
        return None
    if any(one.kind is one.VAR_POSITIONAL for one in own):
        return None
    options = {"narrow": narrow} if narrow and any(one.name == "narrow" for one in own) else {}
    scene = draw(step, **options)
    if not isinstance(scene, Scene):
        name = getattr(draw, "__name__", type(draw).__name__)
        got = f"got {type(scene).__name__}; one that paints on axes is {name}(ax, step)"
        raise TypeError(f"expected {name}(step) to return a Scene, {got}")
    return scene


def _parameters(draw: Callable) -> list[inspect.Parameter]:
    """What a function takes; axes and step, if it does not say so."""
    try:
        return list(inspect.signature(draw).parameters.values())
    except ValueError:
        return list(inspect.signature(lambda ax, step: None).parameters.values())


def paint(draw: Callable, ax: Any, step: Any) -> None:
    """A step on axes, by a painter of either kind: `draw(step)`, which returns a scene, or `draw(ax, step)`."""
    window = ax.get_window_extent()
    scene = scene_of(draw, step, narrow=window.width < SLIM * window.height)
    if scene is None:
        draw(ax, step)
    else:
        scene.axes(ax)


_LOOKS = {"", *ROLES, *TONES}


def _checked(face: str, tone: str, edge: str, *more: Any) -> Look:
    """A look whose roles and tone there are."""
    if not {face, edge, tone} <= _LOOKS or tone in ROLES:
        expected = f"roles among {', '.join(ROLES)} and a tone among {', '.join(TONES)}"
        raise ValueError(f"expected {expected}, got {face!r}, {edge!r} and {tone!r}")
    return Look(face, tone, edge, *more)


# --- SVG ---------------------------------------------------------------------------------------------------

HATCH = (
    '<pattern id="{key}-hatch" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="none e-hatch" d="M-1 1l2-2M0 6l6-6M5 7l2-2"/></pattern>'
)


def short(value: float) -> str:
    """A length in as few signs as show it: to a tenth of a pixel, without zeros that say nothing."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _svg(items: list[Item], key: str) -> Iterator[str]:
    """Elements from the lowest layer to the highest; neighbours that look alike are one."""
    ordered = sorted(items, key=order)
    for (kind, how), same in groupby(ordered, _merging):
        alike: list[Any] = list(same)
        if kind is Shape:
            yield from (_path(alike, how, key),) if how else (_element(shape, key) for shape in alike)
        elif kind is Words:
            yield _words(alike, how)
        else:
            for group in alike:
                places = f' data-at="{_box(group.at)}"' + (f' data-from="{_box(group.came)}"' if group.came else "")
                yield f'<g data-id="{html.escape(group.id)}"{places}>{"".join(_svg(group.items, key))}</g>'


def order(item: Item) -> tuple:
    """What sorts items: their layer, and in it lines between cells first and words by their type, so that they merge."""
    if isinstance(item, Words):
        return item.layer, 2, item.type
    thin = isinstance(item, Shape) and item.open and item.look.edge == "line"
    return item.layer, 0 if thin else 1, ()


def _merging(item: Item) -> tuple[type, Any]:
    """What neighbours have in common that are written as one; None for what is written alone."""
    if isinstance(item, Words):
        return Words, item.type
    if isinstance(item, Shape):
        return Shape, None if item.id or item.round or item.came else (item.look, item.open)
    return Group, None


def _look(look: Look, key: str) -> str:
    """The attributes of a look."""
    names = [
        look.face or ("" if look.hatched else "none"),
        look.tone,
        f"e-{look.edge}" if look.edge else "",
        "dash" if look.dashed else "",
    ]
    classes = f' class="{" ".join(filter(None, names))}"'.replace(' class=""', "")
    wide = f' stroke-width="{short(look.width)}"' if look.edge and look.width != 1 else ""
    return classes + wide + (f' fill="url(#{key}-hatch)"' if look.hatched and not look.face else "")


def _path(shapes: list[Shape], how: tuple[Look, bool], key: str) -> str:
    d = "".join(_outline(shape) for shape in shapes)
    return f'<path{_look(how[0], key)} d="{d}"/>'


def _outline(shape: Shape) -> str:
    """The path of a shape."""
    if shape.circle:
        x, y, r = shape.circle
        half = f"a{short(r)} {short(r)} 0 1 0"
        return f"M{short(x - r)} {short(y)}{half} {short(2 * r)} 0{half} -{short(2 * r)} 0"
    if shape.rect:
        x, y = round(shape.rect.x, 1), round(shape.rect.y, 1)
        w, h = round(shape.rect.right, 1) - x, round(shape.rect.bottom, 1) - y
        return f"M{short(x)} {short(y)}h{short(w)}v{short(h)}h{short(-w)}z"
    return "".join(_d(ring, shape.open) for ring in shape.rings)


def _d(ring: Sequence[Point], open: bool) -> str:
    """The path of a ring or a line, by steps across and down where it has such."""
    (x, y), *others = ((round(x, 1), round(y, 1)) for x, y in ring)
    parts = [f"M{short(x)} {short(y)}"]
    for to_x, to_y in others:
        if to_y == y:
            parts.append(f"h{short(to_x - x)}")
        elif to_x == x:
            parts.append(f"v{short(to_y - y)}")
        else:
            parts.append(f"L{short(to_x)} {short(to_y)}")
        x, y = to_x, to_y
    return "".join(parts) + ("" if open else "z")


def _element(shape: Shape, key: str) -> str:
    """A shape that can be found by its id, as the element that says the most of it."""
    about = f' data-id="{html.escape(shape.id)}"' if shape.id else ""
    about += _look(shape.look, key) + (f' data-from="{_box(shape.came)}"' if shape.came else "")
    if shape.rect:
        x, y, w, h = map(short, shape.rect)
        curve = f' rx="{short(shape.round)}"' if shape.round else ""
        return f'<rect{about} x="{x}" y="{y}" width="{w}" height="{h}"{curve}/>'
    if shape.open and len(shape.rings[0]) == 2:
        (x1, y1), (x2, y2) = shape.rings[0]
        return f'<line{about} x1="{short(x1)}" y1="{short(y1)}" x2="{short(x2)}" y2="{short(y2)}"/>'
    return f'<path{about} d="{_outline(shape)}"/>'


def _words(alike: list[Words], type: Type) -> str:
    """Words of one look, in a group that says it once."""
    names = [
        f"t-{type.role}" if type.role != "ink" else "",
        "b" if type.bold else "",
        "mono" if type.mono else "",
        "halo" if type.halo else "",
    ]
    style = f' class="{" ".join(filter(None, names))}"' if any(names) else ""
    style += f' font-size="{short(type.size)}"' if type.size != SIZE else ""
    style += f' text-anchor="{type.anchor}"' if type.anchor != "start" else ""
    grouped = len(alike) > 1 and style
    written = "".join(_word(item, "" if grouped else style) for item in alike)
    return f"<g{style}>{written}</g>" if grouped else written


def _word(item: Words, style: str) -> str:
    parts, down = [], 0.0
    for piece in item.pieces:
        words = html.escape(piece.text, quote=False)
        size = piece.size(item.type.size)
        dy = piece.shift * item.type.size - down
        down += dy
        attributes = f' dy="{short(dy)}"' if dy else ""
        attributes += f' font-size="{short(size)}"' if piece.shift else ""
        parts.append(f"<tspan{attributes}>{words}</tspan>" if attributes else words)
    about = f' data-id="{html.escape(item.id)}"' if item.id else ""
    return f'<text{about}{style} x="{short(item.x)}" y="{short(item.y)}">{"".join(parts)}</text>'


def _box(rect: Rect) -> str:
    return " ".join(map(short, rect))


def _ring(rect: Rect) -> tuple[Point, ...]:
    x, y, w, h = rect
    return (x, y), (x + w, y), (x + w, y + h), (x, y + h)


def hole(rect: Rect) -> tuple[Point, ...]:
    """The corners of a rectangle the other way round, to be cut out of a polygon."""
    return _ring(rect)[::-1]


def rounded(rect: Rect, by: float) -> tuple[Point, ...]:
    """The corners of a rectangle, rounded by so many pixels."""
    x, y, w, h = rect
    arc = [(by * (1 - math.sin(a)), by * (1 - math.cos(a))) for a in (math.pi / 2, math.pi / 3, math.pi / 6, 0)]
    quarter = [[(x + u, y + v) for u, v in arc], [(x + w - u, y + v) for u, v in arc[::-1]]]
    quarter += [[(x + w - u, y + h - v) for u, v in arc], [(x + u, y + h - v) for u, v in arc[::-1]]]
    return tuple(point for corner in quarter for point in corner)


def _walk(items: Iterable[Item], groups: bool = False) -> Iterator[Any]:
    for item in items:
        if isinstance(item, Group):
            if groups:
                yield item
            yield from _walk(item.items, groups)
        else:
            yield item


def blocks_of(mask: Sequence[Sequence[bool]]) -> list[tuple[Span, Span]]:
    """The True cells as few rectangles: (rows, cols) of each, equal runs of neighbouring rows joined."""
    open_runs: dict[Span, int] = {}
    found = []
    for r in range(len(mask) + 1):
        runs = _runs(mask[r]) if r < len(mask) else []  # below the last row all runs end
        found += [((top, r), run) for run, top in open_runs.items() if run not in runs]
        open_runs = {run: open_runs.get(run, r) for run in runs}
    return found


def _runs(row: Sequence[bool]) -> list[Span]:
    """(start, stop) of the runs of True."""
    ends, at = [], 0
    for value, run in groupby(row, bool):
        stop = at + sum(1 for _ in run)
        ends += [(at, stop)] if value else []
        at = stop
    return ends
