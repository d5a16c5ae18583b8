"""Timelines of buffers and of those who wait for them: what ran in the simulator of barriers."""

from __future__ import annotations

import re

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import DASHES, Rect, Sheet
from flashlearn.show.draw.style import COLOURS, EDGE, FAINT, INK, QUIET, tint
from flashlearn.show.draw.values import check_steps_of
from flashlearn.simulator.simulated import Bar, Tick

LEFT, TOP, TITLE = 138, 52, 32
LOOK = {  # face, edge, words
    "landing": (COLOURS["HBM"], QUIET, "on its way"),
    "full": (COLOURS["SRAM"], EDGE["SRAM"], "in its buffer"),
    "S": (tint("S", 0.55), tint("S", 1.0), "S = Q Kᵀ"),
    "softmax": (tint("m, l", 0.55), tint("m, l", 1.0), "softmax"),
    "PV": (tint("O", 0.55), tint("O", 1.0), "acc += P V"),
}


def draw_barriers(ax: Axes, step: Step) -> None:
    """Paint one slot of time: what has begun, who waits for what, and the phases of the barriers so far.

    values   runs {title: bars}, ticks {title: ticks}, ends, stopped, time, horizon
    """
    check_steps_of("barriers", step, values=["runs", "ticks", "ends", "stopped", "time", "horizon"])
    sheet = Sheet(ax)
    runs, time = step.values["runs"], step.values["time"]
    slot = (sheet.width - LEFT - 118) / step.values["horizon"]
    rows = {title: _rows(bars) for title, bars in runs.items()}
    height = (sheet.height - TOP - TITLE * len(runs) - 6) / sum(map(len, rows.values()))
    _legend(sheet)
    y: float = TOP
    for title in runs:
        _run(sheet, step, title, rows[title], Rect(LEFT, y, slot, height))
        y += TITLE + height * len(rows[title])
    now = LEFT + time * slot
    sheet.line([now, now], [TOP + TITLE - 4, sheet.height - 4], color=INK, linewidth=2, linestyle=DASHES, zorder=0.8)
    sheet.paint()


def _rows(bars: list[Bar]) -> list[str]:
    """Who loads, the stages, who multiplies."""

    def order(row: str) -> tuple:
        return (not row.startswith("load"), not row.startswith("stage"), row)

    return sorted({bar.row for bar in bars}, key=order)


def _run(sheet: Sheet, step: Step, title: str, rows: list[str], unit: Rect) -> None:
    """One run; `unit` begins at its left upper corner, a slot wide and a row high."""
    bars, time, slots = step.values["runs"][title], step.values["time"], step.values["ends"][title]
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # the line of the present passes behind words
    sheet.text(16, unit.y + 4, title, va="top", weight="bold", fontsize=17, bbox=ground)
    for number, row in enumerate(rows):
        top = unit.y + TITLE + number * unit.h
        words = {"load": "loading warp"}.get(row, re.sub(r"^(?!stage)\w+ (\d)$", r"group \1", row))
        sheet.text(unit.x - 8, top + unit.h / 2 - 1, words, ha="right", va="center", fontsize=14)
        sheet.fill((unit.x, top + 1, slots * unit.w, unit.h - 4), "#FAFAFA", FAINT, 1)
        for bar in (bar for bar in bars if bar.row == row and bar.start <= time):
            rect = Rect(unit.x + bar.start * unit.w, top + 1, (bar.end - bar.start) * unit.w, unit.h - 4)
            _bar(sheet, bar, bars, rect)
        for tick in (tick for tick in step.values["ticks"][title] if tick.row == row and tick.time <= time):
            _tick(sheet, tick, unit.x + tick.time * unit.w, top, unit.h)
    end = f"{slots} slots" if not step.values["stopped"][title] else "all wait,\nfor ever" if time >= slots else ""
    if time >= slots:
        place = unit.x + slots * unit.w + 10, unit.y + TITLE + unit.h / 2  # in the row without triangles
        sheet.text(*place, end, va="center", weight="bold", fontsize=15)


def _bar(sheet: Sheet, bar: Bar, bars: list[Bar], rect: Rect) -> None:
    """What lasts, with its tiles or what it waits for."""
    if bar.what == "wait":
        sheet.box(rect, "white", FAINT, 1, hatched=True)
        pad = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        for words in (f"waits for {bar.text}", bar.text, bar.text.partition(",")[0]):
            if rect.w > 8 * len(words) + 8:
                return sheet.text(*rect.centre, words, fontsize=12, color=QUIET, bbox=pad, **CENTRED)
        return
    together = [b.text for b in bars if (b.row, b.what, b.start) == (bar.row, bar.what, bar.start)]
    if bar.text != together[0]:
        return  # V lands with K: one bar for both
    face, edge, _ = LOOK[bar.what]
    sheet.fill(rect, face, edge, 1.5)
    words = ", ".join(dict.fromkeys(together))
    if rect.w > 9 * len(words):
        sheet.text(*rect.centre, words, fontsize=13, **CENTRED)


def _tick(sheet: Sheet, tick: Tick, x: float, top: float, height: float) -> None:
    """The end of a phase: a triangle below for full, above for free, with the parity of what ended."""
    up = tick.barrier == "full"
    y, tip = (top + height - 3, -11) if up else (top, 11)
    sheet.polygon([(x - 7, y), (x + 7, y), (x, y + tip)], INK if up else "white", INK, 1.5)
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8}
    sheet.text(x + 9, y + tip / 2, str(tick.phase & 1), va="center", fontsize=11, bbox=ground)


def _legend(sheet: Sheet) -> None:
    """What the colours are, and the triangles."""
    x: float = 16
    for face, edge, words in LOOK.values():
        sheet.fill((x, 14, 22, 20), face, edge, 1.5)
        sheet.text(x + 28, 24, words, va="center", fontsize=14)
        x += 52 + 9.6 * len(words)
    for up, words in ((True, "full: phase 0, 1"), (False, "free: phase 0, 1")):
        y, tip = (32, -14) if up else (18, 14)
        sheet.polygon([(x, y), (x + 16, y), (x + 8, y + tip)], INK if up else "white", INK, 1.5)
        sheet.text(x + 22, 24, words, va="center", fontsize=14)
        x += 46 + 9 * len(words)
    sheet.text(sheet.width - 16, 24, "time →", va="center", ha="right", fontsize=14, color=QUIET)
