"""The backward pass for Hopper GPUs of 129 to 256 columns: one consumer warpgroup has dV, the other dK.

dK and dV of 64 keys and 256 columns take 128 of a thread's 240 registers each, so that no warpgroup has room for both. A CTA
owns 64 keys, and both consumers work on them:

    warpgroup       computes                               has   stores for the other
    consume_values  S^T = K Q^T, P^T; dV += P^T dO         dV    P^T, in float32, in the order of its registers
    consume_keys    dP^T = V dO^T, dS^T; dK += dS^T Q      dK    dS^T, in 16 bits

Each computes its tiles of dQ = dS K, 64 columns at a time, an iteration later. A warp has TMA add them to the float32
accumulator in HBM. These are two tiles each, or at D = 192 one of consume_values and two of consume_keys. Tiles of
shared memory come in chunks of 64 columns. With four chunks it holds one dO, not two.

Masks, softcaps and grouped heads are as in `flashlearn.fast.hopper.backward`; the accumulator is zero before the pass. Deterministic,
three warps add alternately (`add_dq_deterministic`). Additions to dQ bound the kernel.

Findings and figures: docs/engineering_log.md. Sources: T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 2; J. Shah
et al., "FlashAttention-3", 2024 (arXiv:2407.08608), section B.1.
"""

from __future__ import annotations

from typing import Any

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
    BackwardProblem,
    Inputs,
    first_query_block,
    initial_accumulator,
    needs_mask,
    next_query_block,
    probabilities,
    query_block_of,
    query_ranges,
    register_order,
)
from flashlearn.fast.hopper.pipeline import Pipeline, make_barriers
from flashlearn.fast.hopper.semaphores import release_semaphore, semaphores_of, wait_for_additions, wait_for_semaphore
from flashlearn.fast.hopper.tile_scheduler import make_scheduler, store_tile_index
from flashlearn.fast.hopper.versions import aggregate, async_add, async_load, async_store, barrier

ADDING = gl.constexpr(3)  # warps that add dQ alternately, deterministic: more would take registers of the consumers


@aggregate
class WideBackwardCTA:
    """A CTA's problem, pipelines, shared memory and barriers, and where its results go."""

    scheduler: Any
    problem: Any
    k: Any  # Pipeline of one stage
    v: Any  # likewise; only consume_keys reads it, and dK leaves from there
    q: Any  # Pipeline of two stages; its barrier waits for lse and delta, too
    do: Any  # Pipeline; dV leaves from there
    p: Any  # Pipeline of one stage, from consume_values to consume_keys: P^T (128, 32) float32, in `register_order`
    stats: Any  # (2, 1, 1, 2, KEYS) float32: lse and delta
    ds: Any  # (2, KEYS, KEYS): dS^T of every other iteration
    ds_full: Any  # it is there, for both consumers
    dq: Any  # (DQ_TILES, 1, 1, 128, 32) float32
    dq_full: Any  # a tile of dQ is there, see `dq_barrier`
    dq_free: Any  # it has left, see `dq_buffer`
    # descriptors and pointers
    dk_desc: Any
    dv_desc: Any
    dq_desc: Any  # the float32 accumulator
    semaphores_ptr: Any  # deterministic: behind the atomic counter that `make_semaphores` makes
    # constants
    CHUNKS: Any  # of 64 columns
    DQ_TILES: Any  # buffers for tiles of dQ


@aggregate
class Stage:
    """A buffer or a barrier, and the parity of its phase."""

    index: Any
    phase: Any


