"""Known wrong answers to the exercises of notebook 10."""

import math

import torch

from flashlearn.course.tiled_backward.solutions import one_block_of_keys
from flashlearn.exercises.assessment import Mistake
from flashlearn.exercises.ordering import Decoy, Puzzle


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


def _dq(*problem, join=torch.add, stop=None, weights=None, delta=None, factor=None):
    q_i, k, v, do_i, o_i, lse_i, block_k = problem
    scale = 1 / math.sqrt(q_i.shape[-1])
    dq_i = torch.zeros_like(q_i)
    for j in range(0, len(k) if stop is None else stop(len(k), block_k), block_k):
        cols = slice(j, j + block_k)
        S = scale * q_i @ k[cols].mT
        P = weights(S) if weights else torch.exp(S - lse_i[:, None])
        dP = do_i @ v[cols].mT
        dS = P * (dP - (delta(P, dP) if delta else (do_i * o_i).sum(-1, keepdim=True)))
        dq_i = join(dq_i, (scale if factor is None else factor) * dS @ k[cols])
    return dq_i


def dq_overwritten(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, join=lambda old, new: new)


def dq_drops_the_rest(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, stop=lambda n, block: n - n % block)


def dq_without_scale(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, factor=1.0)


def dq_softmax_over_the_block(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, weights=lambda S: torch.softmax(S, -1))


def dq_delta_of_the_block(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, delta=lambda P, dP: (P * dP).sum(-1, keepdim=True))


def dq_without_delta(q_i, k, v, do_i, o_i, lse_i, block_k):
    return _dq(q_i, k, v, do_i, o_i, lse_i, block_k, delta=lambda P, dP: 0)


ORDER = Puzzle(
    "10.order",
    one_block_of_keys,
    (
        Decoy(
            "tile = torch.softmax(q[rows] @ k_j.mT / root, -1)",
            0,
            "softmax is taken over one block of keys, where lse knows all of them",
            "some of the keys",
        ),
        Decoy("dv_j = tile.mT @ do[rows]", 1, "every block of queries overwrites dV", "two blocks of queries"),
        Decoy("tile = tile * (do[rows] @ v_j.mT)", 2, "delta is missing from dS", "one block of queries"),
    ),
    (1, 0),
)
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
    "10.dq": (
        Mistake("each block of keys overwrites dQ instead of adding to it", dq_overwritten, "several blocks of keys"),
        Mistake("the last block of keys is dropped when it is shorter", dq_drops_the_rest, "the last block is shorter"),
        Mistake("dQ lacks the scale, which only the scores have", dq_without_scale, "one block of keys"),
        Mistake(
            "softmax is taken over every block of keys for itself", dq_softmax_over_the_block, "several blocks of keys"
        ),
        Mistake("delta is summed over each block of keys for itself", dq_delta_of_the_block, "several blocks of keys"),
        Mistake("delta is left out of dS", dq_without_delta, "one block of keys"),
    ),
    "10.order": ORDER.mistakes(
        ("dV is made of dS, which has taken the place of P already", (0, 2, 1, 3), "one block of queries"),
        ("dK is made of P, before dS takes its place", (0, 1, 3, 2), "one block of queries"),
    ),
}
