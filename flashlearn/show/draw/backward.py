"""The backward pass by tiles: both passes, the matrices in HBM, and the products of the tiles on chip.

What has a row for every query is next to S, what has one for every key is above or below it, transposed: the tiles
of a step form a cross.
"""

from __future__ import annotations

import math

from flashlearn.core.steps import Step
from flashlearn.show.draw.from_kernel import factor_shape
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, ROUND, arrows, byte_counters, matrix, memory, on_chip_note
from flashlearn.show.draw.pairs import Block, Visit, pairs
from flashlearn.show.draw.scene import FRAMES, NARROW, WIDE, Grid, Rect, Scene, Span, hole, rounded
from flashlearn.show.draw.style import role
from flashlearn.show.draw.values import check_steps_of

LEFT, COLUMNS, RIGHT = ("dQ", "Q"), ("lse", "delta"), ("dO", "O")
ABOVE, BELOW = ("V", "K"), ("dK", "dV")  # from the top down, all transposed
LYING = (*ABOVE, *BELOW)
RESULTS = ("dQ", "dK", "dV", "delta")
LABELS = {"V": "Vᵀ", "K": "Kᵀ", "dK": "dKᵀ", "dV": "dVᵀ", "delta": "δ"}
SQUARES = ("S", "P", "dP", "dS")
THICK = 3  # cells drawn for the head dimension, at most
SIDE = 250  # pixels at the right of a wide HBM, for counters and the key
BETWEEN, NAMES = 7, 20  # pixels between what lies, and above S for names
PRODUCT, LOW = 84, 70  # pixels: height of a product on chip, and on a phone


def draw_backward(step: Step, *, narrow: bool = False, full: int | None = None) -> Scene:
    """One step of the backward pass by tiles, of the first head.

    `full` is the number of bytes that fills the bars of traffic (that of the whole run unless given).
    """
    check_steps_of("the backward pass by tiles", step, shapes=["Q", "K", "V", "dO", "dQ", "dK", "dV"], never=SQUARES)
    run = list(step.run) or [step]
    most = max(len(s.values.get("products", ())) for s in run)
    columns = min(max(1, most), 2 if narrow else 5)
    lines = max(1, math.ceil(most / columns))
    grids = _grids(step, run, narrow)
    high = max(grids["dV"].bottom, grids["S"].bottom) + (112 if narrow else 14)
    chip = 36 + lines * (LOW if narrow else PRODUCT)
    scene = Scene(NARROW if narrow else WIDE, high + 10 + chip)
    _hbm(scene, step, run, grids, Rect(0, 0, scene.width, high), full)
    _sram(scene, step, Rect(0, high + 10, scene.width, chip), columns)
    return scene


# --- HBM ---------------------------------------------------------------------------------------------------


def _hbm(scene: Scene, step: Step, run: list[Step], grids: dict[str, Grid], area: Rect, full: int | None) -> None:
    """Every matrix in its place; S, P, dP and dS share one outside HBM: none of them is stored."""
    S = grids["S"].rect()
    if S.w * S.h:
        scene.polygon(rounded(area, ROUND), hole(S.inset(-4)), face="hbm", edge="hbm-edge", id="hbm")
        scene.text(area.x + PAD, area.y + 19, "HBM", 15, bold=True)
    else:
        memory(scene, area, "hbm")
    visits = [Visit(s.number, block, _masked(s)) for s in run if (block := _block(s))]
    entries = pairs(scene, grids["S"], visits, step.number, _block(step))
    for name, grid in grids.items():
        if name in RESULTS and (name != "delta" or any(tile.name == name for s in run for tile in s.writes)):
            _result(scene, step, run, name, grid)
        elif name != "S":
            matrix(scene, step, name, grid, lying=name in LYING)
        scene.cell_lines(grid, "quiet" if name != "S" else "hatch", dashed=name == "S")
        if name != "S":
            _label(scene, step, name, grid)
    words = "S, P, dP, dS: never stored"
    if scene.width == NARROW:
        byte_counters(scene, step, Rect(PAD, area.bottom - 92, area.w - 2 * PAD, 32), full, 12)
        scene.text(PAD, area.bottom - 42, words, 12, bold=True)
        scene.legend(PAD, area.bottom - 20, entries, right=area.right)
    else:
        side = Rect(area.right - SIDE - PAD, 14, SIDE, 76)
        byte_counters(scene, step, side, full)
        scene.legend(side.x, 112, entries, 13, right=area.right)
        fits = width(words, 12, True) <= S.w + 24
        x, y, anchor = (S.centre[0], S.y - 13, "middle") if fits else (side.x, 158, "start")
        scene.text(x, y, words, 12, anchor=anchor, bold=True)


