"""The running sum as the terms that it is made of, each as tall as it is by now: what a correction does, or its lack."""

from __future__ import annotations

import math
from typing import NamedTuple

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import DASHES, Sheet
from flashlearn.show.draw.style import INK, QUIET, colour, number, tint
from flashlearn.show.draw.values import check_steps_of, first, first_row, not_of

TOP, FLOOR = 140, 318  # where a term of 1 ends, and where all terms start
SIDE = 24
NAMED_UP_TO = 8  # terms; more would leave no room for their exponents


class _Term(NamedTuple):
    """One entry of x in the sum: what it counts now, and the maximum that it is measured from."""

    x: float
    size: float
    m: float


def draw_terms(ax: Axes, step: Step) -> None:
    """Paint the sum of one step of online softmax, one entry at a time, with its correction or without.

    Dashed: what every term must be, e^(x - m) with the maximum m of what was read.
    """
    _check(step)
    sheet = Sheet(ax)
    x, terms = first_row(step.values["x"]), _terms(step)
    m, l = first(step.values["m_i"]), first(step.values["l_i"])
    right = sum(_right(term, m) for term in terms)
    _numbers(sheet, m, l, right)
    _bars(sheet, x, terms, m)
    _sum(sheet, len(x), terms, right)
    sheet.paint()


def _check(step: Step) -> None:
    """ValueError for steps that do not add to the sum element by element."""
    check_steps_of("online softmax", step, shapes=["x"], values=["x", "m_i", "l_i"])
    for s in step.run or (step,):
        if s.reads and not s.writes and ("term" not in s.values or s.reads[0].shape[-1] != 1):
            wanted = "the term of one element in their values"
            raise not_of("online softmax", wanted, [f"{s.phase} of {s.reads[0]}"], run=True)


def _terms(step: Step) -> list[_Term]:
    """The terms of the sum: where a step has a correction, all older ones took it."""
    terms: list[_Term] = []
    for past in step.so_far:
        if "term" not in past.values:
            continue
        m = first(past.values["m_i"])
        if "alpha" in past.values:
            alpha = first(past.values["alpha"])
            terms = [_Term(term.x, term.size * alpha, m) for term in terms]
        j = past.reads[0].cols[0]
        terms.append(_Term(first_row(past.values["x"])[j], first(past.values["term"]), m))
    return terms


def _right(term: _Term, m: float) -> float:
    return 0.0 if m == -math.inf else math.exp(term.x - m)


def _numbers(sheet: Sheet, m: float, l: float, right: float) -> None:
    """m and l as numbers, and by how much l is wrong."""
    half = (sheet.width - 3 * SIDE) / 2
    mono = {"va": "center", "fontsize": 24, "family": "monospace"}
    for left, name, symbol, value in ((SIDE, "m_i", "m", m), (2 * SIDE + half, "l_i", "l", l)):
        sheet.box((left, 12, half, 50), tint(name, 0.35), QUIET, 2)
        sheet.text(left + 16, 37, symbol, weight="bold", **mono)
        sheet.text(left + half - 14, 37, number(value), ha="right", **mono)
    off = l - right
    words = f"too large by {number(off)}" if abs(off) > 1e-6 * max(right, 1) else "right"
    words = words if math.isfinite(off) else f"l is {number(l)}"
    sheet.text(sheet.width - SIDE, 80, words, va="center", ha="right", weight="bold", fontsize=20)


def _bars(sheet: Sheet, x: list[float], terms: list[_Term], m: float) -> None:
    """A bar for every term, dashed what it must be, below it the entry and the exponent that it stands for."""
    each = (sheet.width - 2 * SIDE) / max(1, len(x))
    unit, named = FLOOR - TOP, len(x) <= NAMED_UP_TO
    for j, term in enumerate(terms):
        left, wide, last = SIDE + (j + 0.14) * each, 0.72 * each, j == len(terms) - 1
        tall = max(term.size * unit, 1.5)
        face, width = (colour("l_i"), 2.5) if last else (tint("l_i", 0.45), 1.2)
        sheet.box((left, FLOOR - tall, wide, tall), face, INK, width)
        must = _right(term, m) * unit
        if tall - must > 3:
            sheet.box((left - 4, FLOOR - must, wide + 8, max(must, 1)), "none", INK, 2, dashes=DASHES, raised=True)
        if named:
            middle = left + wide / 2
            sheet.text(middle, FLOOR - tall - 6, number(term.size), ha="center", va="bottom", fontsize=15)
            sheet.text(middle, FLOOR + 40, f"e^({number(term.x, 1)}−{number(term.m, 1)})", fontsize=14, **CENTRED)
    for j, value in enumerate(x if named else []):
        style = {"weight": "bold", "color": INK if j < len(terms) else QUIET, "fontsize": 16}
        sheet.text(SIDE + (j + 0.5) * each, FLOOR + 16, number(value, 1), **style, **CENTRED)
    sheet.line([SIDE, sheet.width - SIDE], [FLOOR, FLOOR], color=INK, linewidth=1.2)


def _sum(sheet: Sheet, n: int, terms: list[_Term], right: float) -> None:
    """The terms end to end, on a scale on which n terms of 1 fill the width; dashed the right sum."""
    unit, top = (sheet.width - 2 * SIDE) / max(1, n), 418
    at: float = SIDE
    sheet.text(SIDE, top - 6, "the running sum", va="bottom", color=QUIET)
    for j, term in enumerate(terms):
        last = j == len(terms) - 1
        sheet.box((at, top, term.size * unit, 40), colour("l_i") if last else tint("l_i", 0.45), INK, 1.2)
        at += term.size * unit
    sheet.box((SIDE, top - 4, right * unit, 48), "none", INK, 2.5, dashes=DASHES, raised=True)
    sheet.text(SIDE, top + 52, f"dashed: e^(x − m) of all that was read, {number(right)}", va="top", fontsize=16)
