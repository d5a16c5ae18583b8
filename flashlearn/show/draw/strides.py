"""A tensor in memory order and in index order; the sectors of memory that one load of a warp touches."""

from __future__ import annotations

from collections.abc import Iterator

from flashlearn.core.signs import number
from flashlearn.core.steps import Step
from flashlearn.cost.sectors import SECTOR
from flashlearn.show.draw.letters import width
from flashlearn.show.draw.memories import PAD, memory
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Rect, Scene
from flashlearn.show.draw.values import check_step, check_steps_of


def draw_strides(step: Step, *, narrow: bool = False) -> Scene:
    """One step of a walk over a tensor of up to three dimensions; the element of this step is picked out.

    values  memory, shape, strides, offsets, start; index and offset of the element, if one is visited
    """
    check_steps_of("a walk over a tensor", step, values=["memory", "shape", "strides", "offsets", "start"])
    shape = tuple(step.values["shape"])
    if len(shape) > 3:
        raise ValueError(f"expected a tensor of at most three dimensions, got shape {shape}")
    _, rows, _ = (1,) * (3 - len(shape)) + shape
    lines = len(shape) + (1 if step.values["start"] else 0) + 2
    high, sums = 52 + min(32.0, 190 / max(rows, 1)) * rows, 30 + 24 * lines
    scene = Scene(NARROW, 150 + high + sums) if narrow else Scene(WIDE, 150 + max(high, sums) + 10)
    _memory(scene, step, Rect(0, 0, scene.width, 138))
    _index_order(scene, step, Rect(PAD, 152, scene.width - 2 * PAD if narrow else 560, high))
    _arithmetic(scene, step, *((PAD, 150 + high) if narrow else (610, 152)))
    return scene


def _memory(scene: Scene, step: Step, area: Rect) -> None:
    """All elements of the storage with their addresses, and the hop from the element before."""
    values, current = step.values["memory"].tolist(), step.values.get("offset")
    each = (area.w - 2 * PAD) / max(len(values), 1)
    grid = Grid(area.x + PAD, area.y + 82, 1, len(values), each, 28)
    memory(scene, area, "hbm", "below: offset" if scene.width == WIDE else "", "memory: one long row of elements")
    visited = [s.values["offset"] for s in step.so_far if "offset" in s.values]
    scene.rect(grid.rect(), "blank")
    numbers = max((width(number(value, 1), 13, True) for value in values), default=0) <= each - 2
    offsets = width(str(len(values)), 12) <= each - 2
    for offset, value in enumerate(values):
        rect = grid.cell(0, offset)
        _cell(scene, rect, offset == current, offset in visited, "element")
        if numbers:
            ink = "on" if offset == current else "ink"
            scene.text(*rect.centre, number(value, 1), 13, anchor="middle", bold=offset == current, role=ink)
        if offsets:
            scene.text(rect.centre[0], grid.bottom + 12, offset, 12, anchor="middle", role="quiet")
    scene.cell_lines(grid)
    if current is not None and len(visited) > 1:
        start, end = (grid.x + (offset + 0.5) * each for offset in visited[-2:])
        _hop(scene, start, end, grid.y - 3, visited[-1] - visited[-2])


def _cell(scene: Scene, rect: Rect, current: bool, seen: bool, id: str) -> None:
    """An element: full and framed if it is visited now, half-tone if before, pale if not yet."""
    scene.rect(rect, "S", "" if current else "half" if seen else "pale")
    if current:
        scene.outline(rect, id=id)


def _hop(scene: Scene, start: float, end: float, y: float, by: int) -> None:
    """An arrow from one element to the next, with how far it goes."""
    words, top = f"{by:+d}".replace("-", "−"), y - 18
    bend = min(8.0, abs(end - start) / 2)
    over = bend if end >= start else -bend
    if abs(end - start) > 1:
        scene.line((start, y), (start + over, top), (end - over, top), stroke=1.5)
        scene.arrow((end - over, top), (end, y), head=8)
    scene.text((start + end) / 2, top - 3, words, 14, va="bottom", anchor="middle", bold=True, id="hop")


def _index_order(scene: Scene, step: Step, area: Rect) -> None:
    """The tensor as its indices say: a grid per entry of the first of three dimensions, offsets inside."""
    shape, strides = tuple(step.values["shape"]), tuple(step.values["strides"])
    grids, rows, cols = (1,) * (3 - len(shape)) + shape
    offsets = step.values["offsets"].reshape(grids, rows, cols).tolist()
    wide = min(46.0, (area.w - 24 * (grids - 1)) / max(grids * cols, 1))
    high = min(32.0, 190 / max(rows, 1))
    gap = max(24.0, 92 - cols * wide) if grids * max(92, cols * wide + 24) <= area.w else 24.0
    scene.text(area.x, area.y + 10, f"index order: shape {shape}, strides {strides}", 13, bold=True)
    for g in range(grids):
        grid = Grid(area.x + g * (cols * wide + gap), area.y + 44, rows, cols, wide, high)
        if len(shape) == 3:
            words = f"index [{g}, ·, ·]" if cols * wide + gap >= 92 else f"[{g}, ·, ·]"
            scene.text(grid.x, grid.y - 10, words, 12)
        _matrix(scene, step, (g,) if len(shape) == 3 else (), grid, offsets[g])


