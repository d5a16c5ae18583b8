"""How long it takes to redraw one step: the time between moving a slider and the new picture.

    python benchmarks/redraw.py

Prints the median and the slowest step of every kind of picture, as the stepper paints it (figure, PNG and all).
The bound is 100 ms a step.
"""

from __future__ import annotations

import statistics
import time

import torch

import flashlearn as fl
from flashlearn.draw import draw_row, draw_tree
from flashlearn.draw.frame import as_runs, count, paint, png

BOUND = 100  # milliseconds

row = torch.randn(16, generator=torch.Generator().manual_seed(0))
many = torch.randn(256, generator=torch.Generator().manual_seed(0))
PICTURES = {
    "row, 16 logits": (fl.online_softmax_steps(row), draw_row, (12.8, 5.0)),
    "row, 64 logits in blocks of 8": (fl.blocked_softmax_steps(many[:64], 8), draw_row, (12.8, 5.0)),
    "merge tree, 7 leaves": (fl.merge_tree_steps(row[:14], 2), draw_tree, (12.8, 5.2)),
    "merge tree, 64 leaves": (fl.merge_tree_steps(many, 4), draw_tree, (12.8, 5.2)),
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
        late = "" if max(times) <= BOUND else f"   above {BOUND} ms"
        print(f"{name:32} {len(times):5} {statistics.median(times):10.1f} {max(times):11.1f}{late}")
