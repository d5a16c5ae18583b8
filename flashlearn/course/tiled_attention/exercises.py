"""Exercises of notebook 07: join two blocks, the loop of FlashAttention-1, the number of visited blocks, an update for masked blocks."""

from __future__ import annotations

import functools
import itertools
import math

import torch

from flashlearn.course.tiled_attention.solutions import (
    join_solution,
    keys_outside,
    order_solution,
    update_solution,
    visited_solution,
)
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.ordering import Ordering, puzzle

ORDER = puzzle("tiled_attention", "order", keys_outside, given=(3, 0))

INF = float("inf")


def _random(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _state(S, V):
    """(m, l, acc) of these scores and values, from the definition."""
    m = S.max(-1, keepdim=True).values if S.shape[-1] else S.new_full((len(S), 1), -INF)
    P = torch.exp(S - m.masked_fill(m == -INF, 0))
    return m, P.sum(-1, keepdim=True), P @ V


def _two_blocks(S, V, first):
    """The state after the keys up to `first`, updated with the rest, must be the state of them all."""

    def compare(function):
        m, l, acc = _state(S[:, :first], V[:first])
        return function(m, l, acc, S[:, first:].clone(), V[first:].clone()), _state(S, V)

    return compare


def _masked(S, keys):
    S = S.clone()
    S[:, keys] = -INF
    return S


def _rising(rows, cols):
    """Scores in which the second half holds every row's maximum, by a different margin in each row."""
    S = _random(rows, cols, seed=1)
    S[:, cols // 2 :] += torch.arange(1.0, rows + 1, dtype=S.dtype)[:, None]
    return S


def _some_masked():
    """Three queries: all keys but one in either block, none at all, none in the first block."""
    S = _S.clone()
    S[0, 1] = S[0, 6] = S[1] = S[2, :4] = -INF
    return S


def _with_nan(function):
    """l and acc of three queries after a block in which the second has a score of NaN."""
    S = _S.clone()
    S[1, 5] = math.nan
    m, l, acc = _state(S[:, :4], _V[:4])
    _, l, acc = function(m, l, acc, S[:, 4:].clone(), _V[4:].clone())
    want = _state(S.masked_fill(S.isnan(), 0), _V)[1:]
    want[0][1] = want[1][1] = math.nan
    return torch.cat([l, acc], -1), torch.cat(want, -1)


def _every_size(function, most=8):
    """All small sizes, against the solution; ValueError names the first difference."""
    for sizes in itertools.product(range(1, most + 1), range(1, most + 1), (1, 2, 3), (1, 2, 3)):
        got, expected = function(*sizes), visited_solution(*sizes)
        if not isinstance(got, int | float) or got != expected:
            raise ValueError(f"expected visited{sizes} to be {expected}, got {got}")
    return 0, 0


def _visited(*sizes):
    return lambda function: (function(*sizes), visited_solution(*sizes))


def _joined(S, V, first):
    """The sums of the keys up to `first` and of the rest must give the attention over all."""

    def compare(function):
        _, l, acc = _state(S, V)
        return function(*_state(S[:, :first], V[:first]), *_state(S[:, first:], V[first:])), acc / l

    return compare


def _far_apart():
    """Three queries whose scores differ by thousands."""
    return _S + torch.tensor([[-2000.0], [0.0], [2000.0]], dtype=_S.dtype)


_S, _V = _random(3, 8, seed=2), _random(8, 4, seed=3)


def _growing(N_q, N_k, B_r, B_c, factor=1.0):
    """Queries and keys whose scores grow from key to key, random values, and sizes of blocks."""
    q, steps = 1 + _random(N_q, 3, seed=4).abs(), _random(N_k, 3, seed=5).abs()
    return factor * q, steps.cumsum(0), _random(N_k, 3, seed=6), B_r, B_c


def _falling(N_q, N_k, B_r, B_c):
    q, k, v, *blocks = _growing(N_q, N_k, B_r, B_c)
    return q, k.flip(0), v, *blocks


ORDER_CASES = (
    ORDER.case(
        "one block of keys", _growing(4, 3, 2, 3), "at first m = -inf, l = 0 and O = 0: the old O has no weight"
    ),
    ORDER.case(
        "maxima rise", _growing(4, 6, 2, 2), "the old O has the weight l exp(m - m_new): the whole sum of its keys"
    ),
    ORDER.case(
        "maxima stay", _falling(4, 6, 2, 2), "here the block is on another scale: its factor is exp(m_block - m_new)"
    ),
    ORDER.case("nothing divides", _growing(5, 7, 3, 4), "the last blocks are shorter"),
    ORDER.case("large scores", _growing(4, 6, 2, 3, 500.0), "only take exp of numbers that are 0 or less"),
)

_case = functools.partial(Case, tolerance=1e-9)
JOIN_CASES = (
    _case("block 1 has the maxima", _joined(_rising(3, 8).flip(-1), _V, 4),
          "the sums of block 2 are measured from smaller maxima: bring both to one scale first"),
    _case("block 2 has the maxima", _joined(_rising(3, 8), _V, 4), "the same rule must hold when the blocks are exchanged"),
    _case("both have some maxima", _joined(_S, _V, 4), "each query has its own maximum: compare m_1 and m_2 query by query"),
    _case("as many queries as columns", _joined(_rising(4, 8), _V, 4),
          "a factor is a column (B_r, 1): it scales rows of acc, not columns"),
    _case("blocks of two lengths", _joined(_S, _V, 6), "a block's weight is its whole sum, e^(m_1 - m) l_1, not its maximum alone"),
    _case("large scores", _joined(1000 * _S, _V, 4), "only take exp of something minus the common maximum"),
    _case("queries far apart", _joined(_far_apart(), _V, 4),
          "each query needs its own maximum: with one for all, the weights of the others underflow"),
    _case("a block without a visible key", _joined(_masked(_S, slice(5, 8)), _V, 5),
          "there m_2 is -inf and l_2 is 0: its factor is exp(-inf) = 0"),
)  # fmt: skip
UPDATE_CASES = (
    _case("the first block", _two_blocks(_S, _V, 0), "from m = -inf, l = 0, acc = 0: alpha is exp(-inf) = 0"),
    _case("every maximum rises", _two_blocks(_rising(3, 8), _V, 4), "scale l and acc by exp(m_old - m_new)"),
    _case("no maximum rises", _two_blocks(_rising(3, 8).flip(-1), _V, 4), "then alpha is 1, and P is exp(S - m)"),
    _case("as many rows as columns", _two_blocks(_rising(4, 8), _V, 4),
          "alpha is a column (B_r, 1): it scales rows of acc, not columns"),
    _case("large scores", _two_blocks(1000 * _S, _V, 5), "only take exp of something minus the new maximum"),
    _case("a masked block", _two_blocks(_masked(_S, slice(5, 8)), _V, 5),
          "scores of -inf change nothing: their weight is exp(-inf) = 0"),
    _case("nothing seen yet", _two_blocks(_masked(_S, slice(0, 8)), _V, 5),
          "-inf minus -inf is NaN: where the new maximum is -inf, subtract 0 instead, and return -inf"),
    _case("some rows have seen nothing", _two_blocks(_some_masked(), _V, 4),
          "test every row separately: other rows may have visible keys, and not the same ones"),
    _case("negative scores", _two_blocks(_S - 5, _V, 4),
          "a maximum may have either sign: only -inf means that a row has no visible key"),
    _case("very low scores", _two_blocks(-1e30 * _S.abs(), _V, 4),
          "only -inf means that there is no key: any finite number may be a score"),
    _case("one query, one key more", _two_blocks(_S[:1], _V, 7),
          "a dimension of size 1 stays: m and l are (B_r, 1) for B_r = 1 too"),
    _case("a NaN comes through", _with_nan,
          "a score of NaN is an error that must show in its row: guard -inf minus -inf before the exponential, "
          "and repair nothing after it, as nan_to_num does"),
)  # fmt: skip

VISITED_CASES = (
    Case("square blocks", _visited(12, 12, 3, 3), "T (T + 1) / 2 for T blocks a side: the diagonal ones count"),
    Case("blocks of two sizes", _visited(12, 12, 4, 3), "the last query of a block decides which keys the block needs"),
    Case(
        "keys in larger blocks",
        _visited(12, 12, 2, 6),
        "a block of keys counts as soon as a query attends to its first key",
    ),
    Case("nothing divides", _visited(10, 10, 4, 5), "the last block of queries ends at N_q, not later"),
    Case("more keys than queries", _visited(4, 12, 2, 3), "query i attends to the keys up to i + N_k - N_q"),
    Case("rows that see nothing", _visited(12, 4, 3, 2), "a block of queries without a visible key adds 0, not less"),
    Case("every small size", _every_size, "draw the mask for the sizes named here, and count the blocks"),
)

EXERCISES = (
    Exercise(
        "join",
        "join(m_1, l_1, acc_1, m_2, l_2, acc_2) -> the attention over the keys of both blocks, (B_r, d)",
        join_solution,
        JOIN_CASES,
        hints=(
            "Terms of block 1 are e^(s - m_1), terms of block 2 are e^(s - m_2). From which maximum must all terms be measured?",
            "m = max(m_1, m_2), query by query. What factor turns e^(s - m_1) into e^(s - m)? Both sums, l_1 and acc_1, need it.",
            "a_1 = torch.exp(m_1 - m), and a_2 likewise. Add the scaled sums, acc and l, then divide acc by l once.",
        ),
        core=("both have some maxima",),
        library=("flashlearn",),
    ),
    Ordering(
        "order",
        "order(): the letters of the lines of FlashAttention-1's inner loop, from top to bottom",
        order_solution,
        ORDER_CASES,
        hints=(
            "One visit: the block alone, the new maximum, the weights of old and new, then l and O, and what is stored.",
            "A line can only use names that have a value. And m[at], l[at] must still be the old ones when they are used.",
            "First the lines that use m_block, alone or with m. Then the two weights, then l_new and O[at]. Last, what HBM keeps.",
        ),
        core=("maxima rise",),
        puzzle=ORDER,
    ),
    Exercise(
        "update",
        "my_update(m, l, acc, S, V) -> m, l, acc after one more block of keys",
        update_solution,
        UPDATE_CASES,
        hints=(
            "Start from `update` in the notebook. Where does it compute -inf minus -inf, and for which rows?",
            "Only a row with m_new = -inf fails, and there every weight must be 0. Which number can you subtract instead, so that exp gives 0?",
            "base = m_new, but 0 where m_new is -inf (masked_fill). Then alpha = exp(m - base), P = exp(S - base): exp(-inf - 0) = 0. "
            "Still return m_new.",
        ),
        core=("every maximum rises",),
        library=("flashlearn",),
        values=("m", "l", "acc"),
    ),
    Exercise(
        "visited",
        "visited(N_q, N_k, block_q, block_k) -> number of pairs of blocks in which a query attends to a key",
        visited_solution,
        VISITED_CASES,
        hints=(
            "Take one block of queries. Which of its queries attends to the most keys, and to how many?",
            "The last one, number min(start + block_q, N_q) - 1. Query i attends to the keys 0 to i + N_k - N_q.",
            "Loop over the blocks of queries. Each adds the number of blocks that its keys fill; the last may be partly filled. "
            "What is the smallest number of keys?",
        ),
        core=("blocks of two sizes",),
        library=("flashlearn",),
    ),
)
