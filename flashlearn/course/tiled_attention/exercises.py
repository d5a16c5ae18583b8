"""Exercises of notebook 07: the loop of FlashAttention-1, the update rule for one block, and how many blocks a causal mask leaves."""

from __future__ import annotations

import functools
import itertools
import math

import torch

from flashlearn.course.tiled_attention.solutions import keys_outside, order_solution, update_solution, visited_solution
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


_S, _V = _random(3, 8, seed=2), _random(8, 4, seed=3)


def _growing(N_q, N_k, B_r, B_c, factor=1.0):
    """Queries and keys whose scores grow from key to key, random values, and sizes of blocks."""
    q, steps = 1 + _random(N_q, 3, seed=4).abs(), _random(N_k, 3, seed=5).abs()
    return factor * q, steps.cumsum(0), _random(N_k, 3, seed=6), B_r, B_c


def _falling(N_q, N_k, B_r, B_c):
    q, k, v, *blocks = _growing(N_q, N_k, B_r, B_c)
    return q, k.flip(0), v, *blocks


ORDER_CASES = (
    ORDER.case("one block of keys", _growing(4, 3, 2, 3), "m = -inf, l = 0 and O = 0: nothing old has weight"),
    ORDER.case("maxima rise", _growing(4, 6, 2, 2), "the old O weighs l exp(m - m_new), its keys' whole sum"),
    ORDER.case("maxima stay", _falling(4, 6, 2, 2), "then the block is on another scale: exp(m_block - m_new)"),
    ORDER.case("nothing divides", _growing(5, 7, 3, 4), "the last blocks are shorter"),
    ORDER.case("large scores", _growing(4, 6, 2, 3, 500.0), "only ever take exp of what is 0 or less"),
)

_case = functools.partial(Case, tolerance=1e-9)
UPDATE_CASES = (
    _case("the first block", _two_blocks(_S, _V, 0), "from m = -inf, l = 0, acc = 0: alpha is exp(-inf) = 0"),
    _case("every maximum rises", _two_blocks(_rising(3, 8), _V, 4), "scale l and acc by exp(m_old - m_new)"),
    _case("no maximum rises", _two_blocks(_rising(3, 8).flip(-1), _V, 4), "then alpha is 1, and P is exp(S - m)"),
    _case("as many rows as columns", _two_blocks(_rising(4, 8), _V, 4),
          "alpha is a column (B_r, 1): it scales rows of acc, not columns"),
    _case("large scores", _two_blocks(1000 * _S, _V, 5), "only ever take exp of something minus the new maximum"),
    _case("a masked block", _two_blocks(_masked(_S, slice(5, 8)), _V, 5),
          "scores of -inf change nothing: their weight is exp(-inf) = 0"),
    _case("nothing seen yet", _two_blocks(_masked(_S, slice(0, 8)), _V, 5),
          "-inf minus -inf is NaN: where the new maximum is -inf, subtract 0 instead, and return -inf"),
    _case("some rows have seen nothing", _two_blocks(_some_masked(), _V, 4),
          "ask every row by itself whether it has seen a key: its neighbours may have, and not the same keys"),
    _case("negative scores", _two_blocks(_S - 5, _V, 4),
          "a maximum may have either sign: only -inf says that a row has seen nothing"),
    _case("very low scores", _two_blocks(-1e30 * _S.abs(), _V, 4),
          "-inf alone stands for no key: any finite number may be a score"),
    _case("one query, one key more", _two_blocks(_S[:1], _V, 7),
          "a dimension of size 1 stays: m and l are (B_r, 1) for B_r = 1 too"),
    _case("a NaN comes through", _with_nan,
          "a score of NaN is an error that must show in its row: guard -inf minus -inf before the exponential, "
          "and repair nothing after it, as nan_to_num does"),
)  # fmt: skip

VISITED_CASES = (
    Case("square blocks", _visited(12, 12, 3, 3), "T (T + 1) / 2 for T blocks a side: the diagonal ones count"),
    Case("blocks of two sizes", _visited(12, 12, 4, 3), "ask the last query of a block which keys it sees"),
    Case("keys in larger blocks", _visited(12, 12, 2, 6), "a block of keys counts as soon as its first key is seen"),
    Case("nothing divides", _visited(10, 10, 4, 5), "the last block of queries ends at N_q, not later"),
    Case("more keys than queries", _visited(4, 12, 2, 3), "query i sees keys up to i + N_k - N_q"),
    Case("rows that see nothing", _visited(12, 4, 3, 2), "a block of queries that sees no key adds 0, not less"),
    Case("every small size", _every_size, "draw the mask for the sizes named here, and count the blocks"),
)

EXERCISES = (
    Ordering(
        "order",
        "order(): the letters of the lines of FlashAttention-1's inner loop, from top to bottom",
        order_solution,
        ORDER_CASES,
        hints=(
            "Say what a visit does: the block by itself, the new maximum, the weights of old and new, then l, O, and what is stored.",
            "Every line reads names: each must have its value by then, and m[at], l[at] must still be the old ones.",
            "The two lines that start from m_block alone or with m; then the two weights; the lines that make l_new and O[at]; last what HBM keeps.",
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
            "This is the recurrence of one query, done for B_r queries at once. Which of m, l, acc and S have one number for each row?",
            "m_new is the larger of m and the row maximum of S. alpha = e^(m - m_new) is (B_r, 1), P = e^(S - m_new) is (B_r, B_c).",
            "l and acc both become (old, times alpha) + (what this block adds): a sum over keys for l, a product for acc. "
            "Where m_new is -inf, subtract 0 in both exponentials.",
        ),
        core=("every maximum rises",),
        library=("flashlearn",),
        values=("m", "l", "acc"),
    ),
    Exercise(
        "visited",
        "visited(N_q, N_k, block_q, block_k) -> pairs of blocks in which some query sees some key",
        visited_solution,
        VISITED_CASES,
        hints=(
            "Take one block of queries. Which of its queries sees the most keys, and how many are that?",
            "The last one, number min(start + block_q, N_q) - 1. Query i sees the keys 0 to i + N_k - N_q.",
            "A loop over the blocks of queries; each adds the number of blocks that its keys fill, the last one perhaps not whole. "
            "How few keys can a query see?",
        ),
        core=("blocks of two sizes",),
        library=("flashlearn",),
    ),
)
