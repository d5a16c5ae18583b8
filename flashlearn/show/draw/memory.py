"""The two memories of a GPU, to scale: squares for their sizes, pipes for the bytes a second between them."""

from __future__ import annotations

import math

from matplotlib.axes import Axes

from flashlearn.cost import Hardware
from flashlearn.show.draw.style import COLOURS, INK, QUIET, box, canvas

WIDTH, HEIGHT = 1280, 460
SIDE = 380  # of the square of HBM
WIDEST = 220  # height of the wider pipe
CHIP = 960  # where the arithmetic begins


def draw_memory(ax: Axes, hardware: Hardware) -> None:
    """HBM, SRAM and the arithmetic units from left to right; areas and heights of pipes are to scale."""
    canvas(ax, WIDTH, HEIGHT)
    middle, left = 56 + SIDE / 2, 24
    small = max(SIDE * math.sqrt(hardware.sram / hardware.memory), 2)
    widest = max(hardware.bandwidth, hardware.sram_bandwidth)
    sram = 660  # left edge
    for x0, x1, rate in ((left + SIDE, sram, hardware.bandwidth), (sram + small, CHIP, hardware.sram_bandwidth)):
        high = WIDEST * rate / widest
        box(ax, x0, middle - high / 2, x1 - x0, high, face="#9A9A9A", edge="none")
        where = {"ha": "center", "weight": "bold", "fontsize": 22}
        if high > 40:
            ax.text((x0 + x1) / 2, middle, _rate(rate), va="center", **where)
        else:
            ax.text((x0 + x1) / 2, middle - high / 2 - 10, _rate(rate), va="bottom", **where)
    box(ax, left, 56, SIDE, SIDE, face=COLOURS["HBM"], edge=QUIET, width=2)
    ax.text(left + SIDE / 2, middle, f"HBM\n{_size(hardware.memory, 1000)}", ha="center", va="center", fontsize=28,
            weight="bold", linespacing=1.4)  # fmt: skip
    box(ax, sram, middle - small / 2, small, small, face=COLOURS["SRAM"], edge=INK, width=2)
    ax.plot([sram + small / 2] * 2, [middle + small / 2, middle + WIDEST / 2 + 10], color=INK, linewidth=2)
    ax.text(sram + small / 2, middle + WIDEST / 2 + 14, f"SRAM\n{_size(hardware.sram, 1024)} in all", ha="center",
            va="top", fontsize=22, weight="bold", linespacing=1.3)  # fmt: skip
    box(ax, CHIP, 56, WIDTH - CHIP - 24, SIDE, face="white", edge=INK, width=2)
    tera = next(iter(hardware.peak.values())) / 1e12
    ax.text((CHIP + WIDTH - 24) / 2, middle, f"arithmetic\n{tera:.0f} TFLOP/s", ha="center", va="center", fontsize=24,
            weight="bold", linespacing=1.4)  # fmt: skip
    ax.text(left, 10, f"{hardware.name}, to scale", va="top", fontsize=20, weight="bold", color=QUIET)


def _rate(rate: float) -> str:
    return f"{rate / 1e9:.0f} GB/s" if rate < 1e13 else f"{rate / 1e12:.3g} TB/s"


def _size(size: int, kilo: int) -> str:
    giga = size / kilo**3
    return f"{giga:.0f} GB" if giga >= 1 else f"{size / kilo**2:.0f} MB"
