"""The backward pass by tiles: both sweeps, the matrices in HBM, and the products of the tiles on chip.

The layout is that of `draw_tiling`, for the products of the backward pass. Whatever has one row for every query
stands beside S (dQ, Q, lse, D, dO), whatever has one for every key lies above or below it, transposed (Vᵀ, Kᵀ,
dKᵀ, dVᵀ): V, which stood at the right of S in the forward pass, is used as Vᵀ now. So the tiles of one step
form a cross: a band of rows, a band of columns, and the block where they meet.
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.grid import Place, Sheet, Span, arrows, blocks_of, pixels, traffic_bars
from flashlearn.show.draw.style import COLOURS, INK, QUIET, canvas, colour, tint

LEFT, COLUMNS, RIGHT = ("dQ", "Q"), ("lse", "delta"), ("dO", "O")
ABOVE, BELOW = ("V", "K"), ("dK", "dV")  # from the top down, all transposed
LYING = (*ABOVE, *BELOW)
RESULTS = ("dQ", "dK", "dV", "delta")
LABELS = {"V": "Vᵀ", "K": "Kᵀ", "dK": "dKᵀ", "dV": "dVᵀ", "delta": "D"}
SQUARES = ("S", "P", "dP", "dS")
MARGIN, STRIP, PRODUCT, THICK = 12, 48, 92, 3  # pixels; THICK: cells drawn for the head dimension, at most
NARROWEST = 36  # pixels: what stands beside S is at least as wide, so that its name finds room
PALE, UNFINISHED, FINAL, DONE = 0.14, 0.2, 0.5, 0.32  # strength of a colour; full where work goes on now


def draw_backward(ax: Axes, step: Step, full: int | None = None) -> None:
    """Paint one step of the backward pass by tiles, of the first head.

    `full` is the number of bytes that fills the bars of traffic (that of the whole run unless given).
    """
    width, height = pixels(ax)
    canvas(ax, width, height)
    sheet, run = Sheet(), list(step.run) or [step]
    most = max(len(s.values.get("products", ())) for s in run)
    lines = 1 if width >= 900 or most <= 2 else 2
    chip = 40 + lines * PRODUCT
    bottom, inner = height - chip - STRIP, width - 2 * MARGIN
    _hbm(ax, sheet, step, run, MARGIN, 2, inner, bottom - 6)
    traffic_bars(ax, sheet, step, MARGIN + 4, bottom, inner - 8, full)
    _sram(ax, sheet, step, MARGIN, height - chip, inner, chip - 2, columns=max(1, math.ceil(most / lines)))
    sheet.paint(ax)


# --- HBM ---------------------------------------------------------------------------------------------------


def _hbm(ax, sheet, step, run, x, y, w, h):
    """Every matrix in its place; S, P, dP and dS share one, and none of them is stored."""
    sheet.fill((x, y, w, h), COLOURS["HBM"], QUIET, 1.5)
    ax.text(x + 10, y + 7, "HBM", weight="bold", va="top", color=QUIET)
    places = _places(step, run, x, y, w, h - 28)
    kinds = _square(sheet, step, run, places["S"])
    for name, place in places.items():
        if name in RESULTS and (name != "delta" or _writes(run, name)):
            _result(ax, sheet, step, run, name, place)
        elif name != "S":
            _input(sheet, step, name, place)
        sheet.grid(place)
        _label(ax, step, name, place)
    names = {"weight": "bold", "fontsize": 13, "zorder": 5}
    ax.text(places["S"].middle, places["S"].y - 5, "S, P, dP, dS", ha="center", va="bottom", **names)
    _key(ax, sheet, x + 10, y + h - 14, kinds)


def _places(step, run, x, y, w, h) -> dict[str, Place]:
    """Where every matrix stands; lying ones are at most THICK cells high, standing ones as wide."""
    (N_q, D), N_k = step.shapes["Q"][-2:], step.shapes["K"][-2]
    used = {tile.name for s in run for tile in s.reads}
    right = [name for name in RIGHT if name in used or name == "dO"]
    thick, gap, thin, between, narrow, names = min(D, THICK), 22, 16, 9, 34, 18
    tall = min(30.0, (h - 16 - names - 4 * between) / (N_q + 4 * thick))
    sides = gap * (2 + len(right)) + narrow * len(COLUMNS)
    broad = min(1.7 * tall, (w - sides - 20) / (N_k + thick * (len(LEFT) + len(right))))
    tall = min(tall, 1.7 * broad)
    tall, broad = (math.floor(size) if size >= 5 else size for size in (tall, broad))
    side, standing = thick * broad, len(LEFT) + len(right)
    if side < NARROWEST:
        side, broad = NARROWEST, min(broad, (w - sides - 64 - NARROWEST * standing) / N_k)
    used_width = broad * N_k + side * standing + sides
    at, top = round(x + (w - used_width) / 2), round(y + 8)
    step_down, step_right = thick * tall + between, side + gap
    middle = top + len(ABOVE) * step_down + names
    places = {}
    for name in LEFT:
        places[name] = Place(at, middle, N_q, D, side / D, tall)
        at += step_right
    places["S"] = S = Place(at, middle, N_q, N_k, broad, tall)
    for number, name in enumerate(LYING):
        y_of = top + number * step_down + (names + N_q * tall + between) * (name in BELOW)
        places[name] = Place(at, y_of, D, N_k, broad, thick * tall / D)
    at = S.right + gap
    for name in COLUMNS:
        places[name] = Place(at, middle, N_q, 1, thin, tall)
        at += narrow
    for name in right:
        places[name] = Place(at, middle, N_q, D, side / D, tall)
        at += step_right
    return places


def _label(ax, step, name, place):
    """The name, with arrows for what was read and written now: above what stands, left of what lies."""
    text, moved = LABELS.get(name, name), arrows(step, name)
    style = {"weight": "bold", "color": INK, "fontsize": 13 if name in COLUMNS else 16, "zorder": 5}
    if name in COLUMNS:  # too narrow for both above
        ax.text(place.middle, place.bottom + 4, moved.strip(), ha="center", va="top", **style)
    else:
        text += moved
    if name in LYING:
        ax.text(place.x - 8, (place.y + place.bottom) / 2, text, ha="right", va="center", **style)
    elif name != "S":
        ax.text(place.middle, place.y - 5, text, ha="center", va="bottom", **style)


def _rect(name, place, span: Span):
    """A block of rows of a matrix, which is a band of columns where it lies transposed."""
    return place.rect(cols=span) if name in LYING else place.rect(span)


def _input(sheet, step, name, place):
    """Pale where it lies in HBM only, full where a copy is on chip, framed if this step read it."""
    sheet.fill(place.rect(), tint(name, PALE))
    for tiles, read in ((step.on_chip, False), (step.reads, True)):
        for tile in (tile for tile in tiles if tile.name == name):
            sheet.fill(_rect(name, place, tile.rows), colour(name))
            if read:
                sheet.outline(_rect(name, place, tile.rows))


def _result(ax, sheet, step, run, name, place):
    """White before it is written, pale while unfinished, darker with a tick when final; dashed if on chip only."""
    sheet.fill(place.rect(), "white")
    writes = [(s.number, tile.rows) for s in run for tile in s.writes if tile.name == name]
    spans = {span for _, span in writes if not any(_inside(other, span) and other != span for _, other in writes)}
    moved = {tile.rows for tile in (*step.reads, *step.writes) if tile.name == name}
    for span in sorted(spans):
        wrote = [number for number, outer in writes if _inside(span, outer)]
        if wrote[0] > step.number:
            continue
        final, rect = wrote[-1] <= step.number, _rect(name, place, span)
        sheet.fill(rect, tint(name, FINAL if final else UNFINISHED))
        if final and name != "delta" and min(rect[2:]) >= 16 and span not in moved:
            centre = rect[0] + rect[2] / 2, rect[1] + rect[3] / 2
            ax.text(*centre, "✓", ha="center", va="center", fontsize=14, weight="bold", zorder=5)
    for span in sorted({tile.rows for tile in step.on_chip if tile.name == name} | moved):
        if name == "delta" or span in moved:
            sheet.fill(_rect(name, place, span), colour(name))
        if span in moved:
            sheet.outline(_rect(name, place, span))
        elif name != "delta":
            sheet.outline(_rect(name, place, span), 2.0, (0, (3, 2)))


def _writes(run, name) -> bool:
    return any(tile.name == name for s in run for tile in s.writes)


def _inside(inner: Span, outer: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _square(sheet, step, run, place) -> set[str]:
    """The pairs of queries and keys: done, now, masked, never visited; returns which kinds there are."""
    sheet.fill(place.rect(), "white")
    visits = [(s, block) for s in run if (block := _block(s))]
    never, masked = np.full((place.rows, place.cols), bool(visits)), np.zeros((place.rows, place.cols), bool)
    for s, block in visits:
        cells = tuple(slice(*span) for span in block)
        never[cells] = False
        if s.values.get("masked"):
            masked[cells] |= (s.values["P"][0, 0] == 0).cpu().numpy()
        if s.number < step.number:
            sheet.fill(place.rect(*block), tint("S", DONE))
    if _block(step):
        sheet.fill(place.rect(*_block(step)), colour("S"))
        sheet.outline(place.rect(*_block(step)))
    for block in blocks_of(never):
        sheet.fill(place.rect(*block), COLOURS["masked"])
    for block in blocks_of(never | masked):
        sheet.hatch(place.rect(*block))
    return {kind for kind, cells in (("never visited", never), ("masked", masked)) if cells.any()}


def _block(step) -> tuple[Span, Span] | None:
    """(rows, cols) of the pair of blocks that this step works on, if any."""
    return next(((tile.rows, tile.cols) for tile in step.on_chip if tile.name in SQUARES), None)


def _key(ax, sheet, left, y, kinds):
    """How to read the shades of the square in the middle, in one line."""
    ax.text(left, y, "never stored:", va="center", fontsize=13, weight="bold")
    entries = [(tint("S", DONE), "done"), (colour("S"), "now"), ("white", "masked"),
               (COLOURS["masked"], "never visited")]  # fmt: skip
    at = left + 150
    for face, word in entries:
        if word in ("done", "now") or word in kinds:
            sheet.fill((at, y - 8, 20, 16), face, INK if word == "now" else QUIET, 2 if word == "now" else 1)
            if word in kinds:
                sheet.hatch((at, y - 8, 20, 16))
            ax.text(at + 25, y, word, va="center", fontsize=13)
            at += 25 + 10.5 * len(word) + 14


# --- SRAM --------------------------------------------------------------------------------------------------


def _sram(ax, sheet, step, x, y, w, h, columns):
    """The products of this step, each as result, left factor and right factor, turned as they are used."""
    sheet.fill((x, y, w, h), COLOURS["SRAM"], "#B8860B", 2)
    ax.text(x + 10, y + 7, "SRAM", weight="bold", va="top", color=QUIET)
    note = f"{sum(tile.nbytes for tile in step.on_chip):,} B on chip"
    ax.text(x + w - 10, y + 8, note, va="top", ha="right", fontsize=14)
    products = step.values.get("products", ())
    if not products:
        text = "no matrix product in this step" if step.on_chip else "nothing is on chip"
        ax.text(x + w / 2, y + h / 2 + 8, text, ha="center", va="center", color=QUIET)
    each = (w - 16) / columns
    for number, product in enumerate(products):
        line, column = divmod(number, columns)
        _product(ax, sheet, step, product, x + 8 + column * each, y + 34 + line * PRODUCT, each)


def _product(ax, sheet, step, product, x, y, w):
    """`dV += Pᵀ dO` as three boxes whose sides fit together, the formula below; a diagonal marks a transpose."""
    result, sign, *factors = product.split()
    names, signs = (result, *factors), (sign, "·", "")
    shapes = [_shape(step, name) for name in names]
    room = 42 + 18  # for the signs
    unit = min(15.0, 60 / max(rows for rows, _ in shapes), (w - room - 16) / sum(cols for _, cols in shapes))
    at = x + (w - room - unit * sum(cols for _, cols in shapes)) / 2
    for name, (rows, cols), after in zip(names, shapes, signs, strict=True):
        place = Place(at, y + (62 - unit * rows) / 2, rows, cols, unit, unit)
        sheet.fill(place.rect(), colour(name.rstrip("ᵀ")))
        sheet.grid(place)
        if name.endswith("ᵀ"):
            ax.plot([place.x, place.right], [place.y, place.bottom], color="white", linewidth=2.5, zorder=3)
        at = place.right + (0 if not after else 42 if after == sign else 18)
        ax.text((place.right + at) / 2, y + 31, after, ha="center", va="center", fontsize=15)
    ax.text(x + w / 2, y + 66, product, ha="center", va="top", fontsize=14, weight="bold")


def _shape(step, name) -> tuple[int, int]:
    """Rows and columns of a factor as it is used: turned over if it is transposed."""
    plain = name.rstrip("ᵀ")
    on_chip = {"S": "P", "dP": "dS"}.get(plain, plain)  # P takes the place of S, dS that of dP
    tile = next(tile for tile in step.on_chip if tile.name == on_chip)
    rows, cols = (stop - start for start, stop in (tile.rows, tile.cols))
    return (cols, rows) if name.endswith("ᵀ") else (rows, cols)
