"""The roofline of a GPU, and where algorithms stand under it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from matplotlib.axes import Axes

from flashlearn.cost import Hardware, Placement
from flashlearn.show.draw.style import COLOURS, INK, MOVED, QUIET

SIZE = 18  # points, of the labels
BAND = 18  # points, of the line between two placements
_ACROSS = 0.9  # of the figure's width is left to the axes


def draw_roofline(
    ax: Axes,
    hardware: Hardware,
    placements: Mapping[str, Placement],
    *,
    dtype: torch.dtype = torch.float16,
    between: Mapping[str, tuple[str, str]] | None = None,
) -> None:
    """Attainable FLOP/s against FLOP per byte, on logarithmic axes; every placement is a named point.

    between   {label: (name, name)}: a thick line along the roof between two of the points
    """
    ridge, peak = hardware.ridge(dtype), hardware.peak[dtype]
    xs = [at.intensity for at in placements.values()] + [ridge]
    low, high = _limits(ax, placements, xs)
    floor, top = hardware.attainable(min(xs), dtype) / 4, peak * 4
    _scales(ax, (low, high), (floor, top))
    left, base = hardware.attainable(low, dtype), floor / 10
    ax.fill([low, ridge, ridge, low], [left, peak, base, base], color=COLOURS["HBM"], zorder=0)
    ax.fill([ridge, high, high, ridge], [peak, peak, base, base], color=COLOURS["SRAM"], zorder=0)
    ax.plot([low, ridge, high], [left, peak, peak], color=INK, linewidth=4)
    ax.plot([ridge, ridge], [floor, peak], color=QUIET, linewidth=2, linestyle=(0, (2, 2)))
    _name_the_limits(ax, hardware, ridge, peak, floor)
    for label, ends in (between or {}).items():
        _line_between(ax, label, hardware, dtype, *(placements[name].intensity for name in ends))
    _points(ax, placements, (low, high), (floor, top))


def _scales(ax, across, up) -> None:
    """Logarithmic, a number at every decade."""
    ax.set(xscale="log", yscale="log", xlim=across, ylim=up)
    ax.set(xlabel="arithmetic intensity: FLOP per byte of HBM traffic", ylabel="attainable TFLOP/s")
    ax.set_xticks(_decades(*across), [f"{x:g}" for x in _decades(*across)])
    ax.set_yticks(_decades(*up), [f"{y / 1e12:g}" for y in _decades(*up)])
    ax.minorticks_off()


def _name_the_limits(ax, hardware, ridge, peak, floor) -> None:
    """What bounds each side, and the ridge between them."""
    base = floor * 1.25
    style = {"fontsize": SIZE, "weight": "bold", "va": "bottom"}
    ax.text(ridge / 1.08, base, f"memory-bound:\n{hardware.bandwidth / 1e9:.0f} GB/s", ha="right", **style)
    ax.text(ridge * 1.08, base, f"compute-bound:\n{peak / 1e12:.0f} TFLOP/s", ha="left", **style)
    ridge_at = math.sqrt(floor * peak)
    ax.text(ridge * 1.08, ridge_at, f"ridge: {ridge:.0f} FLOP/B", ha="left", va="center", fontsize=SIZE, color=INK)


def _line_between(ax, label, hardware, dtype, start, stop) -> None:
    ridge = hardware.ridge(dtype)
    xs = sorted({start, stop} | ({ridge} if min(start, stop) < ridge < max(start, stop) else set()))
    style = {"color": MOVED, "linewidth": BAND, "solid_capstyle": "butt", "zorder": 1.5}
    ax.plot(xs, [hardware.attainable(x, dtype) for x in xs], **style)
    x = max(xs[0], min(ridge, xs[-1]))
    below = {"xytext": (0, -16), "textcoords": "offset points", "va": "top", "fontsize": SIZE}
    ax.annotate(label, (1.08 * x, hardware.attainable(x, dtype)), **below)


def _limits(ax, placements, xs) -> tuple[float, float]:
    """The range of x: far enough to the left that every name fits between the axis and its point."""
    high = math.log10(3 * max(xs))
    low = math.log10(min(xs) / 4)
    for name, at in placements.items():
        x, part = math.log10(at.intensity), (_width(_words(name, at)) + 12) / (_ACROSS * _points_wide(ax))
        low = min(low, (x - part * high) / (1 - part))
    return 10**low, 10**high


def _words(name: str, at: Placement) -> str:
    return f"{name}  {at.intensity:.{0 if at.intensity >= 10 else 2}f}"


def _width(words: str) -> float:
    """About how wide a name is, in points."""
    return 0.68 * SIZE * len(words)


def _points_wide(ax) -> float:
    return 72 * ax.figure.get_size_inches()[0]


def _decades(low: float, high: float) -> list[float]:
    return [10.0**n for n in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def _points(ax, placements, across, up) -> None:
    """Names stand to the upper left of their points, where nothing else is, each above the one before."""
    inches = ax.figure.get_size_inches()
    a_decade = _ACROSS * _points_wide(ax) / math.log10(across[1] / across[0])  # points
    b_decade = 0.8 * inches[1] * 72 / math.log10(up[1] / up[0])
    taken: list[tuple[float, float, float]] = []  # (left, right, height) of the names so far, in points
    for name, at in sorted(placements.items(), key=lambda item: item[1].intensity):
        words = _words(name, at)
        x, y = math.log10(at.intensity / across[0]) * a_decade, math.log10(at.attainable / up[0]) * b_decade
        width, lift = _width(words), 16
        for left, right, height in taken:
            if x - width < right and left < x and abs(y + lift - height) < 1.35 * SIZE:
                lift = height + 1.35 * SIZE - y
        taken.append((x - width, x, y + lift))
        filled = at.bound == "compute-bound"
        style = {"marker": "o", "markersize": 15, "markeredgewidth": 3, "markeredgecolor": INK, "zorder": 5}
        point, offset = (at.intensity, at.attainable), {"textcoords": "offset points"}
        if lift > 16:
            line = {"arrowstyle": "-", "color": INK, "linewidth": 1.5}
            ax.annotate("", point, (0, lift), arrowprops=line, **offset)
        ax.plot(*point, markerfacecolor=INK if filled else "white", **style)
        bold = {"ha": "right", "va": "center", "fontsize": SIZE, "weight": "bold", "zorder": 6}
        ax.annotate(words, point, (-4 if lift > 16 else -8, lift), **bold, **offset)
