"""What slides can show, by name: recorded runs, plots, and numbers for their sentences, all computed here."""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

import flashlearn as fl
from flashlearn import cost
from flashlearn.core.steps import Step
from flashlearn.show.draw import (
    budget_step,
    draw_budget,
    draw_converge,
    draw_query,
    draw_roofline,
    draw_row,
    draw_tiling,
    draw_traffic,
    draw_tree,
    drawable,
)
from flashlearn.show.frame import Draw, Steps
from tools.lecture import plots


@dataclass(frozen=True)
class Run:
    """Recorded steps to be played, how they are painted, and what they show in words."""

    steps: Callable[[], Steps]
    draw: Draw
    alt: str
    figsize: tuple[float, float] = (12.8, 5.0)


@dataclass(frozen=True)
class Plot:
    """One picture: `draw(ax)` paints it."""

    draw: Callable[[Any], Any]
    alt: str
    figsize: tuple[float, float] = (12.8, 5.0)


# --- one row, one query ---

X = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
ROW = torch.tensor([3.0, 2.0, 5.0, 1.0])
FORMATS = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32", torch.float64: "float64"}
EDGES = {name: math.log(torch.finfo(dtype).max) for dtype, name in FORMATS.items()}  # exp overflows from here on


def edges(ax) -> None:
    """Where exp overflows, a bar a format."""
    ax.barh(range(len(EDGES)), list(EDGES.values()), height=0.6, color="#CC79A7")
    for place, edge in enumerate(EDGES.values()):
        ax.text(edge * 1.08, place, f"{edge:.2f}", va="center", fontsize=24)
    ax.set_yticks(range(len(EDGES)), list(EDGES), fontsize=24)
    ax.tick_params(axis="x", labelsize=20)
    ax.set(xscale="log", xlim=(1, 4000), ylim=(len(EDGES) - 0.4, -0.6))
    ax.set_xlabel("the logit x from which exp(x) is inf", fontsize=22)


def one_query(N: int, D: int) -> tuple[torch.Tensor, ...]:
    """One query, N keys and values, as in notebook 05."""
    generator = torch.Generator().manual_seed(49)
    q, k, v = (torch.randn(1, 1, n, D, generator=generator).round(decimals=1) for n in (1, N, N))
    return q, k, v


def shuffled() -> tuple[torch.Tensor, ...]:
    """x = v = [1..6] in another order, so that the maximum rises on the way; the query is 1."""
    k = X[torch.tensor([2, 0, 3, 1, 5, 4])].view(1, 1, 6, 1)
    return torch.ones(1, 1, 1, 1), k, k


ONLINE = [step.values for step in fl.record(fl.online_softmax_steps(ROW))]
L = [values["l_i"].item() for values in ONLINE[:4]]
NOT_RESCALED = L[1] + 1  # what is left on chip if the sum is not rescaled
E11 = math.exp(11)
MERGED, UPSIDE_DOWN = (1.2 + 1.4 * math.exp(by) for by in (-2, 2))
ANSWER = fl.last(fl.one_pass_attention_steps(*shuffled())).output.item()

# --- tiles ---

D, M = 3, 59  # width of a head, elements of SRAM: as in notebook 07
PAPER, FITTING = (sizes(M, D)[:2] for sizes in (fl.paper_block_sizes, fl.fitting_block_sizes))
NEED = {blocks: fl.sram_elements(*blocks, D) for blocks in (PAPER, FITTING)}


