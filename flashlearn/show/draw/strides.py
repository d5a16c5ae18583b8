"""A tensor twice: its elements in memory order, one long row, and in index order, as a box of rows."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.grid import Place, Sheet, pixels
from flashlearn.show.draw.style import COLOURS, INK, QUIET, canvas, colour, number, tint

PALE, DONE = 0.12, 0.45
NUMBERS_FROM = 30  # pixels: narrower cells stay without a number


def draw_strides(ax: Axes, step: Step) -> None:
    """Paint one step of a walk over a tensor of up to three dimensions; the element of this step is picked out.

    values  memory, shape, strides, offsets, start; index and offset of the element, if one is visited
    """
    width, height = pixels(ax)
    canvas(ax, width, height)
    sheet = Sheet()
    _memory(ax, sheet, step, 16, 8, width - 32, 196)
    _index_order(ax, sheet, step, 16, 226, width - 500, height - 232)
    _arithmetic(ax, step, width - 460, 240)
    sheet.paint(ax)


def _memory(ax, sheet, step, x, y, w, h):
    """All elements of the storage with their addresses, and the hop from the element before."""
    memory = step.values["memory"].tolist()
    each = (w - 24) / max(len(memory), 1)
    place = Place(x + 12, y + 112, 1, len(memory), each, 44)
    sheet.fill((x, y, w, h), COLOURS["HBM"], QUIET, 1.5)
    ax.text(x + 10, y + 8, "memory: one long row of elements", weight="bold", va="top", color=QUIET)
    visited = [s.values["offset"] for s in step.so_far if "offset" in s.values]
    for offset in range(len(memory)):
        rect = place.rect(None, (offset, offset + 1))
        current = "offset" in step.values and offset == step.values["offset"]
        sheet.fill(rect, colour("x") if current else tint("x", DONE if offset in visited else PALE))
        if current:
            sheet.outline(rect)
        if each >= NUMBERS_FROM:
            style = {"ha": "center", "weight": "bold" if current else "normal"}
            ax.text(rect[0] + each / 2, place.y + 22, number(memory[offset], 1), va="center", fontsize=16, **style)
            ax.text(rect[0] + each / 2, place.bottom + 5, f"{offset}", va="top", fontsize=13, color=QUIET, ha="center")
    sheet.grid(place)
    ax.text(x + w - 12, y + 8, "below: offset in elements", va="top", ha="right", fontsize=14, color=QUIET)
    if "offset" in step.values and len(visited) > 1:
        _hop(ax, *(place.x + (offset + 0.5) * each for offset in visited[-2:]), place.y - 4, visited[-1] - visited[-2])


def _hop(ax, start, end, y, by):
    """An arrow from one element to the next, with how far it goes."""
    bend = -0.35 if end > start else 0.35
    bend *= min(1.0, 150 / abs(end - start)) if by else 1.0
    style = {"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", "color": INK, "linewidth": 2}
    ax.annotate("", (end, y), (start, y), arrowprops={**style, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 18})
    text = f"{by:+d}".replace("-", "−")
    top = y - abs(bend * (end - start)) / 2 - 8
    ax.text((start + end) / 2, top, text, ha="center", va="bottom", weight="bold", fontsize=18)


def _index_order(ax, sheet, step, x, y, w, h):
    """The tensor as its indices say: a grid per entry of the first of three dimensions, offsets inside."""
    shape, offsets = step.values["shape"], step.values["offsets"]
    if len(shape) > 3:
        raise ValueError(f"expected a tensor of at most three dimensions, got shape {shape}")
    grids, rows, cols = (1,) * (3 - len(shape)) + tuple(shape)
    offsets = offsets.reshape(grids, rows, cols).tolist()
    cell_w = min(70, (w - 40 * (grids - 1)) / max(grids * cols, 1))
    cell_h = min(50, (h - 62) / max(rows, 1))
    names = f"shape {tuple(shape)}, strides {tuple(step.values['strides'])}"
    ax.text(x, y, f"index order: {names}", weight="bold", va="top", color=QUIET)
    seen = {s.values["index"] for s in step.so_far if "index" in s.values}
    for g in range(grids):
        place = Place(x + g * (cols * cell_w + 44), y + 58, rows, cols, cell_w, cell_h)
        if len(shape) == 3:
            ax.text(place.x, place.y - 5, f"index [{g}, ·, ·]", va="bottom", fontsize=15)
        for r in range(rows):
            for c in range(cols):
                index = (g, r, c)[3 - len(shape) :]
                current = index == step.values.get("index")
                rect = place.rect((r, r + 1), (c, c + 1))
                sheet.fill(rect, colour("x") if current else tint("x", DONE if index in seen else PALE))
                if current:
                    sheet.outline(rect)
                if min(cell_w, cell_h) >= 22:
                    weight = "bold" if current else "normal"
                    style = {"ha": "center", "va": "center", "fontsize": 18, "weight": weight}
                    ax.text(rect[0] + cell_w / 2, rect[1] + cell_h / 2, f"{offsets[g][r][c]}", **style)
        sheet.grid(place)


def _arithmetic(ax, step, x, y):
    """index times stride, one line per dimension, and the sum."""
    if "index" not in step.values:
        return
    ax.text(x, y, "index × stride", weight="bold", va="top", color=QUIET)
    lines = [
        f"{i} × {stride:>2} = {i * stride:>2}"
        for i, stride in zip(step.values["index"], step.values["strides"], strict=True)
    ]
    if step.values["start"]:
        lines.insert(0, f" start = {step.values['start']:>2}")
    mono = {"family": "monospace", "va": "top", "fontsize": 22}
    for place, line in enumerate(lines):
        ax.text(x, y + 34 + 36 * place, line, **mono)
    ax.text(x, y + 44 + 36 * len(lines), f"offset = {step.values['offset']}", weight="bold", **mono)
