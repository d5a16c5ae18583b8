"""The forward pass for Hopper GPUs: a producer warp loads, consumer warpgroups compute.

The mathematics is that of the teaching kernel. What differs is who does it, and when:

1. TMA loads whole tiles into shared memory, zeros past the edges. A descriptor holds shape and strides.
2. The producer warp keeps up to `STAGES` tiles of K and V under way. Two or three consumer warpgroups, each with its own
   64 queries, wait for them on barriers and multiply. The producer gives its registers to the consumers.
3. P_{j-1} V_{j-1} is issued together with Q K_j^T and waited for after the softmax of block j, so that the tensor cores
   run while exponentials are taken. P stays in registers between the two products, two 16-bit numbers in each.
4. Keys are visited from right to left: blocks that need a mask come first. With a window more of them come last.
5. CTAs are persistent. Tiles come from a static schedule, or from an atomic counter where tiles take different times or
   SMs do. Without a mask, two consumers compute the next tile's first scores while this tile's o is finished.
6. Short causal tiles at D = 64 have two CTAs per SM. A consumer then has 104 registers a thread, and does one thing after
   the other: the other CTA fills its gaps.
7. Three consumers at D = 64 keep an old row maximum until a row sum grows too large (`trust`).
8. From 129 columns on blocks have 64 keys; up to 192 columns a tile is three chunks of 64.

Windows, documents and padding are one range of keys for every query (`flashlearn.fast.hopper.ranges`). Findings and
figures: docs/engineering_log.md. Written in Gluon, with the names of Triton 3.6 to 3.8.
Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv:2407.08608), Algorithms 1 and 2.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flashlearn.core.inputs import check_bool
from flashlearn.fast.dispatch import hopper_width
from flashlearn.fast.hopper.ranges import Ranges
from flashlearn.fast.hopper.scheduling import heads_of_a_wave, heads_with_masks, side_by_side, tile_counter
from flashlearn.fast.hopper.softcap import capped, with_softcap
from flashlearn.fast.hopper.tiles import in_tiles, launch_hopper
from flashlearn.fast.hopper.versions import async_load, async_store, barrier
from flashlearn.fast.launcher import sm_count, uninitialised
from flashlearn.fast.online_softmax import LOG2E

ROWS = gl.constexpr(64)  # queries of one warpgroup: the height of one wgmma
LN_2 = gl.constexpr(0.6931471805599453)
# Up to such a sum of 32 exponentials, each of them, of at most as much, is a number in 16 bits
TRUSTED = gl.constexpr(2.0**15)


class Buffers(NamedTuple):
    """Shared memory and its barriers: full once the bytes have landed, free once every consumer has read them."""

    q: Any  # (Q buffers * consumers * chunks, 1, 1, ROWS, columns); o leaves from there
    k: Any  # (STAGES * chunks, 1, 1, BLOCK_N, columns)
    v: Any  # likewise
    q_full: Any
    q_free: Any
    k_full: Any
    v_full: Any
    free: Any  # of an iteration: K of this one, V of the one before
    row_sums: Any  # (2 * consumers, ROWS) float32, see `trust`


# Sizes, scale * log2(e), the factor inside a softcap or None, and the ranges of keys.
Problem = namedtuple("Problem", "batches heads N_q N_k group qk_scale inner ranges_ptr range_stride")


class Scheduler(NamedTuple):
    """Which tile is next: from an atomic counter, or by a static schedule where that is None."""

    next_tile: Any  # (2, 1) int32 in shared memory, in turn
    next_full: Any
    counter_ptr: Any
    side: Any  # heads side by side


class TileCoordinates(NamedTuple):
    """A tile of queries, or a consumer's 64 of it, and its blocks of keys."""

    start_m: Any  # first query
    head: Any
    batch: Any
    first_block: Any  # of keys
    blocks: Any  # how many


class QTile(NamedTuple):
    """A consumer's Q."""

    chunks: Any
    full: Any  # its barrier
    phase: Any
    consumer: Any


# Descriptors.
Inputs = namedtuple("Inputs", "q k v")


class Outputs(NamedTuple):
    """Where results go, and the sinks, or None."""

    sinks_ptr: Any
    o: Any  # a descriptor
    lse_ptr: Any


class Queries(NamedTuple):
    """Of 64 queries: their numbers, the keys that each attends to, and the block of keys of iteration 0."""

    offs_m: Any
    low: Any
    high: Any
    past: Any  # iteration t is block past - t of keys


