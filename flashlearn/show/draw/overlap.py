"""Timelines of the units of an SM: what each works on, and where it waits."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.gpu.overlap import Task
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import DASHES, Rect, Sheet
from flashlearn.show.draw.style import FAINT, INK, QUIET, tint
from flashlearn.show.draw.values import check_steps_of, not_of

LOOK = {"S": ("S", "S = Q Kᵀ"), "softmax": ("m, l", "softmax"), "PV": ("O", "acc += P V")}  # colour, words
UNITS = ("tensor cores", "softmax")
LEFT, TOP, ROW = 178, 60, 36


def draw_overlap(ax: Axes, step: Step) -> None:
    """Paint one slot of time; what is still to come is an outline, and a unit that waits shows as a gap.

    values   runs {title: tasks (unit, what, group, block, start, end)}, ends, time, horizon
    """
    check_steps_of("overlapping units", step, values=["runs", "ends", "time", "horizon"])
    other = {type(task) for tasks in step.values["runs"].values() for task in tasks} - {Task}
    if other:
        raise not_of("overlapping units", "runs of Task in its values", [f"runs of {other.pop().__name__}"])
    sheet = Sheet(ax)
    runs, time = step.values["runs"], step.values["time"]
    slot = (sheet.width - LEFT - 112) / step.values["horizon"]
    each = (sheet.height - TOP - 8) / len(runs)
    _legend(sheet)
    for number, title in enumerate(runs):
        _schedule(sheet, step, title, TOP + number * each, slot)
    now = LEFT + time * slot
    sheet.line([now, now], [TOP + 24, sheet.height - 6], color=INK, linewidth=2, linestyle=DASHES, zorder=0.8)
    sheet.paint()


def _schedule(sheet: Sheet, step: Step, title: str, y: float, slot: float) -> None:
    """The units of one schedule and their tasks; a slot is so many pixels long."""
    tasks, slots = step.values["runs"][title], step.values["ends"][title]
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # the line of the present passes behind words
    sheet.text(16, y + 2, title, va="top", weight="bold", fontsize=18, bbox=ground)
    for row, unit in enumerate(UNITS):
        top = y + 30 + row * ROW
        sheet.text(LEFT - 10, top + ROW / 2 - 1, unit, ha="right", va="center", fontsize=15)
        sheet.fill((LEFT, top + 2, slots * slot, ROW - 6), "#FAFAFA", FAINT, 1)
        for task in (task for task in tasks if task.unit == unit):
            rect = Rect(LEFT + task.start * slot, top + 2, (task.end - task.start) * slot, ROW - 6)
            _task(sheet, task, rect, step.values["time"])
    words = {"va": "center", "fontsize": 15, "weight": "bold", "bbox": ground}
    sheet.text(LEFT + slots * slot + 8, y + 30 + ROW, f"{slots} slots", **words)


def _task(sheet: Sheet, task: Task, rect: Rect, time: int) -> None:
    """White while it is to come, coloured once begun, framed while it is being done."""
    begun = task.start <= time
    name = LOOK[task.what][0]
    sheet.fill(rect, tint(name, 0.55) if begun else "white", tint(name, 1.0) if begun else FAINT, 1.5)
    if begun and rect.w >= 26:
        sheet.text(*rect.centre, f"{'AB'[task.group]}{task.block}", fontsize=14, **CENTRED)
    if task.start <= time < task.end:
        sheet.outline(rect)


def _legend(sheet: Sheet) -> None:
    """What the colours are, what the letters are, and where time goes."""
    x: float = 16
    for name, words in LOOK.values():
        sheet.fill((x, 16, 24, 20), tint(name, 0.55), tint(name, 1.0), 1.5)
        sheet.text(x + 32, 26, words, va="center", fontsize=15)
        x += 60 + 10.5 * len(words)
    sheet.text(x + 10, 26, "A, B: groups of queries; 0, 1, ...: blocks of keys", va="center", fontsize=15, color=QUIET)
    sheet.text(sheet.width - 16, 26, "time →", va="center", ha="right", fontsize=15, color=QUIET)
