"""A matrix product by blocks, seen twice: element by element, and block by block."""

from __future__ import annotations

import math
from functools import partial

from flashlearn.core.signs import fixed
from flashlearn.core.steps import Step, Tile
from flashlearn.show.draw.memories import PAD, arrows, byte_counters, memory, on_chip_note
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Rect, Scene, Span
from flashlearn.show.draw.style import index, role
from flashlearn.show.draw.values import check_steps_of

NAMES = ("A", "B", "C")
NAME, BETWEEN = 20, 24  # pixels above a matrix for its name, and between B and C


def draw_matmul(step: Step, *, narrow: bool = False) -> Scene:
    """One step of C = A B: elements at the left, the same matrices as grids of blocks at the right."""
    check_steps_of("a matrix product", step, shapes=NAMES)
    sizes = _block_sizes(step)
    width, high, chip = (NARROW, 240, 150) if narrow else (WIDE, 272, 138)
    scene = Scene(width, high + 50 + chip)
    memory(scene, Rect(0, 0, width, high), "hbm")
    half = width / 2
    for left, title, cells in ((0, "by elements", dict.fromkeys(NAMES, (1, 1))), (half, "by blocks", sizes)):
        area = Rect(left + PAD, 34, half - PAD - 6, high - 44)
        scene.text(left + half / 2 + 14, 20, title, 13, anchor="middle", role="quiet")
        counts = {name: tuple(map(_ceil, step.shapes[name], cells[name])) for name in NAMES}
        for name, grid in _grids(counts, area).items():
            _matrix(scene, step, name, grid, cells[name], "block" if cells is sizes else "element")
            if cells is sizes and min(grid.w, grid.h) >= 21:
                _block_names(scene, step, name, grid, cells[name])
    byte_counters(scene, step, Rect(PAD, high + 8, width - 2 * PAD, 32), size=12 if narrow else 13)
    _sram(scene, step, sizes, Rect(0, high + 50, width, chip))
    return scene


def _grids(counts: dict[str, tuple[int, ...]], area: Rect) -> dict[str, Grid]:
    """A at the left of C, B above it, as the product puts them."""
    (M, K), (_, N) = counts["A"], counts["B"]
    x, y, w, h = area
    size = min((w - BETWEEN) / (K + N), (h - NAME - BETWEEN - 10) / (K + M), 34)
    size = math.floor(2 * size) / 2 if size > 2 else size
    left, top = round(x + (w - size * (K + N) - BETWEEN) / 2), y + NAME
    middle, right = top + K * size + BETWEEN, left + K * size + BETWEEN
    return {
        "A": Grid(left, middle, M, K, size, size),
        "B": Grid(right, top, K, N, size, size),
        "C": Grid(right, middle, M, N, size, size),
    }


def _matrix(scene: Scene, step: Step, name: str, grid: Grid, cell: tuple[int, int], view: str) -> None:
    """Pale where it lies, full and framed where this step works; C also half-tone where it is written."""
    face = role(name)
    scene.rect(grid.rect(), "blank")
    if name != "C":
        scene.rect(grid.rect(), face, "pale")
    else:
        for tile in (tile for s in step.so_far for tile in s.writes if tile.name == "C"):
            scene.rect(grid.rect(*_in_cells(tile, cell)), face, "half")
    if (at_work := _at_work(step, name)) is not None:
        here = grid.rect(*_in_cells(at_work, cell))
        scene.rect(here, face)
        scene.outline(here, id=f"{view}-{name}")
    scene.cell_lines(grid)
    y, va = (grid.bottom + 4, "top") if name == "C" else (grid.y - 4, "bottom")
    scene.text(grid.middle, y, name + arrows(step, name), 14, va=va, anchor="middle", bold=True)


def _at_work(step: Step, name: str) -> Tile | None:
    """The tile of a matrix that is on chip; of C, what is being summed up."""
    return next((tile for tile in step.on_chip if tile.name == (name if name != "C" else "acc")), None)


