"""Exercises of notebook 01: softmax by its definition, and where it breaks."""

from __future__ import annotations

import torch

from flashlearn.exercises.grading import Case, Exercise

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
X = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def softmax_solution(x):
    weights = torch.exp(x)
    return weights / weights.sum(-1, keepdim=True)


def overflow_solution(dtype):
    low, high = torch.tensor(1.0, dtype=dtype), torch.tensor(1000.0, dtype=dtype)
    while True:
        middle = (low + high) / 2
        if middle in (low, high):  # neighbours: nothing lies between them
            return high.item()
        if torch.exp(middle).isinf():
            high = middle
        else:
            low = middle


def _softmax_of(x):
    return lambda function: (function(x), torch.softmax(x, -1))


def _edge(dtype):
    """Does x overflow, does its lower neighbour not, and is x a number of that dtype?"""

    def compare(function):
        x = torch.tensor(float(function(dtype)), dtype=torch.float64)
        rounded = x.to(dtype)
        below = overflow_neighbour(rounded)
        facts = (rounded.double() == x, torch.exp(rounded).isinf(), torch.exp(below).isfinite())
        return tuple(float(fact) for fact in facts), (1.0, 1.0, 1.0)

    return compare


def overflow_neighbour(x):
    """The next smaller number of x's dtype, for positive x: one less in its bits."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return (x.view(integers) - 1).view(x.dtype)


EXERCISES = (
    Exercise(
        "01.softmax",
        "softmax(x): (..., N) -> (..., N), over the last dimension, by the definition",
        softmax_solution,
        (
            Case("one row", _softmax_of(X), "exponentiate every x_j, then divide by the sum of them all"),
            Case("negative logits", _softmax_of(-X), "the sign of x_j does not matter to exp: do not take abs"),
            Case(
                "several rows",
                _softmax_of(torch.stack([X, 2 * X.flip(0)])),
                "every row has its own sum: sum over dim=-1 and keep that dimension (keepdim=True)",
            ),
            Case(
                "float64",
                _softmax_of(X.double() / 7),
                "stay in the dtype of x: do not convert to float32 on the way",
                1e-12,
            ),
        ),
    ),
    Exercise(
        "01.overflow",
        "smallest_overflow(dtype) -> float: the smallest number of that dtype whose exp is inf",
        overflow_solution,
        tuple(
            Case(
                str(dtype).removeprefix("torch."),
                _edge(dtype),
                "bisect in tensors of this dtype: exp(x) must be inf, exp of the next smaller number finite",
                0.0,
            )
            for dtype in DTYPES
        ),
    ),
)
