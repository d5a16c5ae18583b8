"""The backward pass for Hopper GPUs of 129 to 256 columns: one consumer warpgroup has dV, the other dK.

dK and dV of 64 keys and 256 columns take 128 of a thread's 240 registers each, so that no warpgroup has room for both. A CTA
owns 64 keys, and both consumers work on them:

    warpgroup       computes                               has   stores for the other
    consume_values  S^T = K Q^T, P^T; dV += P^T dO         dV    P^T, in float32, in the order of its registers
    consume_keys    dP^T = V dO^T, dS^T; dK += dS^T Q      dK    dS^T, in 16 bits

Each computes its tiles of dQ = dS K, 64 columns at a time, an iteration later, for a warp that has TMA add them to the float32
accumulator in HBM: two tiles each, or at D = 192 consume_values one and consume_keys two. Tiles of shared memory come in chunks of
64 columns. With four chunks it holds one dO, not two.

Masks, softcaps and grouped heads are as in `flashlearn.fast.hopper.backward`; the accumulator is zero before the pass. Deterministic,
three warps add in turns (`add_dq_deterministic`). Additions to dQ bound the kernel.

Findings and figures: docs/engineering_log.md. Sources: T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 2; J. Shah
et al., "FlashAttention-3", 2024 (arXiv:2407.08608), section B.1.
"""

from __future__ import annotations

from typing import Any

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
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from flashlearn.fast.hopper.backward_common import (
    DELTA,
    KEYS,
    LSE,
    DqAccumulator,
    Inputs,
    Problem,
    first_query_block,
    make_scheduler,
    minus_stats,
    needs_mask,
    next_query_block,
    plan_backward,
    probabilities,
    query_block_of,
    query_ranges,
    register_order,
)
from flashlearn.fast.hopper.dq_sums import Begun, begin_sums, end_sums, tiles_of_dq
from flashlearn.fast.hopper.pipeline import Pipeline, init_barriers, make_barriers
from flashlearn.fast.hopper.ranges import Ranges
from flashlearn.fast.hopper.scheduling import store_tile_index
from flashlearn.fast.hopper.semaphores import (
    release_semaphore,
    semaphores_of,
    wait_for_additions,
    wait_for_semaphore,
)
from flashlearn.fast.hopper.softcap import factor_of
from flashlearn.fast.hopper.tiles import in_tiles, launch_hopper
from flashlearn.fast.hopper.versions import aggregate, async_add, async_load, async_store, barrier
from flashlearn.fast.launcher import uninitialised

ADDING = gl.constexpr(3)  # warps that add dQ in turns, deterministic: as many as leave the consumers their registers


@aggregate
class Config:
    """What is compiled in."""

    CHUNKS: Any  # of 64 columns
    DETERMINISTIC: Any
    # Of three chunks there is room for two dO and for every tile of dQ; of four for one dO and a tile of each consumer
    DO_STAGES: Any
    DQ_TILES: Any


@aggregate
class SharedMemory:
    """Buffers, and the barriers that say when they are full and free."""

    k: Any  # Pipeline of one stage
    v: Any  # likewise; only consume_keys reads it, and dK leaves from there
    q: Any  # Pipeline of two stages; its barrier waits for lse and delta, too
    do: Any  # Pipeline; dV leaves from there
    p: Any  # Pipeline of one stage, from consume_values to consume_keys: P^T (128, 32) float32, in `register_order`
    ds: Any  # (2, KEYS, KEYS): dS^T of every other iteration
    dq: Any  # (DQ_TILES, 1, 1, 128, 32) float32
    stats: Any  # (2, 1, 1, 2, KEYS) float32: lse and delta
    ds_full: Any  # dS^T is there, for both consumers; of every other iteration
    dq_full: Any  # a tile of dQ is there, see `dq_barrier`
    dq_free: Any  # it has left, see `dq_buffer`


@aggregate
class Stage:
    """A buffer or a barrier, and the parity of its phase."""

    index: Any
    phase: Any


