"""What wrong answers to the exercises of notebook 14 get wrong."""

from __future__ import annotations

import math

from flashlearn.exercises.formulas import growth

SIZES = (1e-3, 4, 16, 256, 128)
NAMES = ("the time in seconds", "B", "the number of heads H", "N", "D")
POWERS = {"the time in seconds": -1, "B": 1, "the number of heads H": 1, "N": 2, "D": 1}


def how_it_grows(tflops):
    """Twice the time, half the rate; twice N, four times the products, N N D."""
    return growth(lambda *sizes: tflops(*sizes, False, False), SIZES, NAMES, POWERS)


def the_conventions(tflops):
    """Causal counts one half, backward five products in place of two."""
    forward = tflops(*SIZES, False, False)
    for causal, backward, want, words in (
        (True, False, 0.5, "a causal pass counts one half, by convention"),
        (False, True, 2.5, "a backward pass has five products where the forward pass has two: 2.5 times"),
        (True, True, 1.25, "both together count 2.5 times one half"),
    ):
        got = tflops(*SIZES, causal, backward) / forward
        if abs(got - want) > 1e-9:
            return f"{words}; here it counts {got:.4g} times as much as a full forward pass"
    return ""


def the_constant(tflops):
    got = tflops(1.0, 1, 1, 1, 10**12, False, False)
    if abs(got - 4) > 1e-9:
        return f"for one query, one key, D = 10^12 and one second the rate is 4 TFLOP/s, two products of 2 D each; here it is {got:.4g}"
    return ""


def _sizes() -> str:
    return "Q has block_m rows, a tile of K and one of V block_n, and a row D itemsize bytes"


def what_fits(most_stages):
    """The stages that come back fit, and one more would not."""
    for block_m, block_n, D, itemsize, shared in (
        (128, 64, 128, 2, 232448), (256, 32, 64, 2, 101376), (64, 32, 64, 4, 101376), (32, 128, 64, 2, 101376),
    ):  # fmt: skip
        got = most_stages(block_m, block_n, D, itemsize, shared)
        q, stage = block_m * D * itemsize, 2 * block_n * D * itemsize
        if got != int(got):
            return f"{got:.4g} stages are returned: round down to a whole number, with //"
        told = f"for tiles of {block_m} and {block_n} rows, D = {D}, itemsize {itemsize}: {got} stages and Q take {q} + {got} * {stage} of {shared} bytes"
        if q + got * stage > shared:
            why = "round down" if got == math.ceil((shared - q) / stage) else _sizes()
            return f"{told}, which does not fit: {why}"
        if q + (got + 1) * stage <= shared:
            more = (shared - q) // stage - got
            return f"{told}, and {more} more would fit: {_sizes()}"
    return ""


CAUSES = {"flops": (how_it_grows, the_conventions, the_constant), "stages": (what_fits,)}
