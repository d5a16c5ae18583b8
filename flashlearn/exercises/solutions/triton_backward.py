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
