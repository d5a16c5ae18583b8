"""Wrong answers to the exercises of notebook 10."""

import math

import torch

from tests.variants import variant


def dv(q, k_j, do, lse, block_q, weights, scale=None):
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        S = q[rows] @ k_j.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        dv_j = dv_j + weights(S, lse[rows]).mT @ do[rows]
    return dv_j


@variant("10.dv", "lse is not used", r"\blse\b")
def without_lse(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S))


@variant(
    "10.dv",
    "lse is laid along the keys",
    r"column|\[:, None\]|\[rows, None\]|row of its own|one lse for each (row|query)|along",
)
def lse_along_the_keys(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S - lse))


@variant("10.dv", "divided by D, not by its square root", r"sqrt\(d\)|square root|scale")
def divided_by_d(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S - lse[:, None]), 1 / q.shape[-1])


@variant("10.dv", "the result is transposed", r"transpos|shape")
def transposed(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S - lse[:, None])).mT


@variant("10.dv", "lse is added", r"subtract|minus|- lse|sign")
def lse_added(q, k_j, do, lse, block_q):
    return dv(q, k_j, do, lse, block_q, lambda S, lse: torch.exp(S + lse[:, None]))


@variant("10.ds", "the sign is turned", r"sign|minus|negative|-1|other way|turned")
def sign_turned(p, do, o, v_j):
    return p * ((do * o).sum(-1, keepdim=True) - do @ v_j.mT)


@variant("10.ds", "dP comes out transposed", r"transpos|dP = dO V|V_j\^T|shape")
def dp_transposed(p, do, o, v_j):
    return p * (v_j @ do.mT - (do * o).sum(-1, keepdim=True))


@variant("10.ds", "delta is a mean", r"mean|averag|rowsum|\bsum")
def mean_for_delta(p, do, o, v_j):
    return p * (do @ v_j.mT - (do * o).mean(-1, keepdim=True))


@variant("10.ds", "divided by sqrt(D) already", r"sqrt|scale|factor|times what|times too|divided")
def scaled(p, do, o, v_j):
    return p * (do @ v_j.mT - (do * o).sum(-1, keepdim=True)) / math.sqrt(do.shape[-1])
