"""How long it takes to redraw one step: the time between moving a slider and the new picture.

    python benchmarks/redraw.py

Prints the median and the slowest step of every kind of picture, as the stepper paints it (figure, PNG and all).
The bound is 100 ms a step, and 150 ms for two panels of tiles with N = 16.
"""

from __future__ import annotations

import statistics
import time

import torch

import flashlearn as fl
from flashlearn.draw import draw_matmul, draw_row, draw_tiling, draw_tree
from flashlearn.draw.frame import as_runs, count, paint, png

BOUND, TWO_PANELS = 100, 150  # milliseconds

row = torch.randn(16, generator=torch.Generator().manual_seed(0))
many = torch.randn(256, generator=torch.Generator().manual_seed(0))
q, k, v = torch.randn(3, 1, 1, 16, 4, generator=torch.Generator().manual_seed(0)).unbind(0)


def both(block_q, block_k):
    """FlashAttention-1 and -2 side by side, as the tiling explorer shows them."""
    versions = {"v1": fl.tiled_attention_v1_steps, "v2": fl.tiled_attention_v2_steps}
    return {name: steps(q, k, v, block_q=block_q, block_k=block_k) for name, steps in versions.items()}


PICTURES = {
    "row, 16 logits": (fl.online_softmax_steps(row), draw_row, (12.8, 5.0)),
    "row, 64 logits in blocks of 8": (fl.blocked_softmax_steps(many[:64], 8), draw_row, (12.8, 5.0)),
    "merge tree, 7 leaves": (fl.merge_tree_steps(row[:14], 2), draw_tree, (12.8, 5.2)),
    "merge tree, 64 leaves": (fl.merge_tree_steps(many, 4), draw_tree, (12.8, 5.2)),
    "matmul by blocks": (
        fl.tiled_matmul_steps(many[:32].view(8, 4), many[:32].view(4, 8), block_m=4, block_n=2, block_k=2),
        draw_matmul,
        (12.8, 5.6),
    ),
    "tiles, one panel, with numbers": (
        fl.tiled_attention_v2_steps(q, k, v, block_q=4, block_k=4),
        draw_tiling,
        (12.8, 5.5),
    ),
    "tiles, two panels, blocks of 3": (both(3, 3), draw_tiling, (12.8, 4.4)),
    "tiles, two panels, blocks of 8": (both(8, 8), draw_tiling, (12.8, 4.4)),
    "tiles, two panels, blocks of 2": (both(2, 2), draw_tiling, (12.8, 4.4)),
}


def milliseconds(steps, draw, figsize) -> list[float]:
    """The time of every step, the best of three, after one step that is not counted."""
    runs = as_runs(steps)
    png(paint(runs, 0, draw, figsize))
    times = []
    for number in range(count(runs)):
        tries = []
        for _ in range(3):
            start = time.perf_counter()
            png(paint(runs, number, draw, figsize))
            tries.append(1000 * (time.perf_counter() - start))
        times.append(min(tries))
    return times


if __name__ == "__main__":
    print(f"{'picture':32} {'steps':>5} {'median ms':>10} {'slowest ms':>11}")
    for name, (steps, draw, figsize) in PICTURES.items():
        times = milliseconds(steps, draw, figsize)
        bound = TWO_PANELS if "two panels" in name else BOUND
        late = "" if max(times) <= bound else f"   above {bound} ms"
        print(f"{name:32} {len(times):5} {statistics.median(times):10.1f} {max(times):11.1f}{late}")
