"""The accumulator over the steps of a loop: its way to the answer, with every rescaling marked."""

from __future__ import annotations

import math

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import MONO, pass_note
from flashlearn.show.draw.sheet import Sheet
from flashlearn.show.draw.style import INK, QUIET, colour, number, tint
from flashlearn.show.draw.values import check_steps_of, first_head, not_of, running_name, running_sum

WIDTH, HEIGHT = 1280, 500
LEFT, RIGHT, TOP, FLOOR = 60, 600, 120, 410  # where the points go
SIDE, SIDE_WIDTH = 786, 478  # the running values
EQUATION = {**MONO, "fontsize": 16}
MARKERS = "os^D"  # a component of the vector each, four at most


def draw_converge(ax: Axes, step: Step) -> None:
    """Paint the output so far after every step, then o once it is written, for the last query of the first head.

    Values of one number, a key a step: beside acc runs acc / l, hollow, and l and acc show how they were made.
    """
    check_steps_of("a loop over keys", step, shapes=["O", "S"], writes=["O"], dims=4)
    sheet = Sheet(ax, WIDTH, HEIGHT)
    sheet.text(16, 8, pass_note(step), va="top", weight="bold", fontsize=20)
    run = [s for s in step.run or (step,) if running_sum(s.values) is not None or s.writes]
    strange = next((s for s in run if running_sum(s.values) is None and "O" not in s.values), None)
    if not run or strange:
        raise not_of("a loop over keys", "acc or O in their values", strange.values if strange else (), run=True)
    seen = [s for s in step.so_far if s in run]
    answer, worth = _vector(run[-1]), _worth(run)
    point = _scale([*(value for s in run for value in _vector(s)), *worth], len(run))
    _answers(sheet, answer, point)
    for n, s in enumerate(seen):
        _mark_rescaling(sheet, s, point(n, 0)[0])
    if worth:
        _hollow(sheet, [point(n, value) for n, value in enumerate(worth[: len(seen)])])
    for c, marker in zip(range(len(answer)), MARKERS, strict=False):
        xs = [point(n, 0)[0] for n in range(len(seen))]
        ys = [point(0, _vector(s)[c])[1] for s in seen]
        sheet.line(xs, ys, color=colour("acc"), marker=marker, markersize=12, markeredgecolor=INK)
    sheet.text((LEFT + RIGHT) / 2, FLOOR + 66, "after key", va="center", ha="center", color=QUIET)
    for n, s in enumerate(run):
        what = s.values["cols"][1] - 1 if "cols" in s.values else "o"
        sheet.text(point(n, 0)[0], FLOOR + 34, what, va="center", ha="center")
    if seen:
        _running_values(sheet, seen[-1], seen[-2] if len(seen) > 1 else None)
    sheet.paint()


def _worth(run: list[Step]) -> list[float]:
    """What acc is worth after every key, acc / l: the attention over the keys so far. None but for a single number."""
    steps = [s for s in run if "acc" in s.values and "normalised" in s.values and s.values["acc"].shape[-1] == 1]
    return [_vector(s)[0] / (_last(s, "l_i") or 1.0) for s in steps]  # before the first key acc is 0


def _hollow(sheet: Sheet, points: list[tuple[float, float]]) -> None:
    """What acc is worth, in hollow points, and which points are which."""
    hollow = {"marker": "o", "markersize": 12, "markerfacecolor": "white", "markeredgecolor": INK}
    xs, ys = ([each[axis] for each in points] for axis in (0, 1))
    sheet.line(xs, ys, color=QUIET, linestyle=":", linewidth=2.5, **hollow)
    for x, words, fill in ((460, "acc", {"color": colour("acc")}), (560, "acc / l", hollow)):
        sheet.line([x], [26], **{"marker": "o", "markersize": 12, "markeredgecolor": INK, **fill})
        sheet.text(x + 16, 26, words, va="center", fontsize=17)


