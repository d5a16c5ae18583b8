"""Exercises of notebook 02: safe softmax, log-sum-exp, and a test for shift invariance."""

from __future__ import annotations

import torch

from flashlearn.exercises.grading import Case, Exercise
from flashlearn.softmax import naive_softmax, safe_softmax

INF = float("inf")
X = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def safe_solution(x):
    m = x.max(-1, keepdim=True).values
    weights = torch.exp(x - m)
    return weights / weights.sum(-1, keepdim=True)


def lse_solution(x):
    m = x.max(-1).values
    return m + torch.log(torch.exp(x - m[..., None]).sum(-1))


def shift_solution(softmax):
    x = torch.linspace(-3, 3, 7)
    return all(torch.allclose(softmax(x + shift), softmax(x), atol=1e-4) for shift in (-2000.0, -1.0, 0.5, 2000.0))


def _softmax_of(x):
    return lambda function: (function(x), torch.softmax(x, -1))


def _lse_of(x):
    return lambda function: (function(x), torch.logsumexp(x, -1))


def _verdict(softmax, expected):
    return lambda function: (float(bool(function(softmax))), float(expected))


def _starts_at_minus_1000(x):
    m = torch.clamp(x.max(-1, keepdim=True).values, min=-1000.0)
    weights = torch.exp(x - m)
    return weights / weights.sum(-1, keepdim=True)


def _not_exponential(x):
    return x.abs() / x.abs().sum(-1, keepdim=True)


EXERCISES = (
    Exercise(
        "02.safe",
        "safe(x): (..., N) -> (..., N), softmax that no finite logits can overflow",
        safe_solution,
        (
            Case("one row", _softmax_of(X), "exp(x - m) / sum of exp(x - m), with m the maximum"),
            Case(
                "large logits",
                _softmax_of(X + 1000),
                "subtract the maximum before the exponential, not after",
            ),
            Case(
                "very negative logits",
                _softmax_of(X - 2000),
                "m is the true maximum: start it at -inf, not at -1000",
            ),
            Case(
                "several rows",
                _softmax_of(torch.stack([X, X + 1000])),
                "every row has its own maximum and its own sum (dim=-1, keepdim=True)",
            ),
            Case(
                "an entry of -inf",
                _softmax_of(torch.tensor([0.0, -INF, 1.0])),
                "exp(-inf) is 0 by itself; nothing needs to be done for it",
            ),
        ),
    ),
    Exercise(
        "02.lse",
        "lse(x): (..., N) -> (...), log of the sum of exp(x_j), without overflow",
        lse_solution,
        (
            Case("one row", _lse_of(X), "lse = m + log(l) with l the sum of exp(x - m)"),
            Case("large logits", _lse_of(X + 1000), "take the log of the shifted sum l, then add m back"),
            Case("very negative logits", _lse_of(X - 2000), "add m back with its sign", 1e-3),
            Case(
                "several rows",
                _lse_of(torch.stack([X, 10 * X])),
                "the last dimension goes away: one number per row",
            ),
        ),
    ),
    Exercise(
        "02.shift",
        "is_shift_invariant(softmax) -> bool: call softmax on shifted copies of a row of your own",
        shift_solution,
        (
            Case(
                "torch.softmax is",
                _verdict(lambda x: torch.softmax(x, -1), True),
                "compare with a tolerance, not with ==",
            ),
            Case("safe_softmax is", _verdict(safe_softmax, True), "compare with a tolerance, not with =="),
            Case(
                "naive_softmax is not",
                _verdict(naive_softmax, False),
                "shift far enough up that exp overflows: + 1000",
            ),
            Case(
                "a maximum started at -1000 is not",
                _verdict(_starts_at_minus_1000, False),
                "shift far down as well: below -1000; NaN must not count as equal",
            ),
            Case(
                "x / sum of x is not",
                _verdict(_not_exponential, False),
                "try a small shift too, of a row that varies",
            ),
        ),
    ),
)
