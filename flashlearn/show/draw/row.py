"""One row of softmax: x in HBM as bars, y as it is written, m and l on chip; the running sum as the terms it is made of."""

from __future__ import annotations

import math
from typing import NamedTuple

from matplotlib.axes import Axes
from torch import Tensor

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED, panel, pass_note, traffic_note
from flashlearn.show.draw.sheet import DASHES, Rect, Sheet
from flashlearn.show.draw.style import COLOURS, INK, QUIET, colour, number, tint
from flashlearn.show.draw.values import check_steps_of, first, first_row, not_of

WIDTH, HEIGHT = 1280, 500
LEFT, SPAN = 66, 750  # the bars of the HBM panel
NUMBERS_UP_TO = 12  # longer rows show bars without their values, which would overlap


class _Bars(NamedTuple):
    """A row of bars on a common zero line: `height` pixels from the lowest to the highest."""

    name: str
    values: list[float]
    top: float
    height: float
    high: float
    low: float

    @property
    def unit(self) -> float:
        return self.height / (self.high - self.low)

    @property
    def zero(self) -> float:
        return self.top + self.high * self.unit

    @property
    def each(self) -> float:
        return SPAN / max(1, len(self.values))

    def slot(self, j: int) -> tuple[float, float]:
        """Left edge and width of bar j."""
        return LEFT + j * self.each + 0.12 * self.each, 0.76 * self.each


def draw_row(ax: Axes, step: Step) -> None:
    """Paint one step of any softmax over one row (of several rows, the first)."""
    check_steps_of("a softmax", step, shapes=["x"], values=["x"])
    sheet = Sheet(ax, WIDTH, HEIGHT)
    sheet.text(16, 8, pass_note(step), va="top", weight="bold", fontsize=20)
    panel(sheet, Rect(16, 48, 840, 440), "HBM", traffic_note(step))
    panel(sheet, Rect(872, 48, 392, 440), "SRAM")
    x, now = first_row(step.values["x"]), step.reads[0].cols if step.reads else (0, 0)
    seen = [tile.cols[1] for s in step.so_far if s.phase == step.phase for tile in s.reads]
    finite = [v for v in x if math.isfinite(v)]
    bars = _Bars("x", x, 118, 172, max([0.0, *finite]) or 1.0, min([0.0, *finite]))
    _paint_bars(sheet, bars, now, max(seen, default=0))
    if now[1] > now[0]:  # a bracket under what is read, with an arrowhead in its middle
        left, right, foot = LEFT + now[0] * bars.each, LEFT + now[1] * bars.each, bars.top + bars.height + 12
        sheet.line([left + 4, right - 4], [foot, foot], color=INK, linewidth=3)
        sheet.line((left + right) / 2, foot + 11, marker="^", markersize=13, color=INK)
    if x and "m_i" in step.values:
        _level(sheet, bars, first(step.values["m_i"]))
    y = first_row(step.written("y")) if "y" in step.shapes else []
    low = min([0.0, *(v for v in y if math.isfinite(v))])
    output = step.run[-1].output if step.run else None  # its largest weight fills the height
    finite = [v for v in first_row(output) if math.isfinite(v)] if isinstance(output, Tensor) else []
    bars = _Bars("y", y, 362, 100, max(finite, default=0.0) or 1.0, low)
    written = max((tile.cols[1] for s in step.so_far for tile in s.writes), default=0)
    _paint_bars(sheet, bars, now if step.writes else (0, 0), written)
    _running_values(sheet, step)
    sheet.paint()


def _paint_bars(sheet: Sheet, bars: _Bars, now: tuple[int, int], seen: int) -> None:
    """The current ones dark and pointed at, those of this pass half-tone; what is no number is hatched."""
    sheet.text(LEFT - 22, bars.zero, bars.name, ha="center", va="center", weight="bold", fontsize=22, color=INK)
    for j, value in enumerate(bars.values):
        current, before = now[0] <= j < now[1], j < seen
        left, width = bars.slot(j)
        ink = (INK, 2.5) if current else (QUIET, 1.0)
        if math.isfinite(value):
            tall = max(abs(value) * bars.unit, 1.5)
            face = tint(bars.name, 1.0 if current else 0.55 if before else 0.15)
            sheet.box((left, bars.zero - tall if value >= 0 else bars.zero, width, tall), face, *ink)
        elif bars.name == "x" or before:
            sheet.box((left, bars.top, width, bars.height), "none", *ink, hatched=True)
        if len(bars.values) <= NUMBERS_UP_TO and (bars.name == "x" or before):
            _value(sheet, bars, j)
    sheet.line([LEFT, LEFT + SPAN], [bars.zero, bars.zero], color=INK, linewidth=1.2)


def _value(sheet: Sheet, bars: _Bars, j: int) -> None:
    """The number above a bar."""
    value, (left, width) = bars.values[j], bars.slot(j)
    at = bars.zero - max(value, 0.0) * bars.unit if math.isfinite(value) else bars.top
    ground = {"facecolor": COLOURS["HBM"], "edgecolor": "none", "pad": 0.5}  # the line of m passes behind
    style = {"ha": "center", "va": "bottom", "fontsize": 15 if len(bars.values) <= 10 else 12, "zorder": 4}
    words = number(value, 4 if bars.name == "y" else 2)
    sheet.text(left + width / 2, at - 4, words, bbox=ground if bars.name == "x" else None, **style)


