"""The two memories of a GPU to scale, and the tiles that have to fit in the small one."""

from __future__ import annotations

import math

from matplotlib.axes import Axes

from flashlearn.core.inputs import check_block, check_count
from flashlearn.core.steps import Step, Tile
from flashlearn.cost import Hardware
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import Rect, Sheet
from flashlearn.show.draw.style import COLOURS, EDGE, INK, MOVED, QUIET, colour, ink_on
from flashlearn.show.draw.values import check_steps_of

WIDTH, HEIGHT = 1280, 460
SIDE = 380  # of the square of HBM
WIDEST = 220  # height of the wider pipe
LEFT, TOP = 24, 56  # of the square of HBM
MIDDLE = TOP + SIDE / 2
CHIP, UNITS = 660, 960  # where the SRAM and the arithmetic begin


def draw_memory(ax: Axes, hardware: Hardware) -> None:
    """HBM, SRAM and the arithmetic units from left to right; areas and heights of pipes are to scale."""
    sheet = Sheet(ax, WIDTH, HEIGHT)
    small = max(SIDE * math.sqrt(hardware.sram / hardware.memory), 2)
    widest = max(hardware.bandwidth, hardware.sram_bandwidth)
    _pipe(sheet, LEFT + SIDE, CHIP, hardware.bandwidth, widest)
    _pipe(sheet, CHIP + small, UNITS, hardware.sram_bandwidth, widest)
    bold = {"weight": "bold", "linespacing": 1.4}
    sheet.box((LEFT, TOP, SIDE, SIDE), COLOURS["HBM"], QUIET, 2)
    sheet.text(LEFT + SIDE / 2, MIDDLE, f"HBM\n{_size(hardware.memory, 1000)}", fontsize=28, **bold, **CENTRED)
    sheet.box((CHIP, MIDDLE - small / 2, small, small), COLOURS["SRAM"], INK, 2)
    foot = MIDDLE + WIDEST / 2
    words = f"SRAM {_size(hardware.sram, 1024)} in all:\n{hardware.sram_per_sm >> 10} KB in each SM"
    sheet.line([CHIP + small / 2] * 2, [MIDDLE + small / 2, foot + 10], color=INK, linewidth=2)
    below = {"ha": "center", "va": "top", "fontsize": 22, "weight": "bold", "linespacing": 1.3}
    sheet.text(CHIP + small / 2, foot + 14, words, **below)
    sheet.box((UNITS, TOP, WIDTH - UNITS - 24, SIDE), "white", INK, 2)
    tera = next(iter(hardware.peak.values())) / 1e12
    sheet.text((UNITS + WIDTH - 24) / 2, MIDDLE, f"arithmetic\n{tera:.0f} TFLOP/s", fontsize=24, **bold, **CENTRED)
    sheet.text(LEFT, 10, f"{hardware.name}, to scale", va="top", fontsize=20, weight="bold", color=QUIET)
    sheet.paint()


def _pipe(sheet: Sheet, start: float, stop: float, rate: float, widest: float) -> None:
    """As high as its bytes a second say; the number inside if there is room, else above."""
    high = WIDEST * rate / widest
    sheet.box((start, MIDDLE - high / 2, stop - start, high), MOVED, "none", 0)
    inside = high > 40
    style = {"ha": "center", "va": "center" if inside else "bottom", "weight": "bold", "fontsize": 22}
    words = f"{rate / 1e9:.0f} GB/s" if rate < 1e13 else f"{rate / 1e12:.3g} TB/s"
    sheet.text((start + stop) / 2, MIDDLE if inside else MIDDLE - high / 2 - 10, words, **style)


def _size(size: int, kilo: int) -> str:
    giga = size / kilo**3
    return f"{giga:.0f} GB" if giga >= 1 else f"{size / kilo**2:.0f} MB"


def budget_step(block_q: int, block_k: int, D: int, capacity: int) -> Step:
    """The step that `draw_budget` paints: one block of Q, K, V, S and O each, for an SRAM of `capacity` elements."""
    for size, name in ((block_q, "block_q"), (block_k, "block_k"), (D, "D")):
        check_block(size, name)
    check_count(capacity, "capacity")
    shapes = {"Q": (block_q, D), "K": (block_k, D), "V": (block_k, D), "S": (block_q, block_k), "O": (block_q, D)}
    tiles = tuple(Tile(name, ((0, rows), (0, cols)), itemsize=1) for name, (rows, cols) in shapes.items())
    need = sum(rows * cols for rows, cols in shapes.values())
    verdict = "they fit" if need <= capacity else "they do not fit"
    sentence = f"Blocks {block_q} × {block_k} need {need} elements, and the SRAM holds {capacity}: {verdict}."
    return Step(sentence=sentence, phase=verdict, shapes=shapes, on_chip=tiles, values={"capacity": capacity})


def draw_budget(ax: Axes, step: Step) -> None:
    """Paint the tiles of `step.on_chip` end to end, an element each, and a line at `values["capacity"]`."""
    check_steps_of("a budget", step, values=["capacity"])
    sheet = Sheet(ax)
    sizes = [(tile.name, tile.shape[-2], tile.shape[-1]) for tile in step.on_chip]
    need, capacity = sum(rows * cols for _, rows, cols in sizes), step.values["capacity"]
    left, unit, top = 40, (sheet.width - 80) / max(1.12 * need, 1.12 * capacity), sheet.height / 2 - 60
    sheet.fill((left, top - 14, capacity * unit, 128), COLOURS["SRAM"], EDGE["SRAM"], 2)
    sheet.text(left, top - 24, f"SRAM: {capacity} elements", va="bottom", weight="bold", fontsize=20, color=QUIET)
    at: float = left
    for name, rows, cols in sizes:
        tile = Rect(at, top, rows * cols * unit, 100)
        sheet.fill(tile, colour(name), INK, 1.2)
        label = f"{name}\n{rows}×{cols}" if tile.w >= 62 else name if tile.w >= 22 else ""
        style = {"fontsize": 18, "color": ink_on(name), "weight": "bold", "linespacing": 1.4}
        sheet.text(*tile.centre, label, **style, **CENTRED)
        at += tile.w
    edge = left + capacity * unit
    for y in (top - 34, top + 100):
        sheet.outline((edge, y, 0, 34), 4)
    verdict = "they fit" if need <= capacity else f"{need - capacity} too many: they do not fit"
    sheet.text(left, top + 140, f"needed: {need} elements, {verdict}", va="top", weight="bold", fontsize=22)
    sheet.paint()
