"""A matrix product by blocks, seen twice: element by element, and block by block."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.grid import Place, Sheet, arrows, fixed, index, ink_on, pixels, traffic_bars
from flashlearn.show.draw.style import COLOURS, INK, QUIET, canvas, colour, tint

PALE, DONE = 0.14, 0.45
CHIP = 172  # height of the SRAM panel
NAMES = ("A", "B", "C")


def draw_matmul(ax: Axes, step: Step) -> None:
    """Paint one step of C = A B: elements at the left, the same matrices as grids of blocks at the right."""
    width, height = pixels(ax)
    canvas(ax, width, height)
    sheet, sizes = Sheet(), _block_sizes(step)
    bottom, half = height - CHIP - 46, width / 2
    for left, title, unit in ((12, "elements in HBM", (1, 1)), (half + 6, "blocks", None)):
        panel = (left, 2, half - 18, bottom - 8)
        sheet.fill(panel, COLOURS["HBM"], QUIET, 1.5)
        ax.text(left + 10, 9, title, weight="bold", va="top", color=QUIET)
        cells = {name: unit or sizes[name] for name in NAMES}
        counts = {name: tuple(map(_ceil, step.shapes[name], cells[name])) for name in NAMES}
        places = _places(counts, panel)
        for name, place in places.items():
            _matrix(ax, sheet, step, name, place, cells[name], sizes[name] if unit is None else None)
    traffic_bars(ax, sheet, step, 16, bottom, width - 32)
    _sram(ax, sheet, step, sizes, 12, height - CHIP, width - 24, CHIP - 2)
    sheet.paint(ax)


def _places(counts, panel) -> dict[str, Place]:
    """A at the left of C, B above it, as the product puts them."""
    (M, K), (_, N) = counts["A"], counts["B"]
    x, y, w, h = panel
    size = math.floor(min((w - 90) / (K + N), (h - 100) / (K + M), 56))
    left, top = round(x + (w - size * (K + N) - 34) / 2), y + 36
    middle, right = top + K * size + 34, left + K * size + 34
    return {
        "A": Place(left, middle, M, K, size, size),
        "B": Place(right, top, K, N, size, size),
        "C": Place(right, middle, M, N, size, size),
    }


def _matrix(ax, sheet, step, name, place, cell, sizes):
    """Pale where it lies, full and framed where this step works; C also half-tone where it is written."""
    sheet.fill(place.rect(), tint(name, PALE) if name != "C" else "white")
    if name == "C":
        for tile in (tile for s in step.so_far for tile in s.writes if tile.name == "C"):
            sheet.fill(place.rect(*_in_cells(tile, cell)), tint("C", DONE))
    now = [tile for tile in step.on_chip if tile.name == (name if name != "C" else "acc")]
    for tile in now[:1]:
        sheet.fill(place.rect(*_in_cells(tile, cell)), colour(name))
        sheet.outline(place.rect(*_in_cells(tile, cell)))
    sheet.grid(place)
    label = {"va": "bottom", "ha": "center", "weight": "bold", "fontsize": 17}
    above = place.bottom + 28 if name == "C" else place.y - 4
    ax.text(place.middle, above, name + arrows(step, name), **label)
    if sizes and min(place.w, place.h) >= 34:
        for i, j in np.ndindex(place.rows, place.cols):
            full = bool(now) and _in_cells(now[0], cell) == ((i, i + 1), (j, j + 1))
            x, y, w, h = place.rect((i, i + 1), (j, j + 1))
            style = {"ha": "center", "va": "center", "fontsize": 15, "weight": "bold" if full else "normal"}
            ax.text(x + w / 2, y + h / 2, name + index(i, j), color=ink_on(name) if full else INK, **style)


def _sram(ax, sheet, step, sizes, x, y, w, h):
    """The tiles on chip, with their numbers where the step has them."""
    sheet.fill((x, y, w, h), COLOURS["SRAM"], "#B8860B", 2)
    ax.text(x + 10, y + 6, "SRAM", weight="bold", va="top", color=QUIET)
    note = f"{sum(tile.nbytes for tile in step.on_chip):,} B on chip"
    ax.text(x + w - 10, y + 7, note, va="top", ha="right", fontsize=14)
    left, signs = x + 120, {"A": "·", "B": "→"}
    for tile in step.on_chip:
        block = sizes["C" if tile.name == "acc" else tile.name]
        broad, tall = min(62.0, 260 / block[1]), min(26.0, (h - 62) / block[0])
        rows, cols = tile.shape
        place = Place(left, y + 34, rows, cols, broad, tall)
        at = index(*(start // each for (start, _), each in zip(tile.index, block, strict=True)))
        sheet.fill(place.rect(), colour("C" if tile.name == "acc" else tile.name))
        sheet.grid(place)
        ax.text(left, y + 30, tile.name + at + arrows(step, tile.name), va="bottom", weight="bold", fontsize=16)
        ax.text(left, place.bottom + 4, f"{rows}×{cols}", va="top", fontsize=13)
        values = step.values.get(tile.name)
        if values is not None and broad >= 50 and tall >= 18:
            values = values if tile.name == "acc" else values[tuple(slice(*span) for span in tile.index)]
            for r, c in np.ndindex(rows, cols):
                at_x, at_y, cell_w, cell_h = place.rect((r, r + 1), (c, c + 1))
                style = {"ha": "center", "va": "center", "fontsize": 14, "color": ink_on(tile.name)}
                ax.text(at_x + cell_w / 2, at_y + cell_h / 2, fixed(float(values[r, c]), 2), **style)
        left = place.x + broad * block[1] + 90
        if tile.name in signs:
            ax.text(left - 45, y + 34 + (h - 62) / 2, signs[tile.name], ha="center", va="center", fontsize=26)


def _block_sizes(step) -> dict[str, tuple[int, int]]:
    """The largest tile of every matrix in the run: (rows, cols)."""
    found = {name: (1, 1) for name in NAMES}
    for s in step.run or (step,):
        for tile in (*s.reads, *s.writes):
            found[tile.name] = tuple(map(max, found[tile.name], tile.shape))
    return found


def _in_cells(tile, cell) -> tuple[tuple[int, int], tuple[int, int]]:
    """(rows, cols) of a tile in cells of that many elements."""
    return tuple((start // each, _ceil(stop, each)) for (start, stop), each in zip(tile.index, cell, strict=True))


def _ceil(n: int, each: int) -> int:
    return -(-n // each)
