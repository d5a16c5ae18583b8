"""Attention by tiles: the matrices in HBM, the tiles on chip, and the bytes that moved between them.

Every matrix stands where matrix multiplication puts it: Q left of S, K^T above it, and V and O at the right.
S is a place outside HBM unless it is stored. Where a step has no values (a recorded kernel gives grids only), tiles
are drawn without numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from flashlearn.core.signs import fixed
from flashlearn.core.steps import Step, Tile
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, ROUND, arrows, byte_counters, matrix, memory, numbered, on_chip_note
from flashlearn.show.draw.pairs import Block, Visit, pairs
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Look, Rect, Scene, Span, blocks_of, hole, rounded
from flashlearn.show.draw.style import index, role
from flashlearn.show.draw.values import check_steps_of

COLUMNS = {"l_i": "l", "m_i": "m", "lse": "lse", "delta": "delta"}  # one number for each row, and how to call it
CHIP_ORDER = ("Q", "K", "S", "V", "acc", "O")  # S = Q K^T, then S and V make acc or O
GAP, LABEL = 24, 22  # pixels between matrices, and above them for their names
COLUMN = 30  # pixels from one column of numbers to the next
SIDE = 250  # pixels at the right of a wide HBM, for counters and the key
UNDER = 24  # pixels below S, for what is said of it
TABLE_ROW = 17  # height of a row of numbers
LEAST = 30  # pixels for a tile on a narrow chip, with its name
Values = list[list[float]]


def draw_tiling(step: Step, *, narrow: bool = False, full: int | None = None, capacity: int | None = None) -> Scene:
    """One step of attention by tiles, or of standard attention; the first head if all heads step together.

    full        the bytes that fill the bars of traffic, the same for runs next to each other; those of the run unless given
    capacity    elements of SRAM: a bar says how many of them the tiles on chip fill, as `sram_elements` counts
    """
    names = ["Q", "K", "V", "O"]
    check_steps_of("attention by tiles", step, shapes=names, writes=["O", "S", "P"])
    run = _of_this_head(step)
    grids = _grids(step, narrow)
    chip = _chip(run, narrow, capacity)
    high = max(grids["S"].bottom, grids["V"].bottom) + UNDER + (78 if narrow else 0)
    high = high if narrow else max(high, 176)
    scene = Scene(NARROW if narrow else WIDE, high + 10 + chip.height)
    _hbm(scene, step, run, grids, Rect(0, 0, scene.width, high), full)
    _sram(scene, step, chip, Rect(0, high + 10, scene.width, chip.height), grids)
    return scene


# --- HBM ---------------------------------------------------------------------------------------------------


def _grids(step: Step, narrow: bool) -> dict[str, Grid]:
    """Where every matrix stands; the head dimension is drawn at most five cells wide, or, past eight, all of it, if S stays in sight."""
    room_w, room_h = (NARROW - 2 * PAD, 190.0) if narrow else (WIDE - SIDE - 4 * PAD, 228.0)
    N_q, D = _size(step, "Q")
    N_k = _size(step, "K")[0]
    columns = [name for name in COLUMNS if name in step.shapes]
    true = D > 8 and not _narrowed(step)  # too many for numbers: every cell is a square
    d = D if true else min(D, 5)
    gap = 16 if narrow else GAP
    sides = 3 * gap + 14 + COLUMN * len(columns)
    tall = min(24.0, (room_h - 2 * LABEL) / (max(N_q, N_k) + d))
    broad = min(max(1.7 * tall, 11), (room_w - sides) / (N_k + 3 * d))
    tall = min(tall, 1.7 * broad)
    broad, tall = (min(broad, tall),) * 2 if true else (broad, tall)
    tall, broad = (math.floor(2 * size) / 2 if size >= 5 and not true else size for size in (tall, broad))
    deep = d * tall if true else max(18.0, d * tall)
    left = round(max(PAD, (room_w - broad * (N_k + 3 * d) - sides) / 2 + PAD))
    thin = d * broad / D
    top = 18 if not narrow else 10 if left + d * broad + gap > 58 else 30  # next to the name of HBM, or below it
    middle = top + deep + (LABEL if N_k else 0)
    grids = {"Q": Grid(left, middle, N_q, D, thin, tall)}
    grids["S"] = Grid(grids["Q"].right + gap, middle, N_q, N_k, broad, tall)
    grids["K"] = Grid(grids["S"].x, top, D, N_k, broad, deep / D)
    grids["V"] = Grid(grids["S"].right + gap, middle, N_k, D, thin, tall)
    grids["O"] = Grid(grids["V"].right + gap, middle, N_q, D, thin, tall)
    at = grids["O"].right + 14
    for name in columns:
        grids[name] = Grid(at + 8, middle, N_q, 1, min(16.0, max(9.0, broad)), tall)
        at += COLUMN
    return grids


def _hbm(scene: Scene, step: Step, run: list[Step], grids: dict[str, Grid], area: Rect, full: int | None) -> None:
    """The matrices, the bytes that moved and how to read S, which is a place outside HBM unless it is stored."""
    stored, S = _stores_scores(step), grids["S"].rect()
    if stored or not S.w * S.h:
        memory(scene, area, "hbm")
    else:
        scene.polygon(rounded(area, ROUND), hole(S.inset(-6)), face="hbm", edge="hbm-edge", id="hbm")
        scene.text(area.x + PAD, area.y + 19, "HBM", 15, bold=True)
    for name in ("Q", "K", "V"):
        matrix(scene, step, name, grids[name], lying=name == "K")
    entries = (_stored if stored else _scores)(scene, step, run, grids["S"])
    for name in ("O", *(name for name in COLUMNS if name in step.shapes)):
        _output(scene, step, run, name, grids[name])
    for name, grid in grids.items():
        scene.cell_lines(grid, "quiet" if name != "S" or stored else "hatch", dashed=name == "S" and not stored)
        _name(scene, step, name, grid)
    words = "S, P: stored in HBM" if stored else "S: never stored"
    half, middle = width(words, 12, True) / 2, S.centre[0]
    if grids["V"].bottom > S.bottom:  # V is longer than S: what is said of S ends before it
        middle = max(PAD + half, min(middle, S.right + 6 - half))
    scene.text(middle, S.bottom + 15, words, 12, anchor="middle", bold=True)
    if scene.width == NARROW:
        byte_counters(scene, step, Rect(PAD, area.bottom - 78, area.w - 2 * PAD, 32), full, 12)
        scene.legend(PAD, area.bottom - 30, entries, right=area.right)
    else:
        side = Rect(area.right - SIDE - PAD, 14, SIDE, 76)
        byte_counters(scene, step, side, full)
        scene.legend(side.x, 112, entries, 13, right=area.right)


def _name(scene: Scene, step: Step, name: str, grid: Grid) -> None:
    """A matrix's name above it, K's at its right, with its arrows, and its shape where that is not to be seen."""
    shape = f" {grid.rows}×{grid.cols}" if _narrowed(step) else ""
    if name == "K":
        scene.text(grid.right + 6, grid.y + 8, f"Kᵀ{shape}{arrows(step, 'K')}", 14, bold=True)
    elif name in COLUMNS:
        scene.text(grid.middle, grid.y - 4, COLUMNS[name], 13, anchor="middle", va="bottom", bold=True)
    elif name != "S":
        moved, size = arrows(step, name), 14 if scene.width == WIDE else 13
        above = width(name + moved, size, True) <= grid.rect().w + 14  # else its arrows are below it
        scene.text(grid.middle, grid.y - 4, name + moved * above, size, anchor="middle", va="bottom", bold=True)
        words = shape.strip() or ("" if above else moved.strip())
        scene.text(grid.middle, grid.bottom + 13, words, 12, role="quiet" if shape else "ink", anchor="middle")


def _narrowed(step: Step) -> bool:
    """Whether the head dimension is so large compared with the rows that, drawn to scale, it would leave no room for S."""
    return _size(step, "Q")[1] > 4 * max(_size(step, "Q")[0], _size(step, "K")[0], 2)


def _scores(scene: Scene, step: Step, run: list[Step], grid: Grid) -> list[tuple[str, Look]]:
    """S as a square of pairs; returns its key."""
    visits = []
    for s in run:
        if block := _scores_block(s):
            (r0, r1), (c0, c1) = block
            S = (
                _value(s, "S") if s.values.get("masked", True) else None
            )  # a step that does not say may hide what is -inf
            fits = S and (len(S), len(S[0])) == (r1 - r0, c1 - c0)
            masked = [[score == -math.inf for score in row] for row in S] if S and fits else None
            visits.append(Visit(s.number, block, masked))
    return pairs(scene, grid, visits, step.number, _scores_block(step))


def _stored(scene: Scene, step: Step, run: list[Step], grid: Grid) -> list[tuple[str, Look]]:
    """S, and then P in its place: white until it is written, full while it moves; returns its key."""
    there = [name for name in "SP" if any(tile.name == name for s in step.so_far for tile in s.writes)]
    now = [name for name in "SP" if arrows(step, name)]
    scene.rect(grid.rect(), "blank")
    if now or there:
        scene.rect(grid.rect(), "S", "" if now else "light", id="S-now")
    if now:
        scene.outline(grid.rect())
    words = "  ".join(name + arrows(step, name) for name in now or there[-1:])
    scene.text(*grid.rect().centre, words, 16, bold=True, anchor="middle")
    return [("there", Look("S", "light")), ("now", Look("S"))]


def _output(scene: Scene, step: Step, run: list[Step], name: str, grid: Grid) -> None:
    """White where nothing was written yet, pale where it will change, darker and ticked where it is final."""
    face = role(name)
    scene.rect(grid.rect(), "blank")
    writes = [(s.number, _bounds(s, tile)[0]) for s in run for tile in s.writes if tile.name == name]
    last = {row: at for at, rows in writes for row in range(*rows)}  # row -> the last step that writes it
    for at, rows in writes:
        if at <= step.number:
            final = all(last[row] == at for row in range(*rows))
            rect = grid.rect(rows)
            scene.rect(rect, "blank")
            scene.rect(rect, face, "half" if final else "pale")
            if final and name == "O" and rect.h >= 10:
                scene.text(rect.right + 2, rect.centre[1], "✓", 12, bold=True)
    moved = [_bounds(step, tile)[0] for tile in (*step.reads, *step.writes) if tile.name == name]
    for n, rows in enumerate(dict.fromkeys(moved)):
        scene.rect(grid.rect(rows), face)
        scene.outline(grid.rect(rows), id=numbered(f"read-{name}", n))
    if name == "O" and not moved:  # where acc will go
        for tile in (tile for tile in step.on_chip if tile.name == "acc"):
            scene.outline(grid.rect(_bounds(step, tile)[0]), 1.5, dashed=True, id="read-O")


# --- SRAM --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chip:
    """What stays the same on chip from step to step.

    pitch      pixels from row to row
    unit       width of a column, of a tile of up to eight
    gap        pixels between tiles
    largest    the largest shape of every tile
    table      whether m, l and the factor of every row are shown; `beside` the tiles, or below them
    """

    pitch: float
    unit: float
    gap: float
    largest: dict[str, tuple[int, int]]
    table: bool
    beside: bool
    capacity: int | None

    @property
    def font(self) -> int:
        return 13 if self.beside else 12

    @property
    def tiles_height(self) -> float:
        most = max((rows for rows, _ in self.largest.values()), default=2)
        return max(2, most) * self.pitch

    @property
    def table_rows(self) -> int:
        """How many rows of numbers there is room for."""
        most = max((self.largest[name][0] for name in ("Q", "acc", "O") if name in self.largest), default=0)
        return min(most, max(int(self.tiles_height // TABLE_ROW), 3) if self.beside else 4)

    @property
    def height(self) -> float:
        if not self.largest:
            return 38
        below = 24 + TABLE_ROW * self.table_rows if self.table and not self.beside else 0
        beside = TABLE_ROW * self.table_rows if self.beside and self.table else 0
        return 56 + max(self.tiles_height, beside) + 22 + below

    def grid(self, step: Step, tile: Tile, left: float, top: float) -> Grid:
        """Where a tile stands, and its cells."""
        most_cols = self.largest[tile.name][1]
        broad, high = self.unit * min(most_cols, 8) / most_cols, self.pitch
        if most_cols > 8:  # no numbers in the cells: they are as square as they are
            broad = high = min(broad, high)
        return Grid(round(left), top, *_chip_shape(step, tile), broad, high)


def _chip(run: list[Step], narrow: bool, capacity: int | None) -> _Chip:
    largest = _largest_shapes(run)
    most = max((rows for rows, _ in largest.values()), default=2)
    table = any("m_i" in s.values for s in run)
    gap = 14 if narrow else 20
    room = (NARROW - 2 * PAD - 14) if narrow else WIDE - 2 * PAD - 18 - (190 if table else 0)
    room -= gap * max(0, len(largest) - 1)
    wide = [min(cols, 8) for _, cols in largest.values()] or [1]
    unit = min(16 if narrow else 44, room / sum(wide))
    named = [cols for cols in wide if narrow and cols * unit < LEAST]  # these take the room of their names
    if 0 < len(named) < len(wide):
        unit = min(unit, (room - LEAST * len(named)) / (sum(wide) - sum(named)))
    pitch = min(14 if narrow else 22, (90 if narrow else 120) / max(most, 2))
    return _Chip(pitch, unit, gap, largest, table, not narrow, capacity)


def _sram(scene: Scene, step: Step, chip: _Chip, area: Rect, home: dict[str, Grid]) -> None:
    """The tiles on chip in the order in which they are multiplied, and m, l and the factor of every row."""
    stored = _stores_scores(step)
    counted = chip.capacity and not stored
    memory(scene, area, "sram", "" if counted else on_chip_note(step), "" if chip.beside else "SRAM")
    held = {tile.name: tile for tile in step.on_chip}
    tiles = [held[name] for name in CHIP_ORDER if name in held]
    if counted:
        _fill_bar(scene, step, chip, tiles, area)
    if not tiles:
        words = "whole matrices: no tile is kept" if stored else "nothing is on chip"
        middle = area.y + (19 if area.h < 56 else area.h / 2 + 8)
        scene.text(area.x + area.w / 2 + 20, middle, words, 13, role="quiet", anchor="middle")
        return
    left, top = area.x + PAD + (18 if chip.beside else 14), area.y + 56
    for tile in tiles:
        grid = chip.grid(step, tile, left, top)
        _chip_tile(scene, step, chip, tile, grid, home)
        if tile is tiles[0]:
            _row_numbers(scene, step, tile, grid)
        name_wide = width(_chip_name(step, chip.largest, tile) + arrows(step, tile.name), chip.font, True)
        left += max(chip.unit * min(chip.largest[tile.name][1], 8), LEAST if not chip.beside else name_wide) + chip.gap
    if chip.table and "m_i" in step.values and tiles[-1].name in ("acc", "O"):
        _row_table(scene, step, chip, grid, area)


def _row_numbers(scene: Scene, step: Step, tile: Tile, grid: Grid) -> None:
    """The numbers of the rows of Q, left of them."""
    every = max(1, math.ceil(12 / grid.h))
    for r, row in list(enumerate(range(*_bounds(step, tile)[0])))[::every]:
        scene.text(grid.x - 4, grid.y + (r + 0.5) * grid.h, row, 12, role="quiet", anchor="end")


def _fill_bar(scene: Scene, step: Step, chip: _Chip, tiles: list[Tile], area: Rect) -> None:
    """The elements of the tiles on chip end to end, in a bar as long as what fits."""
    capacity = chip.capacity or 1
    sizes = [math.prod(_chip_shape(step, tile)) for tile in tiles]
    words = f"{sum(sizes)} of {capacity} elements"
    box = scene.text(area.right - PAD, area.y + 19, words, 12, anchor="end", bold=sum(sizes) > capacity)
    left = area.x + PAD + (126 if chip.beside else 50)
    bar = Rect(left, area.y + 12, box.x - 10 - left, 14)
    scene.rect(bar, "blank")
    at = bar.x
    for tile, size in zip(tiles, sizes, strict=True):
        wide = min(size * bar.w / capacity, bar.right - at)
        scene.rect((at, bar.y, wide, bar.h), role(tile.name), id=f"fill-{tile.name}")
        at += wide
    scene.rect(bar, edge="quiet")


def _chip_tile(scene: Scene, step: Step, chip: _Chip, tile: Tile, grid: Grid, home: dict[str, Grid]) -> None:
    """One tile: its name above, its cells with their numbers if there is room, its shape below."""
    name = tile.name
    values = _value(step, name, _bounds(step, tile)[0] if name in "QKV" else None)
    if values and name == "K":
        values = [list(column) for column in zip(*values, strict=True)]
    values = values if values and (len(values), len(values[0])) == (grid.rows, grid.cols) else None
    with scene.group(f"chip-{name}", grid.rect(), _home(step, tile, home)):
        scene.rect(grid.rect(), role(name))
        if values and name == "S":
            for block in blocks_of([[value == -math.inf for value in row] for row in values]):
                scene.hatch(grid.rect(*block), "blank")
        scene.cell_lines(grid)
        if values and grid.w >= 30 and grid.h >= 15:
            show = partial(fixed, digits=2 if grid.w >= 40 else 1)
            scene.numbers(grid, values, show, size=12, role="on-Q" if name == "Q" else "on")
    label = _chip_name(step, chip.largest, tile) + arrows(step, name)
    scene.text(grid.x, grid.y - 4, label, chip.font, va="bottom", bold=True)
    scene.text(grid.x, grid.bottom + 3, f"{grid.rows}×{grid.cols}", 12, va="top", role="quiet")


def _home(step: Step, tile: Tile, home: dict[str, Grid]) -> Rect | None:
    """Where in HBM a tile that was just read comes from."""
    if any(read.name == tile.name for read in step.reads) and tile.name in home:
        return home[tile.name].rect(**{"cols" if tile.name == "K" else "rows": _bounds(step, tile)[0]})
    return None


def _row_table(scene: Scene, step: Step, chip: _Chip, grid: Grid, area: Rect) -> None:
    """The factor on acc or O, m and l, for every row; where a maximum rose it stands out."""
    m, m_old = _value(step, "m_i"), _value(step, "m_old")
    rose = [_rose(m, m_old, r) for r in range(grid.rows)]
    fits = chip.table_rows
    first = rose.index(True) if True in rose else 0  # if not all fit, from the first whose maximum rose
    first = max(0, min(first, grid.rows - fits))
    aligned = chip.beside and grid.h >= TABLE_ROW
    top = grid.y if chip.beside else area.bottom - 8 - TABLE_ROW * fits
    columns = _columns(chip, grid, area)
    for x, head in zip(columns[1:], ("scaled", "m", "l"), strict=True):
        scene.text(x, top - 4, head, chip.font, anchor="end", va="bottom", bold=True)
    for line, r in enumerate(range(first, min(first + fits, grid.rows))):
        height = grid.h if aligned else TABLE_ROW
        left = grid.right + 3 if aligned else columns[0] - 4
        band = Rect(left, top + line * height + 1, columns[1] + 4 - left, height - 2)
        _table_row(scene, step, chip, r, band, columns, rose[r])
        if not aligned:
            queries = next(tile for tile in step.on_chip if tile.name in ("Q", "acc", "O"))
            row = _bounds(step, queries)[0][0] + r
            words = row if chip.beside else f"row {row}"
            scene.text(columns[0], band.centre[1], words, 12, role="paper" if rose[r] else "quiet", bold=rose[r])
    for r in (r for r, risen in enumerate(rose) if risen):
        scene.outline(grid.rect((r, r + 1)), 2 if grid.h >= 10 else 1)


def _columns(chip: _Chip, grid: Grid, area: Rect) -> tuple[float, float, float, float]:
    """Where the rows' numbers start, and where the columns of factors, m and l end."""
    right = area.right - PAD
    if chip.beside:
        return max(grid.right + 12, right - 182), right - 112, right - 56, right
    return area.x + PAD, area.x + 134, area.x + 224, right