@gluon.jit(do_not_specialize=["range_stride", "heads_at_once", "N_q", "N_k", "kv_heads", "group"])
def attention_backward_wide_kernel(
    # descriptors: q, do, k, v, dk, dv tiles (64, 64); as `begin_sums` makes them, in float32, stats, tiles (2, 64), and dq,
    # (128, 32)
    q_desc, do_desc, k_desc, v_desc, stats_desc, dq_desc, dk_desc, dv_desc,
    # as attention_backward_hopper_kernel has them, and SIDE_BY_SIDE
    semaphores_ptr, ranges_ptr, range_stride, N_q, N_k, kv_heads, group, scale, softcap, heads_at_once,
    CHUNKS: gl.constexpr,  # of 64 columns
    DETERMINISTIC: gl.constexpr, MASK: gl.constexpr,  # "none", "causal" or "ranges"
    SIDE_BY_SIDE: gl.constexpr = False,
):  # fmt: skip
    """dK and dV of 64 keys of one key head, and their part of dQ."""
    index_smem: gl.constexpr = None
    if DETERMINISTIC:  # issued before shared memory is made ready
        tile_index = gl.atomic_add(semaphores_ptr, 1, sem="relaxed")
    problem = Problem(
        N_q, N_k, kv_heads, group, scale, softcap, ranges_ptr, range_stride,
        64 * CHUNKS, MASK, KEYS, KEYS, DETERMINISTIC, SIDE_BY_SIDE,
    )  # fmt: skip
    config = Config(CHUNKS, DETERMINISTIC, DO_STAGES=2 if CHUNKS == 3 else 1, DQ_TILES=3 if CHUNKS == 3 else 2)
    inputs = Inputs(q_desc, do_desc, k_desc, v_desc, stats_desc)
    smem = allocate(inputs, dq_desc, config)
    if DETERMINISTIC:
        index_smem = store_tile_index(tile_index)
        semaphores_ptr += 1
    scheduler = make_scheduler(heads_at_once, index_smem, problem)
    dq = DqAccumulator(dq_desc, semaphores_ptr)
    if DETERMINISTIC:
        gl.warp_specialize(
            [
                (consume_values, (smem, scheduler, dv_desc, config)),
                (consume_keys, (smem, scheduler, dk_desc, config)),
                (load, (smem, scheduler, inputs)),
                (add_dq_deterministic, (0, smem, scheduler, dq, config)),
                (add_dq_deterministic, (1, smem, scheduler, dq, config)),
                (add_dq_deterministic, (2, smem, scheduler, dq, config)),
            ],
            [4, 1, 1, 1, 1],
            [240, 24, 24, 24, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consume_values, (smem, scheduler, dv_desc, config)),
                (consume_keys, (smem, scheduler, dk_desc, config)),
                (load, (smem, scheduler, inputs)),
                (add_dq, (0, smem, scheduler, dq, config)),
                (add_dq, (1, smem, scheduler, dq, config)),
            ],
            [4, 1, 1, 1],
            [240, 24, 24, 24],
        )


@gluon.jit
def allocate(inputs, dq_desc, config):
    """Shared memory, with barriers initialised."""
    dtype: gl.constexpr = inputs.q.dtype
    CHUNKS: gl.constexpr = config.CHUNKS
    DQ_FULL: gl.constexpr = 4 * CHUNKS if config.DETERMINISTIC else config.DQ_TILES
    k_smem = gl.allocate_shared_memory(dtype, [CHUNKS, 1, 1, KEYS, 64], inputs.k.layout)
    v_smem = gl.allocate_shared_memory(dtype, [CHUNKS, 1, 1, KEYS, 64], inputs.v.layout)
    q_smem = gl.allocate_shared_memory(dtype, [2 * CHUNKS, 1, 1, KEYS, 64], inputs.q.layout)
    do_smem = gl.allocate_shared_memory(dtype, [config.DO_STAGES * CHUNKS, 1, 1, KEYS, 64], inputs.do.layout)
    p_smem = gl.allocate_shared_memory(gl.float32, [1, 1, 1, 128, 32], dq_desc.layout)
    DS_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, KEYS], dtype)
    ds_smem = gl.allocate_shared_memory(dtype, [2, KEYS, KEYS], DS_LAYOUT)
    dq_smem = gl.allocate_shared_memory(gl.float32, [config.DQ_TILES, 1, 1, 128, 32], dq_desc.layout)
    stats_smem = gl.allocate_shared_memory(gl.float32, [2, 1, 1, 2, KEYS], inputs.stats.layout)
    k_full = make_barriers(1)
    v_full = make_barriers(1)
    q_full = make_barriers(2)
    q_free = make_barriers(2)
    do_full = make_barriers(config.DO_STAGES)
    do_free = make_barriers(config.DO_STAGES)
    p_full = make_barriers(1)
    p_free = make_barriers(1)
    ds_full = make_barriers(2)
    dq_full = make_barriers(DQ_FULL)
    dq_free = make_barriers(config.DQ_TILES)
    init_barriers(k_full, 1)
    init_barriers(v_full, 1)
    init_barriers(q_full, 1)
    init_barriers(q_free, 2)  # consumers
    init_barriers(do_full, 1)
    init_barriers(do_free, 2)
    init_barriers(p_full, 1)
    init_barriers(p_free, 1)
    init_barriers(ds_full, 1)
    init_barriers(dq_full, 1)
    init_barriers(dq_free, 1)
    k = Pipeline(k_smem, k_full, None, 1, CHUNKS)
    v = Pipeline(v_smem, v_full, None, 1, CHUNKS)
    q = Pipeline(q_smem, q_full, q_free, 2, CHUNKS)
    do = Pipeline(do_smem, do_full, do_free, config.DO_STAGES, CHUNKS)
    p = Pipeline(p_smem, p_full, p_free, 1)
    return SharedMemory(k, v, q, do, p, ds_smem, dq_smem, stats_smem, ds_full, dq_full, dq_free)


