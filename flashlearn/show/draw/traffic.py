"""Bytes through HBM: a race of several runs at the same bandwidth; the three operations of standard attention."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from flashlearn.core.steps import Step, Tile
from flashlearn.cost import Runner
from flashlearn.show.draw.parts import CENTRED, arrows, ground, traffic_bars
from flashlearn.show.draw.sheet import DASHES, Grid, Rect, Sheet
from flashlearn.show.draw.style import INK, MEANING, MOVED, PALE, QUIET, colour, ink_on, tint
from flashlearn.show.draw.values import check_steps_of

WIDTH, HEIGHT = 1280, 500
LEFT, SPAN = 24, 1232  # of the bars
ORDER = ("Q", "K", "V", "S", "P", "m, l", "O")


def draw_traffic(ax: Axes, step: Step) -> None:
    """Paint one step of `flashlearn.cost.race`: a bar for each runner, on one scale of bytes."""
    check_steps_of("a race", step, values=["runners", "full", "moved"])
    sheet = Sheet(ax, WIDTH, HEIGHT)
    runners, full, moved = (step.values[name] for name in ("runners", "full", "moved"))
    words = f"In the time that it takes to move {moved:,} B"
    sheet.text(LEFT, 10, words, va="top", weight="bold", fontsize=20, color=QUIET)
    each = (HEIGHT - 56) / len(runners)
    for n, (title, runner) in enumerate(runners.items()):
        _runner(sheet, title, runner, Rect(LEFT, 56 + n * each, SPAN, each), SPAN / max(1, full))
    sheet.paint()


def _runner(sheet: Sheet, title: str, runner: Runner, area: Rect, unit: float) -> None:
    """Title, state and bar of one run; a byte is `unit` pixels long."""
    bold = {"va": "top", "weight": "bold", "fontsize": 21}
    sheet.text(LEFT, area.y + 4, title, **bold)
    state = f"done with {sum(runner.moved.values()):,} B" if runner.over else f"products done: {runner.work:.0%}"
    sheet.text(LEFT + SPAN, area.y + 4, state, ha="right", **bold)
    bar = Rect(LEFT, area.y + 42, SPAN, min(area.h - 60, 90))
    sheet.box(bar, "white", PALE, 1)
    end = _segments(sheet, runner.moved, unit, bar)
    if runner.under_way:
        sheet.box((end, bar.y, runner.under_way * unit, bar.h), "white", QUIET, 2, dashes=DASHES)
    if runner.over:
        sheet.line([end, end], [bar.y - 6, bar.bottom + 6], color=INK, linewidth=5, solid_capstyle="butt")


def _segments(sheet: Sheet, moved: Mapping[str, int], unit: float, bar: Rect) -> float:
    """The bytes of each matrix, end to end; returns where they end."""
    together = dict.fromkeys(ORDER, 0)
    for name, size in moved.items():
        shown = "m, l" if MEANING.get(name) == "m, l" else name
        together[shown] = together.get(shown, 0) + size
    at: float = LEFT
    for name, size in together.items():
        if not size:
            continue
        long = size * unit
        segment = Rect(at, bar.y, long, bar.h)
        sheet.box(segment, colour(name), INK, 1.2)
        if long > 17 * len(name) + 4:
            sheet.text(*segment.centre, name, fontsize=20, color=ink_on(name), weight="bold", **CENTRED)
        at += long
    return at


WIDTH, HEIGHT = 1280, 500
NAMES = ("Q", "K", "S", "P", "V", "O")
HBM_FLOOR, CHIP_TOP, CHIP_FLOOR = 268, 372, 436  # the memories; pipes between them
WIDEST, NARROWEST = 96, 4  # of the pipes
DOES = {"scores": "S = Q Kᵀ / √d", "softmax": "P = softmax of each row of S", "weighted sum": "O = P V"}


def draw_round_trip(ax: Axes, step: Step) -> None:
    """The matrices in HBM to scale; a pipe for all that moved so far, as wide as its bytes, dark in this step."""
    check_steps_of("standard attention", step, shapes=NAMES, writes=["O", "S", "P"])
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
