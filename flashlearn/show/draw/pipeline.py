"""A software-pipelined loop as a timeline: when each tile is loaded, when it is used, and the buffers held."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.grid import Sheet, pixels
from flashlearn.show.draw.style import COLOURS, INK, QUIET, canvas

EDGE = {"HBM": QUIET, "SRAM": "#B8860B"}
CHIP = 112  # height of the SRAM panel


def draw_pipeline(ax: Axes, step: Step) -> None:
    """Paint one slot of time; what is still to come is an outline.

    values   schedule ((load, compute) spans per iteration), num_stages, time, loading, computing, horizon
    on_chip  the tiles whose buffers are taken
    """
    width, height = pixels(ax)
    canvas(ax, width, height)
    sheet = Sheet()
    schedule, time = step.values["schedule"], step.values["time"]
    left, top, bottom = 70, 78, height - CHIP - 44
    slot, row = (width - left - 20) / step.values["horizon"], min(46.0, (bottom - top) / len(schedule))
    ax.text(16, 8, f"phase: {step.phase}", va="top", weight="bold", fontsize=20)
    for i, (load, use) in enumerate(schedule):
        y = top + i * row
        ax.text(left - 10, y + row / 2, f"tile {i}", ha="right", va="center", fontsize=15)
        for span, kind, text in ((load, "HBM", "load"), (use, "SRAM", "×")):
            rect = (left + span.start * slot, y + 3, (span.end - span.start) * slot, row - 6)
            begun = span.start <= time
            sheet.fill(rect, COLOURS[kind] if begun else "white", EDGE[kind] if begun else "#8A8A8A", 1.5)
            if span.start <= time < span.end:
                sheet.outline(rect)
            if begun and rect[2] >= 16:
                ax.text(rect[0] + rect[2] / 2, y + row / 2, text, ha="center", va="center", fontsize=15)
    foot = top + len(schedule) * row
    now = left + min(time, step.values["horizon"]) * slot
    ax.plot([now, now], [top - 8, foot + 6], color=INK, linewidth=2, linestyle=(0, (3, 2)), zorder=0.8)
    end = schedule[-1][1].end
    ax.text(left + end * slot, foot + 8, f"{end} slots", ha="right", va="top", fontsize=15, weight="bold")
    _legend(ax, sheet, width, 44)
    _buffers(ax, sheet, step, 16, height - CHIP, width - 32)
    sheet.paint(ax)


def _legend(ax, sheet, width, y):
    for x, kind, text in ((16, "HBM", "load: HBM to chip"), (250, "SRAM", "× compute")):
        sheet.fill((x, y, 22, 18), COLOURS[kind], EDGE[kind], 1.5)
        ax.text(x + 30, y + 9, text, va="center", fontsize=15)
    ax.text(width - 20, y + 9, "time →", va="center", ha="right", fontsize=15, color=QUIET)


def _buffers(ax, sheet, step, x, y, w):
    """One buffer per stage: which tile it holds, and whether that tile has arrived."""
    stages = step.values["num_stages"]
    sheet.fill((x, y, w, CHIP - 4), COLOURS["SRAM"], EDGE["SRAM"], 2)
    ax.text(x + 10, y + 6, f"SRAM: {stages} tile buffer{'s' * (stages > 1)}", weight="bold", va="top", color=QUIET)
    each = min(132.0, (w - 20) / stages)
    held = {tile.rows[0] % stages: tile.rows[0] for tile in step.on_chip}
    for buffer in range(stages):
        left, tile = x + 10 + buffer * each, held.get(buffer)
        sheet.fill((left, y + 34, each - 10, 60), "white", EDGE["SRAM"] if tile is not None else "#8A8A8A", 1.5)
        if tile is None:
            text = "free"
        elif tile in step.values["computing"]:
            text = f"tile {tile}\nin use"
            sheet.outline((left, y + 34, each - 10, 60))
        else:
            text = f"tile {tile}\n{'coming' if tile in step.values['loading'] else 'ready'}"
        style = {"ha": "center", "va": "center", "fontsize": 15, "linespacing": 1.2}
        ax.text(left + (each - 10) / 2, y + 64, text, color=QUIET if tile is None else INK, **style)
