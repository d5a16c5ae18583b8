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


# 12.kernel
def kernel_solution(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, N_q, N_k, qk_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64)  # offsets may pass 2^31
    rows, d = start_m + tl.arange(0, BLOCK_M), tl.arange(0, D)[None, :]
    at_q = (head * N_q + rows)[:, None] * D + d
    q = tl.load(q_ptr + at_q, mask=(rows < N_q)[:, None], other=0.0)
    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    end = N_k
    if CAUSAL:
        end = tl.minimum(tl.maximum(start_m + BLOCK_M + N_k - N_q, 0), N_k)
    for start_n in range(0, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        at_k = (head * N_k + keys)[:, None] * D + d
        k = tl.load(k_ptr + at_k, mask=(keys < N_k)[:, None], other=0.0)
        v = tl.load(v_ptr + at_k, mask=(keys < N_k)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
        visible = (keys < N_k)[None, :]
        if CAUSAL:
            visible = visible & (keys[None, :] <= rows[:, None] + N_k - N_q)
        s = tl.where(visible, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - base[:, None])
        alpha = tl.exp2(m - base)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        m = m_new
    l = tl.where(l == 0.0, 1.0, l)
    o = acc / l[:, None]
    tl.store(o_ptr + at_q, o.to(o_ptr.dtype.element_ty), mask=(rows < N_q)[:, None])
    tl.store(lse_ptr + head * N_q + rows, (m + tl.log2(l)) * 0.6931471805599453, mask=rows < N_q)