@gluon.jit
def load(smem, scheduler, inputs):
    """The producer warp: K and V once, then Q, lse and delta, and dO of every block of queries."""
    problem = scheduler.problem
    tile = scheduler.coordinates()
    smem.k.load(0, inputs.k, tile.batch, tile.kv_head, tile.start_n)
    smem.v.load(0, inputs.v, tile.batch, tile.kv_head, tile.start_n)
    first_head = tile.kv_head * problem.group
    at = first_query_block(first_head, tile)
    gdc_wait()  # for lse and delta; all that has been issued is older
    gdc_launch_dependents()
    for t in range(problem.group * tile.blocks):
        smem.q.producer_acquire(t)
        smem.q.load(t, inputs.q, tile.batch, at.head, at.block * KEYS, inputs.stats.block_type.nbytes)
        stage = smem.q.index(t)
        coordinates = [tile.batch, at.head, 0, at.block * KEYS]
        async_load(inputs.stats, coordinates, smem.q.full.index(stage), smem.stats.index(stage))
        smem.do.producer_acquire(t)
        smem.do.load(t, inputs.do, tile.batch, at.head, at.block * KEYS)
        at = next_query_block(at, first_head, tile, problem)


@gluon.jit
def sum_over_chunks(left, right, acc, FRESH: gl.constexpr):
    """acc + left right^T (64, 64), over all columns of two tiles in chunks, under way; FRESH: without acc."""
    for c in gl.static_range(len(left)):
        acc = warpgroup_mma(left[c], right[c].permute((1, 0)), acc, use_acc=not FRESH or c > 0, is_async=True)
    return acc


@gluon.jit
def add_to_chunks(factor, right, acc):
    """acc + factor right (64, D), chunk by chunk, under way."""
    out: gl.tuple = ()
    for c in gl.static_range(len(acc)):
        out = out + (warpgroup_mma(factor, right[c], acc[c], is_async=True),)
    return out


@gluon.jit
def zeros_in_chunks(LAYOUT: gl.constexpr, CHUNKS: gl.constexpr):
    """dK or dV (64, D), in chunks, before any query."""
    zero = gl.zeros([KEYS, 64], gl.float32, LAYOUT)
    out: gl.tuple = ()
    for _ in gl.static_range(CHUNKS):
        out = out + (zero,)
    return out


