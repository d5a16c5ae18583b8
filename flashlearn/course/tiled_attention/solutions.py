"""Solutions of the exercises of notebook 07."""

from __future__ import annotations

import math

import torch

INF = float("inf")


# 07.join
def join_solution(m_1, l_1, acc_1, m_2, l_2, acc_2):
    m = torch.maximum(m_1, m_2)  # the common scale
    a_1, a_2 = torch.exp(m_1 - m), torch.exp(m_2 - m)
    acc = a_1 * acc_1 + a_2 * acc_2
    l = a_1 * l_1 + a_2 * l_2
    return acc / l


# 07.update
def update_solution(m, l, acc, S, V):
    m_new = torch.maximum(m, S.max(-1, keepdim=True).values)
    base = m_new.masked_fill(m_new == -INF, 0)  # a query without a visible key: exp(-inf - 0) = 0
    alpha, P = torch.exp(m - base), torch.exp(S - base)
    return m_new, alpha * l + P.sum(-1, keepdim=True), alpha * acc + P @ V


# 07.visited
def visited_solution(N_q, N_k, block_q, block_k):
    count = 0
    for start in range(0, N_q, block_q):
        last_query = min(start + block_q, N_q) - 1
        keys = max(0, last_query + 1 + N_k - N_q)  # that the last query of the block attends to
        count += math.ceil(keys / block_k)
    return count


def keys_outside(q, k, v, B_r, B_c):
    O, l = torch.zeros_like(q), q.new_zeros(len(q), 1)
    m = torch.full_like(l, -INF)
    for j in range(0, len(k), B_c):
        for i in range(0, len(q), B_r):
            at, keys = slice(i, i + B_r), slice(j, j + B_c)
            S = q[at] @ k[keys].T / q.shape[-1] ** 0.5
            m_block = S.amax(-1, keepdim=True)
            P = torch.exp(S - m_block)
            m_new = torch.maximum(m[at], m_block)
            old, new = l[at] * torch.exp(m[at] - m_new), torch.exp(m_block - m_new)
            l_new = old + new * P.sum(-1, keepdim=True)
            O[at] = (old * O[at] + new * (P @ v[keys])) / l_new
            l[at], m[at] = l_new, m_new
    return O


# 07.order
def order_solution():
    return "AFEDBG"
