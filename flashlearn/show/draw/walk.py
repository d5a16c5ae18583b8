"""FlashAttention-1 line by line: the paper's lines, what HBM holds of O, l and m, and every number on chip."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED, ground, matrix_read, traffic_note
from flashlearn.show.draw.sheet import DASHES, Grid, Rect, Sheet, Span
from flashlearn.show.draw.style import INK, PALE, QUIET, colour, fixed, index, ink_on, tint
from flashlearn.show.draw.values import check_steps_of, first_head

WIDTH, HEIGHT = 1280, 500
LINES = {  # of the paper's Algorithm 1, as they stand in the picture
    "line 6": "K, V of block j",
    "line 8": "Q, O, l, m of block i",
    "line 9": "S = Q Kᵀ / √d",
    "line 10": "m̃, P̃, l̃: this block",
    "line 11": "m_new, l_new",
    "line 12": "O, divided: to HBM",
    "line 13": "l, m: to HBM",
}
ROW, CHAR = 30, 10.87  # height of a row on chip, and width of a character of the numbers: 13 pt monospace
NARROW, CELL, COLUMN, WIDE = 4 * CHAR, 5 * CHAR, 54, 6 * CHAR  # of an entry: of Q, of S, of a column, of O and V
MADE = {"S": 9, "P": 10, "m_block": 10, "l_block": 10, "m_i": 11, "l_i": 11, "O": 12}  # the line that makes a value
LARGEST = 3  # head dimension: one more column of Q, K, V and O would end outside the picture
PROGRAM, MEMORY, CHIP = Rect(8, 4, 268, 490), Rect(286, 4, 986, 190), Rect(286, 202, 986, 292)


def draw_walk(ax: Axes, step: Step) -> None:
    """Paint one line of FlashAttention-1, from `tiled_attention_v1_lines`, of the first head; framed what it made or moved.

    For about six rows, blocks of four keys, and a head dimension of up to three: ValueError for more.
    """
    phases = ["initialise", *LINES, "done"]
    check_steps_of(
        "FlashAttention-1, line by line", step, shapes=["O", "l_i", "m_i"], values=["Q", "K", "V"], phases=phases
    )
    if (D := step.shapes["O"][-1]) > LARGEST:
        raise ValueError(f"expected a head dimension of at most {LARGEST}, which is what fits the picture, got {D}")
    sheet = Sheet(ax, WIDTH, HEIGHT)
    _program(sheet, step)
    _memory(sheet, step)
    _chip(sheet, step)
    sheet.paint()


def _line(step: Step) -> int:
    """The paper's line, 0 before the first and after the last visit."""
    return int(step.phase.removeprefix("line ")) if step.phase.startswith("line ") else 0


def _program(sheet: Sheet, step: Step) -> None:
    """The lines of the inner loop, those at work in ink; which pairs of blocks have met."""
    now = {step.phase} | ({"line 6"} if any(tile.name == "K" for tile in step.reads) else set())
    y = PROGRAM.y + 18
    met = f"Q{index(step.values['i'])} meets K{index(step.values['j'])}" if _line(step) else step.phase
    sheet.text(PROGRAM.x + 6, y, met, va="center", weight="bold", fontsize=24)
    for line, words in LINES.items():
        y += 40 if line != "line 6" else 48
        here = line in now
        if here:
            sheet.fill((PROGRAM.x, y - 17, PROGRAM.w, 34), INK)
        style = {"va": "center", "fontsize": 16, "color": "white" if here else INK}
        sheet.text(PROGRAM.x + 30, y, line.removeprefix("line "), ha="right", weight="bold", **style)
        sheet.text(PROGRAM.x + 42, y, words, **style)
    _pairs(sheet, step, y + 46)


def _pairs(sheet: Sheet, step: Step, top: float) -> None:
    """The blocks of S: met, meeting now, to come."""
    met = {(s.values["i"], s.values["j"]): (s.values["rows"], s.values["cols"]) for s in step.run if _line(s)}
    before = {(s.values["i"], s.values["j"]) for s in step.so_far if s.phase == "line 13"}
    now = (step.values.get("i"), step.values.get("j"))
    N_q, N_k = step.shapes["S"][-2:]
    grid = Grid(PROGRAM.x + 110, top, N_q, N_k, 120 / N_k, min(22.0, (PROGRAM.bottom - top - 8) / N_q))
    sheet.text(grid.x - 12, grid.y + grid.rect().h / 2, "S", ha="right", weight="bold", fontsize=20, va="center")
    sheet.fill(grid.rect(), "white")
    for pair, block in met.items():
        if pair in before or pair == now:
            sheet.fill(grid.rect(*block), colour("S") if pair == now else tint("S", 0.32))
        sheet.outline(grid.rect(*block), 3 if pair == now else 1)


