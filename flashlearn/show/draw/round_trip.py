"""Attention as its definition says it: three operations, and what each sends through HBM to the next."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step, Tile
from flashlearn.show.draw.parts import CENTRED, arrows, ground, traffic_bars
from flashlearn.show.draw.sheet import Grid, Rect, Sheet
from flashlearn.show.draw.style import INK, MOVED, PALE, colour, tint
from flashlearn.show.draw.values import check_steps_of

WIDTH, HEIGHT = 1280, 500
NAMES = ("Q", "K", "S", "P", "V", "O")
HBM_FLOOR, CHIP_TOP, CHIP_FLOOR = 268, 372, 436  # the memories; pipes between them
WIDEST, NARROWEST = 96, 4  # of the pipes
DOES = {"scores": "S = Q Kᵀ / √d", "softmax": "P = softmax of each row of S", "weighted sum": "O = P V"}


def draw_round_trip(ax: Axes, step: Step) -> None:
    """The matrices in HBM to scale; a pipe for all that moved so far, as wide as its bytes, dark in this step."""
    check_steps_of("standard attention", step, shapes=NAMES, writes="O", before=["S", "P"])
    sheet = Sheet(ax, WIDTH, HEIGHT)
    ground(sheet, Rect(12, 4, WIDTH - 24, HBM_FLOOR - 4), "HBM")
    ground(sheet, Rect(12, CHIP_TOP, WIDTH - 24, CHIP_FLOOR - CHIP_TOP), "SRAM", "on chip")
    words = DOES.get(step.phase, "done")
    sheet.text(WIDTH / 2, (CHIP_TOP + CHIP_FLOOR) / 2, words, weight="bold", fontsize=24, **CENTRED)
    grids = _grids(step)
    for name, grid in grids.items():
        _matrix(sheet, step, name, grid)
        _pipes(sheet, step, name, grid.middle)
    traffic_bars(sheet, step, 16, HEIGHT - 56, WIDTH - 32)
    sheet.paint()


def _grids(step: Step) -> dict[str, Grid]:
    """In the order in which they are used, on one line, a number as large in each."""
    sizes = {name: step.shapes[name][-2:] for name in NAMES}
    unit = min(172 / max(rows for rows, _ in sizes.values()), 150 / max(cols for _, cols in sizes.values()))
    each = (WIDTH - 24) / len(NAMES)
    return {
        name: Grid(12 + (n + 0.5) * each - unit * cols / 2, HBM_FLOOR - 22 - unit * rows, rows, cols, unit, unit)
        for n, (name, (rows, cols)) in enumerate(sizes.items())
    }


def _matrix(sheet: Sheet, step: Step, name: str, grid: Grid) -> None:
    """Full in the step that moves it, half-tone while it lies in HBM, a dashed outline before it is there."""
    moved = [tile.name for tile in (*step.reads, *step.writes)]
    there = name in "QKV" or any(tile.name == name for s in step.so_far for tile in s.writes)
    if there:
        sheet.fill(grid.rect(), colour(name) if name in moved else tint(name, 0.45))
        sheet.outline(grid.rect(), 3 if name in moved else 1.2)
    else:
        sheet.box(grid.rect(), "none", PALE, 1.5, dashes=(0, (3, 2)))
    label = f"{name}{arrows(step, name)}\n{grid.rows} × {grid.cols}"
    style = {"va": "bottom", "ha": "center", "weight": "bold", "fontsize": 17, "linespacing": 1.15}
    sheet.text(grid.middle, grid.y - 5, label, **style)


def _pipes(sheet: Sheet, step: Step, name: str, middle: float) -> None:
    """What was written of a matrix so far, and to its right what was read."""
    most = max(tile.nbytes for s in step.run or (step,) for tile in (*s.reads, *s.writes) or (Tile("", (), 1),))
    both = name in "SP"
    for sign, way, x in (("▲", "writes", middle - 50 * both), ("▼", "reads", middle + 50 * both)):
        moves = [(s, tile) for s in step.so_far for tile in getattr(s, way) if tile.name == name]
        for s, tile in moves:
            now, wide = s.number == step.number, max(NARROWEST, WIDEST * tile.nbytes / most)
            face = INK if now else MOVED
            sheet.fill((x - wide / 2, HBM_FLOOR, wide, CHIP_TOP - HBM_FLOOR), face)
            inside = wide > 85
            at = (x, "center", "white" if now else "black") if inside else (x + wide / 2 + 8, "left", INK)
            style = {"va": "center", "ha": at[1], "color": at[2], "fontsize": 15, "weight": "bold"}
            sheet.text(at[0], (HBM_FLOOR + CHIP_TOP) / 2, f"{sign}\n{tile.nbytes:,}{'' if inside else ' B'}", **style)
