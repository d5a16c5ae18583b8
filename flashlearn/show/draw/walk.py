"""FlashAttention-1 line by line: the paper's lines, what HBM holds of O, l and m, and every number on chip."""

from __future__ import annotations

import math
from typing import NamedTuple

from flashlearn.core.signs import fixed
from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, bytes_note, matrix, memory, on_chip_note
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Rect, Scene
from flashlearn.show.draw.style import index, role
from flashlearn.show.draw.values import check_steps_of, first_head

LINES = {  # of the paper's Algorithm 1, as they are in the picture
    "line 6": "K, V of block j",
    "line 8": "Q, O, l, m of block i",
    "line 9": "S = Q Kᵀ / √d",
    "line 10": "m̃, P̃, l̃: this block",
    "line 11": "m_new, l_new",
    "line 12": "O, divided: to HBM",
    "line 13": "l, m: to HBM",
}
MADE = {"S": 9, "P": 10, "m_block": 10, "l_block": 10, "m_i": 11, "l_i": 11, "O": 12}  # the line that makes a value
HEADS = {"m_block": "m̃", "l_block": "l̃", "m_i": "m", "l_i": "l", "factor": "old O"}
LARGEST = 3  # head dimension: one more column of Q, K, V and O would end outside the picture
Rows = list[list[float]]


class _Room(NamedTuple):
    """Where the three parts are, and sizes in pixels: a row, a cell of Q and V, of S, a column, a cell of O."""

    program: Rect
    memory: Rect
    chip: Rect
    row: float
    small: float
    score: float
    column: float
    wide: float
    gap: float


def draw_walk(step: Step, *, narrow: bool = False) -> Scene:
    """One line of FlashAttention-1, from `tiled_attention_v1_lines`, of the first head; framed what it made or moved.

    For about six rows, blocks of four keys, and a head dimension of up to three: ValueError for more.
    """
    phases = ["initialise", *LINES, "done"]
    what, shapes = "FlashAttention-1, line by line", ["O", "l_i", "m_i"]
    check_steps_of(what, step, shapes=shapes, values=["Q", "K", "V"], phases=phases)
    if (D := step.shapes["O"][-1]) > LARGEST:
        raise ValueError(f"expected a head dimension of at most {LARGEST}, which is what fits the picture, got {D}")
    room = _room(step, narrow)
    scene = Scene(NARROW if narrow else WIDE, room.chip.bottom)
    _program(scene, step, room.program)
    _memory(scene, step, room)
    _chip(scene, step, room)
    return scene


def _room(step: Step, narrow: bool) -> _Room:
    """The same for all steps of a run."""
    rows = max(step.shapes["O"][-2], step.shapes["K"][-2])
    visits = [s.values for s in step.run or (step,) if _line(s)]
    high = max((v["rows"][1] - v["rows"][0] for v in visits), default=1)
    keys = max((v["cols"][1] - v["cols"][0] for v in visits), default=1)
    above, row = max(keys, step.shapes["O"][-1]), 18.0 if narrow else 20.0
    stored = 66 + min(row, (100 if narrow else 120) / rows) * rows
    if narrow:
        chip = 34 + 20 + above * row + 24 + high * row + 24 + high * row + 12
        at = Rect(0, 186, NARROW, stored)
        return _Room(Rect(0, 0, NARROW, 178), at, Rect(0, at.bottom + 8, NARROW, chip), row, 30, 31, 37, 36, 5)
    chip = 46 + above * row + 28 + high * row + 14
    at = Rect(200, 0, WIDE - 200, stored)
    bottom = at.bottom + 8
    return _Room(Rect(0, 0, 190, bottom + chip), at, Rect(200, bottom, WIDE - 200, chip), row, 31, 38, 40, 41, 5)


def _line(step: Step) -> int:
    """The paper's line, 0 before the first and after the last visit."""
    return int(step.phase.removeprefix("line ")) if step.phase.startswith("line ") else 0


