"""Solutions of the exercises of notebook 12."""

from __future__ import annotations

from typing import Any

tl: Any = None  # triton.language once a check runs: this module must import where Triton is missing


# 12.causal
def causal_solution(s, start_m, start_n, N_q, N_k):
    rows = start_m + tl.arange(0, s.shape[0])
    keys = start_n + tl.arange(0, s.shape[1])
    visible = keys[None, :] <= rows[:, None] + N_k - N_q
    return tl.where(visible, s, float("-inf"))


# 12.bugs
def bugs_solution(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    visible = keys[None, :] <= rows[:, None] + N_k - N_q
    s = tl.where(visible, s, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(s, 1))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - m_safe[:, None])
    alpha = tl.exp2(m_i - m_safe)
    l_i = l_i * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, l_i, acc
