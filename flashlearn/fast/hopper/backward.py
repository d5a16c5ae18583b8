"""The backward pass for Hopper GPUs, D up to 128: dQ, dK and dV in one pass.

A CTA owns 128 keys of a key head, 64 for each of two consumer warpgroups, and walks over the blocks of queries:

    K, V         `load` issues them once. S^T = K Q^T, dP^T = V dO^T and dQ = dS K read them; dV and dK leave from where V was
    Q, dO        `load` issues a block with its lse and delta, in one of two stages; both consumers release it after an iteration
    P^T, dS^T    in registers: S^T and dP^T are computed transposed, so that these are the left factors of dV and dK
    dS^T         also goes through shared memory: an iteration later each consumer computes half of dQ from both consumers' dS
    dQ           goes through shared memory to `add_dq`, a warp for each consumer: TMA adds it to a float32 accumulator in HBM
                 (`flashlearn.fast.hopper.dq_accumulator`)
    dK, dV       64 keys in the registers of each consumer

Additions to dQ come in any order, so that it may differ in its last bits from run to run. `DETERMINISTIC` gives them one order
(`flashlearn.fast.hopper.semaphores`). Shared memory bandwidth bounds the kernel: 368 KiB an iteration at D = 128.

Findings and figures: docs/engineering_log.md. Sources: T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 2, whose
line numbers are in the comments; J. Shah et al., "FlashAttention-3", 2024 (arXiv:2407.08608), section B.1.
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
    query_ranges,
    register_order,
)
from flashlearn.fast.hopper.pipeline import Pipeline, make_barriers
from flashlearn.fast.hopper.semaphores import release_semaphore, semaphores_of, wait_for_additions, wait_for_semaphore
from flashlearn.fast.hopper.tile_scheduler import make_scheduler, store_tile_index
from flashlearn.fast.hopper.versions import aggregate, async_add, async_load, async_store, barrier

DS_STAGES = gl.constexpr(3)  # iterations whose dS is kept: dQ is computed an iteration later


@aggregate
class BackwardCTA:
    """A CTA's problem, shared memory and barriers, where its results go, and what pays in this kind of launch."""

    scheduler: Any
    problem: Any
    # shared memory
    k: Any  # (2, 1, 1, KEYS, HEAD_DIM): 64 keys for each consumer
    v: Any  # likewise; dV and dK leave from here
    q: Any  # (STAGES, 1, 1, BLOCK_M, HEAD_DIM)
    do: Any  # likewise
    stats: Any  # (STAGES, 1, 1, 2, BLOCK_M) float32: lse and delta
    ds: Any  # (2 * DS_STAGES, KEYS, BLOCK_M): dS^T of both consumers
    dq: Any  # (2, 1, 1, 128, 32) float32: half of a block of dQ for each consumer
    # barriers
    kv_full: Any  # K; V
    q_do: Any  # Pipeline: Q, dO, lse and delta of a block of queries
    ds_full: Any  # dS^T of both consumers is there; for every other iteration
    dq_halves: Any  # Pipeline from consumers to the warps that add
    zeros_full: Any  # zeros are there, where dQ will be; or None
    # descriptors and pointers
    dk_desc: Any
    dv_desc: Any
    dq_desc: Any  # the float32 accumulator
    semaphores_ptr: Any  # deterministic: behind the atomic counter that `make_semaphores` makes
    counters_ptr: Any  # see `Preprocessed`
    # constants, see docs/engineering_log.md
    HEAD_DIM: Any  # columns, with those that fill the last tile
    PREFETCH: Any  # the first loads are issued before the warps part
    ZERO_NEXT: Any  # CTAs zero-initialise dQ of a later head
    STORE_FIRST: Any  # the first block of keys stores its part of dQ: nobody zero-initialises
    COUNT_ADDITIONS: Any  # CTAs count when their additions to dQ have arrived
    LAST_DQ_BEFORE_DV: Any  # the last part of dQ leaves before dV


