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


def dq(q_i, k, v, do_i, o_i, lse_i, block_k, ds_of, factor=lambda dS, k_j: dS @ k_j):
    scale = 1 / math.sqrt(q_i.shape[-1])
    delta, dq_i = (do_i * o_i).sum(-1, keepdim=True), torch.zeros_like(q_i)
    for j in range(0, len(k), block_k):
        cols = slice(j, j + block_k)
        P = torch.exp(scale * q_i @ k[cols].mT - lse_i[:, None])
        dq_i = dq_i + scale * factor(ds_of(P, do_i @ v[cols].mT, delta), k[cols])
    return dq_i


@variant("10.dq", "delta is added", r"subtract|minus")
def dq_delta_added(*problem):
    return dq(*problem, lambda P, dP, delta: P * (dP + delta))


@variant("10.dq", "the factor P is missing", r"factor P")
def dq_without_p(*problem):
    return dq(*problem, lambda P, dP, delta: dP - delta)


@variant("10.dq", "P stands for dS", r"P in place of dS")
def dq_of_p(*problem):
    return dq(*problem, lambda P, dP, delta: P)


@variant("10.order", "softmax is taken over a block", r"line D|one block of keys")
def softmax_of_the_block():
    return ["D", "B", "C", "A"]


@variant("10.order", "dK comes before dS", r"before dS")
def keys_too_early():
    return ["E", "B", "A", "C"]


@variant("10.order", "dV overwrites", r"overwrites|line G")
def values_overwritten():
    return ["E", "G", "C", "A"]
