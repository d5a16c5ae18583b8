"""One query against all keys: K, V and o in HBM, and on chip the tiles at work, m, l and the output so far as numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import MONO, panel, pass_note, traffic_note
from flashlearn.show.draw.sheet import Rect, Sheet, Span
from flashlearn.show.draw.style import INK, QUIET, number, tint
from flashlearn.show.draw.values import check_steps_of, first_head, not_of, running_name, running_sum

WIDTH, HEIGHT = 1280, 560
ROW, TOP = 34, 136  # height of a row of K and V, and where row 0 is in both panels
BAND, CHIP_BAND = 340, 136  # height kept for K and V, in HBM and on chip
CHAR = 10.87  # width of a character of the numbers: 13 pt monospace
CELL, WIDE = 5 * CHAR, 6 * CHAR  # width of a cell with one decimal, and with two
K_LEFT, V_LEFT = 78, 352  # in HBM
K_CHIP, S_CHIP, P_CHIP, V_CHIP = 622, 846, 918, 992  # in SRAM
STRIP, STRIP_TOP = 604, 490  # the scores on chip, side by side
SMALL = {**MONO, "fontsize": 13}


@dataclass(frozen=True)
class _Cells:
    """A grid of numbers with its corner at (left, top), in cells of `wide` by `high` pixels.

    shade       the strength of the colour, of all rows or of row i
    framed      (start, stop) of the rows in a frame, or None
    digits      of every number
    most        more columns than that share the width of so many
    """

    name: str
    rows: list[list[float]]
    left: float
    top: float
    wide: float
    high: float
    shade: float | Callable[[int], float]
    framed: Span | None = None
    digits: int = 1
    most: int = 4

    @property
    def columns(self) -> int:
        return len(self.rows[0]) if self.rows else 0

    @property
    def cell(self) -> float:
        return min(self.wide, self.most * self.wide / max(1, self.columns))

    def paint(self, sheet: Sheet) -> None:
        """The numbers on their shades, or bands of rows where numbers would not fit."""
        numbers = self.cell >= CELL and self.high >= 20
        for i, stop, x, w in self._numbered(sheet) if numbers else self._bands():
            y, foot = self.top + i * self.high, self.top + stop * self.high
            strength = self.shade(i) if callable(self.shade) else self.shade
            sheet.fill((x, y, w, foot - y), tint(self.name, strength), QUIET, 0.8)
        if self.framed:
            start, stop = self.framed
            rect = (self.left, self.top + start * self.high, self.columns * self.cell, (stop - start) * self.high)
            sheet.box(rect, "none", width=3, raised=True)

    def _numbered(self, sheet: Sheet) -> list[tuple]:
        """Writes the numbers; gives (row, next row, left, width) of every cell."""
        for i, row in enumerate(self.rows):
            text = "".join(f"{_show(value, self.digits):^{round(self.cell / CHAR)}}" for value in row)
            sheet.text(self.left + 4, self.top + (i + 0.5) * self.high, text, zorder=4, **SMALL)
        places = [self.left + c * self.cell for c in range(self.columns)]
        return [(i, i + 1, x, self.cell) for i in range(len(self.rows)) for x in places]

    def _bands(self) -> list[tuple]:
        """(first row, next row, left, width) of rows of one shade."""
        bands = (
            list(band)
            for _, band in groupby(range(len(self.rows)), self.shade if callable(self.shade) else lambda i: 0)
        )
        return [(band[0], band[-1] + 1, self.left, self.columns * self.cell) for band in bands]


def draw_query(ax: Axes, step: Step) -> None:
    """Paint one step of a loop over keys and values, for the last query of the first head."""
    check_steps_of("a loop over keys", step, shapes=["O", "S"], values=["Q", "K", "V"], writes=["O"], dims=4)
    sheet = Sheet(ax, WIDTH, HEIGHT)
    sheet.text(16, 8, pass_note(step), va="top", weight="bold", fontsize=20)
    panel(sheet, Rect(16, 48, 560, 500), "HBM", traffic_note(step))
    panel(sheet, Rect(588, 48, 676, 500), "SRAM")
    _in_hbm(sheet, step)
    if "cols" in step.values:
        _tiles_on_chip(sheet, step)
        _scores_on_chip(sheet, step)
    _running_values(sheet, step)
    sheet.paint()


def _in_hbm(sheet: Sheet, step: Step) -> None:
    """K and V as they lie in HBM, q above K and o below V; the rows being read are dark and pointed at."""
    q, o = first_head(step.values["Q"])[-1:], first_head(step.written("O"))[-1:]
    load, write = any(t.name == "Q" for t in step.reads), bool(step.writes)
    at = (K_LEFT, TOP - ROW - 14, CELL, ROW)
    _Cells("Q", q, *at, 0.8 if load else 0.15, framed=(0, len(q)) if load else None).paint(sheet)
    _name(sheet, "q", K_LEFT - 12, TOP - ROW / 2 - 14, "right")
    for name, left, tag in (("K", K_LEFT, "q"), ("V", V_LEFT, "p")):
        _rows_in_hbm(sheet, step, name, left, tag)
    at = (V_LEFT, TOP + BAND + 18, CELL, ROW)
    _Cells("O", o, *at, 0.9 if write else 0.12, framed=(0, len(o)) if write else None).paint(sheet)
    _name(sheet, "o", V_LEFT - 12, TOP + BAND + 18 + ROW / 2, "right")


def _rows_in_hbm(sheet: Sheet, step: Step, name: str, left: float, tag: str) -> None:
    """K or V, and the tag of what its rows are about to be multiplied by."""
    rows = first_head(step.values[name])
    now = next((t.rows for t in step.reads if t.name == name), None)
    this_pass = (t for s in step.so_far if s.phase == step.phase for t in s.reads)
    seen = max((t.rows[1] for t in this_pass if t.name == name), default=0)
    height = min(ROW, BAND / max(1, len(rows)))
    _Cells(name, rows, left, TOP, CELL, height, partial(_strength, now, seen), framed=now).paint(sheet)
    if now:
        _tag(sheet, tag, left - 48, TOP + (now[0] + now[1]) / 2 * height)
    at = TOP + len(rows) * height + 22 if name == "K" else TOP - 22
    _name(sheet, f"{name}  {len(rows)} × {len(rows[0]) if rows else 0}", left, at, "left")


def _tiles_on_chip(sheet: Sheet, step: Step) -> None:
    """q, the tiles of K and V at work, their scores and weights: each where matrix multiplication puts it."""
    q = first_head(step.values["Q"])[-1:]
    _Cells("Q", q, K_CHIP, TOP - ROW - 14, CELL, ROW, 0.8).paint(sheet)
    _name(sheet, "q", K_CHIP - 10, TOP - ROW / 2 - 14, "right")
    j0, j1 = step.values["cols"]
    height = min(ROW, CHIP_BAND / (j1 - j0))
    here = {t.name for t in step.reads}
    for name, left, cell in (("K", K_CHIP, CELL), ("V", V_CHIP, WIDE)):
        if name in here:
            _Cells(name, first_head(step.values[name])[j0:j1], left, TOP, cell, height, 0.8).paint(sheet)
            y = TOP + (j1 - j0) * height + 18 if name == "K" else TOP - 22
            _name(sheet, f"{name}[{j0}]" if j1 - j0 == 1 else f"{name}[{j0}:{j1}]", left, y, "left")
    for name, left in (("S", S_CHIP), ("P", P_CHIP)):
        if name in step.values:
            column = [[x] for x in first_head(step.values[name])[-1]]
            _Cells(name, column, left, TOP, WIDE, height, 0.8, digits=2).paint(sheet)
            _name(sheet, name.lower(), left + 33, TOP - 22, "center")


def _scores_on_chip(sheet: Sheet, step: Step) -> None:
    """One slot per key, filled while its score sits on chip: none of them is ever in HBM."""
    total = step.shapes["S"][-1]
    blocks = [t.cols for t in step.on_chip if t.name == "S"] or [(0, 0)]
    start, stop = min(blocks)[0], max(blocks)[1]
    known: dict[int, float] = {}
    for s in step.so_far:
        if "S" in s.values:
            known.update(enumerate(first_head(s.values["S"])[-1], s.values["cols"][0]))
    unknown = [j for j in range(start, stop) if j not in known]  # a recorded kernel has none, pages are in no order
    if unknown:
        wanted = "S of all keys on chip in their values"
        raise not_of("a loop over keys", wanted, [f"none of key {unknown[0]}"], run=True)
    now, digits = step.values["cols"], 2 if total <= 10 else 1
    each = WIDE if total <= 10 else CELL if total <= 12 else 10 * WIDE / total
    _name(sheet, f"scores on chip: {stop - start} of {total}", STRIP, STRIP_TOP - 20, "left")
    sheet.box((STRIP, STRIP_TOP, total * each, 42), "none", QUIET, dashes=(0, (2, 3)))
    if stop > start:
        row = [known[j] for j in range(start, stop)]
        at = (STRIP + start * each, STRIP_TOP, each, 42)
        _Cells("S", [row], *at, 0.4, digits=digits, most=total).paint(sheet)
        rect = (STRIP + now[0] * each, STRIP_TOP, (now[1] - now[0]) * each, 42)
        sheet.box(rect, "none", width=3, raised=True)


def _running_values(sheet: Sheet, step: Step) -> None:
    """m and l as numbers, the output so far below V; what an old sum was multiplied by stands beside it, outlined."""
    values = step.values
    top = TOP + CHIP_BAND + 48
    for name, symbol in (("m_i", "m"), ("l_i", "l"), ("lse", "lse")):
        if name in values:
            sheet.box((STRIP, top, 200, 42), tint(name, 0.35), QUIET, 2)
            sheet.text(STRIP + 12, top + 21, symbol, weight="bold", **MONO)
            sheet.text(STRIP + 190, top + 21, number(first_head(values[name])[-1][0]), ha="right", **MONO)
            top += 50
    alpha, factor = (first_head(values[name])[-1][0] if name in values else 1.0 for name in ("alpha", "factor"))
    if 0 < alpha < 1:
        _rescaled(sheet, f"old l × {number(alpha)}", STRIP + 220, TOP + CHIP_BAND + 119, "left")
    running = running_name(values)
    for held, symbol in ((running_sum(values), running), (values.get("O"), "o")):
        if held is not None:
            y = TOP + CHIP_BAND + 18
            row = first_head(held)[-1:]
            _Cells("O", row, V_CHIP, y, WIDE, ROW, 0.6, digits=2).paint(sheet)
            _name(sheet, symbol, V_CHIP - 10, y + ROW / 2, "right")
    if 0 < factor < 1:
        _rescaled(sheet, f"old {running} × {number(factor)}", 1240, TOP + CHIP_BAND + 80, "right")


def _rescaled(sheet: Sheet, words: str, x: float, y: float, ha: str) -> None:
    """The mark of a rescaling: an outlined line "old l × 0.1353"."""
    outline = {"facecolor": "white", "edgecolor": INK, "linewidth": 2.5, "pad": 6}
    sheet.text(x, y, words, ha=ha, va="center", weight="bold", fontsize=16, zorder=5, bbox=outline)


def _show(value: float, digits: int) -> str:
    """A number for a cell, "" where nothing is yet; rounded first, and + 0.0 turns -0.0 into 0.0."""
    return "" if math.isnan(value) else number(round(value, digits) + 0.0, digits)


def _strength(now: Span | None, seen: int, i: int) -> float:
    """Full for the rows being read, half for those read before in this pass, pale for those to come."""
    return 1.0 if now and now[0] <= i < now[1] else 0.55 if i < seen else 0.12


def _tag(sheet: Sheet, text: str, x: float, y: float) -> None:
    """A pointer to a row, with q or p written on it: what this row is about to be multiplied by."""
    corners = [(x, y - 17), (x + 26, y - 17), (x + 42, y), (x + 26, y + 17), (x, y + 17)]
    sheet.polygon(corners, tint(text.upper(), 0.8), INK, 2)
    sheet.text(x + 15, y, text, ha="center", va="center", weight="bold", fontsize=18)


def _name(sheet: Sheet, text: str, x: float, y: float, ha: str) -> None:
    sheet.text(x, y, text, ha=ha, va="center", weight="bold", fontsize=17, color=INK)
