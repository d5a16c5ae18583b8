"""Timelines of buffers and of those who wait for them: what ran in the simulator of barriers."""

from __future__ import annotations

import re

from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.scene import FRAMES, NARROW, WIDE, WORDS, Look, Rect, Scene
from flashlearn.show.draw.values import check_steps_of
from flashlearn.simulator.simulated import Bar, Tick

TITLE, ROW = 30, 26
LOOK = {  # look, words
    "landing": (Look("hbm", "", "hbm-edge"), "on its way"),
    "full": (Look("sram", "", "sram-edge"), "in its buffer"),
    "S": (Look("S", "half", "quiet"), "S = Q Kᵀ"),
    "softmax": (Look("m", "half", "quiet"), "softmax"),
    "PV": (Look("O", "half", "quiet"), "acc += P V"),
}


def draw_barriers(step: Step, *, narrow: bool = False) -> Scene:
    """One slot of time: what has begun, who waits for what, and the phases of the barriers so far.

    values   runs {title: bars}, ticks {title: ticks}, ends, stopped, time, horizon
    """
    check_steps_of("barriers", step, values=["runs", "ticks", "ends", "stopped", "time", "horizon"])
    runs, time = step.values["runs"], step.values["time"]
    left, top = (88, 104) if narrow else (104, 64)
    rows = {title: _rows(bars) for title, bars in runs.items()}
    scene = Scene(NARROW if narrow else WIDE, top + sum(TITLE + ROW * len(each) + 6 for each in rows.values()))
    slot = (scene.width - left - (PAD if narrow else 92)) / step.values["horizon"]
    _legend(scene, {bar.what for bars in runs.values() for bar in bars})
    y: float = top
    for number, title in enumerate(runs):
        _run(scene, step, title, rows[title], Rect(left, y, slot, ROW), number)
        y += TITLE + ROW * len(rows[title]) + 6
    now = left + time * slot
    scene.line((now, top + TITLE - 4), (now, scene.height - 4), stroke=1.5, dashed=True, layer=0, id="now")
    return scene


def _rows(bars: list[Bar]) -> list[str]:
    """Who loads, the stages, who multiplies."""

    def order(row: str) -> tuple:
        return (not row.startswith("load"), not row.startswith("stage"), row)

    return sorted({bar.row for bar in bars}, key=order)


def _run(scene: Scene, step: Step, title: str, rows: list[str], unit: Rect, run: int) -> None:
    """One run; `unit` begins at its left upper corner, a slot wide and a row high."""
    bars, time, slots = step.values["runs"][title], step.values["time"], step.values["ends"][title]
    narrow = scene.width == NARROW
    scene.text(PAD, unit.y + 14, title, 14, bold=True)
    for number, row in enumerate(rows):
        top = unit.y + TITLE + number * unit.h
        words = {"load": "producer"}.get(row, re.sub(r"^(?!stage)\w+ (\d)$", r"consumer \1", row))
        scene.text(unit.x - 6, top + unit.h / 2 - 1, words, 12, anchor="end", role="quiet")
        scene.rect((unit.x, top + 1, slots * unit.w, unit.h - 4), edge="line")
        for at, bar in enumerate(bar for bar in bars if bar.row == row and bar.start <= time):
            rect = Rect(unit.x + bar.start * unit.w, top + 1, (bar.end - bar.start) * unit.w, unit.h - 4)
            _bar(scene, bar, bars, rect, f"bar{run}-{number}-{at}")
        for tick in (tick for tick in step.values["ticks"][title] if tick.row == row and tick.time <= time):
            _tick(scene, tick, unit.x + tick.time * unit.w, top, unit.h)
    if time >= slots:
        words = "all wait, for ever" if step.values["stopped"][title] else f"{slots} slots"
        if narrow:
            scene.text(scene.width - PAD, unit.y + 14, words, 13, anchor="end", bold=True)
            return
        for line, part in enumerate(words.split(", ")):  # in the row without triangles
            place = unit.x + slots * unit.w + 8, unit.y + TITLE + unit.h / 2 + 16 * line
            scene.text(*place, part + "," * (line == 0 and "," in words), 13, bold=True)


def _bar(scene: Scene, bar: Bar, bars: list[Bar], rect: Rect, id: str) -> None:
    """What lasts, with its tiles or what it waits for."""
    if bar.what == "wait":
        scene.rect(rect, "blank", edge="line")
        scene.hatch(rect)
        for words in (f"waits for {bar.text}", bar.text, bar.text.partition(",")[0]):
            if width(words, 12) + 8 < rect.w:
                box = Rect(*rect.centre, 0, 0).inset(-width(words, 12) / 2 - 2)
                scene.rect((box.x, rect.y + 2, box.w, rect.h - 4), "blank", layer=WORDS)
                scene.text(*rect.centre, words, 12, anchor="middle", role="quiet")
                return
        return
    together = [b.text for b in bars if (b.row, b.what, b.start) == (bar.row, bar.what, bar.start)]
    if bar.text != together[0]:
        return  # V lands with K: one bar for both
    look = LOOK[bar.what][0]
    scene.rect(rect, "blank")
    scene.rect(rect, look.face, look.tone, look.edge, id=id)
    words = ", ".join(dict.fromkeys(together))
    if width(words, 12) + 4 < rect.w:
        scene.text(*rect.centre, words, 12, anchor="middle")


def _tick(scene: Scene, tick: Tick, x: float, top: float, height: float) -> None:
    """The end of a phase: a triangle below for full, above for free, with the parity of what ended."""
    up = tick.barrier == "full"
    y, tip = (top + height - 2, -8) if up else (top, 8)
    scene.polygon(((x - 5, y), (x + 5, y), (x, y + tip)), face="ink" if up else "blank", edge="ink", layer=FRAMES)
    scene.text(x + 6, y + tip / 2, tick.phase & 1, 12, layer=FRAMES)


def _legend(scene: Scene, there: set[str]) -> None:
    """What the colours of these runs are, and the triangles."""
    narrow = scene.width == NARROW
    entries = [(words, look) for what, (look, words) in LOOK.items() if what in there]
    y = scene.legend(PAD, 16, entries, 12, right=scene.width) + 24
    x: float = PAD
    for up, words in ((True, "full: phase 0, 1"), (False, "free: phase 0, 1")):
        base, tip = (y + 5, -10) if up else (y - 5, 10)
        scene.polygon(((x, base), (x + 12, base), (x + 6, base + tip)), face="ink" if up else "blank", edge="ink")
        x = scene.text(x + 18, y, words, 12).right + 20
    scene.text(scene.width - PAD, y + (22 if narrow else 0), "time →", 12, anchor="end", role="quiet")
