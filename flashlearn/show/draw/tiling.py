"""Attention by tiles: the matrices in HBM, the tiles on chip, and the bytes that moved between them.

Every matrix stands where matrix multiplication puts it: Q left of S, K^T above it, and V and O at the right.
Where a step has no values (a recorded kernel gives grids only), tiles are drawn without numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from flashlearn.core.steps import Step, Tile
from flashlearn.show.draw.parts import CENTRED, arrows, ground, matrix_read, on_chip_note, traffic_bars
from flashlearn.show.draw.sheet import DASHES, Grid, Rect, Sheet, blocks_of
from flashlearn.show.draw.style import COLOURS, INK, QUIET, colour, fixed, index, ink_on, tint
from flashlearn.show.draw.values import check_steps_of

COLUMNS = {"l_i": "l", "m_i": "m", "lse": "lse", "delta": "delta"}  # one number for each row, and how to call it
WIDE = 900  # pixels: from here on there is room for the numbers in the tiles
NARROW = 500  # below this there is none for those of the rows
MARGIN, STRIP = 12, 48
SPACED = 19.0  # height of a line of the table where a row of the tile is lower
UNFINISHED, FINAL, DONE = 0.2, 0.5, 0.32  # strength of a colour; full where work goes on now
CHIP_ORDER = ("Q", "K", "S", "V", "acc", "O")  # S = Q K^T, then S and V make acc or O


@dataclass(frozen=True)
class _Chip:
    """What stays the same on chip from step to step.

    pitch      pixels from row to row
    largest    the largest shape of every tile
    table      whether m, l and the factor of every row stand at the right
    on_way     the tiles that have not arrived yet
    narrowed   whether columns are drawn narrower than rows are high, as there are so many more of them
    """

    area: Rect
    pitch: float
    largest: dict[str, tuple[int, int]]
    table: bool
    capacity: int | None = None
    on_way: tuple[Tile, ...] = ()
    narrowed: bool = False

    @property
    def wide(self) -> bool:
        return self.area.w >= WIDE

    @property
    def font(self) -> int:
        return 15 if self.wide else 13

    @property
    def gap(self) -> int:
        return 24 if self.wide else 17

    @property
    def unit(self) -> float:
        """Width of a column, of a tile of up to eight."""
        room = self.area.w - 22 - 15.5 * self.font * self.table - self.gap * (len(self.largest) + 1)
        return min(64 if self.wide else 24, room / sum(min(cols, 8) for _, cols in self.largest.values()))

    @property
    def rows_area(self) -> float:
        """The height that the rows of tiles have."""
        return self.area.h - 54 - 26

    def grid(self, step: Step, tile: Tile, left: float) -> Grid:
        """Where a tile stands, and its cells."""
        most_rows, most_cols = self.largest[tile.name]
        broad = self.unit * min(most_cols, 8) / most_cols
        high = min(self.pitch, self.rows_area / most_rows)
        if most_cols > 8 and not self.narrowed:  # no numbers in the cells: they are as square as they are
            broad = high = min(broad, high)
        return Grid(round(left), self.area.y + 54, *_chip_shape(step, tile), broad, high)


def draw_tiling(
    ax: Axes, step: Step, full: int | None = None, capacity: int | None = None, travelled: float = 1.0
) -> None:
    """Paint one step of attention by tiles, or of standard attention; the first head if all heads step together.

    full        the bytes that fill the bars of traffic, the same for runs side by side; those of the run unless given
    capacity    elements of SRAM: a bar says how many of them the tiles on chip fill, as `sram_elements` counts
    travelled   how far tiles have come between HBM and SRAM, from 0 to 1
    """
    names = ["Q", "K", "V", "O"]
    check_steps_of("attention by tiles", step, shapes=names, writes=["O", "S", "P"])
    sheet, run = Sheet(ax), _of_this_head(step)
    largest = _largest_shapes(run)
    rows = max((largest[name][0] for name in ("Q", "S", "O", "acc") if name in largest), default=3)
    rows = rows if any("m_i" in s.values for s in run) else min(rows, 5)  # no numbers to a row: no need for height
    pitch = (27 if sheet.width >= WIDE else 21) if rows <= 5 else 16  # height of a row on chip, up to half the picture
    pitch = min(pitch, 11) if rows > 8 and max(cols for _, cols in largest.values()) > 8 else pitch  # square cells
    chip = 82 + max(3, min(rows, int((0.5 * sheet.height - 82) // pitch))) * pitch
    bottom, inner = sheet.height - chip - STRIP, sheet.width - 2 * MARGIN
    grids = _hbm(sheet, step, run, Rect(MARGIN, 2, inner, bottom - 6))
    traffic_bars(sheet, step, MARGIN + 4, bottom, inner - 8, full)
    table = any("m_i" in s.values for s in run) and sheet.width >= NARROW
    on_way = step.reads if travelled < 1 else ()
    look = _Chip(
        Rect(MARGIN, sheet.height - chip, inner, chip - 2), pitch, largest, table, capacity, on_way, _narrowed(step)
    )
    on_chip = _sram(sheet, step, look)
    if travelled < 1:
        _travel(sheet, step, grids, on_chip, travelled)
    sheet.paint()


# --- HBM ---------------------------------------------------------------------------------------------------


def _hbm(sheet: Sheet, step: Step, run: list[Step], area: Rect) -> dict[str, Grid]:
    """Q, K^T, S, V and O where matrix multiplication puts them; S is a place, the others are stored. Returns where."""
    ground(sheet, area, "HBM")
    grids = _grids(step, area)
    for name in ("Q", "K", "V"):
        matrix_read(sheet, step, name, grids[name], lying=name == "K")
    stored = _stores_scores(step)
    never, masked = (_stored if stored else _scores)(sheet, step, run, grids["S"])
    for name in ("O", *(name for name in COLUMNS if name in step.shapes)):
        _output(sheet, step, run, name, grids[name])
    for name, grid in grids.items():
        sheet.cell_lines(grid)
        shape = f" {grid.rows}×{grid.cols}" if _narrowed(step) else ""  # not what it looks like
        if name == "K":
            words = f"Kᵀ{shape}{arrows(step, 'K')}"
            sheet.text(grid.right + 8, grid.y - 2, words, va="top", weight="bold", fontsize=17)
        elif name in COLUMNS:
            style = {"fontsize": 14, "ha": "center", "va": "bottom", "weight": "bold"}
            sheet.text(grid.middle, grid.y - 5, COLUMNS[name], **style)
        elif name != "S":
            style = {"fontsize": 17, "ha": "center", "va": "bottom", "weight": "bold"}
            sheet.text(grid.middle, grid.y - 5, name + shape + arrows(step, name), **style)
    _key(sheet, area.x + 10, area.bottom - 12, never, masked, stored)
    return grids


def _narrowed(step: Step) -> bool:
    """Whether the head dimension is so large beside the rows that, drawn to scale, it would leave no room for S."""
    return _size(step, "Q")[1] > 4 * max(_size(step, "Q")[0], _size(step, "K")[0], 2)


def _grids(step: Step, area: Rect) -> dict[str, Grid]:
    """Where every matrix stands; the head dimension is drawn at most five cells wide, or, past eight, all of it, if S stays in sight."""
    x, y, w, h = area
    N_q, D = _size(step, "Q")
    N_k = _size(step, "K")[0]
    columns = [name for name in COLUMNS if name in step.shapes]
    true = D > 8 and not _narrowed(step)  # too many for numbers: every cell is a square
    d = D if true else min(D, 5)
    tall = min(30.0, (h - 46) / (max(N_q, N_k) + d))
    if d * tall < 46 and not true:  # K^T stays high enough for the labels beside it
        tall = (h - 46 - 46) / max(N_q, N_k)
    gap = 26
    sides = 4 * gap + 34 * len(columns)
    broad = min(max(2.2 * tall, 13), (w - sides) / (N_k + 3 * d + 0.4))
    tall = min(tall, 1.7 * broad)
    broad, tall = (min(broad, tall),) * 2 if true else (broad, tall)
    tall, broad = (math.floor(size) if size >= 5 and not true else size for size in (tall, broad))
    used = broad * (N_k + 3 * d) + 3 * gap + 34 * len(columns)
    left, top = round(x + max(14, (w - used) / 2)), round(y + 6)
    deep = d * tall if true else max(46, d * tall)
    middle = top + deep + 14
    narrow = d * broad / D
    grids = {"Q": Grid(left, middle, N_q, D, narrow, tall)}
    grids["S"] = Grid(grids["Q"].right + gap, middle, N_q, N_k, broad, tall)
    grids["K"] = Grid(grids["S"].x, top, D, N_k, broad, deep / D)
    grids["V"] = Grid(grids["S"].right + gap, middle, N_k, D, narrow, tall)
    grids["O"] = Grid(grids["V"].right + gap, middle, N_q, D, narrow, tall)
    at = grids["O"].right + 16
    for name in columns:
        thin = min(18.0, max(10.0, broad))
        grids[name] = Grid(at + 8, middle, N_q, 1, thin, tall)
        at += 34
    return grids


def _scores(sheet: Sheet, step: Step, run: list[Step], grid: Grid) -> tuple[bool, bool]:
    """Done, now, masked and never visited; returns whether there are cells of the last two kinds."""
    done, visited, masked = np.zeros((3, grid.rows, grid.cols), dtype=bool)
    for s in run:
        block = _scores_block(s)
        if block:
            cells = tuple(slice(*span) for span in block)
            visited[cells] = True
            done[cells] |= s.number < step.number
            S = _value(s, "S")
            hides = s.values.get("masked", True)  # a step that does not say may hide what is -inf
            if hides and S is not None and S.shape == masked[cells].shape:
                masked[cells] |= np.isneginf(S)
    sheet.fill(grid.rect(), "white")
    for block in blocks_of(done):
        sheet.fill(grid.rect(*block), tint("S", DONE))
    if _scores_block(step):
        sheet.fill(grid.rect(*_scores_block(step)), colour("S"))
        sheet.outline(grid.rect(*_scores_block(step)))
    sheet.hatch_cells(grid, ~visited, COLOURS["masked"])
    sheet.hatch_cells(grid, masked)
    return not visited.all(), bool(masked.any())


def _stored(sheet: Sheet, step: Step, run: list[Step], grid: Grid) -> tuple[bool, bool]:
    """S, and then P in its place: white until it is written, full while it moves; returns as `_scores`."""
    there = [name for name in "SP" if any(tile.name == name for s in step.so_far for tile in s.writes)]
    now = [name for name in "SP" if arrows(step, name)]
    sheet.fill(grid.rect(), colour("S") if now else tint("S", DONE) if there else "white")
    if now:
        sheet.outline(grid.rect())
    words = "  ".join(name + arrows(step, name) for name in now or there[-1:])
    sheet.text(*grid.rect().centre, words, weight="bold", fontsize=17, **CENTRED)
    return False, False


def _output(sheet: Sheet, step: Step, run: list[Step], name: str, grid: Grid) -> None:
    """White where nothing was written yet, pale where it will change, darker and ticked where it is final."""
    sheet.fill(grid.rect(), "white")
    writes = [(s.number, _bounds(s, tile)[0]) for s in run for tile in s.writes if tile.name == name]
    last = {row: at for at, rows in writes for row in range(*rows)}  # row -> the last step that writes it
    for at, rows in writes:
        if at <= step.number:
            final = all(last[row] == at for row in range(*rows))
            sheet.fill(grid.rect(rows), tint(name, FINAL if final else UNFINISHED))
            rect = grid.rect(rows)
            if final and name == "O" and rect.h >= 16:
                sheet.text(rect.right + 2, rect.centre[1], "✓", va="center", fontsize=13, weight="bold")
    moved = [tile for tile in (*step.reads, *step.writes) if tile.name == name]
    for tile in moved:
        sheet.fill(grid.rect(_bounds(step, tile)[0]), colour(name))
        sheet.outline(grid.rect(_bounds(step, tile)[0]))
    if name == "O" and not moved:  # where acc will go
        for tile in (tile for tile in step.on_chip if tile.name == "acc"):
            sheet.outline(grid.rect(_bounds(step, tile)[0]), 2.0, DASHES)


def _key(sheet: Sheet, left: float, y: float, never: bool, masked: bool, stored: bool) -> None:
    """How to read the shades of S, in one line."""
    narrow = sheet.width < NARROW
    words = "S:" if narrow else "S, P are stored:" if stored else "S is never stored:"
    sheet.text(left, y, words, va="center", fontsize=13, weight="bold")
    entries: list[tuple] = [("there" if stored else "done", tint("S", DONE), False), ("now", colour("S"), False)]
    entries += [("masked", "white", True)] * masked
    entries += [("never" if narrow else "never visited", COLOURS["masked"], True)] * never
    at = left + (30 if narrow else 188)
    sheet.legend(at, y, entries, swatch=(22, 16), gaps=(5, 14), char=11, font=13)


# --- SRAM --------------------------------------------------------------------------------------------------


def _sram(sheet: Sheet, step: Step, look: _Chip) -> dict[str, Grid]:
    """The tiles on chip in the order in which they are multiplied, and m, l and the factor of every row; where they are."""
    area = look.area
    grids: dict[str, Grid] = {}
    ground(sheet, area, "SRAM", down=6)
    chip = {tile.name: tile for tile in step.on_chip}
    tiles = [chip[name] for name in CHIP_ORDER if name in chip]
    if look.capacity and not _stores_scores(step):
        _fill_bar(sheet, step, look, tiles)
    else:
        on_chip_note(sheet, area, step, 7)
    if not tiles:
        words = "whole matrices: no tile is kept" if _stores_scores(step) else "nothing is on chip"
        sheet.text(area.x + area.w / 2, area.y + area.h / 2 + 8, words, color=QUIET, **CENTRED)
        return grids
    left = area.x + 22 + look.gap
    for tile in tiles:
        grid = grids[tile.name] = look.grid(step, tile, left)
        if tile not in look.on_way:
            _chip_tile(sheet, step, look, tile, grid)
        left += max(look.unit * min(look.largest[tile.name][1], 8), 40) + look.gap
        if tile is tiles[0] and grid.h >= 15:
            for r, row in enumerate(range(*_bounds(step, tile)[0])):
                middle = grid.y + (r + 0.5) * grid.h
                sheet.text(grid.x - 5, middle, row, ha="right", va="center", fontsize=13, color=QUIET)
    if look.table and "m_i" in step.values and tiles[-1].name in ("acc", "O"):
        _row_table(sheet, step, look, grid)
    return grids


def _fill_bar(sheet: Sheet, step: Step, look: _Chip, tiles: list[Tile]) -> None:
    """The elements of the tiles on chip end to end, in a bar as long as what fits."""
    area, capacity = look.area, look.capacity or 1
    sizes = [math.prod(_chip_shape(step, tile)) for tile in tiles]
    words = f"{sum(sizes)} of {capacity} elements"
    sheet.text(area.right - 10, area.y + 7, words, va="top", ha="right", fontsize=14)
    bar = Rect(area.x + 96, area.y + 9, area.w - 96 - 11.5 * len(words) - 24, 16)
    sheet.fill(bar, "white")
    at = bar.x
    for tile, size in zip(tiles, sizes, strict=True):
        sheet.fill((at, bar.y, size * bar.w / capacity, bar.h), colour(tile.name))
        at += size * bar.w / capacity
    sheet.box(bar, "none", QUIET, 1.2, raised=True)


def _travel(sheet: Sheet, step: Step, grids: dict, on_chip: dict, travelled: float) -> None:
    """Tiles on their way: those read go down from HBM to the SRAM, those written up."""
    ways = []
    for tiles, down in ((step.reads, True), (step.writes, False)):
        for tile in (tile for tile in tiles if tile.name in grids):
            rows = _bounds(step, tile)[0]
            chip = on_chip.get(tile.name) or on_chip.get("acc" if tile.name == "O" else "")
            home = grids[tile.name].rect(**{"cols" if tile.name == "K" else "rows": rows})
            if chip:
                ways.append((tile.name, *((home, chip.rect()) if down else (chip.rect(), home))))
    for name, start, end in ways:
        rect = Rect(*(a + travelled * (b - a) for a, b in zip(start, end, strict=True)))
        sheet.above(rect, colour(name), name, fontsize=17, color=ink_on(name))


def _chip_tile(sheet: Sheet, step: Step, look: _Chip, tile: Tile, grid: Grid) -> None:
    """One tile: its name above, its cells with their numbers if there is room, its shape below."""
    name = tile.name
    sheet.fill(grid.rect(), colour(name))
    values = _value(step, name, _bounds(step, tile)[0] if name in "QKV" else None)
    if values is not None:
        values = values.T if name == "K" else values
        values = values if values.shape == (grid.rows, grid.cols) else None
    if values is not None and name == "S":
        sheet.hatch_cells(grid, np.isneginf(values), "white")
    sheet.cell_lines(grid)
    label = _chip_name(step, look.largest, tile) + arrows(step, name)
    sheet.text(grid.x, grid.y - 5, label, va="bottom", weight="bold", fontsize=look.font + 1)
    sheet.text(grid.x, grid.bottom + 4, f"{grid.rows}×{grid.cols}", va="top", fontsize=13)
    if values is not None and grid.w >= 43 and grid.h >= 18:
        show = partial(fixed, digits=2 if grid.w >= 58 else 1)
        sheet.numbers(grid, values, show, fontsize=13, color=ink_on(name))


def _row_table(sheet: Sheet, step: Step, look: _Chip, grid: Grid) -> None:
    """The factor on acc or O, m and l, for every row; where a maximum rose it stands out."""
    columns = _columns(look, grid)
    for x, head in zip(columns, ("scaled", "m", "l"), strict=True):
        sheet.text(x, grid.y - 5, head, ha="right", va="bottom", weight="bold", fontsize=look.font)
    m, m_old = _value(step, "m_i"), _value(step, "m_old")
    rows, height = range(grid.rows), grid.h
    if height < 15 and grid.cols > 8:  # every second or third row, beside its own row of the tile
        rows, height = range(0, grid.rows, math.ceil(SPACED / grid.h)), SPACED
    elif height < 15:  # too many rows for their numbers: as many as fit, from the first whose maximum rose
        fits, height = int(look.rows_area // 16), 16
        first = next((r for r in rows if _rose(m, m_old, r)), 0)
        first = max(0, min(first, grid.rows - fits))
        rows = rows[first : first + fits]
    for line, r in enumerate(rows):
        y = grid.y + line * height if height != SPACED else grid.y + (r + 0.5) * grid.h - SPACED / 2
        band = Rect(grid.right + 3, y + 1, columns[0] - grid.right + 1, height - 2)
        _table_row(sheet, step, look, r, band, columns)
    for r in rows if height != SPACED else range(grid.rows):
        if _rose(m, m_old, r):
            sheet.outline(grid.rect((r, r + 1)), 2.5 if height != SPACED else 1.5)


def _columns(look: _Chip, grid: Grid) -> list[float]:
    """Where the columns of the table end."""
    font, right = look.font, look.area.right - 10
    each = font * 4.7
    start = max(grid.right, grid.x + 6 * font)  # room for the name of the tile and its arrows
    start = min(start + 1.1 * each, right - 1.9 * each)
    return [start, start + 1.05 * each, start + 1.9 * each]  # m may be negative


def _table_row(sheet: Sheet, step: Step, look: _Chip, r: int, band: Rect, columns: list[float]) -> None:
    """The numbers of row r; the band from the tile to its factor is dark where the maximum rose."""
    m, l, m_old, by = (_value(step, name) for name in ("m_i", "l_i", "m_old", "factor"))
    y, rose = band.centre[1], _rose(m, m_old, r)
    style = {"ha": "right", "va": "center", "fontsize": look.font, "weight": "bold" if rose else "normal"}
    if rose:
        sheet.fill(band, INK)
    if by is not None:
        text = "start" if m_old is not None and math.isinf(m_old[r, 0]) else f"×{by[r, 0]:.2f}"
        sheet.text(columns[0], y, text, color="white" if rose else QUIET, **style)
    for x, column in ((columns[1], m), (columns[2], l)):
        if column is not None:
            value = column[r, 0]
            sheet.text(x, y, fixed(value, 2 if abs(value) < 9.995 else 1), **style)


def _rose(m, m_old, r) -> bool:
    """Whether the maximum of this row rose, having been a number before."""
    return m_old is not None and m[r, 0] > m_old[r, 0] > -math.inf


# --- what a step says --------------------------------------------------------------------------------------


def _bounds(step, tile) -> tuple[tuple[int, int], tuple[int, int]]:
    """(rows, cols) of a tile in its matrix; a vector such as lse of shape (B, H, N) is one column."""
    if len(tile.index) < len(step.shapes["Q"]):
        return tile.index[-1], (0, 1)
    return tile.index[-2], tile.index[-1]


def _size(step, name) -> tuple[int, int]:
    shape = step.shapes[name]
    return (shape[-2], shape[-1]) if len(shape) == len(step.shapes["Q"]) else (shape[-1], 1)


def _stores_scores(step) -> bool:
    """Whether S goes to HBM in this run, as in standard attention."""
    return any(tile.name == "S" for s in step.run or (step,) for tile in s.writes)


def _scores_block(step):
    """(rows, cols) of the block of scores that this step made, or None."""
    chip = {tile.name: tile for tile in step.on_chip}
    if "S" in chip:
        return _bounds(step, chip["S"])
    if "Q" in chip and "K" in chip:
        return _bounds(step, chip["Q"])[0], _bounds(step, chip["K"])[0]
    return None


def _head(step) -> tuple:
    """Batch and head that a step works on, the first if several; None if it says nothing of one."""
    for tile in (*step.on_chip, *step.reads, *step.writes):
        if tile.name in ("Q", "S", "O", "lse", "m_i"):
            extra = len(tile.index) - (1 if len(tile.index) < len(step.shapes["Q"]) else 2)
            return tuple(start for start, _ in tile.index[:extra])
    return ()


def _of_this_head(step) -> list[Step]:
    """The steps of the run that work on the same batch and head."""
    run = list(step.run) or [step]
    mine = _head(step) or next((_head(s) for s in run if _head(s)), ())
    return [s for s in run if _head(s) in (mine, ())]


def _value(step, name, rows=None) -> np.ndarray | None:
    """The named value of the head that is drawn, as (rows, cols) numbers; None if there is none."""
    value = step.values.get(name)
    if not isinstance(value, Tensor) or value.ndim < 2:
        return None
    if value.ndim > 2:  # (B, H, rows, cols); query heads share a head of K and V
        batch, head = (*_head(step), 0, 0)[:2]
        group = max(1, step.shapes["Q"][1] // value.shape[1]) if name in ("K", "V") else 1
        value = value[min(batch, value.shape[0] - 1), min(head // group, value.shape[1] - 1)]
    return value[slice(*rows) if rows else slice(None)].detach().double().cpu().numpy()


def _chip_shape(step, tile) -> tuple[int, int]:
    """Rows and columns as drawn on chip: K as its transpose, as above."""
    (r0, r1), (c0, c1) = _bounds(step, tile)
    return (c1 - c0, r1 - r0) if tile.name == "K" else (r1 - r0, c1 - c0)


def _largest_shapes(run) -> dict[str, tuple[int, int]]:
    """The largest shape of every tile in the run, so that nothing jumps from step to step."""
    found: dict[str, tuple[int, int]] = {}
    for step in run:
        for tile in step.on_chip:
            if tile.name in CHIP_ORDER:
                (rows, cols), (most_rows, most_cols) = _chip_shape(step, tile), found.get(tile.name, (0, 0))
                found[tile.name] = (max(rows, most_rows), max(cols, most_cols))
    return found


def _chip_name(step, largest, tile: Tile) -> str:
    """Q₂, K₁ᵀ, S₂₁, acc₂: the name with its block numbers; block 0 starts at row 0."""
    rows, cols = _bounds(step, tile)
    each_q = max((largest[name][0] for name in ("Q", "acc", "O") if name in largest), default=1)
    each_k = largest.get("K", (0, 1))[1]
    if tile.name == "S":
        return "S" + index(rows[0] // each_q, cols[0] // each_k)
    if tile.name in ("K", "V"):
        return tile.name + index(rows[0] // each_k) + ("ᵀ" if tile.name == "K" else "")
    return tile.name + index(rows[0] // each_q)
