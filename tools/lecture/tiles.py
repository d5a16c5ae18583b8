"""The second half of the lecture: tiles, bytes, a real kernel (notebooks 07, 08 and 12)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import torch

import flashlearn as fl
from flashlearn import cost
from flashlearn.core.steps import Step
from flashlearn.show.draw import budget_step, draw_budget, draw_roofline, draw_tiling, draw_traffic, drawable
from tools.lecture.slides import Plot, Poll, Run, Section, Slide

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
PLACED = {name: cost.placement(each, cost.A100_40GB) for name, each in COSTS.items()}

TILES = Section(
    "07",
    (
        Slide(
            "From one query to tiles",
            (2, 3),
            "A block of queries stays on chip while blocks of K and V pass by; or the other way round. Every row of a tile of S "
            "has its own m and ℓ.",
            "<p>Several queries at once, several keys at once: the rule stays, row by row.</p>"
            "<p class='formula'>acc<sub>i</sub> ← diag(e<sup>m − m<sub>new</sub></sup>) acc<sub>i</sub> + P<sub>ij</sub> V<sub>j</sub></p>"
            "<p>FlashAttention-1: K, V in the outer loop. FlashAttention-2: Q in the outer loop.</p>",
        ),
        Slide(
            "Which moves fewer bytes?",
            (2, 3),
            f"Twelve tokens, blocks of 3, causal: {SQUARE[0]:,} B and {SQUARE[1]:,} B. Version 1 writes O, ℓ and m back at every visit.",
            shows=Poll(
                "FlashAttention-1 and -2, the same blocks, the same numbers. Which moves fewer bytes?",
                (
                    ("the same", "The same tiles meet, but version 1 takes O, ℓ and m to HBM and back at every visit."),
                    ("version 1", "It reads K and V once, and pays with O, ℓ and m at every visit."),
                    (
                        "version 2",
                        f"Right, here: {SQUARE[1]:,} B against {SQUARE[0]:,} B. With narrow blocks it can turn round.",
                    ),
                ),
                2,
            ),
        ),
        Slide(
            "FlashAttention-1 and -2",
            (7, 9),
            "Ask which tiles are read next, left and right. Go to the next rescaling: rows of acc change colour. Then to the end: compare the two byte counters.",
            shows=Run(
                lambda: both(block_q=3, block_k=3, causal=True),
                draw_tiling,
                f"Both versions on twelve tokens in blocks of three, causal. The first ends with {SQUARE[0]:,} bytes, the second "
                f"with {SQUARE[1]:,}.",
                still=5,
                figsize=(12.8, 4.25),
            ),
        ),
        Slide(
            "Blocks of one",
            (3, 3),
            f"Blocks of one query and one key: {SINGLE[0]:,} B and {SINGLE[1]:,} B. At B_r = 1, B_c = 3 it turns round: "
            f"{NARROW[0]:,} B and {NARROW[1]:,} B. Small blocks mean many visits.",
            shows=Run(
                lambda: both(block_q=1, block_k=1, causal=True),
                draw_tiling,
                f"The same twelve tokens in blocks of one: {SINGLE[0]:,} and {SINGLE[1]:,} bytes.",
                figsize=(12.8, 4.25),
            ),
        ),
        Slide(
            "Without the causal mask",
            (3, 3),
            f"Every block is visited now: {FULL[0]:,} B and {FULL[1]:,} B, instead of {SQUARE[0]:,} B and {SQUARE[1]:,} B.",
            shows=Run(
                lambda: both(block_q=3, block_k=3),
                draw_tiling,
                f"The same in blocks of three without a mask: {FULL[0]:,} and {FULL[1]:,} bytes.",
                figsize=(12.8, 4.25),
            ),
        ),
        Slide(
            "Do the blocks fit?",
            (1.5, 2),
            f"The paper's rule takes M / 4d keys, rounded up, and at most d queries. It fits where M is large beside d²; here the "
            f"blocks need {NEED[PAPER]} of {M} elements.",
            shows=Poll.of("07.fit"),
        ),
        Slide(
            "The budget",
            (1.5, 2),
            "Rounded down, they fit here, though not always. An H100 asks it twice: 228 KB of shared memory for Q, K and V, "
            "256 KB of registers for S and O.",
            shows=Run(
                lambda: [budget_step(*PAPER, D, M), budget_step(*FITTING, D, M)],
                draw_budget,
                f"Tiles laid end to end against {M} elements: {NEED[PAPER]} do not fit, {NEED[FITTING]} do.",
                figsize=(12.8, 3.2),
            ),
        ),
    ),
)

FAST = Section(
    "08",
    (
        Slide(
            "Why is it faster?",
            (2, 1),
            "Expect: it computes less. Forward it multiplies exactly as much; backward it multiplies more, since it makes P again.",
            shows=Poll.of("09.recall.c"),
        ),
        Slide(
            "The race at equal bandwidth",
            (5, 2),
            ", ".join(f"{name}: {moved:,} B" for name, moved in RACE.items())
            + f". All three multiply {FLOPS['standard attention']:,} FLOP.",
            shows=Run(
                lambda: fl.record(cost.race(race_runs(), frames=18)),
                draw_traffic,
                "Three bars grow at the same speed, in bytes: "
                + ", ".join(f"{name} needs {moved:,}" for name, moved in RACE.items())
                + ".",
            ),
        ),
        Slide(
            "Under the roof",
            (3, 2),
            "Left of the ridge memory decides, right of it arithmetic. With d = 64 standard attention sits on the slope however large N is; "
            "where flash sits depends on the cache.",
            shows=Plot(
                lambda ax: draw_roofline(ax, cost.A100_40GB, PLACED, between={"L2 decides": (REAL, BEST)}),
                "Roofline of an A100: "
                + ", ".join(f"{name} at {each.intensity:.1f} FLOP per byte" for name, each in PLACED.items())
                + ".",
                figsize=(12.8, 5.6),
            ),
        ),
    ),
)

KERNEL = Section(
    "12",
    (
        Slide(
            "The same picture, from a real kernel",
            (3, 0),
            "A Triton kernel, run by the interpreter and recorded: these tiles are what it loaded and stored. The interpreter shows what "
            "is read and written, not how fast.",
            shows=Run(
                recorded,
                draw_tiling,
                "The recorded kernel: each program loads its block of Q once and the blocks of K and V that it sees, and writes its "
                "block of O.",
                figsize=(12.8, 5.6),
            ),
        ),
        Slide(
            "Take home",
            (2, 0),
            "Where to go on: notebook 00, then the exercises of 03 and 07. Leave this slide up for questions.",
            "<ul><li>Rescale, then add: m and ℓ, and acc with them.</li>"
            "<li>Q stays, K and V pass by; S and P are never stored.</li>"
            f"<li>The same products, fewer bytes: {RACE['standard attention'] / RACE['FlashAttention-2']:.1f} times fewer in the race.</li>"
            "<li>Every picture here was drawn from a program that ran: open a notebook and change it.</li></ul>",
        ),
    ),
)  # fmt: skip


def sections() -> list[Section]:
    """The second half; without the recorded kernel where Triton is not installed."""
    if importlib.util.find_spec("triton"):
        return [TILES, FAST, KERNEL]
    rest = [slide for slide in KERNEL.slides if not isinstance(slide.shows, Run)]
    return [TILES, FAST, Section(KERNEL.notebook, tuple(rest))]
