"""The two memories of a GPU to scale, the tiles that have to fit in the small one, and what the colours mean."""

from __future__ import annotations

import math

from flashlearn.core.inputs import check_block, check_count
from flashlearn.core.steps import Step, Tile
from flashlearn.cost import Hardware
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.scene import NARROW, WIDE, Rect, Scene
from flashlearn.show.draw.style import role
from flashlearn.show.draw.values import check_steps_of


def draw_memory(hardware: Hardware, *, narrow: bool = False) -> Scene:
    """HBM, SRAM and the arithmetic units from left to right; areas and heights of pipes are to scale."""
    side, widest = (118, 70) if narrow else (260, 150)  # of the square of HBM, and the height of the wider pipe
    scene = Scene(NARROW if narrow else WIDE, 36 + side + (64 if narrow else 12))
    left, top, units = (0, 36, 262) if narrow else (PAD, 36, 660)
    chip = 190 if narrow else 455
    middle = top + side / 2
    small = max(side * math.sqrt(hardware.sram / hardware.memory), 1.5)
    rates = hardware.bandwidth, hardware.sram_bandwidth
    for (start, stop), rate in zip(((left + side, chip), (chip + small, units)), rates, strict=True):
        _pipe(scene, start, stop, middle, rate, widest * rate / max(rates))
    scene.rect((left, top, side, side), "hbm", edge="hbm-edge", stroke=1.5, id="hbm")
    size = 15 if narrow else 20
    for down, words in ((-size * 0.8, "HBM"), (size * 0.8, _size(hardware.memory, 1000))):
        scene.text(left + side / 2, middle + down, words, size, anchor="middle", bold=True)
    scene.rect((chip, middle - small / 2, small, small), "sram", edge="ink", stroke=1.5, id="sram")
    foot = middle + widest / 2
    scene.line((chip + small / 2, middle + small / 2), (chip + small / 2, foot + 6), stroke=1.5)
    about = f"SRAM {_size(hardware.sram, 1024)} in all:", f"{hardware.sram_per_sm >> 10} KB in each SM"
    for line, words in enumerate(about):
        scene.text(chip + small / 2, foot + 18 + 19 * line, words, 13 if narrow else 15, anchor="middle", bold=True)
    scene.rect((units, top, scene.width - units - (0 if narrow else PAD), side), "blank", edge="ink", stroke=1.5)
    tera = next(iter(hardware.peak.values())) / 1e12
    for down, words in ((-12, "arithmetic"), (12, f"{tera:.0f} TFLOP/s")):
        scene.text(
            (units + scene.width - (0 if narrow else PAD)) / 2,
            middle + down,
            words,
            13 if narrow else 18,
            anchor="middle",
            bold=True,
        )
    scene.text(PAD if not narrow else 0, 16, f"{hardware.name}, to scale", 14, role="quiet", bold=True)
    return scene


def _pipe(scene: Scene, start: float, stop: float, middle: float, rate: float, high: float) -> None:
    """As high as its bytes a second say; the number inside if there is room, else above."""
    words = f"{rate / 1e9:.0f} GB/s" if rate < 1e13 else f"{rate / 1e12:.3g} TB/s"
    scene.rect((start, middle - high / 2, stop - start, high), "moved", id=f"pipe-{words}")
    size = 16 if width(words, 16, True) <= stop - start - 8 else 12
    y, va, ink = (middle, "middle", "on") if high > 24 else (middle - high / 2 - 5, "bottom", "ink")
    scene.text((start + stop) / 2, y, words, size, va=va, anchor="middle", bold=True, role=ink)


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


def draw_budget(step: Step, *, narrow: bool = False) -> Scene:
    """The tiles of `step.on_chip` end to end, an element each, and a line at `values["capacity"]`."""
    check_steps_of("a budget", step, values=["capacity"])
    scene = Scene(NARROW if narrow else WIDE, 206 if narrow else 186)
    sizes = [(tile.name, tile.shape[-2], tile.shape[-1]) for tile in step.on_chip]
    need, capacity = sum(rows * cols for _, rows, cols in sizes), step.values["capacity"]
    unit, top = (scene.width - 2 * PAD - 2) / max(need, capacity, 1), 50
    scene.rect((PAD, top - 10, capacity * unit, 84), "sram", edge="sram-edge", stroke=1.5, id="sram")
    scene.text(PAD, top - 24, f"SRAM: {capacity} elements", 15, bold=True)
    at: float = PAD
    for name, rows, cols in sizes:
        tile = Rect(at, top, rows * cols * unit, 64)
        scene.rect(tile, role(name), edge="quiet", id=f"tile-{name}")
        shape, ink = f"{rows}×{cols}", "on-Q" if name == "Q" else "on"
        words = [name, shape] if tile.w >= width(shape, 13, True) + 4 else [name] * (tile.w >= 18)
        for line, each in enumerate(words):
            y = tile.centre[1] + (line - (len(words) - 1) / 2) * 20
            scene.text(tile.centre[0], y, each, 14 if line == 0 else 13, anchor="middle", bold=True, role=ink)
        at = tile.right
    edge = PAD + capacity * unit
    for y in (top - 18, top + 66):
        scene.line((edge, y), (edge, y + 16), stroke=3, layer=4)
    verdict = "they fit" if need <= capacity else f"{need - capacity} too many: they do not fit"
    words = [f"needed: {need} elements,", verdict] if narrow else [f"needed: {need} elements, {verdict}"]
    for line, each in enumerate(words):
        scene.text(PAD, top + 108 + 20 * line, each, 15, bold=True)
    return scene


ENTRIES = {
    "Q": ("Q  queries",),
    "K": ("K  keys",),
    "V": ("V  values",),
    "O": ("O  output, acc",),
    "S": ("S, P  scores, probabilities;", "x, y  in one row of softmax"),
    "m": ("m, l  running maximum", "and running sum"),
    "hbm": ("HBM  the GPU's memory:", "large and slow"),
    "sram": ("SRAM  memory on the chip:", "small and fast"),
    "masked": ("masked: nobody sees it,", "always hatched"),
}


def draw_colour_key(*, narrow: bool = False) -> Scene:
    """The colour key: every colour, its one meaning, and how else it can be told."""
    columns, each, high = (1, NARROW, 54) if narrow else (3, 290, 66)
    scene = Scene(NARROW if narrow else WIDE, 10 + high * -(-len(ENTRIES) // columns))
    for n, (name, lines) in enumerate(ENTRIES.items()):
        line, column = divmod(n, columns)
        square = Rect(PAD + each * column, 8 + high * line, 44, 44)
        scene.rect(square, name, edge="quiet")
        if name == "masked":
            scene.hatch(square)
        for row, words in enumerate(lines):
            y = square.centre[1] + (row - (len(lines) - 1) / 2) * 19
            scene.text(square.right + 12, y, words, 14)
    return scene