def _answers(sheet: Sheet, answer: list[float], point) -> None:
    """A dashed line for every component of the answer, and its number at the right."""
    label = 0
    for y, value in sorted((point(0, value)[1], value) for value in answer):
        label = max(y, label + 26)  # lines may lie close to each other, their names not
        sheet.line([LEFT - 20, RIGHT + 20], [y, y], color=INK, linewidth=1.5, linestyle=(0, (5, 3)))
        sheet.text(RIGHT + 30, label, f"o = {number(value)}", va="center")


def _vector(step: Step) -> list[float]:
    """acc, o', or what was written; four components at most."""
    held = running_sum(step.values)
    return first_head(step.values["O"] if held is None else held)[-1][: len(MARKERS)]


def _last(step: Step, name: str) -> float:
    """A number of the query that the picture follows."""
    return first_head(step.values[name])[-1][-1]


def _scale(values, count):
    """point(n, value) -> (x, y) on the canvas."""
    low, high = min(values), max(values)
    unit = (FLOOR - TOP) / ((high - low) or 1.0)
    step = (RIGHT - LEFT) / max(1, count - 1)
    return lambda n, value: (LEFT + n * step, FLOOR - (value - low) * unit)


def _mark_rescaling(sheet: Sheet, step: Step, x: float) -> None:
    """A new maximum: a line in the colour of m and l, with what the old acc or o' was multiplied by."""
    values = step.values
    alpha = first_head(values["alpha"])[-1][0] if "alpha" in values else 1.0
    if 0 < alpha < 1:
        factor = first_head(values["factor"])[-1][0] if "factor" in values else alpha
        line = {"color": tint("m_i", 0.6), "linewidth": 10, "solid_capstyle": "butt", "zorder": 1}
        sheet.line([x, x], [TOP - 18, FLOOR + 14], **line)
        sheet.text(x, TOP - 24, f"× {number(factor)}", va="bottom", ha="center", weight="bold")


def _running_values(sheet: Sheet, step: Step, before: Step | None) -> None:
    """m, l and the vector as numbers, and how the last two were made of those of the step before."""
    made = _made(step, before)
    names = (("m_i", "m"), ("l_i", "l"), ("acc", running_name(step.values)), ("o'", "o'"), ("O", "o"))
    there = ((name, symbol) for name, symbol in names if name in step.values)
    shown = [(*name, value) for name in there for value in first_head(step.values[name[0]])[-1][: len(MARKERS)]]
    top = 60
    for name, symbol, value in shown:
        tall = 82 if name in made else 44
        sheet.box((SIDE, top, SIDE_WIDTH, tall), tint(name, 0.35), QUIET, 2)
        sheet.text(SIDE + 14, top + 22, symbol, weight="bold", **MONO)
        sheet.text(SIDE + SIDE_WIDTH - 14, top + 22, number(value), ha="right", **MONO)
        if name in made:
            sheet.text(SIDE + SIDE_WIDTH - 14, top + 60, f"= {made[name]}", ha="right", **EQUATION)
        top += tall + 10


def _made(step: Step, before: Step | None) -> dict[str, str]:
    """The sums that l and acc, or o', came from, if a step takes one key with a value of one number."""
    values = step.values
    if values["O" if step.writes else "V"].shape[-1] > 1:
        return {}
    if step.phase == "divide" and before and "acc" in before.values:
        return {"O": f"{number(_last(before, 'acc'))} / {number(_last(before, 'l_i'))}"}
    if "factor" not in values or values["cols"][1] - values["cols"][0] > 1:
        return {}
    name = "acc" if "acc" in values else "o'"
    l_old, old = (_last(before, each) if before else 0.0 for each in ("l_i", name))
    alpha, factor, weight = (number(_last(step, each)) for each in ("alpha", "factor", "P"))
    score, m, v = _last(step, "S"), _last(step, "m_i"), first_head(values["V"])[values["cols"][0]][0]
    term = math.exp(score - m) if score > -math.inf else 0.0
    return {
        "l_i": f"{number(l_old)} × {alpha} + {number(term)}",
        name: f"{number(old)} × {factor} + {weight} × {number(v)}",
    }