def _table_row(scene: Scene, step: Step, chip: _Chip, r: int, band: Rect, columns: tuple, rose: bool) -> None:
    """The numbers of row r; the strip to its factor is dark where the maximum rose."""
    m, l, m_old, by = (_value(step, name) for name in ("m_i", "l_i", "m_old", "factor"))
    style: dict[str, Any] = {"anchor": "end", "bold": rose}
    y = band.centre[1]
    if rose:
        scene.rect(band, "ink", id=f"rose{r}")
    if by is not None:
        text = "start" if m_old is not None and math.isinf(m_old[r][0]) else f"×{by[r][0]:.2f}"
        scene.text(columns[1], y, text, chip.font, role="paper" if rose else "quiet", **style)
    for x, column in ((columns[2], m), (columns[3], l)):
        if column is not None:
            value = column[r][0]
            scene.text(x, y, fixed(value, 2 if abs(value) < 9.995 else 1), chip.font, **style)


def _rose(m: Values | None, m_old: Values | None, r: int) -> bool:
    """Whether the maximum of this row rose, having been a number before."""
    return m is not None and m_old is not None and m[r][0] > m_old[r][0] > -math.inf


# --- what a step says --------------------------------------------------------------------------------------


def _bounds(step: Step, tile: Tile) -> tuple[Span, Span]:
    """(rows, cols) of a tile in its matrix; a vector such as lse of shape (B, H, N) is one column."""
    if len(tile.index) < len(step.shapes["Q"]):
        return tile.index[-1], (0, 1)
    return tile.index[-2], tile.index[-1]