@gluon.jit(do_not_specialize=["range_stride", "heads_at_once", "N_q", "N_k", "kv_heads", "group"])
def attention_backward_hopper_kernel(
    # descriptors: q, do tiles (BLOCK_M, D); k, v, dk, dv tiles (KEYS, D); as `preprocess` makes them, in float32, stats, tiles
    # (2, BLOCK_M), and dq, (128, 32)
    q_desc, do_desc, k_desc, v_desc, stats_desc, dq_desc, dk_desc, dv_desc,
    # (B, H_q, 2) int32, two for each key head, see `Preprocessed`
    counters_ptr,
    # int32, what `make_semaphores` makes, or None
    semaphores_ptr,
    # see `BackwardProblem`; in this order N_q and N_k are not loaded as a pair, which costs registers
    ranges_ptr, range_stride, N_q, N_k, kv_heads, group, scale, softcap,
    # if SIDE_BY_SIDE, the number of heads that run in parallel
    heads_at_once,
    HEAD_DIM: gl.constexpr, BLOCK_M: gl.constexpr, STAGES: gl.constexpr,
    DETERMINISTIC: gl.constexpr, MASK: gl.constexpr,  # "none", "causal" or "ranges"
    SIDE_BY_SIDE: gl.constexpr = False,
    ZEROED: gl.constexpr = True,  # all of the accumulator is zero; else that of the first heads, or deterministic none
):  # fmt: skip
    """dK and dV of 128 keys of one key head, and their part of dQ."""
    index_smem: gl.constexpr = None
    if DETERMINISTIC:  # issued before shared memory is made ready
        tile_index = gl.atomic_add(semaphores_ptr, 1, sem="relaxed")
    ZERO_NEXT: gl.constexpr = not ZEROED and not DETERMINISTIC
    dtype: gl.constexpr = q_desc.dtype
    k_smem = gl.allocate_shared_memory(dtype, [2, 1, 1, KEYS, HEAD_DIM], k_desc.layout)
    v_smem = gl.allocate_shared_memory(dtype, [2, 1, 1, KEYS, HEAD_DIM], v_desc.layout)
    q_smem = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_M, HEAD_DIM], q_desc.layout)
    do_smem = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_M, HEAD_DIM], do_desc.layout)
    DS_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, BLOCK_M], dtype)
    ds_smem = gl.allocate_shared_memory(dtype, [2 * DS_STAGES, KEYS, BLOCK_M], DS_LAYOUT)
    dq_smem = gl.allocate_shared_memory(gl.float32, [2, 1, 1, 128, 32], dq_desc.layout)
    stats_smem = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 2, BLOCK_M], stats_desc.layout)
    kv_full = make_barriers(2, COUNT=1)
    full = make_barriers(STAGES, COUNT=1)
    ds_full = make_barriers(2, COUNT=2)
    free = make_barriers(STAGES, COUNT=2)
    dq_full = make_barriers(2, COUNT=1)
    dq_free = make_barriers(2, COUNT=1)
    zeros_full: gl.constexpr = None
    if ZERO_NEXT:
        zeros_full = make_barriers(2, COUNT=1)
        for i in gl.static_range(2):
            mbarrier.arrive(dq_free.index(i), count=1)  # a new barrier lets pass; this one does once zeros have left
    if DETERMINISTIC:
        index_smem = store_tile_index(tile_index)
        semaphores_ptr += 1

    problem = BackwardProblem(
        N_q, N_k, kv_heads, group, scale, softcap, ranges_ptr, range_stride,
        MASK, BLOCK_M, 2 * KEYS, DETERMINISTIC, SIDE_BY_SIDE,
    )  # fmt: skip
    inputs = Inputs(q_desc, do_desc, k_desc, v_desc, stats_desc)
    cta = BackwardCTA(
        scheduler=make_scheduler(heads_at_once, index_smem, problem), problem=problem,
        k=k_smem, v=v_smem, q=q_smem, do=do_smem, stats=stats_smem, ds=ds_smem, dq=dq_smem,
        kv_full=kv_full, q_do=Pipeline(None, full, free, STAGES), ds_full=ds_full,
        dq_halves=Pipeline(dq_smem, dq_full, dq_free, 1, TILES=2), zeros_full=zeros_full,
        dk_desc=dk_desc, dv_desc=dv_desc, dq_desc=dq_desc, semaphores_ptr=semaphores_ptr, counters_ptr=counters_ptr,
        HEAD_DIM=HEAD_DIM, ZERO_NEXT=ZERO_NEXT, STORE_FIRST=not ZEROED and DETERMINISTIC,
        PREFETCH=MASK != "none" and not DETERMINISTIC,
        COUNT_ADDITIONS=HEAD_DIM == 128 and MASK != "ranges" and not DETERMINISTIC,
        LAST_DQ_BEFORE_DV=HEAD_DIM == 128 and MASK == "causal",
    )  # fmt: skip
    if cta.PREFETCH:
        load_first(cta.scheduler.coordinates(), cta, inputs)
    # The first consumer has the warps that the CTA began with; of the others come the warps and the registers of a thread
    gl.warp_specialize(
        [(consume, (0, cta)), (consume, (1, cta)), (load, (cta, inputs)), (add_dq, (0, cta)), (add_dq, (1, cta))],
        [4, 1, 1, 1],
        [240, 24, 24, 24],
    )


