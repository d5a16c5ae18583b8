"""The kernels before and after the backward pass: dQ is summed up in float32, in HBM.

Before, in one kernel: lse and delta for TMA, and zeros for the sums of dQ. After: the sums, scaled, in 16 bits. A token of
hidden size 2048 costs 28 KiB of HBM traffic, whatever N is: O, dO and dQ in 16 bits, the sums written and read once each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.fast.dependent_launch import dependent, launch_dependents, wait_for_previous
from flashlearn.fast.dispatch import hopper_width
from flashlearn.fast.launcher import launch, uninitialised
from flashlearn.fast.target import check_grid, padded

TILE = tl.constexpr(4096)  # sums of 64 queries and 64 columns


@triton.jit(do_not_specialize=["N_q", "zeroed"])
def attention_begin_sums_kernel(
    # pointers; dlse may be None
    o_ptr, do_ptr, lse_ptr, dlse_ptr, rows_ptr, sums_ptr, counters_ptr,
    # strides of o and do (B, H_q, N_q, D); the others, see `begin_sums`, are contiguous
    stride_ob, stride_oh, stride_om, stride_od,
    stride_dob, stride_doh, stride_dom, stride_dod,
    # what lse is divided by; how many heads, counted through all sequences, get zeros
    N_q, factor, zeroed,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
    TILES: tl.constexpr,  # of dQ
):  # fmt: skip
    """lse and delta = rowsum(dO o O) - dlse, and zeros, for one block of queries: FA-2 Alg. 2, line 4."""
    launch_dependents()  # the pass
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # (BLOCK_D,)
    there = offs_m < N_q
    mask = there[:, None] & (offs_d < HEAD_DIM)[None, :]
    o_ptr += batch * stride_ob + head * stride_oh
    do_ptr += batch * stride_dob + head * stride_doh
    o = tl.load(o_ptr + offs_m[:, None] * stride_om + offs_d[None, :] * stride_od, mask=mask, other=0.0)
    do = tl.load(do_ptr + offs_m[:, None] * stride_dom + offs_d[None, :] * stride_dod, mask=mask, other=0.0)
    number = batch * tl.num_programs(1) + head
    if number < zeroed:
        block = number * tl.num_programs(0) + tl.program_id(0)
        for tile in tl.static_range(TILES):
            tl.store(sums_ptr + (block * TILES + tile) * TILE + tl.arange(0, TILE), tl.zeros((TILE,), dtype=tl.float32))
    if tl.program_id(0) == 0:
        tl.store(counters_ptr + 2 * number + tl.arange(0, 2), tl.zeros((2,), dtype=tl.int32))
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)  # (BLOCK_M,)
    if dlse_ptr is not None:  # d lse_i / d S_ij = P_ij: the gradient that reaches lse only shifts delta
        delta -= tl.load(dlse_ptr + number * N_q + offs_m, mask=there, other=0.0)
    # past the last query lse is +inf, so that P = exp(S - inf) = 0 there; so too where all keys weighed nothing
    lse = tl.load(lse_ptr + number * N_q + offs_m, mask=there, other=float("inf")) / factor
    lse = tl.where(lse == float("-inf"), float("inf"), lse)
    rows_ptr += 2 * number * tl.num_programs(0) * BLOCK_M + offs_m
    tl.store(rows_ptr, lse)
    tl.store(rows_ptr + tl.num_programs(0) * BLOCK_M, delta)


@triton.jit(do_not_specialize=["N_q", "group", "added"])
def attention_end_sums_kernel(
    # pointers; sums and counters, see `begin_sums`, are contiguous, and the strides those of dq (B, H_q, N_q, D)
    sums_ptr, dq_ptr, counters_ptr,
    stride_b, stride_h, stride_m, stride_d,
    # query heads of a row, and what its counter is when all has been added
    N_q, scale, group, added,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """dQ = sum of dS K, times the scale of the scores, for one block of queries: tiles of 64 by 64."""
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    block = (batch * tl.num_programs(1) + head) * tl.num_programs(0) + tl.program_id(0)
    dq_ptr += batch * stride_b + head * stride_h
    row, rows = (batch * tl.num_programs(1) + head) // group, tl.num_programs(2) * tl.num_programs(1) // group
    there = tl.atomic_add(counters_ptr + 2 * row + 1, 0, sem="acquire") == added
    # the last waits all the same: a kernel after this one counts on it that the pass is over
    if (row == rows - 1) | (not there):
        wait_for_previous()  # the pass, which adds to the sums
    for tile in tl.static_range(TILES):
        offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tile * (BLOCK_M - 64) + tl.arange(0, 64)  # (64,)
        offs_d = tile * (128 - BLOCK_M) + tl.arange(0, 64).to(tl.int64)  # (64,)
        sums = tl.load(sums_ptr + (block * TILES + tile) * TILE + tl.arange(0, TILE))
        # w j g t h p: w h g j t p
        dq = sums.reshape(4, 8, 8, 4, 2, 2).permute(0, 4, 2, 1, 3, 5).reshape(64, 64) * scale
        mask = (offs_m < N_q)[:, None] & (offs_d < HEAD_DIM)[None, :]
        tl.store(
            dq_ptr + offs_m[:, None] * stride_m + offs_d[None, :] * stride_d, dq.to(dq_ptr.dtype.element_ty), mask=mask
        )


def block_of_queries(D: int) -> int:
    """How many queries a block has, of whose dQ two consumers have a part each."""
    return 128 if hopper_width(D) == 64 else 64


def tiles_of_dq(D: int) -> int:
    """How many tiles, 64 by 64, there are in a block of queries: two of up to 128 columns, and one of every further 64."""
    return max(2, -(-D // 64))


class Begun(NamedTuple):
    """What `begin_sums` makes."""

    # (B, H_q, 2, queries of whole blocks) float32: lse, divided, +inf where there is no query or it saw no key, and
    # delta = rowsum(dO o O) - dlse
    rows: Tensor
    sums: Tensor  # (B, H_q, blocks of queries * tiles * 128, 32) float32: zeros, or those of the first heads
    # (B, H_q, 2) int32: zeros. For every row, a key head of a sequence, the pass counts the first up when zeros are there, and
    # the second when all has been added
    counters: Tensor
    zeroed: int | None  # of how many heads the sums are zeros; None: of all


def begin_sums(
    o: Tensor, do: Tensor, lse: Tensor, factor: float, dlse: Tensor | None = None, *, zeroed: int | None = None
) -> Begun:
    """Two numbers for each query, as TMA takes them to the pass, and the sums of dQ, in float32; see `Begun`.

    A block of queries is two tiles of dQ, 64 by 64, one below the other (D up to 64), or two to four side by side. Each is 128 rows of 32
    numbers, in the order of the registers that they come from: number 4 (32 (8 w + j) + 4 g + t) + 2 h + p of a tile is that of
    row 16 w + 8 h + g and column 8 j + 2 t + p. Columns past D are zeros.
    lse, dlse: (B, H_q, N_q) float32, lse of the forward pass and the gradient that reaches it, or None.
    factor: what lse is divided by: the scale of Q K^T, or a softcap; what it is subtracted from will be multiplied by it.
    zeroed: how many heads, counted through all sequences, get zeros; whoever adds to the others sees to theirs. 0: nobody needs any.
    None: all get zeros.
    HBM: O, dO and lse read once, lse, delta and zeros written once.
    """
    B, H, N, D = o.shape
    rows = block_of_queries(D)
    blocks = triton.cdiv(N, rows)
    numbers = uninitialised(o, (B, H, 2, blocks * rows), torch.float32)
    sums = uninitialised(o, (B, H, blocks * tiles_of_dq(D) * 128, 32), torch.float32)
    lse, dlse = lse.contiguous(), None if dlse is None else dlse.contiguous()
    strides = (o.stride(), do.stride())
    counters = uninitialised(o, (B, H, 2), torch.int32)
    aligned = tuple(0 if t is None else t.data_ptr() % 16 for t in (o, do, lse, dlse))
    launch(
        attention_begin_sums_kernel, check_grid((blocks, H, B)),
        (
            o, do, lse, dlse, numbers, sums, counters, *strides[0], *strides[1], N, factor,
            B * H if zeroed is None else zeroed,
        ),
        dict(HEAD_DIM=D, BLOCK_M=rows, BLOCK_D=padded(D), TILES=tiles_of_dq(D)),
        key=(o.dtype, o.device, strides, aligned, dlse is None),
    )  # fmt: skip
    return Begun(numbers, sums, counters, zeroed)


def end_sums(begun: Begun, scale: float, dq: Tensor, group: int, added: int) -> None:
    """Write dQ = sums * scale to dq (B, H_q, N_q, D), whose memory nobody reads who runs before the pass has ended.

    The kernel begins while the last programs of the pass run, and what is left of the GPU ends the rows, of `group` heads each,
    whose counter is `added`. The other rows wait for the pass's end.
    HBM: the sums read once, dQ written once.
    """
    B, H, N, D = dq.shape
    rows = block_of_queries(D)
    launch(
        attention_end_sums_kernel, check_grid((triton.cdiv(N, rows), H, B)),
        (begun.sums, dq, begun.counters, *dq.stride(), N, scale, group, added),
        dict(HEAD_DIM=D, BLOCK_M=rows, TILES=tiles_of_dq(D)),
        key=(dq.dtype, dq.device, dq.stride()), dependent=dependent(dq.device),
    )  # fmt: skip
