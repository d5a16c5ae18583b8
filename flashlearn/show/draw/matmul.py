"""A matrix product by blocks, seen twice: element by element, and block by block."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step, Tile
from flashlearn.show.draw.parts import CENTRED, arrows, ground, on_chip_note, traffic_bars
from flashlearn.show.draw.sheet import Grid, Rect, Sheet, Span
from flashlearn.show.draw.style import INK, colour, fixed, index, ink_on, tint
from flashlearn.show.draw.values import check_steps_of

PALEST, DONE = 0.14, 0.45
CHIP = 172  # height of the SRAM panel
NAMES = ("A", "B", "C")


def draw_matmul(ax: Axes, step: Step) -> None:
    """Paint one step of C = A B: elements at the left, the same matrices as grids of blocks at the right."""
    check_steps_of("a matrix product", step, shapes=NAMES)
    sheet, sizes = Sheet(ax), _block_sizes(step)
    bottom, half = sheet.height - CHIP - 46, sheet.width / 2
    elements = dict.fromkeys(NAMES, (1, 1))
    for left, title, cells in ((12, "elements in HBM", elements), (half + 6, "blocks", sizes)):
        area = Rect(left, 2, half - 18, bottom - 8)
        ground(sheet, area, "HBM", title)
        counts = {name: tuple(map(_ceil, step.shapes[name], cells[name])) for name in NAMES}
        for name, grid in _grids(counts, area).items():
            _matrix(sheet, step, name, grid, cells[name])
            if cells is sizes and min(grid.w, grid.h) >= 34:
                _block_names(sheet, step, name, grid, cells[name])
    traffic_bars(sheet, step, 16, bottom, sheet.width - 32)
    _sram(sheet, step, sizes, Rect(12, sheet.height - CHIP, sheet.width - 24, CHIP - 2))
    sheet.paint()


def _grids(counts: dict[str, tuple[int, ...]], area: Rect) -> dict[str, Grid]:
    """A at the left of C, B above it, as the product puts them."""
    (M, K), (_, N) = counts["A"], counts["B"]
    x, y, w, h = area
    size = math.floor(min((w - 90) / (K + N), (h - 100) / (K + M), 56))
    left, top = round(x + (w - size * (K + N) - 34) / 2), y + 36
    middle, right = top + K * size + 34, left + K * size + 34
    return {
        "A": Grid(left, middle, M, K, size, size),
        "B": Grid(right, top, K, N, size, size),
        "C": Grid(right, middle, M, N, size, size),
    }


def _matrix(sheet: Sheet, step: Step, name: str, grid: Grid, cell: tuple[int, int]) -> None:
    """Pale where it lies, full and framed where this step works; C also half-tone where it is written."""
    sheet.fill(grid.rect(), tint(name, PALEST) if name != "C" else "white")
    if name == "C":
        for tile in (tile for s in step.so_far for tile in s.writes if tile.name == "C"):
            sheet.fill(grid.rect(*_in_cells(tile, cell)), tint("C", DONE))
    if (at_work := _at_work(step, name)) is not None:
        here = grid.rect(*_in_cells(at_work, cell))
        sheet.fill(here, colour(name))
        sheet.outline(here)
    sheet.cell_lines(grid)
    label = {"va": "bottom", "ha": "center", "weight": "bold", "fontsize": 17}
    above = grid.bottom + 28 if name == "C" else grid.y - 4
    sheet.text(grid.middle, above, name + arrows(step, name), **label)


def _at_work(step: Step, name: str) -> Tile | None:
    """The tile of a matrix that is on chip; of C, what is being summed up."""
    return next((tile for tile in step.on_chip if tile.name == (name if name != "C" else "acc")), None)


def _block_names(sheet: Sheet, step: Step, name: str, grid: Grid, cell: tuple[int, int]) -> None:
    """The name of every block in its cell, bold where this step works."""
    tile = _at_work(step, name)
    for i, j in np.ndindex(grid.rows, grid.cols):
        full = tile is not None and _in_cells(tile, cell) == ((i, i + 1), (j, j + 1))
        style = {"fontsize": 15, "weight": "bold" if full else "normal", "color": ink_on(name) if full else INK}
        sheet.text(*grid.cell(i, j).centre, name + index(i, j), **style, **CENTRED)


def _sram(sheet: Sheet, step: Step, sizes: dict[str, tuple[int, int]], area: Rect) -> None:
    """The tiles on chip, with the signs of the product between them."""
    ground(sheet, area, "SRAM", down=6)
    on_chip_note(sheet, area, step, 7)
    left, signs, tall = area.x + 120, {"A": "·", "B": "→"}, area.h - 62
    for tile in step.on_chip:
        block = sizes["C" if tile.name == "acc" else tile.name]
        rows, cols = tile.shape
        grid = Grid(left, area.y + 34, rows, cols, min(62.0, 260 / block[1]), min(26.0, tall / block[0]))
        _tile(sheet, step, tile, block, grid)
        left = grid.x + grid.w * block[1] + 90
        if tile.name in signs:
            sheet.text(left - 45, area.y + 34 + tall / 2, signs[tile.name], fontsize=26, **CENTRED)


def _tile(sheet: Sheet, step: Step, tile: Tile, block: tuple[int, int], grid: Grid) -> None:
    """One tile on chip: its name above, its shape below, its numbers where the step has them and there is room."""
    at = index(*(start // each for (start, _), each in zip(tile.index, block, strict=True)))
    sheet.fill(grid.rect(), colour("C" if tile.name == "acc" else tile.name))
    sheet.cell_lines(grid)
    label = tile.name + at + arrows(step, tile.name)
    sheet.text(grid.x, grid.y - 4, label, va="bottom", weight="bold", fontsize=16)
    sheet.text(grid.x, grid.bottom + 4, f"{grid.rows}×{grid.cols}", va="top", fontsize=13)
    values = step.values.get(tile.name)
    if values is not None and grid.w >= 50 and grid.h >= 18:
        values = values if tile.name == "acc" else values[tuple(slice(*span) for span in tile.index)]
        sheet.numbers(grid, values, partial(fixed, digits=2), fontsize=14, color=ink_on(tile.name))


def _block_sizes(step: Step) -> dict[str, tuple[int, int]]:
    """The largest tile of every matrix in the run: (rows, cols)."""
    found = {name: (1, 1) for name in NAMES}
    for s in step.run or (step,):
        for tile in (*s.reads, *s.writes):
            (rows, cols), (most_rows, most_cols) = tile.shape, found[tile.name]
            found[tile.name] = max(rows, most_rows), max(cols, most_cols)
    return found


def _in_cells(tile: Tile, cell: tuple[int, int]) -> tuple[Span, Span]:
    """(rows, cols) of a tile in cells of that many elements."""
    rows, cols = ((start // each, _ceil(stop, each)) for (start, stop), each in zip(tile.index, cell, strict=True))
    return rows, cols


def _ceil(n: int, each: int) -> int:
    return -(-n // each)
