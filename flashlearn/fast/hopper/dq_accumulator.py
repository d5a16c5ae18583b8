"""The kernels before and after the backward pass on Hopper: dQ is summed up in a float32 accumulator in HBM.

    preprocess     lse and delta of each query for TMA, and zeros for the accumulator
    backward       adds to the accumulator
    postprocess    dQ = accumulator * scale, in 16 bits

A token of hidden size 2048 costs 28 KiB of HBM traffic before and after, whatever N is. O, dO and dQ are in 16 bits,
and the accumulator is written and read once each.

A block of queries is two tiles of dQ, 64 by 64, one below the other (D up to 64), or two to four next to each other. Each tile is 128 rows
of 32 numbers, in the order of the registers that they come from (`flashlearn.fast.hopper.backward_common.register_order`): number
4 (32 (8 w + j) + 4 g + t) + 2 h + p is that of query 16 w + 8 h + g and column 8 j + 2 t + p. Columns past D are zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.target import check_grid, padded
from flashlearn.fast.dispatch import hopper_width
from flashlearn.fast.launcher import dependent, launch, launch_dependents, uninitialised, wait_for_previous
from flashlearn.fast.portable.masks import named

TILE = tl.constexpr(4096)  # numbers of 64 queries and 64 columns


def block_of_queries(D: int) -> int:
    """Queries of a block; two consumers have a part each of its dQ."""
    return 128 if hopper_width(D) == 64 else 64


def tiles_of_dq(D: int) -> int:
    """Tiles, 64 by 64, of a block of queries: two for up to 128 columns, and one for each further 64."""
    return max(2, -(-D // 64))


class Preprocessed(NamedTuple):
    """What `preprocess` makes."""

    # (B, H_q, 2, queries of whole blocks) float32: lse, divided, +inf where there is no query or it attends to no key, and
    # delta = rowsum(dO o O) - dlse
    stats: Tensor
    accumulator: Tensor  # (B, H_q, blocks of queries * tiles * 128, 32) float32: zeros, or those of the first heads
    # (B, H_q, 2) int32: zeros. For each key head of a sequence, the pass counts the first up when its accumulator is zero, and the
    # second when all has been added
    counters: Tensor
    zeroed: int | None  # for how many query heads the accumulator is zero; None: for all


def preprocess(
    o: Tensor, do: Tensor, lse: Tensor, score_scale: float, dlse: Tensor | None = None, *, zeroed: int | None = None
) -> Preprocessed:
    """lse and delta, as TMA loads them in the pass, and the accumulator of dQ.

    lse, dlse: (B, H_q, N_q) float32, lse of the forward pass and the gradient that reaches it, or None.
    score_scale: the divisor of lse: the scale of Q K^T, or a softcap. The pass multiplies by it what it subtracts lse from.
    zeroed: the number of query heads, counted through all sequences, that get zeros; the pass zero-initialises the others.
    None: all.

    HBM: O, dO and lse read once; lse, delta and zeros written once.
    """
    B, H, N, D = o.shape
    block_m, tiles = block_of_queries(D), tiles_of_dq(D)
    blocks = triton.cdiv(N, block_m)
    stats = uninitialised(o, (B, H, 2, blocks * block_m), torch.float32)
    accumulator = uninitialised(o, (B, H, blocks * tiles * 128, 32), torch.float32)
    counters = uninitialised(o, (B, H, 2), torch.int32)
    lse, dlse = lse.contiguous(), None if dlse is None else dlse.contiguous()
    strides = (named(o.stride()), named(do.stride()))
    aligned = tuple(0 if t is None else t.data_ptr() % 16 for t in (o, do, lse, dlse))
    launch(
        attention_preprocess_kernel, check_grid((blocks, H, B)),
        (
            o, do, lse, dlse, stats, accumulator, counters, *strides, N, score_scale,
            B * H if zeroed is None else zeroed,
        ),
        dict(HEAD_DIM=D, BLOCK_M=block_m, BLOCK_D=padded(D), TILES=tiles),
        key=(o.dtype, o.device, strides, aligned, dlse is None),
    )  # fmt: skip
    return Preprocessed(stats, accumulator, counters, zeroed)


@triton.jit(do_not_specialize=["N_q", "zeroed"])
def attention_preprocess_kernel(
    # dlse may be None
    o_ptr, do_ptr, lse_ptr, dlse_ptr, stats_ptr, accumulator_ptr, counters_ptr,
    stride_o, stride_do,  # `Strides` of o and do (B, H_q, N_q, D); the others are contiguous
    N_q, score_scale, zeroed,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
    TILES: tl.constexpr,  # of dQ
):  # fmt: skip
    """lse, delta = rowsum(dO o O) - dlse, and zeros, for one block of queries: FA-2 Alg. 2, line 4."""
    launch_dependents()  # the pass
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # (BLOCK_D,)
    exists = offs_m < N_q
    mask = exists[:, None] & (offs_d < HEAD_DIM)[None, :]
    o_ptr += batch * stride_o.b + head * stride_o.h
    do_ptr += batch * stride_do.b + head * stride_do.h
    o = tl.load(o_ptr + offs_m[:, None] * stride_o.n + offs_d[None, :] * stride_o.d, mask=mask, other=0.0)
    do = tl.load(do_ptr + offs_m[:, None] * stride_do.n + offs_d[None, :] * stride_do.d, mask=mask, other=0.0)
    number = batch * tl.num_programs(1) + head
    if number < zeroed:
        block = number * tl.num_programs(0) + tl.program_id(0)
        zeros = tl.zeros((TILE,), dtype=tl.float32)
        for tile in tl.static_range(TILES):
            tl.store(accumulator_ptr + (block * TILES + tile) * TILE + tl.arange(0, TILE), zeros)
    if tl.program_id(0) == 0:
        tl.store(counters_ptr + 2 * number + tl.arange(0, 2), tl.zeros((2,), dtype=tl.int32))
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)  # (BLOCK_M,)
    if dlse_ptr is not None:  # d lse_i / d S_ij = P_ij: the gradient that reaches lse only shifts delta
        delta -= tl.load(dlse_ptr + number * N_q + offs_m, mask=exists, other=0.0)
    # past the last query lse is +inf, so that P = exp(S - inf) = 0 there; likewise for a query that attends to no key
    lse = tl.load(lse_ptr + number * N_q + offs_m, mask=exists, other=float("inf")) / score_scale
    lse = tl.where(lse == float("-inf"), float("inf"), lse)
    stats_ptr += 2 * number * tl.num_programs(0) * BLOCK_M + offs_m
    tl.store(stats_ptr, lse)
    tl.store(stats_ptr + tl.num_programs(0) * BLOCK_M, delta)


def postprocess(preprocessed: Preprocessed, scale: float, dq: Tensor, group: int, added: int) -> None:
    """Write dQ = accumulator * scale to dq (B, H_q, N_q, D). No kernel that runs before the pass has ended may read dq's memory.

    The kernel begins while the last CTAs of the pass run, on SMs that these leave idle. It takes the key heads, of `group` query heads
    each, whose second counter is `added`; for the others it waits until the pass has ended.
    HBM: the accumulator read once, dQ written once.
    """
    B, H, N, D = dq.shape
    block_m = block_of_queries(D)
    launch(
        attention_postprocess_kernel, check_grid((triton.cdiv(N, block_m), H, B)),
        (preprocessed.accumulator, dq, preprocessed.counters, named(dq.stride()), N, scale, group, added),
        dict(HEAD_DIM=D, BLOCK_M=block_m, TILES=tiles_of_dq(D)),
        key=(dq.dtype, dq.device, dq.stride()), dependent=dependent(dq.device),
    )  # fmt: skip


@triton.jit(do_not_specialize=["N_q", "group", "added"])
def attention_postprocess_kernel(
    accumulator_ptr, dq_ptr, counters_ptr,
    stride_dq,  # `Strides` of dq (B, H_q, N_q, D); the others are contiguous
    N_q, scale, group, added,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """dQ = scale * the sum of dS K, for one block of queries: tiles of 64 by 64."""
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    block = (batch * tl.num_programs(1) + head) * tl.num_programs(0) + tl.program_id(0)
    dq_ptr += batch * stride_dq.b + head * stride_dq.h
    kv_head, kv_heads = (batch * tl.num_programs(1) + head) // group, tl.num_programs(2) * tl.num_programs(1) // group
    complete = tl.atomic_add(counters_ptr + 2 * kv_head + 1, 0, sem="acquire") == added
    # the last head waits in any case: a kernel that follows relies on the end of the pass
    if (kv_head == kv_heads - 1) | (not complete):
        wait_for_previous()  # the pass, which adds to the accumulator
    for tile in tl.static_range(TILES):
        offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tile * (BLOCK_M - 64) + tl.arange(0, 64)  # (64,)
        offs_d = tile * (128 - BLOCK_M) + tl.arange(0, 64).to(tl.int64)  # (64,)
        sums = tl.load(accumulator_ptr + (block * TILES + tile) * TILE + tl.arange(0, TILE))
        # w j g t h p: w h g j t p
        dq = sums.reshape(4, 8, 8, 4, 2, 2).permute(0, 4, 2, 1, 3, 5).reshape(64, 64) * scale
        mask = (offs_m < N_q)[:, None] & (offs_d < HEAD_DIM)[None, :]
        dq_ptrs = dq_ptr + offs_m[:, None] * stride_dq.n + offs_d[None, :] * stride_dq.d
        tl.store(dq_ptrs, dq.to(dq_ptr.dtype.element_ty), mask=mask)
