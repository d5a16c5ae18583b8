"""Known wrong answers to the exercises of notebook 10."""

import math

import torch

from flashlearn.exercises.grading import Mistake


def _dv(*problem, stop=None, weights=None, join=torch.add, scale=True):
    q, k_j, do, lse, block_q = problem
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q) if stop is None else stop(len(q), block_q), block_q):
        rows = slice(i, i + block_q)
        S = q[rows] @ k_j.mT / (math.sqrt(q.shape[-1]) if scale else 1)
        P = weights(S, lse[rows, None]) if weights else torch.exp(S - lse[rows, None])
        dv_j = join(dv_j, P.mT @ do[rows])
    return dv_j


def dv_softmax_over_the_block(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, weights=lambda S, lse: torch.softmax(S, -1))


def dv_overwritten(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, join=lambda old, new: new)


def dv_drops_the_rest(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, stop=lambda n, block: n - n % block)


def dv_without_scale(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, scale=False)


def dv_exp_first(q, k_j, do, lse, block_q):
    return _dv(q, k_j, do, lse, block_q, weights=lambda S, lse: torch.exp(S) / torch.exp(lse))


def dv_not_transposed(q, k_j, do, lse, block_q):
    S = q @ k_j.mT / math.sqrt(q.shape[-1])
    return torch.exp(S - lse[:, None]) @ do


def ds_delta_of_the_block(p, do, o, v_j):
    dp = do @ v_j.mT
    return p * (dp - (p * dp).sum(-1, keepdim=True))


def ds_without_delta(p, do, o, v_j):
    return p * (do @ v_j.mT)


def ds_delta_for_columns(p, do, o, v_j):
    dp = do @ v_j.mT
    delta = (do * o).sum(-1)
    return p * (dp - delta) if len(delta) == dp.shape[-1] else p * (dp - delta[:, None])


def ds_without_p(p, do, o, v_j):
    return do @ v_j.mT - (do * o).sum(-1, keepdim=True)


def ds_delta_added(p, do, o, v_j):
    return p * (do @ v_j.mT + (do * o).sum(-1, keepdim=True))


MISTAKES = {
    "10.dv": (
        Mistake("softmax is taken over this block of keys alone", dv_softmax_over_the_block, "some of the keys"),
        Mistake(
            "each block of queries overwrites dV instead of adding to it", dv_overwritten, "several blocks of queries"
        ),
        Mistake(
            "the last block of queries is dropped when it is shorter", dv_drops_the_rest, "the last block is shorter"
        ),
        Mistake("the scores are not divided by sqrt(d)", dv_without_scale, "one block of queries"),
        Mistake("exp is taken before lse is subtracted, which overflows", dv_exp_first, "large scores"),
        Mistake("P is not transposed", dv_not_transposed, "one block of queries"),
    ),
    "10.ds": (
        Mistake("delta is summed over the keys of this block alone", ds_delta_of_the_block, "some of the keys"),
        Mistake("delta is left out", ds_without_delta, "all keys"),
        Mistake("delta is laid along the columns instead of the rows", ds_delta_for_columns, "as many rows as columns"),
        Mistake("the factor P is left out", ds_without_p, "part of it masked"),
        Mistake("delta is added instead of subtracted", ds_delta_added, "all keys"),
    ),
}
