"""The backward pass for Hopper GPUs of 129 to 256 columns: one consumer warpgroup has dV, the other dK.

dK and dV of 64 keys and 256 columns take 128 of a thread's 240 registers each, so that no warpgroup has room for both.
Both work on the 64 keys of the CTA:

    warpgroup      computes                               has      stores for the other
    consume_values S^T = K Q^T, P^T; dV += P^T dO         dV       P^T, in float32, in the order of its registers
    consume_keys   dP^T = V dO^T, dS^T; dK += dS^T Q      dK       dS^T, in 16 bits

Each computes its columns of dQ = dS K an iteration later, 64 at a time, for a warp that has TMA add them to the sum in
HBM: half of them, or at D = 192 one tile of 64 and two. Tiles come in chunks of 64 columns. With four chunks shared memory
holds one dO, not two.

Masks, softcaps and shared keys are as in `flashlearn.fast.hopper.backward`; all sums begin at zero. Deterministic, three
warps add in turn (`add_dq_in_turn`). Additions to dQ bound it. Findings and figures: docs/engineering_log.md.
Sources: T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 2; J. Shah et al., "FlashAttention-3",
2024 (arXiv:2407.08608), section B.1.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

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

from flashlearn.core.inputs import check_bool
from flashlearn.fast.dependent_launch import dependent
from flashlearn.fast.hopper.backward import (
    KEYS,
    GridCoordinates,
    Problem,
    causal_blocks,
    coordinates_of,
    crosses,
    heads_beside,
    heads_beside_deterministic,
    less_rows,
    next_block,
    probabilities,
    query_ranges_of,
    register_order,
)
from flashlearn.fast.hopper.dq_sums import Begun, begin_sums, end_sums, tiles_of_dq
from flashlearn.fast.hopper.ranges import Ranges
from flashlearn.fast.hopper.scheduling import (
    heads_with_masks,
    keep_tile_index,
    make_semaphores,
    release_semaphore,
    wait_for_additions,
    wait_for_semaphore,
)
from flashlearn.fast.hopper.softcap import factor_of
from flashlearn.fast.hopper.tiles import in_tiles, launch_hopper
from flashlearn.fast.hopper.versions import async_add, async_load, async_store, barrier
from flashlearn.fast.launcher import uninitialised

ADDING = gl.constexpr(3)  # warps that add dQ in turn, deterministic: as many as leave the consumers their registers


class WideBuffers(NamedTuple):
    """Shared memory, in chunks of 64 columns."""

    k: Any
    v: Any
    q: Any  # two stages
    do: Any  # one or two stages
    p: Any  # P^T, float32, in the order of registers
    ds: Any  # two, in turn
    dq: Any  # tiles (64, 64) float32
    rows: Any  # lse and delta


# Of the buffers: full when there, free when both consumers have read them.
WideBarriers = namedtuple("WideBarriers", "kv_full q_full q_free do_full do_free p_full p_free ds_full dq_full dq_free")
# Descriptors.
WideInputs = namedtuple("WideInputs", "q do k v rows")
# Where dQ is summed up.
WideDqTarget = namedtuple("WideDqTarget", "dq semaphores_ptr kv_heads")


@gluon.jit(do_not_specialize=["range_stride", "side", "N_q", "N_k", "kv_heads", "group"])
def attention_backward_wide_kernel(
    # descriptors: q, do, k, v, dk, dv tiles (64, 64); as `begin_sums` has them, in float32, rows, tiles (2, 64), and dq, (128, 32)
    q_desc, do_desc, k_desc, v_desc, rows_desc, dq_desc, dk_desc, dv_desc,
    # as attention_backward_hopper_kernel has them, and SIDE_BY_SIDE
    ranges_ptr, range_stride, semaphores_ptr, side,
    N_q, N_k, kv_heads, group, scale, softcap,
    CHUNKS: gl.constexpr,  # of 64 columns
    DETERMINISTIC: gl.constexpr, MASK: gl.constexpr,  # "none", "causal" or "ranges"
    SIDE_BY_SIDE: gl.constexpr = False,
):  # fmt: skip
    """dK and dV of 64 keys of one key head, and their part of dQ."""
    if DETERMINISTIC:
        ticket = gl.atomic_add(semaphores_ptr, 1, sem="relaxed")
    dtype: gl.constexpr = q_desc.dtype
    # there is room, of three chunks, for two dO, and for every tile of dQ; of four for one dO, and a tile of each consumer
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
    rows_smem = gl.allocate_shared_memory(gl.float32, [2, 1, 1, 2, KEYS], rows_desc.layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())  # K, V
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())  # and the rows' numbers
    # both consumers are through with them
    q_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    do_full = gl.allocate_shared_memory(gl.int64, [DO_STAGES, 1], mbarrier.MBarrierLayout())
    do_free = gl.allocate_shared_memory(gl.int64, [DO_STAGES, 1], mbarrier.MBarrierLayout())  # both consumers, too
    # P is there, for the other consumer
    p_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    p_free = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())  # it has been read
    ds_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())  # dS is there, for both; in turn
    dq_full = gl.allocate_shared_memory(gl.int64, [DQ_FULL, 1], mbarrier.MBarrierLayout())  # a tile of dQ is there
    dq_free = gl.allocate_shared_memory(gl.int64, [DQ_TILES, 1], mbarrier.MBarrierLayout())  # it has left
    for i in gl.static_range(2):
        mbarrier.init(kv_full.index(i), count=1)
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_free.index(i), count=2)
        mbarrier.init(ds_full.index(i), count=1)
    for i in gl.static_range(DQ_FULL):
        mbarrier.init(dq_full.index(i), count=1)
    for i in gl.static_range(DQ_TILES):
        mbarrier.init(dq_free.index(i), count=1)
    for i in gl.static_range(DO_STAGES):
        mbarrier.init(do_full.index(i), count=1)
        mbarrier.init(do_free.index(i), count=2)
    mbarrier.init(p_full.index(0), count=1)
    mbarrier.init(p_free.index(0), count=1)

    problem = Problem(N_q, N_k, group, scale, softcap, ranges_ptr, range_stride)
    n, kv_head, batch = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    heads_at_once: gl.constexpr = None
    tile_index_smem: gl.constexpr = None
    if DETERMINISTIC:
        tile_index_smem = keep_tile_index(ticket)
        semaphores_ptr += 1
    if SIDE_BY_SIDE:
        heads_at_once = side
    start_n = n * KEYS
    first = 0
    full = 0
    if MASK == "causal" and not SIDE_BY_SIDE:
        first, full = causal_blocks(start_n, problem, KEYS, KEYS)
    blocks = gl.maximum(gl.cdiv(N_q, KEYS) - first, 0)
    buffers = WideBuffers(k_smem, v_smem, q_smem, do_smem, p_smem, ds_smem, dq_smem, rows_smem)
    barriers = WideBarriers(kv_full, q_full, q_free, do_full, do_free, p_full, p_free, ds_full, dq_full, dq_free)
    place = GridCoordinates(
        start_n, kv_head, batch, first, full, full, blocks, heads_at_once, tile_index_smem, kv_heads
    )
    inputs = WideInputs(q_desc, do_desc, k_desc, v_desc, rows_desc)
    sums = WideDqTarget(dq_desc, semaphores_ptr, kv_heads)
    if DETERMINISTIC:
        gl.warp_specialize(
            [
                (consume_values, (buffers, barriers, place, problem, dv_desc, MASK)),
                (consume_keys, (buffers, barriers, place, problem, dk_desc, MASK)),
                (load, (buffers, barriers, place, problem, inputs, MASK, DETERMINISTIC)),
                (add_dq_in_turn, (0, buffers, barriers, place, problem, sums, MASK)),
                (add_dq_in_turn, (1, buffers, barriers, place, problem, sums, MASK)),
                (add_dq_in_turn, (2, buffers, barriers, place, problem, sums, MASK)),
            ],
            [4, 1, 1, 1, 1],
            [240, 24, 24, 24, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consume_values, (buffers, barriers, place, problem, dv_desc, MASK)),
                (consume_keys, (buffers, barriers, place, problem, dk_desc, MASK)),
                (load, (buffers, barriers, place, problem, inputs, MASK, DETERMINISTIC)),
                (add_dq, (0, buffers, barriers, place, problem, sums, MASK)),
                (add_dq, (1, buffers, barriers, place, problem, sums, MASK)),
            ],
            [4, 1, 1, 1],
            [240, 24, 24, 24],
        )


@gluon.jit
def load(buffers, barriers, place, problem, inputs, MASK: gl.constexpr, DETERMINISTIC: gl.constexpr):
    """The producer warp: K and V, then Q and dO, of every head and block as `next_block` has them, chunk by chunk."""
    here = coordinates_of(place, problem, KEYS, MASK, KEYS)
    CHUNKS: gl.constexpr = buffers.k.shape[0]
    DO_STAGES: gl.constexpr = barriers.do_full.shape[0]
    load_chunks(inputs.k, [here.batch, here.kv_head, here.start_n], barriers.kv_full.index(0), buffers.k, 0, CHUNKS)
    load_chunks(inputs.v, [here.batch, here.kv_head, here.start_n], barriers.kv_full.index(1), buffers.v, 0, CHUNKS)
    head, block = here.kv_head * problem.group, here.first + here.blocks - 1
    heads = (head, head + problem.group)
    gdc_wait()  # for lse and delta; all that has been issued is older
    gdc_launch_dependents()
    for t in range(problem.group * here.blocks):
        stage = t % 2
        mbarrier.wait(barriers.q_free.index(stage), (t // 2 & 1) ^ 1)  # a fresh barrier lets the first iteration pass
        load_chunks(
            inputs.q,
            [here.batch, head, block * KEYS],
            barriers.q_full.index(stage),
            buffers.q,
            stage,
            CHUNKS,
            inputs.rows.block_type.nbytes,
        )
        async_load(
            inputs.rows, [here.batch, head, 0, block * KEYS], barriers.q_full.index(stage), buffers.rows.index(stage)
        )
        stage = t % DO_STAGES
        mbarrier.wait(barriers.do_free.index(stage), (t // DO_STAGES & 1) ^ 1)
        load_chunks(
            inputs.do, [here.batch, head, block * KEYS], barriers.do_full.index(stage), buffers.do, stage, CHUNKS
        )
        head, block = next_block(head, block, heads, here, DETERMINISTIC)


@gluon.jit
def load_chunks(desc, at, full, smem, stage, CHUNKS: gl.constexpr, others: gl.constexpr = 0):
    """A tile (64, D) from TMA; its barrier waits for so many other bytes besides."""
    mbarrier.expect(full, CHUNKS * desc.block_type.nbytes + others)
    for c in gl.static_range(CHUNKS):
        async_load(desc, [at[0], at[1], at[2], 64 * c], full, smem.index(stage * CHUNKS + c))


@gluon.jit
def across(left, right, stage, acc, FRESH: gl.constexpr, CHUNKS: gl.constexpr):
    """acc + left right^T (64, 64), under way, a sum over all columns of two tiles; FRESH: without acc."""
    for c in gl.static_range(CHUNKS):
        a = left.index(c).reshape([KEYS, 64])
        b = right.index(stage * CHUNKS + c).reshape([KEYS, 64]).permute((1, 0))
        acc = warpgroup_mma(a, b, acc, use_acc=not FRESH or c > 0, is_async=True)
    return acc


@gluon.jit
def along(factor, right, stage, acc):
    """acc + factor right (64, D), chunk by chunk, under way."""
    out: gl.tuple = ()
    for c in gl.static_range(len(acc)):
        slab = right.index(stage * len(acc) + c).reshape([KEYS, 64])
        out = out + (warpgroup_mma(factor, slab, acc[c], is_async=True),)
    return out


@gluon.jit
def nothing_yet(LAYOUT: gl.constexpr, CHUNKS: gl.constexpr):
    """dK or dV (64, D), in chunks, before any query."""
    zero = gl.zeros([KEYS, 64], gl.float32, LAYOUT)
    out: gl.tuple = ()
    for _ in gl.static_range(CHUNKS):
        out = out + (zero,)
    return out


@gluon.jit
def consume_values(buffers, barriers, place, problem, dv_desc, MASK: gl.constexpr):
    """The group that has dV: P^T of 64 keys and every block of queries, P^T dO, and the first columns of dQ."""
    here = coordinates_of(place, problem, KEYS, MASK, KEYS)
    CHUNKS: gl.constexpr = buffers.k.shape[0]
    DO_STAGES: gl.constexpr = barriers.do_full.shape[0]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    keys = query_ranges_of(here.start_n, here.batch, problem, LAYOUT, MASK)
    dv = nothing_yet(LAYOUT, CHUNKS)
    mbarrier.wait(barriers.kv_full.index(0), 0)
    head, block = 0, here.first + here.blocks - 1
    iterations = problem.group * here.blocks
    for t in range(iterations):
        stage = t % 2
        mbarrier.wait(barriers.q_full.index(stage), t // 2 & 1)
        s_t = across(
            buffers.k, buffers.q, stage, less_rows(buffers.rows.index(stage), 0), problem.softcap is not None, CHUNKS
        )
        s_t = warpgroup_mma_wait(0, deps=[s_t])
        crossed = crosses(block, 0, here, problem, KEYS, MASK)
        p_t, w_t = probabilities(s_t, buffers.rows.index(stage), crossed, keys, block * KEYS, problem, MASK)
        mbarrier.arrive(barriers.q_free.index(stage), count=1)
        mbarrier.wait(barriers.p_free.index(0), (t & 1) ^ 1)
        buffers.p.index(0).reshape([128, 32]).store(register_order(w_t))
        mbarrier.arrive(barriers.p_full.index(0), count=1)
        factor = gl.convert_layout(p_t.to(buffers.q.dtype), gl.DotOperandLayout(0, LAYOUT, 2))
        mbarrier.wait(barriers.ds_full.index((t + 1) % 2), ((t + 1) // 2 & 1) ^ 1)
        mbarrier.wait(barriers.do_full.index(t % DO_STAGES), t // DO_STAGES & 1)
        dq = tile_of_dq(t, 0, buffers.ds, buffers.k)
        dv = along(factor, buffers.do, t % DO_STAGES, dv)
        dq = warpgroup_mma_wait(CHUNKS, deps=[dq])
        store_dq(t - 1, 0, dq, buffers, barriers)
        if CHUNKS == 4:
            dq = warpgroup_mma_wait(0, deps=[tile_of_dq(t, 1, buffers.ds, buffers.k)])
        dv = warpgroup_mma_wait(0, deps=dv)
        mbarrier.arrive(barriers.do_free.index(t % DO_STAGES), count=1)
        if CHUNKS == 4:
            store_dq(t - 1, 1, dq, buffers, barriers)
        # with a tile index, deterministic
        head, block = next_block(head, block, (0, problem.group), here, place.tile_index_smem is not None)
    # for which dS of the last iteration was there: the other consumer has read dO
    last_of_dq(iterations, 0, buffers, barriers)
    here = coordinates_of(place, problem, KEYS, MASK, KEYS)
    gdc_wait()  # over, but where no query sees these keys: until then others may read what is dK's and dV's memory now
    store(dv, 1.0, here, buffers.do, dv_desc)


@gluon.jit
def consume_keys(buffers, barriers, place, problem, dk_desc, MASK: gl.constexpr):
    """The group that has dK: dS^T of 64 keys and every block of queries, dS^T Q, and the last columns of dQ."""
    start_n, kv_head, batch, first, full, full_stop, blocks = coordinates_of(place, problem, KEYS, MASK, KEYS)
    CHUNKS: gl.constexpr = buffers.k.shape[0]
    DO_STAGES: gl.constexpr = barriers.do_full.shape[0]
    FIRST: gl.constexpr = CHUNKS - 2
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    dk = nothing_yet(LAYOUT, CHUNKS)
    mbarrier.wait(barriers.kv_full.index(0), 0)
    mbarrier.wait(barriers.kv_full.index(1), 0)
    iterations = problem.group * blocks
    for t in range(iterations):
        stage = t % 2
        mbarrier.wait(barriers.q_full.index(stage), t // 2 & 1)
        mbarrier.wait(barriers.do_full.index(t % DO_STAGES), t // DO_STAGES & 1)
        dp_t = across(buffers.v, buffers.do, t % DO_STAGES, less_rows(buffers.rows.index(stage), 1), False, CHUNKS)
        mbarrier.wait(barriers.p_full.index(0), t & 1)
        dp_t = warpgroup_mma_wait(0, deps=[dp_t])
        mbarrier.arrive(barriers.do_free.index(t % DO_STAGES), count=1)
        ds_16 = (from_register_order(buffers.p.index(0), dp_t) * dp_t).to(buffers.q.dtype)
        mbarrier.arrive(barriers.p_free.index(0), count=1)
        buffers.ds.index(t % 2).store(ds_16)
        fence_async_shared()
        mbarrier.arrive(barriers.ds_full.index(t % 2), count=1)
        factor = gl.convert_layout(ds_16, gl.DotOperandLayout(0, LAYOUT, 2))
        dq = tile_of_dq(t, FIRST, buffers.ds, buffers.k)
        dk = along(factor, buffers.q, stage, dk)
        dq = warpgroup_mma_wait(CHUNKS, deps=[dq])
        store_dq(t - 1, FIRST, dq, buffers, barriers)
        dq = warpgroup_mma_wait(0, deps=[tile_of_dq(t, FIRST + 1, buffers.ds, buffers.k)])
        dk = warpgroup_mma_wait(0, deps=dk)
        mbarrier.arrive(barriers.q_free.index(stage), count=1)
        store_dq(t - 1, FIRST + 1, dq, buffers, barriers)
    last_of_dq(iterations, 1, buffers, barriers)
    here = coordinates_of(place, problem, KEYS, MASK, KEYS)
    gdc_wait()
    store(dk, problem.scale, here, buffers.v, dk_desc)  # only this consumer reads V


@gluon.jit
def from_register_order(smem, like):
    """What `register_order` put there (128, 32), as the product (64, 64) that it was; `like` is another."""
    x = smem.reshape([128, 32]).load(register_order(like).type.layout)
    x = x.reshape([4, 8, 8, 4, 2, 2]).permute((0, 4, 2, 1, 3, 5)).reshape([64, 64])
    return gl.convert_layout(x, like.type.layout)


@gluon.jit
def tile_of_dq(t, c: gl.constexpr, ds_smem, k_smem):
    """dS K (64, 64) of iteration t - 1, columns from 64 c on, under way; for t = 0 of what lies in memory, used by nobody."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    zero = gl.zeros([64, 64], gl.float32, LAYOUT)
    k = k_smem.index(c).reshape([KEYS, 64])
    return warpgroup_mma(ds_smem.index((t + 1) % 2).permute((1, 0)), k, zero, use_acc=False, is_async=True)


