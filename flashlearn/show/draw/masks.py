"""Which queries attend to which keys: masks, the blocks of scores that a run visited, tables of scores and weights.

Cells are queries (rows) by keys (columns): coloured if visible, hatched if hidden, on grey where no block was visited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from flashlearn.core.signs import fixed
from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width, wrapped
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.pairs import Block
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Look, Scene, blocks_of

MOST, HIGHEST = 6, 240  # panels, and pixels of a panel
GAP, UNDER, FOOT = 24, 30, 34  # pixels between panels, below each for its count, and at the foot for the key
NAME = 18  # pixels for each line of a panel's name
CELL = 34, 26  # pixels: an entry of a table
SEEN, HIDDEN, NEVER = Look("S", "half"), Look("blank", hatched=True), Look("masked", hatched=True)
Cells = list[list[bool]]


def draw_masks(masks: Mapping[str, Tensor], *, narrow: bool = False) -> Scene:
    """Up to three masks (N_q, N_k), each under its name: hatched what is hidden.

    ValueError for more masks, or larger ones than 10 x 11; TypeError for what are no booleans under names.
    """
    check_booleans(masks)
    shapes = [tuple(mask.shape) for mask in masks.values()]
    if not 0 < len(shapes) <= 3 or any(len(s) != 2 or s[0] > 10 or s[1] > 11 for s in shapes):
        raise ValueError(f"expected up to three masks of at most 10 x 11, got {shapes}")
    scene, grids = _panels(masks, shapes, narrow, under=8)
    for grid, mask in zip(grids, masks.values(), strict=True):
        _cells(scene, grid, mask.tolist(), [[True] * grid.cols for _ in range(grid.rows)])
    _key(scene, {"attends": SEEN, "hidden": HIDDEN}, "queries ↓  keys →")
    return scene


def check_booleans(masks: Mapping[str, Tensor]) -> None:
    """TypeError for what are no tensors of booleans under names."""
    if not isinstance(masks, Mapping):
        raise TypeError(f"expected masks by their names, {{name: mask}}, got {type(masks).__name__}")
    for name, mask in masks.items():
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"expected masks as tensors of booleans, got {got} for {name!r}")


def draw_visits(runs: Mapping[str, Sequence[Step]], masks: Mapping[str, Tensor], *, narrow: bool = False) -> Scene:
    """A panel for each run: its blocks as they were visited, outlined, and in them what its mask (N_q, N_k) shows.

    Which blocks is taken from the steps, what a block shows from the mask: a recorded kernel has no scores. The run is
    that of the first head. ValueError if a run has no mask of its size, or for more panels than fit; TypeError for
    masks that are no booleans.
    """
    _check_panels(runs, masks)
    runs = {name: list(run) for name, run in runs.items()}
    for name, run in runs.items():
        sizes, size = {tuple(step.shapes["S"][-2:]) for step in run if "S" in step.shapes}, tuple(masks[name].shape)
        if run and sizes != {size}:
            of = f"{size} for a run of {' and '.join(map(str, sizes)) or 'no scores'}, {name!r}"
            raise ValueError(f"expected a mask of the size of the scores of its run, got {of}")
    scene, grids = _panels(runs, [tuple(masks[name].shape) for name in runs], narrow, UNDER)
    for grid, (name, run) in zip(grids, runs.items(), strict=True):
        blocks = visited(run)
        inside = [[False] * grid.cols for _ in range(grid.rows)]
        for rows, (c0, c1) in blocks:
            for r in range(*rows):
                inside[r][c0:c1] = [True] * (c1 - c0)
        _cells(scene, grid, masks[name].tolist(), inside)
        for rows, cols in blocks:
            scene.outline(grid.rect(rows, cols), 1.2)
        _below(scene, grid, f"{len(blocks)} block{'s' * (len(blocks) > 1)}")
    words = {"attends": SEEN, "hidden in a visited block": HIDDEN, "never visited": NEVER}
    _key(scene, words, "queries ↓  keys →")
    return scene


def draw_reach(reach: Mapping[str, Tensor], *, narrow: bool = False) -> Scene:
    """A panel for each table (N, N) of booleans: which inputs the outputs depend on, and of the last output how many."""
    _check_panels(reach, reach)
    scene, grids = _panels(reach, [tuple(table.shape) for table in reach.values()], narrow, UNDER)
    for grid, table in zip(grids, reach.values(), strict=True):
        _cells(scene, grid, table.tolist(), table.tolist())
        scene.outline(grid.rect((grid.rows - 1, grid.rows)), 1.5)
        _below(scene, grid, f"last output: {int(table[-1].sum())}")
    _key(scene, {"depends on": SEEN, "does not": NEVER}, "outputs ↓  inputs →")
    return scene


def visited(run: Sequence[Step]) -> list[Block]:
    """(rows, cols) of every block of scores of a run, each once, as the steps say."""
    made = [step.values for step in run if not any(step.program[1:])]  # of the first head
    made = [values for values in made if values.get("i") is not None and values.get("j") is not None]
    return list(dict.fromkeys((tuple(values["rows"]), tuple(values["cols"])) for values in made))


def draw_tables(
    tables: Mapping[str, Tensor],
    sinks: Mapping[str, Tensor] | None = None,
    sums: bool = False,
    *,
    narrow: bool = False,
) -> Scene:
    """Up to three tables (rows, cols) with their numbers, dark where these are large; hatched where they are -inf.

    sinks  a column (rows,) more for the tables of these names, under the word "sink"
    sums   whether the sum of a row, without the sink, is at its right
    """
    if not 0 < len(tables) <= 3 or any(t.ndim != 2 or max(t.shape) > 9 for t in tables.values()):
        got = [tuple(t.shape) for t in tables.values()]
        raise ValueError(f"expected up to three tables of at most 9 x 9, got {got}")
    sinks, room = sinks or {}, NARROW if narrow else WIDE
    every = torch.cat([t.flatten().double() for t in (*tables.values(), *sinks.values())]).tolist()
    finite = [value for value in every if math.isfinite(value)] or [0.0]
    scale = min(0.0, min(finite)), max(finite)
    placed: list[Grid] = []
    x, y, high = float(PAD), 12.0, 0.0
    for name, table in tables.items():
        beside = (1.5 if name in sinks else 0) * CELL[0] + (62 if sums else 0)
        cell = min(CELL[0], (room - 2 * PAD - beside) / max(1, table.shape[1]))
        wide = max(cell * table.shape[1] + beside, width(name, 14, True))
        if placed and x + wide > room - PAD:
            x, y, high = float(PAD), y + high + 20, 0.0
        placed.append(Grid(x, y + 38, table.shape[0], table.shape[1], cell, CELL[1]))
        x, high = x + wide + GAP, max(high, 38 + len(table) * CELL[1])
    scene = Scene(room, y + high + 12)
    for grid, (name, table) in zip(placed, tables.items(), strict=True):
        _table(scene, grid, name, table, sinks.get(name), sums, scale)
    return scene


# --- parts -------------------------------------------------------------------------------------------------


def _check_panels(runs: Mapping, masks: Mapping[str, Tensor]) -> None:
    check_booleans(masks)
    if not 0 < len(runs) <= MOST or not set(runs) <= set(masks):
        got = f"{list(runs)} and {list(masks)}"
        raise ValueError(f"expected up to {MOST} runs, each with a mask of its name, got {got}")


def _panels(names: Mapping, shapes: Sequence[tuple], narrow: bool, under: float) -> tuple[Scene, list[Grid]]:
    """A scene with the names of its panels, and where each panel's cells go: next to each other, in rows of up to five."""
    room, count = NARROW if narrow else WIDE, len(shapes)
    columns = min(count, 2) if narrow else count if count <= 5 else 3
    wide = (room - 2 * PAD - GAP * (columns - 1)) / columns
    size = min(HIGHEST / max(1, *(rows for rows, _ in shapes)), wide / max(1, *(cols for _, cols in shapes)), 30)
    titles = [wrapped(name, wide, 14, bold=True) for name in names]
    grids, y = [], 8.0
    for start in range(0, count, columns):
        here = range(start, min(start + columns, count))
        top = y + NAME * max(len(titles[n]) for n in here) + 4
        for n in here:
            rows, cols = shapes[n]
            left = PAD + (n - start) * (wide + GAP) + (wide - cols * size) / 2
            grids.append(Grid(left, top, rows, cols, size, size))
        y = max(grids[n].bottom for n in here) + under
    scene = Scene(room, y + FOOT * (2 if narrow else 1))
    for grid, lines in zip(grids, titles, strict=True):
        for line, words in enumerate(reversed(lines)):
            scene.text(grid.middle, grid.y - 12 - NAME * line, words, 14, anchor="middle", bold=True)
    return scene, grids