def _block_names(scene: Scene, step: Step, name: str, grid: Grid, cell: tuple[int, int]) -> None:
    """The name of every block in its cell, bold where this step works."""
    tile = _at_work(step, name)
    for i in range(grid.rows):
        for j in range(grid.cols):
            full = tile is not None and _in_cells(tile, cell) == ((i, i + 1), (j, j + 1))
            ink = "ink" if not full else "on-Q" if name == "A" else "on"
            scene.text(*grid.cell(i, j).centre, name + index(i, j), 12, anchor="middle", bold=full, role=ink)


def _sram(scene: Scene, step: Step, sizes: dict[str, tuple[int, int]], area: Rect) -> None:
    """The tiles on chip, with the signs of the product between them."""
    memory(scene, area, "sram", on_chip_note(step))
    narrow, signs = scene.width == NARROW, {"A": "·", "B": "→"}
    tall, gap = area.h - 80, 30 if narrow else 60
    blocks = {"A": sizes["A"], "B": sizes["B"], "acc": sizes["C"]}
    room = area.w - 2 * PAD - 2 * gap
    broad = min(44.0, room / sum(max(1, cols) for _, cols in blocks.values()))
    used = sum(_wide(block, broad) for block in blocks.values()) + 2 * gap
    left = area.x + (area.w - used) / 2
    for tile in step.on_chip:
        block = blocks[tile.name]
        rows, cols = tile.shape
        grid = Grid(left, area.y + 56, rows, cols, _wide(block, broad) / block[1], min(22.0, tall / block[0]))
        _tile(scene, step, tile, block, grid)
        left += _wide(block, broad) + gap
        if tile.name in signs:
            scene.text(left - gap / 2, area.y + 56 + tall / 2, signs[tile.name], 22, anchor="middle")


def _wide(block: tuple[int, int], broad: float) -> float:
    return broad * max(1, block[1])


def _tile(scene: Scene, step: Step, tile: Tile, block: tuple[int, int], grid: Grid) -> None:
    """One tile on chip: its name above, its shape below, its numbers where the step has them and there is room."""
    at = index(*(start // each for (start, _), each in zip(tile.index, block, strict=True)))
    face = role("C" if tile.name == "acc" else tile.name)
    values = step.values.get(tile.name)
    with scene.group(f"chip-{tile.name}", grid.rect()):
        scene.rect(grid.rect(), face)
        scene.cell_lines(grid)
        if values is not None and grid.w >= 36 and grid.h >= 14:
            values = values if tile.name == "acc" else values[tuple(slice(*span) for span in tile.index)]
            digits = 2 if grid.w >= 40 else 1
            show, ink = partial(fixed, digits=digits), "on-Q" if tile.name == "A" else "on"
            scene.numbers(grid, values.tolist(), show, size=12, role=ink)
    scene.text(grid.x, grid.y - 4, tile.name + at + arrows(step, tile.name), 13, va="bottom", bold=True)
    scene.text(grid.x, grid.bottom + 3, f"{grid.rows}×{grid.cols}", 12, va="top", role="quiet")


def _block_sizes(step: Step) -> dict[str, tuple[int, int]]:
    """The largest tile of every matrix in the run: (rows, cols)."""
    found = {name: (1, 1) for name in NAMES}
    for s in step.run or (step,):
        for tile in (*s.reads, *s.writes, *s.on_chip):
            name = "C" if tile.name == "acc" else tile.name
            (rows, cols), (most_rows, most_cols) = tile.shape, found[name]
            found[name] = max(rows, most_rows), max(cols, most_cols)
    return found


def _in_cells(tile: Tile, cell: tuple[int, int]) -> tuple[Span, Span]:
    """(rows, cols) of a tile in cells of that many elements."""
    rows, cols = ((start // each, _ceil(stop, each)) for (start, stop), each in zip(tile.index, cell, strict=True))
    return rows, cols


def _ceil(n: int, each: int) -> int:
    return -(-n // each)
