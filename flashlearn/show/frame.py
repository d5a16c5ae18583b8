"""From steps to pixels: the one place where animation and widget make a figure."""

from __future__ import annotations

import contextlib
import gc
import html
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.collections import Collection, LineCollection
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from PIL import Image
from torch import Tensor

from flashlearn.core.signs import number as shown
from flashlearn.core.steps import Step, hbm_bytes, record
from flashlearn.show.draw.style import COLOURS, INK, QUIET, STYLE, contrast, outline_of
from flashlearn.show.draw.surface import Surface
from flashlearn.show.inputs import check_steps
from flashlearn.show.panels import DPI, Panels, panels

Draw = Callable[..., Any]  # draw(step) -> Scene, or draw(ax, step)
Size = tuple[float, float]  # inches
Steps = Iterable[Step] | Mapping[str, Iterable[Step]]
TITLE = 0.45  # inches kept for the title of a panel that is painted on axes


class Look:
    """How pictures are painted: pixels and lines enlarged by these factors. `flashlearn.projector` sets them."""

    scale, lines = 1.0, 1.0

    @property
    def key(self) -> tuple[float, float]:
        """Pictures with the same key are painted alike."""
        return self.scale, self.lines


look = Look()


def as_runs(steps: Steps) -> dict[str, list[Step]]:
    """Recorded runs by title: one run without a title, or several to be shown next to each other."""
    runs = steps if isinstance(steps, Mapping) else {"": steps}
    if not runs:
        raise ValueError("expected at least one run of steps, got an empty mapping")
    return {title: record(check_steps(each)) for title, each in runs.items()}


def count(runs: Mapping[str, list[Step]]) -> int:
    """Frames needed: as many as the longest run has steps."""
    return max(len(run) for run in runs.values())


def at(runs: Mapping[str, list[Step]], number: int) -> dict[str, Step]:
    """Every run at frame `number`; one that is over stays at its last step."""
    return {title: run[min(number, len(run) - 1)] for title, run in runs.items()}


def transcript(runs: Mapping[str, list[Step]], number: int) -> str:
    """What one frame shows, in words: "Step 3 of 9 · ..."; one line per run."""
    return "\n".join(f"{title}: {words(step)}" if title else words(step) for title, step in at(runs, number).items())


def words(step: Step) -> str:
    """One step in words, without its title."""
    return f"Step {step.number + 1} of {len(step.run)} · {step.sentence}"


def table(runs: Mapping[str, list[Step]]) -> list[list[str]]:
    """All steps as rows of a table: run, step, bytes read, bytes written, values that are one number, sentence."""
    rows = []
    for title, run in runs.items():
        for step in run:
            read, written = hbm_bytes([step])
            one = {name: v for name, v in step.values.items() if isinstance(v, Tensor) and v.numel() == 1}
            values = ", ".join(f"{name} = {shown(float(v))}" for name, v in one.items())
            rows.append([title, f"{step.number + 1}", f"{read:,}", f"{written:,}", values, step.sentence])
    return rows


def columns(rows: list[list[str]]) -> dict[str, list]:
    """Such rows under the heads of their columns, those without content left out: {"heads": [...], "rows": [...]}."""
    heads = ["run", "step", "bytes read", "bytes written", "values", "what happens"]
    kept = [column for column in range(len(heads)) if any(row[column] for row in rows)]
    return {"heads": [heads[column] for column in kept], "rows": [[row[column] for column in kept] for row in rows]}


def table_html(rows: list[list[str]], caption: str) -> str:
    """Such rows as an HTML table whose columns screen readers can name; columns without content are left out."""
    shown = columns(rows)
    head = "".join(f'<th scope="col">{name}</th>' for name in shown["heads"])
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in shown["rows"]]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f"<table><caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def rescales(step: Step) -> bool:
    """Whether the maximum of some row rises from a number to a higher one, so that what is older is scaled."""
    if not {"m_old", "m_i"} <= step.values.keys():  # before FlashAttention-1's line 11 there is no new maximum
        return False
    old, new = step.values["m_old"], step.values["m_i"]
    return bool(((new > old) & old.isfinite()).any())


def layouts(runs: Mapping[str, list[Step]], number: int, draw: Draw) -> list[Panels]:
    """The scenes of one frame, wide and narrow; none of a painter on axes."""
    found = (panels(at(runs, number), draw, narrow) for narrow in (False, True))
    return [layout for layout in found if layout]


