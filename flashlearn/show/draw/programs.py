"""A launch grid: which program takes which block, and the elements of the current one, masked past the end."""

from __future__ import annotations

from typing import NamedTuple

from flashlearn.core.steps import Step
from flashlearn.show.draw.letters import width, wrapped
from flashlearn.show.draw.memories import PAD
from flashlearn.show.draw.scene import NARROW, WIDE, Grid, Rect, Scene
from flashlearn.show.draw.style import role
from flashlearn.show.draw.values import check_steps_of

WARP = 32  # threads that a GPU runs in step
EACH_UP_TO = 32  # elements; more are drawn as one bar


class _Launch(NamedTuple):
    """The matrix that is cut into blocks, and how many blocks, heads and batch entries there are."""

    name: str
    blocks: int
    H: int
    B: int

    @property
    def title(self) -> str:
        title = f"launch grid: {self.blocks} block{'s' * (self.blocks > 1)}"
        if self.H * self.B == 1:
            return f"{title}, one program each"
        return f"{title} × {self.H} heads × {self.B} batch entries = {self.blocks * self.H * self.B} programs"


def draw_programs(step: Step, *, narrow: bool = False) -> Scene:
    """One program of a launch: its place in the grid (blocks across, heads down), and its elements.

    shapes  one matrix (B, H, N)
    values  pid (None once all have run), block, N, valid
    """
    check_steps_of("a launch", step, values=["pid", "block", "N", "valid"])
    name, (B, H, N) = next(iter(step.shapes.items()))
    launch = _Launch(name, -(-N // step.values["block"]), H, B)
    high = min(28 * H, 112) * (B if narrow else 1) + (26 * B if narrow and B > 1 else 26 * (B > 1))
    lines = (3 if narrow else 1) * (B * H > 1) + (4 if narrow else 2)
    wide = NARROW if narrow else WIDE
    titles = wrapped(launch.title, wide - 2 * PAD, 14, bold=True)
    top = 16 + 18 * len(titles)
    scene = Scene(wide, top + high + 22 + 22 * lines + 128)
    for line, words in enumerate(titles):
        scene.text(PAD, 16 + 18 * line, words, 14, bold=True)
    _grid(scene, step, launch, Rect(PAD, top, scene.width - 2 * PAD, high))
    if step.values["pid"] is not None:
        _arithmetic(scene, step, launch, top + high + 22)
        _elements(scene, step, name, Rect(PAD, scene.height - 118, scene.width - 2 * PAD, 110))
    return scene


def _grid(scene: Scene, step: Step, launch: _Launch, area: Rect) -> None:
    """A grid of programs per batch entry, next to each other, or one below the other."""
    _, blocks, H, B = launch
    narrow = scene.width == NARROW
    left, columns = (58.0 if H * B > 1 else 0.0), 1 if narrow else B
    gap = 40.0 if columns > 1 else 0.0
    cell_w = min(44.0, (area.w - left - gap * (columns - 1)) / (columns * blocks))
    gap = max(gap, 110 - blocks * cell_w)  # room for "batch entry 0"
    cell_h = min(28.0, 112 / H)
    for b in range(B):
        down, across = (b, 0) if narrow else (0, b)
        x, y = area.x + left + across * (blocks * cell_w + gap), area.y + 26 * (B > 1) + down * (H * cell_h + 26)
        grid = Grid(x, y, H, blocks, cell_w, cell_h)
        if B > 1:
            scene.text(grid.x, grid.y - 11, f"batch entry {b}", 12)
        for head in range(H if (b == 0 or narrow) and H * B > 1 and cell_h >= 12 else 0):
            scene.text(grid.x - 6, grid.cell(head, 0).centre[1], f"head {head}", 12, anchor="end", role="quiet")
        _programs(scene, step, launch, b, grid)
        scene.cell_lines(grid)


def _programs(scene: Scene, step: Step, launch: _Launch, b: int, grid: Grid) -> None:
    """The programs of one batch entry: pale, half-tone once run, full and framed if this step is theirs."""
    face, run_so_far = role(launch.name), {s.program for s in step.so_far if s.program}
    scene.rect(grid.rect(), "blank")
    for head in range(grid.rows):
        for i in range(grid.cols):
            here, rect = (i, head, b), grid.cell(head, i)
            current = here == step.program
            scene.rect(rect, face, "" if current else "half" if here in run_so_far else "pale")
            if current:
                scene.outline(rect, id="program")
            words = f"{i + launch.blocks * (head + launch.H * b)}"
            if width(words, 13, True) <= grid.w - 4 and grid.h >= 14:
                ink = "ink" if not current else "on-Q" if launch.name == "Q" else "on"
                scene.text(*rect.centre, words, 13, anchor="middle", bold=current, role=ink)


def _arithmetic(scene: Scene, step: Step, launch: _Launch, y: float) -> None:
    """pid taken apart, and the offsets."""
    (_, blocks, H, B), pid, block = launch, step.values["pid"], step.values["block"]
    i, head, batch = step.program
    lines = []
    if B * H > 1:
        parts = [f"pid {pid}: block = {pid} % {blocks} = {i}"]
        parts += [f"head = {pid} // {blocks} % {H} = {head}", f"batch = {pid} // {blocks * H} = {batch}"]
        lines += parts if scene.width == NARROW else ["    ".join(parts)]
    offsets = [f"offs = {i} × {block} + (0 .. {block - 1})", f"= {i * block} .. {(i + 1) * block - 1}"]
    mask = [f"mask = offs < {step.values['N']}:", f"{step.values['valid']} of {block} elements exist"]
    lines += [*offsets, *mask] if scene.width == NARROW else [" ".join(offsets), " ".join(mask)]
    for at, words in enumerate(lines):
        scene.text(PAD, y + 22 * at, words, 14, mono=True)


def _elements(scene: Scene, step: Step, name: str, area: Rect) -> None:
    """The elements of the program: full where they exist, hatched where they are masked."""
    block, valid, first = step.values["block"], step.values["valid"], step.program[0] * step.values["block"]
    scene.text(area.x, area.y + 10, f"the {block} elements of this program", 14, bold=True)
    each = min(44.0, area.w / block)
    grid = Grid(area.x, area.y + 28, 1, block, each, 38)
    scene.rect(grid.rect(cols=(0, valid)), role(name), id="valid")
    if valid < block:
        scene.hatch(grid.rect(cols=(valid, block)), "masked")
    scene.cell_lines(grid if block <= EACH_UP_TO else Grid(area.x, grid.y, 1, -(-block // WARP), each * WARP, 38))
    for n in range(block if width(str(first + block), 13) <= each - 2 else 0):
        ink = "ink" if n >= valid else "on-Q" if name == "Q" else "on"
        scene.text(*grid.cell(0, n).centre, first + n, 13, anchor="middle", role=ink)
    note = f"elements {first} to {first + valid - 1}" if valid > 1 else f"element {first}"
    scene.text(area.x, grid.bottom + 16, note, 13)
    if valid < block:
        words = f"{block - valid} elements masked"
        right = max(grid.right, area.x + width(note, 13) + width(words, 13) + 24)
        scene.text(right, grid.bottom + 16, words, 13, anchor="end")