@gluon.jit
def consume_values(smem, scheduler, dv_desc, config):
    """The consumer that has dV: P^T of 64 keys and every block of queries, P^T dO, and the first tiles of dQ."""
    problem = scheduler.problem
    CHUNKS: gl.constexpr = config.CHUNKS
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    tile = scheduler.coordinates()
    ranges = query_ranges(tile.start_n, tile.batch, problem)
    dv = zeros_in_chunks(LAYOUT, CHUNKS)
    smem.k.consumer_wait(0)
    first_head = 0
    at = first_query_block(first_head, tile)
    iterations = problem.group * tile.blocks
    for t in range(iterations):
        stats = smem.stats.index(smem.q.index(t))
        smem.q.consumer_wait(t)
        s_t = sum_over_chunks(smem.k.chunks(0), smem.q.chunks(t), minus_stats(stats, LSE), problem.softcap is not None)
        s_t = warpgroup_mma_wait(0, deps=[s_t])
        masked = needs_mask(at.block, tile.start_n + KEYS, tile, problem)
        p = probabilities(s_t, stats, masked, ranges, at.block * KEYS, problem)
        smem.q.consumer_release(t)
        smem.p.producer_acquire(t)
        smem.p.smem.index(0).reshape([128, 32]).store(register_order(p.factor))
        smem.p.producer_commit(t)
        p_factor = gl.convert_layout(p.p_t.to(smem.ds.dtype), gl.DotOperandLayout(0, LAYOUT, 2))
        wait_for_ds_before(t, smem)
        smem.do.consumer_wait(t)
        dq = tile_of_dq(t, 0, smem)
        dv = add_to_chunks(p_factor, smem.do.chunks(t), dv)
        dq = warpgroup_mma_wait(CHUNKS, deps=[dq])
        store_dq(t - 1, 0, dq, smem, config)
        if CHUNKS == 4:
            dq = warpgroup_mma_wait(0, deps=[tile_of_dq(t, 1, smem)])
        dv = warpgroup_mma_wait(0, deps=dv)
        smem.do.consumer_release(t)
        if CHUNKS == 4:
            store_dq(t - 1, 1, dq, smem, config)
        at = next_query_block(at, first_head, tile, problem)
    # dS of the last iteration is waited for: then the other consumer has read dO
    store_last_dq(iterations, 0, smem, config)
    tile = scheduler.coordinates()
    # over, except where no query attends to these keys; kernels before may still read the memory that dK and dV get
    gdc_wait()
    store(dv, 1.0, tile, smem.do, dv_desc)


@gluon.jit
def consume_keys(smem, scheduler, dk_desc, config):
    """The consumer that has dK: dS^T of 64 keys and every block of queries, dS^T Q, and the last two tiles of dQ."""
    problem = scheduler.problem
    CHUNKS: gl.constexpr = config.CHUNKS
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    tile = scheduler.coordinates()
    dk = zeros_in_chunks(LAYOUT, CHUNKS)
    smem.k.consumer_wait(0)
    smem.v.consumer_wait(0)
    iterations = problem.group * tile.blocks
    for t in range(iterations):
        smem.q.consumer_wait(t)
        smem.do.consumer_wait(t)
        minus_delta = minus_stats(smem.stats.index(smem.q.index(t)), DELTA)
        dp_t = sum_over_chunks(smem.v.chunks(0), smem.do.chunks(t), minus_delta, False)
        smem.p.consumer_wait(t)
        dp_t = warpgroup_mma_wait(0, deps=[dp_t])
        smem.do.consumer_release(t)
        ds_t = (from_register_order(smem.p.smem.index(0), dp_t) * dp_t).to(smem.ds.dtype)
        smem.p.consumer_release(t)
        smem.ds.index(t % 2).store(ds_t)
        fence_async_shared()
        mbarrier.arrive(smem.ds_full.index(t % 2), count=1)
        ds_factor = gl.convert_layout(ds_t, gl.DotOperandLayout(0, LAYOUT, 2))
        dq = tile_of_dq(t, CHUNKS - 2, smem)
        dk = add_to_chunks(ds_factor, smem.q.chunks(t), dk)
        dq = warpgroup_mma_wait(CHUNKS, deps=[dq])
        store_dq(t - 1, CHUNKS - 2, dq, smem, config)
        dq = warpgroup_mma_wait(0, deps=[tile_of_dq(t, CHUNKS - 1, smem)])
        dk = warpgroup_mma_wait(0, deps=dk)
        smem.q.consumer_release(t)
        store_dq(t - 1, CHUNKS - 1, dq, smem, config)
    store_last_dq(iterations, 1, smem, config)
    tile = scheduler.coordinates()
    gdc_wait()
    store(dk, problem.scale, tile, smem.v, dk_desc)


