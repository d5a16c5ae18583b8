"""Answers to the exercises of triton_backward that are no edit of the solution: `wrong.toml` names them."""

import triton.language as tl


def dv_by_exp(dv, k, q, do, lse, rows, keys, N_q, N_k, scale):
    p = tl.exp(tl.dot(q, tl.trans(k), input_precision="ieee") * scale - lse[:, None])
    p = tl.where((keys[None, :] - N_k <= rows[:, None] - N_q) & (lse > float("-inf"))[:, None], p, 0.0)
    return tl.dot(tl.trans(p), do.to(tl.float32), dv, input_precision="ieee")


def kernel_of_untransposed_scores(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, N_q, N_k, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """S, P and dS lie as in the forward pass, and are turned for the sums; blocks of queries go from the last to the first."""
    head, d = tl.cast(tl.program_id(1), tl.int64), tl.arange(0, D)[None, :]
    j = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    own = head * N_k * D + j[:, None] * D + d
    k = tl.load(k_ptr + own, mask=j[:, None] < N_k, other=0.0)
    v = tl.load(v_ptr + own, mask=j[:, None] < N_k, other=0.0)
    dk, dv = tl.zeros((BLOCK_N, D), dtype=tl.float32), tl.zeros((BLOCK_N, D), dtype=tl.float32)
    skipped = 0
    if CAUSAL:
        skipped = tl.maximum(tl.program_id(0) * BLOCK_N - (N_k - N_q), 0) // BLOCK_M
    count = tl.cdiv(N_q, BLOCK_M)
    for n in range(count - skipped):
        i = (count - 1 - n) * BLOCK_M + tl.arange(0, BLOCK_M)
        there = head * N_q * D + i[:, None] * D + d
        q = tl.load(q_ptr + there, mask=i[:, None] < N_q, other=0.0)
        do = tl.load(do_ptr + there, mask=i[:, None] < N_q, other=0.0)
        lse = tl.load(lse_ptr + head * N_q + i, mask=i < N_q, other=0.0)
        delta = tl.load(delta_ptr + head * N_q + i, mask=i < N_q, other=0.0)
        seen = (i[:, None] < N_q) & (j[None, :] < N_k)
        if CAUSAL:
            seen = seen & (j[None, :] - N_k <= i[:, None] - N_q)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        p = tl.exp(tl.where(seen, s - lse[:, None], float("-inf")))
        dv += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
        ds = p * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[:, None])
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
    tl.store(dv_ptr + own, dv.to(v.dtype), mask=j[:, None] < N_k)
    tl.store(dk_ptr + own, (scale * dk).to(k.dtype), mask=j[:, None] < N_k)
