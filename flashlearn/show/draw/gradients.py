"""The backward pass on whole matrices, with every number; and the gradient of one row of softmax, as bars."""

from __future__ import annotations

from flashlearn.core.signs import fixed
from flashlearn.core.steps import Step
from flashlearn.show.draw.equations import Equation, Line, Matrix, matrix, part, put, tall, wrapped
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.scene import FRAMES, NARROW, WIDE, Rect, Scene
from flashlearn.show.draw.style import SUBSCRIPTS, role
from flashlearn.show.draw.values import check_steps_of, first_row

MADE = {"scores": "S", "softmax": "P", "dV": "dV", "dP": "dP", "dS": "dS", "dQ": "dQ", "dK": "dK"}  # by phase


# --- whole matrices ----------------------------------------------------------------------------------------


def draw_gradients(step: Step, *, narrow: bool = False) -> Scene:
    """One step of the backward pass on whole matrices: all seven operations, of the first head, as far as made."""
    what, shapes = "the backward pass on whole matrices", ["S", "dS", "dQ", "dK", "dV"]
    check_steps_of(what, step, shapes=shapes, values=["dO", "Q"], phases=[*MADE, "done"])
    known = {MADE[s.phase]: s for s in step.so_far if s.phase in MADE}
    if "delta" in step.shapes and "dS" in known:
        known["delta"] = known["dS"]
    equations = _equations(step, known)
    wide = NARROW if narrow else WIDE
    lines: list[Line] = wrapped([list(line.values()) for line in equations], wide - 2 * PAD)
    scene = Scene(wide, tall(lines) + 10)
    now = next((line[MADE[step.phase]] for line in equations if MADE.get(step.phase) in line), None)
    put(scene, lines, Rect(PAD, 0, wide - 2 * PAD, scene.height), framed=now)
    return scene


def _equations(step: Step, known: dict[str, Step]) -> list[dict[str, Equation]]:
    """Lines of equations, each under the name of what it makes."""

    def of(name: str, turned: bool = False) -> Matrix:
        rows, cols = step.shapes[name][-2:]
        source = step if name in ("Q", "K", "V", "dO") else known.get(name)
        values = part(source, name) if source is not None and name in source.values else None
        label = {"delta": "δ"}.get(name, name) + "ᵀ" * turned
        if turned:
            return matrix(label, name, None if values is None else values.mT, (cols, rows))
        return matrix(label, name, values, (rows, cols))

    return [
        {
            "S": [of("S"), "= τ", of("Q"), "·", of("K", True)],
            "P": [of("P"), "= softmax(S)"],
        },
        {
            "dV": [of("dV"), "=", of("P", True), "·", of("dO")],
            "dP": [of("dP"), "=", of("dO"), "·", of("V", True)],
        },
        {
            "dS": [of("dS"), "=", of("P"), "∘ (", of("dP"), "−", of("delta"), ")"],
        },
        {
            "dQ": [of("dQ"), "= τ", of("dS"), "·", of("K")],
            "dK": [of("dK"), "= τ", of("dS", True), "·", of("Q")],
        },
    ]


# --- one row -----------------------------------------------------------------------------------------------


def draw_gradient_row(step: Step, *, narrow: bool = False) -> Scene:
    """One step of softmax's gradient of one row: scores and p, dP next to delta, dS and what it adds up to."""
    check_steps_of("the gradient of softmax", step, shapes=["P", "dP", "dS"], values=["S", "P", "dP"])
    made = {name for s in step.so_far for name in (tile.name for tile in s.writes)}
    final = step.run[-1].values if step.run else step.values
    delta = step.written("delta").flatten()[0].item() if "delta" in made else None
    dS = first_row(final["dS"]) if "dS" in made else None
    S, P, dP = (first_row(step.values[name]) for name in ("S", "P", "dP"))
    panels: list[tuple[str, str, list[float] | None, float]] = [
        ("s: the scores", "S", S, 3.0),
        ("p = softmax(s)", "P", P, 1.0),
        ("dp, from above", "dP", dP, 3.0),
        ("ds = p ∘ (dp − δ)", "dS", dS, 1.5),
    ]
    columns, each, high = (2, 170, 200) if narrow else (4, 206, 216)
    scene = Scene(NARROW, 478) if narrow else Scene(WIDE, 300)
    for n, (title, name, values, most) in enumerate(panels):
        line, column = divmod(n, columns)
        area = Rect(10 + (each + (0 if narrow else 12)) * column, 34 + 222 * line, each - 6, high - 66)
        scene.text(area.x, area.y - 20, title, 14, bold=True)
        _bars(scene, area, name, values or [0.0] * len(S), most, empty=values is None)
        if name == "dP" and delta is not None:
            _line(scene, area, delta, most, f"δ = Σ p dp = {fixed(delta, 2)}")
        words = {"P": sum(P), "dS": None if dS is None else abs(sum(dS))}.get(name)
        if words is not None:
            scene.text(
                area.x + area.w / 2, area.bottom + 38, f"adds up to {fixed(words, 2)}", 13, anchor="middle", bold=True
            )
    if dS is not None:
        _downhill(scene, dS)
    return scene


def _zero(area: Rect, name: str) -> float:
    """Where 0 lies: at the bottom for weights, which are never negative."""
    return area.bottom if name == "P" else area.y + area.h / 2


def _bars(scene: Scene, area: Rect, name: str, values: list[float], most: float, empty: bool) -> None:
    """A bar for each key with its number, up or down from 0; bars longer than the panel end at its edge."""
    zero, room = _zero(area, name), area.h * (1.0 if name == "P" else 0.5) - 15
    pitch = area.w / len(values)
    for key, value in enumerate(values):
        x, long = area.x + pitch * key, room * max(-1.0, min(1.0, value / most))
        if not empty:
            rect = (x + 0.18 * pitch, min(zero, zero - long), 0.64 * pitch, max(abs(long), 1))
            scene.rect(rect, role(name), "half", "quiet", id=f"{name}{key}")
            y, va = (zero - long - 3, "bottom") if value >= 0 else (zero - long + 3, "top")
            digits = 2 if width(fixed(value, 2), 12) <= pitch else 1
            scene.text(x + pitch / 2, y, fixed(value, digits), 12, va=va, anchor="middle")
        scene.text(
            x + pitch / 2, area.bottom + 14, f"key {key}" if pitch >= 40 else key, 12, anchor="middle", role="quiet"
        )
    scene.line((area.x, zero), (area.right, zero), role="hatch" if empty else "ink", stroke=1.2)


def _line(scene: Scene, area: Rect, level: float, most: float, words: str) -> None:
    """A dashed line at a height of the panel, with words at the foot of it."""
    y = _zero(area, "dP") - (area.h / 2 - 15) * max(-1.0, min(1.0, level / most))
    scene.line((area.x, y), (area.right, y), stroke=2, dashed=True, layer=FRAMES, id="delta")
    scene.text(area.x + area.w / 2, area.bottom + 38, words, 13, anchor="middle", bold=True)


def _downhill(scene: Scene, dS: list[float]) -> None:
    """Which way scores go in a step downhill."""
    below = [f"s{key}".translate(SUBSCRIPTS) for key, value in enumerate(dS) if value < -1e-9]
    words = ["all dp alike: nothing moves"]
    if below:
        words = ["where dp is below δ, ds is negative:", f"a step downhill raises {', '.join(below)}"]
    if scene.width == WIDE:
        words = [" ".join(words)]
    for line, each in enumerate(words):
        scene.text(scene.width / 2, scene.height - 10 - 17 * (len(words) - 1 - line), each, 13, anchor="middle")
