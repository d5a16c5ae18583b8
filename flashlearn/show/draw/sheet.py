"""The surface that pictures of steps are painted on: rectangles, cells of matrices, lines and words.

An artist of matplotlib takes about a millisecond: a sheet paints neighbouring rectangles that look alike as one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import PathPatch, Polygon
from matplotlib.path import Path

from flashlearn.core.numerics import Span
from flashlearn.core.signs import signed
from flashlearn.show.draw.style import FAINT, HATCH, HATCHING, INK, QUIET

SMALLEST = 4  # pixels: smaller cells get no grid lines
DASHES = (0, (3, 2))
FILLS, HATCHES, LINES, RAISED, OUTLINES, ABOVE = 1, 2, 2.5, 2.8, 4, 5  # what covers what; words are at 3


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
    def centre(self) -> tuple[float, float]:
        return self.x + self.w / 2, self.y + self.h / 2


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


class _Look(NamedTuple):
    """What shapes have in common that are painted as one artist."""

    layer: float
    joins: str
    dashes: Any
    hatched_in: Any  # a colour, or None


class _Shape(NamedTuple):
    corners: Any
    face: Any
    edge: Any
    width: float
    look: _Look


class Sheet:
    """A surface of `width` by `height`, origin at the top left, y downwards, over all of the axes.

    Its units are pixels of the axes, unless width and height are given: then it is stretched to them. Nothing but
    words and curves is there before `paint`.
    """

    def __init__(self, ax: Axes, width: float | None = None, height: float | None = None):
        if not isinstance(ax, Axes):
            raise TypeError(f"expected axes to draw on, got {type(ax).__name__}")
        window = ax.get_window_extent()
        self.ax, self.width, self.height = ax, width or round(window.width), height or round(window.height)
        ax.set_xlim(0, self.width)
        ax.set_ylim(self.height, 0)
        ax.set_axis_off()
        self._shapes: list[_Shape] = []
        self._hatched: list[Any] = []
        self._thin: list[tuple[Any, str, float]] = []
        self._outlines: list[tuple[Any, float, Any]] = []

    def fill(self, rect: tuple, face, edge="none", width: float = 0.0) -> None:
        """A rectangle; later ones cover earlier ones."""
        self._shapes.append(_Shape(_ring(rect)[:4], face, edge, width, _Look(FILLS, "round", "solid", None)))

    def box(self, rect: tuple, face="white", edge=INK, width=1.0, dashes="solid", hatched=False, raised=False) -> None:
        """A rectangle with sharp corners, hatched in the colour of its edge, raised above other shapes and lines."""
        look = _Look(RAISED if raised else FILLS, "miter", dashes, edge if hatched else None)
        self._shapes.append(_Shape(_ring(rect)[:4], face, edge, width, look))

    def above(self, rect: Rect, face, words: str, **style: Any) -> None:
        """A framed rectangle with words in it that covers everything, other words too."""
        self._shapes.append(_Shape(_ring(rect)[:4], face, INK, 3, _Look(ABOVE, "miter", "solid", None)))
        self.text(*rect.centre, words, ha="center", va="center", weight="bold", zorder=ABOVE + 1, **style)

    def polygon(self, corners, face="white", edge=INK, width: float = 1.0) -> None:
        """A shape with sharp corners."""
        self._shapes.append(_Shape(corners, face, edge, width, _Look(FILLS, "miter", "solid", None)))

    def hatch(self, rect: tuple, face: Any = None) -> None:
        """Hatching, which runs on from rectangle to rectangle; on a ground of that colour, if given."""
        if face is not None:
            self.fill(rect, face)
        self._hatched.append(_ring(rect))

    def hatch_cells(self, grid: Grid, cells: np.ndarray, face: Any = None) -> None:
        """Hatching over the cells of a matrix that are True, on a ground of that colour, if given."""
        for rows, cols in blocks_of(cells):
            self.hatch(grid.rect(rows, cols), face)

    def legend(self, x: float, y: float, entries, *, swatch=(28, 18), gaps=(8, 26), char=10.0, font=15) -> None:
        """Swatches of (words, face, hatched) in a line, their words after them; "now" is framed.

        A character is taken to be `char` pixels wide; `gaps` are the pixels before and after the words.
        """
        for words, face, hatched in entries:
            rect = Rect(x, y - swatch[1] / 2, *swatch)
            self.fill(rect, face, QUIET, 1)
            if hatched:
                self.hatch(rect)
            if words == "now":
                self.outline(rect, 2)
            self.text(rect.right + gaps[0], y, words, va="center", fontsize=font)
            x = rect.right + gaps[0] + char * len(words) + gaps[1]

    def numbers(self, grid: Grid, values: Any, show: Any, **style: Any) -> None:
        """A number in every cell, as `show` writes it; none where a score is masked, -inf."""
        for r, c in np.argwhere(np.asarray(values) != -np.inf):
            self.text(*grid.cell(r, c).centre, show(float(values[r, c])), ha="center", va="center", **style)

    def cell_lines(self, grid: Grid) -> None:
        """Thin lines between the cells of a matrix, and a frame around it."""
        across = [grid.x + c * grid.w for c in range(1, grid.cols)] if grid.w >= SMALLEST else []
        down = [grid.y + r * grid.h for r in range(1, grid.rows)] if grid.h >= SMALLEST else []
        lines = [[(x, grid.y), (x, grid.bottom)] for x in across]
        lines += [[(grid.x, y), (grid.right, y)] for y in down]
        self._thin += [(line, FAINT, 0.7) for line in lines]
        self._thin.append((_ring(grid.rect()), QUIET, 1.2))

    def outline(self, rect: tuple, width: float = 3.0, dashes="solid") -> None:
        """A frame in ink around a block of cells, above everything."""
        self._outlines.append((_ring(rect), width, dashes))

    def text(self, x: float, y: float, words: Any, /, **style: Any) -> None:
        """Words at (x, y), with the signs that people write; `style` as matplotlib's text."""
        shown = signed(str(words))
        if style.get("family") == "monospace" and not shown.isascii():
            style["family"] = ["monospace", "DejaVu Sans"]  # DejaVu's monospace has no ℓ
        self.ax.text(x, y, shown, **style)

    def line(self, xs, ys, **style) -> None:
        """A curve through some points, or markers at them; `style` as matplotlib's plot."""
        self.ax.plot(xs, ys, **style)

    def lines(self, lines, colour, width: float) -> None:
        """Many lines of one look, below everything."""
        self.ax.add_artist(LineCollection(lines, colors=colour, linewidths=width, zorder=FILLS))

    def paint(self) -> None:
        """Put everything on the axes: shapes, then hatching, thin lines and outlines."""
        for look, shapes in itertools.groupby(self._shapes, lambda shape: shape.look):
            self.ax.add_artist(_painted(look, list(shapes)))
        if self._hatched:
            whole = Path.make_compound_path(*(Path(ring, closed=True) for ring in self._hatched))
            style = {"facecolor": "none", "edgecolor": HATCHING, "linewidth": 0, "hatch": HATCH}
            self.ax.add_artist(PathPatch(whole, **style, zorder=HATCHES))
        if self._thin:
            lines, inks, widths = zip(*self._thin, strict=True)
            self.ax.add_artist(LineCollection(lines, colors=inks, linewidths=widths, zorder=LINES))
        if self._outlines:
            rings, widths, dashes = zip(*self._outlines, strict=True)
            style = {"colors": INK, "linewidths": widths, "linestyles": list(dashes)}
            self.ax.add_artist(LineCollection(rings, **style, zorder=OUTLINES))


