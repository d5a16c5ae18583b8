"""A race of several runs at the same bandwidth: what each has moved, by matrix, as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from flashlearn.core.steps import Step
from flashlearn.cost import Lane
from flashlearn.show.draw.parts import CENTRED
from flashlearn.show.draw.sheet import DASHES, Rect, Sheet
from flashlearn.show.draw.style import INK, MEANING, PALE, QUIET, colour, ink_on
from flashlearn.show.draw.values import check_steps_of

WIDTH, HEIGHT = 1280, 500
LEFT, SPAN = 24, 1232  # of the bars
ORDER = ("Q", "K", "V", "S", "P", "m, l", "O")


def draw_traffic(ax: Axes, step: Step) -> None:
    """Paint one step of `flashlearn.cost.race`: a bar for each lane, on one scale of bytes."""
    check_steps_of("a race", step, values=["lanes", "full", "moved"])
    sheet = Sheet(ax, WIDTH, HEIGHT)
    lanes, full, moved = (step.values[name] for name in ("lanes", "full", "moved"))
    words = f"In the time that it takes to move {moved:,} B"
    sheet.text(LEFT, 10, words, va="top", weight="bold", fontsize=20, color=QUIET)
    each = (HEIGHT - 56) / len(lanes)
    for n, (title, lane) in enumerate(lanes.items()):
        _lane(sheet, title, lane, Rect(LEFT, 56 + n * each, SPAN, each), SPAN / max(1, full))
    sheet.paint()


def _lane(sheet: Sheet, title: str, lane: Lane, area: Rect, unit: float) -> None:
    """Title, state and bar of one run; a byte is `unit` pixels long."""
    bold = {"va": "top", "weight": "bold", "fontsize": 21}
    sheet.text(LEFT, area.y + 4, title, **bold)
    state = f"done with {sum(lane.moved.values()):,} B" if lane.over else f"products done: {lane.work:.0%}"
    sheet.text(LEFT + SPAN, area.y + 4, state, ha="right", **bold)
    bar = Rect(LEFT, area.y + 42, SPAN, min(area.h - 60, 90))
    sheet.box(bar, "white", PALE, 1)
    end = _segments(sheet, lane.moved, unit, bar)
    if lane.under_way:
        sheet.box((end, bar.y, lane.under_way * unit, bar.h), "white", QUIET, 2, dashes=DASHES)
    if lane.over:
        sheet.line([end, end], [bar.y - 6, bar.bottom + 6], color=INK, linewidth=5, solid_capstyle="butt")


def _segments(sheet: Sheet, moved: Mapping[str, int], unit: float, bar: Rect) -> float:
    """The bytes of each matrix, end to end; returns where they end."""
    together = dict.fromkeys(ORDER, 0)
    for name, size in moved.items():
        shown = "m, l" if MEANING.get(name) == "m, l" else name
        together[shown] = together.get(shown, 0) + size
    at: float = LEFT
    for name, size in together.items():
        if not size:
            continue
        long = size * unit
        segment = Rect(at, bar.y, long, bar.h)
        sheet.box(segment, colour(name), INK, 1.2)
        if long > 17 * len(name) + 4:
            sheet.text(*segment.centre, name, fontsize=20, color=ink_on(name), weight="bold", **CENTRED)
        at += long
    return at