def _memory(sheet: Sheet, step: Step) -> None:
    """Q, K, V as rows that come and go; O, l and m with their numbers, and the keys that each row of O is right for."""
    ground(sheet, MEMORY, "HBM")
    sheet.text(MEMORY.right - 10, MEMORY.y + 7, traffic_note(step), va="top", ha="right", fontsize=14)
    rows = max(step.shapes["O"][-2], step.shapes["K"][-2])
    high = min(25.0, (MEMORY.h - 62) / rows)
    top, left = MEMORY.y + 57, MEMORY.x + 84
    for name in "QKV":
        grid = Grid(left, top, step.shapes[name][-2], step.shapes[name][-1], 30, high)
        matrix_read(sheet, step, name, grid)
        sheet.cell_lines(grid)
        _head(sheet, grid, name)
        left += grid.w * grid.cols + 26
    left += 14
    for name, head in (("O", "O"), ("l_i", "l"), ("m_i", "m")):
        wide = WIDE if name == "O" else COLUMN
        grid = Grid(left, top, step.shapes[name][-2], step.shapes[name][-1], wide, high)
        _stored(sheet, step, name, grid)
        _head(sheet, grid, head)
        left += grid.w * grid.cols + 14
    _right_for(sheet, step, Grid(left, top, step.shapes["O"][-2], 1, 130, high))


def _stored(sheet: Sheet, step: Step, name: str, grid: Grid) -> None:
    """What HBM holds of O, l or m: darker where it is final, framed where it moves."""
    content = step.written(name)[0, 0].numpy()
    writes = [(s.number, tile.rows) for s in step.run or (step,) for tile in s.writes if tile.name == name]
    last = {row: at for at, rows in writes for row in range(*rows)}
    moved = [tile.rows for tile in (*step.reads, *step.writes) if tile.name == name]
    sheet.fill(grid.rect(), "white")
    for row in range(grid.rows):
        strength = 0.62 if last.get(row, math.inf) <= step.number else 0.18
        sheet.fill(grid.rect((row, row + 1)), tint(name, strength))
    sheet.cell_lines(grid)
    for rows in moved:
        sheet.outline(grid.rect(rows))
    _numbers(sheet, content, grid)


def _right_for(sheet: Sheet, step: Step, grid: Grid) -> None:
    """For which keys each row of O in HBM is right by now: those of the last visit that wrote it, and before."""
    sheet.text(grid.x, grid.y - 5, "O is right for", va="bottom", fontsize=15, weight="bold")
    writes = [s for s in step.so_far if s.phase == "line 12"]
    every = step.run or (step,)
    for row in range(grid.rows):
        mine = [s for s in writes if s.values["rows"][0] <= row < s.values["rows"][1]]
        final = bool(mine) and not any(
            s.number > mine[-1].number and s.values["rows"] == mine[-1].values["rows"]
            for s in every
            if s.phase == "line 12"
        )
        seen = mine[-1].values["cols"][1] if mine else 0
        words = "nothing yet" if not seen else "all keys ✓" if final else "key 0" if seen == 1 else f"keys 0–{seen - 1}"
        y = grid.cell(row, 0).centre[1]
        sheet.text(grid.x, y, words, va="center", fontsize=14, weight="bold" if final else "normal")


def _chip(sheet: Sheet, step: Step) -> None:
    """Every tile where multiplication puts it, Kᵀ over S and V over O, and beside S what there is one of in a row."""
    ground(sheet, CHIP, "SRAM")
    line = _line(step)
    if not line:
        words = "nothing is on chip"
        sheet.text(CHIP.x + CHIP.w / 2, CHIP.y + CHIP.h / 2, words, color=QUIET, **CENTRED)
        return
    rows, cols = step.values["rows"], step.values["cols"]
    high, d = rows[1] - rows[0], step.shapes["Q"][-1]
    keys = max(s.values["cols"][1] - s.values["cols"][0] for s in step.run or (step,) if _line(s))
    lower = CHIP.y + 36 + max(keys, d) * ROW + 36
    q = Grid(CHIP.x + 38, lower, high, d, NARROW, ROW)
    s = Grid(q.right + 22, lower, high, cols[1] - cols[0], CELL, ROW)
    at = s.x + keys * CELL + 16
    columns = {}
    for name in ("m_block", "l_block", "m_i", "l_i", "factor"):
        columns[name] = Grid(at, lower, high, 1, COLUMN, ROW)
        at += COLUMN + (5 if name in ("m_block", "factor") else 16)
    o = Grid(at + 20, lower, high, d, WIDE, ROW)
    i, j = index(step.values["i"]), index(step.values["j"])
    loaded = {tile.name for tile in step.reads}
    k_at = Grid(s.x, lower - 36 - d * ROW, d, s.cols, CELL, ROW)
    v_at = Grid(o.x, lower - 36 - s.cols * ROW, s.cols, d, WIDE, ROW)
    _tile(sheet, "Q", _part(step, "Q", rows), q, "Q" + i, "Q" in loaded)
    _tile(sheet, "K", _part(step, "K", cols).T, k_at, "K" + j + "ᵀ", "K" in loaded, beside=True)
    _tile(sheet, "V", _part(step, "V", cols), v_at, "V" + j, "V" in loaded, beside=True)
    for r, row in enumerate(range(*rows)):
        sheet.text(q.x - 8, q.cell(r, 0).centre[1], row, ha="right", va="center", fontsize=14, color=QUIET)
    _made(sheet, step, s, columns, o, line)


