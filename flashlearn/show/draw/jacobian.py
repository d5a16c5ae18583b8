"""A Jacobian as a heat map, and how it contracts: dy from the left, one number of dx out of every column."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import Grid, Sheet
from flashlearn.show.draw.style import INK, QUIET, number, tint
from flashlearn.show.draw.values import check_steps_of

WIDTH, HEIGHT = 1280, 520
TALL, BROAD = 330, 560  # the most that the heat map takes
LEFT = 200  # of the heat map
NUMBERS_FROM = 66  # pixels: narrower cells show shades only
LINES = 12  # products written out at most
USED = 0.3  # strength of what has been contracted


def draw_jacobian(ax: Axes, step: Step) -> None:
    """Paint one step of a contraction: dy at the left of J, dx below it, the current column and its products."""
    check_steps_of("a contraction", step, shapes=["dx"], values=["J", "dy"])
    sheet = Sheet(ax, WIDTH, HEIGHT)
    J, dy = (step.values[name].detach().double().cpu().numpy() for name in ("J", "dy"))
    dx, i = step.written("dx").numpy(), step.values.get("i")
    m, n = J.shape
    grids = _grids(m, n)
    done = n if i is None else i
    strength = np.where(np.arange(n) < done, USED, 1.0)
    _heat(sheet, grids["J"], J, np.broadcast_to(strength, J.shape))
    _heat(sheet, grids["dy"], dy[:, None], np.ones((m, 1)))
    _heat(sheet, grids["dx"], dx[None, :], np.where(np.arange(n) <= done, 1.0, 0.0)[None, :])
    _names(sheet, grids)
    if i is not None:
        column = grids["J"].rect(cols=(i, i + 1))
        for rect in (column, grids["dy"].rect(), grids["dx"].rect(cols=(i, i + 1))):
            sheet.outline(rect)
        sheet.text(column.centre[0], column.bottom + 22, "▼", fontsize=16, **CENTRED)
        _products(sheet, dy, J[:, i], dx[i], i)
    _key(sheet, nan=any(np.isnan(part).any() for part in (J, dy, dx[: done + 1])))
    sheet.paint()


def _grids(m: int, n: int) -> dict[str, Grid]:
    """J of m by n cells, dy at its left, dx below it."""
    tall = min(55, TALL / max(m, 1))
    broad = min(1.45 * tall, BROAD / max(n, 1))
    J = Grid(LEFT, 58, m, n, broad, tall)
    dx = Grid(LEFT, J.bottom + 44, 1, n, broad, tall)
    return {"J": J, "dy": Grid(LEFT - 40 - broad, 58, m, 1, broad, tall), "dx": dx}


def _names(sheet: Sheet, grids: dict[str, Grid]) -> None:
    """Every matrix with its size."""
    J, dy, dx = (grids[name] for name in ("J", "dy", "dx"))
    style = {"weight": "bold", "fontsize": 18}
    sheet.text(J.x, 46, f"J: {J.rows} × {J.cols} = {J.rows * J.cols} numbers", va="bottom", **style)
    sheet.text(dy.right, 46, f"dy: {dy.rows}", va="bottom", ha="right", **style)
    sheet.text(dx.x - 12, dx.y + dx.h / 2, f"dx: {dx.cols}", va="center", ha="right", **style)


def _heat(sheet: Sheet, grid: Grid, values: np.ndarray, strength: np.ndarray) -> None:
    """Shade by size, white for 0 and where the strength is 0: not there yet; NaN hatched; with room, the numbers."""
    finite = np.abs(values[np.isfinite(values)])
    largest = finite.max(initial=0.0) or 1.0
    for r, c in np.ndindex(values.shape):
        rect, value = grid.cell(r, c), values[r, c]
        if strength[r, c] == 0:
            sheet.fill(rect, "white")
            continue
        if np.isnan(value):
            sheet.hatch(rect, "white")
        else:
            sheet.fill(rect, _shade(float(value / largest), float(strength[r, c])))
        if grid.w >= NUMBERS_FROM:
            style = {"fontsize": 13, "color": INK if strength[r, c] == 1 else QUIET, "zorder": 5}
            sheet.text(*rect.centre, _words(float(value)), **style, **CENTRED)
    sheet.cell_lines(grid)


def _words(value: float) -> str:
    return f"{value:.3f}".replace("-", "−").replace("nan", "NaN")


def _shade(value: float, strength: float):
    """Reddish purple for what is positive, grey for what is negative, white for 0; infinities as the largest number."""
    size = min(1.0, abs(value)) * strength
    return tint("P", size) if value > 0 else tuple(1 - 0.5 * size * (1 - part) for part in to_rgb(INK))


def _products(sheet: Sheet, dy: np.ndarray, column: np.ndarray, total: float, i: int) -> None:
    """The sum that makes one entry of dx, term by term."""
    sheet.text(830, 46, f"column {i}: dy × J", va="bottom", weight="bold", fontsize=18)
    pitch = min(30, 340 / max(len(dy), 1))
    shown = range(min(len(dy), LINES))
    for j in shown:
        terms = [_words(v + 0.0) for v in (dy[j], column[j], dy[j] * column[j])]  # + 0.0: no −0
        y = 74 + j * pitch
        for x, text in zip((920, 950, 1050, 1080, 1190), (terms[0], "×", terms[1], "=", terms[2]), strict=True):
            faint = column[j] == 0
            sheet.text(x, y, text, ha="right", va="center", fontsize=15, color=QUIET if faint else INK)
    more = len(dy) - len(shown)
    end = 74 + len(shown) * pitch
    sheet.line([1090, 1192], [end - pitch / 2 + 2] * 2, color=INK, linewidth=1.5)
    tail = f" (with {more} more)" if more else ""
    sheet.text(1190, end + 6, f"dx[{i}] = {number(total, 3)}{tail}", ha="right", va="center", weight="bold")


def _key(sheet: Sheet, nan: bool) -> None:
    for x, value, word in ((830, 0.7, "positive"), (960, -0.7, "negative"), (1098, 0.0, "zero")):
        sheet.fill((x, 484, 24, 20), _shade(value, 1.0), QUIET, 1)
        sheet.text(x + 32, 494, word, va="center", fontsize=14)
    if nan:
        sheet.fill((1180, 484, 24, 20), "white", QUIET, 1)
        sheet.hatch((1180, 484, 24, 20))
        sheet.text(1212, 494, "NaN", va="center", fontsize=14)
