"""FlashAttention-2's backward pass, the teaching kernels: delta, then dK and dV, then dQ.

What is new compared with the forward pass: P is not stored but recomputed from lse as exp(S scale - lse), exactly. Two
passes replace one. A program of the first owns a K/V block and loops over the queries. A program of the second owns a Q
block and loops over the keys. That costs 7 block products instead of 5, but every result has one owner: no atomics, the
same bits in every run.

    dV = P^T dO        dP = dO V^T        dS = P o (dP - delta)        delta = rowsum(dO o O)
    dQ = dS K scale    dK = dS^T Q scale

Source: T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 2, cited below as FA-2 Alg. 2.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.inputs import check_bool
from flashlearn.core.target import check_backward, check_grid, check_launch, padded, resolve_scale
from flashlearn.kernels.forward import LOG2E, Launch


@triton.jit(do_not_specialize=["N_q"])
def delta_kernel(
    # pointers
    o_ptr, do_ptr, delta_ptr,
    # strides of o and do (B, H_q, N_q, D); delta (B, H_q, N_q) is contiguous
    stride_ob, stride_oh, stride_om, stride_od,
    stride_dob, stride_doh, stride_dom, stride_dod,
    # sizes
    N_q,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """delta = rowsum(dO o O) for one block of queries: FA-2 Alg. 2, line 4."""
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # (BLOCK_D,)
    mask = (offs_m < N_q)[:, None] & (offs_d < HEAD_DIM)[None, :]
    o_ptr += batch * stride_ob + head * stride_oh
    do_ptr += batch * stride_dob + head * stride_doh
    o = tl.load(o_ptr + offs_m[:, None] * stride_om + offs_d[None, :] * stride_od, mask=mask, other=0.0)
    do = tl.load(do_ptr + offs_m[:, None] * stride_dom + offs_d[None, :] * stride_dod, mask=mask, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)  # (BLOCK_M,)
    tl.store(delta_ptr + (batch * tl.num_programs(1) + head) * N_q + offs_m, delta, mask=offs_m < N_q)


@triton.jit(do_not_specialize=["N_q", "N_k", "group"])  # one compilation for all lengths
def attention_dkdv_kernel(
    # pointers
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr,
    # strides of q and do (B, H_q, N_q, D), of k, v, dk and dv (B, H_kv, N_k, D); lse, delta are contiguous
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_dob, stride_doh, stride_dom, stride_dod,
    stride_dkb, stride_dkh, stride_dkn, stride_dkd,
    stride_dvb, stride_dvh, stride_dvn, stride_dvd,
    # sizes, and the factor on Q K^T
    N_q, N_k, group, scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dK and dV for one block of keys of one key head: the loop over the queries that attend to it."""
    start_n = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1).to(tl.int64)  # of keys and values
    batch = tl.program_id(2).to(tl.int64)  # 64 bits in every product with a stride: offsets may pass 2^31
    num_heads = tl.num_programs(1) * group  # of queries
    offs_n = start_n + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    offs_m = tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # (BLOCK_D,)
    d_mask = offs_d < HEAD_DIM
    cols = offs_n[:, None].to(tl.int64)
    n_mask = (offs_n < N_k)[:, None] & d_mask[None, :]
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    # FA-2 Alg. 2, line 6: load K_j, V_j; line 7: dK_j = dV_j = 0; all (BLOCK_N, BLOCK_D)
    k = tl.load(k_ptr + cols * stride_kn + offs_d[None, :] * stride_kd, mask=n_mask, other=0.0)
    v = tl.load(v_ptr + cols * stride_vn + offs_d[None, :] * stride_vd, mask=n_mask, other=0.0)
    dk = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)

    # Key j is attended to by queries from j - (N_k - N_q) on when causal, by all otherwise: `first` attends to the first
    # key of this block, `full` (rounded up to a block) and those after it attend to all keys and need no mask. Nor do
    # keys past the end: whatever P^T and dS^T hold in their rows stays in rows of dK and dV that are not stored.
    first = 0
    full = 0
    if CAUSAL:
        first = tl.maximum(start_n - (N_k - N_q), 0) // BLOCK_M * BLOCK_M
        full = tl.cdiv(tl.maximum(start_n + BLOCK_N - 1 - (N_k - N_q), 0), BLOCK_M) * BLOCK_M
        full = tl.minimum(full, tl.cdiv(N_q, BLOCK_M) * BLOCK_M)

    for member in range(group):  # every query head that shares this key head adds to the same dK, dV
        q_head = head * group + member
        q_base = q_ptr + batch * stride_qb + q_head * stride_qh
        do_base = do_ptr + batch * stride_dob + q_head * stride_doh
        lse_base = lse_ptr + (batch * num_heads + q_head) * N_q
        delta_base = delta_ptr + (batch * num_heads + q_head) * N_q
        for start_m in range(first, full, BLOCK_M):  # the diagonal
            rows = start_m + offs_m
            visible = offs_n[:, None] <= rows[None, :] + N_k - N_q  # (BLOCK_N, BLOCK_M)
            q, do, lse, delta = load_queries(
                q_base, do_base, lse_base, delta_base, rows, offs_d, N_q, HEAD_DIM,
                stride_qm, stride_qd, stride_dom, stride_dod)  # fmt: skip
            p_t = recompute_transposed(q, k, lse, scale, PRECISION)
            # After the exponential is soon enough: nothing here takes a maximum over hidden scores
            p_t = tl.where(visible, p_t, 0.0)
            dk, dv = accumulate(dk, dv, p_t, q, v, do, delta, PRECISION)
        for start_m in range(full, N_q, BLOCK_M):  # every query attends to every key
            q, do, lse, delta = load_queries(
                q_base, do_base, lse_base, delta_base, start_m + offs_m, offs_d, N_q, HEAD_DIM,
                stride_qm, stride_qd, stride_dom, stride_dod)  # fmt: skip
            p_t = recompute_transposed(q, k, lse, scale, PRECISION)
            dk, dv = accumulate(dk, dv, p_t, q, v, do, delta, PRECISION)

    # FA-2 Alg. 2, line 18: write dK_j, dV_j. S = Q K^T scale, so that the scale belongs in dK (and dQ)
    dk_ptr += batch * stride_dkb + head * stride_dkh
    dv_ptr += batch * stride_dvb + head * stride_dvh
    dk_ptrs = dk_ptr + cols * stride_dkn + offs_d[None, :] * stride_dkd
    dv_ptrs = dv_ptr + cols * stride_dvn + offs_d[None, :] * stride_dvd
    tl.store(dk_ptrs, (dk * scale).to(dk_ptr.dtype.element_ty), mask=n_mask)
    tl.store(dv_ptrs, dv.to(dv_ptr.dtype.element_ty), mask=n_mask)


