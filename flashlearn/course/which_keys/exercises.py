"""Exercises of notebook 17: the loop bounds of a window, the gradient of a sink, and what padding wastes."""

from __future__ import annotations

import itertools

import torch

from flashlearn.core.mask import Mask
from flashlearn.course.which_keys.solutions import bounds_solution, padding_solution, sink_solution
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.formulas import normal


def _loop(answer):
    """The answer, with (0, 0) for every loop that runs over nothing."""
    pair = isinstance(answer, tuple | list) and len(answer) == 2 and all(isinstance(n, int) for n in answer)
    return (0, 0) if pair and answer[0] >= answer[1] else answer


def _expected(start, stop, N_q, N_k, left, right, block_q):
    """The blocks of queries that see a key of the block, asked of the mask itself."""
    seen = Mask(N_q, N_k, left, right).visible((0, N_q), (start, stop)).any(1).nonzero().flatten().tolist()
    return (seen[0] // block_q, seen[-1] // block_q + 1) if seen else (0, 0)


def _bounds(name, hint, *sizes):
    return Case(name, lambda function: (_loop(function(*sizes)), _expected(*sizes)), hint)


def _every_size(function):
    """All small sizes, against the mask; the first difference is told."""
    sides = (None, 0, 1, 3)
    for N_q, N_k, left, right in itertools.product((1, 4, 7), (1, 5, 7), sides, sides):
        for start, block_q in itertools.product(range(0, N_k, 2), (1, 3)):
            sizes = start, min(start + 2, N_k), N_q, N_k, left, right, block_q
            got, expected = _loop(function(*sizes)), _expected(*sizes)
            if not isinstance(got, tuple | list) or tuple(got) != expected:
                names = ("start", "stop", "N_q", "N_k", "left", "right", "block_q")
                said = ", ".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))
                empty = ", or another empty range" if expected == (0, 0) else ""
                raise ValueError(f"expected loop({said}) to be {expected}{empty}, got {got}")
    return (0, 0), (0, 0)


def _sink(name, hint, B, H, N_q, N_k, shift=0.0, sinks=0.0, seed=0, tolerance=1e-5):
    """Scores around `shift`, sinks around `sinks`: the gradient by autograd, through the softmax with one term more."""
    S, v = shift + normal(B, H, N_q, N_k, seed=seed), normal(B, H, N_k, 5, seed=seed + 1)
    do = normal(B, H, N_q, 5, seed=seed + 2)
    logits = (sinks + normal(H, seed=seed + 3)).requires_grad_()
    with_sink = torch.cat([S, logits[:, None, None].expand(B, H, N_q, 1)], -1)
    o = torch.softmax(with_sink, -1)[..., :-1] @ v
    (expected,) = torch.autograd.grad((o * do).sum(), logits)
    given = do, o.detach(), torch.logsumexp(with_sink, -1).detach(), logits.detach()
    return Case(name, lambda function: (function(*(t.clone() for t in given)), expected), hint, tolerance)


def _wasted(name, hint, *lengths, room):
    return Case(name, lambda function: (function([*lengths], room), padding_solution(lengths, room)), hint)


