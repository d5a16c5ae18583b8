"""Solutions of the exercises of notebook 10."""

from __future__ import annotations

import math

import torch


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
