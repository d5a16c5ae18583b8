"""FlashAttention-2's backward pass for every GPU: the teaching kernels, and what makes them fast in plain Triton.

    dV = P^T dO        dP = dO V^T        dS = P o (dP - delta)        delta = rowsum(dO o O)
    dQ = dS K scale    dK = dS^T Q scale

1. -lse / scale and -delta are computed once for every query, by the kernel that sums up delta. In the dK/dV pass the
   products *start* from them: P^T = exp2((K Q^T - lse / scale) c), dP^T - delta = V dO^T - delta. No register keeps them.
2. Blocks without masks are a loop of their own, as in the portable forward pass; so are offsets, strides and columns.
3. The heads that share a key head are one loop together with their blocks of queries: one pipeline, filled once.
4. A launch for each GPU and each pass, and at most 168 registers a thread where a third CTA then runs next to two.
5. The masked blocks come first: otherwise the assembler lets every product wait for the one before.
6. Capped or sloped scores are recomputed. Products then start from 0, and -lse is added to the scores.

Every result has one owner, and the same bits in every run.
Source: T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.inputs import check_bool
from flashlearn.core.options import AttentionOptions, plain_options
from flashlearn.core.target import check_backward, check_grid, check_launch, padded, resolve_scale
from flashlearn.fast.launcher import launch as launch_kept
from flashlearn.fast.launcher import uninitialised
from flashlearn.fast.online_softmax import LOG2_E, scored, slope_of
from flashlearn.fast.portable.forward import MIN_SCALE, head_of, launch_portable, load_tile, store_tile, tile_offsets
from flashlearn.fast.portable.launches import DKDV, DQ, PortableLaunch, portable_launch
from flashlearn.fast.portable.masks import (
    Scores,
    check_options,
    end_of_keys,
    is_visible,
    keys_seen,
    keys_seen_by_all,
    named,
    queries_seeing,
    queries_seeing_all,
    start_of_keys,
    tile_coordinates,
    tiles_of,
)


@triton.jit(do_not_specialize=["N_q"])
def attention_rows_portable_kernel(
    # pointers
    o_ptr, do_ptr, lse_ptr, dlse_ptr, shift_ptr, delta_ptr,
    # `Strides` of o and do (B, H_q, N_q, D); the others (B, H_q, N_q) are contiguous
    stride_o, stride_do,
    # sizes, and the factor on Q K^T
    N_q, scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """shift = -lse / scale and -delta = dlse - rowsum(dO o O), for one block of queries."""
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # (BLOCK_D,)
    m_mask = offs_m < N_q
    mask = m_mask[:, None] & (offs_d < HEAD_DIM)[None, :]
    o_ptr += batch * stride_o.b + head * stride_o.h
    do_ptr += batch * stride_do.b + head * stride_do.h
    o = tl.load(o_ptr + offs_m[:, None] * stride_o.n + offs_d[None, :] * stride_o.d, mask=mask, other=0.0)
    do = tl.load(do_ptr + offs_m[:, None] * stride_do.n + offs_d[None, :] * stride_do.d, mask=mask, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)  # (BLOCK_M,)
    rows = (batch * tl.num_programs(1) + head) * N_q + offs_m
    if dlse_ptr is not None:  # d lse_i / d S_ij = P_ij: the gradient that reaches lse only shifts delta
        delta -= tl.load(dlse_ptr + rows, mask=m_mask, other=0.0)
    tl.store(delta_ptr + rows, -delta, mask=m_mask)
    lse = tl.load(lse_ptr + rows, mask=m_mask, other=0.0)
    # a query to which all keys weigh nothing has lse = -inf, and is to have P = exp(S - inf) = 0
    shift = tl.where(lse == float("-inf"), float("-inf") * scale, -lse / scale)
    tl.store(shift_ptr + rows, shift, mask=m_mask)


@triton.jit(do_not_specialize=["N_q", "N_k", "group", "left", "right"])  # one compilation for all lengths
def attention_dkdv_portable_kernel(
    # pointers
    q_ptr, k_ptr, v_ptr, do_ptr, of_rows, dk_ptr, dv_ptr,  # of_rows: `Rows`
    # `Strides` of q and do (B, H_q, N_q, D), of k, v, dk and dv (B, H_kv, N_k, D); what is one number a row is contiguous
    stride_q, stride_k, stride_v, stride_do, stride_dk, stride_dv,
    # sizes; what hides keys and changes scores: `Keys`, the window, `Scores`
    N_q, N_k, group, keys, left, right, scores,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dK and dV for one block of keys of one key head: the loop over the queries that attend to it."""
    start_n = tl.program_id(0) * BLOCK_N
    kv_head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    shift_ptr, delta_ptr = of_rows.shift_ptr, of_rows.delta_ptr
    N_rows = N_q
    q_first = None
    k_first = None
    if CAUSAL:
        right = 0
    if keys.tiles_ptr is not None:  # from here on there is this sequence alone
        start_n, k_first, N_k, q_first, N_q = tile_coordinates(keys.tiles_ptr, tl.program_id(0))
        shift_ptr += q_first
        delta_ptr += q_first
    q_ptr = head_of(q_ptr, stride_q, batch, 0, q_first)
    do_ptr = head_of(do_ptr, stride_do, batch, 0, q_first)
    k_ptr = head_of(k_ptr, stride_k, batch, kv_head, k_first)
    v_ptr = head_of(v_ptr, stride_v, batch, kv_head, k_first)
    diagonal = N_k - N_q
    end_key = end_of_keys(keys, batch, k_first, N_k)
    first_key = start_of_keys(keys, batch, k_first, end_key)

    q_offs = tile_offsets(stride_q, BLOCK_M, BLOCK_D, WIDE)
    do_offs = tile_offsets(stride_do, BLOCK_M, BLOCK_D, WIDE)
    k_offs = tile_offsets(stride_k, BLOCK_N, BLOCK_D, WIDE)
    v_offs = tile_offsets(stride_v, BLOCK_N, BLOCK_D, WIDE)
    k = load_tile(k_ptr, start_n, end_key, stride_k, k_offs, BLOCK_N, HEAD_DIM, BLOCK_D, True, first_key)
    v = load_tile(v_ptr, start_n, end_key, stride_v, v_offs, BLOCK_N, HEAD_DIM, BLOCK_D, True, first_key)
    dk = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)
    cols = start_n + tl.arange(0, BLOCK_N)

    # Masks are wanted on the diagonal, blocks first .. full, and from `tail` on: at the end of the window, and on the
    # last block if it is not whole. Keys that do not exist want none: whatever P^T and dS^T hold in their rows stays
    # in rows of dK and dV that are not stored, or stored as 0.
    first, stop = queries_seeing(start_n, N_q, diagonal, first_key, end_key, left, right, BLOCK_M, BLOCK_N)
    full, full_stop = queries_seeing_all(start_n, first, stop, diagonal, left, right, BLOCK_M, BLOCK_N)
    on_diagonal = tl.maximum(tl.minimum(full, full_stop) - first, 0) // BLOCK_M
    tail = tl.maximum(full_stop, first)
    masked = on_diagonal + tl.cdiv(tl.maximum(stop - tail, 0), BLOCK_M)

    # every query head that shares this key head adds to the same dK, dV
    q_head = kv_head * group
    i = N_q * 0
    for _ in range(0, group * masked):
        at_end = tail
        if left is not None:  # more than one block
            at_end += (i - on_diagonal) * BLOCK_M
        start_m = tl.where(i < on_diagonal, first + i * BLOCK_M, at_end)
        rows = start_m + tl.arange(0, BLOCK_M)
        row_base = (batch * tl.num_programs(1) * group + q_head) * N_rows
        q = load_tile(q_ptr + q_head * stride_q.h, start_m, N_q, stride_q, q_offs, BLOCK_M, HEAD_DIM, BLOCK_D, True)
        do_head = do_ptr + q_head * stride_do.h
        do = load_tile(do_head, start_m, N_q, stride_do, do_offs, BLOCK_M, HEAD_DIM, BLOCK_D, True)
        shift = tl.load(shift_ptr + row_base + rows, mask=rows < N_q, other=0.0)
        delta = tl.load(delta_ptr + row_base + rows, mask=rows < N_q, other=0.0)
        visible = is_visible(rows[None, :], cols[:, None], diagonal, None, end_key, left, right)
        slope = slope_of(scores.alibi_ptr, q_head)
        dk, dv = accumulate(
            dk, dv, q, k, v, do, shift, delta, visible & (rows < N_q)[None, :], rows, cols, diagonal, slope,
            scores, BLOCK_D > 128, True, PRECISION,
        )  # fmt: skip
        i += 1
        q_head += (i == masked).to(tl.int64)
        i = tl.where(i == masked, 0, i)

    q_head = kv_head * group
    start_m = full
    for _ in range(0, group * (tl.maximum(full_stop - full, 0) // BLOCK_M)):
        rows = start_m + tl.arange(0, BLOCK_M)
        row_base = (batch * tl.num_programs(1) * group + q_head) * N_rows
        q = load_tile(q_ptr + q_head * stride_q.h, start_m, N_q, stride_q, q_offs, BLOCK_M, HEAD_DIM, BLOCK_D, False)
        do_head = do_ptr + q_head * stride_do.h
        do = load_tile(do_head, start_m, N_q, stride_do, do_offs, BLOCK_M, HEAD_DIM, BLOCK_D, False)
        shift = tl.load(shift_ptr + row_base + rows)
        delta = tl.load(delta_ptr + row_base + rows)
        slope = slope_of(scores.alibi_ptr, q_head)
        dk, dv = accumulate(
            dk, dv, q, k, v, do, shift, delta, True, rows, cols, diagonal, slope,
            scores, BLOCK_D > 128, False, PRECISION,
        )  # fmt: skip
        start_m += BLOCK_M
        q_head += (start_m == full_stop).to(tl.int64)
        start_m = tl.where(start_m == full_stop, full, start_m)

    if first_key is not None:
        there = ((cols >= first_key) & (cols < end_key))[:, None]
        dk, dv = tl.where(there, dk, 0.0), tl.where(there, dv, 0.0)
    dk_ptr = head_of(dk_ptr, stride_dk, batch, kv_head, k_first)
    dv_ptr = head_of(dv_ptr, stride_dv, batch, kv_head, k_first)
    dk_offs = tile_offsets(stride_dk, BLOCK_N, BLOCK_D, WIDE)
    dv_offs = tile_offsets(stride_dv, BLOCK_N, BLOCK_D, WIDE)
    store_tile(dk_ptr, start_n, N_k, stride_dk, dk_offs, dk * scores.gradient, BLOCK_N, HEAD_DIM, BLOCK_D)
    store_tile(dv_ptr, start_n, N_k, stride_dv, dv_offs, dv, BLOCK_N, HEAD_DIM, BLOCK_D)


@triton.jit
def accumulate(
    dk, dv, q, k, v, do, shift, delta, visible, rows, cols, diagonal, slope, scores,
    AHEAD: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dV += P^T dO and dK += dS^T Q, (BLOCK_N, BLOCK_D) both, for one block of queries; delta is negative.

    AHEAD: dP^T is multiplied out while exponentials are taken.
    """
    start = tl.broadcast_to(shift[None, :], (k.shape[0], q.shape[0]))
    if scores.scale is None:
        s_t = tl.dot(k, tl.trans(q), start, input_precision=PRECISION)  # (BLOCK_N, BLOCK_M)
    else:
        s_t = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        s_t, damp = scored(s_t, rows[None, :], cols[:, None], diagonal, scores.scale, scores.softcap, slope)
        s_t += start
    start = tl.broadcast_to(delta[None, :], (v.shape[0], do.shape[0]))
    if AHEAD:
        dp_t = tl.dot(v, tl.trans(do), start, input_precision=PRECISION)
    p_t = tl.exp2(s_t * scores.qk_scale)  # exp(scores^T - lse)
    if MASKED:  # after the exponential is soon enough: nothing here takes a maximum over hidden scores
        p_t = tl.where(visible, p_t, 0.0)
    dv = tl.dot(p_t.to(do.dtype), do, dv, input_precision=PRECISION)
    if not AHEAD:
        dp_t = tl.dot(v, tl.trans(do), start, input_precision=PRECISION)
    ds_t = p_t * dp_t
    if scores.softcap is not None:
        ds_t = ds_t * damp
    dk = tl.dot(ds_t.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["N_q", "N_k", "group", "left", "right"])  # one compilation for all lengths
def attention_dq_portable_kernel(
    # pointers
    q_ptr, k_ptr, v_ptr, do_ptr, of_rows, dq_ptr, dslope_ptr,  # of_rows: `Rows`
    # `Strides` of q, do and dq (B, H_q, N_q, D), of k and v (B, H_kv, N_k, D); what is one number a row is contiguous
    stride_q, stride_k, stride_v, stride_do, stride_dq,
    # sizes; what hides keys and changes scores: `Keys`, the window, `Scores`
    N_q, N_k, group, keys, left, right, scores,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ for one block of queries: the forward's loops over the keys, with dS K in place of P V.

    dslope_ptr: and what each query adds to the gradient of its head's slope.
    """
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block  # the longest first
        right = 0
    start_m = block * BLOCK_M
    head = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    kv_head = head // group
    shift_ptr, delta_ptr = of_rows.shift_ptr, of_rows.delta_ptr
    row_base = (batch * tl.num_programs(1) + head) * N_q
    q_first = None
    k_first = None
    if keys.tiles_ptr is not None:  # from here on there is this sequence alone
        start_m, q_first, N_q, k_first, N_k = tile_coordinates(keys.tiles_ptr, block)
        row_base += q_first
    q_ptr = head_of(q_ptr, stride_q, batch, head, q_first)
    do_ptr = head_of(do_ptr, stride_do, batch, head, q_first)
    dq_ptr = head_of(dq_ptr, stride_dq, batch, head, q_first)
    k_ptr = head_of(k_ptr, stride_k, batch, kv_head, k_first)
    v_ptr = head_of(v_ptr, stride_v, batch, kv_head, k_first)
    diagonal = N_k - N_q
    end_key = end_of_keys(keys, batch, k_first, N_k)
    first_key = start_of_keys(keys, batch, k_first, end_key)
    slope = slope_of(scores.alibi_ptr, head)

    start, end = keys_seen(start_m, diagonal, first_key, end_key, left, right, BLOCK_M, BLOCK_N)
    full, full_end = keys_seen_by_all(start_m, end, diagonal, first_key, end_key, left, right, BLOCK_M, BLOCK_N)
    q_offs = tile_offsets(stride_q, BLOCK_M, BLOCK_D, WIDE)
    do_offs = tile_offsets(stride_do, BLOCK_M, BLOCK_D, WIDE)
    k_offs = tile_offsets(stride_k, BLOCK_N, BLOCK_D, WIDE)
    v_offs = tile_offsets(stride_v, BLOCK_N, BLOCK_D, WIDE)
    rows_read = tl.where(end > 0, N_q, 0)
    q = load_tile(q_ptr, start_m, rows_read, stride_q, q_offs, BLOCK_M, HEAD_DIM, BLOCK_D, True)
    do = load_tile(do_ptr, start_m, rows_read, stride_do, do_offs, BLOCK_M, HEAD_DIM, BLOCK_D, True)
    rows = start_m + tl.arange(0, BLOCK_M)
    shift = tl.load(shift_ptr + row_base + rows, mask=rows < N_q, other=0.0)
    delta = tl.load(delta_ptr + row_base + rows, mask=rows < N_q, other=0.0)
    dq = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    dslope = tl.zeros((BLOCK_M,), dtype=tl.float32)

    for at in range(full_end - (full - start), end, BLOCK_N):  # what not all see: before `full`, and from full_end on
        start_n = at
        if left is not None or first_key is not None:
            start_n = tl.where(at < full_end, at - (full_end - full), at)
        k = load_tile(k_ptr, start_n, end_key, stride_k, k_offs, BLOCK_N, HEAD_DIM, BLOCK_D, True, first_key)
        v = load_tile(v_ptr, start_n, end_key, stride_v, v_offs, BLOCK_N, HEAD_DIM, BLOCK_D, True, first_key)
        cols = start_n + tl.arange(0, BLOCK_N)
        visible = is_visible(rows[:, None], cols[None, :], diagonal, first_key, end_key, left, right)
        dq, dslope = accumulate_dq(
            dq, dslope, q, k, v, do, shift, delta, visible, rows, cols, diagonal, slope,
            scores, dslope_ptr is not None, True, PRECISION,
        )  # fmt: skip

    for start_n in range(full, full_end, BLOCK_N):
        k = load_tile(k_ptr, start_n, N_k, stride_k, k_offs, BLOCK_N, HEAD_DIM, BLOCK_D, False)
        v = load_tile(v_ptr, start_n, N_k, stride_v, v_offs, BLOCK_N, HEAD_DIM, BLOCK_D, False)
        cols = start_n + tl.arange(0, BLOCK_N)
        dq, dslope = accumulate_dq(
            dq, dslope, q, k, v, do, shift, delta, True, rows, cols, diagonal, slope,
            scores, dslope_ptr is not None, False, PRECISION,
        )  # fmt: skip

    dq_offs = tile_offsets(stride_dq, BLOCK_M, BLOCK_D, WIDE)
    store_tile(dq_ptr, start_m, N_q, stride_dq, dq_offs, dq * scores.gradient, BLOCK_M, HEAD_DIM, BLOCK_D)
    if dslope_ptr is not None:
        tl.store(dslope_ptr + row_base + rows, dslope, mask=rows < N_q)


@triton.jit
def accumulate_dq(
    dq, dslope, q, k, v, do, shift, delta, visible, rows, cols, diagonal, slope, scores,
    SLOPES: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ += dS K, (BLOCK_M, BLOCK_D), for one block of keys; delta is negative. SLOPES: dslope -= rowsum(dS distance)."""
    start = tl.broadcast_to(shift[:, None], (q.shape[0], k.shape[0]))
    if scores.scale is None:
        s = tl.dot(q, tl.trans(k), start, input_precision=PRECISION)  # (BLOCK_M, BLOCK_N)
    else:
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        s, damp = scored(s, rows[:, None], cols[None, :], diagonal, scores.scale, scores.softcap, slope)
        s += start
    p = tl.exp2(s * scores.qk_scale)
    if MASKED:
        p = tl.where(visible, p, 0.0)
    ds = p * tl.dot(do, tl.trans(v), tl.broadcast_to(delta[:, None], p.shape), input_precision=PRECISION)
    if SLOPES:
        dslope -= tl.sum(ds * tl.abs(rows[:, None] + diagonal - cols[None, :]).to(tl.float32), 1)
    if scores.softcap is not None:
        ds = ds * damp
    return tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION), dslope


def attention_backward_portable(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *, causal: bool = False,
    scale: float | None = None, dlse: Tensor | None = None, launch: PortableLaunch | None = None,
    launch_dq: PortableLaunch | None = None, allow_tf32: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK and dV, as `attention_backward` takes and gives them, on any GPU; the same bits in every run.

    `launch` is that of the pass for dK and dV, `launch_dq` that of the pass for dQ, the same unless given.
    Extra memory: two float32 per query.
    """
    check_bool(causal, "causal")
    check_bool(allow_tf32, "allow_tf32")
    for name, given in (("launch", launch), ("launch_dq", launch_dq)):
        if given is not None:
            check_launch(given, PortableLaunch, minimum=8, name=name)
    options = plain_options(q.shape[-1], resolve_scale(scale, q.shape[-1]), causal)
    how = BackwardCall(options, allow_tf32, launch, launch_dq or launch)
    return attention_gradients(do, q, k, v, o, lse, dlse, how)[:3]


class Rows(NamedTuple):
    """What there is of every query, (B, H_q, N_q) in float32 each: -lse / scale and -delta."""

    shift_ptr: Tensor
    delta_ptr: Tensor


class BackwardCall(NamedTuple):
    """How a backward pass is run, and of what: `slopes`, whether the gradient of alibi is wanted."""

    options: AttentionOptions
    allow_tf32: bool = False
    launch: PortableLaunch | None = None
    launch_dq: PortableLaunch | None = None
    slopes: bool = False


def attention_gradients(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, dlse: Tensor | None, how: BackwardCall
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """dQ, dK, dV, and of the options dsinks and dalibi, (H_q,) float32: None where there are none or nobody wants them.

        dsinks_h = sum exp(sink_h - lse_i) (dlse_i - delta_i)        dalibi_h = -sum dS_ij |i + N_k - N_q - j|

    Extra memory: two float32 per query, three with dalibi, and for dsinks a few while they are summed up.
    """
    size = check_backward(do, q, k, v, o, lse, dlse)
    options, scale = how.options, how.options.scale
    check_options(options, q)
    finite = scale if abs(scale) >= MIN_SCALE else math.copysign(MIN_SCALE, scale)
    in_exponent = 1.0 if options.changes_scores else finite
    rows = Rows(*attention_rows(o, do, lse.contiguous(), dlse, in_exponent))
    dq, dk, dv = uninitialised(q), uninitialised(k), uninitialised(v)
    dslope = torch.empty_like(lse) if how.slopes else None
    scores = Scores(
        in_exponent * LOG2_E, scale if options.changes_scores else None, options.softcap, options.alibi, scale
    )
    if dk.numel():
        by = how.launch or portable_launch(DKDV, size.D, q.element_size(), q.device)
        count, tiles = tiles_of(options, size.N_k, size.N_q, by.block_n, keys=True)
        launch_portable(
            attention_dkdv_portable_kernel, (count, size.H_kv, size.B), (q, k, v, do, rows, dk, dv), (q, k, v, do, dk, dv),
            options, scores, tiles, by, how.allow_tf32,
        )  # fmt: skip
    if dq.numel():
        by = how.launch_dq or portable_launch(DQ, size.D, q.element_size(), q.device)
        count, tiles = tiles_of(options, size.N_q, size.N_k, by.block_m)
        launch_portable(
            attention_dq_portable_kernel, (count, size.H_q, size.B), (q, k, v, do, rows, dq, dslope), (q, k, v, do, dq),
            options, scores, tiles, by, how.allow_tf32,
        )  # fmt: skip
    dsinks = None if options.sinks is None else gradient_of_sinks(options.sinks, lse, rows.delta_ptr)
    return dq, dk, dv, dsinks, None if dslope is None else dslope.sum((0, 2))


def gradient_of_sinks(sinks: Tensor, lse: Tensor, delta: Tensor) -> Tensor:
    """sum over batch and queries of P of the sink times -delta, (H_q,); delta is negative, and has dlse in it."""
    P = torch.exp(sinks[:, None] - lse).masked_fill_(lse == -math.inf, 0.0)
    return P.mul_(delta).sum((0, 2))


def attention_rows(
    o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None, scale: float, *, block_m: int = 64
) -> tuple[Tensor, Tensor]:
    """-lse / scale and -delta, (B, H_q, N_q) in float32. HBM: O, dO, lse and dlse read once, both written once."""
    B, H, N, D = o.shape
    shift, delta = uninitialised(lse), uninitialised(lse)
    if lse.numel():
        dlse = None if dlse is None else dlse.contiguous()
        strides = (named(o.stride()), named(do.stride()))
        aligned = tuple(t.data_ptr() % 16 for t in (o, do, lse))
        launch_kept(
            attention_rows_portable_kernel, check_grid((-(-N // block_m), H, B)),
            (o, do, lse, dlse, shift, delta, *strides, N, scale),
            dict(HEAD_DIM=D, BLOCK_M=block_m, BLOCK_D=padded(D)),
            key=(o.dtype, o.device, strides, aligned, dlse is None),
        )  # fmt: skip
    return shift, delta
