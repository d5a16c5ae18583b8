"""Exercises of notebook 17: the loop bounds of a window, the gradient of a sink, and what padding wastes."""

from __future__ import annotations

import itertools

import torch

from flashlearn.algorithms.gradients import softmax_backward
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
    """All small sizes, compared with the mask; the first difference is raised."""
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
    """Scores around `shift`, sinks around `sinks`: the gradient of softmax with one term more, whose value is 0."""
    S, v = shift + normal(B, H, N_q, N_k, seed=seed), normal(B, H, N_k, 5, seed=seed + 1)
    do = normal(B, H, N_q, 5, seed=seed + 2)
    logits = sinks + normal(H, seed=seed + 3)
    with_sink = torch.cat([S, logits[:, None, None].expand(B, H, N_q, 1)], -1)
    P, values = torch.softmax(with_sink, -1), torch.cat([v, torch.zeros_like(v[..., :1, :])], -2)
    expected = softmax_backward(do @ values.mT, P)[..., -1].sum((0, 2))
    given = do, P @ values, torch.logsumexp(with_sink, -1), logits
    return Case(name, lambda function: (function(*(t.clone() for t in given)), expected), hint, tolerance)


def _wasted(name, hint, *lengths, room):
    return Case(name, lambda function: (function([*lengths], room), padding_solution(lengths, room)), hint)


BOUNDS_CASES = (
    _bounds(
        "a causal window",
        "the last key of the block has 5 more queries after it that attend to it",
        8,
        12,
        24,
        24,
        5,
        0,
        4,
    ),
    _bounds("keys ahead too", "a query `right` positions before a key attends to it", 8, 12, 24, 24, 5, 3, 4),
    _bounds("blocks of two sizes", "the result counts blocks of block_q queries", 6, 9, 20, 20, 4, 1, 5),
    _bounds("no limit on one side", "None means all keys back", 8, 12, 24, 24, None, 0, 4),
    _bounds("no limit at all", "all blocks of queries; the last one may be shorter", 4, 8, 10, 10, None, None, 4),
    _bounds("the first keys", "there is no query before query 0, so no negative block", 0, 4, 24, 24, 2, 6, 4),
    _bounds("the last keys", "there is no query after N_q - 1", 8, 10, 10, 10, 7, 0, 4),
    _bounds("more keys than queries", "query i is at key i + N_k - N_q", 8, 10, 4, 12, 3, 0, 2),
    _bounds("more queries than keys", "N_k - N_q may be negative", 2, 4, 12, 4, 3, 0, 3),
    _bounds("no query attends to them", "return first = end, or any other empty range", 0, 4, 4, 12, 1, 0, 2),
    Case("every small size", _every_size, "draw the mask for these sizes and read it column by column"),
)
SINK_CASES = (
    _sink("one head", "return one number: a sum over the queries", 1, 1, 4, 6),
    _sink("three heads", "every head has its own sink and its own sum", 1, 3, 4, 6, seed=10),
    _sink("two batches", "the batches share the sinks, so sum over them too", 2, 3, 5, 4, seed=20),
    _sink("one query", "keep the positions of dimensions of size 1", 1, 2, 1, 7, seed=30),
    _sink("large scores", "subtract lse before the exponential", 1, 2, 4, 5, 2000.0, 2000.0, seed=40),
    _sink("very low scores", "subtract lse before the exponential", 1, 2, 4, 5, -2000.0, -2000.0, seed=50),
    _sink("a sink that takes nearly all", "its weight is exp(sink - lse)", 1, 2, 4, 5, 0.0, 9.0, seed=60),
    _sink("float64", "keep the dtype of do, and add no small number", 2, 2, 4, 6, seed=70, tolerance=1e-10),
)
PADDING_CASES = (
    _wasted("three sequences", "the longest has 5 tokens, and 5 + 3 fill a row of 8", 5, 3, 2, room=8),
    _wasted("a gap in a row", "a sequence stays in one row, and no earlier row is used again", 5, 6, 4, 6, 3, room=8),
    _wasted("all alike", "equal lengths need no padding, and two rows of 8 are full", 4, 4, 4, 4, room=8),
    _wasted("one sequence", "one row, most of it empty", 3, room=16),
    _wasted("one long, many short", "the longest decides the length of all", 100, *[1] * 20, room=128),
    _wasted(
        "some without tokens", "a sequence of no tokens needs no room, only a row of padding", 0, 7, 0, 5, 0, room=12
    ),
    _wasted("a room of the longest", "a row may hold one sequence, exactly", 9, 2, 7, 9, 1, 1, room=9),
)

EXERCISES = (
    Exercise(
        "bounds",
        "loop(start, stop, N_q, N_k, left, right, block_q): the keys start to stop - 1, a window with numbers or None for "
        "its sides -> (first, end). The blocks of queries first to end - 1 attend to some of these keys",
        bounds_solution,
        BOUNDS_CASES,
        hints=(
            "A query attends to the keys from `left` before its position to `right` after it. Which queries then attend to key j?",
            "Query i is at key i + N_k - N_q. Key j is attended to from the positions j - right to j + left.",
            "Compute first from the first key of the block, and end from its last key. Subtract N_k - N_q from both and keep them "
            "between 0 and N_q. Then divide by block_q: round first down and end up.",
        ),
        values=("first", "end"),
    ),
    Exercise(
        "sink",
        "sink_gradient(do, o, lse, sinks): (B, H, N_q, D) twice, (B, H, N_q), (H,); lse contains the sink -> (H,)",
        sink_solution,
        SINK_CASES,
        hints=(
            "The sink is one more key: dS = P (dP - δ) holds for it as for the others. What are its P and its dP?",
            "Its value is 0, so dP = dO · 0 = 0. Its P is exp(sink - lse), and δ is rowsum(dO o).",
            "Multiply P by -δ for each query, then sum over two of the three dimensions. sinks[:, None] broadcasts with lse.",
        ),
    ),
    Exercise(
        "padding",
        "wasted(lengths, room) -> (padded, packed): places without a token. padded: all sequences have the length of the longest. "
        "packed: they are in order in rows of `room` places, and a sequence that does not fit begins the next row",
        padding_solution,
        PADDING_CASES,
        hints=(
            "Draw both: rows of equal length, and sequences one after the other. How many places are there, and how many hold a token?",
            "padded is places minus tokens, with len(lengths) rows. For packed, keep the number of free places in the current row.",
            "Loop over lengths. If one does not fit into the free places, add a row with room free places. Then subtract the length "
            "from the free places. At the end take places minus tokens again.",
        ),
        values=("padded", "packed"),
    ),
)
