"""Exercises of notebook 02: safe softmax, log-sum-exp, and a test for shift invariance."""

from __future__ import annotations

import torch

from flashlearn.algorithms.softmax import naive_softmax, safe_softmax
from flashlearn.course.naive_softmax.exercises import X, softmax_of, without_loop
from flashlearn.course.safe_softmax.solutions import lse_solution, safe_solution, shift_solution
from flashlearn.exercises.assessment import Case, Exercise

INF = float("inf")
ROUNDED = 1e-4  # e^(x - lse) is as right; beyond 1000, float32 rounds lse by as much as 6e-5
WIDE = torch.tensor([-400.0, 900, 100, 300, -700])  # e^(900 - m) overflows for every other entry, and their mean
LOWEST = torch.tensor([-3.1e38, -3e38, -3.2e38])
ONE_WINS = torch.tensor([-800.0, 0.0, -900.0], dtype=torch.float64)  # l is 1, to the last digit
DIGITS = torch.tensor([0.3, -30.7, 1.9, -5.1, 1.25], dtype=torch.float64)
ROWS, ROWS_APART = torch.stack([X, 10 * X]), torch.stack([X, X + 1000])

OF_THE_ROW = "m is the maximum of the row, not another entry or the mean: exp of a logit far above m overflows"
TRUE_MAXIMUM = "m is the true maximum: only -inf is lower than every finite logit"


def _lse_of(x):
    return lambda lse: (lse(x.clone()), torch.logsumexp(x, -1))


def _verdict(name, softmax, hint):
    """A case of a function that is invariant, unless its name ends with "not"."""
    return Case(name, lambda answer: (float(bool(answer(softmax))), float(not name.endswith("not"))), hint)


def _with_clamped_maximum(**limits):
    def softmax(x):
        weights = torch.exp(x - x.max(-1, keepdim=True).values.clamp(**limits))
        return weights / weights.sum(-1, keepdim=True)

    return softmax


def _not_exponential(x):
    return x.abs() / x.abs().sum(-1, keepdim=True)


