"""What makes dQ deterministic: semaphores in HBM that put the additions to it in one order.

Every block of keys adds its part to a block of queries of dQ, in float32, so that the result depends on the order. With a
semaphore for each half of each block of each query head, which counts the blocks of keys that have added:

    wait_for_semaphore   until all blocks of keys before this one, of those that add here, have added
    async_add            TMA adds, from shared memory
    wait_for_additions   until the sum is in HBM, not only out of shared memory
    release_semaphore    the semaphore counts one more

So the parts are added in the order of the keys. Three things keep this from deadlocks and from idle waiting:

- A CTA waits for CTAs that must run or be over. GPUs promise no order in which CTAs begin, so each takes its tile index from
  an atomic counter, and waits for lower indices alone (`flashlearn.fast.hopper.tile_scheduler`).
- All CTAs begin at the last block of queries, to which every key adds, and go up. They take all query heads of a block
  before the block above (`flashlearn.fast.hopper.backward_common.next_query_block`).
- The next block of keys of a head begins an iteration or more after the one before, as heads run in parallel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashlearn.fast.hopper.ranges import Ranges
from flashlearn.fast.hopper.versions import aggregate
from flashlearn.fast.launcher import launch

BLOCKS_COUNTED = 32  # at a time, of queries and of keys


def make_semaphores(q: Tensor, k: Tensor, ranges: Ranges | None, block_m: int, block_n: int) -> Tensor:
    """The memory of a deterministic pass, int32, for blocks of `block_m` queries and `block_n` keys; three parts:

    (1,)                             the atomic counter of tile indices, 0
    (B, H_q, m_blocks, 2)            the semaphores, 0
    (B or 1, key blocks, m_blocks)   with ranges alone: how many blocks of keys before this one add to a block of queries
    """
    (B, H, N_q, _), N_k = q.shape, k.shape[2]
    m_blocks = triton.cdiv(N_q, block_m)
    counted, sequences = 1 + 2 * B * H * m_blocks, 0 if ranges is None else len(ranges.ends)
    memory = torch.zeros(counted + sequences * triton.cdiv(N_k, block_n) * m_blocks, dtype=torch.int32, device=q.device)
    before = memory[counted:]
    if ranges is not None and len(before):
        launch(
            attention_before_kernel, (triton.cdiv(m_blocks, BLOCKS_COUNTED), sequences, 1),
            (ranges.ends, before, N_k, m_blocks), dict(BLOCK_N=block_n, BLOCK_M=block_m, TILE=BLOCKS_COUNTED),
            key=(q.device, ranges.ends.data_ptr() % 16, before.data_ptr() % 16),
        )  # fmt: skip
    return memory


@triton.jit(do_not_specialize=["N_k", "m_blocks"])
def attention_before_kernel(
    # (B or 1, 2, N_k) int32: the ranges of queries that attend to keys; (B or 1, key blocks, m_blocks) int32
    ranges_ptr, before_ptr, N_k, m_blocks,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """For TILE blocks of queries and every block of keys: how many blocks of keys before it add there, too.

    They are counted one by one, so that whatever the ranges are, no CTA waits for one that does not add.
    """
    m_block = tl.program_id(0) * TILE + tl.arange(0, TILE)  # (TILE,)
    key_blocks = tl.cdiv(N_k, BLOCK_N)
    ranges_ptr += tl.program_id(1).to(tl.int64) * 2 * N_k
    before_ptr += tl.program_id(1).to(tl.int64) * key_blocks * m_blocks
    so_far = tl.zeros((TILE,), dtype=tl.int32)
    for start in range(0, key_blocks, TILE):
        n = start + tl.arange(0, TILE)  # (TILE,), blocks of keys
        exists = n < key_blocks
        first = tl.load(ranges_ptr + n * BLOCK_N, mask=exists, other=0) // BLOCK_M
        last = tl.minimum(n * BLOCK_N + BLOCK_N, N_k) - 1
        stop = tl.cdiv(tl.load(ranges_ptr + N_k + last, mask=exists, other=0), BLOCK_M)
        adds = ((first[:, None] <= m_block[None, :]) & (m_block[None, :] < stop[:, None])).to(tl.int32)  # (TILE, TILE)
        before = so_far[None, :] + tl.cumsum(adds, 0) - adds
        at = n.to(tl.int64)[:, None] * m_blocks + m_block[None, :]
        tl.store(before_ptr + at, before, mask=exists[:, None] & (m_block < m_blocks)[None, :])
        so_far += tl.sum(adds, 0)


@aggregate
class Semaphores:
    """The semaphores of a sequence, and what a CTA waits for."""

    ptr: Any  # (H_q, m_blocks, 2)
    m_blocks: Any
    before: Any  # how many blocks of keys before the CTA's add to each block that it adds to
    before_ptr: Any  # (m_blocks,), with ranges: how many add to each; else None

    @gluon.jit
    def at(self, where, half):
        """The semaphore of half of a block of queries."""
        return self.ptr + (where.head * self.m_blocks + where.block) * 2 + half

    @gluon.jit
    def additions_before(self, where):
        """How many blocks of keys add to a block of queries before this CTA."""
        before = self.before
        if self.before_ptr is not None:
            before = gl.load(self.before_ptr + where.block)
        return before


@gluon.jit
def semaphores_of(semaphores_ptr, tile, problem):
    """The semaphores that the CTA of this tile waits for, in the memory that `make_semaphores` made."""
    m_blocks = gl.cdiv(problem.N_q, problem.BLOCK_M)
    before = tile.start_n // problem.BLOCK_N
    before_ptr: gl.constexpr = None
    each = 2 * problem.group * m_blocks  # of a key head
    if problem.MASK == "ranges":
        key_blocks = gl.cdiv(problem.N_k, problem.BLOCK_N)
        row = gl.where(problem.range_stride > 0, tile.batch, 0) * key_blocks + before
        before_ptr = semaphores_ptr + gl.num_programs(0) // key_blocks * each + row * m_blocks
    return Semaphores(semaphores_ptr + tile.batch * problem.kv_heads * each, m_blocks, before, before_ptr)


@gluon.jit
def wait_for_semaphore(semaphore_ptr, n):
    """Wait until a semaphore is n. TMA then sees what was added before, too.

    This is inline assembly, since Triton moves code out of a loop around an atomic addition of 0, and all warps then spill.
    """
    gl.inline_asm_elementwise(
        "{ .reg .pred other; again: ld.acquire.gpu.global.b32 $0, [$1]; setp.ne.b32 other, $0, $2; @other bra again; "
        "fence.proxy.async.global; }",
        "=&r,l,r", [semaphore_ptr, n], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def release_semaphore(semaphore_ptr):
    """Add 1 to the count. A CTA that reads the count sees the additions of this one."""
    gl.atomic_add(semaphore_ptr, 1, sem="release")


@gluon.jit
def wait_for_additions():
    """Wait until the copies that this thread has issued to TMA have arrived in HBM, not only left shared memory."""
    gl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; fence.proxy.async.global; mov.b32 $0, 0;",
        "=r", [], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip
