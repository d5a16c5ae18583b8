"""FlashAttention's forward pass in five versions: one kernel that fits on a screen, and four changes to it.

    contiguous_kernel   one head, all lengths multiples of the blocks
    strided_kernel      batch entries and heads, in any layout
    ragged_kernel       any number of queries, of keys, of columns
    causal_kernel       the mask, blocks that no query attends to left out, queries without keys
    grouped_kernel      query heads that share a key head: the results of `attention_forward`

`attend(kernel, q, k, v)` launches any of them with the parameters that it has, by name, and rejects inputs that need
others. `changes(before, after)` is the difference of two sources. The numbers of lines are those of FlashAttention-2,
Algorithm 1 (T. Dao, 2023).
"""

from __future__ import annotations

import difflib
import inspect
import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.inputs import Sizes, check_bool, check_qkv
from flashlearn.core.target import (
    check_grid,
    check_head_dim,
    check_power_of_two,
    check_runnable,
    padded,
    watched,
)
from flashlearn.kernels.forward import LN_2, LOG2_E

assert LN_2  # a kernel takes its constants from its module


@triton.jit
def contiguous_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, N, qk_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # line 3: the queries of this program
    cols = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + cols[None, :])  # line 4: (BLOCK_M, D)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)  # line 5
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for start_n in range(0, N, BLOCK_N):  # line 6
        keys = start_n + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + keys[:, None] * D + cols[None, :])  # line 7: (BLOCK_N, D)
        v = tl.load(v_ptr + keys[:, None] * D + cols[None, :])
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale  # line 8: (BLOCK_M, BLOCK_N)
        m_new = tl.maximum(m_i, tl.max(s, 1))  # line 9: (BLOCK_M,)
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)  # 0 on the first block
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")  # line 10
        m_i = m_new
    o = acc / l_i[:, None]  # line 12
    lse = (m_i + tl.log2(l_i)) * LN_2  # line 13
    tl.store(o_ptr + rows[:, None] * D + cols[None, :], o.to(o_ptr.dtype.element_ty))  # line 14
    tl.store(lse_ptr + rows, lse)  # line 15


@triton.jit
def strided_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, q_strides, k_strides, v_strides, o_strides, N, qk_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # line 3: the queries of this program
    cols = tl.arange(0, D)
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    q_ptr += batch * q_strides[0] + head * q_strides[1]
    k_ptr += batch * k_strides[0] + head * k_strides[1]
    v_ptr += batch * v_strides[0] + head * v_strides[1]
    o_ptr += batch * o_strides[0] + head * o_strides[1]
    lse_ptr += (batch * tl.num_programs(1) + head) * N
    q = tl.load(q_ptr + rows[:, None] * q_strides[2] + cols[None, :] * q_strides[3])  # line 4: (BLOCK_M, D)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)  # line 5
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for start_n in range(0, N, BLOCK_N):  # line 6
        keys = start_n + tl.arange(0, BLOCK_N).to(tl.int64)
        k = tl.load(k_ptr + keys[:, None] * k_strides[2] + cols[None, :] * k_strides[3])  # line 7: (BLOCK_N, D)
        v = tl.load(v_ptr + keys[:, None] * v_strides[2] + cols[None, :] * v_strides[3])
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale  # line 8: (BLOCK_M, BLOCK_N)
        m_new = tl.maximum(m_i, tl.max(s, 1))  # line 9: (BLOCK_M,)
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)  # 0 on the first block
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")  # line 10
        m_i = m_new
    o = acc / l_i[:, None]  # line 12
    lse = (m_i + tl.log2(l_i)) * LN_2  # line 13
    o_ptrs = o_ptr + rows[:, None] * o_strides[2] + cols[None, :] * o_strides[3]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty))  # line 14
    tl.store(lse_ptr + rows, lse)  # line 15


@triton.jit
def ragged_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, q_strides, k_strides, v_strides, o_strides, N_q, N_k, qk_scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # line 3: the queries of this program
    cols = tl.arange(0, BLOCK_D)
    q_mask = (rows < N_q)[:, None] & (cols < D)[None, :]
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    q_ptr += batch * q_strides[0] + head * q_strides[1]
    k_ptr += batch * k_strides[0] + head * k_strides[1]
    v_ptr += batch * v_strides[0] + head * v_strides[1]
    o_ptr += batch * o_strides[0] + head * o_strides[1]
    lse_ptr += (batch * tl.num_programs(1) + head) * N_q
    q_ptrs = q_ptr + rows[:, None] * q_strides[2] + cols[None, :] * q_strides[3]
    q = tl.load(q_ptrs, mask=q_mask, other=0.0)  # line 4: (BLOCK_M, BLOCK_D)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)  # line 5
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    for start_n in range(0, N_k, BLOCK_N):  # line 6
        keys = start_n + tl.arange(0, BLOCK_N).to(tl.int64)
        k_mask = (keys < N_k)[:, None] & (cols < D)[None, :]
        k_ptrs = k_ptr + keys[:, None] * k_strides[2] + cols[None, :] * k_strides[3]
        k = tl.load(k_ptrs, mask=k_mask, other=0.0)  # line 7: (BLOCK_N, BLOCK_D)
        v_ptrs = v_ptr + keys[:, None] * v_strides[2] + cols[None, :] * v_strides[3]
        v = tl.load(v_ptrs, mask=k_mask, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale  # line 8: (BLOCK_M, BLOCK_N)
        s = tl.where((keys < N_k)[None, :], s, float("-inf"))  # before the maximum
        m_new = tl.maximum(m_i, tl.max(s, 1))  # line 9: (BLOCK_M,)
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)  # 0 on the first block
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")  # line 10
        m_i = m_new
    o = acc / l_i[:, None]  # line 12
    lse = (m_i + tl.log2(l_i)) * LN_2  # line 13
    o_ptrs = o_ptr + rows[:, None] * o_strides[2] + cols[None, :] * o_strides[3]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=q_mask)  # line 14
    tl.store(lse_ptr + rows, lse, mask=rows < N_q)  # line 15