@triton.jit
def load_queries(
    q_base, do_base, lse_base, delta_base, rows, offs_d, N_q, HEAD_DIM: tl.constexpr,
    stride_qm, stride_qd, stride_dom, stride_dod,
):  # fmt: skip
    """Q_i, dO_i (BLOCK_M, BLOCK_D), lse_i, delta_i (BLOCK_M,): FA-2 Alg. 2, line 9.

    Past the last query lse is +inf: `of_seen` then gives P = 0, and no other mask is needed.
    """
    mask = (rows < N_q)[:, None] & (offs_d < HEAD_DIM)[None, :]
    wide = rows[:, None].to(tl.int64)
    q = tl.load(q_base + wide * stride_qm + offs_d[None, :] * stride_qd, mask=mask, other=0.0)
    do = tl.load(do_base + wide * stride_dom + offs_d[None, :] * stride_dod, mask=mask, other=0.0)
    lse = tl.load(lse_base + rows, mask=rows < N_q, other=float("inf"))
    delta = tl.load(delta_base + rows, mask=rows < N_q, other=0.0)
    return q, do, lse, delta


@triton.jit
def recompute_transposed(q, k, lse, scale, PRECISION: tl.constexpr):
    """P^T = exp(K Q^T scale - lse), (BLOCK_N, BLOCK_M): the products need P^T, so S^T is computed."""
    s_t = tl.dot(k, tl.trans(q), input_precision=PRECISION)  # FA-2 Alg. 2, line 10
    p_t = tl.exp2((s_t * scale - lse[None, :]) * LOG2E)  # line 11; scaled last: lse is rounded once, S never overflows
    return of_seen(p_t, lse[None, :])


@triton.jit
def of_seen(p, lse):
    """P, but 0 where lse is -inf, for a query that attends to no key, or +inf, for a row past the last query.

    There exp(S - lse) may be NaN: of -inf - -inf, or of 0 times inf where the key is infinite.
    """
    return tl.where(tl.abs(lse) == float("inf"), 0.0, p)


