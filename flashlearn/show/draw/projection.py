"""Q, K and V made from the tokens: X at the left, the three matrices above, each product where the two meet."""

from __future__ import annotations

import math
from functools import partial

from flashlearn.core.signs import fixed
from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Scene
from flashlearn.show.draw.style import role
from flashlearn.show.draw.values import check_steps_of

NAMES = ("X", "W_q", "W_k", "W_v", "Q", "K", "V")


def draw_projection(step: Step, *, narrow: bool = False) -> Scene:
    """One product: X and its factor in frames, the rows that it makes in full colour."""
    check_steps_of("a projection", step, shapes=NAMES)
    grids = _grids(step, narrow)
    scene = Scene(NARROW if narrow else WIDE, max(grid.bottom for grid in grids.values()) + 14)
    now = {tile.name for tile in (*step.reads, *step.writes)}
    for name, grid in grids.items():
        content = step.written(name) if name in "QKV" else step.values[name]
        _matrix(scene, name, grid, content.double().tolist(), name in now)
    _titles(scene, grids, step)
    return scene


def _grids(step: Step, narrow: bool) -> dict[str, Grid]:
    """Where matrix multiplication puts them."""
    (N, E), D = step.shapes["X"], step.shapes["Q"][1]
    left, gap, top = (62.0, 10, 78) if narrow else (94.0, 44, 44)
    room = (NARROW if narrow else WIDE) - PAD - left - 3 * gap
    w = min(room / max(1, E + 3 * D), 52)
    h = min(330 / max(1, E + N), 28)
    left += 0 if narrow else (room - w * (E + 3 * D)) / 2
    below = top + E * h + 40
    grids = {"X": Grid(left, below, N, E, w, h)}
    for n, name in enumerate("QKV"):
        x = left + E * w + gap + n * (D * w + gap)
        grids[f"W_{name.lower()}"] = Grid(x, top, E, D, w, h)
        grids[name] = Grid(x, below, N, D, w, h)
    return grids


def _matrix(scene: Scene, name: str, grid: Grid, content: list[list[float]], now: bool) -> None:
    """Numbers where there are any yet: Q, K and V full while they are made, W in their tints, X white."""
    made = name in "QKV" and not all(math.isnan(value) for row in content for value in row)
    scene.rect(grid.rect(), "blank")
    if name in "QKV" and (now or made):
        scene.rect(grid.rect(), role(name), "" if now else "half")
    elif name[0] == "W":
        scene.rect(grid.rect(), role(name[-1].upper()), "light")
    scene.cell_lines(grid)
    if now:
        scene.outline(grid.rect(), id=f"now-{name}")
    if grid.w < 24 or grid.h < 14 or (name in "QKV" and not made):
        return
    ink = "ink" if not (name in "QKV" and now) else "on-Q" if name == "Q" else "on"
    widest = max((width(fixed(value, 1), 12) for row in content for value in row), default=0)
    scene.numbers(grid, content, partial(fixed, digits=1 if widest <= grid.w else 0), size=12, role=ink)


def _titles(scene: Scene, grids: dict[str, Grid], step: Step) -> None:
    """Names and shapes above the matrices; the number of every token at the left of X."""
    narrow = scene.width == NARROW
    for name, grid in grids.items():
        sign = f"W_{{{name[-1]}}}" if name[0] == "W" else name
        scene.text(
            grid.middle,
            grid.y - (21 if narrow else 6),
            sign if narrow else f"{sign}  {grid.rows} × {grid.cols}",
            14,
            va="bottom",
            anchor="middle",
            bold=True,
        )
        if narrow:
            scene.text(
                grid.middle, grid.y - 5, f"{grid.rows}×{grid.cols}", 12, va="bottom", anchor="middle", role="quiet"
            )
    X = grids["X"]
    every = max(1, math.ceil(14 / X.h))
    for n in range(0, X.rows, every):
        scene.text(X.x - 6, X.cell(n, 0).centre[1], f"token {n}", 12, anchor="end", role="quiet")
    if step.writes:
        made, factor = step.writes[0].name, step.reads[-1].name[-1]
        scene.text(PAD, 24, f"{made} = X W_{{{factor}}}", 18, bold=True)