@triton.jit
def causal_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, q_strides, k_strides, v_strides, o_strides, N_q, N_k, qk_scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # line 3: the queries of this program
    cols = tl.arange(0, BLOCK_D)
    q_mask = (rows < N_q)[:, None] & (cols < D)[None, :]
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    q_ptr += batch * q_strides[0] + head * q_strides[1]
    k_ptr += batch * k_strides[0] + head * k_strides[1]
    v_ptr += batch * v_strides[0] + head * v_strides[1]
    o_ptr += batch * o_strides[0] + head * o_strides[1]
    lse_ptr += (batch * tl.num_programs(1) + head) * N_q
    q_ptrs = q_ptr + rows[:, None] * q_strides[2] + cols[None, :] * q_strides[3]
    q = tl.load(q_ptrs, mask=q_mask, other=0.0)  # line 4: (BLOCK_M, BLOCK_D)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)  # line 5
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    end = N_k
    if CAUSAL:  # no query of this block sees more than its last one
        end = tl.minimum(tl.maximum(tl.program_id(0) * BLOCK_M + BLOCK_M + N_k - N_q, 0), N_k)
    for start_n in range(0, end, BLOCK_N):  # line 6
        keys = start_n + tl.arange(0, BLOCK_N).to(tl.int64)
        k_mask = (keys < N_k)[:, None] & (cols < D)[None, :]
        k_ptrs = k_ptr + keys[:, None] * k_strides[2] + cols[None, :] * k_strides[3]
        k = tl.load(k_ptrs, mask=k_mask, other=0.0)  # line 7: (BLOCK_N, BLOCK_D)
        v_ptrs = v_ptr + keys[:, None] * v_strides[2] + cols[None, :] * v_strides[3]
        v = tl.load(v_ptrs, mask=k_mask, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale  # line 8: (BLOCK_M, BLOCK_N)
        visible = (keys < N_k)[None, :]
        if CAUSAL:  # query i sees the keys j <= i + N_k - N_q
            visible = visible & (keys[None, :] <= rows[:, None] + N_k - N_q)
        s = tl.where(visible, s, float("-inf"))  # before the maximum
        m_new = tl.maximum(m_i, tl.max(s, 1))  # line 9: (BLOCK_M,)
        base = tl.where(m_new == float("-inf"), 0.0, m_new)  # -inf - -inf would be NaN
        p = tl.exp2(s - base[:, None])
        alpha = tl.exp2(m_i - base)  # 0 on the first block
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")  # line 10
        m_i = m_new
    l_i = tl.where(l_i == 0.0, 1.0, l_i)  # a query that attends to no key: o = 0, lse = -inf
    o = acc / l_i[:, None]  # line 12
    lse = (m_i + tl.log2(l_i)) * LN_2  # line 13
    o_ptrs = o_ptr + rows[:, None] * o_strides[2] + cols[None, :] * o_strides[3]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=q_mask)  # line 14
    tl.store(lse_ptr + rows, lse, mask=rows < N_q)  # line 15