@gluon.jit
def from_register_order(smem, like):
    """What `register_order` made of a product (64, 64), from shared memory (128, 32); `like` is another product."""
    x = smem.reshape([128, 32]).load(register_order(like).type.layout)
    x = x.reshape([4, 8, 8, 4, 2, 2]).permute((0, 4, 2, 1, 3, 5)).reshape([64, 64])
    return gl.convert_layout(x, like.type.layout)


@gluon.jit
def wait_for_ds_before(t, smem):
    """Wait for dS^T of iteration t - 1; for t = 0 there is none, and a new barrier lets pass."""
    mbarrier.wait(smem.ds_full.index((t + 1) % 2), ((t + 1) // 2 & 1) ^ 1)


@gluon.jit
def tile_of_dq(t, c: gl.constexpr, smem):
    """dS K (64, 64) of iteration t - 1, columns from 64 c on, under way; for t = 0 of whatever memory holds, and not used."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    zero = gl.zeros([64, 64], gl.float32, LAYOUT)
    ds = smem.ds.index((t + 1) % 2).permute((1, 0))
    return warpgroup_mma(ds, smem.k.chunks(0)[c], zero, use_acc=False, is_async=True)


@gluon.jit
def dq_buffer(t, c, config):
    """The buffer of tile c of dQ of iteration t, and the phase of its `dq_free`."""
    if config.DQ_TILES == config.CHUNKS:
        return Stage(c, t & 1)
    else:  # two tiles of a consumer share a buffer
        return Stage(c // 2, c % 2)


@gluon.jit
def dq_barrier(t, c, config):
    """The barrier of `dq_full` for tile c of dQ of iteration t, and its phase.

    Deterministic it is one of four: three warps add in turns, and the parity of a phase does not tell iteration t from t - 2. A
    warp that waits for iteration t must then know that t - 4 is over. It is: the part that this warp added before was of
    iteration t - 1 or t - 2, and by then both consumers had stored all dQ up to iteration t - 3.
    """
    if config.DETERMINISTIC:
        return Stage(4 * c + t % 4, t // 4 & 1)
    else:
        return dq_buffer(t, c, config)


@gluon.jit
def store_dq(t, c: gl.constexpr, dq, smem, config):
    """Tile c of dQ of iteration t, unless that is -1, to the warp that adds it, once the tile before has left."""
    if t >= 0:
        buffer, full = dq_buffer(t, c, config), dq_barrier(t, c, config)
        mbarrier.wait(smem.dq_free.index(buffer.index), buffer.phase ^ 1)
        smem.dq.index(buffer.index).reshape([128, 32]).store(register_order(dq))
        fence_async_shared()
        mbarrier.arrive(smem.dq_full.index(full.index), count=1)


@gluon.jit
def store_last_dq(iterations, CONSUMER: gl.constexpr, smem, config):
    """This consumer's tiles of dQ of the last iteration, if there was one, to the warps that add."""
    if iterations > 0:
        wait_for_ds_before(iterations, smem)
        for c in gl.static_range(CONSUMER * (config.CHUNKS - 2), config.CHUNKS - 2 + 2 * CONSUMER):
            dq = warpgroup_mma_wait(0, deps=[tile_of_dq(iterations, c, smem)])
            store_dq(iterations - 1, c, dq, smem, config)


@gluon.jit
def store(gradient, factor, tile, buffer, desc):
    """dK or dV (64, D), times a factor, to HBM, through the first buffer of a pipeline."""
    first = buffer.index(0) * buffer.CHUNKS
    for c in gl.static_range(len(gradient)):
        buffer.chunks(0)[c].store((gradient[c] * factor).to(buffer.smem.dtype))
    fence_async_shared()
    barrier()
    for c in gl.static_range(len(gradient)):
        async_store(desc, [tile.batch, tile.kv_head, tile.start_n, 64 * c], buffer.smem.index(first + c))
    tma.store_wait(0)


@gluon.jit
def add_dq(CONSUMER: gl.constexpr, smem, scheduler, dq, config):
    """A warp that has TMA add the tiles of dQ of one consumer to the accumulator."""
    problem = scheduler.problem
    tile = scheduler.coordinates()
    first_head = tile.kv_head * problem.group
    at = first_query_block(first_head, tile)
    gdc_wait()  # for attention_begin_sums_kernel, which zero-initialises the accumulator
    for t in range(problem.group * tile.blocks):
        for c in gl.static_range(CONSUMER * (config.CHUNKS - 2), config.CHUNKS - 2 + 2 * CONSUMER):
            add_tiles(t, c, 1, at, tile, smem, dq, config)
        at = next_query_block(at, first_head, tile, problem)


@gluon.jit
def add_dq_deterministic(WARP: gl.constexpr, smem, scheduler, dq, config):
    """One of the warps that in turns add the tiles of one consumer, then those of the other, and so on.

    A turn ends when the sums have arrived in HBM. That may take longer than an iteration: meanwhile the next warp goes on.
    """
    problem = scheduler.problem
    CHUNKS: gl.constexpr = config.CHUNKS
    tile = scheduler.coordinates()
    semaphores = semaphores_of(dq.semaphores_ptr, tile, problem)
    gdc_wait()  # for attention_begin_sums_kernel, which zero-initialises the accumulator
    for part in range(WARP, 2 * problem.group * tile.blocks, ADDING):
        t, consumer = part // 2, part % 2
        at = query_block_of(t, tile, problem)
        semaphore_ptr = semaphores.at(at, consumer)
        wait_for_semaphore(semaphore_ptr, semaphores.additions_before(at))
        if CHUNKS == 4:  # the two tiles of a consumer share a buffer
            add_tiles(t, 2 * consumer, 1, at, tile, smem, dq, config)
            add_tiles(t, 2 * consumer + 1, 1, at, tile, smem, dq, config)
        elif consumer == 0:
            add_tiles(t, 0, 1, at, tile, smem, dq, config)
        else:
            add_tiles(t, 1, 2, at, tile, smem, dq, config)
        wait_for_additions()
        barrier()
        release_semaphore(semaphore_ptr)


@gluon.jit
def add_tiles(t, first, COUNT: gl.constexpr, at, tile, smem, dq, config):
    """TMA adds COUNT tiles of dQ of iteration t, from tile `first` on, when all are there."""
    for i in gl.static_range(COUNT):
        full = dq_barrier(t, first + i, config)
        mbarrier.wait(smem.dq_full.index(full.index), full.phase)
    for i in gl.static_range(COUNT):
        row = (config.CHUNKS * at.block + first + i) * 128
        async_add(dq.desc, [tile.batch, at.head, row, 0], smem.dq.index(dq_buffer(t, first + i, config).index))
    tma.store_wait(0)  # they have left shared memory
    for i in gl.static_range(COUNT):
        mbarrier.arrive(smem.dq_free.index(dq_buffer(t, first + i, config).index), count=1)


def attention_backward_wide(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *, causal: bool, scale: float,
    begun: Begun | None = None, ranges: Ranges | None = None, deterministic: bool = False, softcap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk and dv, as `attention_backward_hopper` gives them, for 129 to 256 columns.

    begun: as there, with all sums zero.
    Extra memory: lse, delta and the accumulator of dq in float32, for whole blocks of 64 queries and 192 or 256 columns.
    Deterministic, 8 bytes for a block of 64 queries, and with ranges 4 bytes for every pair of such a block and one of 64 keys.
    """
    if begun is None:
        begun = begin_sums(o, do, lse, factor_of(scale, softcap))
    if begun.zeroed is not None:
        raise ValueError(f"expected begun with all sums zero, got those of {begun.zeroed} heads")
    plan = plan_backward(
        q, k, ranges, causal=causal, scale=scale, softcap=softcap, deterministic=deterministic,
        block_m=KEYS.value, block_n=KEYS.value,
    )  # fmt: skip
    dq, dk, dv = uninitialised(q), uninitialised(k), uninitialised(v)
    tile = (1, 1, KEYS.value, 64)
    launch_hopper(
        attention_backward_wide_kernel, plan.grid,
        (
            in_tiles(q, tile), in_tiles(do, tile), in_tiles(k, tile), in_tiles(v, tile),
            in_tiles(begun.rows, (1, 1, 2, KEYS.value)), in_tiles(begun.sums, (1, 1, 128, 32)),
            in_tiles(dk, tile), in_tiles(dv, tile), *plan.arguments,
        ),
        dict(CHUNKS=tiles_of_dq(q.shape[-1]), **plan.constants),
        dependent=plan.dependent,
    )  # fmt: skip
    end_sums(begun, scale, dq, q.shape[1] // k.shape[1], -1)  # nothing is counted: all heads wait for the pass
    return dq, dk, dv
