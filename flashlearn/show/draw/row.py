"""One row of softmax: x in HBM as bars, y as it is written, m and l on chip; the running sum as the terms it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from flashlearn.core.signs import number
from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, bytes_note, memory, on_chip_note, pass_note
from flashlearn.show.draw.scene import FRAMES, NARROW, WIDE, Rect, Scene
from flashlearn.show.draw.style import role
from flashlearn.show.draw.values import check_steps_of, first, first_row, not_of

NUMBERS_UP_TO = 12  # longer rows show bars without their values, which would overlap


@dataclass(frozen=True)
class _Bars:
    """A row of bars on a common zero line, in `area`, from the lowest value to the highest."""

    name: str
    values: list[float]
    area: Rect
    high: float
    low: float

    @property
    def unit(self) -> float:
        return self.area.h / (self.high - self.low)

    def y(self, value: float) -> float:
        """Where a value is."""
        return self.area.y + (self.high - value) * self.unit

    def slot(self, start: int, stop: int, share: float = 0.7) -> tuple[float, float]:
        """Left edge and width of the bars from start to stop, with a gap around them."""
        each = self.area.w / max(1, len(self.values))
        gap = (1 - share) / 2 * each
        return self.area.x + start * each + gap, (stop - start) * each - 2 * gap


def draw_row(step: Step, *, narrow: bool = False) -> Scene:
    """One step of any softmax over one row (of several rows, the first)."""
    check_steps_of("a softmax", step, shapes=["x"], values=["x"])
    hbm, sram = (
        (Rect(0, 0, NARROW, 270), Rect(0, 280, NARROW, 204))
        if narrow
        else (Rect(0, 0, 540, 330), Rect(556, 0, 324, 330))
    )
    scene = Scene(NARROW if narrow else WIDE, sram.bottom)
    memory(scene, hbm, "hbm", bytes_note(step))
    memory(scene, sram, "sram", on_chip_note(step) if step.on_chip else "")
    scene.text(hbm.x + PAD, hbm.y + 42, pass_note(step), 13, role="quiet")
    for bars, now, seen in _rows(step, hbm):
        _paint_bars(scene, bars, now, seen)
        if bars.name == "x" and now[1] > now[0]:
            _read_now(scene, bars, now)
        if bars.name == "x" and bars.values and "m_i" in step.values:
            _level(scene, bars, first(step.values["m_i"]))
    _on_chip(scene, step, sram)
    return scene


def _rows(step: Step, hbm: Rect) -> list[tuple[_Bars, tuple[int, int], int]]:
    """The bars of x and of y, those of this step, and how many were seen before."""
    left, across = hbm.x + 40, hbm.w - 80
    x, now = first_row(step.values["x"]), step.reads[0].cols if step.reads else (0, 0)
    seen = [tile.cols[1] for s in step.so_far if s.phase == step.phase for tile in s.reads]
    finite = [v for v in x if math.isfinite(v)]
    high = hbm.h - 200
    x_bars = _Bars("x", x, Rect(left, hbm.y + 80, across, high), max([0.0, *finite]) or 1.0, min([0.0, *finite]))
    y = first_row(step.written("y")) if "y" in step.shapes else []
    output = step.run[-1].output if step.run else None  # its largest weight fills the height
    weights = [v for v in first_row(output) if math.isfinite(v)] if isinstance(output, Tensor) else []
    lowest = min([0.0, *(v for v in y if math.isfinite(v))])
    y_bars = _Bars("y", y, Rect(left, hbm.bottom - 64, across, 48), max(weights, default=0.0) or 1.0, lowest)
    written = max((tile.cols[1] for s in step.so_far for tile in s.writes), default=0)
    return [(x_bars, now, max(seen, default=0)), (y_bars, now if step.writes else (0, 0), written)]


def _paint_bars(scene: Scene, bars: _Bars, now: tuple[int, int], seen: int) -> None:
    """The current ones full and framed, those of this pass half-tone, others dashed; what is no number is hatched."""
    zero, area = bars.y(0.0), bars.area
    scene.text(area.x - 14, zero, bars.name, 16, bold=True, anchor="middle")
    for j, value in enumerate(bars.values):
        current, before = now[0] <= j < now[1], j < seen
        left, wide = bars.slot(j, j + 1)
        edge, tone = ("ink", "") if current else ("quiet", "light") if before else ("quiet", "")
        name = f"{bars.name}{j}"
        if math.isfinite(value):
            tall = max(abs(value) * bars.unit, 1.5)
            rect = Rect(left, zero - tall if value >= 0 else zero, wide, tall)
            shown = current or before
            if shown or bars.name == "x":
                scene.rect(
                    rect, role(bars.name) if shown else "", tone, edge, 2 if current else 1, dashed=not shown, id=name
                )
        elif bars.name == "x" or before:
            scene.rect((left, area.y, wide, area.h), "", "", edge, 2 if current else 1, hatched=True, id=name)
        if len(bars.values) <= NUMBERS_UP_TO and (bars.name == "x" or before):
            _value(scene, bars, j, current)
    scene.line((area.x, zero), (area.right, zero), id=f"{bars.name}-axis")


def _value(scene: Scene, bars: _Bars, j: int, current: bool) -> None:
    """The number above a bar, in as many digits as fit."""
    value, (left, wide) = bars.values[j], bars.slot(j, j + 1, 1.0)
    at = bars.y(max(value, 0.0)) if math.isfinite(value) else bars.area.y
    digits = 4 if bars.name == "y" else 2
    while digits and width(number(value, digits), 13, current) > wide:
        digits -= 1
    words = number(value, digits)
    size = 14 if width(words, 14, current) <= wide else 12
    if width(words, size, current) <= wide:
        scene.text(
            left + wide / 2,
            at - 5,
            words,
            size,
            va="bottom",
            anchor="middle",
            bold=current,
            halo=bars.name == "x",
            id=f"{bars.name}{j}-value",
        )


def _read_now(scene: Scene, bars: _Bars, now: tuple[int, int]) -> None:
    """What is read: named below its bar where it is one, and an arrow that points at it."""
    left, wide = bars.slot(*now)
    foot, middle = bars.area.bottom + 6, left + wide / 2
    scene.line((left, foot), (left + wide, foot), stroke=2.5, id="now")
    scene.arrow((middle, foot + 16), (middle, foot + 3))
    words = f"x_{{{now[0]}}}" if now[1] - now[0] == 1 else f"x_{{{now[0]}}} … x_{{{now[1] - 1}}}"
    scene.text(middle + 10, foot + 15, words, 14)


def _level(scene: Scene, bars: _Bars, m: float) -> None:
    """The running maximum, a line across the bars."""
    if math.isfinite(m):
        at = bars.y(m)
        scene.line((bars.area.x, at), (bars.area.right, at), role="m-text", stroke=2, dashed=True, id="m", layer=FRAMES)
        scene.text(bars.area.right + 6, at, "m", 16, role="m-text", bold=True, id="m-name")


def _on_chip(scene: Scene, step: Step, area: Rect) -> None:
    """m and l as numbers, and l as a bar: what it kept (rescaled or not) and what this step added."""
    y, down = area.y + 52, 30 if scene.width == NARROW else 38
    for name, former, words in (("m_i", "m_old", "maximum m"), ("l_i", "l_old", "running sum l")):
        if name in step.values:
            scene.text(area.x + PAD, y, words, 14, role="quiet")
            old = first(step.values[former]) if former in step.values else None
            _change(scene, area.right - PAD, y, old, first(step.values[name]))
            y += down
    if "l_i" not in step.values:
        return
    l, sums = first(step.values["l_i"]), [first(s.values["l_i"]) for s in step.run if "l_i" in s.values]
    most = max((v for v in (*sums, l) if math.isfinite(v)), default=0.0)
    if math.isfinite(l) and most:
        room = Rect(area.x + PAD, y, area.w - 2 * PAD, 24)
        _sum_bar(scene, step, l, room, room.w / most, first(step.values["l_old"]) if "l_old" in step.values else 0.0)


def _change(scene: Scene, right: float, y: float, old: float | None, new: float) -> None:
    """A running value as a number; what it was before stands left of it, if that was another."""
    text = number(new)
    changed = old is not None and old != new and not (math.isnan(new) and math.isnan(old))
    box = scene.text(right, y, text, 18, anchor="end", bold=True, role="m-text" if changed else "ink")
    if changed and old is not None:
        scene.text(box.x - 8, y, f"{number(old)} →", 16, anchor="end")


def _sum_bar(scene: Scene, step: Step, l: float, room: Rect, unit: float, before: float) -> None:
    """The running sum, `unit` pixels for 1: dashed what was there before it was rescaled, and what this step added."""
    term = first(step.values["term"]) if "term" in step.values else 0.0
    alpha = first(step.values["alpha"]) if "alpha" in step.values else 1.0
    x, y = room.x, room.y
    if alpha not in (0.0, 1.0):
        scene.rect((x, y, before * unit, room.h), edge="quiet", dashed=True, id="before")
        scene.line((x + before * unit, y + room.h), (x + (l - term) * unit, y + room.h + 12), role="quiet", stroke=1)
    y += room.h + 12
    scene.rect((x, y, (l - term) * unit, room.h), "m", "half", "m-text", id="kept")
    scene.rect((x + (l - term) * unit, y, term * unit, room.h), "m", "", "ink" if term else "m-text", id="added")
    words = _exponents(step, alpha, term)
    if alpha not in (0.0, 1.0):
        scene.text(x, y + room.h + 16, words[0], 14, bold=True, id="kept-words")
    if term:
        scene.text(room.right, y + room.h + 16, words[1], 14, bold=True, anchor="end", id="added-words")


def _exponents(step: Step, alpha: float, term: float) -> tuple[str, str]:
    """What the old sum is multiplied by, and what is added: as powers of e, where it is one element."""
    m, m_old = (first(step.values[name]) if name in step.values else math.nan for name in ("m_i", "m_old"))
    scaled, added = f"× {number(alpha)}", f"+ {number(term)}"
    if math.isfinite(m_old):
        scaled = f"× e^{{{number(m_old, 1)}−{_bracket(m)}}} = {number(alpha)}"
    one = step.reads and step.reads[0].shape[-1] == 1
    if one and math.isfinite(m):
        x = first_row(step.values["x"])[step.reads[0].cols[0]]
        added = f"+ e^{{{number(x, 1)}−{_bracket(m)}}} = {number(term)}"
    return scaled, added


def _bracket(value: float) -> str:
    """A number to be subtracted."""
    return number(value, 1) if value >= 0 else f"({number(value, 1)})"


NAMED_UP_TO = 8  # terms; more would leave no room for their exponents


class _Term(NamedTuple):
    """One entry of x in the sum: what it counts now, and the maximum that it is measured from."""

    x: float
    size: float
    m: float


def draw_terms(step: Step, *, narrow: bool = False) -> Scene:
    """The sum of one step of online softmax, one entry at a time, with its correction or without.

    Dashed: what every term must be, e^(x - m) with the maximum m of what was read.
    """
    _check(step)
    scene = Scene(NARROW if narrow else WIDE, 380 if narrow else 360)
    x, terms = first_row(step.values["x"]), _terms(step)
    m, l = first(step.values["m_i"]), first(step.values["l_i"])
    right = sum(_right(term, m) for term in terms)
    _numbers(scene, step, m, l, right)
    _term_bars(scene, x, terms, m)
    _sum(scene, len(x), terms, right)
    return scene


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


def _numbers(scene: Scene, step: Step, m: float, l: float, right: float) -> None:
    """m and l as numbers, and by how much l is wrong; their names are short in all steps if they must be in one."""
    half = scene.width / 2
    wide = [
        max(width(name, 14) + 10 + width(number(first(s.values[of])), 18, bold=True) for s in step.run or (step,))
        for name, of in (("maximum m", "m_i"), ("running sum l", "l_i"))
    ]
    names = ("maximum m", "running sum l") if wide[0] <= half - PAD - 6 and wide[1] <= half - 4 else ("m", "l")
    for left, name, value in ((PAD, names[0], m), (half, names[1], l)):
        box = scene.text(left, 20, name, 14, role="quiet")
        scene.text(box.right + 10, 20, number(value), 18, bold=True, role="m-text")
    off = l - right
    words = f"too large by {number(off)}" if abs(off) > 1e-6 * max(right, 1) else "right"
    scene.text(half, 46, words if math.isfinite(off) else f"l is {number(l)}", 16, bold=True)


def _term_bars(scene: Scene, x: list[float], terms: list[_Term], m: float) -> None:
    """A bar for every term, dashed what it must be, below it the entry and the exponent that it stands for."""
    each = (scene.width - 2 * PAD) / max(1, len(x))
    one, floor = 86, 220 if scene.width == WIDE else 230  # where a term of 1 ends, and where all terms start
    unit, named = floor - one, len(x) <= NAMED_UP_TO
    size = 14 if scene.width == WIDE else 12
    for j, term in enumerate(terms):
        left, wide, last = PAD + (j + 0.14) * each, 0.72 * each, j == len(terms) - 1
        tall = max(min(term.size, 10.0) * unit, 1.5) if math.isfinite(term.size) else 1.5
        rect = Rect(left, floor - tall, wide, tall)
        scene.rect(rect, "m", "" if last else "half", "ink" if last else "m-text", 2 if last else 1, id=f"term{j}")
        must = _right(term, m) * unit
        if tall - must > 3:
            scene.rect(
                (left - 3, floor - must, wide + 6, max(must, 1)), edge="ink", stroke=1.5, dashed=True, layer=FRAMES
            )
        if named:
            middle = left + wide / 2
            digits = 4 if width(number(term.size), size) <= each else 2
            scene.text(middle, floor - tall - 4, number(term.size, digits), size, anchor="middle", va="bottom")
            exponent = f"e^{{{number(term.x, 1)}−{_bracket(term.m)}}}"
            scene.text(middle, floor + 38, exponent, size + 1, anchor="middle")
    for j, value in enumerate(x if named else []):
        role = "ink" if j < len(terms) else "quiet"
        scene.text(PAD + (j + 0.5) * each, floor + 16, number(value, 1), size, bold=True, role=role, anchor="middle")
    scene.line((PAD, floor), (scene.width - PAD, floor))


def _sum(scene: Scene, n: int, terms: list[_Term], right: float) -> None:
    """The terms end to end, on a scale on which n terms of 1 fill the width; dashed the right sum."""
    unit, top = (scene.width - 2 * PAD) / max(1, n), scene.height - 66
    at: float = PAD
    for j, term in enumerate(terms):
        last = j == len(terms) - 1
        scene.rect((at, top, term.size * unit, 28), "m", "" if last else "half", "ink", id=f"sum{j}")
        at += term.size * unit
    scene.rect((PAD, top - 4, right * unit, 36), edge="ink", stroke=2, dashed=True, layer=FRAMES, id="right")
    words = f"dashed: e^(x − m) of all that was read, {number(right)}"
    scene.text(PAD, scene.height - 14, words, 13)