def _matrix(scene: Scene, step: Step, before: tuple[int, ...], grid: Grid, offsets: list[list[int]]) -> None:
    """The elements whose index begins with `before`, each with its offset."""
    seen = {s.values["index"] for s in step.so_far if "index" in s.values}
    dims = len(step.values["shape"])
    scene.rect(grid.rect(), "blank")
    for r, c in _places(grid):
        index = (*before, r, c)[-dims:] if dims else ()
        current, rect = index == step.values.get("index"), grid.cell(r, c)
        _cell(scene, rect, current, index in seen, "index")
        if width(str(offsets[r][c]), 14, True) <= grid.w - 2 and grid.h >= 15:
            ink = "on" if current else "ink"
            scene.text(*rect.centre, offsets[r][c], 14, anchor="middle", bold=current, role=ink)
    scene.cell_lines(grid)


def _places(grid: Grid) -> Iterator[tuple[int, int]]:
    return ((r, c) for r in range(grid.rows) for c in range(grid.cols))


def _arithmetic(scene: Scene, step: Step, x: float, y: float) -> None:
    """index times stride, one line per dimension, and the sum."""
    if "index" not in step.values:
        return
    scene.text(x, y + 10, "index × stride", 13, bold=True)
    pairs = zip(step.values["index"], step.values["strides"], strict=True)
    lines = [f"{i} × {stride:>2} = {i * stride:>2}" for i, stride in pairs]
    if step.values["start"]:
        lines.insert(0, f"start = {step.values['start']:>2}")
    for n, line in enumerate(lines):
        scene.text(x, y + 38 + 24 * n, line, 16, mono=True)
    scene.text(x, y + 44 + 24 * len(lines), f"offset = {step.values['offset']}", 16, mono=True, bold=True)


MOST, GAP = 32, 4  # sectors in a row; pixels between them


def draw_sectors(step: Step, *, narrow: bool = False) -> Scene:
    """A run of `sector_steps`: a row of sectors for each stride, up to this step."""
    check_step("sectors of a load", step)
    rows = [s for s in (step.so_far or (step,)) if "sectors" in s.values]
    check_steps_of("sectors of a load", rows[-1] if rows else step, values=["sectors", "stride", "moved", "wanted"])
    every = [s for s in (step.run or rows) if "sectors" in s.values]
    top, high = (72, 100) if narrow else (62, 92)
    scene = Scene(NARROW if narrow else WIDE, top + high * len(every) + 6)
    memory(scene, Rect(0, 0, scene.width, scene.height), "hbm")
    words = [f"a box is a sector of {SECTOR} bytes;", "a load of a warp wants the dark elements"]
    for line, each in enumerate(words if narrow else [" ".join(words)]):
        scene.text(PAD, 42 + 17 * line, each, 13, role="quiet")
    for at, one in enumerate(rows):
        _row(scene, one, Rect(PAD, top + at * high, scene.width - 2 * PAD, high), at)
    return scene


def _row(scene: Scene, step: Step, area: Rect, number: int) -> None:
    """One stride: what is moved and wanted, and the sectors in the order of their addresses."""
    found, each = step.values["sectors"], SECTOR // step.values["itemsize"]
    moved, wanted = step.values["moved"], step.values["wanted"]
    narrow = scene.width == NARROW
    head = f"stride {step.values['stride']:,}: {len(found)} sectors"
    note = f"{moved:,} bytes move, {wanted} of them wanted ({100 * wanted / moved:.3g} %)"
    scene.text(area.x, area.y + 10, head, 14, bold=True)
    scene.text(area.x if narrow else area.x + 210, area.y + (29 if narrow else 10), note, 12 if narrow else 13)
    gap = 2 if narrow else GAP
    wide, top = (area.w - (MOST - 1) * gap) / MOST, area.y + (42 if narrow else 26)
    for n, (sector, elements) in enumerate(sorted(found.items())):
        grid = Grid(area.x + n * (wide + gap), top, 1, each, wide / each, 30)
        scene.rect(grid.rect(), "blank")
        for element in elements:
            scene.rect(grid.cell(0, element), "S")
        scene.rect(grid.rect(), edge="quiet")
        if n in (0, len(found) - 1) or (len(found) <= 8 and not narrow):
            words = f"{sector * SECTOR:,}"
            middle = min(max(grid.middle, area.x + width(words, 12) / 2), area.right - width(words, 12) / 2)
            if n == 0 or middle - width(words, 12) > area.x + width("0", 12) or not narrow:
                scene.text(middle, grid.bottom + 11, words, 12, anchor="middle", role="quiet")
