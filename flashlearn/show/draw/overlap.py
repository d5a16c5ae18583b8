"""Timelines of the units of an SM: what each works on, and where it waits."""

from __future__ import annotations

from flashlearn.core.steps import Step
from flashlearn.gpu.overlap import Task
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.scene import NARROW, WIDE, Look, Rect, Scene
from flashlearn.show.draw.values import check_steps_of, not_of

LOOK = {"S": ("S", "S = Q Kᵀ"), "softmax": ("m", "softmax"), "PV": ("O", "acc += P V")}  # role, words
UNITS = ("tensor cores", "softmax")
ROW = 26


def draw_overlap(step: Step, *, narrow: bool = False) -> Scene:
    """One slot of time; what is still to come is an outline, and a unit that waits shows as a gap.

    values   runs {title: tasks (unit, what, group, block, start, end)}, ends, time, horizon
    """
    check_steps_of("overlapping units", step, values=["runs", "ends", "time", "horizon"])
    other = {type(task) for tasks in step.values["runs"].values() for task in tasks} - {Task}
    if other:
        raise not_of("overlapping units", "runs of Task in its values", [f"runs of {other.pop().__name__}"])
    runs, time = step.values["runs"], step.values["time"]
    left, top, each = (14, 66, 26 + 2 * (ROW + 14) + 14) if narrow else (110, 58, 26 + 2 * ROW + 14)
    scene = Scene(NARROW if narrow else WIDE, top + each * len(runs))
    room = scene.width - left - (PAD if narrow else 72)
    slot = room / step.values["horizon"]
    _legend(scene)
    for number, title in enumerate(runs):
        _schedule(scene, step, title, Rect(left, top + number * each, room, each), slot, number)
    now = left + time * slot
    scene.line((now, top - 4), (now, scene.height - 6), stroke=1.5, dashed=True, layer=0, id="now")
    return scene


def _schedule(scene: Scene, step: Step, title: str, area: Rect, slot: float, number: int) -> None:
    """The units of one schedule and their tasks; a slot is so many pixels long."""
    tasks, slots = step.values["runs"][title], step.values["ends"][title]
    narrow = scene.width == NARROW
    scene.text(PAD, area.y + 10, title, 15, bold=True)
    words = f"{slots} slots"
    for row, unit in enumerate(UNITS):
        top = area.y + 26 + row * ROW + (14 * (row + 1) if narrow else 0)
        x, y, anchor = (PAD, top - 7, "start") if narrow else (area.x - 8, top + ROW / 2 - 1, "end")
        scene.text(x, y, unit, 12, anchor=anchor, role="quiet")
        scene.rect((area.x, top + 2, slots * slot, ROW - 5), edge="hatch")
        for task in (task for task in tasks if task.unit == unit):
            rect = Rect(area.x + task.start * slot, top + 2, (task.end - task.start) * slot, ROW - 5)
            _task(scene, task, rect, step.values["time"], f"{number}-{task.what}-{task.group}-{task.block}")
    x, y, anchor = (
        (scene.width - PAD, area.y + 10, "end") if narrow else (area.x + slots * slot + 8, area.y + 26 + ROW, "start")
    )
    scene.text(x, y, words, 13, anchor=anchor, bold=True)


def _task(scene: Scene, task: Task, rect: Rect, time: int, id: str) -> None:
    """An outline while it is to come, coloured once begun, framed while it is being done."""
    begun = task.start <= time
    scene.rect(rect, "blank", edge="" if begun else "hatch")
    if begun:
        scene.rect(rect, LOOK[task.what][0], "half", "quiet", id=id)
    words = f"{'AB'[task.group]}{task.block}"
    if begun and rect.w >= width(words, 12) + 1:
        scene.text(*rect.centre, words, 12, anchor="middle")
    if task.start <= time < task.end:
        scene.outline(rect)


def _legend(scene: Scene) -> None:
    """What the colours are, what the letters are, and where time goes."""
    narrow = scene.width == NARROW
    scene.legend(PAD, 16, [(words, Look(name, "half")) for name, words in LOOK.values()], 12 if narrow else 13)
    note = "A, B: warpgroups; 0, 1, ...: blocks of keys"
    scene.text(PAD, 38, note, 12, role="quiet")
    scene.text(scene.width - PAD, 54 if narrow else 38, "time →", 12, anchor="end", role="quiet")
