"""What both backward kernels for Hopper GPUs share: which keys and queries a CTA takes, the mask, and P^T from S^T.

A CTA owns BLOCK_N keys of one key head. Every partition of it (producer, consumers, the warps that add to dQ) computes the
same tile coordinates and walks over the same blocks of queries, from the last block up.

    SingleTileScheduler.coordinates -> TileCoordinates once in each partition
    first_query_block, next_query_block                once in each iteration
    query_ranges, needs_mask, hide                     which queries attend to a key
    initial_accumulator, probabilities, register_order         tiles of a consumer, 64 keys high

Source: T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 2; its line numbers are in the kernels.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashlearn.fast.hopper.softmax import capped
from flashlearn.fast.hopper.versions import aggregate
from flashlearn.fast.online_softmax import LOG2E

KEYS = gl.constexpr(64)  # keys of a consumer warpgroup: the height of one wgmma
LSE, DELTA = gl.constexpr(0), gl.constexpr(1)  # the two rows of a tile of statistics


@aggregate
class BackwardProblem:
    """Sizes, factors on scores, the mask, and how the work is cut."""

    N_q: Any
    N_k: Any
    kv_heads: Any
    group: Any  # query heads that share a key head
    scale: Any  # on Q K^T
    softcap: Any  # or None
    ranges_ptr: Any  # (B or 1, 2, N_k): the first query that attends to each key, and the one after the last; or None
    range_stride: Any  # between two sequences; 0 if all have the same ranges
    MASK: Any  # "none", "causal" or "ranges"
    BLOCK_M: Any  # queries of a block
    BLOCK_N: Any  # keys of a CTA
    DETERMINISTIC: Any  # the additions to dQ have one order
    SIDE_BY_SIDE: Any  # heads run in parallel; else the grid has axes for heads and sequences

    @gluon.jit
    def query_range(self, j, batch):
        """The queries low .. high that attend to key j of a sequence, or to many keys; past the last key, those of the last."""
        ptr = self.ranges_ptr + batch.to(gl.int64) * self.range_stride + gl.minimum(j, self.N_k - 1)
        return gl.load(ptr), gl.load(ptr + self.N_k)


@aggregate
class Inputs:
    """Descriptors."""

    q: Any
    do: Any
    k: Any
    v: Any
    stats: Any


@aggregate
class QueryBlock:
    """A block of queries of a query head."""

    head: Any  # of all query heads; for consumers, which need the block alone, counted from the first that shares the keys
    block: Any


@aggregate
class QueryRanges:
    """For each of 64 keys, (64,): the first query that attends to it, and how many do."""

    low: Any
    count: Any


@aggregate
class Probabilities:
    """P^T (64, BLOCK_M), and the factor on dP^T - delta that makes dS^T of it: P^T, times 1 - tanh^2 under a softcap."""

    p_t: Any
    dp_factor: Any


@gluon.jit
def first_query_block(head, tile):
    """The block of queries of iteration 0, if `head` is the first: the last one, since every key is attended to from there."""
    return QueryBlock(head, tile.first + tile.blocks - 1)


@gluon.jit
def next_query_block(at, first_head, tile, problem):
    """The block of queries of the next iteration: the one above, and after the first block of a head the next head.

    Deterministic: the same block of the next head, and after the last head the block above. A CTA waits for those of the keys
    before, which take more blocks. Head by head it would wait for the longest at the last block of each head.
    """
    if problem.DETERMINISTIC:
        over = at.head + 1 == first_head + problem.group
        head, block = gl.where(over, first_head, at.head + 1), gl.where(over, at.block - 1, at.block)
    else:
        over = at.block == tile.first
        head, block = gl.where(over, at.head + 1, at.head), gl.where(over, tile.first + tile.blocks, at.block) - 1
    return QueryBlock(head, block)


@gluon.jit
def query_block_of(t, tile, problem):
    """The block of queries of iteration t, deterministic: where `next_query_block` comes to."""
    last = tile.first + tile.blocks - 1
    return QueryBlock(tile.kv_head * problem.group + t % problem.group, last - t // problem.group)


@gluon.jit
def query_ranges(start_n, batch, problem):
    """The queries that attend to each of the 64 keys from start_n on; none where a key does not exist."""
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, problem.BLOCK_M, 16])
    LAYOUT: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    offs_n = start_n + gl.arange(0, KEYS, LAYOUT)
    low, count = gl.zeros([KEYS], gl.int32, LAYOUT), gl.full([KEYS], problem.N_q, gl.int32, LAYOUT)
    if problem.MASK == "causal":
        low = offs_n - (problem.N_k - problem.N_q)  # past the last key: past the last query
    if problem.MASK == "ranges":
        low, high = problem.query_range(offs_n, batch)
        count = gl.maximum(high - low, 0)
    return QueryRanges(low, gl.where(offs_n < problem.N_k, count, 0))


@gluon.jit
def needs_mask(block, end_n, tile, problem):
    """Whether some query of a block may not attend to some key before end_n, or there is no such key or query."""
    tail = end_n > problem.N_k  # lse knows nothing of keys past the end: P must be 0
    masked = (block < tile.full) | tail | (block * problem.BLOCK_M + problem.BLOCK_M > problem.N_q)
    if problem.MASK == "ranges":
        masked = masked | (block >= tile.full_stop)
    return masked


@gluon.jit
def hide(x, hidden, ranges, start_m, problem):
    """x (64, BLOCK_M), with the value `hidden` where a query does not attend to a key, or there is no such key or query."""
    offs_m = start_m + gl.arange(0, x.shape[1], gl.SliceLayout(0, x.type.layout))  # (BLOCK_M,)
    if problem.MASK == "causal":
        x = gl.where(offs_m[None, :] >= ranges.low[:, None], x, hidden)
        if start_m + x.shape[1] > problem.N_q:
            x = gl.where((offs_m < problem.N_q)[None, :], x, hidden)
    else:  # unsigned compare: low <= i < low + count in one test
        visible = (offs_m[None, :] - ranges.low[:, None]).to(gl.uint32) < ranges.count[:, None].to(gl.uint32)
        x = gl.where(visible, x, hidden)
    return x


@gluon.jit
def initial_accumulator(stats_smem, WHICH: gl.constexpr):
    """The accumulator (64, BLOCK_M) of S^T or dP^T before the product: -LSE or -DELTA of each query, which the result then lacks."""
    BLOCK_M: gl.constexpr = stats_smem.shape[3]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    stats = stats_smem.reshape([2, BLOCK_M]).slice(WHICH, 1).load(LAYOUT)  # (1, BLOCK_M)
    return gl.zeros([KEYS, BLOCK_M], gl.float32, LAYOUT) - stats


@gluon.jit
def probabilities(s_t, stats_smem, masked, ranges, start_m, problem):
    """P^T, line 11, from S^T less lse; with a softcap from S^T alone."""
    if problem.softcap is None:
        p_t = gl.exp2(s_t * (problem.scale * LOG2E))
        # lse = +inf makes P = 0 past the last query; a key that is infinite gives 0 inf = NaN there, so it is hidden, too
        if masked:
            p_t = hide(p_t, 0.0, ranges, start_m, problem)
        dp_factor = p_t
    else:
        t = capped(s_t, problem.scale * (2 * LOG2E) / problem.softcap)
        if masked:  # here, where fewer registers are in use: P becomes 0, and 0 (1 - t^2) is 0
            t = hide(t, -1e18, ranges, start_m, problem)
        p_t = gl.exp2((t + initial_accumulator(stats_smem, LSE)) * (problem.softcap * LOG2E))
        dp_factor = p_t * (1.0 - t * t)
    return Probabilities(p_t, dp_factor)


@gluon.jit
def register_order(x):
    """A product (64, 64) in the order of the registers that hold it (128, 32): stored without bank conflicts.

    Number (j, h, p) of thread (w, g, t) is at row 16 w + 8 h + g and column 8 j + 2 t + p of the product. Four numbers
    of a thread are adjacent, and those of 32 threads are in one row. `postprocess` puts dQ's back into rows and
    columns.
    """
    return x.reshape([4, 2, 8, 8, 4, 2]).permute((0, 3, 2, 4, 1, 5)).reshape([128, 32])  # w h g j t p: w j g t h p
