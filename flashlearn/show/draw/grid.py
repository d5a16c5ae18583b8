"""What pictures of tiles share: matrices as grids of cells, and the bar of bytes that moved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from flashlearn.core.steps import Step, hbm_bytes
from flashlearn.show.draw.style import HATCH, INK, QUIET, number

Span = tuple[int, int]
Rect = tuple[float, float, float, float]  # left, top, width, height
SMALLEST = 4  # pixels: smaller cells get no grid lines
FAINT, HATCHING = "#D5D5D5", "#8A8A8A"
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class Place:
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
        return self.x + c0 * self.w, self.y + r0 * self.h, (c1 - c0) * self.w, (r1 - r0) * self.h

    @property
    def right(self) -> float:
        return self.x + self.cols * self.w

    @property
    def bottom(self) -> float:
        return self.y + self.rows * self.h

    @property
    def middle(self) -> float:
        return (self.x + self.right) / 2


def pixels(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes."""
    window = ax.get_window_extent()
    return round(window.width), round(window.height)


class Sheet:
    """Rectangles and lines, gathered in the order in which they are painted, put on the axes as four artists.

    A matplotlib artist costs about a millisecond, and a picture of tiles has hundreds of rectangles.
    """

    def __init__(self):
        self._fills: list[tuple[Rect, Any, Any, float]] = []
        self._hatched: list[Rect] = []
        self._thin: list[tuple[Any, str, float]] = []
        self._outlines: list[tuple[Any, float, Any]] = []

    def fill(self, rect: Rect, face, edge="none", width: float = 0.0) -> None:
        """A rectangle; later ones cover earlier ones."""
        self._fills.append((rect, face, edge, width))

    def hatch(self, rect: Rect) -> None:
        """Hatching, which runs on from rectangle to rectangle."""
        self._hatched.append(rect)

    def grid(self, place: Place) -> None:
        """Thin lines between the cells of a matrix, and a frame around it."""
        across = [place.x + c * place.w for c in range(1, place.cols)] if place.w >= SMALLEST else []
        down = [place.y + r * place.h for r in range(1, place.rows)] if place.h >= SMALLEST else []
        lines = [[(x, place.y), (x, place.bottom)] for x in across]
        lines += [[(place.x, y), (place.right, y)] for y in down]
        self._thin += [(line, FAINT, 0.7) for line in lines]
        self._thin.append((_ring(place.rect()), QUIET, 1.2))

    def outline(self, rect: Rect, width: float = 3.0, dashes="solid") -> None:
        """A frame in ink around a block of cells, above everything."""
        self._outlines.append((_ring(rect), width, dashes))

    def paint(self, ax: Axes) -> None:
        """Put everything on the axes: rectangles, then hatching, thin lines and outlines."""
        if self._fills:
            rects, faces, edges, widths = zip(*self._fills, strict=True)
            rings = [_ring(rect)[:4] for rect in rects]
            fills = PolyCollection(rings, facecolors=faces, edgecolors=edges, linewidths=widths, zorder=1)
            ax.add_artist(fills)
        if self._hatched:
            whole = Path.make_compound_path(*(Path(_ring(rect), closed=True) for rect in self._hatched))
            style = {"facecolor": "none", "edgecolor": HATCHING, "linewidth": 0, "hatch": HATCH}
            ax.add_artist(PathPatch(whole, **style, zorder=2))
        if self._thin:
            lines, inks, widths = zip(*self._thin, strict=True)
            thin = LineCollection(lines, colors=inks, linewidths=widths, zorder=2.5)
            ax.add_artist(thin)
        if self._outlines:
            rings, widths, dashes = zip(*self._outlines, strict=True)
            frames = LineCollection(rings, colors=INK, linewidths=widths, linestyles=list(dashes), zorder=4)
            ax.add_artist(frames)


def _ring(rect: Rect) -> list[tuple[float, float]]:
    x, y, w, h = rect
    return [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)]


def blocks_of(mask: np.ndarray) -> list[tuple[Span, Span]]:
    """The True cells as few rectangles: (rows, cols) of each, equal runs of neighbouring rows joined."""
    open_runs: dict[Span, int] = {}
    found = []
    for r in range(mask.shape[0] + 1):
        edges = np.flatnonzero(np.diff(mask[r], prepend=False, append=False)) if r < mask.shape[0] else []
        runs = {(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)}
        found += [((top, r), run) for run, top in open_runs.items() if run not in runs]
        open_runs = {run: open_runs.get(run, r) for run in sorted(runs)}
    return found


def index(*numbers: int) -> str:
    """Block numbers as subscripts: 2, 1 gives ₂₁, and 12, 1 gives ₁₂,₁."""
    return (", " if max(numbers, default=0) > 9 else "").strip().join(map(str, numbers)).translate(SUBSCRIPTS)


def ink_on(name: str) -> str:
    """The ink that can be read on a matrix's full colour: a contrast of 4.5 or more (WCAG)."""
    return "white" if name in ("Q", "A", "dQ") else "black"


def fixed(value: float, digits: int) -> str:
    """A number with that many digits, so that columns line up; no minus sign before a zero."""
    return number(value) if math.isinf(value) else f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def traffic_bars(ax: Axes, sheet: Sheet, step: Step, x: float, y: float, w: float, full: int | None = None) -> None:
    """Bytes read and written so far, as numbers and as bars on one scale; what this step moved is dark.

    `full` is the number of bytes that fills a bar; that of the whole run unless given. 42 pixels high.
    """
    so_far, now = hbm_bytes(step.so_far), hbm_bytes([step])
    full = full or max(hbm_bytes(step.run or (step,)))
    each = (w - 24) / 2
    for left, name, all_of_it, new in (
        (x, "▼ read", so_far.read, now.read),
        (x + each + 24, "▲ written", so_far.written, now.written),
    ):
        ax.text(left, y + 11, f"{name} {all_of_it:,} B", va="center", weight="bold", fontsize=14)
        if new:
            ax.text(left + each, y + 11, f"+{new:,}", va="center", ha="right", fontsize=14)
        unit = each / full if full else 0
        sheet.fill((left, y + 25, each, 13), "white", QUIET, 1)
        sheet.fill((left, y + 25, (all_of_it - new) * unit, 13), "#9A9A9A")
        sheet.fill((left + (all_of_it - new) * unit, y + 25, new * unit, 13), INK)


def arrows(step: Step, name: str) -> str:
    """▼ after the name of a matrix that this step read from HBM, ▲ if it wrote there."""
    read, written = (any(tile.name == name for tile in tiles) for tiles in (step.reads, step.writes))
    return f" {'▼' * read}{'▲' * written}".rstrip()
