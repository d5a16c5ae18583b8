"""Which keys queries attend to, inside the forward kernel: all, a causal mask, or a range of keys for each query.

Blocks of keys are visited from right to left, one in each iteration. A CTA counts its iterations over all of its tiles, so that those of a
tile are t0 <= t < t0 + blocks. For its 64 queries a consumer knows in which of these it must hide keys.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashlearn.fast.hopper.versions import aggregate

ROWS = gl.constexpr(64)  # queries of one consumer: the height of one wgmma


@aggregate
class ForwardProblem:
    """Sizes, the factors on scores, and the mask."""

    batches: Any
    heads: Any  # of queries
    N_q: Any
    N_k: Any
    group: Any  # query heads that share a key head
    qk_scale: Any  # scale * log2(e)
    inner: Any  # the factor inside a softcap, or None
    ranges_ptr: (
        Any  # (1 or batches, 2, N_q) int32: the first key that each query attends to, and the one after its last
    )
    range_stride: Any  # between two sequences, or 0
    MASK: Any  # "none", "causal" or "ranges"

    @gluon.jit
    def key_range(self, i, batch):
        """The range of keys of query i of a sequence, or of many queries; past the last query, that of the last."""
        ptr = self.ranges_ptr + batch.to(gl.int64) * self.range_stride + gl.minimum(i, self.N_q - 1)
        return gl.load(ptr), gl.load(ptr + self.N_q)


@aggregate
class Tile:
    """A tile of queries, or a consumer's 64 of it, and the blocks of keys that some query of the tile attends to."""

    i: Any  # it is the i-th tile of this CTA
    t0: Any  # its first iteration
    start_m: Any  # first query
    head: Any
    batch: Any
    first_block: Any  # of keys
    blocks: Any  # how many

    @gluon.jit
    def block(self, t):
        """The block of keys of iteration t."""
        return self.first_block + self.t0 + self.blocks - 1 - t

    @gluon.jit
    def end(self):
        """The first iteration of the next tile."""
        return self.t0 + self.blocks

    @gluon.jit
    def of_consumer(self, index: gl.constexpr):
        """The 64 queries of a consumer."""
        start_m = self.start_m + index * ROWS
        return Tile(self.i, self.t0, start_m, self.head, self.batch, self.first_block, self.blocks)


@aggregate
class Iterations:
    """Some of 64 queries attends to keys in first <= t < stop; in masked <= t < full all of them attend to all keys of the block."""

    first: Any
    masked: Any
    full: Any
    stop: Any


@gluon.jit
def tile_at(index, i, t0, scheduler, BLOCK_N: gl.constexpr):
    """The tile with this tile index."""
    problem = scheduler.problem
    HEIGHT: gl.constexpr = scheduler.HEIGHT
    start_m, head = scheduler.coordinates(index)
    end = problem.N_k  # no query of the tile attends to keys from here on
    if problem.MASK == "causal":
        end = gl.minimum(gl.maximum(start_m + HEIGHT + problem.N_k - problem.N_q, 0), problem.N_k)
    first = 0
    if problem.MASK == "ranges":
        low, _ = problem.key_range(start_m, head // problem.heads)
        _, end = problem.key_range(start_m + HEIGHT - 1, head // problem.heads)
        first = low // BLOCK_N
    blocks = gl.where(start_m < problem.N_q, gl.maximum(gl.cdiv(end, BLOCK_N) - first, 0), 0)
    return Tile(i, t0, start_m, head % problem.heads, head // problem.heads, first, blocks)


@gluon.jit
def iterations_of(tile, problem, BLOCK_N: gl.constexpr):
    """In which iterations a consumer's 64 queries attend to keys; the last keys come first."""
    first, end = tile.t0, tile.end()
    full_blocks = problem.N_k // BLOCK_N  # so many blocks of keys, from the left, need no mask
    if problem.MASK == "ranges":
        low, full_high = problem.key_range(tile.start_m, tile.batch)
        full_low, high = problem.key_range(tile.start_m + ROWS - 1, tile.batch)
        stop = end - gl.minimum(gl.maximum(low // BLOCK_N - tile.first_block, 0), tile.blocks)
        first = end - gl.minimum(gl.maximum(gl.cdiv(high, BLOCK_N) - tile.first_block, 0), tile.blocks)
        stop = gl.maximum(stop, first)
        masked = gl.minimum(gl.maximum(end - (full_high // BLOCK_N - tile.first_block), first + 1), stop)
        full = gl.minimum(gl.maximum(end - (gl.cdiv(full_low, BLOCK_N) - tile.first_block), masked), stop)
        return Iterations(first, masked, full, stop)
    if problem.MASK == "causal":
        last = tile.start_m + problem.N_k - problem.N_q  # the last key that the first query attends to
        full_blocks = gl.minimum(gl.maximum(last + 1, 0), problem.N_k) // BLOCK_N
        end_of_all = gl.minimum(gl.maximum(last + ROWS, 0), problem.N_k)
        first = end - gl.minimum(gl.cdiv(end_of_all, BLOCK_N), tile.blocks)
    return Iterations(first, gl.maximum(end - full_blocks, first + 1), end, end)


@gluon.jit
def hide(s, t, q_tile, problem):
    """S_t (64, BLOCK_N) with -inf where a query does not attend to a key, or where there is no such key."""
    BLOCK_N: gl.constexpr = s.shape[1]
    offs_n = q_tile.tile.block(t) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, s.type.layout))  # (BLOCK_N,)
    if problem.MASK == "ranges":
        visible = (offs_n[None, :] >= q_tile.low[:, None]) & (offs_n[None, :] < q_tile.high[:, None])
    else:
        visible = (offs_n < problem.N_k)[None, :]
        if problem.MASK == "causal":
            visible = visible & (offs_n[None, :] <= q_tile.offs_m[:, None] + problem.N_k - problem.N_q)
    return gl.where(visible, s, float("-inf"))
