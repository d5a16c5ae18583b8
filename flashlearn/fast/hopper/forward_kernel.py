"""FlashAttention's forward pass for Hopper GPUs: a producer warp loads, two or three consumer warpgroups compute.

The mathematics is that of the teaching kernel. What differs is who does it, and when:

1. TMA loads whole tiles into shared memory, with zeros past the edges of a tensor.
2. A producer warp fills the pipelines of Q, K and V. Each consumer warpgroup computes 64 queries of a tile. The producer gives its
   registers to the consumers.
3. P V of block t - 1 is issued together with Q K^T of block t, and waited for after the softmax of block t. The tensor
   cores therefore run while exponentials are computed. P stays in registers between the two products.
4. Keys are visited from right to left, so that blocks that need a mask come first.
5. CTAs are persistent: a tile scheduler gives each of them one tile of queries after another.

Read `load` and `consume` first. Their parts are in `pipeline`, `tile_scheduler`, `consumer`, `softmax` and `mask`. What some settings
add is in `variants`: two CTAs per SM, and old maxima that three consumers keep. Up to 192 columns, from 129 on, the head
dimension is three chunks of 64. Figures: docs/engineering_log.md.
Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv:2407.08608), Algorithms 1 and 2.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma_wait

from flashlearn.fast.hopper.consumer import ForwardCTA, State, release_only_q, release_q_before, waited
from flashlearn.fast.hopper.mask import ROWS, ForwardProblem, hide, iterations_of, tile_at
from flashlearn.fast.hopper.pipeline import Pipeline, init_barriers, make_barriers
from flashlearn.fast.hopper.softmax import capped, in_pairs, rescaled, thread_sums
from flashlearn.fast.hopper.tile_scheduler import PersistentTileScheduler
from flashlearn.fast.hopper.variants import attend_sequentially, update_with_old_maximum
from flashlearn.fast.hopper.versions import async_store, barrier
from flashlearn.fast.online_softmax import LN_2


@gluon.jit(do_not_specialize=["range_stride", "heads_at_once", "batches", "heads", "N_q", "N_k", "group"])
def attention_forward_hopper_kernel(
    # descriptors: q, o (B, H_q, N_q, D), tiles (ROWS, D); k, v (B, H_kv, N_k, D), tiles (BLOCK_N, D); or chunks of 64 columns
    q_desc, k_desc, v_desc, o_desc, lse_ptr,
    # (1 or B, 2, N_q) int32 key ranges and the stride between two sequences, if MASK is "ranges"
    ranges_ptr, range_stride,
    # (1,) int32, 0 before and after, or None: a static schedule; and the number of heads that run in parallel under a mask
    counter_ptr, heads_at_once,
    sinks_ptr,  # (H_q,) float32, if SINKS
    # sizes; scale * log2(e) and None, or the two factors of a softcap, see `with_softcap`
    batches, heads, N_q, N_k, group, qk_scale, inner,
    HEAD_DIM: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr,
    MASK: gl.constexpr, SINKS: gl.constexpr, CTAS_PER_SM: gl.constexpr = 1,
):  # fmt: skip
    """O and lse for one tile of CONSUMERS * 64 queries after another, as the scheduler says."""
    dtype: gl.constexpr = q_desc.dtype
    COLUMNS: gl.constexpr = q_desc.block_type.shape[3]
    CHUNKS: gl.constexpr = HEAD_DIM // COLUMNS  # of the head dimension
    # A second buffer for the next tile's Q: at D = 256 there is no room for it, under a mask it does not pay at D = 192
    Q_STAGES: gl.constexpr = 2 if HEAD_DIM <= (192 if MASK == "none" else 128) else 1
    q_smem = gl.allocate_shared_memory(dtype, [Q_STAGES * CONSUMERS * CHUNKS, 1, 1, ROWS, COLUMNS], q_desc.layout)
    k_smem = gl.allocate_shared_memory(dtype, [STAGES * CHUNKS, 1, 1, BLOCK_N, COLUMNS], k_desc.layout)
    v_smem = gl.allocate_shared_memory(dtype, [STAGES * CHUNKS, 1, 1, BLOCK_N, COLUMNS], v_desc.layout)
    q_full = make_barriers(Q_STAGES * CONSUMERS)
    q_free = make_barriers(Q_STAGES * CONSUMERS)
    k_full = make_barriers(STAGES)
    v_full = make_barriers(STAGES)
    free = make_barriers(STAGES)  # K of this iteration and V of the one before have been read
    row_sums = gl.allocate_shared_memory(gl.float32, [2 * CONSUMERS, ROWS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    slots = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    slots_full = make_barriers(2)
    for i in gl.static_range(Q_STAGES * CONSUMERS):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_free.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(free.index(i), count=CONSUMERS)
    init_barriers(slots_full, 1)

    q = Pipeline(q_smem, q_full, q_free, Q_STAGES, CHUNKS, CONSUMERS)
    k = Pipeline(k_smem, k_full, free, STAGES, CHUNKS)
    v = Pipeline(v_smem, v_full, free, STAGES, CHUNKS, RELEASE_LAG=1)
    problem = ForwardProblem(batches, heads, N_q, N_k, group, qk_scale, inner, ranges_ptr, range_stride, MASK)
    scheduler = PersistentTileScheduler(slots, slots_full, counter_ptr, heads_at_once, problem, CONSUMERS * ROWS)
    cta = ForwardCTA(
        q, k, v, row_sums, scheduler, problem, sinks_ptr, o_desc, lse_ptr,
        BLOCK_N=BLOCK_N, COLUMNS=COLUMNS, CONSUMERS=CONSUMERS, SINKS=SINKS, CTAS_PER_SM=CTAS_PER_SM,
    )  # fmt: skip
    # The first consumer has the warps that the CTA began with; of the others come the warps and the registers of a thread
    if CONSUMERS == 2:
        gl.warp_specialize(
            [(consume, (0, cta)), (consume, (1, cta)), (load, (cta, q_desc, k_desc, v_desc))],
            [4, 1],
            [240 if CTAS_PER_SM == 1 else 104, 24],
        )
    else:
        gl.warp_specialize(
            [(consume, (0, cta)), (consume, (1, cta)), (consume, (2, cta)), (load, (cta, q_desc, k_desc, v_desc))],
            [4, 4, 1],
            [160, 160, 24],
        )


@gluon.jit
def load(cta, q_desc, k_desc, v_desc):
    """The producer warp: Q of every tile, then its K and V from right to left, as soon as a buffer is free."""
    t0, i, index = 0, 0, gl.program_id(0)
    while index < cta.scheduler.tiles():
        tile = tile_at(index, i, t0, cta.scheduler, cta.BLOCK_N)
        kv_head = tile.head // cta.problem.group
        for c in gl.static_range(cta.CONSUMERS):
            q = cta.q.tile(c)
            q.producer_acquire(i)
            q.load(i, q_desc, tile.batch, tile.head, tile.start_m + c * ROWS)
        for t in range(t0, tile.end()):
            row = tile.block(t) * cta.BLOCK_N
            cta.k.producer_acquire(t)
            cta.k.load(t, k_desc, tile.batch, kv_head, row)
            cta.v.producer_acquire(t)
            cta.v.load(t, v_desc, tile.batch, kv_head, row)
        t0 = tile.end()
        index = cta.scheduler.fetch_next(i, index)
        i += 1


@gluon.jit
def consume(consumer: gl.constexpr, cta):
    """A consumer warpgroup: its 64 queries of every tile."""
    q = cta.q.tile(consumer)
    t0, i, index = 0, 0, gl.program_id(0)
    while index < cta.scheduler.tiles():
        tile = tile_at(index, i, t0, cta.scheduler, cta.BLOCK_N).of_consumer(consumer)
        o_smem = q.chunks(i)
        if cta.CTAS_PER_SM == 1:
            softmax, acc = attend(tile, q, cta)
        else:
            softmax, acc = attend_sequentially(tile, q, cta)
        index = cta.scheduler.receive_next(i, index)
        finish(softmax, acc, tile, o_smem, cta)
        release_only_q(i, q)
        t0 = tile.end()
        i += 1
    tma.store_wait(0)


@gluon.jit
def attend(tile, q, cta):
    """Softmax and acc of a consumer's 64 queries after all their keys."""
    MASK: gl.constexpr = cta.problem.MASK
    q_tile, softmax, acc = cta.begin_tile(tile, q)
    its = iterations_of(tile, cta.problem, cta.BLOCK_N)
    for t in range(tile.t0, its.first):  # only consumers of later queries attend to these keys
        cta.release_unread(t)
    q_tile.wait()
    if its.stop > its.first:
        cta.k.consumer_wait(its.first)
        s = warpgroup_mma_wait(0, deps=[cta.scores(its.first, q_tile.chunks)])
        state = first_iteration(its.first, s, q_tile, softmax, acc, cta)
        release_q_before(tile.i, q)
        for t in range(its.first + 1, its.masked):
            state = iteration(t, q_tile, state, cta, True)
        for t in range(its.masked, its.full):
            state = iteration(t, q_tile, state, cta, False)
        if MASK == "ranges":
            for t in range(its.full, its.stop):
                state = iteration(t, q_tile, state, cta, True)
        softmax, acc = state.softmax, waited(cta.last_product(its.stop - 1, state.pairs, state.acc))
    else:
        release_q_before(tile.i, q)
    if MASK == "ranges":
        for t in range(its.stop, tile.end()):  # only consumers of earlier queries attend to these keys
            cta.release_unread(t)
    return softmax, acc


