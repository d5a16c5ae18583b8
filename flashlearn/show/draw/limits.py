"""Bytes and least times as curves on logarithmic axes, with their names beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from flashlearn.show.draw.style import COLOURS, INK, MOVED


def draw_budgets(ax: Axes, budgets: Sequence[int], traffic: Mapping[str, Sequence[int]]) -> None:
    """Bytes moved for every budget of SRAM, in elements: a curve for each algorithm, its name at its end."""
    for (name, values), marker in zip(traffic.items(), "sD^o", strict=False):
        ax.plot(budgets, [value / 1e6 for value in values], marker=marker, color=INK, markersize=11)
        ax.text(budgets[-1] * 1.06, values[-1] / 1e6, name, va="center", weight="bold")
    every = [value / 1e6 for values in traffic.values() for value in values]
    across, up = (0.9 * budgets[0], 3 * budgets[-1]), (min(every) / 1.7, 1.4 * max(every))
    ax.set(xscale="log", yscale="log", xlim=across, ylim=up, xlabel="M: elements of SRAM", ylabel="HBM traffic, MB")
    _ticks(ax, budgets, [tick for tick in (0.125, 0.25, 0.5, 1, 2, 4, 8) if up[0] <= tick <= up[1]])


def draw_block_sizes(ax: Axes, sweep: Mapping[int, tuple[float, float, bool]]) -> None:
    """The least times, in µs, of waiting for HBM and of computing, and whether the tiles fit: {block_q: (.., .., fits)}.

    The larger of the two, a broad grey curve, is the least time of the whole; it bends where the two cross.
    """
    if len(sweep) < 2 or not any(fits for _, _, fits in sweep.values()):
        raise ValueError(f"expected at least two block sizes, one of which fits, got {dict(sweep)}")
    blocks = list(sweep)
    memory, compute, fits = zip(*sweep.values(), strict=True)
    largest = max(block for block, fit in zip(blocks, fits, strict=True) if fit)
    edge, right = largest * 2**0.5, blocks[-1] * 2**0.5
    if right > edge:
        ax.axvspan(edge, right, facecolor=COLOURS["masked"], hatch="///", edgecolor="white", linewidth=0)
        words = "does not\nfit in\nan SM"
        x, y = (edge * right) ** 0.5, memory[1] / 1.5
        ax.text(x, y, words, ha="center", weight="bold", backgroundcolor="white")
    between = np.geomspace(blocks[0], blocks[-1], 200)
    ax.plot(between, np.maximum(_curve(blocks, memory, between), _curve(blocks, compute, between)), color=MOVED, lw=16)
    ax.plot(blocks, memory, "o-", color=INK)
    ax.plot(blocks, compute, "s--", color=INK)
    ax.text(blocks[1] * 1.25, memory[1] * 1.12, "waiting for HBM, every read counted", weight="bold")
    ax.text(blocks[0] * 1.06, compute[0] / 1.45, "computing", weight="bold")
    up = min(memory + compute) / 1.5, 1.7 * max(memory + compute)
    ax.set(
        xscale="log", yscale="log", xlim=(0.87 * blocks[0], right), ylim=up, xlabel="block_q", ylabel="least time, µs"
    )
    _ticks(ax, blocks, [tick for tick in (5, 10, 20, 50, 100, 200) if up[0] <= tick <= up[1]])


def _curve(blocks: Sequence[int], times: Sequence[float], between: np.ndarray) -> np.ndarray:
    """The straight lines that join the times on logarithmic axes, at the block sizes `between`."""
    return np.exp(np.interp(np.log(between), np.log(blocks), np.log(times)))


def _ticks(ax: Axes, across: Sequence[int], up: Sequence[float]) -> None:
    """Numbers as they are, not as powers of ten."""
    ax.minorticks_off()
    ax.set_xticks(across, [f"{x:,}" for x in across])
    ax.set_yticks(up, [f"{y:g}" for y in up])