def _made(sheet: Sheet, step: Step, s: Grid, columns: dict[str, Grid], o: Grid, line: int) -> None:
    """What the lines make, from S to O: outlined until it is made, framed by the line that makes it."""
    score = "P" if line >= 10 else "S"
    label = ("P̃" if line >= 10 else "S") + index(step.values["i"], step.values["j"])
    _tile(sheet, "S", _value(step, score), s, label, line == MADE[score])
    old = {"m_i": "m_old", "l_i": "l_old"}
    heads = {"m_block": "m̃", "l_block": "l̃", "m_i": "m", "l_i": "l"}
    for name, head in heads.items():
        made = line >= MADE[name]
        values = _value(step, name if made else old.get(name, name))
        head = f"{head}_new" if made and name in old else head
        moved = line == MADE[name] or (line in (8, 13) and name in old)
        _tile(sheet, "m_i", values, columns[name], head, moved)
    if line >= MADE["O"]:
        _tile(sheet, "O", _value(step, "O"), o, "O" + index(step.values["i"]), line == 12)
        _scaled(sheet, step, columns["factor"], line)
    else:
        before = step.written("O")[0, 0, slice(*step.values["rows"])].numpy()
        _tile(sheet, "O", before, o, "O" + index(step.values["i"]), line == 8)


def _scaled(sheet: Sheet, step: Step, grid: Grid, line: int) -> None:
    """By what the old rows of O were multiplied."""
    sheet.text(grid.middle, grid.y - 5, "old O", ha="center", va="bottom", fontsize=15, weight="bold")
    for r, factor in enumerate(first_head(step.values["factor"])):
        rect = grid.cell(r, 0)
        sheet.text(*rect.centre, f"×{factor[0]:.2f}", fontsize=15, weight="bold" if line == 12 else "normal", **CENTRED)


def _tile(sheet: Sheet, name: str, values, grid: Grid, label: str, now: bool, beside: bool = False) -> None:
    """A tile with its numbers; dashed where nothing is yet."""
    if values is None:
        sheet.box(grid.rect(), "none", PALE, 1.2, dashes=DASHES)
        sheet.text(grid.middle, grid.y - 5, label, ha="center", va="bottom", fontsize=16, color=QUIET)
        return
    sheet.fill(grid.rect(), colour(name))
    sheet.cell_lines(grid)
    if now:
        sheet.outline(grid.rect(), 3.5)
    if beside:
        y = grid.y + grid.rect().h / 2
        sheet.text(grid.x - 8, y, label, ha="right", va="center", fontsize=18, weight="bold")
    else:
        _head(sheet, grid, label)
    _numbers(sheet, values, grid, ink_on(name))


def _head(sheet: Sheet, grid: Grid, label: str) -> None:
    size = 17 if len(label) < 5 else 12.5  # m_new beside l_new
    sheet.text(grid.middle, grid.y - 5, label, ha="center", va="bottom", fontsize=size, weight="bold")


def _numbers(sheet: Sheet, values: np.ndarray, grid: Grid, ink: str = INK) -> None:
    """The numbers of a tile, a row as one text: with as many decimals as leave room between them, whole ones without."""
    room = round(grid.w / CHAR) - (grid.cols > 1)
    whole = bool(np.all((values == np.round(values)) | np.isinf(values)))
    words = [[fixed(float(value), 0) for value in row] for row in values]
    for digits in () if whole else (1, 2):
        finer = [[fixed(float(value), digits) for value in row] for row in values]
        words = finer if digits == 1 or max(len(word) for row in finer for word in row) <= room else words
    for r, row in enumerate(words):
        line = "".join(f"{word:^{room + 1}}" for word in row) if len(row) > 1 else row[0]
        style = {"fontsize": 13, "family": "monospace", "color": ink}
        sheet.text(*grid.rect((r, r + 1)).centre, line, **style, **CENTRED)


def _part(step: Step, name: str, rows: Span) -> np.ndarray:
    return np.array(first_head(step.values[name]))[slice(*rows)]


def _value(step: Step, name: str) -> np.ndarray | None:
    """The value of the first head, if it is known by now."""
    return np.array(first_head(step.values[name])) if name in step.values else None
