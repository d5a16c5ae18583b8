"""The time to redraw one step: from moving a slider to the new picture.

Pictures with steps from notebooks 01 to 15, as the stepper paints them (figure, PNG and all). The bound is 100 ms a step,
and 150 ms for two panels of tiles. CPU time: painting is work of one core, and other programs do not count.
`laptop.py` records the times; here they are printed:

    python benchmarks/redraw.py                        every picture
    python benchmarks/redraw.py strides pipeline       some
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch

import flashlearn as fl
from flashlearn.cost import race
from flashlearn.gpu import layout_steps, pipeline_steps, program_steps
from flashlearn.gpu.overlap import overlap_steps
from flashlearn.show import draw
from flashlearn.show.frame import as_runs, count, paint, png

BOUND, TWO_PANELS = 100, 150  # milliseconds
STEPS = 24  # at most, evenly spaced, with the first and the last

row = torch.randn(16, generator=torch.Generator().manual_seed(0))
many = torch.randn(256, generator=torch.Generator().manual_seed(0))
q, k, v, do = torch.randn(4, 1, 1, 16, 4, generator=torch.Generator().manual_seed(0)).unbind(0)


def both(block_q, block_k):
    """FlashAttention-1 and -2 next to each other, as the tiling explorer shows them."""
    versions = {"v1": fl.tiled_attention_v1_steps, "v2": fl.tiled_attention_v2_steps}
    return {name: steps(q, k, v, block_q=block_q, block_k=block_k) for name, steps in versions.items()}


def pictures() -> dict[str, tuple]:
    """name -> (steps, draw, size in inches), as the notebooks show them."""
    a, b = many[:32].view(8, 4), many[:32].view(4, 8)
    lanes = {**both(4, 4), "standard": fl.standard_attention_steps(q, k, v)}
    schedules = ("in turn", "product ahead", "two groups")
    shorter = [t[:, :, :12] for t in (do, q, k, v)]
    o, lse = fl.tiled_attention_v2(*shorter[1:], causal=True, return_lse=True)
    steps = list(fl.tiled_attention_backward_steps(*shorter, o, lse, block_q=3, block_k=3, causal=True))
    sweeps = {phase: [step for step in steps if step.phase == phase] for phase in ("dK and dV", "dQ")}
    return {
        "row, 16 logits": (fl.online_softmax_steps(row), draw.draw_row, (12.8, 5.0)),
        "row, 64 logits in blocks of 8": (fl.blocked_softmax_steps(many[:64], 8), draw.draw_row, (12.8, 5.0)),
        "merge tree, 7 leaves": (fl.merge_tree_steps(row[:14], 2), draw.draw_tree, (12.8, 5.2)),
        "merge tree, 64 leaves": (fl.merge_tree_steps(many, 4), draw.draw_tree, (12.8, 5.2)),
        "one query": (
            fl.two_pass_attention_steps(q[:, :, :1], k[:, :, :10], v[:, :, :10]),
            draw.draw_query,
            (12.8, 5.6),
        ),
        "one query, converging": (fl.one_pass_attention_steps(q[:, :, :1], k, v), draw.draw_converge, (12.8, 5.0)),
        "matmul by blocks": (
            fl.tiled_matmul_steps(a, b, block_m=4, block_n=2, block_k=2),
            draw.draw_matmul,
            (12.8, 5.6),
        ),
        "tiles, one panel, with numbers": (both(4, 4)["v2"], draw.draw_tiling, (12.8, 5.5)),
        "tiles, two panels, blocks of 8": (both(8, 8), draw.draw_tiling, (12.8, 4.4)),
        "tiles, two panels, blocks of 3": (both(3, 3), draw.draw_tiling, (12.8, 4.4)),
        "tiles, two panels, blocks of 2": (both(2, 2), draw.draw_tiling, (12.8, 4.4)),
        "traffic, three lanes": (race(lanes), draw.draw_traffic, (12.8, 5.0)),
        "Jacobian": (fl.contract_steps(do[0, 0, :, 0], torch.outer(row, row)), draw.draw_jacobian, (12.8, 5.2)),
        "backward, two panels, blocks of 3": (sweeps, draw.draw_backward, (12.8, 6.2)),
        "strides": (layout_steps(torch.arange(12.0).reshape(3, 4)), draw.draw_strides, (12.8, 4.6)),
        "launch grid": (program_steps(10, 4, H=2), draw.draw_programs, (12.8, 4.6)),
        "pipeline": (pipeline_steps(6, 3), draw.draw_pipeline, (12.8, 4.6)),
        "overlap, three schedules": (overlap_steps(2, schedules, product=2, softmax=3), draw.draw_overlap, (12.8, 4.4)),
    }


def bound(name: str) -> int:
    """Milliseconds that a step of this picture may take."""
    return TWO_PANELS if "two panels" in name else BOUND


def milliseconds(steps, paint_step, figsize) -> list[float]:
    """The time of every step, the best of three, after one step that is not counted; of long runs, `STEPS` of them."""
    runs = as_runs(steps)
    png(paint(runs, 0, paint_step, figsize))
    times, last = [], count(runs) - 1
    for number in sorted({round(i * last / (STEPS - 1)) for i in range(STEPS)}):
        tries = []
        for _ in range(3):
            start = time.process_time()
            png(paint(runs, number, paint_step, figsize))
            tries.append(1000 * (time.process_time() - start))
        times.append(min(tries))
    return times


def main(given: list[str] | None = None) -> None:
    there = pictures()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=", ".join(there))
    wanted = parser.parse_args(given).pictures or list(there)
    if unknown := [name for name in wanted if name not in there]:
        parser.error(f"expected pictures of {', '.join(there)}, got {', '.join(unknown)}")
    for name in wanted:
        times = milliseconds(*there[name])
        print(f"{name:35} median {median(times):4.0f} ms, slowest {max(times):4.0f} ms, bound {bound(name)} ms")


if __name__ == "__main__":
    main()
