"""The backward pass by tiles: both passes, the matrices in HBM, and the products of the tiles on chip.

What has a row for every query stands beside S, what has one for every key lies above or below it, transposed: the tiles
of a step form a cross.
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.from_kernel import factor_shape
from flashlearn.show.draw.parts import CENTRED, arrows, ground, matrix_read, on_chip_note, traffic_bars
from flashlearn.show.draw.sheet import DASHES, Grid, Rect, Sheet, Span, blocks_of
from flashlearn.show.draw.style import COLOURS, INK, QUIET, colour, tint
from flashlearn.show.draw.values import check_steps_of

LEFT, COLUMNS, RIGHT = ("dQ", "Q"), ("lse", "delta"), ("dO", "O")
ABOVE, BELOW = ("V", "K"), ("dK", "dV")  # from the top down, all transposed
LYING = (*ABOVE, *BELOW)
RESULTS = ("dQ", "dK", "dV", "delta")
LABELS = {"V": "Vᵀ", "K": "Kᵀ", "dK": "dKᵀ", "dV": "dVᵀ", "delta": "δ"}
SQUARES = ("S", "P", "dP", "dS")
MARGIN, STRIP, PRODUCT, THICK = 12, 48, 92, 3  # pixels; THICK: cells drawn for the head dimension, at most
GAP, BETWEEN = 22, 9  # pixels beside what stands, and between what lies
THIN, NARROW = 16, 34  # pixels: a column, and with its gap
NAMES = 18  # pixels above S, for names
NARROWEST = 36  # pixels: what stands beside S is at least as wide, so that its name finds room
UNFINISHED, FINAL, DONE = 0.2, 0.5, 0.32  # strength of a colour; full where work goes on now


def draw_backward(ax: Axes, step: Step, full: int | None = None) -> None:
    """Paint one step of the backward pass by tiles, of the first head.

    `full` is the number of bytes that fills the bars of traffic (that of the whole run unless given).
    """
    check_steps_of("the backward pass by tiles", step, shapes=["Q", "K", "V", "dO", "dQ", "dK", "dV"], never=SQUARES)
    sheet, run = Sheet(ax), list(step.run) or [step]
    most = max(len(s.values.get("products", ())) for s in run)
    lines = 1 if sheet.width >= 900 or most <= 2 else 2
    chip = 40 + lines * PRODUCT
    bottom, inner = sheet.height - chip - STRIP, sheet.width - 2 * MARGIN
    _hbm(sheet, step, run, Rect(MARGIN, 2, inner, bottom - 6))
    traffic_bars(sheet, step, MARGIN + 4, bottom, inner - 8, full)
    _sram(sheet, step, Rect(MARGIN, sheet.height - chip, inner, chip - 2), columns=max(1, math.ceil(most / lines)))
    sheet.paint()


# --- HBM ---------------------------------------------------------------------------------------------------


def _hbm(sheet: Sheet, step: Step, run: list[Step], area: Rect) -> None:
    """Every matrix in its place; S, P, dP and dS share one, and none of them is stored."""
    ground(sheet, area, "HBM")
    grids = _grids(step, run, area._replace(h=area.h - 28))
    kinds = _square(sheet, step, run, grids["S"])
    for name, grid in grids.items():
        if name in RESULTS and (name != "delta" or any(tile.name == name for s in run for tile in s.writes)):
            _result(sheet, step, run, name, grid)
        elif name != "S":
            matrix_read(sheet, step, name, grid, lying=name in LYING)
        sheet.cell_lines(grid)
        _label(sheet, step, name, grid)
    names = {"weight": "bold", "fontsize": 13, "zorder": 5}
    sheet.text(grids["S"].middle, grids["S"].y - 5, "S, P, dP, dS", ha="center", va="bottom", **names)
    _key(sheet, area.x + 10, area.bottom - 14, kinds)


def _grids(step: Step, run: list[Step], area: Rect) -> dict[str, Grid]:
    """Where every matrix stands; lying ones are at most THICK cells high, standing ones as wide."""
    (N_q, D), N_k = step.shapes["Q"][-2:], step.shapes["K"][-2]
    used = {tile.name for s in run for tile in s.reads}
    right = [name for name in RIGHT if name in used or name == "dO"]
    standing = [*LEFT, "S", *COLUMNS, *right]
    thick = min(D, THICK)
    sides = GAP * (2 + len(right)) + NARROW * len(COLUMNS)
    broad, tall, side = _sizes(N_q, N_k, thick, len(LEFT) + len(right), area._replace(w=area.w - sides))
    used_width = broad * N_k + side * (len(LEFT) + len(right)) + sides
    at: float = round(area.x + (area.w - used_width) / 2)
    top = round(area.y + 8)
    step_down = thick * tall + BETWEEN
    middle = top + len(ABOVE) * step_down + NAMES
    grids = {}
    for name in standing:
        if name == "S":
            grids[name] = Grid(at, middle, N_q, N_k, broad, tall)
            at = grids[name].right + GAP
        elif name in COLUMNS:
            grids[name] = Grid(at, middle, N_q, 1, THIN, tall)
            at += NARROW
        else:
            grids[name] = Grid(at, middle, N_q, D, side / D, tall)
            at += side + GAP
    for number, name in enumerate(LYING):
        y = top + number * step_down + (NAMES + N_q * tall + BETWEEN) * (name in BELOW)
        grids[name] = Grid(grids["S"].x, y, D, N_k, broad, thick * tall / D)
    return {name: grids[name] for name in (*LEFT, "S", *LYING, *COLUMNS, *right)}


def _sizes(N_q: int, N_k: int, thick: int, standing: int, room: Rect) -> tuple[float, float, float]:
    """Width and height of a cell of S, and the width of each of `standing` matrices beside it, in that room."""
    tall = min(30.0, (room.h - 16 - NAMES - 4 * BETWEEN) / (N_q + 4 * thick))
    broad = min(1.7 * tall, (room.w - 20) / (N_k + thick * standing))
    tall = min(tall, 1.7 * broad)
    tall, broad = (math.floor(size) if size >= 5 else size for size in (tall, broad))
    side = thick * broad
    if side < NARROWEST:
        side, broad = NARROWEST, min(broad, (room.w - 64 - NARROWEST * standing) / N_k)
    return broad, tall, side


def _label(sheet: Sheet, step: Step, name: str, grid: Grid) -> None:
    """The name, with arrows for what was read and written now: above what stands, left of what lies."""
    text, moved = LABELS.get(name, name), arrows(step, name)
    style = {"weight": "bold", "color": INK, "fontsize": 13 if name in COLUMNS else 16, "zorder": 5}
    if name in COLUMNS:  # too narrow for both above
        sheet.text(grid.middle, grid.bottom + 4, moved.strip(), ha="center", va="top", **style)
    else:
        text += moved
    if name in LYING:
        sheet.text(grid.x - 8, (grid.y + grid.bottom) / 2, text, ha="right", va="center", **style)
    elif name != "S":
        sheet.text(grid.middle, grid.y - 5, text, ha="center", va="bottom", **style)


def _rect(name: str, grid: Grid, span: Span) -> Rect:
    """A block of rows of a matrix, which is a band of columns where it lies transposed."""
    return grid.rect(cols=span) if name in LYING else grid.rect(span)


def _result(sheet: Sheet, step: Step, run: list[Step], name: str, grid: Grid) -> None:
    """White before it is written, pale while unfinished, darker with a tick when final; dashed if on chip only."""
    sheet.fill(grid.rect(), "white")
    writes = [(s.number, tile.rows) for s in run for tile in s.writes if tile.name == name]
    spans = {span for _, span in writes if not any(_inside(other, span) and other != span for _, other in writes)}
    moved = {tile.rows for tile in (*step.reads, *step.writes) if tile.name == name}
    for span in sorted(spans):
        wrote = [number for number, outer in writes if _inside(span, outer)]
        if wrote[0] > step.number:
            continue
        final, rect = wrote[-1] <= step.number, _rect(name, grid, span)
        sheet.fill(rect, tint(name, FINAL if final else UNFINISHED))
        if final and name != "delta" and min(rect[2:]) >= 16 and span not in moved:
            sheet.text(*rect.centre, "✓", fontsize=14, weight="bold", zorder=5, **CENTRED)
    for span in sorted({tile.rows for tile in step.on_chip if tile.name == name} | moved):
        if name == "delta" or span in moved:
            sheet.fill(_rect(name, grid, span), colour(name))
        if span in moved:
            sheet.outline(_rect(name, grid, span))
        elif name != "delta":
            sheet.outline(_rect(name, grid, span), 2.0, DASHES)


def _inside(inner: Span, outer: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _square(sheet: Sheet, step: Step, run: list[Step], grid: Grid) -> set[str]:
    """The pairs of queries and keys: done, now, masked, never visited; returns which kinds there are."""
    sheet.fill(grid.rect(), "white")
    visits = [(s, block) for s in run if (block := _block(s))]
    never, masked = np.full((grid.rows, grid.cols), bool(visits)), np.zeros((grid.rows, grid.cols), bool)
    for s, block in visits:
        cells = tuple(slice(*span) for span in block)
        never[cells] = False
        if s.values.get("masked"):
            masked[cells] |= (s.values["P"][0, 0] == 0).cpu().numpy()
        if s.number < step.number:
            sheet.fill(grid.rect(*block), tint("S", DONE))
    if (now := _block(step)) is not None:
        sheet.fill(grid.rect(*now), colour("S"))
        sheet.outline(grid.rect(*now))
    for block in blocks_of(never):
        sheet.fill(grid.rect(*block), COLOURS["masked"])
    sheet.hatch_cells(grid, never | masked)
    return {kind for kind, cells in (("never visited", never), ("masked", masked)) if cells.any()}


def _block(step: Step) -> tuple[Span, Span] | None:
    """(rows, cols) of the pair of blocks that this step works on, if any."""
    return next(((tile.rows, tile.cols) for tile in step.on_chip if tile.name in SQUARES), None)


def _key(sheet: Sheet, left: float, y: float, kinds: set[str]) -> None:
    """How to read the shades of the square in the middle, in one line."""
    sheet.text(left, y, "never stored:", va="center", fontsize=13, weight="bold")
    entries = [
        (tint("S", DONE), "done"),
        (colour("S"), "now"),
        ("white", "masked"),
        (COLOURS["masked"], "never visited"),
    ]
    at = left + 150
    for face, word in entries:
        if word in ("done", "now") or word in kinds:
            sheet.fill((at, y - 8, 20, 16), face, INK if word == "now" else QUIET, 2 if word == "now" else 1)
            if word in kinds:
                sheet.hatch((at, y - 8, 20, 16))
            sheet.text(at + 25, y, word, va="center", fontsize=13)
            at += 25 + 10.5 * len(word) + 14


# --- SRAM --------------------------------------------------------------------------------------------------


def _sram(sheet: Sheet, step: Step, area: Rect, columns: int) -> None:
    """The products of this step, each as result, left factor and right factor, turned as they are used."""
    ground(sheet, area, "SRAM")
    on_chip_note(sheet, area, step, 8)
    products = step.values.get("products", ())
    if not products:
        text = "no matrix product in this step" if step.on_chip else "nothing is on chip"
        sheet.text(area.x + area.w / 2, area.y + area.h / 2 + 8, text, color=QUIET, **CENTRED)
    each = (area.w - 16) / columns
    for number, product in enumerate(products):
        line, column = divmod(number, columns)
        box = Rect(area.x + 8 + column * each, area.y + 34 + line * PRODUCT, each, PRODUCT)
        _product(sheet, step, product, box)


def _product(sheet: Sheet, step: Step, product: str, area: Rect) -> None:
    """`dV += Pᵀ dO` as three boxes whose sides fit together, the formula below; a diagonal marks a transpose."""
    result, sign, *factors = product.split()
    names, signs = (result, *factors), (sign, "·", "")
    shapes = [
        factor_shape(step, name, {"S": "P", "dP": "dS"}) for name in names
    ]  # P takes the room of S, dS that of dP
    room = 42 + 18  # for the signs
    unit = min(15.0, 60 / max(rows for rows, _ in shapes), (area.w - room - 16) / sum(cols for _, cols in shapes))
    at = area.x + (area.w - room - unit * sum(cols for _, cols in shapes)) / 2
    for name, (rows, cols), after in zip(names, shapes, signs, strict=True):
        grid = Grid(at, area.y + (62 - unit * rows) / 2, rows, cols, unit, unit)
        sheet.fill(grid.rect(), colour(name.rstrip("ᵀ")))
        sheet.cell_lines(grid)
        if name.endswith("ᵀ"):
            diagonal = [grid.x, grid.right], [grid.y, grid.bottom]
            sheet.line(*diagonal, color="white", linewidth=2.5, zorder=3)
        at = grid.right + (0 if not after else 42 if after == sign else 18)
        sheet.text((grid.right + at) / 2, area.y + 31, after, fontsize=15, **CENTRED)
    sheet.text(area.x + area.w / 2, area.y + 66, product, ha="center", va="top", fontsize=14, weight="bold")
