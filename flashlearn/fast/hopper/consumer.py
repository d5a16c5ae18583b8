"""What a consumer warpgroup of the forward kernel keeps of a tile, and the steps that all variants of it share.

Products are issued by `scores` and `plus_product`, and waited for by `waited`: in between, the tensor cores compute them.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from flashlearn.fast.hopper.mask import ROWS
from flashlearn.fast.hopper.softmax import from_pairs, initial_softmax
from flashlearn.fast.hopper.versions import aggregate


@aggregate
class QTile:
    """A consumer's 64 queries of a tile."""

    tile: Any
    phase: Any  # the parity of its barrier's phase
    full: Any  # its barrier
    chunks: Any  # Q in shared memory, a tuple of (64, columns)
    offs_m: Any  # (64,): the queries, and the keys low <= j < high that each attends to, if MASK is "ranges"
    low: Any
    high: Any
    consumer: Any  # 0, 1 or 2

    @gluon.jit
    def wait(self):
        """Wait until Q has landed."""
        mbarrier.wait(self.full, self.phase)


@aggregate
class State:
    """The online softmax of 64 queries and acc (64, D), which still lacks the product of the last P and V."""

    softmax: Any
    acc: Any
    pairs: Any  # that P, (64, BLOCK_N / 2) int32


@aggregate
class ForwardCTA:
    """What the warps of a CTA share."""

    q: Any  # pipelines: of Q, with a tile for each consumer, from which its o is stored too,
    k: Any  # of K,
    v: Any  # and of V, whose barriers `free` are K's: V of iteration t is free once iteration t + 1 is over
    row_sums: Any  # (2 * CONSUMERS, ROWS) float32 in shared memory, see `update_with_old_maximum`
    scheduler: Any
    problem: Any
    sinks_ptr: Any  # (heads,) float32; if SINKS
    o_desc: Any
    lse_ptr: Any  # (batches, heads, N_q) float32
    BLOCK_N: Any  # keys of a block
    COLUMNS: Any  # of a chunk of the head dimension
    CONSUMERS: Any
    SINKS: Any
    CTAS_PER_SM: Any

    @gluon.jit
    def begin_tile(self, tile, q):
        """A consumer's Q, and its softmax and acc before any key."""
        S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.BLOCK_N, 16])
        O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.COLUMNS, 16])
        offs_m = tile.start_m + gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))  # (64,)
        low, high = offs_m, offs_m
        if self.problem.MASK == "ranges":
            low, high = self.problem.key_range(offs_m, tile.batch)  # loaded while Q is
        i = tile.i
        q_tile = QTile(tile, q.phase(i), q.full.index(q.index(i)), q.chunks(i), offs_m, low, high, q.TILE)
        softmax = initial_softmax(self.sinks_ptr, tile.head, self.BLOCK_N, S_LAYOUT, self.SINKS)
        acc: gl.tuple = ()
        for _ in gl.static_range(q.CHUNKS):
            acc = acc + (gl.zeros([ROWS, self.COLUMNS], gl.float32, O_LAYOUT),)
        return q_tile, softmax, acc

    @gluon.jit
    def release_unread(self, t):
        """An iteration in which none of these queries attends to a key: a buffer is not released before it is full."""
        self.k.consumer_wait(t)
        self.v.consumer_wait(t)
        self.k.consumer_release(t)

    @gluon.jit
    def scores(self, t, q_chunks):
        """S_t = Q K_t^T (64, BLOCK_N), chunk by chunk of the head dimension; under way."""
        S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, self.BLOCK_N, 16])
        k = self.k.chunks(t)
        s = gl.zeros([ROWS, self.BLOCK_N], gl.float32, S_LAYOUT)
        for c in gl.static_range(len(k)):
            s = warpgroup_mma(q_chunks[c], k[c].permute((1, 0)), s, use_acc=c > 0, is_async=True)
        return s

    @gluon.jit
    def plus_product(self, t, pairs, acc):
        """acc + P_t V_t (64, D), chunk by chunk; under way."""
        p = from_pairs(pairs, acc, self.v.smem.dtype)
        v = self.v.chunks(t)
        out: gl.tuple = ()
        for c in gl.static_range(len(acc)):
            out = out + (warpgroup_mma(p, v[c], acc[c], is_async=True),)
        return out

    @gluon.jit
    def last_product(self, t, pairs, acc):
        """acc + P_t V_t when no iteration follows; under way."""
        self.v.consumer_wait(t)
        return self.plus_product(t, pairs, acc)


@gluon.jit
def release_stored(i, q):
    """Wait until o of tile i - 1 has been stored, and release its Q."""
    if i > 0:
        tma.store_wait(0)
        q.consumer_release(i - 1)


@gluon.jit
def release_q_before(i, q):
    """In tile i: release Q of the tile before, whose o has been stored by now; if there is one buffer alone, that is done."""
    if q.STAGES > 1:
        release_stored(i, q)


@gluon.jit
def release_only_q(i, q):
    """At the end of tile i: release its Q, if there is one buffer alone."""
    if q.STAGES == 1:
        release_stored(i + 1, q)


@gluon.jit
def waited(acc):
    """acc once no product is under way."""
    if len(acc) == 1:
        return (warpgroup_mma_wait(0, deps=[acc[0]]),)
    else:
        return warpgroup_mma_wait(0, deps=acc)
