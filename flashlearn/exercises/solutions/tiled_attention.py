"""Solutions of the exercises of notebook 07."""

from __future__ import annotations

import math

import torch

INF = float("inf")


# 07.update
def update_solution(m, l, acc, S, V):
    m_new = torch.maximum(m, S.max(-1, keepdim=True).values)
    base = m_new.masked_fill(m_new == -INF, 0)  # a row that has seen nothing: exp(-inf - 0) = 0
    alpha, P = torch.exp(m - base), torch.exp(S - base)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


# 07.visited
def visited_solution(N_q, N_k, block_q, block_k):
    count = 0
    for start in range(0, N_q, block_q):
        last_query = min(start + block_q, N_q) - 1
        keys = max(0, last_query + 1 + N_k - N_q)  # that the last query of the block sees
        count += math.ceil(keys / block_k)
    return count
