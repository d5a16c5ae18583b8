"""The accumulator over the steps of a loop: its way to the answer, with every rescaling marked."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import MONO, pass_note
from flashlearn.show.draw.sheet import Sheet
from flashlearn.show.draw.style import INK, QUIET, colour, number, tint
from flashlearn.show.draw.values import check_steps_of, first_head, running_name

WIDTH, HEIGHT = 1280, 500
LEFT, RIGHT, TOP, FLOOR = 60, 760, 120, 410  # where the points go
SIDE, SIDE_WIDTH = 940, 324  # the running values
MARKERS = "os^D"  # a component of the vector each, four at most


def draw_converge(ax: Axes, step: Step) -> None:
    """Paint the output so far after every step, then o once it is written, for the last query of the first head."""
    check_steps_of("a loop over keys", step, shapes=["O", "S"], writes="O")
    sheet = Sheet(ax, WIDTH, HEIGHT)
    sheet.text(16, 8, pass_note(step), va="top", weight="bold", fontsize=20)
    run = [s for s in step.run or (step,) if "acc" in s.values or s.writes]
    if not run:
        raise ValueError(
            "expected steps of a loop over keys, with acc in their values, got none: are they another picture's steps?"
        )
    seen = [s for s in step.so_far if s in run]
    place = _scale([value for s in run for value in _vector(s)], len(run))
    answer = _vector(run[-1])
    _answers(sheet, answer, place)
    for n, s in enumerate(seen):
        _mark_rescaling(sheet, s, place(n, 0)[0])
    for c, marker in zip(range(len(answer)), MARKERS, strict=False):
        xs = [place(n, 0)[0] for n in range(len(seen))]
        ys = [place(0, _vector(s)[c])[1] for s in seen]
        sheet.line(xs, ys, color=colour("acc"), marker=marker, markersize=12, markeredgecolor=INK)
    sheet.text((LEFT + RIGHT) / 2, FLOOR + 66, "after key", va="center", ha="center", color=QUIET)
    for n, s in enumerate(run):
        what = s.values["cols"][1] - 1 if "cols" in s.values else "o"
        sheet.text(place(n, 0)[0], FLOOR + 34, what, va="center", ha="center")
    if seen:
        _running_values(sheet, seen[-1])
    sheet.paint()


def _answers(sheet: Sheet, answer: list[float], place) -> None:
    """A dashed line for every component of the answer, and its number at the right."""
    label = 0
    for y, value in sorted((place(0, value)[1], value) for value in answer):
        label = max(y, label + 26)  # lines may lie close to each other, their names not
        sheet.line([LEFT - 20, RIGHT + 20], [y, y], color=INK, linewidth=1.5, linestyle=(0, (5, 3)))
        sheet.text(RIGHT + 30, label, f"o = {number(value)}", va="center")


def _vector(step: Step) -> list[float]:
    """acc, or what was written; four components at most."""
    return first_head(step.values["acc" if "acc" in step.values else "O"])[-1][: len(MARKERS)]


def _scale(values, count):
    """place(n, value) -> (x, y) on the canvas."""
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


def _running_values(sheet: Sheet, step: Step) -> None:
    """m, l and the vector as numbers."""
    names = (("m_i", "m"), ("l_i", "l"), ("acc", running_name(step.values)), ("O", "o"))
    there = ((name, symbol) for name, symbol in names if name in step.values)
    shown = [(*name, value) for name in there for value in first_head(step.values[name[0]])[-1][: len(MARKERS)]]
    for place, (name, symbol, value) in enumerate(shown):
        top = 60 + 54 * place
        sheet.box((SIDE, top, SIDE_WIDTH, 44), tint(name, 0.35), QUIET, 2)
        sheet.text(SIDE + 14, top + 22, symbol, weight="bold", **MONO)
        sheet.text(SIDE + SIDE_WIDTH - 14, top + 22, number(value), ha="right", **MONO)