SAFE_CASES = (
    Case("one row", softmax_of(X), "exp(x - m) / sum of exp(x - m), with m the maximum"),
    Case("large logits", softmax_of(X + 1000), "subtract the maximum before the exponential, not after", ROUNDED),
    Case(
        "very negative logits", softmax_of(X - 2000), "m is the true maximum: start it at -inf, not at -1000", ROUNDED
    ),
    Case(
        "several rows",
        softmax_of(ROWS_APART),
        "every row has its own maximum and its own sum (dim=-1, keepdim=True)",
        ROUNDED,
    ),
    Case(
        "an entry of -inf",
        softmax_of(torch.tensor([0, -INF, 1])),
        "exp(-inf) is 0: this entry needs no code of its own",
    ),
    Case("the maximum, far above the rest", softmax_of(WIDE), OF_THE_ROW),
    Case("as low as float32 goes", softmax_of(LOWEST), TRUE_MAXIMUM),
    Case(
        "one entry outweighs the rest",
        softmax_of(ONE_WINS),
        "its weight is exactly 1: add nothing to l, which is at least 1",
        1e-15,
    ),
    Case("float64", softmax_of(DIGITS), "stay in the dtype of x, and do not round small weights up", 1e-9),
    Case(
        "rows in three dimensions",
        softmax_of(ROWS_APART[:, None]),
        "x is (2, 1, 6): the last dimension is dim=-1, however many come before it",
        ROUNDED,
    ),
    Case(
        "without a loop",
        without_loop,
        "x.max(-1, keepdim=True) finds the maximum of every row at once: no loop is needed",
    ),
)
LSE_CASES = (
    Case("one row", _lse_of(X), "lse = m + log(l) with l the sum of exp(x - m)"),
    Case("large logits", _lse_of(X + 1000), "take the log of the shifted sum l, then add m back"),
    Case("very negative logits", _lse_of(X - 2000), "add m back with its sign", 1e-3),
    Case("several rows", _lse_of(ROWS), "the last dimension disappears: one number per row"),
    Case(
        "rows far apart",
        _lse_of(ROWS_APART[:, None]),
        "every row has its own maximum: with another one, exp(x - m) may be 0, and its log -inf",
        1e-3,
    ),
    Case("the maximum, far above the rest", _lse_of(WIDE), OF_THE_ROW),
    Case("as low as float32 goes", _lse_of(LOWEST), TRUE_MAXIMUM),
    Case(
        "one entry outweighs the rest",
        _lse_of(ONE_WINS),
        "lse is exactly 0: add nothing to l, which is at least 1",
        1e-15,
    ),
    Case("float64", _lse_of(DIGITS), "stay in the dtype of x: do not convert to float32", 1e-10),
)
SHIFT_CASES = (
    _verdict("torch.softmax is", lambda x: torch.softmax(x, -1), "compare with a tolerance, not with =="),
    _verdict("safe_softmax is", safe_softmax, "compare with a tolerance, not with =="),
    _verdict("naive_softmax is not", naive_softmax, "shift so far up that exp overflows, by 1000 for example"),
    _verdict(
        "a maximum started at -1000 is not",
        _with_clamped_maximum(min=-1000.0),
        "shift far down, too: below -1000. NaN must not count as equal",
    ),
    _verdict("x / sum of x is not", _not_exponential, "try a small shift, too, and a row whose entries differ"),
    _verdict(
        "softmax of x / 2 is",
        lambda x: torch.softmax(x / 2, -1),
        "compare softmax(x + c) with softmax(x) of the same function: it need not be torch.softmax",
    ),
    _verdict("a maximum capped at 500 is not", _with_clamped_maximum(max=500.0), "shift far up, too: above 1000"),
    _verdict(
        "logits clamped to 100 are not",
        lambda x: torch.softmax(x.clamp(-100.0, 100.0), -1),
        "compare the results of large shifts, too: it is not enough that they are finite",
    ),
    _verdict(
        "a third of x / sum of x is not",
        lambda x: (2 * torch.softmax(x, -1) + _not_exponential(x)) / 3,
        "equal up to rounding means about 1e-4 here, not a tenth",
    ),
)
EXERCISES = (
    Exercise(
        "safe",
        "safe(x): (..., N) -> (..., N), softmax that no finite logits can overflow",
        safe_solution,
        SAFE_CASES,
        hints=(
            "Which number, subtracted from all logits of a row, makes the largest exponent 0?",
            "Subtract before the exponential. Every row has its own maximum, in a shape that can be subtracted from the whole row.",
            "Three lines: m = ..., of shape (..., 1); weights = ..., of the shape of x; return weights / ..., again of shape (..., 1).",
        ),
        core=("large logits", "several rows"),
        library=("torch.softmax", "torch.log_softmax", "torch.logsumexp", "flashlearn"),
    ),
    Exercise(
        "lse",
        "lse(x): (..., N) -> (...), log of the sum of exp(x_j), without overflow",
        lse_solution,
        LSE_CASES,
        hints=(
            "Every e^x is e^m times e^(x - m). Take e^m out of the sum. What is the logarithm of a product?",
            "log(e^m l) = m + log(l), where l is the sum of the shifted exponentials. Each row has one m and one l.",
            "m = ... and l = ..., one number per row; return ... + .... To be subtracted from x, m needs a last dimension of size 1; in the result it has none.",
        ),
        core=("large logits",),
        library=("torch.softmax", "torch.log_softmax", "torch.logsumexp", "flashlearn"),
    ),
    Exercise(
        "shift",
        "is_shift_invariant(softmax) -> bool: call softmax on shifted copies of a row of your own",
        shift_solution,
        SHIFT_CASES,
        hints=(
            "Invariant means: the same result for x and for x + c, for every c. Which c shows that naive softmax is not?",
            "A small c finds functions that are no softmax, a large one finds overflow, a very negative one finds a maximum that starts too high.",
            "x = ...; return all(torch.allclose(..., ..., atol=...) for c in (...)): two calls of softmax, and three kinds of c.",
        ),
        core=("naive_softmax is not",),
    ),
)
