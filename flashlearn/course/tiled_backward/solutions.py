"""Solutions of the exercises of notebook 10."""

from __future__ import annotations

import math

import torch


# 10.met
def met_solution(j, T_r, T_c):
    return [(i, j) for i in range(T_r)]


# 10.dv
def dv_solution(q, k_j, do, lse, block_q):
    dv_j = torch.zeros_like(k_j)
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        S = q[rows] @ k_j.mT / math.sqrt(q.shape[-1])
        P = torch.exp(S - lse[rows, None])
        dv_j = dv_j + P.mT @ do[rows]
    return dv_j


# 10.ds
def ds_solution(p, do, o, v_j):
    delta = (do * o).sum(-1, keepdim=True)
    dp = do @ v_j.mT
    return p * (dp - delta)


# 10.dq
def dq_solution(q_i, k, v, do_i, o_i, lse_i, block_k):
    scale = 1 / math.sqrt(q_i.shape[-1])
    delta_i = (do_i * o_i).sum(-1, keepdim=True)
    dq_i = torch.zeros_like(q_i)
    for j in range(0, len(k), block_k):
        cols = slice(j, j + block_k)
        P = torch.exp(scale * q_i @ k[cols].mT - lse_i[:, None])
        dS = P * (do_i @ v[cols].mT - delta_i)
        dq_i = dq_i + scale * dS @ k[cols]
    return dq_i


def one_block_of_keys(q, k_j, v_j, do, lse, delta, block_q):
    """dK_j and dV_j: K_j and V_j stay, the queries come by; `tile` holds P first, then dS in its place."""
    root = math.sqrt(q.shape[-1])
    dk_j, dv_j = torch.zeros_like(k_j), torch.zeros_like(v_j)
    for i in range(0, len(q), block_q):
        rows = slice(i, i + block_q)
        tile = torch.exp(q[rows] @ k_j.mT / root - lse[rows, None])
        dv_j = dv_j + tile.mT @ do[rows]
        tile = tile * (do[rows] @ v_j.mT - delta[rows, None])
        dk_j = dk_j + tile.mT @ q[rows] / root
    return dk_j, dv_j


# 10.order
def order_solution():
    return "EBCA"