@gluon.jit
def dq_buffer_of(t, tile, dq_smem):
    """Which buffer has tile number `tile` of dQ of iteration t, and the phase of its barriers."""
    if dq_smem.shape[0] == 3:  # one for each tile
        return tile, t & 1
    else:
        return tile // 2, tile % 2


@gluon.jit
def dq_barrier_of(t, tile, dq_smem, dq_full):
    """Which barrier tells that it is there, and its phase; deterministic it is one of four, since three warps wait in turn.

    A barrier only tells even phases from odd ones, so that whoever waits for iteration t must know that iteration t - 4 is over. It is: this
    warp's part before was of iteration t - 1 or t - 2, and by then both consumers had given all dQ up to iteration t - 3.
    """
    if dq_full.shape[0] == dq_smem.shape[0]:
        return dq_buffer_of(t, tile, dq_smem)
    else:
        return 4 * tile + t % 4, t // 4 & 1


@gluon.jit
def store_dq(t, tile: gl.constexpr, dq, buffers, barriers):
    """Tile number `tile` of dQ of iteration t, if it is one, to the warp that adds it, once the one before has left."""
    if t >= 0:
        at, phase = dq_buffer_of(t, tile, buffers.dq)
        mbarrier.wait(barriers.dq_free.index(at), phase ^ 1)
        buffers.dq.index(at).reshape([128, 32]).store(register_order(dq))
        fence_async_shared()
        full, phase = dq_barrier_of(t, tile, buffers.dq, barriers.dq_full)
        mbarrier.arrive(barriers.dq_full.index(full), count=1)