@triton.jit
def accumulate(dk, dv, p_t, q, v, do, delta, PRECISION: tl.constexpr):
    """dV += P^T dO and dK += dS^T Q, (BLOCK_N, BLOCK_D) both."""
    dv = tl.dot(p_t.to(do.dtype), do, dv, input_precision=PRECISION)  # FA-2 Alg. 2, line 12
    dp_t = tl.dot(v, tl.trans(do), input_precision=PRECISION)  # line 13: (BLOCK_N, BLOCK_M)
    ds_t = p_t * (dp_t - delta[None, :])  # line 14
    dk = tl.dot(ds_t.to(q.dtype), q, dk, input_precision=PRECISION)  # line 16
    return dk, dv


@triton.jit(do_not_specialize=["N_q", "N_k", "group"])  # one compilation for all lengths
def attention_dq_kernel(
    # pointers
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr,
    # strides of q, do and dq (B, H_q, N_q, D), of k and v (B, H_kv, N_k, D); lse, delta are contiguous
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_dob, stride_doh, stride_dom, stride_dod,
    stride_dqb, stride_dqh, stride_dqm, stride_dqd,
    # sizes, and the factor on Q K^T
    N_q, N_k, group, scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ for one block of queries: the forward's loops over the keys, with dS K in place of P V."""
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)  # 64 bits in every product with a stride: offsets may pass 2^31
    offs_m = start_m + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_n = tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # (BLOCK_D,)
    k_ptr += batch * stride_kb + head // group * stride_kh
    v_ptr += batch * stride_vb + head // group * stride_vh
    # the blocks of keys to visit, as in the forward pass
    seen = N_k
    end = N_k
    if CAUSAL:
        seen = tl.minimum(tl.maximum(start_m + 1 + N_k - N_q, 0), N_k)
        end = tl.minimum(tl.maximum(start_m + BLOCK_M + N_k - N_q, 0), N_k)
    full_end = seen // BLOCK_N * BLOCK_N

    row_base = (batch * tl.num_programs(1) + head) * N_q
    q, do, lse, delta = load_queries(
        q_ptr + batch * stride_qb + head * stride_qh, do_ptr + batch * stride_dob + head * stride_doh,
        lse_ptr + row_base, delta_ptr + row_base, offs_m, offs_d, tl.where(end > 0, N_q, 0), HEAD_DIM,
        stride_qm, stride_qd, stride_dom, stride_dod)  # fmt: skip
    dq = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)

    for start_n in range(0, full_end, BLOCK_N):
        k, v = load_keys(k_ptr, v_ptr, start_n + offs_n, offs_d, N_k, HEAD_DIM,
                         stride_kn, stride_kd, stride_vn, stride_vd)  # fmt: skip
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # FA-2 Alg. 2, line 10: (BLOCK_M, BLOCK_N)
        p = of_seen(tl.exp2((s * scale - lse[:, None]) * LOG2E), lse[:, None])  # line 11
        dq = accumulate_dq(dq, p, k, v, do, delta, PRECISION)

    for start_n in range(full_end, end, BLOCK_N):  # the diagonal, and keys past the end
        cols = start_n + offs_n
        k, v = load_keys(k_ptr, v_ptr, cols, offs_d, N_k, HEAD_DIM,
                         stride_kn, stride_kd, stride_vn, stride_vd)  # fmt: skip
        visible = (cols < N_k)[None, :]  # (1, BLOCK_N)
        if CAUSAL:
            visible = visible & (cols[None, :] <= offs_m[:, None] + N_k - N_q)  # (BLOCK_M, BLOCK_N)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        p = of_seen(tl.exp2((s * scale - lse[:, None]) * LOG2E), lse[:, None])
        p = tl.where(visible, p, 0.0)
        dq = accumulate_dq(dq, p, k, v, do, delta, PRECISION)

    dq_ptr += batch * stride_dqb + head * stride_dqh
    dq_ptrs = dq_ptr + offs_m[:, None].to(tl.int64) * stride_dqm + offs_d[None, :] * stride_dqd
    dq_mask = (offs_m < N_q)[:, None] & (offs_d < HEAD_DIM)[None, :]
    tl.store(dq_ptrs, (dq * scale).to(dq_ptr.dtype.element_ty), mask=dq_mask)