def qkv(N: int, D: int, seed: int = 0, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v of N tokens."""
    drawn = (torch.randn(1, 1, N, D, generator=torch.Generator().manual_seed(seed + i)) for i in range(3))
    q, k, v = (t.round(decimals=1).to(dtype) for t in drawn)
    return q, k, v


def both(**options) -> Mapping[str, list[Step]]:
    """FlashAttention-1 and -2 over the same twelve tokens."""
    tensors = qkv(12, D)
    return {
        "FA-1": fl.record(fl.tiled_attention_v1_steps(*tensors, **options)),
        "FA-2": fl.record(fl.tiled_attention_v2_steps(*tensors, **options)),
    }


def moved(**options) -> list[int]:
    """Bytes that the two move."""
    return [fl.hbm_bytes(run).total for run in both(**options).values()]


def race_runs() -> dict[str, list[Step]]:
    """The three of the race, on 128 tokens of width 16 in float16, in blocks of 32."""
    tensors = qkv(128, 16, dtype=torch.float16)
    return {
        "standard attention": fl.record(fl.standard_attention_steps(*tensors)),
        "FlashAttention-1": fl.record(fl.tiled_attention_v1_steps(*tensors, block_q=32, block_k=32)),
        "FlashAttention-2": fl.record(fl.tiled_attention_v2_steps(*tensors, block_q=32, block_k=32)),
    }


def update_lines() -> str:
    """The online-softmax update of the teaching kernel as a block of code, without comments and docstring."""
    try:
        from flashlearn.kernels.forward import online_softmax_update
    except ModuleNotFoundError:  # no Triton: the slide is left out
        return ""
    lines = [line.split("  #")[0] for line in inspect.getsource(online_softmax_update.fn).splitlines()]
    shown = [line for line in lines if line.strip() and not line.strip().startswith(("@", "#", '"'))]
    return "```python\n" + textwrap.dedent("\n".join(shown)) + "\n```"


def recorded() -> list[Step]:
    """The teaching kernel, as Triton's interpreter ran it: 56 tokens in blocks of 16, causal."""
    from flashlearn.kernels.forward import Launch, attention_forward
    from flashlearn.kernels.recorder import kernel_steps

    launch = Launch(block_m=16, block_n=16)
    return list(drawable(fl.record(kernel_steps(attention_forward, *qkv(56, 16), causal=True, launch=launch))))


SQUARE, SINGLE, NARROW = (moved(block_q=q, block_k=k, causal=True) for q, k in ((3, 3), (1, 1), (1, 3)))
FULL = moved(block_q=3, block_k=3)
RACE = {name: fl.hbm_bytes(run).total for name, run in race_runs().items()}
FLOPS = {name: fl.matmul_flops(run) for name, run in race_runs().items()}
N = 4096
REAL, BEST = "flash, every read counted", "flash, perfect cache"
COSTS = {
    "naive softmax": cost.softmax_cost("naive", N, N, dtype=torch.float16),
    "standard attention": cost.standard_cost(1, 1, N, N, 64),
    REAL: cost.v2_cost(1, 1, N, N, 64, block_q=128, block_k=64),
    BEST: cost.ideal_cost(1, 1, N, N, 64),
}
GPU = cost.A100_40GB
PLACED = {name: cost.placement(each, GPU) for name, each in COSTS.items()}

# --- by name ---

TILES_SIZE = (12.8, 4.25)
RUNS = {
    "naive_softmax": Run(
        lambda: fl.naive_softmax_steps(X),
        draw_row,
        f"Six bars are read while the sum grows to {X.exp().sum():.2f}, then read again and divided by it.",
    ),
    "safe_softmax": Run(
        lambda: fl.safe_softmax_steps(ROW),
        draw_row,
        "Four bars, 3, 2, 5 and 1, are read three times: for the maximum, for the sum, for the weights.",
    ),
    "online_softmax": Run(
        lambda: fl.online_softmax_steps(ROW),
        draw_row,
        f"Bars 3, 2, 5 and 1 are read once. At 5 the sum {L[1]:.4f} is rescaled and becomes {L[2]:.4f}. "
        "A second pass writes the weights.",
    ),
    "merge_tree": Run(
        lambda: fl.merge_tree_steps(torch.randn(26, generator=torch.Generator().manual_seed(0)), block_size=4),
        draw_tree,
        "26 logits in seven blocks become seven pairs, which merge two by two until one is left.",
    ),
    "one_pass": Run(
        lambda: fl.one_pass_attention_steps(*shuffled()),
        draw_converge,
        f"acc grows, is rescaled twice where the maximum rises, and is divided by ℓ at the end: {ANSWER:.4f}.",
    ),
    "one_query": Run(
        lambda: fl.one_pass_attention_steps(*one_query(10, 4)),
        draw_query,
        "A query slides over ten rows of K and V; ℓ and acc are rescaled where the maximum rises.",
        figsize=(12.8, 5.6),
    ),
    "tiles": Run(
        lambda: both(block_q=3, block_k=3, causal=True),
        draw_tiling,
        f"Both versions on twelve tokens in blocks of three, causal. The first ends with {SQUARE[0]:,} bytes, the second "
        f"with {SQUARE[1]:,}.",
        figsize=TILES_SIZE,
    ),
    "tiles_of_one": Run(
        lambda: both(block_q=1, block_k=1, causal=True),
        draw_tiling,
        f"The same twelve tokens in blocks of one: {SINGLE[0]:,} and {SINGLE[1]:,} bytes.",
        figsize=TILES_SIZE,
    ),
    "tiles_full": Run(
        lambda: both(block_q=3, block_k=3),
        draw_tiling,
        f"The same in blocks of three without a mask: {FULL[0]:,} and {FULL[1]:,} bytes.",
        figsize=TILES_SIZE,
    ),
    "budget": Run(
        lambda: [budget_step(*PAPER, D, M), budget_step(*FITTING, D, M)],
        draw_budget,
        f"Tiles laid end to end against {M} elements: {NEED[PAPER]} do not fit, {NEED[FITTING]} do.",
        figsize=(12.8, 3.2),
    ),
    "race": Run(
        lambda: fl.record(cost.race(race_runs(), frames=18)),
        draw_traffic,
        "Three bars grow at the same speed, in bytes: "
        + ", ".join(f"{name} needs {moved:,}" for name, moved in RACE.items())
        + ".",
    ),
    "kernel": Run(
        recorded,
        draw_tiling,
        "The recorded kernel: each program loads its block of Q once and the blocks of K and V that it attends to, and writes "
        "its block of O.",
        figsize=(12.8, 5.6),
    ),
}

PLOTS = {
    "matrix": Plot(
        plots.matrix,
        "Squares to scale: "
        + ", ".join(f"S of one head for N = {N:,}, {size:,.0f} MB" for N, size in plots.SCORES.items())
        + f"; next to them Q, K, V and O together, {plots.MATRICES:,.0f} MB.",
    ),
    "memories": Plot(
        plots.memories,
        f"Two squares to scale: HBM, {GPU.memory / 1e9:.0f} GB, and all SRAM, {GPU.sram / 2**20:.0f} MB.",
    ),
    "measured": Plot(
        plots.measured,
        "Three bars: " + ", ".join(f"{plots.STAGES[name]} {ms:.3g} ms" for name, ms in plots.TIMES.items()) + ".",
        figsize=(12.8, 3.6),
    ),
    "speed": Plot(
        plots.speed,
        "Bars: " + ", ".join(f"{plots.NAMES[name]} {rate:.0f} TFLOP/s" for name, rate in plots.RATES.items()) + ".",
    ),
    "overflow": Plot(edges, "Bars: " + ", ".join(f"{name} {edge:.2f}" for name, edge in EDGES.items()) + "."),
    "roofline": Plot(
        lambda ax: draw_roofline(ax, GPU, PLACED, between={"L2 decides": (REAL, BEST)}),
        "Roofline of an A100: "
        + ", ".join(f"{name} at {each.intensity:.1f} FLOP per byte" for name, each in PLACED.items())
        + ".",
        figsize=(12.8, 5.6),
    ),
}

NUMBERS = {
    "float16_max": f"{torch.finfo(torch.float16).max:,.0f}",
    "exp_11": f"{E11:,.0f}",
    "edges": ", ".join(f"{name} {edge:.2f}" for name, edge in EDGES.items()),
    "weights": ", ".join(f"{weight:.4f}" for weight in torch.softmax(ROW, -1)),
    **{f"l_{at}": f"{value:.4f}" for at, value in enumerate(L, start=1)},
    "l_3_not_rescaled": f"{NOT_RESCALED:.4f}",
    "merged": f"{MERGED:.4f}",
    "merged_upside_down": f"{UPSIDE_DOWN:.4f}",
    "one_pass_output": f"{ANSWER:.4f}",
    **{f"bytes_{at}": f"{total:,}" for at, total in enumerate(SQUARE, start=1)},
    **{f"bytes_{at}_of_one": f"{total:,}" for at, total in enumerate(SINGLE, start=1)},
    **{f"bytes_{at}_narrow": f"{total:,}" for at, total in enumerate(NARROW, start=1)},
    **{f"bytes_{at}_full": f"{total:,}" for at, total in enumerate(FULL, start=1)},
    "sram": f"{M}",
    "paper": "{} and {}".format(*PAPER),
    "fitting": "{} and {}".format(*FITTING),
    "need_paper": f"{NEED[PAPER]}",
    "need_fitting": f"{NEED[FITTING]}",
    "race": ", ".join(f"{name}: {total:,} B" for name, total in RACE.items()),
    "race_table": "\n".join(
        ["| | bytes through HBM | FLOPs of products |", "|---|---|---|"]
        + [f"| {name} | {total:,} | {FLOPS[name]:,} |" for name, total in RACE.items()]
    ),
    "race_flops": f"{FLOPS['standard attention']:,}",
    "race_factor": f"{RACE['standard attention'] / RACE['FlashAttention-2']:.1f}",
    "kernel_update": update_lines(),
    "scores_mb": f"{plots.SCORES[4096]:,.0f}",
    "scores_times": f"{plots.SCORES[16384] / plots.MATRICES:.0f}",
    "memory_ratio": f"{GPU.memory / GPU.sram:,.0f}",
    "standard_ms": f"{plots.TIMES['standard']:.3g}",
    "tiles_ms": f"{plots.TIMES['fused']:.3g}",
    "flash_ms": f"{plots.TIMES['op']:.3g}",
    "measured_factor": f"{plots.TIMES['standard'] / plots.TIMES['op']:.0f}",
    "ours_rate": f"{plots.RATES['flashlearn']:.0f}",
    "gpu": GPU.name,
    "ridge": f"{GPU.ridge():.0f}",
    "sms": f"{GPU.sms}",
    "sram_kb": f"{GPU.sram_per_sm // 1024}",
    "hbm_gb": f"{GPU.memory / 1e9:.0f}",
}