@gluon.jit
def load_first(tile, cta, inputs):
    """K, the first Q and dO, then V, by TMA: S^T needs no V, and only lse and delta are written by the kernel before."""
    for i in gl.static_range(2):
        mbarrier.expect(cta.kv_full.index(i), 2 * inputs.k.block_type.nbytes)
    load_both(inputs.k, cta.kv_full.index(0), cta.k, tile)
    if tile.blocks > 0:
        load_q_do(0, first_query_block(tile.kv_head * cta.problem.group, tile), tile, cta, inputs)
    load_both(inputs.v, cta.kv_full.index(1), cta.v, tile)


@gluon.jit
def load_both(desc, full, smem, tile):
    """K or V of both consumers, by TMA."""
    for i in gl.static_range(2):
        async_load(desc, [tile.batch, tile.kv_head, tile.start_n + i * KEYS, 0], full, smem.index(i))


@gluon.jit
def load_q_do(t, at, tile, cta, inputs):
    """Q and dO of a block of queries, by TMA. Their barrier waits for lse and delta, too."""
    nbytes: gl.constexpr = inputs.q.block_type.nbytes + inputs.do.block_type.nbytes + inputs.stats.block_type.nbytes
    stage = cta.q_do.index(t)
    full = cta.q_do.full.index(stage)
    mbarrier.expect(full, nbytes)
    async_load(inputs.q, [tile.batch, at.head, at.block * cta.problem.BLOCK_M, 0], full, cta.q.index(stage))
    async_load(inputs.do, [tile.batch, at.head, at.block * cta.problem.BLOCK_M, 0], full, cta.do.index(stage))


@gluon.jit
def load(cta, inputs):
    """The producer warp: K and V once, then Q, dO, lse and delta of every block of queries."""
    problem, tile = cta.problem, cta.scheduler.coordinates()
    if not cta.PREFETCH:
        load_first(tile, cta, inputs)
    first_head = tile.kv_head * problem.group
    at = first_query_block(first_head, tile)
    gdc_wait()  # for attention_preprocess_kernel, which writes lse and delta; all loads before are of older data
    gdc_launch_dependents()  # attention_postprocess_kernel may begin: the counters that it reads are zeros by now
    for t in range(problem.group * tile.blocks):
        cta.q_do.producer_acquire(t)
        if t > 0:  # else loaded by `load_first`
            load_q_do(t, at, tile, cta, inputs)
        stage = cta.q_do.index(t)
        coordinates = [tile.batch, at.head, 0, at.block * problem.BLOCK_M]
        async_load(inputs.stats, coordinates, cta.q_do.full.index(stage), cta.stats.index(stage))
        at = next_query_block(at, first_head, tile, problem)


