"""FlashAttention-2's forward pass, the teaching kernel: a program has a block of queries and loops over all keys.

What is new compared with matmul: two products with the online softmax of one_pass_attention between them. S and P stay
on chip. What is new compared with tiled_attention_v2: the outer loop over Q blocks is the launch grid.

Source: T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 1, cited below as FA-2 Alg. 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.inputs import check_bool, check_qkv
from flashlearn.core.target import check_grid, check_head_dim, check_launch, check_runnable, padded, resolve_scale

LOG2_E = math.log2(math.e)  # for launchers
LOG2E = tl.constexpr(LOG2_E)  # the same for kernels, which import it from here
LN_2 = tl.constexpr(math.log(2))


@triton.jit(do_not_specialize=["N_q", "N_k", "group"])  # one compilation for all lengths
def attention_forward_kernel(
    # pointers
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    # strides of q and o (B, H_q, N_q, D), of k and v (B, H_kv, N_k, D); lse (B, H_q, N_q) is contiguous
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od,
    # sizes, and the factor on Q K^T
    N_q, N_k, group, scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O = softmax(Q K^T scale) V and lse for one block of queries of one head of one sequence."""
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)  # 64 bits in every product with a stride: offsets may pass 2^31
    q_ptr += batch * stride_qb + head.to(tl.int64) * stride_qh
    kv_head = (head // group).to(tl.int64)  # a group of query heads shares a key head
    k_ptr += batch * stride_kb + kv_head * stride_kh
    v_ptr += batch * stride_vb + kv_head * stride_vh
    o_ptr += batch * stride_ob + head.to(tl.int64) * stride_oh
    lse_ptr += (batch * tl.num_programs(1) + head) * N_q

    offs_m = start_m + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_n = tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # (BLOCK_D,)
    d_mask = offs_d < HEAD_DIM  # tl.dot wants powers of two: columns past D hold zeros and add nothing
    rows = offs_m[:, None].to(tl.int64)
    q_mask = (offs_m < N_q)[:, None] & d_mask[None, :]

    # Query i attends to keys 0 .. i + N_k - N_q when causal, all keys otherwise: `seen` by the first query of this
    # block, `end` by any. Blocks before full_end need no mask; blocks from end on are never visited.
    seen = N_k
    end = N_k
    if CAUSAL:
        seen = tl.minimum(tl.maximum(start_m + 1 + N_k - N_q, 0), N_k)
        end = tl.minimum(tl.maximum(start_m + BLOCK_M + N_k - N_q, 0), N_k)
    full_end = seen // BLOCK_N * BLOCK_N

    # FA-2 Alg. 1, line 4: load Q_i (BLOCK_M, BLOCK_D), unless no key meets it
    q_ptrs = q_ptr + rows * stride_qm + offs_d[None, :] * stride_qd
    rows_read = tl.where(end > 0, N_q, 0)
    q = tl.load(q_ptrs, mask=(offs_m < rows_read)[:, None] & d_mask[None, :], other=0.0)

    # FA-2 Alg. 1, line 5
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)

    for start_n in range(0, full_end, BLOCK_N):
        # FA-2 Alg. 1, line 7: load K_j, V_j, here K_j as its transpose
        cols = (start_n + offs_n).to(tl.int64)
        k = tl.load(k_ptr + cols[None, :] * stride_kn + offs_d[:, None] * stride_kd,
                    mask=d_mask[:, None], other=0.0)  # (BLOCK_D, BLOCK_N)  # fmt: skip
        v = tl.load(v_ptr + cols[:, None] * stride_vn + offs_d[None, :] * stride_vd,
                    mask=d_mask[None, :], other=0.0)  # (BLOCK_N, BLOCK_D)  # fmt: skip
        s = tl.dot(q, k, input_precision=PRECISION) * scale  # line 8: (BLOCK_M, BLOCK_N)
        m_i, l_i, acc = online_softmax_update(m_i, l_i, acc, s, v, PRECISION)

    for start_n in range(full_end, end, BLOCK_N):  # the diagonal, and keys past the end
        cols = (start_n + offs_n).to(tl.int64)
        n_mask = cols < N_k
        k = tl.load(k_ptr + cols[None, :] * stride_kn + offs_d[:, None] * stride_kd,
                    mask=d_mask[:, None] & n_mask[None, :], other=0.0)  # fmt: skip
        v = tl.load(v_ptr + cols[:, None] * stride_vn + offs_d[None, :] * stride_vd,
                    mask=n_mask[:, None] & d_mask[None, :], other=0.0)  # fmt: skip
        s = tl.dot(q, k, input_precision=PRECISION) * scale
        visible = n_mask[None, :]  # (1, BLOCK_N)
        if CAUSAL:
            # (BLOCK_M, BLOCK_N)
            visible = visible & (start_n + offs_n[None, :] <= offs_m[:, None] + N_k - N_q)
        s = tl.where(visible, s, float("-inf"))  # before the maximum: a hidden score must not raise it
        m_i, l_i, acc = online_softmax_update(m_i, l_i, acc, s, v, PRECISION)

    # FA-2 Alg. 1, lines 12 to 15: divide once, and save lse. A query that attends to no key has l = 0, m = -inf:
    # dividing by 1 gives o = 0, and lse = -inf + log(1) stays -inf.
    l_i = tl.where(l_i == 0.0, 1.0, l_i)
    o = acc / l_i[:, None]  # (BLOCK_M, BLOCK_D)
    lse = m_i + tl.log2(l_i) * LN_2  # (BLOCK_M,)
    o_ptrs = o_ptr + rows * stride_om + offs_d[None, :] * stride_od
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=q_mask)
    tl.store(lse_ptr + offs_m, lse, mask=offs_m < N_q)