def _grids(step: Step, run: list[Step], narrow: bool) -> dict[str, Grid]:
    """Where every matrix stands; lying ones are at most THICK cells high, standing ones as wide."""
    (N_q, D), N_k = step.shapes["Q"][-2:], step.shapes["K"][-2]
    used = {tile.name for s in run for tile in s.reads}
    right = [name for name in RIGHT if name in used or name == "dO"]
    thick, gap, column = min(D, THICK), 12 if narrow else 20, 22 if narrow else 32
    room = Rect(
        PAD, 28 if narrow else 14, NARROW - 2 * PAD if narrow else WIDE - SIDE - 4 * PAD, 206 if narrow else 288
    )
    sides = gap * (2 + len(right)) + column * len(COLUMNS)
    least = 28 if narrow else 34  # what is next to S is at least as wide, so that its name finds room
    tall = min(22.0, (room.h - NAMES - 4 * BETWEEN) / (max(N_q, 1) + 4 * thick))
    standing = len(LEFT) + len(right)
    broad = min(1.7 * tall, (room.w - sides) / (N_k + thick * standing))
    tall = min(tall, 1.7 * broad)
    side = thick * broad
    if side < least:
        side = least
        broad = min(broad, (room.w - sides - least * standing) / max(N_k, 1))
    at = room.x + max(0.0, (room.w - broad * N_k - side * standing - sides) / 2)
    down = thick * tall + BETWEEN
    middle = room.y + len(ABOVE) * down + NAMES
    thin = 11 if narrow else 15
    grids = {}
    for name in (*LEFT, "S", *COLUMNS, *right):
        if name == "S":
            grids[name] = Grid(at, middle, N_q, N_k, broad, tall)
            at = grids[name].right + gap
        elif name in COLUMNS:
            grids[name] = Grid(at, middle, N_q, 1, thin, tall)
            at += column
        else:
            grids[name] = Grid(at, middle, N_q, D, side / D, tall)
            at += side + gap
    for number, name in enumerate(LYING):
        y = room.y + number * down + (NAMES + N_q * tall + BETWEEN) * (name in BELOW)
        grids[name] = Grid(grids["S"].x, y, D, N_k, broad, thick * tall / D)
    return grids


def _label(scene: Scene, step: Step, name: str, grid: Grid) -> None:
    """The name, with arrows for what was read and written now: above what stands, left of what lies."""
    text, moved = LABELS.get(name, name), arrows(step, name)
    size = 13 if scene.width == WIDE else 12
    if name in COLUMNS:  # too narrow for both above
        scene.text(grid.middle, grid.bottom + 3, moved.strip(), 12, va="top", anchor="middle", bold=True)
        scene.text(grid.middle, grid.y - 4, text, 12, va="bottom", anchor="middle", bold=True)
    elif name in LYING:
        scene.text(grid.x - 7, (grid.y + grid.bottom) / 2, text + moved, size, anchor="end", bold=True)
    else:
        fits = width(text + moved, size, True) <= grid.w * grid.cols + 14
        scene.text(grid.middle, grid.y - 4, text + moved * fits, size, va="bottom", anchor="middle", bold=True)
        if moved and not fits:
            scene.text(grid.middle, grid.bottom + 3, moved.strip(), 12, va="top", anchor="middle", bold=True)


def _rect(name: str, grid: Grid, span: Span) -> Rect:
    """A block of rows of a matrix, a strip of columns where it is transposed."""
    return grid.rect(cols=span) if name in LYING else grid.rect(span)


