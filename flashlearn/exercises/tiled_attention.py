"""Exercises of notebook 07: the update rule for one block, and how many blocks a causal mask leaves."""

from __future__ import annotations

import math

import torch

from flashlearn.exercises.grading import Case, Exercise

INF = float("inf")


def update_solution(m, l, acc, S, V):
    m_new = torch.maximum(m, S.max(-1, keepdim=True).values)
    base = m_new.masked_fill(m_new == -INF, 0)  # a row that has seen nothing: exp(-inf - 0) = 0
    alpha, P = torch.exp(m - base), torch.exp(S - base)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


def visited_solution(N_q, N_k, block_q, block_k):
    count = 0
    for start in range(0, N_q, block_q):
        last_query = min(start + block_q, N_q) - 1
        keys = max(0, last_query + 1 + N_k - N_q)  # that the last query of the block sees
        count += math.ceil(keys / block_k)
    return count


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
        return function(m, l, acc, S[:, first:], V[first:]), _state(S, V)

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


def _visited(*sizes):
    return lambda function: (function(*sizes), visited_solution(*sizes))


_S, _V = _random(3, 8, seed=2), _random(8, 4, seed=3)

EXERCISES = (
    Exercise(
        "07.update",
        "my_update(m, l, acc, S, V) -> m, l, acc after one more block of keys",
        update_solution,
        (
            Case(
                "the first block", _two_blocks(_S, _V, 0), "from m = -inf, l = 0, acc = 0: alpha is exp(-inf) = 0", 1e-9
            ),
            Case(
                "every maximum rises", _two_blocks(_rising(3, 8), _V, 4), "scale l and acc by exp(m_old - m_new)", 1e-9
            ),
            Case(
                "no maximum rises",
                _two_blocks(_rising(3, 8).flip(-1), _V, 4),
                "then alpha is 1, and P is exp(S - m)",
                1e-9,
            ),
            Case(
                "as many rows as columns",
                _two_blocks(_rising(4, 8), _V, 4),
                "alpha is a column (B_r, 1): it scales rows of acc, not columns",
                1e-9,
            ),
            Case(
                "large scores",
                _two_blocks(1000 * _S, _V, 5),
                "only ever take exp of something minus the new maximum",
                1e-9,
            ),
            Case(
                "a masked block",
                _two_blocks(_masked(_S, slice(5, 8)), _V, 5),
                "scores of -inf change nothing: their weight is exp(-inf) = 0",
                1e-9,
            ),
            Case(
                "nothing seen yet",
                _two_blocks(_masked(_S, slice(0, 8)), _V, 5),
                "-inf minus -inf is NaN: where the new maximum is -inf, subtract 0 instead",
                1e-9,
            ),
        ),
    ),
    Exercise(
        "07.visited",
        "visited(N_q, N_k, block_q, block_k) -> pairs of blocks in which some query sees some key",
        visited_solution,
        (
            Case("square blocks", _visited(12, 12, 3, 3), "T (T + 1) / 2 for T blocks a side: the diagonal ones count"),
            Case("blocks of two sizes", _visited(12, 12, 4, 3), "ask the last query of a block which keys it sees"),
            Case(
                "keys in larger blocks",
                _visited(12, 12, 2, 6),
                "a block of keys counts as soon as its first key is seen",
            ),
            Case("nothing divides", _visited(10, 10, 4, 5), "the last block of queries ends at N_q, not later"),
            Case("more keys than queries", _visited(4, 12, 2, 3), "query i sees keys up to i + N_k - N_q"),
            Case(
                "rows that see nothing", _visited(12, 4, 3, 2), "a block of queries that sees no key adds 0, not less"
            ),
        ),
    ),
)