def paint(runs: Mapping[str, list[Step]], number: int, draw: Draw, figsize: Size) -> Image.Image:
    """One frame as an RGB picture, a panel for every run. `figsize` is for painters on axes, without titles."""
    image = pixels(drawn(runs, number, draw, figsize))
    collect_garbage()
    return image


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """The garbage collector waits; `collect_garbage` makes up for it when the figure is gone.

    A figure is some 15,000 objects that hold each other. Left to itself the collector meets half a figure, counts it
    among the old ones, and after some frames looks at all objects of the process: with PyTorch's 0.3 s, twice a frame.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def collect_garbage() -> None:
    """Collect what is new, unless somebody has turned the collector off."""
    if gc.isenabled():
        gc.collect(1)


@without_garbage_collection()
def drawn(runs: Mapping[str, list[Step]], number: int, draw: Draw, figsize: Size) -> Surface:
    """The first half of `paint`: everything is in its place, and has no pixels yet."""
    steps = at(runs, number)
    with style.context(STYLE):
        scenes = panels(steps, draw)
        fig = scenes.figure() if scenes else _on_axes(steps, draw, figsize)
        surface = Surface(fig)
        if look.lines != 1:
            thicken(fig)
        fig.dpi = DPI * look.scale  # only now: draw functions measure in pixels at 100 per inch
    return surface


def _on_axes(steps: Mapping[str, Step], draw: Draw, figsize: Size) -> Figure:
    """A figure with axes for every run, painted by `draw(ax, step)`."""
    width, height = figsize
    full = height + TITLE * any(steps)
    fig = Figure(figsize=(width, full), dpi=DPI)
    for column, (title, step) in enumerate(steps.items()):
        left = column / len(steps)
        draw(fig.add_axes((left, 0, 1 / len(steps), height / full)), step)
        if title:
            fig.text(left + 0.0125, 1 - 0.1 / full, title, va="top", weight="bold", fontsize=22)
    return fig


@without_garbage_collection()
def pixels(surface: Surface) -> Image.Image:
    """The second half of `paint`."""
    with style.context(STYLE):
        surface.draw()
    size = surface.get_width_height(physical=True)
    return Image.frombuffer("RGBA", size, surface.buffer_rgba()).convert("RGB")


GROUND = COLOURS["HBM"]  # the darkest that pictures are painted on
MIN_CONTRAST = 3.0  # contrast that a line, or what bounds a surface, has on a projector (WCAG 1.4.11)


def thicken(fig: Figure) -> None:
    """Thicker lines, except those between the cells of a grid; pale surfaces outlined, pale lines and words dark."""
    found: list[Any] = fig.findobj(lambda artist: isinstance(artist, (Line2D, Patch, Collection)))
    for artist in found:
        width = np.asarray(artist.get_linewidth())
        artist.set_linewidth(np.where(width < 1, width, look.lines * width))
        if isinstance(artist, (Line2D, LineCollection)):
            _darken(artist)
        else:
            _outline(artist)
    for text in fig.findobj(Text):
        if text.get_color() == QUIET:
            text.set_color(INK)


def _darken(line: Any) -> None:
    """Lines of a contrast that is too low, but for those of a grid, in the strong colour."""
    inks, widths = np.atleast_2d(to_rgba_array(line.get_color())), np.atleast_1d(line.get_linewidth())
    if len(inks) and widths.max() >= 1:
        dark: list[Any] = [
            ink if width < 1 or contrast(on_white(ink), GROUND) >= MIN_CONTRAST else _stronger(on_white(ink))
            for ink, width in zip(*_as_long(inks, widths), strict=True)
        ]
        line.set_color(dark[0] if isinstance(line, Line2D) else dark)


def _stronger(ink: tuple[float, float, float]) -> tuple[float, float, float]:
    """The strong colour of a pale one; but a grey stays a grey, for a dark line may lie on it."""
    if max(ink) - min(ink) > 0.02:
        return outline_of(ink)
    while contrast(ink, GROUND) < MIN_CONTRAST:
        ink = (0.95 * ink[0], 0.95 * ink[1], 0.95 * ink[2])
    return ink


def _outline(surface: Any) -> None:
    """An edge in the strong colour for every surface that is too pale; greys, which are grounds or hatched, stay."""
    faces, edges = (np.atleast_2d(to_rgba_array(c)) for c in (surface.get_facecolor(), surface.get_edgecolor()))
    pale = np.array([_is_pale(face) for face in faces], bool)
    if not pale.any():
        return
    edges = np.zeros((1, 4)) if not len(edges) else edges
    faces, edges, widths = _as_long(faces, edges, np.atleast_1d(surface.get_linewidth()))
    for n in np.flatnonzero(pale):
        if widths[n] < 1 or contrast(on_white(edges[n]), GROUND) < MIN_CONTRAST:
            edges[n], widths[n] = (*outline_of(on_white(faces[n])), 1.0), 2.0
    one = isinstance(surface, Patch)
    surface.set_edgecolor(edges[0] if one else edges)
    surface.set_linewidth(widths[0] if one else widths)


def _is_pale(face: np.ndarray) -> bool:
    """Whether it has a colour, and one that is hard to tell from white."""
    shown = on_white(face)
    return max(shown) - min(shown) > 0.02 and contrast(shown, GROUND) < MIN_CONTRAST


def on_white(rgba) -> tuple[float, float, float]:
    """A colour as it looks on white."""
    *rgb, alpha = map(float, rgba)
    r, g, b = (1 - alpha * (1 - part) for part in rgb)
    return r, g, b


def _as_long(*lists: np.ndarray) -> list[np.ndarray]:
    """All as long as the longest, by repetition, which is what matplotlib does with them."""
    most = max(map(len, lists))
    return [np.array([each[n % len(each)] for n in range(most)]) for each in lists]


def png(picture: Image.Image) -> bytes:
    """A picture as PNG bytes, packed fast rather than small."""
    stream = io.BytesIO()
    picture.save(stream, "png", compress_level=1)
    return stream.getvalue()