@gluon.jit(do_not_specialize=["range_stride", "heads_at_once", "N_q", "N_k", "kv_heads", "group"])
def attention_backward_wide_kernel(
    # descriptors: q, do, k, v, dk, dv tiles (64, 64); as `preprocess` makes them, in float32, stats, tiles (2, 64), and dq,
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
    dtype: gl.constexpr = q_desc.dtype
    # of three chunks there is room for two dO and for every tile of dQ; of four for one dO and a tile of each consumer
    DO_STAGES: gl.constexpr = 2 if CHUNKS == 3 else 1
    DQ_TILES: gl.constexpr = 3 if CHUNKS == 3 else 2
    DQ_FULL: gl.constexpr = 4 * CHUNKS if DETERMINISTIC else DQ_TILES
    k_smem = gl.allocate_shared_memory(dtype, [CHUNKS, 1, 1, KEYS, 64], k_desc.layout)
    v_smem = gl.allocate_shared_memory(dtype, [CHUNKS, 1, 1, KEYS, 64], v_desc.layout)
    q_smem = gl.allocate_shared_memory(dtype, [2 * CHUNKS, 1, 1, KEYS, 64], q_desc.layout)
    do_smem = gl.allocate_shared_memory(dtype, [DO_STAGES * CHUNKS, 1, 1, KEYS, 64], do_desc.layout)
    p_smem = gl.allocate_shared_memory(gl.float32, [1, 1, 1, 128, 32], dq_desc.layout)
    DS_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, KEYS], dtype)
    ds_smem = gl.allocate_shared_memory(dtype, [2, KEYS, KEYS], DS_LAYOUT)
    dq_smem = gl.allocate_shared_memory(gl.float32, [DQ_TILES, 1, 1, 128, 32], dq_desc.layout)
    stats_smem = gl.allocate_shared_memory(gl.float32, [2, 1, 1, 2, KEYS], stats_desc.layout)
    k_full = make_barriers(1, COUNT=1)
    v_full = make_barriers(1, COUNT=1)
    q_full = make_barriers(2, COUNT=1)
    q_free = make_barriers(2, COUNT=2)
    do_full = make_barriers(DO_STAGES, COUNT=1)
    do_free = make_barriers(DO_STAGES, COUNT=2)
    p_full = make_barriers(1, COUNT=1)
    p_free = make_barriers(1, COUNT=1)
    ds_full = make_barriers(2, COUNT=1)
    dq_full = make_barriers(DQ_FULL, COUNT=1)
    dq_free = make_barriers(DQ_TILES, COUNT=1)
    if DETERMINISTIC:
        index_smem = store_tile_index(tile_index)
        semaphores_ptr += 1

    problem = BackwardProblem(
        N_q, N_k, kv_heads, group, scale, softcap, ranges_ptr, range_stride,
        MASK, KEYS, KEYS, DETERMINISTIC, SIDE_BY_SIDE,
    )  # fmt: skip
    inputs = Inputs(q_desc, do_desc, k_desc, v_desc, stats_desc)
    cta = WideBackwardCTA(
        scheduler=make_scheduler(heads_at_once, index_smem, problem), problem=problem,
        k=Pipeline(k_smem, k_full, None, 1, CHUNKS), v=Pipeline(v_smem, v_full, None, 1, CHUNKS),
        q=Pipeline(q_smem, q_full, q_free, 2, CHUNKS), do=Pipeline(do_smem, do_full, do_free, DO_STAGES, CHUNKS),
        p=Pipeline(p_smem, p_full, p_free, 1), stats=stats_smem, ds=ds_smem, ds_full=ds_full,
        dq=dq_smem, dq_full=dq_full, dq_free=dq_free,
        dk_desc=dk_desc, dv_desc=dv_desc, dq_desc=dq_desc, semaphores_ptr=semaphores_ptr, CHUNKS=CHUNKS, DQ_TILES=DQ_TILES,
    )  # fmt: skip
    if DETERMINISTIC:
        gl.warp_specialize(
            [
                (consume_values, (cta,)), (consume_keys, (cta,)), (load, (cta, inputs)),
                (add_dq_deterministic, (0, cta)), (add_dq_deterministic, (1, cta)), (add_dq_deterministic, (2, cta)),
            ],
            [4, 1, 1, 1, 1],
            [240, 24, 24, 24, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [(consume_values, (cta,)), (consume_keys, (cta,)), (load, (cta, inputs)), (add_dq, (0, cta)), (add_dq, (1, cta))],
            [4, 1, 1, 1],
            [240, 24, 24, 24],
        )  # fmt: skip


@gluon.jit
def load(cta, inputs):
    """The producer warp: K and V once, then Q, lse and delta, and dO of every block of queries."""
    problem, tile = cta.problem, cta.scheduler.coordinates()
    cta.k.load(0, inputs.k, tile.batch, tile.kv_head, tile.start_n)
    cta.v.load(0, inputs.v, tile.batch, tile.kv_head, tile.start_n)
    first_head = tile.kv_head * problem.group
    at = first_query_block(first_head, tile)
    gdc_wait()  # for lse and delta; all that has been issued is older
    gdc_launch_dependents()
    for t in range(problem.group * tile.blocks):
        cta.q.producer_acquire(t)
        cta.q.load(t, inputs.q, tile.batch, at.head, at.block * KEYS, inputs.stats.block_type.nbytes)
        stage = cta.q.index(t)
        coordinates = [tile.batch, at.head, 0, at.block * KEYS]
        async_load(inputs.stats, coordinates, cta.q.full.index(stage), cta.stats.index(stage))
        cta.do.producer_acquire(t)
        cta.do.load(t, inputs.do, tile.batch, at.head, at.block * KEYS)
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
def consume_values(cta):
    """The consumer that has dV: P^T of 64 keys and every block of queries, P^T dO, and the first tiles of dQ."""
    problem, tile = cta.problem, cta.scheduler.coordinates()
    CHUNKS: gl.constexpr = cta.CHUNKS
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    ranges = query_ranges(tile.start_n, tile.batch, problem)
    dv = zeros_in_chunks(LAYOUT, CHUNKS)
    cta.k.consumer_wait(0)
    first_head = 0  # relative: see `QueryBlock`
    at = first_query_block(first_head, tile)
    iterations = problem.group * tile.blocks
    for t in range(iterations):
        stats = cta.stats.index(cta.q.index(t))
        cta.q.consumer_wait(t)
        s_t = sum_over_chunks(
            cta.k.chunks(0), cta.q.chunks(t), initial_accumulator(stats, LSE), problem.softcap is not None
        )
        s_t = warpgroup_mma_wait(0, deps=[s_t])
        masked = needs_mask(at.block, tile.start_n + KEYS, tile, problem)
        p = probabilities(s_t, stats, masked, ranges, at.block * KEYS, problem)
        cta.q.consumer_release(t)
        cta.p.producer_acquire(t)
        cta.p.smem.index(0).reshape([128, 32]).store(register_order(p.dp_factor))
        cta.p.producer_commit(t)
        p_factor = gl.convert_layout(p.p_t.to(cta.ds.dtype), gl.DotOperandLayout(0, LAYOUT, 2))
        wait_for_ds_before(t, cta)
        cta.do.consumer_wait(t)
        dq = tile_of_dq(t, 0, cta)
        dv = add_to_chunks(p_factor, cta.do.chunks(t), dv)
        dq = warpgroup_mma_wait(CHUNKS, deps=[dq])
        store_dq(t - 1, 0, dq, cta)
        if CHUNKS == 4:
            dq = warpgroup_mma_wait(0, deps=[tile_of_dq(t, 1, cta)])
        dv = warpgroup_mma_wait(0, deps=dv)
        cta.do.consumer_release(t)
        if CHUNKS == 4:
            store_dq(t - 1, 1, dq, cta)
        at = next_query_block(at, first_head, tile, problem)
    # dS of the last iteration is waited for: then the other consumer has read dO
    store_last_dq(iterations, 0, cta)
    tile = cta.scheduler.coordinates()
    # over, except where no query attends to these keys; kernels before may still read the memory that dK and dV get
    gdc_wait()
    store(dv, 1.0, tile, cta.do, cta.dv_desc)


@gluon.jit
def consume_keys(cta):
    """The consumer that has dK: dS^T of 64 keys and every block of queries, dS^T Q, and the last two tiles of dQ."""
    problem, tile = cta.problem, cta.scheduler.coordinates()
    CHUNKS: gl.constexpr = cta.CHUNKS
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    dk = zeros_in_chunks(LAYOUT, CHUNKS)
    cta.k.consumer_wait(0)
    cta.v.consumer_wait(0)
    iterations = problem.group * tile.blocks
    for t in range(iterations):
        cta.q.consumer_wait(t)
        cta.do.consumer_wait(t)
        minus_delta = initial_accumulator(cta.stats.index(cta.q.index(t)), DELTA)
        dp_t = sum_over_chunks(cta.v.chunks(0), cta.do.chunks(t), minus_delta, False)
        cta.p.consumer_wait(t)
        dp_t = warpgroup_mma_wait(0, deps=[dp_t])
        cta.do.consumer_release(t)
        ds_t = (from_register_order(cta.p.smem.index(0), dp_t) * dp_t).to(cta.ds.dtype)
        cta.p.consumer_release(t)
        cta.ds.index(t % 2).store(ds_t)
        fence_async_shared()
        mbarrier.arrive(cta.ds_full.index(t % 2), count=1)
        ds_factor = gl.convert_layout(ds_t, gl.DotOperandLayout(0, LAYOUT, 2))
        dq = tile_of_dq(t, CHUNKS - 2, cta)
        dk = add_to_chunks(ds_factor, cta.q.chunks(t), dk)
        dq = warpgroup_mma_wait(CHUNKS, deps=[dq])
        store_dq(t - 1, CHUNKS - 2, dq, cta)
        dq = warpgroup_mma_wait(0, deps=[tile_of_dq(t, CHUNKS - 1, cta)])
        dk = warpgroup_mma_wait(0, deps=dk)
        cta.q.consumer_release(t)
        store_dq(t - 1, CHUNKS - 1, dq, cta)
    store_last_dq(iterations, 1, cta)
    tile = cta.scheduler.coordinates()
    gdc_wait()
    store(dk, problem.scale, tile, cta.v, cta.dk_desc)


@gluon.jit
def from_register_order(smem, like):
    """What `register_order` made of a product (64, 64), from shared memory (128, 32); `like` is another product."""
    x = smem.reshape([128, 32]).load(register_order(like).type.layout)
    x = x.reshape([4, 8, 8, 4, 2, 2]).permute((0, 4, 2, 1, 3, 5)).reshape([64, 64])
    return gl.convert_layout(x, like.type.layout)


@gluon.jit
def wait_for_ds_before(t, cta):
    """Wait for dS^T of iteration t - 1; for t = 0 there is none, and a new barrier lets pass."""
    mbarrier.wait(cta.ds_full.index((t + 1) % 2), ((t + 1) // 2 & 1) ^ 1)


@gluon.jit
def tile_of_dq(t, c: gl.constexpr, cta):
    """dS K (64, 64) of iteration t - 1, columns from 64 c on, under way; for t = 0 of whatever memory holds, and not used."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    zero = gl.zeros([64, 64], gl.float32, LAYOUT)
    ds = cta.ds.index((t + 1) % 2).permute((1, 0))
    return warpgroup_mma(ds, cta.k.chunks(0)[c], zero, use_acc=False, is_async=True)


@gluon.jit
def dq_buffer(t, c, cta):
    """The buffer of tile c of dQ of iteration t, and the phase of its `dq_free`."""
    if cta.DQ_TILES == cta.CHUNKS:
        return Stage(c, t & 1)
    else:  # two tiles of a consumer share a buffer
        return Stage(c // 2, c % 2)


@gluon.jit
def dq_barrier(t, c, cta):
    """The barrier of `dq_full` for tile c of dQ of iteration t, and its phase.

    Deterministic it is one of four: three warps add alternately, and the parity of a phase does not distinguish
    iterations t and t - 2. A warp that waits for iteration t must then know that t - 4 is over. It is: the part that
    this warp added before was of iteration t - 1 or t - 2. By then both consumers had stored all dQ up to
    iteration t - 3.
    """
    if cta.problem.DETERMINISTIC:
        return Stage(4 * c + t % 4, t // 4 & 1)
    else:
        return dq_buffer(t, c, cta)


@gluon.jit
def store_dq(t, c: gl.constexpr, dq, cta):
    """Tile c of dQ of iteration t, unless that is -1, to the warp that adds it, once the tile before has left."""
    if t >= 0:
        buffer, full = dq_buffer(t, c, cta), dq_barrier(t, c, cta)
        mbarrier.wait(cta.dq_free.index(buffer.index), buffer.phase ^ 1)
        cta.dq.index(buffer.index).reshape([128, 32]).store(register_order(dq))
        fence_async_shared()
        mbarrier.arrive(cta.dq_full.index(full.index), count=1)


@gluon.jit
def store_last_dq(iterations, CONSUMER: gl.constexpr, cta):
    """This consumer's tiles of dQ of the last iteration, if there was one, to the warps that add."""
    if iterations > 0:
        wait_for_ds_before(iterations, cta)
        for c in gl.static_range(CONSUMER * (cta.CHUNKS - 2), cta.CHUNKS - 2 + 2 * CONSUMER):
            dq = warpgroup_mma_wait(0, deps=[tile_of_dq(iterations, c, cta)])
            store_dq(iterations - 1, c, dq, cta)


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
def add_dq(CONSUMER: gl.constexpr, cta):
    """A warp that has TMA add the tiles of dQ of one consumer to the accumulator."""
    problem, tile = cta.problem, cta.scheduler.coordinates()
    first_head = tile.kv_head * problem.group
    at = first_query_block(first_head, tile)
    gdc_wait()  # for attention_preprocess_kernel, which zero-initialises the accumulator
    for t in range(problem.group * tile.blocks):
        for c in gl.static_range(CONSUMER * (cta.CHUNKS - 2), cta.CHUNKS - 2 + 2 * CONSUMER):
            add_tiles(t, c, 1, at, tile, cta)
        at = next_query_block(at, first_head, tile, problem)


@gluon.jit
def add_dq_deterministic(WARP: gl.constexpr, cta):
    """One of the warps that alternately add the tiles of one consumer, then those of the other.

    A turn ends when the sums have arrived in HBM. That may take longer than an iteration: meanwhile the next warp goes on.
    """
    problem, tile = cta.problem, cta.scheduler.coordinates()
    CHUNKS: gl.constexpr = cta.CHUNKS
    semaphores = semaphores_of(cta.semaphores_ptr, tile, problem)
    gdc_wait()  # for attention_preprocess_kernel, which zero-initialises the accumulator
    for part in range(WARP, 2 * problem.group * tile.blocks, ADDING):
        t, consumer = part // 2, part % 2
        at = query_block_of(t, tile, problem)
        semaphore_ptr = semaphores.at(at, consumer)
        wait_for_semaphore(semaphore_ptr, semaphores.additions_before(at))
        if CHUNKS == 4:  # the two tiles of a consumer share a buffer
            add_tiles(t, 2 * consumer, 1, at, tile, cta)
            add_tiles(t, 2 * consumer + 1, 1, at, tile, cta)
        elif consumer == 0:
            add_tiles(t, 0, 1, at, tile, cta)
        else:
            add_tiles(t, 1, 2, at, tile, cta)
        wait_for_additions()
        barrier()
        release_semaphore(semaphore_ptr)


@gluon.jit
def add_tiles(t, first, COUNT: gl.constexpr, at, tile, cta):
    """TMA adds COUNT tiles of dQ of iteration t, from tile `first` on, when all are there."""
    for i in gl.static_range(COUNT):
        full = dq_barrier(t, first + i, cta)
        mbarrier.wait(cta.dq_full.index(full.index), full.phase)
    for i in gl.static_range(COUNT):
        row = (cta.CHUNKS * at.block + first + i) * 128
        async_add(cta.dq_desc, [tile.batch, at.head, row, 0], cta.dq.index(dq_buffer(t, first + i, cta).index))
    tma.store_wait(0)  # they have left shared memory
    for i in gl.static_range(COUNT):
        mbarrier.arrive(cta.dq_free.index(dq_buffer(t, first + i, cta).index), count=1)