def _size(step: Step, name: str) -> Span:
    shape = step.shapes[name]
    return (shape[-2], shape[-1]) if len(shape) == len(step.shapes["Q"]) else (shape[-1], 1)


def _stores_scores(step: Step) -> bool:
    """Whether S goes to HBM in this run, as in standard attention."""
    return any(tile.name == "S" for s in step.run or (step,) for tile in s.writes)


def _scores_block(step: Step) -> Block | None:
    """(rows, cols) of the block of scores that this step made, or None."""
    chip = {tile.name: tile for tile in step.on_chip}
    if "S" in chip:
        return _bounds(step, chip["S"])
    if "Q" in chip and "K" in chip:
        return _bounds(step, chip["Q"])[0], _bounds(step, chip["K"])[0]
    return None


def _head(step: Step) -> tuple[int, ...]:
    """Batch and head that a step works on, the first if several; None if it says nothing of one."""
    for tile in (*step.on_chip, *step.reads, *step.writes):
        if tile.name in ("Q", "S", "O", "lse", "m_i"):
            extra = len(tile.index) - (1 if len(tile.index) < len(step.shapes["Q"]) else 2)
            return tuple(start for start, _ in tile.index[:extra])
    return ()


def _of_this_head(step: Step) -> list[Step]:
    """The steps of the run that work on the same batch and head."""
    run = list(step.run) or [step]
    mine = _head(step) or next((_head(s) for s in run if _head(s)), ())
    return [s for s in run if _head(s) in (mine, ())]


