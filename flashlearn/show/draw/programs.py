"""A launch grid: which program takes which block, and the elements of the current one, masked past the end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import Grid, Rect, Sheet
from flashlearn.show.draw.style import COLOURS, INK, QUIET, colour, tint
from flashlearn.show.draw.values import check_steps_of

PALEST, DONE = 0.12, 0.45
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
        programs = self.blocks * self.H * self.B
        return f"{title} × {self.H} heads × {self.B} batch entries = {programs} programs"


def draw_programs(ax: Axes, step: Step) -> None:
    """Paint one program of a launch: its place in the grid (blocks across, heads down), and its elements.

    shapes  one matrix (B, H, N)
    values  pid (None once all have run), block, N, valid
    """
    check_steps_of("a launch", step, values=["pid", "block", "N", "valid"])
    sheet = Sheet(ax)
    name, (B, H, N) = next(iter(step.shapes.items()))
    launch = _Launch(name, -(-N // step.values["block"]), H, B)
    _grid(sheet, step, launch, Rect(16, 8, sheet.width - 32, 150))
    if step.values["pid"] is not None:
        _arithmetic(sheet, step, launch, 16, 172)
        _elements(sheet, step, name, Rect(16, sheet.height - 174, sheet.width - 32, 174))
    sheet.paint()


def _grid(sheet: Sheet, step: Step, launch: _Launch, area: Rect) -> None:
    """A grid of programs per batch entry, side by side."""
    _, blocks, H, B = launch
    sheet.text(area.x, area.y, launch.title, weight="bold", va="top", color=QUIET)
    left, gap = (74.0, 60.0) if H * B > 1 else (0.0, 0.0)
    cell_w = min(64, (area.w - left - gap * (B - 1)) / (B * blocks))
    gap = max(gap, 160 - blocks * cell_w)  # room for "batch entry 0"
    cell_h = min(48, (area.h - 58) / H)
    for b in range(B):
        grid = Grid(area.x + left + b * (blocks * cell_w + gap), area.y + 58, H, blocks, cell_w, cell_h)
        if B > 1:
            sheet.text(grid.x, grid.y - 5, f"batch entry {b}", va="bottom", fontsize=15)
        for head in range(H if b == 0 and H * B > 1 else 0):
            style = {"ha": "right", "va": "center", "fontsize": 15}
            sheet.text(grid.x - 8, grid.cell(head, 0).centre[1], f"head {head}", **style)
        _programs(sheet, step, launch, b, grid)
        sheet.cell_lines(grid)


def _programs(sheet: Sheet, step: Step, launch: _Launch, b: int, grid: Grid) -> None:
    """The programs of one batch entry: pale, half-tone once run, full and framed if this step is theirs."""
    run_so_far = {s.program for s in step.so_far if s.program}
    for head, i in np.ndindex(grid.rows, grid.cols):
        here, rect = (i, head, b), grid.cell(head, i)
        current, name = here == step.program, launch.name
        sheet.fill(rect, colour(name) if current else tint(name, DONE if here in run_so_far else PALEST))
        if current:
            sheet.outline(rect)
        if grid.w >= 34:
            ink = "white" if current and name == "Q" else INK
            style = {"fontsize": 16, "weight": "bold" if current else "normal", "color": ink}
            sheet.text(*rect.centre, f"{i + launch.blocks * (head + launch.H * b)}", **style, **CENTRED)


def _arithmetic(sheet: Sheet, step: Step, launch: _Launch, x: float, y: float) -> None:
    """pid taken apart, and the offsets."""
    (_, blocks, H, B), pid, block = launch, step.values["pid"], step.values["block"]
    i, head, batch = step.program
    mono = {"family": "monospace", "va": "top", "fontsize": 18}
    if B * H > 1:
        line = f"pid {pid}: block = {pid} % {blocks} = {i}   head = {pid} // {blocks} % {H} = {head}   "
        sheet.text(x, y, line + f"batch = {pid} // {blocks * H} = {batch}", **mono)
        y += 34
    sheet.text(x, y, f"offs = {i} × {block} + (0 .. {block - 1}) = {i * block} .. {(i + 1) * block - 1}", **mono)
    valid = f"{step.values['valid']} of {block} lanes are valid"
    sheet.text(x, y + 34, f"mask = offs < {step.values['N']}: {valid}", **mono)


def _elements(sheet: Sheet, step: Step, name: str, area: Rect) -> None:
    """The elements of the program: full where they exist, hatched where they are masked."""
    block, valid, first = step.values["block"], step.values["valid"], step.program[0] * step.values["block"]
    sheet.text(area.x, area.y, f"the {block} lanes of this program", va="top", weight="bold", color=QUIET)
    each = min(64.0, area.w / block)
    grid = Grid(area.x, area.y + 36, 1, block, each, 56)
    sheet.fill(grid.rect(None, (0, valid)), colour(name))
    if valid < block:
        past = grid.rect(None, (valid, block))
        sheet.hatch(past, COLOURS["masked"])
    shown = grid if block <= EACH_UP_TO else Grid(area.x, grid.y, 1, -(-block // WARP), each * WARP, 56)
    sheet.cell_lines(shown)
    for n in range(block if each >= 34 else 0):
        ink = "white" if n < valid and name == "Q" else INK
        sheet.text(*grid.cell(0, n).centre, f"{first + n}", fontsize=16, color=ink, **CENTRED)
    note = f"elements {first} to {first + valid - 1}" if valid > 1 else f"element {first}"
    sheet.text(area.x, grid.bottom + 6, note, va="top", fontsize=16)
    if valid < block:
        at, side = (grid.right, "right") if block * each > 600 else (max(past.x, area.x + 260), "left")
        sheet.text(at, grid.bottom + 6, f"{block - valid} lanes masked", va="top", ha=side, fontsize=16)