@gluon.jit
def consume(CONSUMER: gl.constexpr, cta):
    """A consumer warpgroup: dK and dV of its 64 keys, over all blocks of queries, and half of each block of dQ."""
    problem, tile = cta.problem, cta.scheduler.coordinates()
    BLOCK_M: gl.constexpr = problem.BLOCK_M
    HEAD_DIM: gl.constexpr = cta.HEAD_DIM
    KV_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, KV_LAYOUT, 2)
    k, v = cta.k.index(CONSUMER).reshape([KEYS, HEAD_DIM]), cta.v.index(CONSUMER).reshape([KEYS, HEAD_DIM])
    ranges = query_ranges(tile.start_n + CONSUMER * KEYS, tile.batch, problem)
    dk, dv = gl.zeros([KEYS, HEAD_DIM], gl.float32, KV_LAYOUT), gl.zeros([KEYS, HEAD_DIM], gl.float32, KV_LAYOUT)
    mbarrier.wait(cta.kv_full.index(0), 0)
    first_head = 0  # relative: see `QueryBlock`
    at = first_query_block(first_head, tile)
    iterations = problem.group * tile.blocks
    for t in range(iterations):
        stage = cta.q_do.index(t)
        stats = cta.stats.index(stage)
        q, do = cta.q.index(stage).reshape([BLOCK_M, HEAD_DIM]), cta.do.index(stage).reshape([BLOCK_M, HEAD_DIM])
        cta.q_do.consumer_wait(t)
        # with nothing under way: else ptxas waits for S^T in one of the two consumers before it issues dP^T
        dk = warpgroup_mma_wait(0, deps=[dk])
        # both are filled before the first product begins: a product under way frees no register
        s_t, dp_t = initial_accumulator(stats, LSE), initial_accumulator(stats, DELTA)
        s_t = warpgroup_mma(k, q.permute((1, 0)), s_t, use_acc=problem.softcap is None, is_async=True)  # line 10
        mbarrier.wait(cta.kv_full.index(1), 0)  # V; it is there from the first iteration on
        dp_t = warpgroup_mma(v, do.permute((1, 0)), dp_t, is_async=True)  # line 13
        s_t = warpgroup_mma_wait(1, deps=[s_t])
        masked = needs_mask(at.block, tile.start_n + (CONSUMER + 1) * KEYS, tile, problem)
        p = probabilities(s_t, stats, masked, ranges, at.block * BLOCK_M, problem)
        dv = warpgroup_mma(gl.convert_layout(p.p_t.to(q.dtype), P_LAYOUT), do, dv, is_async=True)  # line 12
        dp_t = warpgroup_mma_wait(1, deps=[dp_t])
        ds_t = (p.dp_factor * dp_t).to(q.dtype)  # line 14
        store_ds(t, CONSUMER, ds_t, cta)
        dk = add_to_dk(t, CONSUMER, ds_t, q, dk, cta)
        dv = warpgroup_mma_wait(0, deps=[dv])
        cta.q_do.consumer_release(t)
        at = next_query_block(at, first_head, tile, problem)
    finish(CONSUMER, iterations, dk, dv, cta)


@gluon.jit
def store_ds(t, CONSUMER: gl.constexpr, ds_t, cta):
    """dS^T of iteration t (64, BLOCK_M) to shared memory, for both consumers.

    The other consumer may still read dS^T of the two iterations before, and nothing older. Q of this iteration has
    landed, and Q has two stages, so both have released the iteration two before.
    """
    cta.ds.index(t % DS_STAGES * 2 + CONSUMER).store(ds_t)
    fence_async_shared()
    mbarrier.arrive(cta.ds_full.index(t % 2), count=1)


@gluon.jit
def add_to_dk(t, CONSUMER: gl.constexpr, ds_t, q, dk, cta):
    """dK with its part of iteration t; before that, half of dQ of the iteration before, which leaves while dK is computed."""
    ds_factor = gl.convert_layout(ds_t, gl.DotOperandLayout(0, dk.type.layout, 2))
    if cta.HEAD_DIM == 128 and t == 0:  # at D = 64 the product is made and not used
        dk = warpgroup_mma_wait(0, deps=[warpgroup_mma(ds_factor, q, dk, is_async=True)])  # line 16
    else:
        dq = half_of_dq(t, CONSUMER, cta)
        dk_later = warpgroup_mma(ds_factor, q, dk, is_async=True)  # line 16
        dq = warpgroup_mma_wait(1, deps=[dq])
        if t > 0:
            store_dq(t - 1, CONSUMER, dq, cta)
        dk = warpgroup_mma_wait(0, deps=[dk_later])
    return dk


