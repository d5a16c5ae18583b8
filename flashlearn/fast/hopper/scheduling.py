"""Which tile a CTA takes, and semaphores that make sums deterministic.

Neighbours should read the same K and V, so that the L2 cache serves them: one head after the other. And all should end at
the same time: the longest blocks of all heads first. A few heads side by side are between the two.

A CTA that waits for a semaphore waits for others, which must run or be over. GPUs promise no order in which CTAs begin, so
each takes its tile index from an atomic counter, and waits for lower indices alone. The next block of keys of a head
should begin an iteration or more after the one before, which then has added already: so a few heads run side by side
(`beside`). More heads than needed would share less of Q, dO and dQ in the L2 cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashlearn.fast.decode import workspace
from flashlearn.fast.hopper.ranges import Ranges
from flashlearn.fast.launcher import launch

# Iterations after which the next block of keys of a head begins, measured; with ranges, of those that attend to a key in the mean
LAGS = {"none": 1.5, "causal": 2.0, "long causal": 6.0, "ranges": 1.0}
LONG = 4096  # keys of a long causal row
IN_L2 = 2**24  # bytes of K and V of heads that run side by side with masks
BLOCKS_COUNTED = 32  # at a time, of queries and of keys


def beside(rows: int, iterations: int, resident: int, lag: float) -> int:
    """How many of the heads run side by side, if a program takes so many iterations and `resident` programs run at a time.

    Programs end, and others begin, every iterations / resident iterations; of a row, every `lag` iterations.
    """
    return in_even_sets(rows, max(1, min(rows, round(lag * resident / iterations))))


def in_even_sets(rows: int, side: int) -> int:
    """So many rows at a time, or a few more, so that all sets are about as large: a small last one keeps few programs busy."""
    return -(-rows // max(rows // side, 1))


def heads_of_a_wave(tiles: int, resident: int) -> int:
    """How many rows of so many causal tiles run side by side: as many as keep all programs busy, 2 to 16.

    With more, neighbours read K and V of too many rows for the L2 cache; row by row the last row ends late, tile by tile.
    """
    return max(2, min(16, resident // max(tiles, 1)))


def heads_of_shared_keys(rows: int, blocks: int, resident: int) -> int | None:
    """How many rows, of so many blocks of keys each, run side by side backward under a causal mask where query heads share keys.

    A row then has few programs, and the longest takes far longer than the others. As many as keep all SMs busy.
    None: one row after the other.
    """
    side = resident // blocks
    if rows < 2 or not 2 <= side <= 16:
        return None
    return in_even_sets(rows, side)


def heads_with_masks(rows: int, nbytes: int) -> int:
    """The same where windows and documents make a tile long or short, at one place in all rows.

    As many as find room in the L2 cache, of each so many bytes: K and V that one query sees, or Q, dO and dQ that see one key.
    """
    return min(rows, max(2, min(8, IN_L2 // max(nbytes, 1))))


def tile_counter(device: torch.device) -> Tensor:
    """int32, of which the first counts the tile indices taken: 0, and whoever takes the last makes it 0 again.

    It is one of the counters that decoding keeps for each stream (`flashlearn.fast.decode.workspace`), so that no kernel
    has to write a 0 first. A CUDA graph gets its own.
    """
    kept = device.type != "cpu" and not torch.cuda.is_current_stream_capturing()
    return workspace(device, kept, 0, 0, 1)[2]


@triton.jit(do_not_specialize=["N_k", "m_blocks"])
def attention_before_kernel(
    # (B or 1, 2, N_k) int32: the ranges of queries that see keys; (B or 1, blocks of OWN keys, m_blocks) int32
    ranges_ptr, before_ptr, N_k, m_blocks,
    OWN: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Of TILE blocks of queries, for every block of keys: how many blocks of keys before it add to them, too.

    Counted one by one, so that whatever the ranges are, nobody waits for one that does not come.
    """
    blocks = tl.program_id(0) * TILE + tl.arange(0, TILE)  # (TILE,), of queries
    key_blocks = tl.cdiv(N_k, OWN)
    ranges_ptr += tl.program_id(1).to(tl.int64) * 2 * N_k
    before_ptr += tl.program_id(1).to(tl.int64) * key_blocks * m_blocks
    so_far = tl.zeros((TILE,), dtype=tl.int32)
    for start in range(0, key_blocks, TILE):
        n = start + tl.arange(0, TILE)  # (TILE,), of keys
        there = n < key_blocks
        first = tl.load(ranges_ptr + n * OWN, mask=there, other=0) // BLOCK_M
        last = tl.minimum(n * OWN + OWN, N_k) - 1
        stop = tl.cdiv(tl.load(ranges_ptr + N_k + last, mask=there, other=0), BLOCK_M)
        adds = ((first[:, None] <= blocks[None, :]) & (blocks[None, :] < stop[:, None])).to(tl.int32)  # (TILE, TILE)
        before = so_far[None, :] + tl.cumsum(adds, 0) - adds
        at = n.to(tl.int64)[:, None] * m_blocks + blocks[None, :]
        tl.store(before_ptr + at, before, mask=there[:, None] & (blocks < m_blocks)[None, :])
        so_far += tl.sum(adds, 0)


