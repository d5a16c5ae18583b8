"""A software-pipelined loop as a timeline: when each tile is loaded, when it is used, and the buffers held."""

from __future__ import annotations

from flashlearn.core.steps import Step
from flashlearn.gpu.pipeline import Slots
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, memory
from flashlearn.show.draw.scene import NARROW, WIDE, Look, Rect, Scene
from flashlearn.show.draw.values import check_steps_of

VALUES = ("schedule", "num_stages", "time", "loading", "computing", "horizon")
LEFT, TOP = 58, 64  # of the timeline
CHIP = 92  # height of the SRAM panel


def draw_pipeline(step: Step, *, narrow: bool = False) -> Scene:
    """One slot of time; what is still to come is an outline.

    values   schedule ((load, compute) spans per iteration), num_stages, time, loading, computing, horizon
    on_chip  the tiles whose buffers are taken
    """
    check_steps_of("a pipelined loop", step, values=VALUES)
    schedule, horizon = step.values["schedule"], step.values["horizon"]
    row = min(30.0, 240 / len(schedule))
    foot = TOP + len(schedule) * row
    scene = Scene(NARROW if narrow else WIDE, foot + 36 + CHIP)
    slot = (scene.width - LEFT - PAD) / horizon
    scene.text(PAD, 16, f"phase: {step.phase}", 15, bold=True)
    for i, spans in enumerate(schedule):
        y = TOP + i * row
        scene.text(LEFT - 8, y + row / 2, f"tile {i}", 12, anchor="end")
        for slots, kind, text in zip(spans, ("hbm", "sram"), ("load", "×"), strict=True):
            rect = Rect(LEFT + slots.start * slot, y + 2, (slots.end - slots.start) * slot, row - 4)
            _task(scene, rect, kind, text, step.values["time"], slots, f"{kind}{i}")
    now = LEFT + min(step.values["time"], horizon) * slot
    scene.line((now, TOP - 6), (now, foot + 4), stroke=1.5, dashed=True, id="now", layer=0)
    end = schedule[-1][1].end
    words = f"{end} slots"
    right = max(LEFT + end * slot, LEFT + width(words, 13, True))
    scene.text(right, foot + 14, words, 13, anchor="end", bold=True)
    entries = [("load: HBM to chip", Look("hbm")), ("× compute", Look("sram"))]
    scene.legend(PAD, 42, entries, 12 if narrow else 13)
    scene.text(scene.width - PAD, 42, "time →", 12, anchor="end", role="quiet")
    _buffers(scene, step, Rect(0, foot + 32, scene.width, CHIP))
    return scene


def _task(scene: Scene, rect: Rect, kind: str, text: str, time: int, slots: Slots, id: str) -> None:
    """A load or a computation: an outline while it is to come, coloured once begun, framed while it is being done."""
    begun = slots.start <= time
    scene.rect(rect, kind if begun else "blank", edge=f"{kind}-edge" if begun else "hatch", id=id)
    if slots.start <= time < slots.end:
        scene.outline(rect)
    if begun and rect.w >= width(text, 12):
        scene.text(*rect.centre, text, 12, anchor="middle")


def _buffers(scene: Scene, step: Step, area: Rect) -> None:
    """One buffer per stage: which tile it holds, and whether that tile has arrived."""
    stages = step.values["num_stages"]
    memory(scene, area, "sram", name=f"SRAM: {stages} tile buffer{'s' * (stages > 1)}")
    each = min(112.0, (area.w - 2 * PAD + 8) / stages)
    held = {tile.rows[0] % stages: tile.rows[0] for tile in step.on_chip}
    for buffer in range(stages):
        rect, tile = Rect(area.x + PAD + buffer * each, area.y + 34, each - 8, 48), held.get(buffer)
        scene.rect(rect, "blank", edge="sram-edge" if tile is not None else "hatch", id=f"buffer{buffer}")
        words = ["free"]
        if tile is not None and tile in step.values["computing"]:
            words = [f"tile {tile}", "in use"]
            scene.outline(rect)
        elif tile is not None:
            words = [f"tile {tile}", "coming" if tile in step.values["loading"] else "ready"]
        if max(width(word, 13) for word in words) > rect.w:
            words = [str(tile)] if tile is not None else []
        for line, each_word in enumerate(words):
            y = rect.centre[1] + (line - (len(words) - 1) / 2) * 18
            scene.text(rect.centre[0], y, each_word, 13, anchor="middle", role="quiet" if tile is None else "ink")
