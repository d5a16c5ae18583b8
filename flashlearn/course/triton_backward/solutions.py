"""Solutions of the exercises of notebook 13."""

from __future__ import annotations

from typing import Any

tl: Any = None  # triton.language once a check runs: this module must import where Triton is missing


# 13.dv
def dv_solution(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
    visible = keys[:, None] <= rows[None, :] + N_k - N_q
    p_t = tl.where(visible, p_t, 0.0)
    return dv + tl.dot(p_t.to(do.dtype), do, input_precision="ieee")


# 13.ds
def ds_solution(p_t, v, do, delta):
    dp_t = tl.dot(v, tl.trans(do), input_precision="ieee")
    return p_t * (dp_t - delta[None, :])


# 13.kernel
def kernel_solution(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, N_q, N_k, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    start_n = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1).to(tl.int64)  # offsets may pass 2^31
    keys, d = start_n + tl.arange(0, BLOCK_N), tl.arange(0, D)[None, :]
    at_k = (head * N_k + keys)[:, None] * D + d
    k = tl.load(k_ptr + at_k, mask=(keys < N_k)[:, None], other=0.0)
    v = tl.load(v_ptr + at_k, mask=(keys < N_k)[:, None], other=0.0)
    dk = tl.zeros((BLOCK_N, D), dtype=tl.float32)
    dv = tl.zeros((BLOCK_N, D), dtype=tl.float32)
    first = 0
    if CAUSAL:
        first = tl.maximum(start_n + N_q - N_k, 0) // BLOCK_M * BLOCK_M
    for start_m in range(first, N_q, BLOCK_M):
        rows = start_m + tl.arange(0, BLOCK_M)
        at_q = (head * N_q + rows)[:, None] * D + d
        q = tl.load(q_ptr + at_q, mask=(rows < N_q)[:, None], other=0.0)
        do = tl.load(do_ptr + at_q, mask=(rows < N_q)[:, None], other=0.0)
        lse = tl.load(lse_ptr + head * N_q + rows, mask=rows < N_q, other=float("inf"))
        delta = tl.load(delta_ptr + head * N_q + rows, mask=rows < N_q, other=0.0)
        s_t = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
        p_t = tl.exp2((s_t - lse[None, :]) * 1.4426950408889634)
        if CAUSAL:
            p_t = tl.where(keys[:, None] <= rows[None, :] + N_k - N_q, p_t, 0.0)
        dv = tl.dot(p_t.to(do.dtype), do, dv, input_precision="ieee")
        dp_t = tl.dot(v, tl.trans(do), input_precision="ieee")
        ds_t = p_t * (dp_t - delta[None, :])
        dk = tl.dot(ds_t.to(q.dtype), q, dk, input_precision="ieee")
    dk = dk * scale
    tl.store(dk_ptr + at_k, dk.to(dk_ptr.dtype.element_ty), mask=(keys < N_k)[:, None])
    tl.store(dv_ptr + at_k, dv.to(dv_ptr.dtype.element_ty), mask=(keys < N_k)[:, None])
