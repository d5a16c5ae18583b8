"""Exercises of notebook 14: a rate from a time, and the stages that shared memory has room for."""

from __future__ import annotations

from flashlearn.course.making_it_fast.solutions import flops_solution, stages_solution
from flashlearn.exercises.assessment import Case, Exercise


def _rate(*args):
    return lambda function: (function(*args), flops_solution(*args))


def _stages(*args):
    return lambda function: (function(*args), stages_solution(*args))


# fmt: off
FLOPS = (
    Case("forward", _rate(1e-3, 4, 16, 4096, 128, False, False),
         "two products of 2 N N D each, for each of B H heads"),
    Case("forward, causal", _rate(1e-3, 4, 16, 4096, 128, True, False),
         "only visible scores count: by convention, half"),
    Case("backward", _rate(2e-3, 1, 32, 16384, 64, False, True),
         "five products where the forward pass has two, even if the kernel computes some twice"),
    Case("backward, causal", _rate(2e-3, 1, 32, 16384, 64, True, True), "both factors at once: 2.5 and one half"),
    Case("short and causal", _rate(1e-6, 2, 3, 16, 16, True, False),
         "the convention halves exactly; it does not count the diagonal"),
    Case("odd and causal", _rate(1e-9, 1, 3, 17, 16, True, True),
         "half of 17 x 17 is 144.5 pairs, and 2.5 is not a whole number: divide with /, not //"),
)

STAGES = (
    Case("H200, D = 128", _stages(128, 64, 128, 2, 232448),
         "Q needs block_m D elements once; a stage needs a tile of K and one of V"),
    Case("small GPU, D = 64", _stages(128, 64, 64, 2, 101376),
         "subtract the tile of Q first, then divide by the bytes of a stage"),
    Case("many queries", _stages(256, 32, 64, 2, 101376), "Q is loaded once, before the loop: stages share it"),
    Case("float32", _stages(64, 32, 64, 4, 101376), "a tile has rows * D * itemsize bytes"),
    Case("to the last byte", _stages(128, 128, 128, 2, 5 * 128 * 128 * 2), "exactly full still fits"),
    Case("all but a byte", _stages(64, 64, 64, 2, 7 * 64 * 64 * 2 - 1),
         "one byte too few: round down"),
    Case("small tiles", _stages(16, 16, 16, 2, 41 * 16 * 16 * 2),
         "there is no limit but memory, counted in bytes: 20 fit"),
    Case("nothing fits", _stages(128, 128, 256, 4, 101376), "return 0, never a negative number"),
    Case("not even Q fits", _stages(256, 16, 64, 2, 8192), "what is left is negative: return 0"),
)

EXERCISES = (
    Exercise(
        "flops", "tflops(seconds, B, H, N, D, causal, backward) -> the rate in TFLOP/s, by the convention of this notebook",
        flops_solution, FLOPS, core=("forward, causal", "backward"), hints=(
            "Count the multiplications and additions of Q K^T for one head, and of P V. How many heads are there?",
            "Together 4 B H N^2 D. Causal: half of that. Backward: 5 products instead of 2. Then divide by the time.",
            "flops = 4 * ... * D; return flops * (... if causal else 1) * (... if backward else 1) / ... / ...",
        ),
    ),
    Exercise(
        "stages",
        "most_stages(block_m, block_n, D, itemsize, shared) -> the largest number of stages that fit into `shared` bytes: "
        "one tile of Q, and for each stage a tile of K and one of V",
        stages_solution, STAGES, hints=(
            "Draw what is in shared memory while the loop runs. Which tile is there once, and which are there once per stage?",
            "shared >= Q + stages * (K + V), each tile rows * D * itemsize bytes. Solve for stages and round down.",
            "return max(0, (shared - what is there once) // (what is there once per stage))",
        ),
    ),
)