@gluon.jit
def last_of_dq(iterations, index: gl.constexpr, buffers, barriers):
    """This consumer's columns of dQ of the last iteration, if there was one."""
    FIRST: gl.constexpr = 0 if index == 0 else buffers.k.shape[0] - 2
    EACH: gl.constexpr = buffers.k.shape[0] - 2 if index == 0 else 2
    if iterations > 0:
        mbarrier.wait(barriers.ds_full.index((iterations + 1) % 2), ((iterations + 1) // 2 & 1) ^ 1)
        for c in gl.static_range(EACH):
            dq = warpgroup_mma_wait(0, deps=[tile_of_dq(iterations, FIRST + c, buffers.ds, buffers.k)])
            store_dq(iterations - 1, FIRST + c, dq, buffers, barriers)


@gluon.jit
def store(tile, factor, place, smem, desc):
    """A tile (64, D) of the program's keys to HBM, from shared memory."""
    for c in gl.static_range(len(tile)):
        smem.index(c).reshape([KEYS, 64]).store((tile[c] * factor).to(smem.dtype))
    fence_async_shared()
    barrier()
    for c in gl.static_range(len(tile)):
        async_store(desc, [place.batch, place.kv_head, place.start_n, 64 * c], smem.index(c))
    tma.store_wait(0)


@gluon.jit
def add_dq(index: gl.constexpr, buffers, barriers, place, problem, sums, MASK: gl.constexpr):
    """A warp that has TMA add what one consumer gives it, tiles of dQ, to the sum in HBM."""
    here = coordinates_of(place, problem, KEYS, MASK, KEYS)
    CHUNKS: gl.constexpr = buffers.k.shape[0]
    FIRST: gl.constexpr = 0 if index == 0 else CHUNKS - 2
    EACH: gl.constexpr = CHUNKS - 2 if index == 0 else 2
    head, block = here.kv_head * problem.group, here.first + here.blocks - 1
    heads = (head, head + problem.group)
    gdc_wait()  # for attention_begin_sums_kernel, which lets the sums begin at zero
    for t in range(problem.group * here.blocks):
        at = [here.batch, head, CHUNKS * block * 128, 0]
        for c in gl.static_range(EACH):
            add_tiles(t, FIRST + c, 1, sums.dq, at, buffers, barriers)
        head, block = next_block(head, block, heads, here, False)


@gluon.jit
def add_dq_in_turn(which: gl.constexpr, buffers, barriers, place, problem, sums, MASK: gl.constexpr):
    """One of the warps that in turn add what a consumer gives, then what the other gives, and so on, in turn.

    A turn ends when the sums have arrived in HBM. That may take longer than an iteration: meanwhile the next warp goes on.
    """
    start_n, kv_head, batch, first, full, full_stop, blocks = coordinates_of(place, problem, KEYS, MASK, KEYS)
    semaphores_ptr = sums.semaphores_ptr
    CHUNKS: gl.constexpr = buffers.k.shape[0]
    m_blocks = gl.cdiv(problem.N_q, KEYS)
    before = start_n // KEYS  # blocks of keys, all of which add to what this one adds to
    before_ptr: gl.constexpr = None
    semaphores = 2 * problem.group * m_blocks  # of a row
    if MASK == "ranges":
        key_blocks = gl.cdiv(problem.N_k, KEYS)
        number = gl.where(problem.range_stride > 0, batch, 0) * key_blocks + before
        before_ptr = semaphores_ptr + gl.num_programs(0) // key_blocks * semaphores + number * m_blocks
    semaphores_ptr += batch * sums.kv_heads * semaphores
    gdc_wait()  # for attention_begin_sums_kernel, which lets the sums begin at zero
    for part in range(which, 2 * problem.group * blocks, ADDING):
        t, index = part // 2, part % 2
        head, block = (
            kv_head * problem.group + t % problem.group,
            first + blocks - 1 - t // problem.group,
        )  # as `next_block` has them
        semaphore_ptr = semaphores_ptr + (head * m_blocks + block) * 2 + index
        if before_ptr is not None:
            before = gl.load(before_ptr + block)
        wait_for_semaphore(semaphore_ptr, before)
        at = [batch, head, CHUNKS * block * 128, 0]
        if CHUNKS == 4:  # the two tiles of a consumer share a buffer
            add_tiles(t, 2 * index, 1, sums.dq, at, buffers, barriers)
            add_tiles(t, 2 * index + 1, 1, sums.dq, at, buffers, barriers)
        elif index == 0:
            add_tiles(t, 0, 1, sums.dq, at, buffers, barriers)
        else:
            add_tiles(t, 1, 2, sums.dq, at, buffers, barriers)
        wait_for_additions()
        barrier()
        release_semaphore(semaphore_ptr)


@gluon.jit
def add_tiles(t, first, COUNT: gl.constexpr, dq_desc, at, buffers, barriers):
    """So many tiles of dQ of iteration t, from number `first` on, when all are there, to where the first of the iteration's begins."""
    for i in gl.static_range(COUNT):
        full, phase = dq_barrier_of(t, first + i, buffers.dq, barriers.dq_full)
        mbarrier.wait(barriers.dq_full.index(full), phase)
    for i in gl.static_range(COUNT):
        buffer, phase = dq_buffer_of(t, first + i, buffers.dq)
        async_add(dq_desc, [at[0], at[1], at[2] + (first + i) * 128, 0], buffers.dq.index(buffer))
    tma.store_wait(0)  # they have left shared memory
    for i in gl.static_range(COUNT):
        buffer, phase = dq_buffer_of(t, first + i, buffers.dq)
        mbarrier.arrive(barriers.dq_free.index(buffer), count=1)


def attention_backward_wide(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *, causal: bool, scale: float,
    begun: Begun | None = None, ranges: Ranges | None = None, deterministic: bool = False, softcap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk and dv, as `attention_backward_hopper` gives them, for 129 to 256 columns.

    begun: as there, with all sums zero.
    Extra memory: lse, delta and the sums of dq in float32, of whole blocks of 64 queries, the sums of 192 or 256 columns; deterministic, 8
    bytes for a block of 64 queries, with ranges also 4 bytes for every pair of such a block and one of 64 keys.
    """
    check_bool(causal, "causal")
    check_bool(deterministic, "deterministic")
    mask = "ranges" if ranges is not None else "causal" if causal else "none"
    (B, H, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    if begun is None:
        begun = begin_sums(o, do, lse, factor_of(scale, softcap))
    numbers, sums, semaphores, zeroed = begun
    if zeroed is not None:
        raise ValueError(f"expected begun with all sums zero, got those of {zeroed} heads")
    dq, dk, dv = uninitialised(q), uninitialised(k), uninitialised(v)
    tile, keys = (1, 1, KEYS.value, 64), KEYS.value
    key_blocks, rows = -(-N_k // keys), B * H_kv
    side = heads_beside(q, k, causal=causal, own=keys)
    if ranges is not None:
        # of Q and dO; dQ, in float32, takes as much
        nbytes = 2 * ranges.seen * 64 * tiles_of_dq(D) * 2 * q.element_size()
        side = heads_with_masks(rows, nbytes)
    if deterministic:
        side = heads_beside_deterministic(q, k, ranges, causal=causal, block_m=keys, own=keys)
        semaphores = make_semaphores(q, k, ranges, keys, keys)
    launch_hopper(
        attention_backward_wide_kernel, (key_blocks, H_kv, B) if side is None else (key_blocks * rows, 1, 1),
        (
            in_tiles(q, tile), in_tiles(do, tile), in_tiles(k, tile), in_tiles(v, tile), in_tiles(numbers, (1, 1, 2, keys)),
            in_tiles(sums, (1, 1, 128, 32)), in_tiles(dk, tile), in_tiles(dv, tile),
            semaphores if ranges is None else ranges.ends, 2 * N_k if ranges is not None and len(ranges.ends) > 1 else 0,
            semaphores, side or 0, N_q, N_k, H_kv, H // H_kv, scale, softcap,
        ),
        dict(
            CHUNKS=tiles_of_dq(D), DETERMINISTIC=deterministic,
            MASK=mask, SIDE_BY_SIDE=side is not None,
        ),
        dependent=dependent(q.device) and not deterministic,
    )  # fmt: skip
    end_sums(begun, scale, dq, H // H_kv, -1)  # nothing is counted: all rows wait
    return dq, dk, dv
