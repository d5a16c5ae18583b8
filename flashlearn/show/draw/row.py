"""One row of softmax: x in HBM as bars, y below it as it is written, and m, l on chip."""

from __future__ import annotations

import math

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.style import (
    HATCH,
    INK,
    QUIET,
    box,
    canvas,
    colour,
    number,
    panel,
    pass_note,
    tint,
    traffic_note,
)

WIDTH, HEIGHT = 1280, 500
LEFT, SPAN = 66, 750  # the bars of the HBM panel
NUMBERS_UP_TO = 12  # longer rows show bars without their values, which would overlap


def draw_row(ax: Axes, step: Step) -> None:
    """Paint one step of any softmax over one row (of several rows, the first)."""
    canvas(ax, WIDTH, HEIGHT)
    ax.text(16, 8, pass_note(step), va="top", weight="bold", fontsize=20)
    panel(ax, 16, 48, 840, 440, "HBM", traffic_note(step))
    panel(ax, 872, 48, 392, 440, "SRAM")
    x = _row(step.values["x"])
    y = _row(step.written("y")) if "y" in step.shapes else []
    now, seen = _read_now(step), _read_in_this_phase(step)
    level = _first(step.values["m_i"]) if "m_i" in step.values else None
    _bars(ax, "x", x, 118, 172, now, seen, level)
    _bars(ax, "y", y, 362, 100, now if step.writes else (0, 0), _written_to(step), scale=_largest_weight(step))
    _running_values(ax, step)


def _bars(ax, name, values, top, height, now, seen, level=None, scale=None):
    """Bars on a common zero line; the current ones dark and pointed at, those of this pass half-tone."""
    finite = [v for v in values if math.isfinite(v)]
    high = scale or max([0.0, *finite]) or 1.0
    low = min([0.0, *finite])
    unit = height / (high - low)
    zero = top + high * unit
    each = SPAN / max(1, len(values))
    ax.text(LEFT - 22, zero, name, ha="center", va="center", weight="bold", fontsize=22, color=INK)
    for j, value in enumerate(values):
        left, width = LEFT + j * each + 0.12 * each, 0.76 * each
        current, before = now[0] <= j < now[1], j < seen
        ink = {"edge": INK if current else QUIET, "width": 2.5 if current else 1.0}
        if math.isfinite(value):
            tall = max(abs(value) * unit, 1.5)
            face = tint(name, 1.0 if current else 0.55 if before else 0.15)
            box(ax, left, zero - tall if value >= 0 else zero, width, tall, face, **ink)
        elif name == "x" or before:
            box(ax, left, top, width, height, "none", hatch=HATCH, **ink)
        if len(values) <= NUMBERS_UP_TO and (name == "x" or before):
            at = zero - max(value, 0.0) * unit if math.isfinite(value) else top
            size = 15 if len(values) <= 10 else 12
            text = number(value, 4 if name == "y" else 2)
            ax.text(left + width / 2, at - 4, text, ha="center", va="bottom", fontsize=size, zorder=4)
    ax.plot([LEFT, LEFT + SPAN], [zero, zero], color=INK, linewidth=1.2)
    if name == "x" and now[1] > now[0]:
        _pointer(ax, LEFT + now[0] * each, LEFT + now[1] * each, top + height + 12)
    if level is not None and math.isfinite(level) and values:
        at = zero - level * unit
        ax.plot([LEFT, LEFT + SPAN], [at, at], color=colour("m_i"), linewidth=2.5, linestyle=(0, (4, 2)), zorder=3)
        ax.text(LEFT + SPAN + 4, at, "m", va="center", color=INK, weight="bold")


def _pointer(ax, left, right, y):
    """A bracket under the elements being read, with an arrowhead in its middle."""
    ax.plot([left + 4, right - 4], [y, y], color=INK, linewidth=3)
    ax.plot((left + right) / 2, y + 11, marker="^", markersize=13, color=INK)


def _running_values(ax, step):
    """m and l as numbers, and l as a bar: what it kept (rescaled or not) and what this step added."""
    top = 110
    for name, symbol in (("m_i", "m"), ("l_i", "l")):
        if name in step.values:
            box(ax, 900, top, 336, 56, face=tint(name, 0.35), edge=QUIET, width=2)
            ax.text(918, top + 28, symbol, va="center", weight="bold", fontsize=24, family="monospace")
            value = number(_first(step.values[name]))
            ax.text(1218, top + 28, value, va="center", ha="right", fontsize=24, family="monospace")
            top += 70
    if "l_i" not in step.values:
        return
    l, term = _first(step.values["l_i"]), _first(step.values["term"]) if "term" in step.values else 0.0
    before = _first(step.so_far[-2].values["l_i"]) if len(step.so_far) > 1 and "l_i" in step.so_far[-2].values else 0.0
    sums = [_first(s.values["l_i"]) for s in step.run if "l_i" in s.values] or [l]
    finite = [v for v in (*sums, l) if math.isfinite(v)]
    if not math.isfinite(l) or not max(finite, default=0.0):
        return
    unit, bar = 336 / max(finite), 300
    ax.text(900, bar - 8, "the running sum", va="bottom", color=QUIET)
    box(ax, 900, bar, (l - term) * unit, 44, face=tint("l_i", 0.45), edge=INK, width=1.2)
    box(ax, 900 + (l - term) * unit, bar, term * unit, 44, face=colour("l_i"), edge=INK, width=2.5)
    alpha = _first(step.values["alpha"]) if "alpha" in step.values else 1.0
    if alpha not in (0.0, 1.0):
        box(ax, 900, bar + 56, before * unit, 30, "none", edge=QUIET, width=2, linestyle=(0, (3, 2)))
        ax.text(900, bar + 116, f"rescaled: {number(before)} × {number(alpha)}", va="center", weight="bold")
        ax.text(900, bar + 144, f"= {number(before * alpha)}, then + {number(term)}", va="center")
    elif term:
        ax.text(900, bar + 76, f"kept {number(l - term)}, added {number(term)}", va="center")


def _row(t) -> list[float]:
    """The first row, as numbers."""
    return t.detach().double().reshape(-1, t.shape[-1])[0].tolist() if t.numel() else []


def _first(t) -> float:
    return t.detach().flatten()[0].item()


def _read_now(step: Step) -> tuple[int, int]:
    return step.reads[0].cols if step.reads else (0, 0)


def _read_in_this_phase(step: Step) -> int:
    """How far this pass has come, in elements."""
    same = [tile.cols[1] for s in step.so_far if s.phase == step.phase for tile in s.reads]
    return max(same, default=0)


def _largest_weight(step: Step) -> float:
    """The height that fills the band of y: the largest weight of the finished row."""
    output = step.run[-1].output if step.run else None
    finite = [v for v in _row(output) if math.isfinite(v)] if output is not None else []
    return max(finite, default=0.0) or 1.0


def _written_to(step: Step) -> int:
    """How far y has been written, in elements."""
    return max((tile.cols[1] for s in step.so_far for tile in s.writes), default=0)