def _result(scene: Scene, step: Step, run: list[Step], name: str, grid: Grid) -> None:
    """White before it is written, pale while unfinished, darker with a tick when final; dashed if on chip only."""
    face = role(name)
    scene.rect(grid.rect(), "blank")
    writes = [(s.number, tile.rows) for s in run for tile in s.writes if tile.name == name]
    spans = {span for _, span in writes if not any(_inside(other, span) and other != span for _, other in writes)}
    moved = {tile.rows for tile in (*step.reads, *step.writes) if tile.name == name}
    for span in sorted(spans):
        wrote = [number for number, outer in writes if _inside(span, outer)]
        if wrote[0] > step.number:
            continue
        final, rect = wrote[-1] <= step.number, _rect(name, grid, span)
        scene.rect(rect, face, "half" if final else "pale")
        if final and name != "delta" and min(rect[2:]) >= 13 and span not in moved:
            scene.text(*rect.centre, "✓", 12, anchor="middle", bold=True)
    for span in sorted({tile.rows for tile in step.on_chip if tile.name == name} | moved):
        if name == "delta" or span in moved:
            scene.rect(_rect(name, grid, span), face)
        if span in moved:
            scene.outline(_rect(name, grid, span))
        elif name != "delta":
            scene.outline(_rect(name, grid, span), 1.5, dashed=True)


def _inside(inner: Span, outer: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _masked(step: Step) -> list[list[bool]] | None:
    """Which cells of the block of a step the mask hides."""
    return (step.values["P"][0, 0] == 0).tolist() if step.values.get("masked") else None


def _block(step: Step) -> Block | None:
    """(rows, cols) of the pair of blocks that this step works on, if any."""
    return next(((tile.rows, tile.cols) for tile in step.on_chip if tile.name in SQUARES), None)


# --- SRAM --------------------------------------------------------------------------------------------------


def _sram(scene: Scene, step: Step, area: Rect, columns: int) -> None:
    """The products of this step, each as result, left factor and right factor, turned as they are used."""
    memory(scene, area, "sram", on_chip_note(step))
    products = step.values.get("products", ())
    if not products:
        words = "no matrix product in this step" if step.on_chip else "nothing is on chip"
        scene.text(area.x + area.w / 2, area.y + area.h / 2 + 8, words, role="quiet", anchor="middle")
    each, high = (area.w - 16) / columns, LOW if scene.width == NARROW else PRODUCT
    for number, product in enumerate(products):
        line, column = divmod(number, columns)
        _product(scene, step, product, Rect(area.x + 8 + column * each, area.y + 34 + line * high, each, high))


def _product(scene: Scene, step: Step, product: str, area: Rect) -> None:
    """`dV += Pᵀ dO` as three boxes whose sides fit together, the formula below; a diagonal marks a transpose."""
    result, sign, *factors = product.split()
    names, signs = (result, *factors), (sign, "·", "")
    shapes = [factor_shape(step, name, {"S": "P", "dP": "dS"}) for name in names]  # P takes the room of S, dS of dP
    room, high = 32 + 16, area.h - 28  # for the signs, and for the factors
    unit = min(
        12.0, (high - 2) / max(rows for rows, _ in shapes), (area.w - room - 24) / sum(cols for _, cols in shapes)
    )
    at = area.x + (area.w - room - unit * sum(cols for _, cols in shapes)) / 2
    for name, (rows, cols), after in zip(names, shapes, signs, strict=True):
        grid = Grid(at, area.y + (high - unit * rows) / 2, rows, cols, unit, unit)
        plain = name.rstrip("ᵀ")
        scene.rect(grid.rect(), role(plain))
        scene.cell_lines(grid)
        if name.endswith("ᵀ"):
            scene.line((grid.x, grid.y), (grid.right, grid.bottom), role="paper", stroke=2, layer=FRAMES)
        at = grid.right + (0 if not after else 32 if after == sign else 16)
        scene.text((grid.right + at) / 2, area.y + high / 2, after, 14, anchor="middle")
    scene.text(area.x + area.w / 2, area.y + high + 10, product, 13, anchor="middle", bold=True)
