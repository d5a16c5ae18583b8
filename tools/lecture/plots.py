"""Plots of the lecture's story: a matrix and two memories to scale, and times that were measured."""

from __future__ import annotations

from typing import Any

from matplotlib.patches import Rectangle

from flashlearn.cost import A100_40GB
from flashlearn.measurements.records import chosen, load, provenance

RECORD, LADDER = load("gpu_attention_h200"), load("gpu_ladder")
BLACK, GREY, PURPLE, YELLOW = "#1A1A1A", "#BBBBBB", "#CC79A7", "#F0E442"  # purple is S; blue would be Q
NAMES = {"efficient": "memory-efficient", "fa2": "FlashAttention-2", "cudnn": "cuDNN", "fa4": "FlashAttention-4",
         "flashlearn": "this course"}  # fmt: skip
STAGES = {"standard": "three operations", "fused": "tiles, one kernel", "op": "the fast kernel"}


def megabytes(N: int, columns: int) -> float:
    """MB of N rows in float16."""
    return 2 * N * columns / 1e6


def squares(ax: Any, sides: list[tuple[str, float, str]], gap: float) -> None:
    """Squares next to each other on one line, each with its words below; sides in units of the axes."""
    at = 0.0
    for words, side, colour in sides:
        ax.add_patch(Rectangle((at, 0), side, side, facecolor=colour, edgecolor="black"))
        ax.text(at + side / 2, -gap / 6, words, ha="center", va="top", fontsize=20)
        at += max(side, gap) + gap
    ax.set(xlim=(-gap / 2, at), ylim=(-1.2 * gap, max(side for _, side, _ in sides) * 1.05), aspect="equal")
    ax.axis("off")


SCORES = {N: megabytes(N, N) for N in (1024, 4096, 16384)}  # of one head
MATRICES = megabytes(16384, 4 * 128)  # Q, K, V and O of one head of 128 columns


def matrix(ax: Any) -> None:
    """S of one head for three lengths, and Q, K, V and O of the longest: areas are bytes."""
    sides = [(f"S, N = {N:,}\n{size:,.0f} MB", size**0.5, PURPLE) for N, size in SCORES.items()]
    squares(ax, [*sides, (f"Q, K, V, O\nN = 16,384\n{MATRICES:,.0f} MB", MATRICES**0.5, GREY)], gap=6.5)


def memories(ax: Any) -> None:
    """HBM and all SRAM of an A100: areas are bytes."""
    gpu = A100_40GB
    hbm, sram = gpu.memory / 1e6, gpu.sram / 1e6
    words = [
        f"HBM: {hbm / 1e3:,.0f} GB\n{gpu.bandwidth / 1e12:.2f} TB/s",
        f"SRAM: {gpu.sram / 2**20:.0f} MB in {gpu.sms} parts\n{gpu.sram_bandwidth / 1e12:.1f} TB/s",
    ]
    squares(ax, [(words[0], hbm**0.5, GREY), (words[1], sram**0.5, YELLOW)], gap=150)


def bars(ax: Any, values: dict[str, float], names: dict[str, str], unit: str, record: dict) -> None:
    """A bar for each value, the last in black."""
    for place, value in enumerate(values.values()):
        ax.barh(place, value, height=0.7, color=BLACK if place == len(values) - 1 else GREY)
        ax.text(value, place, f"  {value:.3g} {unit}", va="center", fontsize=22)
    ax.set_yticks(range(len(values)), [names[name] for name in values], fontsize=22)
    ax.set(xlim=(0, 1.25 * max(values.values())), xticks=[], ylim=(len(values) - 0.4, -0.6))
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.set_xlabel(provenance(record), fontsize=14)


D, N, HEADS = 128, 4096, 64  # of the times
(_ladder,) = chosen(LADDER["forward"], D=D, N=N, causal=False)
TIMES = {name: 4 * HEADS * N * N * D / _ladder[name] / 1e9 for name in STAGES}  # ms of a forward pass
(_rates,) = chosen(RECORD["rows"], D=128, N=16384, causal=True, dtype="float16", H_q=16)
RATES = {name: _rates[name]["forward"] for name in NAMES}


def measured(ax: Any) -> None:
    """Milliseconds of one forward pass: S and P in HBM, or never there."""
    bars(ax, TIMES, STAGES, "ms", LADDER)


def speed(ax: Any) -> None:
    """TFLOP/s of five implementations."""
    bars(ax, RATES, NAMES, "TFLOP/s", RECORD)