def _program(scene: Scene, step: Step, area: Rect) -> None:
    """The lines of the inner loop, the current ones in ink; which pairs of blocks have met."""
    now = {step.phase} | ({"line 6"} if any(tile.name == "K" for tile in step.reads) else set())
    narrow = scene.width == NARROW
    met = f"Q{index(step.values['i'])} meets K{index(step.values['j'])}" if _line(step) else step.phase
    scene.text(area.x + 4, area.y + 14, met, 17, bold=True)
    y, down, high = (area.y + 40, 20, 18) if narrow else (area.y + 42, 26, 22)
    for line, words in LINES.items():
        here = line in now
        if here:
            scene.rect((area.x, y - high / 2, 190, high), "ink", id=line.replace(" ", "-"))
        ink = "paper" if here else "ink"
        scene.text(area.x + 22, y, line.removeprefix("line "), 13, anchor="end", bold=True, role=ink)
        scene.text(area.x + 30, y, words, 13, role=ink)
        y += down
    square = Rect(236, 42, 110, 130) if narrow else Rect(area.x + 62, y + 12, 110, min(90.0, area.bottom - y - 18))
    _pairs(scene, step, square)


def _pairs(scene: Scene, step: Step, area: Rect) -> None:
    """The blocks of S: met, meeting now, to come."""
    met = {(s.values["i"], s.values["j"]): (s.values["rows"], s.values["cols"]) for s in step.run if _line(s)}
    before = {(s.values["i"], s.values["j"]) for s in step.so_far if s.phase == "line 13"}
    now = (step.values.get("i"), step.values.get("j"))
    N_q, N_k = step.shapes["S"][-2:]
    grid = Grid(area.x, area.y, N_q, N_k, area.w / max(1, N_k), min(18.0, area.h / max(1, N_q)))
    scene.text(grid.x - 8, grid.y + grid.rect().h / 2, "S", 15, anchor="end", bold=True)
    scene.rect(grid.rect(), "blank")
    for pair, block in met.items():
        rect = grid.rect(*block)
        if pair == now:
            scene.rect(rect, "S", id="S-now")
            scene.outline(rect, 2.5, id="S-frame")
        else:
            scene.rect(rect, "S" if pair in before else "", "light" if pair in before else "", "quiet")


def _memory(scene: Scene, step: Step, room: _Room) -> None:
    """Q, K, V as rows that come and go; O, l and m with their numbers, and the keys that each row of O is right for."""
    area, narrow = room.memory, scene.width == NARROW
    memory(scene, area, "hbm", bytes_note(step))
    rows = max(step.shapes["O"][-2], step.shapes["K"][-2])
    high = min(room.row, (100 if narrow else 120) / rows)
    top, left = area.y + 56, area.x + (8 if narrow else PAD + 30)
    for name in "QKV":
        grid = Grid(left, top, step.shapes[name][-2], step.shapes[name][-1], 7 if narrow else 20, high)
        matrix(scene, step, name, grid)
        scene.cell_lines(grid)
        scene.text(grid.middle, grid.y - 5, name, 13, anchor="middle", va="bottom", bold=True)
        left = grid.right + (7 if narrow else 18)
    left += 2 if narrow else 10
    for name, head in (("O", "O"), ("l_i", "l"), ("m_i", "m")):
        wide = (33 if narrow else room.wide) if name == "O" else 34 if narrow else room.column
        grid = Grid(left, top, step.shapes[name][-2], step.shapes[name][-1], wide, high)
        _stored(scene, step, name, grid)
        scene.text(grid.middle, grid.y - 5, head, 13, anchor="middle", va="bottom", bold=True)
        left = grid.right + (5 if narrow else 12)
    _right_for(scene, step, Grid(left, top, step.shapes["O"][-2], 1, 90, high))


