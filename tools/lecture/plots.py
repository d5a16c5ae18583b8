"""Plots of the lecture's story: a matrix and two memories to scale, and times that were measured."""

from __future__ import annotations

from typing import Any

from matplotlib.patches import Rectangle

from flashlearn.cost import A100_40GB
from flashlearn.measurements.records import chosen, load, provenance

RECORD = load("gpu_attention_h200")
BLUE, RED, GREY, YELLOW = "#0072B2", "#D55E00", "#BBBBBB", "#F0E442"
NAMES = {"math": "standard", "efficient": "memory-efficient", "fa2": "FlashAttention-2", "cudnn": "cuDNN",
         "fa4": "FlashAttention-4", "flashlearn": "this course"}  # fmt: skip


def megabytes(N: int, columns: int) -> float:
    """MB of N rows in float16."""
    return 2 * N * columns / 1e6


def squares(ax: Any, sides: list[tuple[str, float, str]], gap: float) -> None:
    """Squares next to each other on one line, each with its words below; sides in units of the axes."""
    at = 0.0
    for words, side, colour in sides:
        ax.add_patch(Rectangle((at, 0), side, side, facecolor=colour, edgecolor="black"))
        ax.text(at + side / 2, -gap / 4, words, ha="center", va="top", fontsize=20)
        at += max(side, gap) + gap
    ax.set(xlim=(-gap / 2, at), ylim=(-1.6 * gap, max(side for _, side, _ in sides) * 1.05), aspect="equal")
    ax.axis("off")


SCORES = {N: megabytes(N, N) for N in (1024, 4096, 16384)}  # of one head
MATRICES = megabytes(16384, 4 * 128)  # Q, K, V and O of one head of 128 columns


def matrix(ax: Any) -> None:
    """S of one head for three lengths, and Q, K, V and O of the longest: areas are bytes."""
    sides = [(f"S, N = {N:,}\n{size:,.0f} MB", size**0.5, RED) for N, size in SCORES.items()]
    squares(ax, [*sides, (f"Q, K, V, O\nN = 16,384\n{MATRICES:,.0f} MB", MATRICES**0.5, BLUE)], gap=5)


def memories(ax: Any) -> None:
    """HBM and all SRAM of an A100: areas are bytes."""
    gpu = A100_40GB
    hbm, sram = gpu.memory / 1e6, gpu.sram / 1e6
    words = [
        f"HBM: {hbm / 1e3:,.0f} GB\n{gpu.bandwidth / 1e12:.2f} TB/s",
        f"SRAM: {sram:.0f} MB in {gpu.sms} parts\n{gpu.sram_bandwidth / 1e12:.0f} TB/s",
    ]
    squares(ax, [(words[0], hbm**0.5, GREY), (words[1], sram**0.5, YELLOW)], gap=70)


def row(D: int, N: int, causal: bool) -> dict:
    """What was recorded for float16 at this setting: TFLOP/s by library."""
    return chosen(RECORD["rows"], D=D, N=N, causal=causal, dtype="float16", H_q=2048 // D)[0]


def milliseconds(name: str, D: int = 128, N: int = 4096, causal: bool = True) -> float:
    """The recorded time of the forward pass."""
    setting = row(D, N, causal)
    flops = 4 * setting["B"] * setting["H_q"] * N * N * D / (2 if causal else 1)
    return flops / setting[name]["forward"] / 1e9


def bars(ax: Any, values: dict[str, float], unit: str) -> None:
    for place, (name, value) in enumerate(values.items()):
        ax.barh(place, value, height=0.7, color=BLUE if name == "flashlearn" else GREY)
        ax.text(value, place, f"  {value:.3g} {unit}", va="center", fontsize=22)
    ax.set_yticks(range(len(values)), [NAMES[name] for name in values], fontsize=22)
    ax.set(xlim=(0, 1.25 * max(values.values())), xticks=[], ylim=(len(values) - 0.4, -0.6))
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.set_xlabel(provenance(RECORD), fontsize=14)


TIMES = {name: milliseconds(name) for name in ("math", "flashlearn")}
RATES = {name: row(128, 16384, True)[name]["forward"] for name in NAMES}


def measured(ax: Any) -> None:
    """Milliseconds of one forward pass, with and without the matrix in HBM."""
    bars(ax, TIMES, "ms")


def speed(ax: Any) -> None:
    """TFLOP/s of six implementations."""
    bars(ax, RATES, "TFLOP/s")
