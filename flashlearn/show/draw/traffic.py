"""A race of several runs at the same bandwidth: what each has moved, by matrix, as stacked bars."""

from __future__ import annotations

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.show.draw.grid import ink_on
from flashlearn.show.draw.style import INK, MEANING, QUIET, box, canvas, colour

WIDTH, HEIGHT = 1280, 500
LEFT, SPAN = 24, 1232  # of the bars
ORDER = ("Q", "K", "V", "S", "P", "m, l", "O")


def draw_traffic(ax: Axes, step: Step) -> None:
    """Paint one step of `flashlearn.cost.race`: a bar for each lane, on one scale of bytes."""
    canvas(ax, WIDTH, HEIGHT)
    lanes, full, moved = (step.values[name] for name in ("lanes", "full", "moved"))
    unit, each = SPAN / max(1, full), (HEIGHT - 56) / len(lanes)
    ax.text(
        LEFT, 10, f"In the time that it takes to move {moved:,} B", va="top", weight="bold", fontsize=20, color=QUIET
    )
    for place, (title, lane) in enumerate(lanes.items()):
        top = 56 + place * each
        total = sum(lane.moved.values())
        ax.text(LEFT, top + 4, title, va="top", weight="bold", fontsize=21)
        state = f"done with {total:,} B" if lane.over else f"products done: {lane.work:.0%}"
        ax.text(LEFT + SPAN, top + 4, state, va="top", ha="right", weight="bold", fontsize=21)
        bar, high = top + 42, min(each - 60, 90)
        box(ax, LEFT, bar, SPAN, high, face="white", edge="#8A8A8A", width=1)
        end = _segments(ax, lane.moved, unit, bar, high)
        if lane.under_way:
            box(ax, end, bar, lane.under_way * unit, high, "white", edge=QUIET, width=2, linestyle=(0, (3, 2)))
        if lane.over:
            ax.plot([end, end], [bar - 6, bar + high + 6], color=INK, linewidth=5, solid_capstyle="butt")


def _segments(ax, moved, unit, top, high) -> float:
    """The bytes of each matrix, end to end; returns where they end."""
    together = dict.fromkeys(ORDER, 0)
    for name, size in moved.items():
        shown = "m, l" if MEANING.get(name) == "m, l" else name
        together[shown] = together.get(shown, 0) + size
    at = LEFT
    for name, size in together.items():
        if not size:
            continue
        long = size * unit
        box(ax, at, top, long, high, colour(name), edge=INK, width=1.2)
        if long > 17 * len(name) + 4:
            style = {"ha": "center", "va": "center", "weight": "bold"}
            ax.text(at + long / 2, top + high / 2, name, fontsize=20, color=ink_on(name), **style)
        at += long
    return at
