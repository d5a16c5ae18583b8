"""A tensor in memory order and in index order; the sectors of memory that one load of a warp touches."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.cost.sectors import SECTOR
from flashlearn.show.draw.parts import CENTRED, ground
from flashlearn.show.draw.sheet import Grid, Rect, Sheet
from flashlearn.show.draw.style import INK, QUIET, colour, number, tint
from flashlearn.show.draw.values import check_step, check_steps_of

PALEST, DONE = 0.12, 0.45
NUMBERS_FROM = 30  # pixels: narrower cells stay without a number


def draw_strides(ax: Axes, step: Step) -> None:
    """Paint one step of a walk over a tensor of up to three dimensions; the element of this step is picked out.

    values  memory, shape, strides, offsets, start; index and offset of the element, if one is visited
    """
    check_steps_of("a walk over a tensor", step, values=["memory", "shape", "strides", "offsets", "start"])
    sheet = Sheet(ax)
    _memory(sheet, step, Rect(16, 8, sheet.width - 32, 196))
    _index_order(sheet, step, Rect(16, 226, sheet.width - 500, sheet.height - 232))
    _arithmetic(sheet, step, sheet.width - 460, 240)
    sheet.paint()


def _memory(sheet: Sheet, step: Step, area: Rect) -> None:
    """All elements of the storage with their addresses, and the hop from the element before."""
    memory, current = step.values["memory"].tolist(), step.values.get("offset")
    each = (area.w - 24) / max(len(memory), 1)
    grid = Grid(area.x + 12, area.y + 112, 1, len(memory), each, 44)
    ground(sheet, area, "HBM", "memory: one long row of elements", down=8)
    visited = [s.values["offset"] for s in step.so_far if "offset" in s.values]
    for offset, value in enumerate(memory):
        rect = grid.cell(0, offset)
        _cell(sheet, rect, offset == current, offset in visited)
        if each >= NUMBERS_FROM:
            style = {"fontsize": 16, "weight": "bold" if offset == current else "normal"}
            sheet.text(*rect.centre, number(value, 1), **style, **CENTRED)
            below = {"va": "top", "ha": "center", "fontsize": 13, "color": QUIET}
            sheet.text(rect.centre[0], grid.bottom + 5, f"{offset}", **below)
    sheet.cell_lines(grid)
    note = {"va": "top", "ha": "right", "fontsize": 14, "color": QUIET}
    sheet.text(area.right - 12, area.y + 8, "below: offset in elements", **note)
    if current is not None and len(visited) > 1:
        start, end = (grid.x + (offset + 0.5) * each for offset in visited[-2:])
        _hop(sheet, start, end, grid.y - 4, visited[-1] - visited[-2])


def _cell(sheet: Sheet, rect: Rect, current: bool, seen: bool) -> None:
    """An element: full and framed if it is visited now, half-tone if before, pale if not yet."""
    sheet.fill(rect, colour("x") if current else tint("x", DONE if seen else PALEST))
    if current:
        sheet.outline(rect)


def _hop(sheet: Sheet, start: float, end: float, y: float, by: int) -> None:
    """An arrow from one element to the next, with how far it goes."""
    bend = -0.35 if end > start else 0.35
    bend *= min(1.0, 150 / abs(end - start)) if by else 1.0
    style = {"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", "color": INK, "linewidth": 2}
    sheet.ax.annotate("", (end, y), (start, y), arrowprops={**style, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 18})
    text = f"{by:+d}".replace("-", "−")
    top = y - abs(bend * (end - start)) / 2 - 8
    sheet.text((start + end) / 2, top, text, ha="center", va="bottom", weight="bold", fontsize=18)


def _index_order(sheet: Sheet, step: Step, area: Rect) -> None:
    """The tensor as its indices say: a grid per entry of the first of three dimensions, offsets inside."""
    shape, strides = tuple(step.values["shape"]), tuple(step.values["strides"])
    if len(shape) > 3:
        raise ValueError(f"expected a tensor of at most three dimensions, got shape {shape}")
    grids, rows, cols = (1,) * (3 - len(shape)) + shape
    offsets = step.values["offsets"].reshape(grids, rows, cols).tolist()
    wide = min(70, (area.w - 40 * (grids - 1)) / max(grids * cols, 1))
    high = min(50, (area.h - 62) / max(rows, 1))
    words = f"index order: shape {shape}, strides {strides}"
    sheet.text(area.x, area.y, words, weight="bold", va="top", color=QUIET)
    for g in range(grids):
        grid = Grid(area.x + g * (cols * wide + 44), area.y + 58, rows, cols, wide, high)
        if len(shape) == 3:
            sheet.text(grid.x, grid.y - 5, f"index [{g}, ·, ·]", va="bottom", fontsize=15)
        _matrix(sheet, step, (g,) if len(shape) == 3 else (), grid, offsets[g])


def _matrix(sheet: Sheet, step: Step, before: tuple[int, ...], grid: Grid, offsets: list[list[int]]) -> None:
    """The elements whose index begins with `before`, each with its offset."""
    seen = {s.values["index"] for s in step.so_far if "index" in s.values}
    dims = len(step.values["shape"])
    for r, c in np.ndindex(grid.rows, grid.cols):
        index = (*before, r, c)[-dims:] if dims else ()
        current, rect = index == step.values.get("index"), grid.cell(r, c)
        _cell(sheet, rect, current, index in seen)
        if min(grid.w, grid.h) >= 22:
            style = {"fontsize": 18, "weight": "bold" if current else "normal"}
            sheet.text(*rect.centre, f"{offsets[r][c]}", **style, **CENTRED)
    sheet.cell_lines(grid)


def _arithmetic(sheet: Sheet, step: Step, x: float, y: float) -> None:
    """index times stride, one line per dimension, and the sum."""
    if "index" not in step.values:
        return
    sheet.text(x, y, "index × stride", weight="bold", va="top", color=QUIET)
    lines = [
        f"{i} × {stride:>2} = {i * stride:>2}"
        for i, stride in zip(step.values["index"], step.values["strides"], strict=True)
    ]
    if step.values["start"]:
        lines.insert(0, f" start = {step.values['start']:>2}")
    mono = {"family": "monospace", "va": "top", "fontsize": 22}
    for n, line in enumerate(lines):
        sheet.text(x, y + 34 + 36 * n, line, **mono)
    sheet.text(x, y + 44 + 36 * len(lines), f"offset = {step.values['offset']}", weight="bold", **mono)


MOST, GAP = 32, 7  # sectors in a row; pixels between them


def draw_sectors(ax: Axes, step: Step) -> None:
    """Paint a run of `sector_steps`: a row of sectors for each stride, up to this step."""
    check_step("sectors of a load", step)
    rows = [s for s in (step.so_far or (step,)) if "sectors" in s.values]
    check_steps_of("sectors of a load", rows[-1] if rows else step, values=["sectors", "stride", "moved", "wanted"])
    sheet = Sheet(ax)
    area = Rect(8, 4, sheet.width - 16, sheet.height - 8)
    ground(sheet, area, "HBM", f"HBM: a box is a sector of {SECTOR} bytes; a load of a warp wants the dark elements")
    all_rows = [s for s in (step.run or rows) if "sectors" in s.values]
    high = (area.h - 50) / len(all_rows)
    for at, one in enumerate(rows):
        _row(sheet, one, Rect(area.x + 14, area.y + 44 + at * high, area.w - 28, high))
    sheet.paint()


def _row(sheet: Sheet, step: Step, area: Rect) -> None:
    """One stride: what is moved and wanted, and the sectors in the order of their addresses."""
    found, each = step.values["sectors"], SECTOR // step.values["itemsize"]
    moved, wanted = step.values["moved"], step.values["wanted"]
    head = f"stride {step.values['stride']:,}: {len(found)} sectors"
    sheet.text(area.x, area.y + 18, head, va="center", fontsize=18, weight="bold")
    note = f"{moved:,} bytes move, {wanted} of them wanted ({100 * wanted / moved:.3g} %)"
    sheet.text(area.x + 380, area.y + 18, note, va="center", fontsize=17)
    wide = (area.w - (MOST - 1) * GAP) / MOST
    for n, (sector, elements) in enumerate(sorted(found.items())):
        grid = Grid(area.x + n * (wide + GAP), area.y + 36, 1, each, wide / each, min(54, area.h - 62))
        sheet.fill(grid.rect(), tint("x", 0.15))
        for element in elements:
            sheet.fill(grid.cell(0, element), colour("x"))
        sheet.box(grid.rect(), "none", QUIET, 1.2, raised=True)
        if n in (0, len(found) - 1) or len(found) <= 8:
            end = n == MOST - 1
            below = {"va": "top", "ha": "right" if end else "center", "fontsize": 13, "color": QUIET}
            sheet.text(grid.right if end else grid.x + wide / 2, grid.bottom + 3, f"{sector * SECTOR:,}", **below)