def _painted(look: _Look, shapes: list[_Shape]) -> Artist:
    """Shapes that look alike, as one artist."""
    style = {
        "joinstyle": look.joins,
        "linestyle": look.dashes,
        "hatch": HATCH if look.hatched_in else None,
        "zorder": look.layer,
    }
    corners, faces, edges, widths, _ = zip(*shapes, strict=True)
    if len(shapes) == 1 and look.joins == "miter":  # a collection of one is moved to whole pixels, corners and all
        return Polygon(corners[0], facecolor=faces[0], edgecolor=edges[0], linewidth=widths[0], **style)
    return PolyCollection(corners, facecolors=faces, edgecolors=edges, linewidths=widths, **style)


def _ring(rect: tuple) -> list[tuple[float, float]]:
    x, y, w, h = rect
    return [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)]


def blocks_of(mask: np.ndarray) -> list[tuple[Span, Span]]:
    """The True cells as few rectangles: (rows, cols) of each, equal runs of neighbouring rows joined."""
    open_runs: dict[Span, int] = {}
    found = []
    for r in range(mask.shape[0] + 1):
        row = mask[r] if r < mask.shape[0] else np.zeros(mask.shape[1], bool)  # below the last row all runs end
        edges = np.flatnonzero(np.diff(row, prepend=False, append=False))
        runs = {(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)}
        found += [((top, r), run) for run, top in open_runs.items() if run not in runs]
        open_runs = {run: open_runs.get(run, r) for run in sorted(runs)}
    return found