def make_semaphores(q: Tensor, k: Tensor, ranges: Ranges | None, block_m: int, own: int) -> Tensor:
    """(1 + 2 B H_q m_blocks + ...,) int32: what programs that wait for semaphores count in.

    How many tile indices are taken, 0; how many have added to each half of each block of `block_m` queries of each head, 0; and with ranges,
    of queries that see keys, what `attention_before_kernel` counts, for blocks of `own` keys.
    """
    (B, H, N_q, _), N_k = q.shape, k.shape[2]
    m_blocks = triton.cdiv(N_q, block_m)
    counted, sequences = 1 + 2 * B * H * m_blocks, 0 if ranges is None else len(ranges.ends)
    semaphores = torch.zeros(counted + sequences * triton.cdiv(N_k, own) * m_blocks, dtype=torch.int32, device=q.device)
    before = semaphores[counted:]
    if ranges is not None and len(before):
        launch(
            attention_before_kernel, (triton.cdiv(m_blocks, BLOCKS_COUNTED), sequences, 1),
            (ranges.ends, before, N_k, m_blocks), dict(OWN=own, BLOCK_M=block_m, TILE=BLOCKS_COUNTED),
            key=(q.device, ranges.ends.data_ptr() % 16, before.data_ptr() % 16),
        )  # fmt: skip
    return semaphores


@gluon.jit
def side_by_side(number, side, blocks, rows):
    """The block, of so many in a row, and the row that come as number 0, 1, ... if rows are taken `side` at a time: block 0
    of each of them, then block 1 of each, ..."""
    first = number // (side * blocks) * side
    within = number % (side * blocks)
    width = gl.minimum(side, rows - first)  # the last rows may be fewer
    return within // width, first + within % width


@gluon.jit
def keep_tile_index(ticket):
    """A program's tile index in shared memory, where each warpgroup finds it, once they have parted at a barrier."""
    smem = gl.allocate_shared_memory(gl.int32, [1], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    smem.store(gl.full([1], ticket, gl.int32, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])))
    return smem


@gluon.jit
def kept_tile_index(smem):
    """The number that `keep_tile_index` has put there."""
    return gl.sum(smem.load(gl.BlockedLayout([1], [32], [gl.num_warps()], [0])), 0)


@gluon.jit
def as_if_new(n):
    """n, of which the compiler does not see that it knew it: what is computed from it, is so where it is wanted, each time.

    Kept from before the iterations of a kernel until after them, it would take registers in all of them.
    """
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [n], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def wait_for_semaphore(semaphore_ptr, n):
    """Until n have added: what they added is there for TMA too.

    Written out: around an atomic addition of 0 in a loop the compiler moves more than registers hold in all warps.
    """
    gl.inline_asm_elementwise(
        "{ .reg .pred other; again: ld.acquire.gpu.global.b32 $0, [$1]; setp.ne.b32 other, $0, $2; @other bra again; "
        "fence.proxy.async.global; }",
        "=&r,l,r", [semaphore_ptr, n], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def release_semaphore(semaphore_ptr):
    """One more has added: what it added is seen by whoever sees this."""
    gl.atomic_add(semaphore_ptr, 1, sem="release")


@gluon.jit
def wait_for_additions():
    """Wait until what these threads gave to TMA has arrived in HBM, not only left shared memory."""
    gl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; fence.proxy.async.global; mov.b32 $0, 0;",
        "=r", [], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip
