"""Planted mistakes for the exercises of notebook 10: what is wrong, the function, the case that must catch it."""

import math

import torch


def _dv(q, k_j, do, lse, block_q, *, stop=None, weights=None, join=torch.add, scale=True):
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
    "10.dv": [
        ("softmax over the block of keys", dv_softmax_over_the_block, "some of the keys"),
        ("overwritten, not added", dv_overwritten, "several blocks of queries"),
        ("the shorter last block dropped", dv_drops_the_rest, "the last block is shorter"),
        ("scale forgotten", dv_without_scale, "one block of queries"),
        ("exp before the subtraction", dv_exp_first, "large scores"),
        ("P not transposed", dv_not_transposed, "one block of queries"),
    ],
    "10.ds": [
        ("delta of these keys only", ds_delta_of_the_block, "some of the keys"),
        ("no delta", ds_without_delta, "all keys"),
        ("delta laid along the columns", ds_delta_for_columns, "as many rows as columns"),
        ("P forgotten", ds_without_p, "part of it masked"),
        ("delta added", ds_delta_added, "all keys"),
    ],
}