def _cells(scene: Scene, grid: Grid, seen: Cells, inside: Cells) -> None:
    """The cells of a panel: coloured where seen, hatched on white where hidden, on grey outside of every block."""
    scene.rect(grid.rect(), "blank")
    kinds = [
        [SEEN if s and i else HIDDEN if i else NEVER for s, i in zip(*rows, strict=True)]
        for rows in zip(seen, inside, strict=True)
    ]
    for look in (SEEN, HIDDEN, NEVER):
        for block in blocks_of([[kind is look for kind in row] for row in kinds]):
            if look.hatched:
                scene.hatch(grid.rect(*block), look.face if look is NEVER else "")  # the ground is white
            else:
                scene.rect(grid.rect(*block), look.face, look.tone)
    scene.cell_lines(grid)


def _below(scene: Scene, grid: Grid, words: str) -> None:
    scene.text(grid.middle, grid.bottom + 15, words, 14, anchor="middle", bold=True)


def _key(scene: Scene, words: Mapping[str, Look], axes: str) -> None:
    """What the kinds of cells mean, in one line at the foot, and what the axes are."""
    narrow = scene.width == NARROW
    y = scene.height - (54 if narrow else 16)
    scene.legend(PAD, y, words.items(), 12 if narrow else 13, right=scene.width)
    x, y, anchor = (PAD, scene.height - 12, "start") if narrow else (scene.width - PAD, y, "end")
    scene.text(x, y, axes, 12, anchor=anchor, role="quiet")


