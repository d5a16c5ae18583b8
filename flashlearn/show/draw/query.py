"""One query against all keys: K, V and o in HBM, and on chip the tiles at work, m, l and acc as numbers."""

from __future__ import annotations

import math
from functools import partial
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Polygon

from flashlearn.core.steps import Step
from flashlearn.show.draw.style import INK, QUIET, box, canvas, number, panel, pass_note, tint, traffic_note

WIDTH, HEIGHT = 1280, 560
ROW, TOP = 34, 136  # height of a row of K and V, and where row 0 is in both panels
BAND, CHIP_BAND = 340, 136  # height kept for K and V, in HBM and on chip
CHAR = 10.87  # width of a character of the numbers: 13 pt monospace
CELL, WIDE = 5 * CHAR, 6 * CHAR  # width of a cell with one decimal, and with two
K_LEFT, V_LEFT = 78, 352  # in HBM
K_CHIP, S_CHIP, P_CHIP, V_CHIP = 622, 846, 918, 992  # in SRAM
STRIP, STRIP_TOP = 604, 490  # the scores on chip, side by side
MONO = {"family": "monospace", "fontsize": 20, "va": "center"}
SMALL = {**MONO, "fontsize": 13}


def draw_query(ax: Axes, step: Step) -> None:
    """Paint one step of a loop over keys and values, for the last query of the first head."""
    canvas(ax, WIDTH, HEIGHT)
    ax.text(16, 8, pass_note(step), va="top", weight="bold", fontsize=20)
    panel(ax, 16, 48, 560, 500, "HBM", traffic_note(step))
    panel(ax, 588, 48, 676, 500, "SRAM")
    _in_hbm(ax, step)
    if "cols" in step.values:
        _tiles_on_chip(ax, step)
        _scores_on_chip(ax, step)
    _running_values(ax, step)


def _in_hbm(ax, step):
    """K and V as they lie in HBM, q above K and o below V; the rows being read are dark and pointed at."""
    q, o = _rows(step.values["Q"])[-1:], _rows(step.written("O"))[-1:]
    load, write = any(t.name == "Q" for t in step.reads), bool(step.writes)
    _matrix(ax, "Q", q, K_LEFT, TOP - ROW - 14, CELL, ROW, lambda i: 0.8 if load else 0.15, strong_edge=load)
    _name(ax, "q", K_LEFT - 12, TOP - ROW / 2 - 14, "right")
    for name, left, tag in (("K", K_LEFT, "q"), ("V", V_LEFT, "p")):
        rows = _rows(step.values[name])
        now = next((t.rows for t in step.reads if t.name == name), None)
        this_pass = (t for s in step.so_far if s.phase == step.phase for t in s.reads)
        seen = max((t.rows[1] for t in this_pass if t.name == name), default=0)
        height = min(ROW, BAND / max(1, len(rows)))
        shade = partial(_strength, now, seen)
        _matrix(ax, name, rows, left, TOP, CELL, height, shade, now)
        if now:
            middle = TOP + (now[0] + now[1]) / 2 * height
            _tag(ax, tag, left - 48, middle)
        at = TOP + len(rows) * height + 22 if name == "K" else TOP - 22
        _name(ax, f"{name}  {len(rows)} × {len(rows[0]) if rows else 0}", left, at, "left")
    at = (V_LEFT, TOP + BAND + 18, CELL, ROW)
    _matrix(ax, "O", o, *at, lambda i: 0.9 if write else 0.12, strong_edge=write)
    _name(ax, "o", V_LEFT - 12, TOP + BAND + 18 + ROW / 2, "right")


def _tiles_on_chip(ax, step):
    """q, the tiles of K and V at work, their scores and weights: each where matrix multiplication puts it."""
    _matrix(ax, "Q", _rows(step.values["Q"])[-1:], K_CHIP, TOP - ROW - 14, CELL, ROW, lambda i: 0.8)
    _name(ax, "q", K_CHIP - 10, TOP - ROW / 2 - 14, "right")
    j0, j1 = step.values["cols"]
    height = min(ROW, CHIP_BAND / (j1 - j0))
    here = {t.name for t in step.reads}
    for name, left, cell in (("K", K_CHIP, CELL), ("V", V_CHIP, WIDE)):
        if name in here:
            _matrix(ax, name, _rows(step.values[name])[j0:j1], left, TOP, cell, height, lambda i: 0.8)
            at = (left, TOP + (j1 - j0) * height + 18) if name == "K" else (left, TOP - 22)
            _name(ax, name + _span(j0, j1), *at, "left")
    for name, left in (("S", S_CHIP), ("P", P_CHIP)):
        if name in step.values:
            column = [[x] for x in _rows(step.values[name])[-1]]
            _matrix(ax, name, column, left, TOP, WIDE, height, lambda i: 0.8, digits=2)
            _name(ax, name.lower(), left + 33, TOP - 22, "center")


