"""Exercises of notebook 01: softmax by its definition, and where it breaks."""

from __future__ import annotations

import torch

from flashlearn.course.naive_softmax.solutions import overflow_solution, softmax_solution
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.watching import no_loop

X = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def softmax_of(x):
    return lambda function: (function(x.clone()), torch.softmax(x, -1))


def without_loop(function):
    few, many = torch.stack([X, X / 2]), torch.linspace(-3, 3, 84).reshape(12, 7)
    return no_loop(function, few, many), (torch.softmax(few, -1), torch.softmax(many, -1))


def _edge(dtype):
    return lambda function: (float(function(dtype)), overflow_solution(dtype))


SOFTMAX_CASES = (
    Case("one row", softmax_of(X), "take the exponential of every entry, then divide by the sum of all exponentials"),
    Case(
        "negative logits",
        softmax_of(-X),
        "exp takes negative numbers, too, and exp(-1) is not exp(1): do not take abs",
    ),
    Case(
        "several rows",
        softmax_of(torch.stack([X, 2 * X.flip(0)])),
        "every row has its own sum: sum over dim=-1 and keep that dimension (keepdim=True)",
    ),
    Case("float64", softmax_of(X.double() / 7), "stay in the dtype of x: do not convert to float32", 1e-12),
    Case(
        "small weights",
        softmax_of(X - 35),
        "the sum is 5e-13 here: divide by it, and add nothing to it",
    ),
    Case(
        "rows in three dimensions",
        softmax_of(torch.stack([X, X.flip(0)])[:, None]),
        "x is (2, 1, 6): the last dimension is dim=-1, and a dimension of size 1 stays",
    ),
    Case(
        "without a loop",
        without_loop,
        "torch.exp takes all entries at once, and .sum(-1, keepdim=True) takes all rows: no loop is needed",
    ),
)
OVERFLOW_CASES = tuple(
    Case(
        str(dtype).removeprefix("torch."),
        _edge(dtype),
        "bisect in tensors of this dtype: exp(x) must be inf, and exp of the next smaller number must be finite",
        0.0,
    )
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
)
EXERCISES = (
    Exercise(
        "softmax",
        "softmax(x): (..., N) -> (..., N), over the last dimension, by the definition",
        softmax_solution,
        SOFTMAX_CASES,
        hints=(
            "Write the definition for one row. What is the numerator, and over which entries does the sum in the denominator run?",
            "exp works on the whole tensor at once. The sum runs over the last dimension only, because every row has its own sum.",
            "Two lines: weights = ..., of the shape of x; return weights / ..., where the denominator has the shape (..., 1).",
        ),
        core=("several rows", "negative logits"),
        library=("torch.softmax", "torch.log_softmax", "torch.logsumexp", "flashlearn"),
    ),
    Exercise(
        "overflow",
        "smallest_overflow(dtype) -> float: the smallest number of that dtype whose exp is inf",
        overflow_solution,
        OVERFLOW_CASES,
        hints=(
            "exp(low) is finite and exp(high) is inf, so the edge is between them. Which of the two may the middle replace?",
            "If exp(middle) is inf, the edge is at middle or below it: middle becomes high. Otherwise it becomes low.",
            "low, high = (low, middle) if ... else (middle, high). In the end they are neighbours: return the one whose exp is inf, as a float.",
        ),
    ),
)
