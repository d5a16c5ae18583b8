"""Q, K and V made from the tokens: X at the left, the three matrices above, each product where the two meet."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import Place, Sheet
from flashlearn.show.draw.style import INK, colour, fixed, ink_on, tint
from flashlearn.show.draw.values import check_steps_of

WIDTH, HEIGHT = 1280, 500
LEFT, RIGHT, TOP, GAP = 110, 1250, 64, 64  # the room for cells, and what lies between two matrices
NAMES = ("X", "W_q", "W_k", "W_v", "Q", "K", "V")
SUBSCRIPTS = {f"W_{letter}": rf"$\mathbf{{W_{letter}}}$" for letter in "qkv"}


def draw_projection(ax: Axes, step: Step) -> None:
    """Paint one product: X and its factor in frames, the rows that it makes in full colour."""
    check_steps_of("a projection", step, shapes=NAMES)
    sheet, places = Sheet(ax, WIDTH, HEIGHT), _places(step)
    now = {tile.name for tile in (*step.reads, *step.writes)}
    for name, place in places.items():
        content = step.written(name).numpy() if name in "QKV" else step.values[name].double().numpy()
        _matrix(sheet, name, place, content, name in now)
    _titles(sheet, places, step)
    sheet.paint()


def _places(step: Step) -> dict[str, Place]:
    """Where matrix multiplication puts them."""
    (N, E), D = step.shapes["X"], step.shapes["Q"][1]
    w = min((RIGHT - LEFT - 3 * GAP) / (E + 3 * D), 84)
    h = min((HEIGHT - TOP - GAP - 24) / (E + N), 50)
    left = LEFT + (RIGHT - LEFT - 3 * GAP - w * (E + 3 * D)) / 2
    below = TOP + E * h + GAP
    places = {"X": Place(left, below, N, E, w, h)}
    for n, name in enumerate("QKV"):
        x = left + E * w + GAP + n * (D * w + GAP)
        places[f"W_{name.lower()}"] = Place(x, TOP, E, D, w, h)
        places[name] = Place(x, below, N, D, w, h)
    return places


def _matrix(sheet: Sheet, name: str, place: Place, content: np.ndarray, now: bool) -> None:
    """Numbers where there are any yet: Q, K and V full while they are made, W in their tints, X white."""
    face = "white" if name == "X" else tint(name[-1].upper(), 0.25)
    made = name in "QKV" and not np.isnan(content).all()
    if name in "QKV":
        face = colour(name) if now else tint(name, 0.5) if made else "white"
    sheet.fill(place.rect(), face)
    sheet.grid(place)
    if now:
        sheet.outline(place.rect())
    if place.w < 34 or place.h < 20 or (name in "QKV" and not made):
        return
    ink = ink_on(name) if name in "QKV" and now else INK
    for r, c in np.ndindex(place.rows, place.cols):
        sheet.text(*place.cell(r, c).centre, fixed(float(content[r, c]), 1), fontsize=16, color=ink, **CENTRED)


def _titles(sheet: Sheet, places: dict[str, Place], step: Step) -> None:
    """Names and shapes above the matrices; the number of every token at the left of X."""
    for name, place in places.items():
        words = f"{SUBSCRIPTS.get(name, name)}  {place.rows} × {place.cols}"
        sheet.text(place.middle, place.y - 8, words, va="bottom", ha="center", weight="bold", fontsize=18)
    for n in range(places["X"].rows):
        x, y = places["X"].cell(n, 0).x - 12, places["X"].cell(n, 0).centre[1]
        sheet.text(x, y, f"token {n}", ha="right", va="center", fontsize=16)
    if step.writes:
        made, factor = step.writes[0].name, SUBSCRIPTS[step.reads[-1].name]
        sheet.text(LEFT, TOP + 20, f"{made} = X {factor}", va="center", fontsize=26, weight="bold")
