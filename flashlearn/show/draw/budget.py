"""The tiles that must be on chip together, against the elements that the SRAM holds."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.inputs import check_block, check_count
from flashlearn.core.steps import Step, Tile
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import Rect, Sheet
from flashlearn.show.draw.style import COLOURS, EDGE, INK, QUIET, colour, ink_on
from flashlearn.show.draw.values import check_steps_of


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