def _value(step: Step, name: str, rows: Span | None = None) -> Values | None:
    """The named value of the head that is drawn, as rows of numbers; None if there is none."""
    value = step.values.get(name)
    if not isinstance(value, Tensor) or value.ndim < 2:
        return None
    if value.ndim > 2:  # (B, H, rows, cols); query heads share a head of K and V
        batch, head = (*_head(step), 0, 0)[:2]
        group = max(1, step.shapes["Q"][1] // value.shape[1]) if name in ("K", "V") else 1
        value = value[min(batch, value.shape[0] - 1), min(head // group, value.shape[1] - 1)]
    return value[slice(*rows) if rows else slice(None)].detach().double().cpu().tolist()


def _chip_shape(step: Step, tile: Tile) -> Span:
    """Rows and columns as drawn on chip: K as its transpose, as above."""
    (r0, r1), (c0, c1) = _bounds(step, tile)
    return (c1 - c0, r1 - r0) if tile.name == "K" else (r1 - r0, c1 - c0)


def _largest_shapes(run: list[Step]) -> dict[str, Span]:
    """The largest shape of every tile in the run, so that nothing jumps from step to step."""
    found: dict[str, Span] = {}
    for step in run:
        for tile in step.on_chip:
            if tile.name in CHIP_ORDER:
                (rows, cols), (most_rows, most_cols) = _chip_shape(step, tile), found.get(tile.name, (0, 0))
                found[tile.name] = (max(rows, most_rows), max(cols, most_cols))
    return found


def _chip_name(step: Step, largest: dict[str, Span], tile: Tile) -> str:
    """Q₂, K₁ᵀ, S₂₁, acc₂: the name with its block numbers; block 0 starts at row 0."""
    rows, cols = _bounds(step, tile)
    each_q = max((largest[name][0] for name in ("Q", "acc", "O") if name in largest), default=1)
    each_k = largest.get("K", (0, 1))[1]
    if tile.name == "S":
        return "S" + index(rows[0] // each_q, cols[0] // each_k)
    if tile.name in ("K", "V"):
        return tile.name + index(rows[0] // each_k) + ("ᵀ" if tile.name == "K" else "")
    return tile.name + index(rows[0] // each_q)
