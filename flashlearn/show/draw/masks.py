"""Which queries attend to which keys: masks, the blocks of scores that a run visited, tables of scores and weights.

Cells are queries (rows) by keys (columns): coloured if visible, hatched if hidden, on grey where no block was visited.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import Grid, Rect, Sheet, blocks_of
from flashlearn.show.draw.style import COLOURS, colour, fixed, tint

WIDTH, HEIGHT = 1280, 420
WIDE, HIGH = 42, 33  # of a cell
COLUMNS, MASK_TOP = (190, 680), 60  # where masks start


def draw_masks(ax: Axes, masks: Mapping[str, Tensor]) -> None:
    """Paint up to three masks (N_q, N_k), each under its name: hatched what is hidden; the third below the second.

    They have at most 10 rows and 11 columns; of three, the second has at most 7 rows and the third 2. ValueError for
    more, or for masks that do not fit there; TypeError for what are no booleans under names.
    """
    places = [(COLUMNS[0], MASK_TOP), (COLUMNS[1], MASK_TOP), (COLUMNS[1], 330)]
    _check(masks)
    sheet = Sheet(ax, WIDTH, HEIGHT)
    for (left, top), (name, mask) in zip(places, masks.items(), strict=False):
        sheet.text(left, top - 10, name, va="bottom", weight="bold")
        for i, row in enumerate(mask.tolist()):
            for j, sees in enumerate(row):
                face = tint("S", 0.7) if sees else colour("masked")
                sheet.box((left + WIDE * j, top + HIGH * i, WIDE, HIGH), face, edge="white", hatched=not sees)
    sheet.text(COLUMNS[0] - 10, MASK_TOP + 165, "queries ↓\nkeys →", ha="right", va="center")
    sheet.paint()


def _check(masks: Mapping[str, Tensor]) -> None:
    check_booleans(masks)
    shapes = [tuple(mask.shape) for mask in masks.values()]
    rows = (10, 7, 2) if len(shapes) == 3 else (10, 10)
    fits = len(shapes) <= len(rows) and all(
        len(shape) == 2 and shape[0] <= most and shape[1] <= 11 for shape, most in zip(shapes, rows, strict=False)
    )
    if not fits:
        raise ValueError(
            "expected up to three masks of at most 10 x 11, of three the second of at most 7 x 11 and the third 2 x 11, "
            f"got {shapes}"
        )


def check_booleans(masks: Mapping[str, Tensor]) -> None:
    """TypeError for what are no tensors of booleans under names."""
    if not isinstance(masks, Mapping):
        raise TypeError(f"expected masks by their names, {{name: mask}}, got {type(masks).__name__}")
    for name, mask in masks.items():
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"expected masks as tensors of booleans, got {got} for {name!r}")


NEVER, HIDDEN, SEEN = 0, 1, 2
TOP, BOTTOM = 62, 96  # pixels: above panels for their names, below for counts and key
SIDE, GAP = 30, 26  # beside panels, and between
MOST = 6


def draw_visits(ax: Axes, runs: Mapping[str, Sequence[Step]], masks: Mapping[str, Tensor]) -> None:
    """A panel for each run: its blocks as they were visited, outlined, and in them what its mask (N_q, N_k) shows.

    Which blocks is taken from the steps, what a block shows from the mask: a recorded kernel has no scores. The run is that of
    the first head. ValueError if a run has no mask of its size, or for more panels than fit; TypeError for masks that are
    no booleans.
    """
    _check_panels(runs, masks)
    runs = {name: list(run) for name, run in runs.items()}
    for name, run in runs.items():
        sizes, size = {tuple(step.shapes["S"][-2:]) for step in run if "S" in step.shapes}, tuple(masks[name].shape)
        if run and sizes != {size}:
            of = f"{size} for a run of {' and '.join(map(str, sizes)) or 'no scores'}, {name!r}"
            raise ValueError(f"expected a mask of the size of the scores of its run, got {of}")
    sheet = Sheet(ax)
    for area, (name, run) in zip(_areas(sheet, len(runs)), runs.items(), strict=True):
        blocks = visited(run)
        cells = torch.where(masks[name].cpu(), SEEN, HIDDEN).numpy()
        inside = np.zeros(cells.shape, dtype=bool)
        for rows, cols in blocks:
            inside[slice(*rows), slice(*cols)] = True
        grid = _cells(sheet, area, np.where(inside, cells, NEVER), name)
        for rows, cols in blocks:
            sheet.outline(grid.rect(rows, cols), 1.6)
        _below(sheet, grid, f"{len(blocks)} block{'s' * (len(blocks) > 1)}")
    _key(sheet, ("seen", "hidden in a block that is visited", "never visited"), "queries ↓  keys →")
    sheet.paint()


def draw_reach(ax: Axes, reach: Mapping[str, Tensor]) -> None:
    """A panel for each table (N, N) of booleans: which inputs the outputs depend on, and of the last output how many."""
    _check_panels(reach, reach)
    sheet = Sheet(ax)
    for area, (name, table) in zip(_areas(sheet, len(reach)), reach.items(), strict=True):
        grid = _cells(sheet, area, np.where(table.cpu().numpy(), SEEN, NEVER), name)
        sheet.outline(grid.rect((grid.rows - 1, grid.rows)), 2)
        _below(sheet, grid, f"last output: {int(table[-1].sum())}")
    _key(sheet, ("depends on", "", "does not"), "outputs ↓  inputs →")
    sheet.paint()


def visited(run: Sequence[Step]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """(rows, cols) of every block of scores of a run, each once, as the steps say."""
    made = [step.values for step in run if not any(step.program[1:])]  # of the first head
    made = [values for values in made if values.get("i") is not None and values.get("j") is not None]
    return list(dict.fromkeys((tuple(values["rows"]), tuple(values["cols"])) for values in made))


def draw_tables(
    ax: Axes, tables: Mapping[str, Tensor], sinks: Mapping[str, Tensor] | None = None, sums: bool = False
) -> None:
    """Up to three tables (rows, cols) with their numbers, dark where these are large; hatched where they are -inf.

    sinks  a column (rows,) more for the tables of these names, under the word "sink"
    sums   whether the sum of a row, without the sink, stands at its right
    """
    if not 0 < len(tables) <= 3 or any(t.ndim != 2 or max(t.shape) > 9 for t in tables.values()):
        raise ValueError(
            f"expected up to three tables of at most 9 x 9, got {[tuple(t.shape) for t in tables.values()]}"
        )
    sheet, sinks = Sheet(ax), sinks or {}
    finite = torch.cat([t[t.isfinite()].flatten().double() for t in (*tables.values(), *sinks.values())])
    low, high = (min(0.0, finite.min().item()), finite.max().item()) if len(finite) else (0.0, 0.0)
    wide = (sheet.width - 2 * SIDE - (len(tables) - 1) * 60) / len(tables)
    for at, (name, table) in enumerate(tables.items()):
        sink = sinks.get(name)
        cols = table.shape[1] + (1.5 if sinks else 0) + (1.4 if sums else 0)
        cell = min(wide / cols, (sheet.height - 80) / len(table), 62)
        left = SIDE + at * (wide + 60) + (wide - cols * cell) / 2
        grid = Grid(left, 56, len(table), table.shape[1], cell, min(cell, 46))
        sheet.text(grid.x, 14, name, va="top", weight="bold")
        _numbers(sheet, grid, table, low, high)
        if sink is not None:
            beside = Grid(grid.right + cell / 2, 56, len(table), 1, cell, grid.h)
            sheet.text(beside.middle, 52, "sink", ha="center", va="bottom", fontsize=14)
            _numbers(sheet, beside, sink[:, None], low, high)
        for row in range(len(table) if sums else 0):
            x, y = grid.right + (0.2 if sink is None else 1.7) * cell, grid.cell(row, 0).centre[1]
            sheet.text(x, y, f"Σ {fixed(table[row].sum().item(), 2)}", va="center", fontsize=14)
    sheet.paint()


# --- parts -------------------------------------------------------------------------------------------------


def _check_panels(runs: Mapping, masks: Mapping[str, Tensor]) -> None:
    check_booleans(masks)
    if not 0 < len(runs) <= MOST or not set(runs) <= set(masks):
        raise ValueError(
            f"expected up to {MOST} runs, each with a mask of its name, got {list(runs)} and {list(masks)}"
        )


def _areas(sheet: Sheet, panels: int) -> list[Rect]:
    wide = (sheet.width - 2 * SIDE - (panels - 1) * GAP) / panels
    return [Rect(SIDE + at * (wide + GAP), TOP, wide, sheet.height - TOP - BOTTOM) for at in range(panels)]


def _cells(sheet: Sheet, area: Rect, states: np.ndarray, name: str) -> Grid:
    """The cells of a panel, as large as fits, under its name."""
    rows, cols = states.shape
    size = min(area.w / cols, area.h / rows)
    grid = Grid(area.x + (area.w - cols * size) / 2, area.y, rows, cols, size, size)
    sheet.text(grid.middle, area.y - 12, name, ha="center", va="bottom", weight="bold", fontsize=16)
    sheet.fill(grid.rect(), "white")
    for block in blocks_of(states == SEEN):
        sheet.fill(grid.rect(*block), tint("S", 0.85))
    sheet.hatch_cells(grid, states == NEVER, COLOURS["masked"])
    sheet.hatch_cells(grid, states == HIDDEN, "white")
    sheet.cell_lines(grid)
    return grid


def _below(sheet: Sheet, grid: Grid, words: str) -> None:
    sheet.text(grid.middle, grid.bottom + 10, words, ha="center", va="top", weight="bold", fontsize=17)


def _key(sheet: Sheet, words: tuple[str, str, str], axes: str) -> None:
    """What the three kinds of cells mean, in one line at the foot, none for an empty word; and what the axes are."""
    y, faces = sheet.height - 24, (tint("S", 0.85), "white", COLOURS["masked"])
    entries = [(word, face, face != faces[0]) for word, face in zip(words, faces, strict=True) if word]
    sheet.legend(SIDE, y, entries, gaps=(8, 22), char=8.6)
    sheet.text(sheet.width - SIDE, y, axes, ha="right", va="center", fontsize=15)


def _numbers(sheet: Sheet, grid: Grid, table: Tensor, low: float, high: float) -> None:
    """The cells of a table: shaded from low to high, with their numbers."""
    digits = 2 if low >= 0 else 1
    for row in range(grid.rows):
        for col in range(grid.cols):
            value, rect = table[row, col].item(), grid.cell(row, col)
            if value == -math.inf:
                sheet.hatch(rect, "white")
                continue
            large = (min(value, high) - low) / (high - low or 1)  # an infinity as the largest number
            shade = "white" if math.isnan(value) else tint("S", 0.1 + 0.75 * large)
            sheet.fill(rect, shade)
            sheet.text(*rect.centre, fixed(value, digits), fontsize=15 if grid.w >= 48 else 13, **CENTRED)
    sheet.cell_lines(grid)
