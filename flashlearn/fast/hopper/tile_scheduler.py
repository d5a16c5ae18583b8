"""Which tile a CTA of a Hopper kernel takes, and where that tile is.

    PersistentTileScheduler    forward: a CTA computes one tile of queries after another. Dynamic where a counter is given: a CTA's first
                               tile index is its own number. Its producer warp takes each next one from an atomic counter and
                               passes it to the consumers through shared memory. Otherwise static: the next tile index is
                               larger by the number of CTAs
    SingleTileScheduler        backward: a CTA computes one tile of keys. In deterministic order its index is from an atomic counter:
                               it waits for CTAs of lower indices alone (`flashlearn.fast.hopper.semaphores`)

CTAs that run at the same time should read the same K and V, so that the L2 cache serves them: one head after the other.
And all should end at the same time: the longest blocks of all heads first. Under a mask the tiles of a head differ in
length, in the same way in every head. A few heads in parallel are between the two, the longest causal tiles first.

Deterministic, the next block of keys of a head should begin an iteration or more after the one before, which has then added
to dQ. So a few heads run in parallel; with more than needed, less of Q, dO and dQ is shared in the L2 cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from flashlearn.fast.decode import workspace
from flashlearn.fast.hopper.ranges import Ranges
from flashlearn.fast.hopper.versions import aggregate
from flashlearn.fast.launcher import sm_count

# Iterations after which the next block of keys of a head begins, measured; with ranges, of those that attend to a key in the mean
LAGS = {"none": 1.5, "causal": 2.0, "long causal": 6.0, "ranges": 1.0}
LONG = 4096  # keys of a long causal head
IN_L2 = 2**24  # bytes of K and V of heads that run in parallel with masks


def beside(heads: int, iterations: int, resident: int, lag: float) -> int:
    """The number of heads that run in parallel, if a CTA takes so many iterations and `resident` CTAs run at a time.

    A CTA ends, and another begins, every iterations / resident iterations; of one head, every `lag` iterations.
    """
    return in_even_sets(heads, max(1, min(heads, round(lag * resident / iterations))))


def in_even_sets(heads: int, side: int) -> int:
    """So many heads at a time, or a few more, so that all sets are about as large: a small last set keeps few CTAs busy."""
    return -(-heads // max(heads // side, 1))


def heads_of_a_wave(tiles: int, resident: int) -> int:
    """The number of heads of causal tiles that run in parallel: enough to keep all CTAs busy, 2 to 16.

    With more, CTAs read K and V of too many heads for the L2 cache; with fewer, the last head ends late.
    """
    return max(2, min(16, resident // max(tiles, 1)))


def heads_of_shared_keys(heads: int, blocks: int, resident: int) -> int | None:
    """The number of key heads that run in parallel backward under a causal mask with grouped query heads.

    A head then has few CTAs, and the longest takes far longer than the others. So it is as many as keep all SMs busy.
    None: one head after the other.
    """
    side = resident // blocks
    if heads < 2 or not 2 <= side <= 16:
        return None
    return in_even_sets(heads, side)


def heads_with_masks(heads: int, nbytes: int) -> int:
    """The same with windows and documents, which make the same tiles long in all heads.

    It is limited by the L2 cache. Each head takes K and V that one query attends to, or Q, dO and dQ of the queries
    that attend to one key.
    """
    return min(heads, max(2, min(8, IN_L2 // max(nbytes, 1))))


def heads_beside(q: Tensor, k: Tensor, *, causal: bool, block_n: int) -> int | None:
    """The number of key heads that run in parallel backward, nondeterministic and without ranges; None: one after another."""
    (B, H, _, _), (_, H_kv, N_k, _) = q.shape, k.shape
    if not causal or H == H_kv:
        return None
    return heads_of_shared_keys(B * H_kv, -(-N_k // block_n), sm_count(q.device))


def heads_beside_deterministic(
    q: Tensor, k: Tensor, ranges: Ranges | None, *, causal: bool, block_m: int, block_n: int
) -> int:
    """The number of key heads that run in parallel where CTAs of `block_n` keys wait for semaphores of `block_m` queries.

    With grouped heads they are twice as many as nondeterministic: more of the CTAs that wait are then of other heads.
    With ranges `causal` is ignored.
    """
    (B, H, N_q, _), (_, H_kv, N_k, _) = q.shape, k.shape
    attending = N_q if ranges is None else min(N_q, round(ranges.mean) + block_n)  # to the keys of a CTA
    heads, iterations = B * H_kv, H // H_kv * -(-attending // block_m)
    mask = "ranges" if ranges is not None else "none" if not causal else "causal" if N_k < LONG else "long causal"
    shared = heads_beside(q, k, causal="causal" in mask, block_n=block_n)
    if shared is not None:
        return min(heads, 2 * shared)
    return beside(heads, iterations, sm_count(q.device), LAGS[mask])


def tile_counter(device: torch.device) -> Tensor:
    """int32, the first of which is the atomic counter of tile indices: 0, and reset to 0 by the CTA that takes the last.

    It is one of the counters that decoding keeps for each stream (`flashlearn.fast.decode.workspace`), so that no kernel
    has to write a 0 first. A CUDA graph gets its own.
    """
    kept = device.type != "cpu" and not torch.cuda.is_current_stream_capturing()
    return workspace(device, kept, 0, 0, 1)[2]


@gluon.jit
def side_by_side(index, side, blocks, heads):
    """The block and the head of tile number `index`, if heads of so many blocks are taken `side` at a time: block 0 of each of
    them, then block 1 of each, ..."""
    first = index // (side * blocks) * side
    within = index % (side * blocks)
    width = gl.minimum(side, heads - first)  # the last heads may be fewer
    return within // width, first + within % width


@aggregate
class PersistentTileScheduler:
    """Forward: tile indices for a CTA, static or dynamic; i counts its tiles."""

    slots: Any  # (2, 1) int32 in shared memory: the tile index after the i-th is in slot i % 2
    full: Any  # (2, 1) barriers of the slots
    counter_ptr: Any  # (1,) int32: how many tile indices are taken; None: a static schedule
    heads_at_once: Any  # heads that run in parallel, under a mask
    problem: Any
    HEIGHT: Any  # queries of a tile

    @gluon.jit
    def tiles(self):
        """How many tiles there are, in all heads of all sequences."""
        return self.problem.batches * self.problem.heads * gl.cdiv(self.problem.N_q, self.HEIGHT)

    @gluon.jit
    def coordinates(self, index):
        """The first query of a tile, and its head, counted over all sequences."""
        problem = self.problem
        tiles = gl.cdiv(problem.N_q, self.HEIGHT)  # of a head
        if problem.MASK == "none":
            head, tile = index // tiles, index % tiles
        else:
            tile, head = side_by_side(index, self.heads_at_once, tiles, problem.batches * problem.heads)
            if problem.MASK == "causal":
                tile = tiles - 1 - tile
        return tile * self.HEIGHT, head

    @gluon.jit
    def fetch_next(self, i, index):
        """The producer warp: the tile index after this one, the i-th.

        Its slot is free: a consumer reads it before it releases its Q of tile i - 2, and that Q's buffer has been acquired since.
        """
        if self.counter_ptr is not None:
            ONE: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
            taken = gl.atomic_add(self.counter_ptr, 1, sem="relaxed")
            # One index is taken after each tile, so that this is the last one: 0 again, for the next launch
            if taken == self.tiles() - 1:
                gl.atomic_add(self.counter_ptr, -self.tiles(), sem="relaxed")
            index = gl.num_programs(0) + taken
            self.slots.index(i % 2).store(gl.zeros([1], gl.int32, ONE) + index)
            mbarrier.arrive(self.full.index(i % 2), count=1)
        else:
            index += gl.num_programs(0)
        return index

    @gluon.jit
    def receive_next(self, i, index):
        """A consumer: the tile index after this one, the i-th."""
        if self.counter_ptr is not None:
            ONE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
            mbarrier.wait(self.full.index(i % 2), i // 2 & 1)
            index = gl.sum(self.slots.index(i % 2).load(ONE), 0)
        else:
            index += gl.num_programs(0)
        return index


@aggregate
class TileCoordinates:
    """The keys of a CTA, and the blocks of queries that attend to them."""

    start_n: Any  # first key
    kv_head: Any
    batch: Any
    first: Any  # first block of queries
    full: Any  # blocks full .. full_stop need no mask
    full_stop: Any
    blocks: Any  # how many, for each query head


@gluon.jit
def causal_blocks(start_n, problem):
    """Under a causal mask: the first block with a query that attends to a key of the CTA, and the first that needs no mask."""
    diagonal = problem.N_k - problem.N_q
    first = gl.maximum(start_n - diagonal, 0) // problem.BLOCK_M
    return first, gl.cdiv(gl.maximum(start_n + problem.BLOCK_N - 1 - diagonal, 0), problem.BLOCK_M)


@aggregate
class SingleTileScheduler:
    """Backward: the one tile of a CTA, that of its coordinates in the grid, or an index among heads that run in parallel."""

    tile: Any  # TileCoordinates, unless SIDE_BY_SIDE
    heads_at_once: Any  # the number of heads that run in parallel
    problem: Any
    index_smem: Any  # the tile index from the atomic counter, if DETERMINISTIC; else None, and it is the CTA's number

    @gluon.jit
    def coordinates(self):
        """The tile of this CTA, in a partition.

        Where heads run in parallel each partition computes it, and again after its iterations. Values from before the warps part
        would take registers of a consumer in every iteration, more than there are.
        """
        tile = self.tile
        if self.problem.SIDE_BY_SIDE:
            if self.problem.DETERMINISTIC:
                index = load_tile_index(self.index_smem)
            else:
                index = opaque(gl.program_id(0))
            tile = tile_side_by_side(index, self.heads_at_once, self.problem)
        return tile


@gluon.jit
def make_scheduler(heads_at_once, index_smem, problem):
    """The scheduler of this CTA, before the warps part; the grid is (blocks of keys, key heads, sequences) unless SIDE_BY_SIDE."""
    start_n = gl.program_id(0) * problem.BLOCK_N  # most queries attend to the first keys: they start first
    first = 0
    full = 0
    if problem.MASK == "causal" and not problem.SIDE_BY_SIDE:
        first, full = causal_blocks(start_n, problem)
    blocks = gl.maximum(gl.cdiv(problem.N_q, problem.BLOCK_M) - first, 0)
    tile = TileCoordinates(start_n, gl.program_id(1), gl.program_id(2), first, full, full, blocks)
    return SingleTileScheduler(tile, heads_at_once, problem, index_smem)


@gluon.jit
def tile_side_by_side(index, heads_at_once, problem):
    """The tile with this index, where `heads_at_once` heads of all sequences run in parallel."""
    key_blocks = gl.cdiv(problem.N_k, problem.BLOCK_N)
    n, head = side_by_side(index, heads_at_once, key_blocks, gl.num_programs(0) // key_blocks)
    start_n, kv_head, batch = n * problem.BLOCK_N, head % problem.kv_heads, head // problem.kv_heads
    first = 0
    full = 0
    stop = gl.cdiv(problem.N_q, problem.BLOCK_M)
    if problem.MASK == "causal":
        first, full = causal_blocks(start_n, problem)
    full_stop = full
    if problem.MASK == "ranges":
        low, full_high = problem.query_range(start_n, batch)
        full_low, high = problem.query_range(start_n + problem.BLOCK_N - 1, batch)
        first, stop = low // problem.BLOCK_M, gl.cdiv(high, problem.BLOCK_M)
        full, full_stop = gl.cdiv(full_low, problem.BLOCK_M), full_high // problem.BLOCK_M
    return TileCoordinates(start_n, kv_head, batch, first, full, full_stop, gl.maximum(stop - first, 0))


@gluon.jit
def store_tile_index(index):
    """Keep a CTA's tile index in shared memory, where each partition finds it: they part at a barrier."""
    smem = gl.allocate_shared_memory(gl.int32, [1], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    smem.store(gl.full([1], index, gl.int32, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])))
    return smem


@gluon.jit
def load_tile_index(smem):
    """The index that `store_tile_index` has stored."""
    return gl.sum(smem.load(gl.BlockedLayout([1], [32], [gl.num_warps()], [0])), 0)


@gluon.jit
def opaque(n):
    """n, as a value that the compiler knows nothing of: it computes what depends on it here, and again where it is asked again.

    Kept from before the iterations of a kernel until after them, it would take registers in all of them.
    """
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [n], dtype=gl.int32, is_pure=False, pack=1)