def _stored(scene: Scene, step: Step, name: str, grid: Grid) -> None:
    """What HBM holds of O, l or m: darker where it is final, framed where it moves."""
    writes = [(s.number, tile.rows) for s in step.run or (step,) for tile in s.writes if tile.name == name]
    last = {row: at for at, rows in writes for row in range(*rows)}
    moved = [tile.rows for tile in (*step.reads, *step.writes) if tile.name == name]
    scene.rect(grid.rect(), "blank")
    for row in range(grid.rows):
        tone = "half" if last.get(row, math.inf) <= step.number else "pale"
        scene.rect(grid.rect((row, row + 1)), role(name), tone)
    scene.cell_lines(grid)
    for rows in dict.fromkeys(moved):
        scene.outline(grid.rect(rows), id=f"moved-{name}")
    _numbers(scene, first_head(step.written(name)), grid)


def _right_for(scene: Scene, step: Step, grid: Grid) -> None:
    """For which keys each row of O in HBM is right by now: those of the last visit that wrote it, and before."""
    if scene.width == NARROW:
        scene.text(grid.x, grid.y - 5, "right for", 12, va="bottom", bold=True)
    else:
        scene.text(grid.x, grid.y - 5, "O is right for", 13, va="bottom", bold=True)
    writes = [s for s in step.so_far if s.phase == "line 12"]
    later = [s for s in step.run or (step,) if s.phase == "line 12"]
    for row in range(grid.rows):
        mine = [s for s in writes if s.values["rows"][0] <= row < s.values["rows"][1]]
        span = mine[-1].values["rows"] if mine else None
        final = bool(mine) and not any(s.number > mine[-1].number and s.values["rows"] == span for s in later)
        seen = mine[-1].values["cols"][1] if mine else 0
        words = "nothing yet" if not seen else "all keys ✓" if final else "key 0" if seen == 1 else f"keys 0–{seen - 1}"
        scene.text(grid.x, grid.cell(row, 0).centre[1], words, 12)


# --- on chip -----------------------------------------------------------------------------------------------


def _chip(scene: Scene, step: Step, room: _Room) -> None:
    """Every tile where multiplication puts it, Kᵀ over S, and next to S what there is one of in a row."""
    memory(scene, room.chip, "sram", on_chip_note(step) if step.on_chip else "")
    line = _line(step)
    if not line:
        scene.text(*room.chip.centre, "nothing is on chip", role="quiet", anchor="middle")
        return
    grids = _grids(scene, step, room)
    loaded, rows, cols = {tile.name for tile in step.reads}, step.values["rows"], step.values["cols"]
    i, j = index(step.values["i"]), index(step.values["j"])
    q, k, v = (first_head(step.values[name]) for name in "QKV")
    turned = [list(column) for column in zip(*k[slice(*cols)], strict=True)]
    _tile(scene, "Q", q[slice(*rows)], grids["Q"], "Q" + i, "Q" in loaded)
    _tile(scene, "K", turned, grids["K"], "K" + j + "ᵀ", "K" in loaded)
    _tile(scene, "V", v[slice(*cols)], grids["V"], "V" + j, "V" in loaded)
    for r, row in enumerate(range(*rows)):
        scene.text(grids["Q"].x - 4, grids["Q"].cell(r, 0).centre[1], row, 12, anchor="end", role="quiet")
    _made(scene, step, grids, line)


def _grids(scene: Scene, step: Step, room: _Room) -> dict[str, Grid]:
    """Where every tile stands on chip."""
    rows, cols = step.values["rows"], step.values["cols"]
    visits = [s.values for s in step.run or (step,) if _line(s)]
    keys = max(v["cols"][1] - v["cols"][0] for v in visits)
    most = max(v["rows"][1] - v["rows"][0] for v in visits)
    high, d, seen = rows[1] - rows[0], step.shapes["Q"][-1], cols[1] - cols[0]
    narrow, row, area = scene.width == NARROW, room.row, room.chip
    lower = area.y + (54 if narrow else 46) + max(keys, d) * row + (24 if narrow else 28)
    q = Grid(area.x + (22 if narrow else 28), lower, high, d, room.small, row)
    s = Grid(q.right + (8 if narrow else 12), lower, high, seen, room.score, row)
    k = Grid(s.x, lower - (24 if narrow else 28) - d * row, d, seen, room.score, row)
    at, second = s.x + keys * room.score + 14, lower
    if narrow:
        v = Grid(at - 8, area.y + 54, seen, d, room.small, row)
        at, second = area.x + 12, lower + most * row + 24
    grids = {"Q": q, "S": s, "K": k}
    for name in HEADS:
        grids[name] = Grid(at, second, high, 1, room.column, row)
        at += room.column + room.gap
    o = grids["O"] = Grid(at + 4, second, high, d, room.wide, row)
    grids["V"] = v if narrow else Grid(o.x, lower - 28 - seen * row, seen, d, room.wide, row)
    return grids