BOUNDS_CASES = (
    _bounds("a causal window", "the last key of the block is seen by 5 queries more", 8, 12, 24, 24, 5, 0, 4),
    _bounds("keys ahead too", "a query `right` places before a key sees it", 8, 12, 24, 24, 5, 3, 4),
    _bounds("blocks of two sizes", "the result is in blocks of queries: block_q each", 6, 9, 20, 20, 4, 1, 5),
    _bounds("no limit on one side", "None: as many keys back as there are", 8, 12, 24, 24, None, 0, 4),
    _bounds("no limit at all", "all blocks of queries, the last one perhaps shorter", 4, 8, 10, 10, None, None, 4),
    _bounds("the first keys", "no query comes before query 0: not a negative block", 0, 4, 24, 24, 2, 6, 4),
    _bounds("the last keys", "no query comes after N_q - 1", 8, 10, 10, 10, 7, 0, 4),
    _bounds("more keys than queries", "query i stands at key i + N_k - N_q", 8, 10, 4, 12, 3, 0, 2),
    _bounds("more queries than keys", "N_k - N_q may be negative", 2, 4, 12, 4, 3, 0, 3),
    _bounds("nobody sees them", "first = end, or any other range that is empty", 0, 4, 4, 12, 1, 0, 2),
    Case("every small size", _every_size, "draw the mask for the sizes named here, and look along its columns"),
)
SINK_CASES = (
    _sink("one head", "one number: a sum over the queries", 1, 1, 4, 6),
    _sink("three heads", "every head has a sink, and a sum, of its own", 1, 3, 4, 6, seed=10),
    _sink("two batches", "the batches share the sinks: sum over them too", 2, 3, 5, 4, seed=20),
    _sink("one query", "dimensions of size 1 stay where they are", 1, 2, 1, 7, seed=30),
    _sink("large scores", "subtract lse before the exponential", 1, 2, 4, 5, 2000.0, 2000.0, seed=40),
    _sink("very low scores", "subtract lse before the exponential", 1, 2, 4, 5, -2000.0, -2000.0, seed=50),
    _sink("a sink that takes nearly all", "its weight is exp(sink - lse)", 1, 2, 4, 5, 0.0, 9.0, seed=60),
    _sink("float64", "stay in the dtype of do, and add nothing on the way", 2, 2, 4, 6, seed=70, tolerance=1e-10),
)
PADDING_CASES = (
    _wasted("three sequences", "the longest has 5 tokens; 5 and 3 fill a row of 8", 5, 3, 2, room=8),
    _wasted("a gap in a row", "a sequence stays in one row, and no row is opened again", 5, 6, 4, 6, 3, room=8),
    _wasted("all alike", "equal lengths need no padding, and two rows of 8 are full", 4, 4, 4, 4, room=8),
    _wasted("one sequence", "one row, mostly empty", 3, room=16),
    _wasted("one long, many short", "the longest decides for all", 100, *[1] * 20, room=128),
    _wasted(
        "some without tokens", "a sequence of no tokens needs no room, only a row of padding", 0, 7, 0, 5, 0, room=12
    ),
    _wasted("a room of the longest", "a row may hold one sequence, exactly", 9, 2, 7, 9, 1, 1, room=9),
)

EXERCISES = (
    Exercise(
        "bounds",
        "loop(start, stop, N_q, N_k, left, right, block_q): the block of keys start .. stop - 1, a window whose sides are "
        "numbers or None -> (first, end), the blocks of queries first .. end - 1 that see any of these keys",
        bounds_solution,
        BOUNDS_CASES,
        hints=(
            "A query sees a key if the key lies from `left` before its place to `right` after it. Turn the sentence round: who sees key j?",
            "Query i stands at key i + N_k - N_q. Key j is seen from the place j - right to the place j + left.",
            "first from the first key of the block, end from its last; both moved by N_k - N_q, kept inside 0 .. N_q, "
            "then in blocks: one rounded down, the other up.",
        ),
        values=("first", "end"),
    ),
    Exercise(
        "sink",
        "sink_gradient(do, o, lse, sinks): (B, H, N_q, D) twice, (B, H, N_q), (H,); lse has the sink in it -> (H,)",
        sink_solution,
        SINK_CASES,
        hints=(
            "The sink is one more key: dS = P (dP - δ) holds for it as for the others. What are its P and its dP?",
            "Its value is 0, so dP = dO · 0 = 0. Its P is exp(sink - lse), and δ is rowsum(dO o).",
            "One product for each query, a sign, and a sum over two of the three dimensions; sinks[:, None] broadcasts with lse.",
        ),
    ),
    Exercise(
        "padding",
        "wasted(lengths, room) -> (padded, packed): the places without a token if all sequences are padded to the longest, and if "
        "they go, in order, into rows of `room` places, a sequence that does not fit any more beginning the next row",
        padding_solution,
        PADDING_CASES,
        hints=(
            "Draw both: as rows of equal length, and one after the other. Which places hold a token, and how many are there?",
            "padded is places minus tokens, with len(lengths) rows. For packed keep the number of free places in the row begun last.",
            "A loop over lengths: if one does not fit into what is free, a row more and room free places; then take it off. "
            "Places minus tokens again.",
        ),
        values=("padded", "packed"),
    ),
)