@gluon.jit
def first_iteration(t, s, q_tile, softmax, acc, cta):
    """The state after the first iteration, from S_t (64, BLOCK_N): no product of P and V goes along with it."""
    cta.k.consumer_release(t)
    s = capped(s, cta.problem.inner)
    if cta.problem.MASK != "none" or (q_tile.tile.block(t) + 1) * cta.BLOCK_N > cta.problem.N_k:
        s = hide(s, t, q_tile, cta.problem)
    softmax, p, _ = softmax.update(s, cta.problem.qk_scale)
    return State(softmax.plus(thread_sums(p)), acc, in_pairs(p, cta.v.smem.dtype))


@gluon.jit
def products(t, q_tile, state, cta):
    """S_t (64, BLOCK_N), waited for, and acc + P_{t-1} V_{t-1} (64, D), still under way."""
    cta.k.consumer_wait(t)
    s = cta.scores(t, q_tile.chunks)
    cta.v.consumer_wait(t - 1)
    acc = cta.plus_product(t - 1, state.pairs, state.acc)
    return warpgroup_mma_wait(len(acc), deps=[s]), acc


@gluon.jit
def update(t, s, acc, q_tile, state, cta):
    """The online-softmax update with S_t while P_{t-1} V_{t-1} is under way, in acc: the new state.

    Three consumers have 160 registers a thread: they round P once that product no longer needs the former one.
    """
    softmax, p, alpha = state.softmax.update(s, cta.problem.qk_scale)  # p (64, BLOCK_N), alpha (64,)
    softmax = softmax.plus(thread_sums(p))
    if cta.CONSUMERS == 2:
        pairs = in_pairs(p, cta.v.smem.dtype)
        q_tile.wait()  # redundant: it keeps ptxas from hoisting the warpgroup wait above the exponentials
    acc = waited(acc)
    if cta.CONSUMERS == 3:
        pairs = in_pairs(p, cta.v.smem.dtype)
    cta.k.consumer_release(t)
    return State(softmax, rescaled(acc, alpha), pairs)