def _made(scene: Scene, step: Step, grids: dict[str, Grid], line: int) -> None:
    """What the lines make, from S to O: outlined until it is made, framed by the line that makes it."""
    score = "P" if line >= 10 else "S"
    label = ("P̃" if line >= 10 else "S") + index(step.values["i"], step.values["j"])
    _tile(scene, "S", _value(step, score), grids["S"], label, line == MADE[score])
    old = {"m_i": "m_old", "l_i": "l_old"}
    for name in ("m_block", "l_block", "m_i", "l_i"):
        made = line >= MADE[name]
        values = _value(step, name if made else old.get(name, name))
        head = f"{HEADS[name]}_{{new}}" if made and name in old else HEADS[name]
        moved = line == MADE[name] or (line in (8, 13) and name in old)
        _tile(scene, name, values, grids[name], head, moved)
    name = "O" + index(step.values["i"])
    if line >= MADE["O"]:
        _tile(scene, "O", _value(step, "O"), grids["O"], name, line == 12)
        _scaled(scene, step, grids["factor"], line)
    else:
        before = first_head(step.written("O"))[slice(*step.values["rows"])]
        _tile(scene, "O", before, grids["O"], name, line == 8)


def _scaled(scene: Scene, step: Step, grid: Grid, line: int) -> None:
    """By what the old rows of O were multiplied."""
    scene.text(grid.middle, grid.y - 5, HEADS["factor"], 12, anchor="middle", va="bottom", bold=True)
    for r, factor in enumerate(first_head(step.values["factor"])):
        scene.text(*grid.cell(r, 0).centre, f"×{factor[0]:.2f}", 12, anchor="middle", bold=line == 12)


def _tile(scene: Scene, name: str, values: Rows | None, grid: Grid, label: str, now: bool) -> None:
    """A tile with its numbers; dashed where nothing is yet."""
    size = 13 if width(label, 13, True) <= grid.rect().w + 4 else 12
    there = values is not None
    scene.text(
        grid.middle, grid.y - 5, label, size, anchor="middle", va="bottom", bold=there, role="ink" if there else "quiet"
    )
    if values is None:
        scene.rect(grid.rect(), edge="quiet", dashed=True)
        return
    with scene.group(f"chip-{name}", grid.rect()):
        scene.rect(grid.rect(), role("m_i" if name in HEADS else name))
        scene.cell_lines(grid)
        _numbers(scene, values, grid, "on-Q" if name == "Q" else "on")
    if now:
        scene.outline(grid.rect(), 2.5)


def _numbers(scene: Scene, values: Rows, grid: Grid, ink: str = "ink") -> None:
    """The numbers of a tile: with as many decimals as leave room, whole ones without."""
    every = [value for row in values for value in row]
    whole = all(math.isinf(value) or value == round(value) for value in every)
    fine = max((width(fixed(value, 2), 12) for value in every), default=0) <= grid.w - 1
    digits = 0 if whole else 2 if fine else 1
    for r, row in enumerate(values):
        for c, value in enumerate(row):
            scene.text(*grid.cell(r, c).centre, fixed(value, digits), 12, anchor="middle", role=ink)


def _value(step: Step, name: str) -> Rows | None:
    """The value of the first head, if it is known by now."""
    return first_head(step.values[name]) if name in step.values else None
