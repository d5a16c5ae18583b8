"""Weights of a row of scores whose blocks are each on a scale of their own, and what comes of it."""

from __future__ import annotations

import math

from flashlearn.core.signs import fixed, number
from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.scene import FRAMES, NARROW, WIDE, Rect, Scene
from flashlearn.show.draw.values import check_steps_of, first, first_row

NAMED_UP_TO = 12  # keys; more would leave no room for numbers


def draw_own_scales(step: Step, *, narrow: bool = False) -> Scene:
    """The weights so far, from each block's own maximum; dashed what they are from the row's maximum so far."""
    check_steps_of("blocks on their own scales", step, shapes=["S", "V"], values=["S", "m_i", "l_own", "acc_own"])
    room = Rect(PAD, 66, NARROW - 2 * PAD, 134) if narrow else Rect(PAD, 66, 500, 180)
    scene = Scene(NARROW, 478) if narrow else Scene(WIDE, 336)
    scene.text(PAD, 16, "weights, not yet divided", 14, bold=True)
    blocks = [s for s in step.so_far if "P_own" in s.values]
    for s in blocks:
        _bars(scene, step, s, room)
    scene.line((room.x, room.bottom), (room.right, room.bottom))
    scene.text(PAD, room.bottom + 66, "dashed: e^(s − m), m the maximum of all that was read", 12 if narrow else 13)
    last = blocks[-1].values if blocks else step.values
    wrong, right = (first(last[a]) / (first(last[l]) or 1.0) for a, l in (("acc_own", "l_own"), ("acc", "l_i")))
    own = {"acc": first(last["acc_own"]), "l": first(last["l_own"]), "acc / l": wrong}
    one = {"m": first(last["m_i"]), "acc": first(last["acc"]), "l": first(last["l_i"]), "acc / l": right}
    off = abs(wrong - right) > 1e-6
    first_area, second = (
        (Rect(PAD, 290, 158, 180), Rect(184, 290, 162, 180))
        if narrow
        else (Rect(560, 16, 306, 130), Rect(560, 164, 306, 160))
    )
    _sums(scene, first_area, "from its block's maximum", own, "S", wrong=off)
    _sums(scene, second, "from the maximum so far", one, "m", written=bool(step.writes))
    return scene


def _bars(scene: Scene, step: Step, block: Step, room: Rect) -> None:
    """The weights of one block, its maximum below them, a line where it ends."""
    s, m = first_row(block.values["S"]), first(step.values["m_i"])
    each, (start, stop) = room.w / len(s), block.values["cols"]
    named, now = len(s) <= NAMED_UP_TO, block is step.so_far[-1]
    floor = room.bottom
    for j, own in enumerate(first_row(block.values["P_own"]), start):
        left, wide, tall = room.x + (j + 0.16) * each, 0.68 * each, max(own * room.h, 1.5)
        edge = ("ink", 2) if now else ("quiet", 1)
        scene.rect((left, floor - tall, wide, tall), "S", "" if now else "half", *edge, id=f"weight{j}")
        must = math.exp(s[j] - m) if math.isfinite(m) else 0.0
        high = max(must * room.h, 1)
        scene.rect(
            (left - 3, floor - high, wide + 6, high), edge="ink", stroke=1.5, dashed=True, layer=FRAMES, id=f"must{j}"
        )
        middle = left + wide / 2
        if named:
            scene.text(middle, floor - tall - 4, fixed(own, 2), 12, va="bottom", anchor="middle", bold=True)
        if named and width(f"s = {number(s[j], 2)}", 12) <= each:
            scene.text(middle, floor + 15, f"s = {number(s[j], 2)}", 12, anchor="middle")
        elif named and width(number(s[j], 1), 12) <= each:
            scene.text(middle, floor + 15, number(s[j], 1), 12, anchor="middle")
    words = f"maximum {number(first(block.values['m_own']), 2)}"
    if named and width(words, 13, True) <= (stop - start) * each:
        scene.text(room.x + (start + stop) / 2 * each, floor + 38, words, 13, anchor="middle", bold=True)
    if stop < len(s):
        x = room.x + stop * each
        scene.line((x, room.y - 24), (x, floor + 48), role="quiet", stroke=1.2, dashed=True)


def _sums(
    scene: Scene, area: Rect, title: str, rows: dict[str, float], name: str, wrong: bool = False, written: bool = False
) -> None:
    """What one way has summed so far, and what it gives, in a frame when it is written."""
    narrow = scene.width == NARROW
    scene.rect((area.x, area.y, 5, area.h), name)  # as its bars
    left, y = area.x + 14, area.y + 12
    for words in title.rsplit(" ", 1) if narrow else [title]:
        scene.text(left, y, words, 12 if narrow else 13, bold=True)
        y += 17
    y += 12
    for symbol, value in rows.items():
        scene.text(left, y, symbol, 14, role="quiet")
        scene.text(area.right, y, number(value), 15 if narrow else 17, anchor="end", bold=True)
        if symbol == "acc / l" and wrong:
            scene.text(area.right, y + 21, "(wrong)", 13, anchor="end", bold=True)
        if symbol == "acc / l" and written:
            scene.outline((area.x + 8, y - 13, area.w - 4, 26), id="written")
        y += 29