@triton.jit
def load_keys(
    k_ptr, v_ptr, cols, offs_d, N_k, HEAD_DIM: tl.constexpr, stride_kn, stride_kd, stride_vn, stride_vd
):  # fmt: skip
    """K_j and V_j, (BLOCK_N, BLOCK_D) both, zeros past the edges."""
    mask = (cols < N_k)[:, None] & (offs_d < HEAD_DIM)[None, :]
    wide = cols[:, None].to(tl.int64)
    k = tl.load(k_ptr + wide * stride_kn + offs_d[None, :] * stride_kd, mask=mask, other=0.0)
    v = tl.load(v_ptr + wide * stride_vn + offs_d[None, :] * stride_vd, mask=mask, other=0.0)
    return k, v


@triton.jit
def accumulate_dq(dq, p, k, v, do, delta, PRECISION: tl.constexpr):
    """dQ += dS K, (BLOCK_M, BLOCK_D)."""
    dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)  # FA-2 Alg. 2, line 13: (BLOCK_M, BLOCK_N)
    ds = p * (dp - delta[:, None])  # line 14
    return tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)  # line 15


def backward_launch(D: int, itemsize: int) -> Launch:
    """A launch that fits the 99 KB of shared memory of small GPUs, for any D up to 256."""
    if itemsize == 4:
        return Launch(32, 32, num_stages=1) if D <= 64 else Launch(16, 16, num_stages=1)
    return Launch(64, 64) if D <= 64 else Launch(32, 64) if D <= 128 else Launch(32, 32, num_stages=1)


def attention_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *, causal: bool = False,
    scale: float | None = None, dlse: Tensor | None = None, launch: Launch | None = None,
    allow_tf32: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK and dV from dO and the inputs and outputs of `attention_forward`; S, P, dS and dP stay on chip.

    do and o have the shape of q, (B, H_q, N_q, D), and its dtype; lse is (B, H_q, N_q) in float32; any strides.
    `dlse`, float32 with the shape of lse, is the gradient with respect to lse, if lse is used: d lse_i / d S_ij = P_ij,
    so it only shifts delta. Extra memory: delta, one float32 per query. Source: FA-2 Alg. 2, in two passes.
    """
    size = check_backward(do, q, k, v, o, lse, dlse)
    check_bool(causal, "causal")
    check_bool(allow_tf32, "allow_tf32")
    scale = resolve_scale(scale, size.D)
    launch = backward_launch(size.D, q.element_size()) if launch is None else check_launch(launch, Launch)
    lse = lse.contiguous()
    delta = attention_delta(o, do)
    if dlse is not None:
        delta = delta - dlse
    shared = dict(HEAD_DIM=size.D, BLOCK_M=launch.block_m, BLOCK_N=launch.block_n,
                  BLOCK_D=padded(size.D), CAUSAL=causal, PRECISION="tf32" if allow_tf32 else "ieee",
                  num_warps=launch.num_warps, num_stages=launch.num_stages)  # fmt: skip
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if dk.numel():
        grid = check_grid((triton.cdiv(size.N_k, launch.block_n), size.H_kv, size.B))
        attention_dkdv_kernel[grid](
            q, k, v, do, lse, delta, dk, dv, *q.stride(), *k.stride(), *v.stride(), *do.stride(),
            *dk.stride(), *dv.stride(), size.N_q, size.N_k, size.group, scale, **shared,
        )  # fmt: skip
    if dq.numel():
        grid = check_grid((triton.cdiv(size.N_q, launch.block_m), size.H_q, size.B))
        attention_dq_kernel[grid](
            q, k, v, do, lse, delta, dq, *q.stride(), *k.stride(), *v.stride(), *do.stride(), *dq.stride(),
            size.N_q, size.N_k, size.group, scale, **shared,
        )  # fmt: skip
    return dq, dk, dv


def attention_delta(o: Tensor, do: Tensor, *, block_m: int = 64) -> Tensor:
    """delta = rowsum(dO o O), (B, H_q, N_q) in float32. HBM: O and dO read once, delta written once."""
    B, H, N, D = o.shape
    delta = torch.empty((B, H, N), dtype=torch.float32, device=o.device)
    if delta.numel():
        grid = check_grid((triton.cdiv(N, block_m), H, B))
        delta_kernel[grid](o, do, delta, *o.stride(), *do.stride(), N,
                           HEAD_DIM=D, BLOCK_M=block_m, BLOCK_D=padded(D))  # fmt: skip
    return delta
