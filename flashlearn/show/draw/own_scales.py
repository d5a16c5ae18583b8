"""Weights of a row of scores whose blocks are each on a scale of their own, and what comes of it."""

from __future__ import annotations

import math

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED, MONO
from flashlearn.show.draw.sheet import DASHES, Sheet
from flashlearn.show.draw.style import INK, QUIET, colour, fixed, number, tint
from flashlearn.show.draw.values import check_steps_of, first, first_row

WIDTH, HEIGHT = 1280, 500
LEFT, RIGHT, TOP, FLOOR = 24, 760, 92, 380  # the bars: where a weight of 1 ends, and where all start
SIDE, SIDE_WIDTH = 800, 456
NAMED_UP_TO = 12  # keys; more would leave no room for numbers


def draw_own_scales(ax: Axes, step: Step) -> None:
    """Paint the weights so far, from each block's own maximum; dashed what they are from the row's maximum so far."""
    check_steps_of("blocks on their own scales", step, shapes=["S", "V"], values=["S", "m_i", "l_own", "acc_own"])
    sheet = Sheet(ax, WIDTH, HEIGHT)
    sheet.text(LEFT, 12, "weights, not yet divided", va="top", weight="bold", fontsize=20)
    blocks = [s for s in step.so_far if "P_own" in s.values]
    for s in blocks:
        _bars(sheet, step, s)
    sheet.line([LEFT, RIGHT], [FLOOR, FLOOR], color=INK, linewidth=1.2)
    sheet.text(LEFT, 472, "dashed: e^(s − m), with the maximum m of all that was read", va="center", fontsize=16)
    last = blocks[-1].values if blocks else step.values
    wrong, right = (first(last[a]) / (first(last[l]) or 1.0) for a, l in (("acc_own", "l_own"), ("acc", "l_i")))
    own = {"acc": first(last["acc_own"]), "l": first(last["l_own"]), "acc / l": wrong}
    _sums(sheet, 48, "from its block's maximum", own, "S", wrong=abs(wrong - right) > 1e-6)
    one = {"m": first(last["m_i"]), "acc": first(last["acc"]), "l": first(last["l_i"]), "acc / l": right}
    _sums(sheet, 242, "from the maximum so far", one, "m_i", written=bool(step.writes))
    sheet.paint()


def _bars(sheet: Sheet, step: Step, block: Step) -> None:
    """The weights of one block, its maximum below them, a line where it ends."""
    s, m = first_row(block.values["S"]), first(step.values["m_i"])
    each, (start, stop) = (RIGHT - LEFT) / len(s), block.values["cols"]
    named, now = len(s) <= NAMED_UP_TO, block is step.so_far[-1]
    for j, own in enumerate(first_row(block.values["P_own"]), start):
        left, wide, tall = LEFT + (j + 0.14) * each, 0.72 * each, max(own * (FLOOR - TOP), 1.5)
        sheet.box((left, FLOOR - tall, wide, tall), colour("S") if now else tint("S", 0.45), INK, 2 if now else 1.2)
        must = math.exp(s[j] - m) if math.isfinite(m) else 0.0
        high = max(must * (FLOOR - TOP), 1)
        sheet.box((left - 4, FLOOR - high, wide + 8, high), "none", INK, 2.5, dashes=DASHES, raised=True)
        if named:
            middle = left + wide / 2
            sheet.text(middle, FLOOR - tall - 6, fixed(own, 2), ha="center", va="bottom", weight="bold", fontsize=16)
            sheet.text(middle, FLOOR + 16, f"s = {number(s[j], 2)}", fontsize=15, **CENTRED)
    words = f"maximum {number(first(block.values['m_own']), 2)}" if named and (stop - start) * each > 110 else ""
    sheet.text(LEFT + (start + stop) / 2 * each, FLOOR + 50, words, weight="bold", fontsize=16, **CENTRED)
    if stop < len(s):
        sheet.line([LEFT + stop * each] * 2, [TOP - 30, FLOOR + 62], color=QUIET, linewidth=1.5, linestyle=DASHES)


def _sums(
    sheet: Sheet, top: float, title: str, rows: dict[str, float], name: str, wrong: bool = False, written: bool = False
) -> None:
    """What one way has summed so far, and what it gives, in a frame when it is written."""
    tall = 46 + 40 * len(rows)
    sheet.box((SIDE, top, SIDE_WIDTH, tall), tint(name, 0.35), QUIET, 2)
    sheet.text(SIDE + 14, top + 24, title, va="center", weight="bold", fontsize=17)
    for n, (symbol, value) in enumerate(rows.items()):
        y = top + 64 + 40 * n
        sheet.text(SIDE + 14, y, symbol, weight="bold", **MONO)
        words = number(value) + " (wrong)" * (wrong and "/" in symbol)
        sheet.text(SIDE + SIDE_WIDTH - 14, y, words, ha="right", **MONO)
    if written:
        sheet.outline((SIDE + 6, top + tall - 42, SIDE_WIDTH - 12, 38), 4)
