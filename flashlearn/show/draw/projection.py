"""Q, K and V made from the tokens: X at the left, the three matrices above, each product where the two meet."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.sheet import Grid, Sheet
from flashlearn.show.draw.style import INK, colour, fixed, ink_on, tint
from flashlearn.show.draw.values import check_steps_of

WIDTH, HEIGHT = 1280, 500
LEFT, RIGHT, TOP, GAP = 110, 1250, 64, 64  # the room for cells, and what lies between two matrices
NAMES = ("X", "W_q", "W_k", "W_v", "Q", "K", "V")
SUBSCRIPTS = {f"W_{letter}": rf"$\mathbf{{W_{letter}}}$" for letter in "qkv"}


def draw_projection(ax: Axes, step: Step) -> None:
    """Paint one product: X and its factor in frames, the rows that it makes in full colour."""
    check_steps_of("a projection", step, shapes=NAMES)
    sheet, grids = Sheet(ax, WIDTH, HEIGHT), _grids(step)
    now = {tile.name for tile in (*step.reads, *step.writes)}
    for name, grid in grids.items():
        content = step.written(name).numpy() if name in "QKV" else step.values[name].double().numpy()
        _matrix(sheet, name, grid, content, name in now)
    _titles(sheet, grids, step)
    sheet.paint()


def _grids(step: Step) -> dict[str, Grid]:
    """Where matrix multiplication puts them."""
    (N, E), D = step.shapes["X"], step.shapes["Q"][1]
    w = min((RIGHT - LEFT - 3 * GAP) / (E + 3 * D), 84)
    h = min((HEIGHT - TOP - GAP - 24) / (E + N), 50)
    left = LEFT + (RIGHT - LEFT - 3 * GAP - w * (E + 3 * D)) / 2
    below = TOP + E * h + GAP
    grids = {"X": Grid(left, below, N, E, w, h)}
    for n, name in enumerate("QKV"):
        x = left + E * w + GAP + n * (D * w + GAP)
        grids[f"W_{name.lower()}"] = Grid(x, TOP, E, D, w, h)
        grids[name] = Grid(x, below, N, D, w, h)
    return grids


def _matrix(sheet: Sheet, name: str, grid: Grid, content: np.ndarray, now: bool) -> None:
    """Numbers where there are any yet: Q, K and V full while they are made, W in their tints, X white."""
    face = "white" if name == "X" else tint(name[-1].upper(), 0.25)
    made = name in "QKV" and not np.isnan(content).all()
    if name in "QKV":
        face = colour(name) if now else tint(name, 0.5) if made else "white"
    sheet.fill(grid.rect(), face)
    sheet.cell_lines(grid)
    if now:
        sheet.outline(grid.rect())
    if grid.w < 34 or grid.h < 20 or (name in "QKV" and not made):
        return
    ink = ink_on(name) if name in "QKV" and now else INK
    sheet.numbers(grid, content, partial(fixed, digits=1), fontsize=16, color=ink)


def _titles(sheet: Sheet, grids: dict[str, Grid], step: Step) -> None:
    """Names and shapes above the matrices; the number of every token at the left of X."""
    for name, grid in grids.items():
        words = f"{SUBSCRIPTS.get(name, name)}  {grid.rows} × {grid.cols}"
        sheet.text(grid.middle, grid.y - 8, words, va="bottom", ha="center", weight="bold", fontsize=18)
    for n in range(grids["X"].rows):
        x, y = grids["X"].cell(n, 0).x - 12, grids["X"].cell(n, 0).centre[1]
        sheet.text(x, y, f"token {n}", ha="right", va="center", fontsize=16)
    if step.writes:
        made, factor = step.writes[0].name, SUBSCRIPTS[step.reads[-1].name]
        sheet.text(LEFT, TOP + 20, f"{made} = X {factor}", va="center", fontsize=26, weight="bold")