@gluon.jit
def half_of_dq(t, CONSUMER: gl.constexpr, cta):
    """Half of dQ = dS K (64, 64), line 15, of iteration t - 1, over the 128 keys of both consumers, under way.

    Neither consumer waits for the other, which stored that dS an iteration ago. For t = 0 there is no dS: the barrier lets
    pass, and the product is not used.
    """
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    mbarrier.wait(cta.ds_full.index((t + 1) % 2), ((t + 1) // 2 & 1) ^ 1)  # of iteration t - 1, also for t = 0
    dq = gl.zeros([64, 64], gl.float32, LAYOUT)
    for other in gl.static_range(2):
        ds_t = cta.ds.index((t + 2) % DS_STAGES * 2 + other)  # t - 1, modulo 3
        k = cta.k.index(other).reshape([KEYS, cta.HEAD_DIM])
        if cta.HEAD_DIM == 128:  # 64 queries: half of the columns
            k = k.slice(64 * CONSUMER, 64, dim=1)
        else:  # 128 queries: half of the queries
            ds_t = ds_t.slice(64 * CONSUMER, 64, dim=1)
        dq = warpgroup_mma(ds_t.permute((1, 0)), k, dq, use_acc=other > 0, is_async=True)
    return dq


@gluon.jit
def store_dq(t, CONSUMER: gl.constexpr, dq, cta):
    """Half of dQ (64, 64) of iteration t, to the warp that adds it."""
    parts = cta.dq_halves.tile(CONSUMER)
    parts.producer_acquire(t)
    cta.dq.index(CONSUMER).reshape([128, 32]).store(register_order(dq))
    fence_async_shared()
    parts.producer_commit(t)


@gluon.jit
def finish(CONSUMER: gl.constexpr, iterations, dk, dv, cta):
    """After the last iteration: its half of dQ, then dV and dK to HBM, from where V was, which only this consumer reads."""
    tile = cta.scheduler.coordinates()
    v_smem = cta.v.index(CONSUMER)
    # Over, except where no query attends to these keys. Kernels before may still read the memory that dK and dV get
    gdc_wait()
    mbarrier.wait(cta.kv_full.index(1), 0)
    if cta.LAST_DQ_BEFORE_DV:
        store_last_dq(iterations, CONSUMER, cta)
    store(dv, CONSUMER, tile, v_smem, cta.dv_desc)
    if not cta.LAST_DQ_BEFORE_DV:
        store_last_dq(iterations, CONSUMER, cta)
    tma.store_wait(0)
    barrier()
    store(dk * cta.problem.scale, CONSUMER, tile, v_smem, cta.dk_desc)
    tma.store_wait(0)


@gluon.jit
def store_last_dq(iterations, CONSUMER: gl.constexpr, cta):
    """Half of dQ of the last iteration, if there was one, to the warp that adds it."""
    if iterations > 0:
        dq = warpgroup_mma_wait(0, deps=[half_of_dq(iterations, CONSUMER, cta)])
        store_dq(iterations - 1, CONSUMER, dq, cta)


@gluon.jit
def store(gradient, CONSUMER: gl.constexpr, tile, smem, desc):
    """dK or dV (64, D) of this consumer to HBM, through shared memory; issued, not waited for."""
    smem.reshape([KEYS, gradient.shape[1]]).store(gradient.to(smem.dtype))
    fence_async_shared()
    barrier()
    async_store(desc, [tile.batch, tile.kv_head, tile.start_n + CONSUMER * KEYS, 0], smem)


@gluon.jit
def add_dq(CONSUMER: gl.constexpr, cta):
    """A warp that has TMA add the halves of dQ of one consumer to the accumulator."""
    problem, tile = cta.problem, cta.scheduler.coordinates()
    parts, part_smem = cta.dq_halves.tile(CONSUMER), cta.dq.index(CONSUMER)
    first_head = tile.kv_head * problem.group
    at = first_query_block(first_head, tile)
    counter_ptr: gl.constexpr = None
    if problem.DETERMINISTIC:
        semaphores = semaphores_of(cta.semaphores_ptr, tile, problem)
    if cta.COUNT_ADDITIONS:
        counter_ptr = cta.counters_ptr + 2 * head_number(tile, problem) + 1
    gdc_wait()  # for attention_preprocess_kernel, which zero-initialises all of the accumulator, the first heads, or nothing
    if cta.ZERO_NEXT:
        zero_next_head(CONSUMER, tile, cta)
    for t in range(problem.group * tile.blocks):
        if problem.DETERMINISTIC:
            before, semaphore_ptr = semaphores.additions_before(at), semaphores.at(at, CONSUMER)
            if not cta.STORE_FIRST or before > 0:
                wait_for_semaphore(semaphore_ptr, before)
        parts.consumer_wait(t)
        coordinates = [tile.batch, at.head, (2 * at.block + CONSUMER) * 128, 0]
        if cta.STORE_FIRST and before == 0:
            async_store(cta.dq_desc, coordinates, part_smem)
        else:
            async_add(cta.dq_desc, coordinates, part_smem)
        tma.store_wait(0)  # it has left shared memory
        parts.consumer_release(t)
        if problem.DETERMINISTIC:
            wait_for_additions()
            barrier()
            release_semaphore(semaphore_ptr)
        at = next_query_block(at, first_head, tile, problem)
    if cta.COUNT_ADDITIONS:  # once all CTAs of a head have counted, attention_postprocess_kernel may end it
        wait_for_additions()
        barrier()
        release_semaphore(counter_ptr)


@gluon.jit
def zero_next_head(CONSUMER: gl.constexpr, tile, cta):
    """Zero-initialise this warp's part of a later head's accumulator, and wait until its own head's is zero.

    The later head is the next, or, where heads run in parallel, that at the same position in the next set. The zeros leave
    from where this warp's half of dQ will be.
    """
    problem = cta.problem
    key_blocks, at_once, heads = heads_in_grid(cta)
    m_blocks = gl.cdiv(problem.N_q, problem.BLOCK_M)
    zeros, full = cta.dq.index(CONSUMER), cta.zeros_full.index(CONSUMER)
    number = head_number(tile, problem)
    later = number + at_once
    if later < heads:
        mbarrier.expect(full, cta.dq_desc.block_type.nbytes)
        async_load(cta.dq_desc, [0, 0, 256 * m_blocks, 0], full, zeros)  # past the accumulator's end TMA finds zeros
        mbarrier.wait(full, 0)
        for i in range(tile.start_n // problem.BLOCK_N, problem.group * m_blocks, key_blocks):
            head, block = later % problem.kv_heads * problem.group + i // m_blocks, i % m_blocks
            async_store(cta.dq_desc, [later // problem.kv_heads, head, (2 * block + CONSUMER) * 128, 0], zeros)
        wait_for_additions()
        barrier()
        release_semaphore(cta.counters_ptr + 2 * later)
    cta.dq_halves.tile(CONSUMER).consumer_release(0)
    if number >= at_once:
        wait_for_semaphore(cta.counters_ptr + 2 * number, 2 * key_blocks)


@gluon.jit
def head_number(tile, problem):
    """The number of a key head, counted through all sequences: two counters, of `Preprocessed.counters`, are its own."""
    return tile.batch * problem.kv_heads + tile.kv_head


@gluon.jit
def heads_in_grid(cta):
    """How many blocks of keys a head has, how many heads run at once, and how many heads there are in all sequences."""
    problem = cta.problem
    key_blocks, at_once, heads = gl.num_programs(0), 1, problem.kv_heads * gl.num_programs(2)
    if problem.SIDE_BY_SIDE:
        key_blocks, at_once = gl.cdiv(problem.N_k, problem.BLOCK_N), cta.scheduler.heads_at_once
        heads = gl.num_programs(0) // key_blocks
    return key_blocks, at_once, heads
