"""Timelines of the units of a multiprocessor: what each works on, and where it waits."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.grid import Sheet, pixels
from flashlearn.show.draw.style import INK, QUIET, canvas, tint

LOOK = {"S": ("S", "S = Q Kᵀ"), "softmax": ("m, l", "softmax"), "PV": ("O", "acc += P V")}  # colour, words
UNITS = ("tensor cores", "softmax")
LEFT, TOP, ROW = 178, 60, 36


def draw_overlap(ax: Axes, step: Step) -> None:
    """Paint one slot of time; what is still to come is an outline, and a unit that waits shows as a gap.

    values   runs {title: tasks (unit, what, group, block, start, end)}, ends, time, horizon
    """
    width, height = pixels(ax)
    canvas(ax, width, height)
    sheet = Sheet()
    runs, time = step.values["runs"], step.values["time"]
    slot = (width - LEFT - 112) / step.values["horizon"]
    each = (height - TOP - 8) / len(runs)
    _legend(ax, sheet, width)
    for number, (title, tasks) in enumerate(runs.items()):
        y = TOP + number * each
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # the line of the present passes behind words
        ax.text(16, y + 2, title, va="top", weight="bold", fontsize=18, bbox=ground)
        for row, unit in enumerate(UNITS):
            top = y + 30 + row * ROW
            ax.text(LEFT - 10, top + ROW / 2 - 1, unit, ha="right", va="center", fontsize=15)
            sheet.fill((LEFT, top + 2, step.values["ends"][title] * slot, ROW - 6), "#FAFAFA", "#D5D5D5", 1)
            for task in tasks:
                if task.unit == unit:
                    _task(
                        ax,
                        sheet,
                        task,
                        (LEFT + task.start * slot, top + 2, (task.end - task.start) * slot, ROW - 6),
                        time,
                    )
        end = LEFT + step.values["ends"][title] * slot
        words = f"{step.values['ends'][title]} slots"
        ax.text(end + 8, y + 30 + ROW, words, va="center", fontsize=15, weight="bold", bbox=ground)
    now = LEFT + time * slot
    ax.plot([now, now], [TOP + 24, height - 6], color=INK, linewidth=2, linestyle=(0, (3, 2)), zorder=0.8)
    sheet.paint(ax)


def _task(ax, sheet, task, rect, time) -> None:
    begun = task.start <= time
    name = LOOK[task.what][0]
    sheet.fill(rect, tint(name, 0.55) if begun else "white", tint(name, 1.0) if begun else "#D5D5D5", 1.5)
    if begun and rect[2] >= 26:
        label = f"{'AB'[task.group]}{task.block}"
        ax.text(rect[0] + rect[2] / 2, rect[1] + rect[3] / 2, label, ha="center", va="center", fontsize=14)
    if task.start <= time < task.end:
        sheet.outline(rect)


def _legend(ax, sheet, width) -> None:
    x = 16
    for name, words in LOOK.values():
        sheet.fill((x, 16, 24, 20), tint(name, 0.55), tint(name, 1.0), 1.5)
        ax.text(x + 32, 26, words, va="center", fontsize=15)
        x += 60 + 10.5 * len(words)
    ax.text(x + 10, 26, "A, B: groups of queries; 0, 1, ...: blocks of keys", va="center", fontsize=15, color=QUIET)
    ax.text(width - 16, 26, "time →", va="center", ha="right", fontsize=15, color=QUIET)
