"""A Jacobian as a heat map, and how it contracts: dy from the left, one number of dx out of every column.

The steps name the two vectors; in the code they are dy and dx.
"""

from __future__ import annotations

import math

from flashlearn.core.signs import fixed, number
from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Look, Scene
from flashlearn.show.draw.values import check_steps_of

LINES, DOWN, LOW = 12, 21, 18  # products written out at most, pixels from one to the next, and on a phone
TONES = ("pale", "light", "half", "")
Rows = list[list[float]]


def draw_jacobian(step: Step, *, narrow: bool = False) -> Scene:
    """One step of a contraction: dy at the left of J, dx below it, the current column and its products."""
    check_steps_of("a contraction", step, shapes=["J"], values=["J"])
    given, made = names = [name for name in step.shapes if name != "J"]
    J, dy = (step.values[name].detach().double().cpu().tolist() for name in ("J", given))
    m, n = step.values["J"].shape
    dx, i = step.written(made).tolist(), step.values.get("i")
    grids = _grids(m, n, narrow)
    foot = grids["dx"].bottom + 40
    below = foot + 40 + LOW * min(m, LINES) + 20
    scene = Scene(NARROW, below) if narrow else Scene(WIDE, max(foot, 60 + DOWN * (min(m, LINES) + 2)))
    done = n if i is None else i
    _heat(scene, grids["J"], J, [["past" if c < done else "now" for c in range(n)]] * m)
    _heat(scene, grids["dy"], [[value] for value in dy], [["now"]] * m)
    _heat(scene, grids["dx"], [dx], [["now" if c <= done else "" for c in range(n)]])
    _sizes(scene, grids, names)
    if i is not None:
        column = grids["J"].rect(cols=(i, i + 1))
        for name, rect in (("J", column), ("dy", grids["dy"].rect()), ("dx", grids["dx"].rect(cols=(i, i + 1)))):
            scene.outline(rect, id=f"now-{name}")
        scene.text(column.centre[0], column.bottom + 13, "▼", 13, anchor="middle")
        left, top = (PAD, foot + 16) if narrow else (570, 20)
        scene.text(left, top, f"column {i}: {given} × J", 14, bold=True)
        _products(scene, dy, [row[i] for row in J], f"{made}[{i}] = {number(dx[i], 3)}", (left, top))
    every = [*(value for row in J for value in row), *dy, *dx[: done + 1]]
    entries = [("positive", Look("S", "half")), ("negative", Look("quiet", "half")), ("zero", Look("blank"))]
    entries += [("NaN", Look("blank", hatched=True))] * any(map(math.isnan, every))
    scene.legend(PAD, foot - 12, entries, right=scene.width)
    return scene


def _grids(m: int, n: int, narrow: bool) -> dict[str, Grid]:
    """J of m by n cells, dy at its left, dx below it."""
    tall = min(34, (160 if narrow else 240) / max(m, 1))
    broad = min(1.45 * tall, (250 if narrow else 420) / max(n, 1))
    left = 84 if narrow else 100
    J = Grid(left, 32, m, n, broad, tall)
    return {
        "J": J,
        "dy": Grid(left - 22 - broad, 32, m, 1, broad, tall),
        "dx": Grid(left, J.bottom + 26, 1, n, broad, tall),
    }


def _sizes(scene: Scene, grids: dict[str, Grid], names: list[str]) -> None:
    """Every matrix by its name, with its size."""
    given, made = names
    J, dy, dx = (grids[name] for name in ("J", "dy", "dx"))
    scene.text(max(J.x, dy.right + 18), 18, f"J: {J.rows} × {J.cols} = {J.rows * J.cols} numbers", 14, bold=True)
    scene.text(max(dy.right, 44), 18, f"{given}: {dy.rows}", 14, bold=True, anchor="end")
    scene.text(dx.x - 8, dx.y + dx.h / 2, f"{made}: {dx.cols}", 14, bold=True, anchor="end")


def _heat(scene: Scene, grid: Grid, values: Rows, when: list[list[str]]) -> None:
    """Shade by size, white for 0 and what is not there yet, paler what is past; NaN hatched; with room, the numbers."""
    largest = max((abs(value) for row in values for value in row if math.isfinite(value)), default=0.0) or 1.0
    scene.rect(grid.rect(), "blank")
    for r, row in enumerate(values):
        for c, value in enumerate(row):
            rect = grid.cell(r, c)
            if not when[r][c]:
                continue
            if math.isnan(value):
                scene.hatch(rect, "blank")
            elif value:
                share = min(1.0, abs(value) / largest)
                tone = TONES[min(3, int(4 * share))] if when[r][c] == "now" else "pale"
                face = "S" if value > 0 else "quiet"
                scene.rect(rect, face, tone if face == "S" or tone else "half")
            if width(_words(value), 12) <= grid.w - 2 and grid.h >= 14:
                full = value and abs(value) >= 0.75 * largest and when[r][c] == "now" and value > 0
                ink = "on" if full else "ink" if when[r][c] == "now" else "quiet"
                scene.text(*rect.centre, _words(value), 12, anchor="middle", role=ink)
    scene.cell_lines(grid)


def _words(value: float) -> str:
    return fixed(value, 3)


def _products(scene: Scene, dy: list[float], column: list[float], total: str, corner: tuple[float, float]) -> None:
    """The sum that makes one entry of dx, term by term, below its title."""
    (left, top), down = corner, LOW if scene.width == NARROW else DOWN
    shown = range(min(len(dy), LINES))
    for j in shown:
        terms = (_words(dy[j]), "×", _words(column[j]), "=", _words(dy[j] * column[j]))
        ink = "quiet" if column[j] == 0 else "ink"
        for x, words in zip((60, 82, 146, 168, 236), terms, strict=True):
            scene.text(left + x, top + 22 + down * j, words, 13, anchor="end", role=ink)
    more = len(dy) - len(shown)
    end = top + 22 + down * len(shown)
    scene.line((left + 170, end - 9), (left + 238, end - 9), stroke=1.2)
    if more:
        scene.text(left, end + 6, f"and {more} more", 12, role="quiet")
    scene.text(left + 236, end + 6, total, 14, bold=True, anchor="end")
