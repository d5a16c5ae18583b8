"""Attention over a ring of processes: who computes which block of S in which step, whose K and V pass by, and who waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.numerics import Span
from flashlearn.core.steps import Step
from flashlearn.ring.plan import shares
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import Grid, Rect, Sheet
from flashlearn.show.draw.style import COLOURS, INK, QUIET, ink_on, tint
from flashlearn.show.draw.values import check_step, check_steps_of

WANTED = ("s", "processes", "order", "owners", "work", "messages")
TOP, FOOT = 74, 44  # pixels: above what is drawn for names, below it for the key
NOW, BEFORE = 0.95, 0.35  # how strong a tile is that is computed in this step, or was in an earlier one


def draw_ring(ax: Axes, step: Step) -> None:
    """One step of the ring: the table of scores at the left, with the number of the process in what it computes; the
    processes, one a row, with the queries they keep and the K and V they have; and their clocks."""
    check_step("ring attention", step)
    run = [s for s in step.so_far if "work" in s.values]
    here = run[-1] if run else step  # the last step of a run does no work
    check_steps_of("ring attention", here if step.phase == "done" else step, values=WANTED)
    run = [s for s in run if s.phase == here.phase]
    sheet = Sheet(ax)
    size = sheet.height - TOP - FOOT - 10
    whole = [s for s in (step.run or run) if s.phase == here.phase and "work" in s.values]
    _table(sheet, Rect(62, TOP, size, size), run, whole, step.phase == "done")
    left = 62 + size + 54
    s, P = here.values["s"], here.values["processes"]
    rows = [(TOP + r * size / P, size / P) for r in range(P)]  # (y, height) of each process
    what = "done" if step.phase == "done" else f"ring step {s} (from 0 to {P - 1})"
    words = f"{here.phase}, {here.values['order']} order: {what}"
    sheet.text(left, 14, words, va="top", weight="bold", fontsize=17)
    for r, (y, h) in enumerate(rows):
        _process(sheet, here, r, Rect(left, y, 262, h))
    clock = Rect(left + 350, 0, sheet.width - left - 350 - 28, 0)
    _clocks(sheet, run, clock, rows, _time(whole), here)
    _key(sheet, left)
    sheet.paint()


def draw_clocks(ax: Axes, runs: Mapping[str, Sequence[Step]]) -> None:
    """The clocks of all processes for several runs, one above the other on one scale: busy, and idle, hatched."""
    kept = {name: [s for s in run if s.phase == "forward"] for name, run in runs.items()}
    if not kept or not all(kept.values()):
        raise ValueError(f"expected recorded steps of ring attention for every name, got none for {list(runs)}")
    sheet, full = Sheet(ax), max(_time(run) for run in kept.values())
    each = (sheet.height - FOOT) / len(kept)
    for at, (name, run) in enumerate(kept.items()):
        P, top = run[0].values["processes"], at * each
        busy = sum(block.pairs for s in run for block in s.values["work"]) / P / _time(run)
        words = f"{name}: {_time(run):,} units of time, busy {busy:.0%}"
        sheet.text(28, top + 10, words, va="top", weight="bold", fontsize=17)
        h = (each - 52) / P
        rows = [(top + 42 + r * h, h) for r in range(P)]
        for r, (y, h) in enumerate(rows):
            sheet.text(146, y + h / 2, f"process {r}", ha="right", va="center", fontsize=15)
        _clocks(sheet, run, Rect(158, 0, sheet.width - 158 - 28, 0), rows, full)
    _key(sheet, 158, idle="waits")
    sheet.paint()


# --- parts -------------------------------------------------------------------------------------------------


def _table(sheet: Sheet, area: Rect, run: Sequence[Step], whole: Sequence[Step], done: bool) -> None:
    """S: hatched what is never computed, tinted what was computed, strong with a number what is computed now."""
    N = run[-1].shapes["S"][-1]
    grid = Grid(area.x, area.y, N, N, area.w / N, area.h / N)
    sheet.fill(grid.rect(), "white")
    never = np.ones((N, N), dtype=bool)  # what no process computes in any step
    for block in (block for step in whole for block in step.values["work"]):
        never[slice(*block.rows), slice(*block.cols)] = False
    sheet.hatch_cells(grid, never, COLOURS["masked"])
    for step in run:
        now = step is run[-1] and not done
        for block in step.values["work"]:
            rect = grid.rect(block.rows, block.cols)
            sheet.box(rect, tint("S", NOW if now else BEFORE), "white", 1)
            if now:
                sheet.text(*rect.centre, str(block.process), weight="bold", fontsize=15, color=ink_on("S"), **CENTRED)
                sheet.outline(rect, 2)
    sheet.box(grid.rect(), "none", QUIET, 1.2)
    order, P = run[-1].values["order"], run[-1].values["processes"]
    for r, (start, stop) in ((r, c) for r, chunks in enumerate(shares(N, P, order)) for c in chunks if c[0] < c[1]):
        middle = (start + stop) / 2
        left = {"ha": "right", "va": "center", "fontsize": 14, "color": COLOURS["Q"]}
        sheet.text(grid.x - 14, grid.y + middle * grid.h, f"Q{r}", **left)
        sheet.text(grid.x + middle * grid.w, grid.y - 10, f"K{r}", ha="center", va="bottom", fontsize=14)
    sheet.text(grid.x, 14, "S, and who computes it", va="top", weight="bold", fontsize=17)


def _process(sheet: Sheet, step: Step, r: int, area: Rect) -> None:
    """A process: its number, its queries, and the K and V that it has now; an arrow if it sends them on."""
    owner, box = step.values["owners"][r], min(38.0, area.h - 22)
    y = area.y + area.h / 2 - box / 2
    sheet.text(area.x, area.y + area.h / 2, f"process {r}", va="center", fontsize=15)
    x = area.x + 108
    for name, words, w in (("Q", f"Q{r}", 46), ("K", f"K{owner}", 46), ("V", f"V{owner}", 46)):
        sheet.box((x, y, w, box), COLOURS[name], INK, 1.2)
        sheet.text(x + w / 2, y + box / 2, words, color=ink_on(name), fontsize=15, weight="bold", **CENTRED)
        x += w + (14 if name == "Q" else 0)
    sent = [parcel for parcel in step.values["messages"] if parcel.source == r]
    if sent:
        to = ", ".join(str(to) for to in dict.fromkeys(parcel.to for parcel in sent))
        sheet.text(x + 12, area.y + area.h / 2, f"▸ to {to}", va="center", fontsize=15)


def _time(run: Iterable[Step]) -> int:
    """Units of time: in every step all wait for the one with most pairs."""
    return sum(max(_busy(step)) for step in run)


def _busy(step: Step) -> list[int]:
    """Pairs that each process computes in a step."""
    busy = [0] * step.values["processes"]
    for block in step.values["work"]:
        busy[block.process] += block.pairs
    return busy


def _clocks(
    sheet: Sheet, run: Sequence[Step], area: Rect, rows: list[tuple[float, float]], full: int, now: Step | None = None
) -> None:
    """What every process did with its time: filled where it computed, hatched where it waited; lines between steps."""
    if now:
        sheet.text(area.x, TOP - 10, "time", va="bottom", fontsize=14)
    x, unit = area.x, area.w / full
    for step in run:
        busy = _busy(step)
        wide = max(busy) * unit
        for work, (y, h) in zip(busy, rows, strict=True):
            high = min(h - 12, 40.0)
            top, end = y + (h - high) / 2, x + work * unit
            if work < max(busy):
                sheet.fill((end, top, x + wide - end, high), COLOURS["masked"], "white", 1)
                sheet.hatch((end, top, x + wide - end, high))
            if work:
                sheet.fill((x, top, work * unit, high), tint("S", NOW if step is now else 0.6), "white", 1)
        x += wide
        edge: Span = (round(rows[0][0]), round(rows[-1][0] + rows[-1][1]))
        sheet.line([x, x], edge, color=QUIET, linewidth=1, zorder=2.6)


def _key(sheet: Sheet, left: float, idle: str = "waits, or hidden by the mask") -> None:
    """What the faces mean, in one line at the foot."""
    entries = [("computes  ", tint("S", 0.6), False), (idle, COLOURS["masked"], True)]
    sheet.legend(left, sheet.height - 20, entries)
