"""Solutions of the exercises of notebook 05."""

from __future__ import annotations

import torch

INF = float("inf")


# 05.recurrence
def recurrence_solution(m, l, acc, s, v):
    m_new = torch.maximum(m, s)
    if m_new == -INF:  # nothing seen yet, and this key may not be seen either
        return m, l, acc
    alpha, p = torch.exp(m - m_new), torch.exp(s - m_new)
    return m_new, l * alpha + p, acc * alpha + p * v


# 05.merge_outputs
def merge_solution(o_a, lse_a, o_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    safe = lse.masked_fill(lse == -INF, 0.0)  # where neither half has a key: both weights are exp(-inf) = 0
    weight_a, weight_b = torch.exp(lse_a - safe), torch.exp(lse_b - safe)
    return weight_a[..., None] * o_a + weight_b[..., None] * o_b, lse


# 05.loop
def loop_solution(hbm, N, scale):
    q = hbm.load("Q")
    m, l = hbm.fill("Q", cols=(0, 1), value=-INF), hbm.fill("Q", cols=(0, 1))
    acc = hbm.fill("Q")
    for j in range(N):
        s = q @ hbm.load("K", (j, j + 1)).mT * scale
        m_new = torch.maximum(m, s)
        alpha, p = torch.exp(m - m_new), torch.exp(s - m_new)
        l = l * alpha + p
        acc = acc * alpha + p @ hbm.load("V", (j, j + 1))
        m = m_new
        yield hbm.step("one pass", cols=(j, j + 1), S=s, m_i=m, l_i=l, acc=acc)
    hbm.store("O", None, acc / l)
    yield hbm.step("divide", m_i=m, l_i=l, acc=acc)
