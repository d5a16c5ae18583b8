"""Answers to the exercises of triton_forward that are no edit of the solution: `wrong.toml` names them."""

import triton.language as tl


def kernel_from_the_last_block(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, N_q, N_k, qk_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Blocks of keys are counted and taken from the last to the first; K is loaded as its transpose; pointers hold the head."""
    head = tl.cast(tl.program_id(1), tl.int64)
    d, n = tl.arange(0, D), tl.arange(0, BLOCK_N)
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    own = q_ptr + head * N_q * D + i[:, None] * D + d[None, :]
    k_ptr += head * N_k * D
    v_ptr += head * N_k * D
    real = i[:, None] < N_q
    q = tl.load(own, mask=real, other=0.0)
    count = tl.cdiv(N_k, BLOCK_N)
    last = N_k + tl.zeros((BLOCK_M,), dtype=tl.int32) - 1  # the last key that each query sees
    if CAUSAL:
        last = i - N_q + N_k
        count = tl.cdiv(tl.minimum(tl.max(tl.where(i < N_q, last, -1), 0) + 1, N_k), BLOCK_N)
    m = tl.full((BLOCK_M,), -1e30, dtype=tl.float32)  # finite: nothing to guard
    l = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for j in range(count):
        cols = (count - 1 - j) * BLOCK_N + n
        k_t = tl.load(k_ptr + d[:, None] + cols[None, :] * D, mask=cols[None, :] < N_k, other=0.0)
        v = tl.load(v_ptr + cols[:, None] * D + d[None, :], mask=cols[:, None] < N_k, other=0.0)
        s = tl.dot(q, k_t, input_precision="ieee") * qk_scale
        s += tl.where((cols[None, :] <= last[:, None]) & (cols[None, :] < N_k), 0.0, float("-inf"))
        top = tl.maximum(tl.max(s, 1), m)
        moved = tl.exp2(m - top)
        p = tl.exp2(s - top[:, None])
        acc *= moved[:, None]
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        l = tl.sum(p, 1) + moved * l
        m = top
    seen = l > 0.0
    o = tl.where(seen[:, None], acc / tl.where(seen, l, 1.0)[:, None], 0.0)
    lse = tl.where(seen, 0.6931471805599453 * m + tl.log(tl.where(seen, l, 1.0)), float("-inf"))
    tl.store(lse_ptr + head * N_q + i, lse, mask=i < N_q)
    tl.store(o_ptr + head * N_q * D + i[:, None] * D + d[None, :], o.to(q.dtype), mask=real)
