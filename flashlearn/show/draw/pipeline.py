"""A software-pipelined loop as a timeline: when each tile is loaded, when it is used, and the buffers held."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.gpu.pipeline import Slots
from flashlearn.show.draw.parts import CENTRED, ground
from flashlearn.show.draw.sheet import DASHES, Rect, Sheet
from flashlearn.show.draw.style import COLOURS, EDGE, INK, PALE, QUIET
from flashlearn.show.draw.values import check_steps_of

VALUES = ("schedule", "num_stages", "time", "loading", "computing", "horizon")
LEFT, TOP = 70, 78  # of the timeline
CHIP = 112  # height of the SRAM panel


def draw_pipeline(ax: Axes, step: Step) -> None:
    """Paint one slot of time; what is still to come is an outline.

    values   schedule ((load, compute) spans per iteration), num_stages, time, loading, computing, horizon
    on_chip  the tiles whose buffers are taken
    """
    check_steps_of("a pipelined loop", step, values=VALUES)
    sheet = Sheet(ax)
    schedule, horizon = step.values["schedule"], step.values["horizon"]
    bottom = sheet.height - CHIP - 44
    slot, row = (sheet.width - LEFT - 20) / horizon, min(46.0, (bottom - TOP) / len(schedule))
    sheet.text(16, 8, f"phase: {step.phase}", va="top", weight="bold", fontsize=20)
    for i, spans in enumerate(schedule):
        y = TOP + i * row
        sheet.text(LEFT - 10, y + row / 2, f"tile {i}", ha="right", va="center", fontsize=15)
        for slots, kind, text in zip(spans, ("HBM", "SRAM"), ("load", "×"), strict=True):
            rect = Rect(LEFT + slots.start * slot, y + 3, (slots.end - slots.start) * slot, row - 6)
            _task(sheet, rect, kind, text, step.values["time"], slots)
    foot = TOP + len(schedule) * row
    now = LEFT + min(step.values["time"], horizon) * slot
    sheet.line([now, now], [TOP - 8, foot + 6], color=INK, linewidth=2, linestyle=DASHES, zorder=0.8)
    end = schedule[-1][1].end
    sheet.text(LEFT + end * slot, foot + 8, f"{end} slots", ha="right", va="top", fontsize=15, weight="bold")
    _legend(sheet, 44)
    _buffers(sheet, step, Rect(16, sheet.height - CHIP, sheet.width - 32, CHIP - 4))
    sheet.paint()


def _task(sheet: Sheet, rect: Rect, kind: str, text: str, time: int, slots: Slots) -> None:
    """A load or a computation: white while it is to come, coloured once begun, framed while it is being done."""
    begun = slots.start <= time
    sheet.fill(rect, COLOURS[kind] if begun else "white", EDGE[kind] if begun else PALE, 1.5)
    if slots.start <= time < slots.end:
        sheet.outline(rect)
    if begun and rect.w >= 16:
        sheet.text(*rect.centre, text, fontsize=15, **CENTRED)


def _legend(sheet: Sheet, y: float) -> None:
    """The colours of loads and computations, and where time goes."""
    for x, kind, text in ((16, "HBM", "load: HBM to chip"), (250, "SRAM", "× compute")):
        sheet.fill((x, y, 22, 18), COLOURS[kind], EDGE[kind], 1.5)
        sheet.text(x + 30, y + 9, text, va="center", fontsize=15)
    sheet.text(sheet.width - 20, y + 9, "time →", va="center", ha="right", fontsize=15, color=QUIET)


def _buffers(sheet: Sheet, step: Step, area: Rect) -> None:
    """One buffer per stage: which tile it holds, and whether that tile has arrived."""
    stages = step.values["num_stages"]
    ground(sheet, area, "SRAM", f"SRAM: {stages} tile buffer{'s' * (stages > 1)}", down=6)
    each = min(132.0, (area.w - 20) / stages)
    held = {tile.rows[0] % stages: tile.rows[0] for tile in step.on_chip}
    for buffer in range(stages):
        rect, tile = Rect(area.x + 10 + buffer * each, area.y + 34, each - 10, 60), held.get(buffer)
        sheet.fill(rect, "white", EDGE["SRAM"] if tile is not None else PALE, 1.5)
        if tile is None:
            text = "free"
        elif tile in step.values["computing"]:
            text = f"tile {tile}\nin use"
            sheet.outline(rect)
        else:
            text = f"tile {tile}\n{'coming' if tile in step.values['loading'] else 'ready'}"
        style = {"fontsize": 15, "linespacing": 1.2, "color": QUIET if tile is None else INK}
        sheet.text(*rect.centre, text, **style, **CENTRED)