@gluon.jit
def iteration(t, q_tile, state, cta, HIDE: gl.constexpr):
    """The state after iteration t; not HIDE: all 64 queries attend to all of its keys."""
    s, acc = products(t, q_tile, state, cta)
    if cta.CONSUMERS == 3 and not HIDE:
        state = update_with_old_maximum(t, s, acc, q_tile, state, cta)
    else:
        s = capped(s, cta.problem.inner)
        if HIDE:
            s = hide(s, t, q_tile, cta.problem)
        state = update(t, s, acc, q_tile, state, cta)
    return state


@gluon.jit
def finish(softmax, acc, tile, o_smem, cta):
    """o = acc / l and lse = m + log l of 64 queries; TMA stores o from the buffer of their Q, which nobody reads any more."""
    l_i = softmax.total()
    o = rescaled(acc, 1.0 / l_i)  # (64, D)
    lse = (softmax.m_i + gl.log2(l_i)) * LN_2  # (64,)
    offs_m = tile.start_m + gl.arange(0, ROWS, lse.type.layout)
    lse_base = cta.lse_ptr + (tile.batch.to(gl.int64) * cta.problem.heads + tile.head) * cta.problem.N_q
    gl.store(lse_base + offs_m, lse, mask=offs_m < cta.problem.N_q)
    for c in gl.static_range(len(o)):
        o_smem[c].store(o[c].to(o_smem[c].dtype))
    fence_async_shared()
    barrier()
    for c in gl.static_range(len(o)):
        chunk = o_smem[c].reshape(cta.o_desc.block_type.shape)
        async_store(cta.o_desc, [tile.batch, tile.head, tile.start_m, c * cta.COLUMNS], chunk)
