"""The backward pass on whole matrices, with every number; and the gradient of one row of softmax, as bars."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.equations import Equation, Matrix, equation, fitting, height, length, matrix, part
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import DASHES, Rect, Sheet
from flashlearn.show.draw.style import INK, PALE, QUIET, SUBSCRIPTS, fixed, tint
from flashlearn.show.draw.values import check_steps_of, first_row

MADE = {"scores": "S", "softmax": "P", "dV": "dV", "dP": "dP", "dS": "dS", "dQ": "dQ", "dK": "dK"}  # by phase
BESIDE = 46  # pixels between two equations of one line


# --- whole matrices ----------------------------------------------------------------------------------------


def draw_gradients(ax: Axes, step: Step) -> None:
    """Paint one step of the backward pass on whole matrices: all seven operations, of the first head, as far as made."""
    what, shapes = "the backward pass on whole matrices", ["S", "dS", "dQ", "dK", "dV"]
    check_steps_of(what, step, shapes=shapes, values=["dO", "Q"], phases=[*MADE, "done"])
    sheet = Sheet(ax)
    known = {MADE[s.phase]: s for s in step.so_far if s.phase in MADE}
    if "delta" in step.shapes and "dS" in known:
        known["delta"] = known["dS"]
    lines = _equations(step, known)
    scale = fitting([list(line.values()) for line in lines], sheet.width, sheet.height - 40, BESIDE)
    tall = [scale * max(map(height, line.values())) for line in lines]
    free = (sheet.height - sum(tall)) / (len(lines) + 1)
    y = free
    for line, high in zip(lines, tall, strict=True):
        each = [scale * length(parts) for parts in line.values()]
        x = (sheet.width - sum(each) - BESIDE * (len(line) - 1)) / 2
        for (made, parts), width in zip(line.items(), each, strict=True):
            if MADE.get(step.phase) == made:
                sheet.outline((x - 12, y - 6, width + 24, high + 14))
            equation(sheet, x, y, parts, scale)
            x += width + BESIDE
        y += high + free
    sheet.paint()


def _equations(step: Step, known: dict[str, Step]) -> list[dict[str, Equation]]:
    """Three lines of equations, each under the name of what it makes."""

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
            "dQ": [of("dQ"), "= τ", of("dS"), "·", of("K")],
        },
        {"dK": [of("dK"), "= τ", of("dS", True), "·", of("Q")]},
    ]


# --- one row -----------------------------------------------------------------------------------------------

TOP = 66  # pixels: the panels, below their names
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # behind a number, where lines pass


def draw_gradient_row(ax: Axes, step: Step) -> None:
    """Paint one step of softmax's gradient of one row: scores and p, dP beside delta, dS and what it adds up to."""
    check_steps_of("the gradient of softmax", step, shapes=["P", "dP", "dS"], values=["S", "P", "dP"])
    sheet = Sheet(ax, 1280, 500)
    made = {name for s in step.so_far for name in (tile.name for tile in s.writes)}
    final = step.run[-1].values if step.run else step.values
    delta = step.written("delta").flatten()[0].item() if "delta" in made else None
    dS = first_row(final["dS"]) if "dS" in made else None
    S, P, dP = (first_row(step.values[name]) for name in ("S", "P", "dP"))
    each = sheet.width / 4
    panels: list[tuple[str, str, list[float] | None, float]] = [
        ("s: the scores", "S", S, 3.0),
        ("p = softmax(s)", "P", P, 1.0),
        ("dp, from above", "dP", dP, 3.0),
        ("ds = p ∘ (dp − δ)", "dS", dS, 1.5),
    ]
    for n, (title, name, values, most) in enumerate(panels):
        area = Rect(each * n + 14, TOP, each - 28, 330)
        sheet.text(area.x, 34, title, weight="bold", fontsize=18, va="center")
        _bars(sheet, area, name, values or [0.0] * len(S), most, empty=values is None)
        if name == "dP" and delta is not None:
            _line(sheet, area, delta, most, f"δ = Σ p dp = {fixed(delta, 2)}")
    _sums(sheet, each, P, dS, delta)
    sheet.paint()


def _zero(area: Rect, name: str) -> float:
    """Where 0 lies: at the bottom for weights, which are never negative."""
    return area.bottom - 26 if name == "P" else area.y + (area.h - 26) / 2


def _bars(sheet: Sheet, area: Rect, name: str, values: list[float], most: float, empty: bool) -> None:
    """A bar for each key with its number, up or down from 0; bars longer than the panel end at its edge."""
    zero, room = _zero(area, name), (area.h - 26) * (1.0 if name == "P" else 0.5) - 22
    pitch = area.w / len(values)
    for key, value in enumerate(values):
        x, long = area.x + pitch * key, room * max(-1.0, min(1.0, value / most))
        if not empty:
            sheet.box((x + 0.18 * pitch, min(zero, zero - long), 0.64 * pitch, abs(long)), tint(name, 0.75), INK, 1.2)
            above = value >= 0
            style = {"ha": "center", "va": "bottom" if above else "top", "fontsize": 14, "zorder": 5, "bbox": WHITE}
            sheet.text(x + pitch / 2, zero - long - 4 if above else zero - long + 4, fixed(value, 2), **style)
        sheet.text(x + pitch / 2, area.bottom + 4, f"key {key}", fontsize=14, color=QUIET, **CENTRED)
    sheet.line([area.x, area.right], [zero, zero], color=PALE if empty else INK, linewidth=1.5)


def _line(sheet: Sheet, area: Rect, level: float, most: float, words: str) -> None:
    """A dashed line at a height of the panel, with words at the foot of it."""
    y = _zero(area, "dP") - ((area.h - 26) / 2 - 22) * max(-1.0, min(1.0, level / most))
    sheet.line([area.x, area.right], [y, y], color=INK, linewidth=2.5, linestyle=DASHES)
    sheet.text(area.x + area.w / 2, area.bottom + 42, words, weight="bold", fontsize=16, **CENTRED)


def _sums(sheet: Sheet, each: float, P: list[float], dS: list[float] | None, delta: float | None) -> None:
    """What p and ds add up to, and which way scores go in a step downhill."""
    style = {"weight": "bold", "fontsize": 16, **CENTRED}
    sheet.text(1.5 * each, TOP + 330 + 42, f"adds up to {fixed(sum(P), 2)}", **style)
    if dS is not None and delta is not None:
        sheet.text(3.5 * each, TOP + 330 + 42, f"adds up to {fixed(abs(sum(dS)), 2)}", **style)
        below = [f"s{key}".translate(SUBSCRIPTS) for key, value in enumerate(dS) if value < -1e-9]
        words = (
            f"where dp lies below δ, ds is negative: a step downhill raises {', '.join(below)}"
            if below
            else "all dp alike: nothing moves"
        )
        sheet.text(sheet.width / 2, 476, words, fontsize=16, **CENTRED)