@triton.jit
def online_softmax_update(m_i, l_i, acc, s, v, PRECISION: tl.constexpr):
    """Online softmax: take scores s (BLOCK_M, BLOCK_N), values v (BLOCK_N, BLOCK_D) into (m, l, acc)."""
    m_new = tl.maximum(m_i, tl.max(s, 1))  # FA-2 Alg. 1, line 9: (BLOCK_M,)
    # a query that has attended to no key has m = -inf, and -inf - -inf would be NaN: subtract 0 there
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    # exp(x) is exp2(x log2(e)); the factor goes to the difference, since scores may be as large as float32 goes
    p = tl.exp2((s - m_safe[:, None]) * LOG2E)  # (BLOCK_M, BLOCK_N)
    alpha = tl.exp2((m_i - m_safe) * LOG2E)  # (BLOCK_M,), 0 on the first block
    l_i = l_i * alpha + tl.sum(p, 1)
    # FA-2 Alg. 1, line 10: diag(alpha) acc + P V
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)
    return m_new, l_i, acc


class Launch(NamedTuple):
    """Block sizes, and the compiler's options: warps per program, stages of software pipelining."""

    block_m: int
    block_n: int
    num_warps: int = 4
    num_stages: int = 2


def forward_launch(D: int, itemsize: int) -> Launch:
    """A launch that fits the 99 KB of shared memory of small GPUs, for any D up to 256."""
    if itemsize == 4:
        return Launch(64, 32) if D <= 64 else Launch(32, 32) if D <= 128 else Launch(32, 16)
    return Launch(128, 64) if D <= 64 else Launch(64, 64) if D <= 128 else Launch(64, 32)


def attention_forward(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None,
    launch: Launch | None = None, allow_tf32: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """O = softmax(Q K^T scale) V and lse = log(sum(exp(Q K^T scale))), without S or P in HBM.

    q (B, H_q, N_q, D); k, v (B, H_kv, N_k, D), any strides, D up to 256, H_q a multiple of H_kv.
    Returns o, shaped as q, and lse (B, H_q, N_q) in float32. A query that attends to no key gets o = 0, lse = -inf.
    HBM: Q, O and lse once; a K and V block for every Q block that may attend to it. Source: FA-2 Alg. 1.
    """
    check_runnable(q=q, k=k, v=v)
    size = check_qkv(q, k, v)
    check_head_dim(size.D)
    check_bool(causal, "causal")
    check_bool(allow_tf32, "allow_tf32")
    scale = resolve_scale(scale, size.D)
    launch = forward_launch(size.D, q.element_size()) if launch is None else check_launch(launch, Launch)
    o = torch.empty_like(q)
    lse = torch.empty((size.B, size.H_q, size.N_q), dtype=torch.float32, device=q.device)
    if lse.numel():
        grid = check_grid((triton.cdiv(size.N_q, launch.block_m), size.H_q, size.B))
        attention_forward_kernel[grid](
            q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), *o.stride(),
            size.N_q, size.N_k, size.group, scale, HEAD_DIM=size.D,
            BLOCK_M=launch.block_m, BLOCK_N=launch.block_n, BLOCK_D=padded(size.D),
            CAUSAL=causal, PRECISION="tf32" if allow_tf32 else "ieee",
            num_warps=launch.num_warps, num_stages=launch.num_stages,
        )  # fmt: skip
    return o, lse
