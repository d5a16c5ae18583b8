"""Exercises of notebook 19: whose K and V a process has, the zigzag order, and the merge of many visits."""

from __future__ import annotations

import torch

from flashlearn.course.many_gpus.solutions import merge_solution, owners_solution, zigzag_solution
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.formulas import normal


def _numbers(answer, shape):
    """Whole numbers in lists as a tensor, so that they are compared one by one; ValueError if they have another form."""
    rows = list(answer) if isinstance(answer, list | tuple) else answer
    try:
        found = torch.as_tensor(rows)
    except (TypeError, ValueError):
        found = None
    if found is None or found.is_floating_point() or found.shape != shape:
        words = " lists of ".join(map(str, shape))
        raise ValueError(f"expected {words} whole numbers, got {answer!r}")
    return found


def _owners(name, hint, s, P):
    """Whose K and V arrive, found by passing messages: each process sends what it has to the next, s times."""
    held = list(range(P))
    for _ in range(s):
        held = [held[r - 1] for r in range(P)]
    return Case(name, lambda function: (_numbers(function(s, P), (P,)), torch.tensor(held)), hint)


def _zigzag(name, hint, N, P):
    """The shares that `flashlearn.ring.shares` makes."""
    from flashlearn.ring import shares

    want = [[i for start, stop in chunks for i in range(start, stop)] for chunks in shares(N, P, "zigzag")]
    return Case(name, lambda function: (_numbers(function(N, P), (P, N // P)), torch.tensor(want)), hint)


def _visits(name, hint, P, N, shift=0.0, spread=1.0, hidden=(), seed=0, tolerance=1e-5):
    """Scores of N queries with P visits of 3 keys; `hidden`: (visit, query) without a key. The answer is attention over all keys at once."""
    S = shift + spread * normal(P, N, 3, seed=seed)
    v = normal(P, 3, 4, seed=seed + 1)
    for visit, query in hidden:
        S[visit, query] = -torch.inf
    lse = torch.logsumexp(S, -1)
    o = torch.nan_to_num(torch.softmax(S, -1)) @ v
    whole = S.transpose(0, 1).flatten(1)
    want = torch.nan_to_num(torch.softmax(whole, -1)) @ v.flatten(0, 1), torch.logsumexp(whole, -1)
    return Case(name, lambda function: (function(o.clone(), lse.clone()), want), hint, tolerance)


def _with_nan(function):
    """o of three queries, NaN where lse says so; the second has NaN from its first visit."""
    o, lse = normal(2, 3, 4, seed=90), normal(2, 3, seed=91)
    want = merge_solution(o, lse)[0]
    o[0, 1] = lse[0, 1] = want[1] = torch.nan
    o, lse = function(o.clone(), lse.clone())
    return torch.where(lse.isnan()[:, None], lse[:, None], o), want


def _with_nan_in_o(function):
    """o of three queries; the second has NaN in o of its first visit, and no NaN in lse."""
    o, lse = normal(2, 3, 4, seed=92), normal(2, 3, seed=93)
    o[0, 1] = torch.nan
    return function(o.clone(), lse.clone())[0], merge_solution(o, lse)[0]


OWNERS_CASES = (
    _owners("one step", "after one step process 0 has what process 3 sent", 1, 4),
    _owners("the start", "in step 0 nothing has been sent yet", 0, 4),
    _owners("two steps of five", "what a process has in step s started s processes before it", 2, 5),
    _owners("the last step", "after P - 1 steps a process has what process r + 1 began with", 6, 7),
    _owners("two processes", "each has what the other began with", 1, 2),
    _owners("alone", "a ring of one process", 0, 1),
    _owners("once round", "after P steps every process has its own again", 3, 3),
)
ZIGZAG_CASES = (
    _zigzag("two processes", "four chunks: 0 and 3 together, 1 and 2 together", 8, 2),
    _zigzag("three processes", "chunk r goes with the chunk that is equally far from the other end", 18, 3),
    _zigzag("one token a chunk", "2 P chunks of N / (2 P) tokens", 10, 5),
    _zigzag("alone", "one process has all tokens, in order", 6, 1),
    _zigzag("many", "chunks of N / (2 P) tokens, two for each process", 64, 8),
)
BEFORE = "subtract the largest lse before the exponential"
NAN = (
    "a NaN in a visit must show in o or lse of its query: avoid -inf minus -inf before the exponential, and do not replace "
    "NaN afterwards, as nan_to_num does"
)
NOBODY = "no visit has a key for this query: o = 0 and lse = -inf, not NaN"
ONE_WITHOUT = "lse = -inf has the weight 0: exp(-inf - m) is 0 if m is finite"
FAR_ABOVE = "subtract the largest lse of each query; another one may leave infinity"
MERGE_CASES = (
    _visits("two visits", "multiply each o by exp(its lse - the lse of all)", 2, 3),
    _visits("five visits", "the sum runs over all visits, the first dimension", 5, 4, seed=10),
    _visits("one visit", "with one visit there is nothing to merge: return it as it is", 1, 3, seed=20),
    _visits("large scores", BEFORE, 3, 3, shift=1000.0, seed=30),
    _visits("very low scores", f"{BEFORE}: exp of all of them is 0", 3, 3, shift=-1000.0, seed=40),
    _visits("one visit far above the others", FAR_ABOVE, 3, 4, spread=400.0, seed=50),
    _visits("a visit without a key", ONE_WITHOUT, 3, 3, hidden=((0, 1), (2, 0)), seed=60),
    _visits("a query without a key", NOBODY, 2, 3, hidden=((0, 1), (1, 1)), seed=70),
    _visits("float64", "keep the dtype of o, and add no small number to a sum", 3, 4, seed=80, tolerance=1e-10),
    Case("a NaN reaches the result", _with_nan, NAN),
    Case("a NaN of o alone, too", _with_nan_in_o, NAN),
)

EXERCISES = (
    Exercise(
        "owners",
        "owners(s, P) -> a list of P numbers: whose K and V the processes 0 to P - 1 have in step s. In step 0 each has its own. "
        "After every step each sends what it has to the next process, and the last to process 0",
        owners_solution,
        OWNERS_CASES,
        hints=(
            "Follow one K: that of process 0. Who has it after one step, after two?",
            "In step s the K of process j is at process j + s. So whose K does process r have?",
            "A list over r of r - s. Below 0 the ring continues at P - 1, and % P does that.",
        ),
        library=("flashlearn",),
    ),
    Exercise(
        "zigzag",
        "zigzag(N, P) -> a list of P lists: the tokens of the processes 0 to P - 1 in zigzag order, each list ascending. N is a "
        "multiple of 2 P",
        zigzag_solution,
        ZIGZAG_CASES,
        hints=(
            "Late queries attend to many keys, early ones to few. Which pairs of chunks have the same number of keys together?",
            "Cut N into 2 P chunks, write them as a row, and fold the row in the middle.",
            "Process r has chunk r and chunk 2 P - 1 - r. Chunk c is range(c * n, (c + 1) * n) with n = N // (2 * P).",
        ),
        library=("flashlearn",),
    ),
    Exercise(
        "merge",
        "merge(o, lse): (P, N, D) and (P, N), the results of P visits to different keys -> (o, lse), (N, D) and (N,), over all keys",
        merge_solution,
        MERGE_CASES,
        hints=(
            "exp(lse) is the sum of the exponentials of a visit. What is the sum over all visits?",
            "The weight of a visit is exp(lse_s - lse) with lse = log of the sum of exp(lse_s), computed from their maximum.",
            "Let m = lse.amax(0), with 0 where it is -inf. The weights are exp(lse - m). Sum them over the first dimension, and "
            "divide by this sum, except where it is 0.",
        ),
        library=("flashlearn",),
        values=("o", "lse"),
    ),
)