@gluon.jit(do_not_specialize=["range_stride", "side", "batches", "heads", "N_q", "N_k", "group"])
def attention_forward_hopper_kernel(
    # descriptors of q and o (B, H_q, N_q, D), tiles (ROWS, D), and of k and v (B, H_kv, N_k, D), tiles (BLOCK_N, D); or parts of
    # tiles, of 64 columns
    q_desc, k_desc, v_desc, o_desc, lse_ptr,
    # (1 or B, 2, N_q): the ranges of keys that queries see, and how far apart they lie for two sequences; if MASK is "ranges"
    ranges_ptr, range_stride,
    # (1,) int32, 0 before and after: the tile indices taken; None: fixed shares. How many rows, heads of a sequence, run side by
    # side under a mask
    counter_ptr, side,
    # (heads,) float32: one more score in the sum of every row of a head, without a value; if SINKS
    sinks_ptr,
    # sizes, scale * log2(e), and None; with a softcap c: c * log2(e), and 2 log2(e) scale / c, see `capped`
    batches, heads, N_q, N_k, group, qk_scale, inner,
    HEAD_DIM: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr, CONSUMERS: gl.constexpr,
    MASK: gl.constexpr, SINKS: gl.constexpr,  # MASK is "none", "causal" or "ranges"
    PROGRAMS: gl.constexpr = 1,  # of an SM
):  # fmt: skip
    """O and lse for one block of CONSUMERS * 64 queries after another, as many as fall to this program."""
    dtype: gl.constexpr = q_desc.dtype
    # of each consumer: 256 columns have no room for the next tile's Q, and under a mask it does not pay at 192
    Q_BUFFERS: gl.constexpr = 2 if HEAD_DIM <= (192 if MASK == "none" else 128) else 1
    COLUMNS: gl.constexpr = q_desc.block_type.shape[3]
    CHUNKS: gl.constexpr = HEAD_DIM // COLUMNS  # of each tile
    q_smem = gl.allocate_shared_memory(dtype, [Q_BUFFERS * CONSUMERS * CHUNKS, 1, 1, ROWS, COLUMNS], q_desc.layout)
    k_smem = gl.allocate_shared_memory(dtype, [STAGES * CHUNKS, 1, 1, BLOCK_N, COLUMNS], k_desc.layout)
    v_smem = gl.allocate_shared_memory(dtype, [STAGES * CHUNKS, 1, 1, BLOCK_N, COLUMNS], v_desc.layout)
    # one barrier per buffer: "full" once its bytes have landed, "free" once every consumer is done with it: for K and V one
    # of each iteration, which releases K of that iteration and V of the iteration before
    q_full = gl.allocate_shared_memory(gl.int64, [Q_BUFFERS * CONSUMERS, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [Q_BUFFERS * CONSUMERS, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(Q_BUFFERS * CONSUMERS):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_free.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(free.index(i), count=CONSUMERS)

    # what each row of a consumer adds up to in an iteration, for two iterations in turn, see `trust`
    sums_smem = gl.allocate_shared_memory(gl.float32, [2 * CONSUMERS, ROWS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    # the tile after the present one, in turn, where tiles are taken by the tile counter
    next_smem = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    next_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(next_full.index(i), count=1)

    buffers = Buffers(q_smem, k_smem, v_smem, q_full, q_free, k_full, v_full, free, sums_smem)
    scheduler = Scheduler(next_smem, next_full, counter_ptr, side)
    problem = Problem(batches, heads, N_q, N_k, group, qk_scale, inner, ranges_ptr, range_stride)
    inputs, outputs = Inputs(q_desc, k_desc, v_desc), Outputs(sinks_ptr, o_desc, lse_ptr)
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consume, (0, buffers, scheduler, problem, outputs, MASK, SINKS, PROGRAMS)),
                (consume, (1, buffers, scheduler, problem, outputs, MASK, SINKS, PROGRAMS)),
                (load, (buffers, scheduler, problem, inputs, MASK)),
            ],
            [4, 1],
            [240 if PROGRAMS == 1 else 104, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consume, (0, buffers, scheduler, problem, outputs, MASK, SINKS, PROGRAMS)),
                (consume, (1, buffers, scheduler, problem, outputs, MASK, SINKS, PROGRAMS)),
                (consume, (2, buffers, scheduler, problem, outputs, MASK, SINKS, PROGRAMS)),
                (load, (buffers, scheduler, problem, inputs, MASK)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )


@gluon.jit
def fetch_tile(i, scheduler, count):
    """The producer warp: the tile, of `count`, that this program takes after its i-th, for the consumers.

    There is room for two numbers. The one that stands here, of the tile before this one, has been read: a group reads it
    before it releases its Q of the tile two before, and Q of the i-th tile has taken that coordinates.
    """
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    ticket = gl.atomic_add(scheduler.counter_ptr, 1, sem="relaxed")
    if ticket == count - 1:  # one is taken after each tile, so this is the last: 0 again, for the next launch
        gl.atomic_add(scheduler.counter_ptr, -count, sem="relaxed")
    tile = gl.num_programs(0) + ticket
    scheduler.next_tile.index(i % 2).store(gl.zeros([1], gl.int32, ONE) + tile)
    mbarrier.arrive(scheduler.next_full.index(i % 2), count=1)
    return tile


@gluon.jit
def receive_tile(i, scheduler):
    """A consumer: the tile that the producer warp took after the i-th."""
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    mbarrier.wait(scheduler.next_full.index(i % 2), i // 2 & 1)
    return gl.sum(scheduler.next_tile.index(i % 2).load(ONE), 0)


@gluon.jit
def keys_of(i, batch, problem):
    """The keys low .. high that query i of a sequence sees, or many queries; past the last, those of the last."""
    ptr = problem.ranges_ptr + batch.to(gl.int64) * problem.range_stride + gl.minimum(i, problem.N_q - 1)
    return gl.load(ptr), gl.load(ptr + problem.N_q)


@gluon.jit
def key_ranges_of(offs_m, batch, problem, MASK: gl.constexpr):
    """The keys low .. high that each query sees, if that is in memory."""
    low, high = offs_m, offs_m
    if MASK == "ranges":
        low, high = keys_of(offs_m, batch, problem)
    return low, high


@gluon.jit
def tiles_of(problem, HEIGHT: gl.constexpr):
    """How many tiles of HEIGHT queries there are in all rows."""
    return problem.batches * problem.heads * gl.cdiv(problem.N_q, HEIGHT)


@gluon.jit
def tile_coordinates(number, side, problem, HEIGHT: gl.constexpr, BLOCK_N: gl.constexpr, MASK: gl.constexpr):
    """Where a tile lies: its first query, head and batch, its first block of keys, and how many.

    Neighbours run at the same time and read the same K and V, so that the L2 cache serves them. Under a mask some tiles have
    more to do than others, the same in every row: a few heads side by side, the longest causal tiles first.
    """
    tiles = gl.cdiv(problem.N_q, HEIGHT)
    if MASK == "none":
        row, tile = number // tiles, number % tiles
    else:
        tile, row = side_by_side(number, side, tiles, problem.batches * problem.heads)
        if MASK == "causal":
            tile = tiles - 1 - tile
    start_m = tile * HEIGHT
    end = problem.N_k  # keys from here on are seen by no query of the tile
    if MASK == "causal":
        end = gl.minimum(gl.maximum(start_m + HEIGHT + problem.N_k - problem.N_q, 0), problem.N_k)
    first = 0
    if MASK == "ranges":
        low, _ = keys_of(start_m, row // problem.heads, problem)
        _, end = keys_of(start_m + HEIGHT - 1, row // problem.heads, problem)
        first = low // BLOCK_N
    blocks = gl.where(start_m < problem.N_q, gl.maximum(gl.cdiv(end, BLOCK_N) - first, 0), 0)
    return TileCoordinates(start_m, row % problem.heads, row // problem.heads, first, blocks)


@gluon.jit
def q_buffer_of(i, index: gl.constexpr, buffers):
    """Which buffer has a group's Q of the i-th tile, and the phase of its barriers."""
    CONSUMERS: gl.constexpr = buffers.row_sums.shape[0] // 2
    EACH: gl.constexpr = buffers.q_full.shape[0] // CONSUMERS
    return i % EACH * CONSUMERS + index, i // EACH & 1


@gluon.jit
def load(buffers, scheduler, problem, inputs, MASK: gl.constexpr):
    """The producer warp: Q of every tile, then K and V from right to left, as soon as a buffer is free."""
    CONSUMERS: gl.constexpr = buffers.row_sums.shape[0] // 2
    STAGES: gl.constexpr = buffers.free.shape[0]
    BLOCK_N: gl.constexpr = buffers.k.shape[3]
    HEIGHT: gl.constexpr = CONSUMERS * ROWS
    iterations = 0  # blocks of keys so far, over all tiles
    i, tile = 0, gl.program_id(0)
    while tile < tiles_of(problem, HEIGHT):
        coordinates = tile_coordinates(tile, scheduler.side, problem, HEIGHT, BLOCK_N, MASK)
        kv_head = coordinates.head // problem.group
        for c in gl.static_range(CONSUMERS):
            q_buffer, phase = q_buffer_of(i, c, buffers)
            mbarrier.wait(buffers.q_free.index(q_buffer), phase ^ 1)  # a fresh barrier lets the first iteration pass
            load_tile(
                inputs.q,
                (coordinates.batch, coordinates.head, coordinates.start_m + c * ROWS),
                buffers.q_full,
                buffers.q,
                q_buffer,
            )
        for t in range(iterations, iterations + coordinates.blocks):
            stage = t % STAGES
            phase = (t // STAGES) & 1
            at = (
                coordinates.batch,
                kv_head,
                (coordinates.first_block + iterations + coordinates.blocks - 1 - t) * BLOCK_N,
            )
            mbarrier.wait(buffers.free.index(stage), phase ^ 1)
            load_tile(inputs.k, at, buffers.k_full, buffers.k, stage)
            mbarrier.wait(buffers.free.index((t + 1) % STAGES), ((t + 1) // STAGES & 1) ^ 1)
            load_tile(inputs.v, at, buffers.v_full, buffers.v, stage)
        iterations += coordinates.blocks
        if scheduler.counter_ptr is not None:
            tile = fetch_tile(i, scheduler, tiles_of(problem, HEIGHT))
        else:
            tile += gl.num_programs(0)
        i += 1


@gluon.jit
def load_tile(desc, at, full, smem, number):
    """All parts of a tile from TMA, to where there is room for tile `number`, which its barrier tells."""
    CHUNKS: gl.constexpr = smem.shape[0] // full.shape[0]
    batch, head, start = at
    mbarrier.expect(full.index(number), CHUNKS * desc.block_type.nbytes)
    for c in gl.static_range(CHUNKS):
        part = smem.index(number * CHUNKS + c)
        async_load(desc, [batch, head, start, c * smem.shape[4]], full.index(number), part)


@gluon.jit
def chunks_of(smem, full, number):
    """The parts of tile `number`, as matrices."""
    CHUNKS: gl.constexpr = smem.shape[0] // full.shape[0]
    parts: gl.tuple = ()
    for c in gl.static_range(CHUNKS):
        parts = parts + (smem.index(number * CHUNKS + c).reshape([smem.shape[3], smem.shape[4]]),)
    return parts


@gluon.jit
def consume(
    index: gl.constexpr, buffers, scheduler, problem, outputs, MASK: gl.constexpr, SINKS: gl.constexpr,
    PROGRAMS: gl.constexpr,
):  # fmt: skip
    """A consumer: its 64 queries of every tile."""
    CONSUMERS: gl.constexpr = buffers.row_sums.shape[0] // 2
    HEIGHT: gl.constexpr = CONSUMERS * ROWS
    BLOCK_N: gl.constexpr = buffers.k.shape[3]
    Q_BUFFERS: gl.constexpr = buffers.q_full.shape[0] // CONSUMERS
    DYNAMIC: gl.constexpr = scheduler.counter_ptr is not None
    AHEAD: gl.constexpr = MASK == "none" and CONSUMERS == 2 and PROGRAMS == 1 and Q_BUFFERS == 2
    iterations = 0  # blocks of keys so far, over all tiles
    i, tile = 0, gl.program_id(0)
    s = 0
    if AHEAD:
        s = warpgroup_mma_wait(0, deps=[scores_ahead(0, 0, index, tile < tiles_of(problem, HEIGHT), buffers)])
    while tile < tiles_of(problem, HEIGHT):
        of_tile = tile_coordinates(tile, scheduler.side, problem, HEIGHT, BLOCK_N, MASK)
        coordinates = TileCoordinates(of_tile.start_m + index * ROWS, *of_tile[1:])
        o_smem = chunks_of(buffers.q, buffers.q_full, q_buffer_of(i, index, buffers)[0])
        if AHEAD:  # the next tile's first scores are computed while this one's last product and its o are finished
            m_i, l_i, acc, pairs = attend_all(
                index, coordinates, (i, iterations), s, buffers, problem, outputs.sinks_ptr, SINKS
            )
            tile = receive_tile(i, scheduler) if DYNAMIC else tile + gl.num_programs(0)
            acc = last_product(iterations + coordinates.blocks - 1, pairs, acc, buffers)
            s = scores_ahead(i + 1, iterations + coordinates.blocks, index, tile < tiles_of(problem, HEIGHT), buffers)
            acc = waited(acc, len(acc))  # of the products under way those of S, as many, are younger
            finish(m_i, l_i, acc, coordinates, o_smem, problem, outputs.o, outputs.lse_ptr)
            s = warpgroup_mma_wait(0, deps=[s])
        else:
            if PROGRAMS == 1:
                m_i, l_i, acc = attend(
                    index, coordinates, (i, iterations), buffers, problem, outputs.sinks_ptr, MASK, SINKS
                )
            else:
                m_i, l_i, acc = attend_sequentially(
                    index, coordinates, (i, iterations), buffers, problem, outputs.sinks_ptr, MASK, SINKS
                )
            tile = receive_tile(i, scheduler) if DYNAMIC else tile + gl.num_programs(0)
            finish(m_i, l_i, acc, coordinates, o_smem, problem, outputs.o, outputs.lse_ptr)
            release_q(i + 1, index, buffers, True)
        iterations += coordinates.blocks
        i += 1
    tma.store_wait(0)


@gluon.jit
def attend_all(index: gl.constexpr, coordinates, so_far, s, buffers, problem, sinks_ptr, SINKS: gl.constexpr):
    """As `attend`, where all queries see all keys: s is S of the first iteration, and the last product is left, with its P."""
    i, iterations = so_far
    q_tile, queries, sums = begin(index, coordinates, so_far, buffers, problem, sinks_ptr, "none", SINKS)
    m_i, l_i, acc = sums
    m_i, l_i, pairs = first_iteration(iterations, queries, s, (m_i, l_i), buffers, problem, "none")
    release_q(i, index, buffers)
    for t in range(iterations + 1, iterations + coordinates.blocks):
        m_i, l_i, acc, pairs = full_iteration(t, q_tile, pairs, (m_i, l_i, acc), buffers, problem)
    return m_i, l_i, acc, pairs


@gluon.jit
def attend(
    index: gl.constexpr, coordinates, so_far, buffers, problem, sinks_ptr, MASK: gl.constexpr, SINKS: gl.constexpr
):
    """m (64,), l (64, 4) and the sum of P V (64, D) of 64 queries; `so_far`: tiles and iterations of this program before them."""
    i, iterations = so_far
    BLOCK_N: gl.constexpr = buffers.k.shape[3]
    # as fast, and compiled sooner
    ONE_LOOP: gl.constexpr = MASK == "causal" and problem.inner is None and buffers.row_sums.shape[0] == 4
    q_tile, queries, sums = begin(index, coordinates, so_far, buffers, problem, sinks_ptr, MASK, SINKS)
    m_i, l_i, acc = sums
    first, masked, full, stop = iterations_of(coordinates, iterations, problem, MASK, BLOCK_N)
    for t in range(iterations, first):  # only consumers below see these keys
        release_unread(t, buffers)
    mbarrier.wait(q_tile.full, q_tile.phase)
    if stop > first:
        mbarrier.wait(buffers.k_full.index(first % buffers.free.shape[0]), (first // buffers.free.shape[0]) & 1)
        s = warpgroup_mma_wait(0, deps=[scores(first, q_tile.chunks, buffers)])
        m_i, l_i, pairs = first_iteration(first, queries, s, (m_i, l_i), buffers, problem, MASK)
        release_q(i, index, buffers)
        if ONE_LOOP:
            for t in range(first + 1, stop):
                m_i, l_i, acc, pairs = causal_iteration(
                    t, masked, queries, q_tile, pairs, (m_i, l_i, acc), buffers, problem
                )
        else:
            for t in range(first + 1, masked):
                m_i, l_i, acc, pairs = masked_iteration(
                    t, queries, q_tile, pairs, (m_i, l_i, acc), buffers, problem, MASK
                )
            for t in range(masked, full):
                m_i, l_i, acc, pairs = full_iteration(t, q_tile, pairs, (m_i, l_i, acc), buffers, problem)
        if MASK == "ranges":
            for t in range(full, stop):
                m_i, l_i, acc, pairs = masked_iteration(
                    t, queries, q_tile, pairs, (m_i, l_i, acc), buffers, problem, MASK
                )

        acc = waited(last_product(stop - 1, pairs, acc, buffers))
    else:
        release_q(i, index, buffers)
    if MASK == "ranges":
        for t in range(stop, iterations + coordinates.blocks):  # only consumers above see these keys
            release_unread(t, buffers)
    return m_i, l_i, acc


@gluon.jit
def attend_sequentially(
    index: gl.constexpr, coordinates, so_far, buffers, problem, sinks_ptr, MASK: gl.constexpr, SINKS: gl.constexpr
):
    """As `attend`, with one product or softmax after the other, for want of registers: other groups fill the gaps."""
    i, iterations = so_far
    q_tile, queries, sums = begin(index, coordinates, so_far, buffers, problem, sinks_ptr, MASK, SINKS)
    first, masked, full, stop = iterations_of(coordinates, iterations, problem, MASK, buffers.k.shape[3])
    for t in range(iterations, first):  # only consumers below see these keys
        release_unread(t, buffers)
    mbarrier.wait(q_tile.full, q_tile.phase)
    for t in range(first, gl.minimum(masked, stop)):
        sums = sequential_iteration(t, queries, q_tile, sums, buffers, problem, MASK, True)
    release_q(i, index, buffers)
    for t in range(masked, full):
        sums = sequential_iteration(t, queries, q_tile, sums, buffers, problem, MASK, False)
    if MASK == "ranges":
        for t in range(full, stop):
            sums = sequential_iteration(t, queries, q_tile, sums, buffers, problem, MASK, True)
        for t in range(stop, iterations + coordinates.blocks):  # only consumers above see these keys
            release_unread(t, buffers)
    return sums


@gluon.jit
def begin(
    index: gl.constexpr, coordinates, so_far, buffers, problem, sinks_ptr, MASK: gl.constexpr, SINKS: gl.constexpr
):
    """What 64 queries begin with: their Q with its barrier; their numbers, keys and blocks of keys; and m, l and acc."""
    i, iterations = so_far
    BLOCK_N: gl.constexpr = buffers.k.shape[3]
    COLUMNS: gl.constexpr = buffers.q.shape[4]  # of a part
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    offs_m = coordinates.start_m + gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))  # (64,)
    low, high = key_ranges_of(offs_m, coordinates.batch, problem, MASK)  # on their way while Q is
    q_buffer, phase = q_buffer_of(i, index, buffers)
    q_tile = QTile(chunks_of(buffers.q, buffers.q_full, q_buffer), buffers.q_full.index(q_buffer), phase, index)
    queries = Queries(
        offs_m, low, high, coordinates.first_block + iterations + coordinates.blocks - 1
    )  # iteration t is this block of keys, less t
    m_i, l_i = nothing_yet(sinks_ptr, coordinates.head, BLOCK_N, S_LAYOUT, SINKS)
    acc: gl.tuple = ()
    for _ in gl.static_range(len(q_tile.chunks)):
        acc = acc + (gl.zeros([ROWS, COLUMNS], gl.float32, O_LAYOUT),)
    return q_tile, queries, (m_i, l_i, acc)


@gluon.jit
def scores_ahead(i, t, index: gl.constexpr, there, buffers):
    """S of iteration t, the first of tile i, under way; of what lies in memory, for nobody, if there is no such tile."""
    STAGES: gl.constexpr = buffers.free.shape[0]
    q_buffer, phase = q_buffer_of(i, index, buffers)
    mbarrier.wait(buffers.q_full.index(q_buffer), phase, pred=there)
    mbarrier.wait(buffers.k_full.index(t % STAGES), t // STAGES & 1, pred=there)
    return scores(t, chunks_of(buffers.q, buffers.q_full, q_buffer), buffers)


@gluon.jit
def release_q(i, index: gl.constexpr, buffers, ENDED: gl.constexpr = False):
    """The buffer of the tile before the i-th, once its o has left; if there is one alone, when that tile has ENDED."""
    ALONE: gl.constexpr = 2 * buffers.q_full.shape[0] == buffers.row_sums.shape[0]
    if ENDED == ALONE and i > 0:
        tma.store_wait(0)
        mbarrier.arrive(buffers.q_free.index(q_buffer_of(i - 1, index, buffers)[0]), count=1)


@gluon.jit
def nothing_yet(sinks_ptr, head, BLOCK_N: gl.constexpr, S_LAYOUT: gl.constexpr, SINKS: gl.constexpr):
    """m (64,) and l (64, 4) of 64 queries before any key."""
    m_i = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, S_LAYOUT))
    l_i = sums_of_threads(gl.zeros([ROWS, BLOCK_N], gl.float32, S_LAYOUT))
    if SINKS:  # exp(sink - m) = 1 is in the sum from the start, a quarter with each thread
        m_i = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, S_LAYOUT)) + gl.load(sinks_ptr + head) * LOG2E
        l_i += 0.25
    return m_i, l_i


@gluon.jit
def iterations_of(coordinates, iterations, problem, MASK: gl.constexpr, BLOCK_N: gl.constexpr):
    """(first, masked, full, stop), iterations of a tile: the 64 queries from start_m on see keys in first .. stop alone, and
    in masked .. full they see all; the last keys come first."""
    first = iterations
    end = iterations + coordinates.blocks
    full_blocks = problem.N_k // BLOCK_N  # of these blocks of keys, from the left, none needs a mask
    if MASK == "ranges":
        low, full_high = keys_of(coordinates.start_m, coordinates.batch, problem)
        full_low, high = keys_of(coordinates.start_m + ROWS - 1, coordinates.batch, problem)
        stop = end - gl.minimum(gl.maximum(low // BLOCK_N - coordinates.first_block, 0), coordinates.blocks)
        first = end - gl.minimum(gl.maximum(gl.cdiv(high, BLOCK_N) - coordinates.first_block, 0), coordinates.blocks)
        masked = gl.minimum(
            gl.maximum(end - (full_high // BLOCK_N - coordinates.first_block), first + 1), gl.maximum(stop, first)
        )
        full = gl.minimum(
            gl.maximum(end - (gl.cdiv(full_low, BLOCK_N) - coordinates.first_block), masked), gl.maximum(stop, first)
        )
        return first, masked, full, gl.maximum(stop, first)
    if MASK == "causal":
        seen = coordinates.start_m + problem.N_k - problem.N_q
        full_blocks = gl.minimum(gl.maximum(seen + 1, 0), problem.N_k) // BLOCK_N
        first = end - gl.minimum(
            gl.cdiv(gl.minimum(gl.maximum(seen + ROWS, 0), problem.N_k), BLOCK_N), coordinates.blocks
        )
    return first, gl.maximum(end - full_blocks, first + 1), end, end


@gluon.jit
def release_unread(t, buffers):
    """An iteration of which a consumer sees no key: its buffers are not released before they are full."""
    STAGES: gl.constexpr = buffers.free.shape[0]
    mbarrier.wait(buffers.k_full.index(t % STAGES), (t // STAGES) & 1)
    mbarrier.wait(buffers.v_full.index(t % STAGES), (t // STAGES) & 1)
    mbarrier.arrive(buffers.free.index(t % STAGES), count=1)


@gluon.jit
def scores(t, q, buffers):
    """S_t = Q K_t^T (64, BLOCK_N), under way."""
    BLOCK_N: gl.constexpr = buffers.k.shape[3]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    k = chunks_of(buffers.k, buffers.k_full, t % buffers.free.shape[0])
    s = gl.zeros([ROWS, BLOCK_N], gl.float32, S_LAYOUT)
    for c in gl.static_range(len(k)):
        s = warpgroup_mma(q[c], k[c].permute((1, 0)), s, use_acc=c > 0, is_async=True)
    return s


@gluon.jit
def plus_product(p, v, acc):
    """acc + P V, part by part, under way."""
    out: gl.tuple = ()
    for c in gl.static_range(len(acc)):
        out = out + (warpgroup_mma(p, v[c], acc[c], is_async=True),)
    return out


@gluon.jit
def waited(acc, PENDING: gl.constexpr = 0):
    """The parts of a sum, once no more than so many products are under way."""
    if len(acc) == 1:
        return (warpgroup_mma_wait(PENDING, deps=[acc[0]]),)
    else:
        return warpgroup_mma_wait(PENDING, deps=acc)


@gluon.jit
def products(t, q_tile, pairs, acc, buffers):
    """S_t, waited for, and acc + P_{t-1} V_{t-1}, still under way."""
    STAGES: gl.constexpr = buffers.free.shape[0]
    before = (t - 1) % STAGES
    mbarrier.wait(buffers.k_full.index(t % STAGES), (t // STAGES) & 1)
    s_next = scores(t, q_tile.chunks, buffers)
    mbarrier.wait(buffers.v_full.index(before), ((t - 1) // STAGES) & 1)
    acc_next = plus_product(from_pairs(pairs, acc, buffers.v.dtype), chunks_of(buffers.v, buffers.v_full, before), acc)
    s = warpgroup_mma_wait(len(acc), deps=[s_next])
    return s, acc_next


@gluon.jit
def online_softmax_update(t, q_tile, sums, s, buffers, problem):
    """The softmax of S_t while P_{t-1} V_{t-1} is under way, then acc rescaled: m, l, acc, and P in pairs.

    Three consumers have 160 registers a thread: they round P once the product before no longer needs its factors.
    """
    m_i, l_i, acc_next = sums
    THREE: gl.constexpr = buffers.row_sums.shape[0] == 6
    m_i, l_i, p, alpha = softmax_step(m_i, l_i, s, problem.qk_scale)
    l_i += sums_of_threads(p)
    if not THREE:
        pairs = in_pairs(p, buffers.v.dtype)
    # passed long ago: asked again, since the assembler moves the wait below up to here, and no further
    mbarrier.wait(q_tile.full, q_tile.phase)
    acc = waited(acc_next)
    if THREE:
        pairs = in_pairs(p, buffers.v.dtype)
    mbarrier.arrive(buffers.free.index(t % buffers.free.shape[0]), count=1)
    return m_i, l_i, rescaled(acc, alpha), pairs


@gluon.jit
def trust(t, q_tile, sums, s, buffers, problem):
    """As `online_softmax_update`, with the maximum so far: a new one is looked for only if some row adds up to too much with this one.

    exp2(s - m) is exact for any m with which nothing overflows, and the sum is needed anyhow. Where m is too old, for a row that has seen no key yet too, S is computed once more:
    K is still there.
    """
    m_i, l_i, acc_next = sums
    p = gl.exp2(capped(s, problem.inner) * problem.qk_scale - m_i[:, None])
    of_block = sums_of_threads(p)
    row_sums = buffers.row_sums.index(q_tile.consumer * 2 + t % 2)
    row_sums.store(gl.max(of_block, 1))
    barrier()
    most = gl.max(row_sums.load(gl.BlockedLayout([2], [32], [4], [0])), 0)  # of all rows: every warp takes the same way
    acc = waited(acc_next)
    if not (most <= TRUSTED):
        s = capped(warpgroup_mma_wait(0, deps=[scores(t, q_tile.chunks, buffers)]), problem.inner)
        m_i, l_i, p, alpha = softmax_step(m_i, l_i, s, problem.qk_scale)
        acc, of_block = rescaled(acc, alpha), sums_of_threads(p)
    pairs = in_pairs(p, buffers.v.dtype)
    mbarrier.arrive(buffers.free.index(t % buffers.free.shape[0]), count=1)
    return m_i, l_i + of_block, acc, pairs


@gluon.jit
def rescaled(acc, alpha):
    """acc (64, D), its rows times alpha (64,)."""
    alpha = gl.convert_layout(alpha, gl.SliceLayout(1, acc[0].type.layout))[:, None]
    out: gl.tuple = ()
    for c in gl.static_range(len(acc)):
        out = out + (acc[c] * alpha,)
    return out


@gluon.jit
def in_pairs(p, dtype: gl.constexpr):
    """P (64, BLOCK_N) rounded to 16 bits, neighbours in one register: (64, BLOCK_N / 2) int32.

    As 16-bit numbers, carried from iteration to iteration, they would take a register each.
    """
    low, high = p.reshape([p.shape[0], p.shape[1] // 2, 2]).split()
    name: gl.constexpr = "f16x2" if dtype == gl.float16 else "bf16x2"
    asm: gl.constexpr = "cvt.rn." + name + ".f32 $0, $2, $1;"
    return gl.inline_asm_elementwise(asm, "=r,f,f", [low, high], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def from_pairs(pairs, acc, dtype: gl.constexpr):
    """P (64, BLOCK_N) as the left factor of a product that is added to acc."""
    if dtype == gl.float16:
        low, high = gl.inline_asm_elementwise(
            "mov.b32 {$0, $1}, $2;", "=h,=h,r", [pairs], dtype=(gl.float16, gl.float16), is_pure=True, pack=1
        )
    else:
        low, high = gl.inline_asm_elementwise(
            "mov.b32 {$0, $1}, $2;", "=h,=h,r", [pairs], dtype=(gl.bfloat16, gl.bfloat16), is_pure=True, pack=1
        )
    p = gl.join(low, high).reshape([pairs.shape[0], 2 * pairs.shape[1]])
    return gl.convert_layout(p, gl.DotOperandLayout(0, acc[0].type.layout, 2))


@gluon.jit
def last_product(t, pairs, acc, buffers):
    """acc + P_t V_t, when no iteration follows; still under way."""
    STAGES: gl.constexpr = buffers.free.shape[0]
    mbarrier.wait(buffers.v_full.index(t % STAGES), (t // STAGES) & 1)
    return plus_product(from_pairs(pairs, acc, buffers.v.dtype), chunks_of(buffers.v, buffers.v_full, t % STAGES), acc)


@gluon.jit
def finish(m_i, l_i, acc, coordinates, o_smem, problem, o_desc, lse_ptr):
    """o = acc / l and lse = m + log l of 64 queries; o goes on its way from the buffer of their Q, which is no longer needed."""
    l_i = gl.convert_layout(gl.sum(l_i, 1), m_i.type.layout)
    l_i = gl.where(l_i == 0.0, 1.0, l_i)  # a row that saw no key: o = 0 / 1, lse = -inf + 0
    o = rescaled(acc, 1.0 / l_i)  # (64, D)
    lse = (m_i + gl.log2(l_i)) * LN_2
    offs_m = coordinates.start_m + gl.arange(0, ROWS, m_i.type.layout)
    lse_base = lse_ptr + (coordinates.batch.to(gl.int64) * problem.heads + coordinates.head) * problem.N_q
    gl.store(lse_base + offs_m, lse, mask=offs_m < problem.N_q)
    for c in gl.static_range(len(o)):
        o_smem[c].store(o[c].to(o_smem[c].dtype))
    fence_async_shared()
    barrier()
    for c in gl.static_range(len(o)):
        part = o_smem[c].reshape(o_desc.block_type.shape)
        async_store(o_desc, [coordinates.batch, coordinates.head, coordinates.start_m, c * o_smem[c].shape[1]], part)


@gluon.jit
def first_iteration(t, queries, s, sums, buffers, problem, MASK: gl.constexpr):
    """The iteration that no product of P and V goes along with, from S_t: m, l and P in pairs."""
    m_i, l_i = sums
    mbarrier.arrive(buffers.free.index(t % buffers.free.shape[0]), count=1)
    s = capped(s, problem.inner)
    if MASK != "none" or (queries.past - t + 1) * buffers.k.shape[3] > problem.N_k:
        s = hide(s, t, queries, problem, MASK)
    m_i, l_i, p, alpha = softmax_step(m_i, l_i, s, problem.qk_scale)
    return m_i, l_i + sums_of_threads(p), in_pairs(p, buffers.v.dtype)


@gluon.jit
def full_iteration(t, q_tile, pairs, sums, buffers, problem):
    """An iteration of keys that all of the 64 queries see: m, l, acc and P, as `online_softmax_update` gives them."""
    m_i, l_i, acc = sums
    s, acc_next = products(t, q_tile, pairs, acc, buffers)
    if buffers.row_sums.shape[0] == 6:  # three consumers
        m_i, l_i, acc, pairs = trust(t, q_tile, (m_i, l_i, acc_next), s, buffers, problem)
    else:
        m_i, l_i, acc, pairs = online_softmax_update(
            t, q_tile, (m_i, l_i, acc_next), capped(s, problem.inner), buffers, problem
        )
    return m_i, l_i, acc, pairs


@gluon.jit
def masked_iteration(t, queries, q_tile, pairs, sums, buffers, problem, MASK: gl.constexpr):
    """An iteration of keys that not all of the 64 queries see: m, l, acc and P, as `online_softmax_update` gives them."""
    m_i, l_i, acc = sums
    s, acc_next = products(t, q_tile, pairs, acc, buffers)
    s = hide(capped(s, problem.inner), t, queries, problem, MASK)
    return online_softmax_update(t, q_tile, (m_i, l_i, acc_next), s, buffers, problem)


@gluon.jit
def causal_iteration(t, masked, queries, q_tile, pairs, sums, buffers, problem):
    """`masked_iteration` before iteration `masked`, under a causal mask, and from then on `full_iteration`."""
    m_i, l_i, acc = sums
    s, acc_next = products(t, q_tile, pairs, acc, buffers)
    if t < masked:
        s = hide(s, t, queries, problem, "causal")
    return online_softmax_update(t, q_tile, (m_i, l_i, acc_next), s, buffers, problem)


@gluon.jit
def sequential_iteration(t, queries, q_tile, sums, buffers, problem, MASK: gl.constexpr, HIDE: gl.constexpr):
    """m, l and acc after iteration t, of which nothing is under way before it or after it."""
    m_i, l_i, acc = sums
    mbarrier.wait(buffers.k_full.index(t % buffers.free.shape[0]), (t // buffers.free.shape[0]) & 1)
    s = capped(warpgroup_mma_wait(0, deps=[scores(t, q_tile.chunks, buffers)]), problem.inner)
    mbarrier.arrive(buffers.free.index(t % buffers.free.shape[0]), count=1)
    if HIDE:
        s = hide(s, t, queries, problem, MASK)
    m_i, l_i, p, alpha = softmax_step(m_i, l_i, s, problem.qk_scale)
    l_i += sums_of_threads(p)
    acc = last_product(t, in_pairs(p, buffers.v.dtype), rescaled(acc, alpha), buffers)
    return m_i, l_i, waited(acc)


@gluon.jit
def hide(s, t, queries, problem, MASK: gl.constexpr):
    """-inf where a query may not see a key, or there is none."""
    offs_n = (queries.past - t) * s.shape[1] + gl.arange(0, s.shape[1], gl.SliceLayout(0, s.type.layout))
    if MASK == "ranges":
        visible = (offs_n[None, :] >= queries.low[:, None]) & (offs_n[None, :] < queries.high[:, None])
    else:
        visible = (offs_n < problem.N_k)[None, :]
        if MASK == "causal":
            visible = visible & (offs_n[None, :] <= queries.offs_m[:, None] + problem.N_k - problem.N_q)
    return gl.where(visible, s, float("-inf"))


@gluon.jit
def softmax_step(m_i, l_i, s, qk_scale):
    """The online softmax: the new m, l so far, P (64, BLOCK_N), whose sums l lacks, and the factor for what was summed so far."""
    m_new = gl.maximum(m_i, gl.max(s, 1) * qk_scale)  # the scale is positive: max and scale may swap
    m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)  # a row that has seen no key yet, or keys of -inf only
    alpha = gl.exp2(m_i - m_safe)
    p = gl.exp2(s * qk_scale - m_safe[:, None])  # one fused multiply-add, one exponential
    l_i = l_i * gl.convert_layout(alpha, gl.SliceLayout(1, l_i.type.layout))[:, None]
    return m_new, l_i, p, alpha


@gluon.jit
def sums_of_threads(p):
    """What each of the four threads that share a row has of its sum: (64, 4). They are added up once, in `finish`."""
    pieces = p.reshape([p.shape[0], p.shape[1] // 8, 4, 2])  # a thread has two neighbours of every eight
    return gl.sum(gl.sum(pieces, 3), 1)


def attention_forward_hopper(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float, block_n: int = 128, stages: int = 2,
    consumers: int = 2, programs: int = 1, ranges: Ranges | None = None, sinks: Tensor | None = None, softcap: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o and lse, as `attention_forward` gives them; for inputs that `why_not_hopper` has nothing against.

    block_n     keys in a tile of K or V
    stages      tiles of K, and of V, that are on chip at a time
    consumers   consumers of 64 queries, 2 or 3
    programs    of an SM, 1 or 2; 2 for 64 columns, blocks of 64 keys and two consumers: registers for no more
    ranges       the keys that queries see, as `attention_ranges` gives them; `causal` is then not looked at
    sinks       (H_q,) float32, contiguous: one more score in the sum of every queries, without a value
    softcap     c: scores become c tanh(score / c)
    """
    check_bool(causal, "causal")
    B, H, N_q, D = q.shape
    _, H_kv, N_k, _ = k.shape
    o, lse = uninitialised(q), uninitialised(q, (B, H, N_q), torch.float32)
    width = 192 if 128 < D <= 192 else hopper_width(D)
    columns = 64 if width == 192 else width  # of a part of a tile
    q_tile, kv_tile = (1, 1, ROWS.value, columns), (1, 1, block_n, columns)
    tiles = -(-N_q // (consumers * ROWS.value))  # rounded up; triton.cdiv would take microseconds
    resident = programs * sm_count(q.device)
    mask = "ranges" if ranges is not None else "causal" if causal else "none"
    # tile indices where programs have more than one tile, unless all tiles take as long and it gains nothing to let the fastest have
    # most; three consumers lack registers without tile indices, under a mask
    gains = mask != "none" or width == 64 or width == 128 and N_k >= 8192
    tickets = (gains and B * H * tiles > resident) or (mask != "none" and consumers == 3)
    side = heads_of_a_wave(tiles, resident)
    if ranges is not None:
        side = heads_with_masks(B * H, ranges.seen * width * 2 * k.element_size())
    launch_hopper(
        attention_forward_hopper_kernel, (min(B * H * tiles, resident), 1, 1),
        (
            in_tiles(q, q_tile), in_tiles(k, kv_tile), in_tiles(v, kv_tile), in_tiles(o, q_tile), lse,
            lse if ranges is None else ranges.ends, 2 * N_q if ranges is not None and len(ranges.ends) > 1 else 0,
            tile_counter(q.device) if tickets else None, min(B * H, side),
            lse if sinks is None else sinks,
            B, H, N_q, N_k, H // H_kv, *with_softcap(scale, softcap),
        ),
        dict(
            HEAD_DIM=width, BLOCK_N=block_n, STAGES=stages, CONSUMERS=consumers, MASK=mask, SINKS=sinks is not None,
            PROGRAMS=programs,
        ),
        maxnreg=None if programs == 1 else 80,
    )  # fmt: skip
    return o, lse
