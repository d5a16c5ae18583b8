"""One query against all keys: K, V and o in HBM, and on chip the tiles in use, m, l and the output so far as numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from flashlearn.core.signs import number
from flashlearn.core.steps import Step
from flashlearn.show.draw.equations import short
from flashlearn.show.draw.memories import PAD, bytes_note, memory, on_chip_note, pass_note
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Rect, Scene, Span
from flashlearn.show.draw.style import role
from flashlearn.show.draw.values import check_steps_of, first_head, not_of, running_name, running_sum

ROW, CELL, FINE = 24, 38, 46  # pixels: height of a row, and width of a cell with one decimal, and with two
MOST = 4  # more columns than that share the width of so many
TAG = 30  # pixels for the tag of a row


@dataclass(frozen=True)
class _Cells:
    """Numbers in the cells of a grid, in the tone of row i; `now` are the rows in a frame."""

    name: str
    rows: list[list[float]]
    grid: Grid
    tone: Callable[[int], str]
    now: Span | None = None
    digits: int = 1

    def paint(self, scene: Scene, id: str) -> None:
        """The numbers on their shades, or strips of rows where numbers would not fit."""
        face, grid = role(self.name), self.grid
        scene.rect(grid.rect(), "blank")
        for tone, band in groupby(range(grid.rows), self.tone):
            rows = list(band)
            scene.rect(grid.rect((rows[0], rows[-1] + 1)), face, tone)
        scene.cell_lines(grid)
        if grid.w >= 30 and grid.h >= 14:
            for r, row in enumerate(self.rows):
                full = self.tone(r) == ""
                ink = "ink" if not full else "on-Q" if self.name == "Q" else "on"
                for c, value in enumerate(row):
                    scene.text(*grid.cell(r, c).centre, _show(value, self.digits), 12, anchor="middle", role=ink)
        if self.now:
            scene.outline(grid.rect(self.now), 2.5, id=id)


def draw_query(step: Step, *, narrow: bool = False) -> Scene:
    """One step of a loop over keys and values, for the last query of the first head."""
    check_steps_of("a loop over keys", step, shapes=["O", "S"], values=["Q", "K", "V"], writes=["O"], dims=4)
    N = max(1, step.shapes["K"][-2])
    high = min(ROW, (170 if narrow else 230) / N)
    hbm = Rect(0, 0, NARROW, 102 + N * high) if narrow else Rect(0, 0, 414, max(330, 148 + N * high))
    sram = Rect(0, hbm.bottom + 8, NARROW, 280) if narrow else Rect(426, 0, WIDE - 426, hbm.h)
    scene = Scene(NARROW if narrow else WIDE, sram.bottom)
    memory(scene, hbm, "hbm", bytes_note(step))
    memory(scene, sram, "sram", on_chip_note(step) if step.on_chip else "")
    if not narrow:
        scene.text(hbm.x + PAD, 42, pass_note(step), 13, role="quiet")
    _in_hbm(scene, step, hbm, high)
    top = sram.y + (40 if narrow else 56)
    if "cols" in step.values:
        _tiles_on_chip(scene, step, sram.x + PAD + 16, top)
        _scores_on_chip(scene, step, Rect(sram.x + PAD, sram.bottom - 40, sram.w - 2 * PAD, 28))
    _running_values(scene, step, sram)
    return scene


def _full(strength: str = "") -> Callable[[int], str]:
    return lambda i: strength


def _grid(rows: list[list[float]], left: float, top: float, wide: float, high: float = ROW) -> Grid:
    cols = len(rows[0]) if rows else 0
    return Grid(left, top, len(rows), cols, min(wide, MOST * wide / max(1, cols)), high)


def _in_hbm(scene: Scene, step: Step, area: Rect, high: float) -> None:
    """K and V as they are in HBM, q above K and o below V; the rows being read are dark and pointed at."""
    q, o = first_head(step.values["Q"])[-1:], first_head(step.written("O"))[-1:]
    load, write = any(t.name == "Q" for t in step.reads), bool(step.writes)
    narrow = scene.width == NARROW
    k_left, cell = area.x + (34 if narrow else 50), 32 if narrow else CELL
    v_left = area.x + area.w / 2 + (28 if narrow else 40)
    top = area.y + (40 if narrow else 58)
    here = (0, len(q))
    _Cells("Q", q, _grid(q, k_left, top, cell), _full("" if load else "pale"), here if load else None).paint(
        scene, "read-Q"
    )
    scene.text(k_left - 6, top + ROW / 2, "q", 15, anchor="end", bold=True)
    top += ROW + 24
    for name, left, tag in (("K", k_left, "q"), ("V", v_left, "p")):
        rows = first_head(step.values[name])
        _rows_in_hbm(scene, step, name, rows, _grid(rows, left, top, cell, high), tag)
    bottom = top + max(1, step.shapes["K"][-2]) * high
    at = top - ROW - 24 if narrow else bottom + 14
    tone = "" if write else "pale"
    _Cells("O", o, _grid(o, v_left, at, cell), _full(tone), (0, len(o)) if write else None).paint(scene, "written-O")
    scene.text(v_left - 6, at + ROW / 2, "o", 15, anchor="end", bold=True)


def _rows_in_hbm(scene: Scene, step: Step, name: str, rows: list[list[float]], grid: Grid, tag: str) -> None:
    """K or V, and the tag of what its rows are about to be multiplied by."""
    now = next((t.rows for t in step.reads if t.name == name), None)
    this_pass = (t for s in step.so_far if s.phase == step.phase for t in s.reads)
    seen = max((t.rows[1] for t in this_pass if t.name == name), default=0)
    _Cells(name, rows, grid, partial(_tone, now, seen), now).paint(scene, f"read-{name}")
    if now:
        _tag(scene, tag, grid.x - TAG - 3, grid.rect(now).centre[1])
    scene.text(grid.x, grid.y - 10, f"{name} {len(rows)}×{grid.cols}", 13, bold=True)


def _tiles_on_chip(scene: Scene, step: Step, left: float, top: float) -> None:
    """q, the tiles of K and V in use, their scores and weights: each where matrix multiplication puts it."""
    narrow = scene.width == NARROW
    cell, fine, gap = (24, 34, 8) if narrow else (CELL - 4, FINE - 4, 16)
    q = first_head(step.values["Q"])[-1:]
    _Cells("Q", q, _grid(q, left, top, cell), _full()).paint(scene, "")
    scene.text(left - 5, top + ROW / 2, "q", 15, anchor="end", bold=True)
    j0, j1 = step.values["cols"]
    y, height = top + ROW + 24, min(ROW, 76 / max(1, j1 - j0))
    here = {t.name for t in step.reads}
    columns = {name: [[x] for x in first_head(step.values[name])[-1]] for name in "SP" if name in step.values}
    tiles = [("K", first_head(step.values["K"])[j0:j1], cell, 1)] if "K" in here else []
    at = left + min(MOST, len(q[0])) * cell + gap
    places = {"K": left, "S": at, "P": at + fine + gap, "V": at + 2 * (fine + gap)}
    tiles += [(name, column, fine, 2) for name, column in columns.items()]
    tiles += [("V", first_head(step.values["V"])[j0:j1], cell, 1)] if "V" in here else []
    for name, rows, wide, digits in tiles:
        grid = _grid(rows, places[name], y, wide, height)
        with scene.group(f"chip-{name}", grid.rect()):
            _Cells(name, rows, grid, _full(), digits=digits).paint(scene, "")
        span = f"[{j0}]" if j1 - j0 == 1 else f"[{j0}:{j1}]"
        scene.text(grid.x, y - 10, f"{name}{span}" if name in "KV" else name.lower(), 13, bold=True)


def _scores_on_chip(scene: Scene, step: Step, area: Rect) -> None:
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
    each = min(FINE, area.w / max(1, total))
    scene.text(area.x, area.y - 12, f"scores on chip: {stop - start} of {total}", 13, bold=True)
    scene.rect((area.x, area.y, total * each, area.h), edge="quiet", dashed=True, id="scores")
    if stop > start:
        grid = Grid(area.x + start * each, area.y, 1, stop - start, each, area.h)
        digits = 2 if each >= FINE else 1
        _Cells("S", [[known[j] for j in range(start, stop)]], grid, _full("half"), digits=digits).paint(scene, "")
        now = step.values["cols"]
        scene.outline((area.x + now[0] * each, area.y, (now[1] - now[0]) * each, area.h), 2.5, id="score-now")


def _running_values(scene: Scene, step: Step, area: Rect) -> None:
    """m and l as numbers, the output so far below V; what an old sum was multiplied by is next to it."""
    values, narrow = step.values, scene.width == NARROW
    y = area.y + (174 if narrow else 208)
    left = area.x + PAD
    alpha, factor = (first_head(values[name])[-1][0] if name in values else 1.0 for name in ("alpha", "factor"))
    for name, symbol in (("m_i", "m"), ("l_i", "l"), ("lse", "lse")):
        if name in values:
            scene.text(left, y, symbol, 15, bold=True)
            value = number(first_head(values[name])[-1][0])
            scene.text(left + (32 if name != "lse" else 40), y, value, 15, role="m-text", bold=True, id=name)
            if name == "l_i" and 0 < alpha < 1:
                words = f"old l × {number(alpha)}"
                scene.text(left, y + 21, words, 13, bold=True)
            y += 24
    running, right = running_name(values), area.right - PAD
    y = area.y + (174 if narrow else 208)
    for held, symbol in ((running_sum(values), running), (values.get("O"), "o")):
        if held is not None:
            row = first_head(held)[-1:]
            wide = 44 if narrow else FINE
            grid = _grid(row, 0, y - ROW / 2, wide)
            grid = Grid(right - grid.cols * grid.w, grid.y, 1, grid.cols, grid.w, ROW)
            _Cells("O", row, grid, _full("half"), digits=2).paint(scene, "")
            scene.text(grid.x - 6, y, symbol, 15, anchor="end", bold=True)
    if 0 < factor < 1:
        scene.text(right, y + 24, f"old {running} × {number(factor)}", 13, anchor="end", bold=True)


def _show(value: float, digits: int) -> str:
    """A number for a cell, "" where nothing is yet; one that rounds to 0 is a 0, powers of ten would not fit."""
    return "" if math.isnan(value) else short(value, digits) if abs(value) < 1e5 else number(value, digits)


def _tone(now: Span | None, seen: int, i: int) -> str:
    """Full for the rows being read, half for those read before in this pass, pale for those to come."""
    return "" if now and now[0] <= i < now[1] else "half" if i < seen else "pale"


def _tag(scene: Scene, text: str, x: float, y: float) -> None:
    """A pointer to a row, with q or p written on it: what this row is about to be multiplied by."""
    corners = [(x, y - 11), (x + 19, y - 11), (x + 30, y), (x + 19, y + 11), (x, y + 11)]
    scene.polygon(corners, face="Q" if text == "q" else "S", edge="ink", stroke=1.5, layer=4, id=f"tag-{text}")
    scene.text(x + 11, y, text, 14, anchor="middle", bold=True, role="on-Q" if text == "q" else "on", layer=5)