def _level(sheet: Sheet, bars: _Bars, m: float) -> None:
    """The running maximum, a line across the bars."""
    if math.isfinite(m):
        at = bars.zero - m * bars.unit
        style = {"color": colour("m_i"), "linewidth": 2.5, "linestyle": (0, (4, 2)), "zorder": 3}
        sheet.line([LEFT, LEFT + SPAN], [at, at], **style)
        sheet.text(LEFT + SPAN + 4, at, "m", va="center", color=INK, weight="bold")


def _running_values(sheet: Sheet, step: Step) -> None:
    """m and l as numbers, and l as a bar: what it kept (rescaled or not) and what this step added."""
    top = 110
    mono = {"va": "center", "fontsize": 24, "family": "monospace"}
    for name, symbol in (("m_i", "m"), ("l_i", "l")):
        if name in step.values:
            sheet.box((900, top, 336, 56), tint(name, 0.35), QUIET, 2)
            sheet.text(918, top + 28, symbol, weight="bold", **mono)
            sheet.text(1218, top + 28, number(first(step.values[name])), ha="right", **mono)
            top += 70
    if "l_i" not in step.values:
        return
    l, sums = first(step.values["l_i"]), [first(s.values["l_i"]) for s in step.run if "l_i" in s.values]
    most = max((v for v in (*sums, l) if math.isfinite(v)), default=0.0)
    if math.isfinite(l) and most:
        _sum_bar(sheet, step, l, 336 / most)


def _sum_bar(sheet: Sheet, step: Step, l: float, unit: float) -> None:
    """The running sum, `unit` pixels for 1: what was there, and what this step added."""
    term = first(step.values["term"]) if "term" in step.values else 0.0
    alpha = first(step.values["alpha"]) if "alpha" in step.values else 1.0
    before = first(step.so_far[-2].values["l_i"]) if len(step.so_far) > 1 and "l_i" in step.so_far[-2].values else 0.0
    bar = 300
    sheet.text(900, bar - 8, "the running sum", va="bottom", color=QUIET)
    sheet.box((900, bar, (l - term) * unit, 44), tint("l_i", 0.45), INK, 1.2)
    sheet.box((900 + (l - term) * unit, bar, term * unit, 44), colour("l_i"), INK, 2.5)
    if alpha not in (0.0, 1.0):
        sheet.box((900, bar + 56, before * unit, 30), "none", QUIET, 2, dashes=DASHES)
        words = f"rescaled: {number(before)} × {number(alpha)}"
        sheet.text(900, bar + 116, words, va="center", weight="bold")
        sheet.text(900, bar + 144, f"= {number(before * alpha)}, then + {number(term)}", va="center")
    elif term:
        sheet.text(900, bar + 76, f"kept {number(l - term)}, added {number(term)}", va="center")


ONE, FLOOR = 140, 318  # where a term of 1 ends, and where all terms start
MARGIN = 24
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
    half = (sheet.width - 3 * MARGIN) / 2
    mono = {"va": "center", "fontsize": 24, "family": "monospace"}
    for left, name, symbol, value in ((MARGIN, "m_i", "m", m), (2 * MARGIN + half, "l_i", "l", l)):
        sheet.box((left, 12, half, 50), tint(name, 0.35), QUIET, 2)
        sheet.text(left + 16, 37, symbol, weight="bold", **mono)
        sheet.text(left + half - 14, 37, number(value), ha="right", **mono)
    off = l - right
    words = f"too large by {number(off)}" if abs(off) > 1e-6 * max(right, 1) else "right"
    words = words if math.isfinite(off) else f"l is {number(l)}"
    sheet.text(sheet.width - MARGIN, 80, words, va="center", ha="right", weight="bold", fontsize=20)


def _bars(sheet: Sheet, x: list[float], terms: list[_Term], m: float) -> None:
    """A bar for every term, dashed what it must be, below it the entry and the exponent that it stands for."""
    each = (sheet.width - 2 * MARGIN) / max(1, len(x))
    unit, named = FLOOR - ONE, len(x) <= NAMED_UP_TO
    for j, term in enumerate(terms):
        left, wide, last = MARGIN + (j + 0.14) * each, 0.72 * each, j == len(terms) - 1
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
        sheet.text(MARGIN + (j + 0.5) * each, FLOOR + 16, number(value, 1), **style, **CENTRED)
    sheet.line([MARGIN, sheet.width - MARGIN], [FLOOR, FLOOR], color=INK, linewidth=1.2)


def _sum(sheet: Sheet, n: int, terms: list[_Term], right: float) -> None:
    """The terms end to end, on a scale on which n terms of 1 fill the width; dashed the right sum."""
    unit, top = (sheet.width - 2 * MARGIN) / max(1, n), 418
    at: float = MARGIN
    sheet.text(MARGIN, top - 6, "the running sum", va="bottom", color=QUIET)
    for j, term in enumerate(terms):
        last = j == len(terms) - 1
        sheet.box((at, top, term.size * unit, 40), colour("l_i") if last else tint("l_i", 0.45), INK, 1.2)
        at += term.size * unit
    sheet.box((MARGIN, top - 4, right * unit, 48), "none", INK, 2.5, dashes=DASHES, raised=True)
    sheet.text(MARGIN, top + 52, f"dashed: e^(x − m) of all that was read, {number(right)}", va="top", fontsize=16)