def _scores_on_chip(ax, step):
    """One slot per key, filled while its score sits on chip: none of them is ever in HBM."""
    total = step.shapes["S"][-1]
    blocks = [t.cols for t in step.on_chip if t.name == "S"] or [(0, 0)]
    start, stop = min(blocks)[0], max(blocks)[1]
    known = {}
    for s in step.so_far:
        if "S" in s.values:
            known.update(enumerate(_rows(s.values["S"])[-1], s.values["cols"][0]))
    now, digits = step.values["cols"], 2 if total <= 10 else 1
    each = WIDE if total <= 10 else CELL if total <= 12 else 10 * WIDE / total
    _name(ax, f"scores on chip: {stop - start} of {total}", STRIP, STRIP_TOP - 20, "left")
    box(ax, STRIP, STRIP_TOP, total * each, 42, "none", edge=QUIET, linestyle=(0, (2, 3)))
    if stop > start:
        row = [known[j] for j in range(start, stop)]
        at = (STRIP + start * each, STRIP_TOP, each, 42)
        _matrix(ax, "S", [row], *at, lambda i: 0.4, digits=digits, most=total)
        box(ax, STRIP + now[0] * each, STRIP_TOP, (now[1] - now[0]) * each, 42, "none", width=3, zorder=3)


def _running_values(ax, step):
    """m and l as numbers, acc below V; what an old sum was multiplied by stands beside it, outlined."""
    values = step.values
    top = TOP + CHIP_BAND + 48
    for name, symbol in (("m_i", "m"), ("l_i", "l"), ("lse", "lse")):
        if name in values:
            box(ax, STRIP, top, 200, 42, face=tint(name, 0.35), edge=QUIET, width=2)
            ax.text(STRIP + 12, top + 21, symbol, weight="bold", **MONO)
            ax.text(STRIP + 190, top + 21, number(_rows(values[name])[-1][0]), ha="right", **MONO)
            top += 50
    alpha = _rows(values["alpha"])[-1][0] if "alpha" in values else 1.0
    factor = _rows(values["factor"])[-1][0] if "factor" in values else 1.0
    if 0 < alpha < 1:
        _rescaled(ax, "old l", alpha, STRIP + 220, TOP + CHIP_BAND + 119, "left")
    for name, symbol in (("acc", "acc"), ("O", "o")):
        if name in values:
            y = TOP + CHIP_BAND + 18
            _matrix(ax, "O", _rows(values[name])[-1:], V_CHIP, y, WIDE, ROW, lambda i: 0.6, digits=2)
            _name(ax, symbol, V_CHIP - 10, y + ROW / 2, "right")
    if 0 < factor < 1:
        _rescaled(ax, "old acc", factor, 1240, TOP + CHIP_BAND + 80, "right")


def _rescaled(ax, what, factor, x, y, ha):
    """The mark of a rescaling: an outlined line "old l × 0.1353"."""
    ax.text(x, y, f"{what} × {number(factor)}", ha=ha, va="center", weight="bold", fontsize=16, zorder=5,
            bbox={"facecolor": "white", "edgecolor": INK, "linewidth": 2.5, "pad": 6})  # fmt: skip


def _matrix(ax, name, rows, left, top, cell, height, strength, now=None, digits=1, strong_edge=False, most=4):
    """A grid of numbers, `strength(i)` the shade of row i, or bands of rows where numbers would not fit.

    More than `most` columns share the width of that many. The rows of `now`, or all if `strong_edge`,
    are framed.
    """
    columns = len(rows[0]) if rows else 0
    cell = min(cell, most * cell / max(1, columns))
    width = columns * cell
    if cell >= CELL and height >= 20:
        bands = [(i, i + 1, left + c * cell, cell) for i in range(len(rows)) for c in range(columns)]
        for i, row in enumerate(rows):
            text = "".join(f"{_show(value, digits):^{round(cell / CHAR)}}" for value in row)
            ax.text(left + 4, top + (i + 0.5) * height, text, zorder=4, **SMALL)
    else:
        several = (list(band) for _, band in groupby(range(len(rows)), strength))
        bands = [(band[0], band[-1] + 1, left, width) for band in several]
    edges = [(x, x + w, top + i * height, top + stop * height) for i, stop, x, w in bands]
    corners = [[(x0, y0), (x1, y0), (x1, y1), (x0, y1)] for x0, x1, y0, y1 in edges]
    faces = [tint(name, strength(i)) for i, *_ in bands]
    cells = PolyCollection(corners, facecolors=faces, edgecolors=QUIET, linewidths=0.8)
    ax.add_collection(cells, autolim=False)
    if strong_edge:
        now = (0, len(rows))
    if now:
        box(ax, left, top + now[0] * height, width, (now[1] - now[0]) * height, "none", width=3, zorder=3)


def _show(value, digits) -> str:
    """A number for a cell, "" where nothing is yet; rounded first, and + 0.0 turns -0.0 into 0.0."""
    return "" if math.isnan(value) else number(round(value, digits) + 0.0, digits)


def _strength(now, seen, i) -> float:
    """Full for the rows being read, half for those read before in this pass, pale for those to come."""
    return 1.0 if now and now[0] <= i < now[1] else 0.55 if i < seen else 0.12


def _tag(ax, text, x, y):
    """A pointer to a row, with q or p written on it: what this row is about to be multiplied by."""
    name = text.upper()
    corners = [(x, y - 17), (x + 26, y - 17), (x + 42, y), (x + 26, y + 17), (x, y + 17)]
    ax.add_patch(Polygon(corners, facecolor=tint(name, 0.8), edgecolor=INK, linewidth=2))
    ax.text(x + 15, y, text, ha="center", va="center", weight="bold", fontsize=18)


def _name(ax, text, x, y, ha):
    ax.text(x, y, text, ha=ha, va="center", weight="bold", fontsize=17, color=INK)


def _span(j0, j1) -> str:
    return f"[{j0}]" if j1 - j0 == 1 else f"[{j0}:{j1}]"


def _rows(t) -> list[list[float]]:
    """The rows of the first head of the first batch, as numbers."""
    return t.detach()[0, 0].double().tolist()
