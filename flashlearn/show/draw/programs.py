"""A launch grid: which program takes which block, and the lanes of the current one, masked past the end."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.grid import Place, Sheet, pixels
from flashlearn.show.draw.style import COLOURS, INK, QUIET, canvas, colour, tint

PALE, DONE = 0.12, 0.45
WARP = 32  # lanes that a GPU runs in step
EACH_LANE_UP_TO = 32  # more lanes than that are drawn as one bar


def draw_programs(ax: Axes, step: Step) -> None:
    """Paint one program of a launch: its place in the grid (blocks across, heads down), and its lanes.

    shapes  one matrix (B, H, N)
    values  pid (None once all have run), block, N, valid
    """
    width, height = pixels(ax)
    canvas(ax, width, height)
    sheet = Sheet()
    name, (B, H, N) = next(iter(step.shapes.items()))
    blocks = -(-N // step.values["block"])
    _grid(ax, sheet, step, name, (B, H, blocks), 16, 8, width - 32, 150)
    if step.values["pid"] is not None:
        _arithmetic(ax, step, (B, H, blocks), 16, 172)
        _lanes(ax, sheet, step, name, 16, height - 174, width - 32)
    sheet.paint(ax)


def _grid(ax, sheet, step, name, counts, x, y, w, h):
    """A grid of programs per batch entry, side by side."""
    B, H, blocks = counts
    title = f"launch grid: {blocks} block{'s' * (blocks > 1)}"
    title += f" × {H} heads × {B} batch entries = {blocks * H * B} programs" if H * B > 1 else ", one program each"
    ax.text(x, y, title, weight="bold", va="top", color=QUIET)
    left, gap = (74, 60) if H * B > 1 else (0, 0)
    cell_w = min(64, (w - left - gap * (B - 1)) / (B * blocks))
    gap = max(gap, 160 - blocks * cell_w)  # room for "batch entry 0"
    cell_h = min(48, (h - 58) / H)
    run_so_far = {s.program for s in step.so_far if s.program}
    for b in range(B):
        place = Place(x + left + b * (blocks * cell_w + gap), y + 58, H, blocks, cell_w, cell_h)
        if B > 1:
            ax.text(place.x, place.y - 5, f"batch entry {b}", va="bottom", fontsize=15)
        for head in range(H):
            if b == 0 and H * B > 1:
                ax.text(
                    place.x - 8, place.y + (head + 0.5) * cell_h, f"head {head}", ha="right", va="center", fontsize=15
                )
            for i in range(blocks):
                here = (i, head, b)
                rect, current = place.rect((head, head + 1), (i, i + 1)), here == step.program
                sheet.fill(rect, colour(name) if current else tint(name, DONE if here in run_so_far else PALE))
                if current:
                    sheet.outline(rect)
                if cell_w >= 34:
                    pid = i + blocks * (head + H * b)
                    ink = "white" if current and name == "Q" else INK
                    style = {"ha": "center", "va": "center", "weight": "bold" if current else "normal", "color": ink}
                    ax.text(rect[0] + cell_w / 2, rect[1] + cell_h / 2, f"{pid}", fontsize=16, **style)
        sheet.grid(place)


def _arithmetic(ax, step, counts, x, y):
    """pid taken apart, and what the lanes hold."""
    (_, H, blocks), pid, block = counts, step.values["pid"], step.values["block"]
    i, head, batch = step.program
    mono = {"family": "monospace", "va": "top", "fontsize": 18}
    if counts[0] * H > 1:
        line = f"pid {pid}: block = {pid} % {blocks} = {i}   head = {pid} // {blocks} % {H} = {head}   "
        ax.text(x, y, line + f"batch = {pid} // {blocks * H} = {batch}", **mono)
        y += 34
    ax.text(x, y, f"offs = {i} × {block} + (0 .. {block - 1}) = {i * block} .. {(i + 1) * block - 1}", **mono)
    ax.text(x, y + 34, f"mask = offs < {step.values['N']}: {step.values['valid']} of {block} lanes are valid", **mono)


def _lanes(ax, sheet, step, name, x, y, w):
    """The lanes of the program: full where they hold an element, hatched where they are masked."""
    block, valid, first = step.values["block"], step.values["valid"], step.program[0] * step.values["block"]
    ax.text(x, y, f"the {block} lanes of this program", va="top", weight="bold", color=QUIET)
    each = min(64.0, w / block)
    place = Place(x, y + 36, 1, block, each, 56)
    sheet.fill(place.rect(None, (0, valid)), colour(name))
    if valid < block:
        past = place.rect(None, (valid, block))
        sheet.fill(past, COLOURS["masked"])
        sheet.hatch(past)
    if block <= EACH_LANE_UP_TO:
        sheet.grid(place)
    else:
        sheet.grid(Place(x, place.y, 1, -(-block // WARP), each * WARP, 56))
    if each >= 34:
        for lane in range(block):
            ink = "white" if lane < valid and name == "Q" else INK
            style = {"ha": "center", "va": "center", "fontsize": 16, "color": ink}
            ax.text(x + (lane + 0.5) * each, place.y + 28, f"{first + lane}", **style)
    note = f"elements {first} to {first + valid - 1}" if valid > 1 else f"element {first}"
    ax.text(x, place.bottom + 6, note, va="top", fontsize=16)
    if valid < block:
        at, side = (x + block * each, "right") if block * each > 600 else (max(x + valid * each, x + 260), "left")
        ax.text(at, place.bottom + 6, f"{block - valid} lanes masked", va="top", ha=side, fontsize=16)