def _table(
    scene: Scene, grid: Grid, name: str, table: Tensor, sink: Tensor | None, sums: bool, scale: tuple[float, float]
) -> None:
    """One table under its name, its sink next to it, and the sums of its rows."""
    scene.text(grid.x, grid.y - 24, name, 14, bold=True)
    _numbers(scene, grid, table.tolist(), scale)
    at = grid.right
    if sink is not None:
        beside = Grid(grid.right + grid.w / 2, grid.y, grid.rows, 1, grid.w, grid.h)
        scene.text(beside.middle, grid.y - 8, "sink", 12, anchor="middle")
        _numbers(scene, beside, sink[:, None].tolist(), scale)
        at = beside.right
    for row in range(grid.rows if sums else 0):
        scene.text(at + 6, grid.cell(row, 0).centre[1], f"Σ {fixed(table[row].sum().item(), 2)}", 13)


def _numbers(scene: Scene, grid: Grid, table: list[list[float]], scale: tuple[float, float]) -> None:
    """The cells of a table: shaded from low to high, with their numbers, in as many digits as fit."""
    low, high = scale
    tones = ("pale", "light", "half", "")
    finite = [value for value in _flat(table) if math.isfinite(value)]
    fits = max((width(fixed(value, 2), 12) for value in finite), default=0) <= grid.w
    digits = 2 if low >= 0 and fits else 1
    scene.rect(grid.rect(), "blank")
    for row, values in enumerate(table):
        for col, value in enumerate(values):
            rect = grid.cell(row, col)
            if value == -math.inf:
                scene.hatch(rect, "blank")
                continue
            large = (min(value, high) - low) / (high - low or 1)  # an infinity as the largest number
            if not math.isnan(value):
                scene.rect(rect, "S", tones[min(3, int(4 * large))])
            ink = "on" if not math.isnan(value) and large >= 0.75 else "ink"
            scene.text(*rect.centre, fixed(value, digits), 12, anchor="middle", role=ink)
    scene.cell_lines(grid)


def _flat(table: list[list[float]]) -> Iterator[float]:
    return (value for row in table for value in row)