@triton.jit
def grouped_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, q_strides, k_strides, v_strides, o_strides, N_q, N_k, group, qk_scale,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # line 3: the queries of this program
    cols = tl.arange(0, BLOCK_D)
    q_mask = (rows < N_q)[:, None] & (cols < D)[None, :]
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    q_ptr += batch * q_strides[0] + head * q_strides[1]
    k_ptr += batch * k_strides[0] + head // group * k_strides[1]
    v_ptr += batch * v_strides[0] + head // group * v_strides[1]
    o_ptr += batch * o_strides[0] + head * o_strides[1]
    lse_ptr += (batch * tl.num_programs(1) + head) * N_q
    q_ptrs = q_ptr + rows[:, None] * q_strides[2] + cols[None, :] * q_strides[3]
    q = tl.load(q_ptrs, mask=q_mask, other=0.0)  # line 4: (BLOCK_M, BLOCK_D)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)  # line 5
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    end = N_k
    if CAUSAL:  # no query of this block sees more than its last one
        end = tl.minimum(tl.maximum(tl.program_id(0) * BLOCK_M + BLOCK_M + N_k - N_q, 0), N_k)
    for start_n in range(0, end, BLOCK_N):  # line 6
        keys = start_n + tl.arange(0, BLOCK_N).to(tl.int64)
        k_mask = (keys < N_k)[:, None] & (cols < D)[None, :]
        k_ptrs = k_ptr + keys[:, None] * k_strides[2] + cols[None, :] * k_strides[3]
        k = tl.load(k_ptrs, mask=k_mask, other=0.0)  # line 7: (BLOCK_N, BLOCK_D)
        v_ptrs = v_ptr + keys[:, None] * v_strides[2] + cols[None, :] * v_strides[3]
        v = tl.load(v_ptrs, mask=k_mask, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale  # line 8: (BLOCK_M, BLOCK_N)
        visible = (keys < N_k)[None, :]
        if CAUSAL:  # query i sees the keys j <= i + N_k - N_q
            visible = visible & (keys[None, :] <= rows[:, None] + N_k - N_q)
        s = tl.where(visible, s, float("-inf"))  # before the maximum
        m_new = tl.maximum(m_i, tl.max(s, 1))  # line 9: (BLOCK_M,)
        base = tl.where(m_new == float("-inf"), 0.0, m_new)  # -inf - -inf would be NaN
        p = tl.exp2(s - base[:, None])
        alpha = tl.exp2(m_i - base)  # 0 on the first block
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")  # line 10
        m_i = m_new
    l_i = tl.where(l_i == 0.0, 1.0, l_i)  # a query that attends to no key: o = 0, lse = -inf
    o = acc / l_i[:, None]  # line 12
    lse = (m_i + tl.log2(l_i)) * LN_2  # line 13
    o_ptrs = o_ptr + rows[:, None] * o_strides[2] + cols[None, :] * o_strides[3]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=q_mask)  # line 14
    tl.store(lse_ptr + rows, lse, mask=rows < N_q)  # line 15


def attend(
    kernel: Any, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, block_m: int = 16, block_n: int = 16
) -> tuple[Tensor, Tensor]:
    """Launch one of these kernels on q (B, H_q, N_q, D), k and v (B, H_kv, N_k, D): o, shaped as q, and lse (B, H_q, N_q).

    ValueError for inputs that this kernel cannot handle. Under `kernel_steps` it runs nevertheless, to show where it
    goes wrong.
    """
    check_runnable(q=q, k=k, v=v)
    check_power_of_two(16, block_m=block_m, block_n=block_n)
    check_bool(causal, "causal")
    size = check_qkv(q, k, v)
    check_head_dim(size.D)
    if not watched():
        check_version(kernel, size, causal, (block_m, block_n), all(t.is_contiguous() for t in (q, k, v)))
    B, H_q, _, N_q, N_k, D = size
    o, lse = torch.empty_like(q), torch.empty(B, H_q, N_q, device=q.device)
    given = {
        **{"q_ptr": q, "k_ptr": k, "v_ptr": v, "o_ptr": o, "lse_ptr": lse},
        **{"q_strides": q.stride(), "k_strides": k.stride(), "v_strides": v.stride(), "o_strides": o.stride()},
        **{"N": N_q, "N_q": N_q, "N_k": N_k, "qk_scale": LOG2_E / math.sqrt(D), "group": size.group},
        **{"D": D, "BLOCK_D": padded(D), "BLOCK_M": block_m, "BLOCK_N": block_n, "CAUSAL": causal},
    }
    grid = check_grid((triton.cdiv(N_q, block_m), H_q, B))
    kernel[grid](**{name: given[name] for name in kernel.arg_names})
    return o, lse


def check_version(kernel: Any, size: Sizes, causal: bool, blocks: tuple[int, int], contiguous: bool) -> None:
    """Reject inputs for which a kernel has no parameter."""
    B, H_q, H_kv, N_q, N_k, D = size
    whole = N_q == N_k and not any(N_q % block for block in blocks)
    for parameter, possible, expected, got in (
        ("q_strides", contiguous and B * H_q <= 1, "contiguous q, k and v of one head", f"B = {B} and {H_q} heads"),
        ("N_k", whole, f"N_q = N_k, a multiple of {blocks[0]} and {blocks[1]},", f"{N_q} and {N_k}"),
        ("BLOCK_D", D >= 16 and not D & (D - 1), "D to be a power of two of at least 16", D),
        ("CAUSAL", not causal, "causal to be False", causal),
        ("CAUSAL", N_k > 0, "at least one key", N_k),
        ("group", H_q == H_kv, "as many heads of q as of k and v", f"{H_q} and {H_kv}"),
    ):
        if parameter not in kernel.arg_names and not possible:
            raise ValueError(f"expected {expected} for {kernel.fn.__name__}, got {got}")


def changes(before: Any, after: Any) -> str:
    """The lines that differ between two kernels: - goes, + comes."""
    old, new = (inspect.getsource(kernel.fn).splitlines() for kernel in (before, after))
    lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
    return "\n".join("" if line.startswith("@@") else line for line in lines).strip("\n")
