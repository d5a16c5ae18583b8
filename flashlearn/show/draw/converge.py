"""The accumulator over the steps of a loop: its way to the answer, with every rescaling marked."""

from __future__ import annotations

import math
from collections.abc import Callable

from flashlearn.core.signs import number
from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, pass_note
from flashlearn.show.draw.scene import NARROW, WIDE, WORDS, Rect, Scene
from flashlearn.show.draw.values import check_steps_of, first_head, not_of, running_name, running_sum

SIDES = (16, 4, 3, 6)  # of the points of a component of the vector each, four at most
Place = Callable[[int, float], tuple[float, float]]


def draw_converge(step: Step, *, narrow: bool = False) -> Scene:
    """The output so far after every step, then o once it is written, for the last query of the first head.

    Values of one number, a key a step: next to acc is acc / l, hollow, and l and acc show how they were made.
    """
    check_steps_of("a loop over keys", step, shapes=["O", "S"], writes=["O"], dims=4)
    run = [s for s in step.run or (step,) if running_sum(s.values) is not None or s.writes]
    strange = next((s for s in run if running_sum(s.values) is None and "O" not in s.values), None)
    if not run or strange:
        raise not_of("a loop over keys", "acc or O in their values", strange.values if strange else (), run=True)
    room = Rect(30, 74, 230, 150) if narrow else Rect(40, 80, 420, 210)
    below = Rect(PAD, 282, NARROW - 2 * PAD, 196) if narrow else Rect(610, 44, WIDE - 610 - PAD, 290)
    scene = Scene(NARROW, below.bottom) if narrow else Scene(WIDE, 340)
    scene.text(PAD, 16, pass_note(step), 14, bold=True)
    seen = [s for s in step.so_far if s in run]
    answer, worth = _vector(run[-1]), _worth(run)
    place = _places([*(value for s in run for value in _vector(s)), *worth], len(run), room)
    _answers(scene, answer, place, room)
    for n, s in enumerate(seen):
        _mark_rescaling(scene, s, place(n, 0)[0], room)
    if worth:
        _hollow(scene, [place(n, value) for n, value in enumerate(worth[: len(seen)])])
    for c, sides in zip(range(len(answer)), SIDES, strict=False):
        points = [place(n, _vector(s)[c]) for n, s in enumerate(seen)]
        scene.line(*points, role="O", stroke=2, id=f"way{c}")
        for x, y in points:
            scene.dot(x, y, 5.5, "O", edge="ink", sides=sides, layer=WORDS)
    _keys(scene, run, place, room)
    if seen:
        _running_values(scene, seen[-1], seen[-2] if len(seen) > 1 else None, below)
    return scene


def _keys(scene: Scene, run: list[Step], place: Place, room: Rect) -> None:
    """After which key every point is."""
    every = math.ceil(len(run) * 20 / room.w)
    for n, s in enumerate(run):
        what = str(s.values["cols"][1] - 1) if "cols" in s.values else "o"
        if n % every == 0 and (n + every <= len(run) or what == "o") or what == "o":
            scene.text(place(n, 0)[0], room.bottom + 22, what, 13, anchor="middle")
    scene.text(room.x + room.w / 2, room.bottom + 42, "after key", 13, anchor="middle", role="quiet")


def _worth(run: list[Step]) -> list[float]:
    """What acc is worth after every key, acc / l: the attention over the keys so far. None, except for a single number."""
    steps = [s for s in run if "acc" in s.values and "normalised" in s.values and s.values["acc"].shape[-1] == 1]
    return [_vector(s)[0] / (_last(s, "l_i") or 1.0) for s in steps]  # before the first key acc is 0


def _hollow(scene: Scene, points: list[tuple[float, float]]) -> None:
    """What acc is worth, in hollow points, and which points are which."""
    scene.line(*points, role="quiet", stroke=1.5, dashed=True, id="worth")
    for x, y in points:
        scene.dot(x, y, 5.5, "blank", edge="ink", layer=WORDS)
    x = 200 if scene.width == NARROW else 330
    for words, face in (("acc", "O"), ("acc / l", "blank")):
        scene.dot(x, 16, 5.5, face, edge="ink")
        x = scene.text(x + 11, 16, words, 13).right + 22


def _answers(scene: Scene, answer: list[float], place: Place, room: Rect) -> None:
    """A dashed line for every component of the answer, and its number at the right."""
    label = 0.0
    for y, value in sorted((place(0, value)[1], value) for value in answer):
        label = max(y, label + 17)  # lines may lie close to each other, their names not
        scene.line((room.x - 12, y), (room.right + 12, y), role="quiet", stroke=1.2, dashed=True)
        scene.text(room.right + 18, label, f"o = {number(value)}", 12 if scene.width == NARROW else 13)


def _vector(step: Step) -> list[float]:
    """acc, o', or what was written; four components at most."""
    held = running_sum(step.values)
    return first_head(step.values["O"] if held is None else held)[-1][: len(SIDES)]


def _last(step: Step, name: str) -> float:
    """A number of the query that the picture follows."""
    return first_head(step.values[name])[-1][-1]


def _places(values: list[float], count: int, room: Rect) -> Place:
    """place(n, value) -> (x, y)."""
    low, high = min(values), max(values)
    unit, step = room.h / ((high - low) or 1.0), room.w / max(1, count - 1)
    return lambda n, value: (room.x + n * step, room.bottom - (value - low) * unit)


def _mark_rescaling(scene: Scene, step: Step, x: float, room: Rect) -> None:
    """A new maximum: a line in the colour of m and l, with what the old acc or o' was multiplied by."""
    values = step.values
    alpha = first_head(values["alpha"])[-1][0] if "alpha" in values else 1.0
    if 0 < alpha < 1:
        factor = first_head(values["factor"])[-1][0] if "factor" in values else alpha
        scene.rect((x - 4, room.y - 12, 8, room.h + 24), "m", "half", layer=0)
        taken = [item.box for item in scene.words() if item.text.startswith("×")]
        for digits, up in ((4, 20), (4, 36), (2, 20), (2, 36)):
            words = f"× {number(factor, digits)}"
            middle = max(x, width(words, 12, True) / 2 + 2)
            left = middle - width(words, 12, True) / 2
            if not any(box.right + 4 > left and abs(box.centre[1] - room.y + up) < 10 for box in taken):
                break
        scene.text(middle, room.y - up, words, 12, anchor="middle", bold=True)


def _running_values(scene: Scene, step: Step, before: Step | None, area: Rect) -> None:
    """m, l and the vector as numbers, and how the last two were made of those of the step before."""
    made = _made(step, before)
    names = (("m_i", "m"), ("l_i", "l"), ("acc", running_name(step.values)), ("o'", "o'"), ("O", "o"))
    there = ((name, symbol) for name, symbol in names if name in step.values)
    shown = [(*name, value) for name in there for value in first_head(step.values[name[0]])[-1][: len(SIDES)]]
    y = area.y + 12
    line = min(30.0, (area.h - 24) / max(1, len(shown) - 1))
    for name, symbol, value in shown:
        role = "m-text" if name in ("m_i", "l_i") else "ink"
        scene.text(area.x, y, symbol, 15, bold=True)
        scene.text(
            area.right, y, number(value), 16, anchor="end", bold=True, role=role, id=f"{name}-value" * (role != "ink")
        )
        if name in made:
            words = f"= {made[name]}"
            size = 13 if width(words, 13) <= area.w else 12
            scene.text(area.right, y + 22, words, size, anchor="end", role="quiet")
        y += 52 if name in made else line


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
