"""The backward pass for Hopper GPUs, D up to 128: dQ, dK and dV in one pass, with a producer, two consumers and two adders.

A CTA owns 128 keys, 64 for each consumer warpgroup, and walks over the blocks of queries. dK and dV stay in registers.
S^T and dP^T are computed transposed, so that P^T and dS^T are the left factors of the next products, in registers. dQ
needs dS untransposed: dS goes through shared memory, each consumer computes half of dQ, an iteration later, and a
warp of its own has TMA add that half to a float32 sum in HBM (`flashlearn.fast.hopper.dq_sums`).

These additions come in any order, so that dQ may differ in its last bits from run to run. Deterministic (`DETERMINISTIC`),
CTAs wait for a semaphore: to a block of dQ the first block of keys adds first, then the second, and so on
(`flashlearn.fast.hopper.scheduling`). All begin at the last block of queries, which every key is attended from.

Short heads are zero-initialised by the CTAs of the heads before them, so that zeros stay in the L2 cache (`BY_HEADS`).
With masks, and where heads share keys, a few heads run side by side (`SIDE_BY_SIDE`), so that no head's long CTAs end last.
Under a mask K, Q, dO and V are issued before the warps part (`AHEAD`). At D = 128 each CTA counts when its parts of dQ
have arrived, so that finished heads are scaled while others are computed (`flashlearn.fast.dependent_launch`).

Shared memory bandwidth bounds it: 368 KiB an iteration at D = 128. Findings and figures: docs/engineering_log.md.
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
from flashlearn.fast.dispatch import hopper_width
from flashlearn.fast.hopper.dq_sums import Begun, begin_sums, block_of_queries, end_sums
from flashlearn.fast.hopper.ranges import Ranges
from flashlearn.fast.hopper.scheduling import (
    LAGS,
    LONG,
    as_if_new,
    beside,
    heads_of_shared_keys,
    heads_with_masks,
    keep_tile_index,
    kept_tile_index,
    make_semaphores,
    release_semaphore,
    side_by_side,
    wait_for_additions,
    wait_for_semaphore,
)
from flashlearn.fast.hopper.softcap import capped, factor_of
from flashlearn.fast.hopper.tiles import in_tiles, launch_hopper
from flashlearn.fast.hopper.versions import async_add, async_load, async_store, barrier
from flashlearn.fast.launcher import sm_count, uninitialised
from flashlearn.fast.online_softmax import LOG2E

KEYS = gl.constexpr(64)  # keys of one warpgroup: the height of one wgmma
ITERATIONS_KEPT = gl.constexpr(3)  # iterations whose dS are kept, of both consumers: dQ is computed an iteration later


# Sizes, the factor on Q K^T, a softcap or None, and the ranges of queries.
Problem = namedtuple("Problem", "N_q N_k group scale softcap ranges_ptr range_stride")


class Buffers(NamedTuple):
    """Shared memory."""

    k: Any  # (2, 1, 1, KEYS, HEAD_DIM), a part for each consumer
    v: Any  # likewise
    q: Any  # (STAGES, 1, 1, BLOCK_M, HEAD_DIM)
    do: Any  # likewise
    ds: Any  # (2 * ITERATIONS_KEPT, KEYS, BLOCK_M)
    dq: Any  # (2, 1, 1, 128, 32) float32, a half for each consumer
    rows: Any  # (STAGES, 1, 1, 2, BLOCK_M) float32: lse and delta


class Barriers(NamedTuple):
    """Of the buffers."""

    kv_full: Any  # K, V
    rows_full: Any  # Q, dO, lse and delta
    ds_full: Any  # in turn
    free: Any  # an iteration is over, for both consumers
    dq_full: Any  # a consumer's half of dQ is there
    dq_free: Any  # it has left


# What a CTA knows before its warps part; where heads run side by side, `coordinates_of` computes the rest.
GridCoordinates = namedtuple(
    "GridCoordinates", "start_n kv_head batch first full full_stop blocks heads_at_once tile_index_smem kv_heads"
)
# The keys of a CTA, and its blocks of queries: full .. full_stop need no mask.
Coordinates = namedtuple("Coordinates", "start_n kv_head batch first full full_stop blocks")
# Descriptors, and what tells heads apart.
Inputs = namedtuple("Inputs", "q do k v rows kv_heads group")
# Descriptors.
Outputs = namedtuple("Outputs", "dk dv")


class DqTarget(NamedTuple):
    """Where dQ is summed up, and what tells who has added."""

    dq: Any  # a descriptor
    semaphores_ptr: Any
    added_ptr: Any  # or None
    side: Any  # heads side by side, or None
    m_blocks: Any  # blocks of queries
    kv_heads: Any
    zeros: Any  # barriers, or None


@gluon.jit(do_not_specialize=["range_stride", "side", "N_q", "N_k", "kv_heads", "group"])
def attention_backward_hopper_kernel(
    # descriptors: q, do tiles (BLOCK_M, D); k, v, dk, dv tiles (KEYS, D); as `begin_sums` has them, in float32, rows, tiles
    # (2, BLOCK_M), and dq, (128, 32)
    q_desc, do_desc, k_desc, v_desc, rows_desc, dq_desc, dk_desc, dv_desc,
    # (1 or B, 2, N_k): the ranges of queries that see keys, and how far apart they lie for two sequences; if MASK is "ranges"
    ranges_ptr, range_stride,
    # if DETERMINISTIC: how many tile indices are taken, (B, H, blocks of queries, 2) semaphores and, if MASK is "ranges",
    # what `make_semaphores` counts; else `Begun.counters`. How many heads run side by side, if SIDE_BY_SIDE
    semaphores_ptr, side,
    # problem, the factor on Q K^T, and a softcap or None
    N_q, N_k, kv_heads, group, scale, softcap,
    HEAD_DIM: gl.constexpr, BLOCK_M: gl.constexpr,
    STAGES: gl.constexpr, DETERMINISTIC: gl.constexpr, MASK: gl.constexpr,  # "none", "causal" or "ranges"
    SIDE_BY_SIDE: gl.constexpr = False,  # heads run side by side; else a program's place is that in the grid, which spares registers
    BY_HEADS: gl.constexpr = False,  # sums of dQ are not all zero: see `heads_zeroed`; a row is a key head of a sequence
):  # fmt: skip
    """dK and dV of 128 keys of one key head, and their part of dQ."""
    if DETERMINISTIC:
        ticket = gl.atomic_add(semaphores_ptr, 1, sem="relaxed")  # on its way while shared memory is made ready
    dtype: gl.constexpr = q_desc.dtype
    k_smem = gl.allocate_shared_memory(dtype, [2, 1, 1, KEYS, HEAD_DIM], k_desc.layout)
    v_smem = gl.allocate_shared_memory(dtype, [2, 1, 1, KEYS, HEAD_DIM], v_desc.layout)
    q_smem = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_M, HEAD_DIM], q_desc.layout)
    do_smem = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_M, HEAD_DIM], do_desc.layout)
    DS_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, BLOCK_M], dtype)
    ds_smem = gl.allocate_shared_memory(dtype, [2 * ITERATIONS_KEPT, KEYS, BLOCK_M], DS_LAYOUT)
    dq_smem = gl.allocate_shared_memory(gl.float32, [2, 1, 1, 128, 32], dq_desc.layout)
    rows_smem = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 2, BLOCK_M], rows_desc.layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())  # K, V
    # Q, dO and their rows' numbers
    rows_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ds_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())  # in turn
    # both consumers: an iteration is over
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    dq_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())  # a group's half of dQ is there
    dq_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())  # it has left
    zeros: gl.constexpr = None
    if BY_HEADS and not DETERMINISTIC:  # zeros are there, where dQ will be
        zeros = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(kv_full.index(i), count=1)
        mbarrier.init(dq_full.index(i), count=1)
        mbarrier.init(dq_free.index(i), count=1)
        mbarrier.init(ds_full.index(i), count=2)
        if BY_HEADS and not DETERMINISTIC:
            mbarrier.init(zeros.index(i), count=1)
            mbarrier.arrive(dq_free.index(i), count=1)  # a fresh barrier lets pass; this one does once zeros have left
    for i in gl.static_range(STAGES):
        mbarrier.init(rows_full.index(i), count=1)
        mbarrier.init(free.index(i), count=2)

    problem = Problem(N_q, N_k, group, scale, softcap, ranges_ptr, range_stride)
    n, kv_head, batch = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    heads_at_once: gl.constexpr = None
    tile_index_smem: gl.constexpr = None
    if DETERMINISTIC:
        tile_index_smem = keep_tile_index(ticket)
        semaphores_ptr += 1
    if SIDE_BY_SIDE:
        heads_at_once = side
    start_n = n * (2 * KEYS)  # the first keys are seen by most queries: they start first
    first = 0  # block of the first query that sees a key of this program
    full = 0  # first block in which every query sees every key
    if MASK == "causal" and not SIDE_BY_SIDE:
        first, full = causal_blocks(start_n, problem, BLOCK_M)
    full_stop = full  # first block after these
    blocks = gl.maximum(gl.cdiv(N_q, BLOCK_M) - first, 0)  # for each query head of the group
    buffers = Buffers(k_smem, v_smem, q_smem, do_smem, ds_smem, dq_smem, rows_smem)
    barriers = Barriers(kv_full, rows_full, ds_full, free, dq_full, dq_free)
    # where heads run side by side, the last three say what the others are: `coordinates_of`
    place = GridCoordinates(
        start_n, kv_head, batch, first, full, full_stop, blocks, heads_at_once, tile_index_smem, kv_heads
    )
    inputs, outputs = Inputs(q_desc, do_desc, k_desc, v_desc, rows_desc, kv_heads, group), Outputs(dk_desc, dv_desc)
    # of a row: counts the warps whose parts of dQ have arrived; where to count costs what it brings, or was not timed, nobody does
    added_ptr: gl.constexpr = None
    if HEAD_DIM == 128 and not DETERMINISTIC and MASK != "ranges":
        added_ptr = semaphores_ptr + 2 * (batch * kv_heads + kv_head) + 1
    sums = DqTarget(dq_desc, semaphores_ptr, added_ptr, heads_at_once, gl.cdiv(N_q, BLOCK_M), kv_heads, zeros)
    AHEAD: gl.constexpr = MASK != "none" and not DETERMINISTIC
    ORDER: gl.constexpr = (2 if BY_HEADS else 1) if DETERMINISTIC else 0
    if AHEAD:
        issue_first_loads(buffers, barriers, coordinates_of(place, problem, BLOCK_M, MASK), inputs, True)
    gl.warp_specialize(
        [
            (consume, (0, buffers, barriers, place, problem, outputs, MASK, AHEAD)),
            (consume, (1, buffers, barriers, place, problem, outputs, MASK, AHEAD)),
            (load, (buffers, barriers, place, problem, inputs, MASK, DETERMINISTIC, AHEAD)),
            (add_dq, (0, buffers, barriers, place, problem, sums, MASK, ORDER)),
            (add_dq, (1, buffers, barriers, place, problem, sums, MASK, ORDER)),
        ],
        [4, 1, 1, 1],
        [240, 24, 24, 24],
    )


@gluon.jit
def causal_blocks(start_n, problem, BLOCK_M: gl.constexpr, OWN: gl.constexpr = 128):
    """The first block of queries of which one sees one of a program's OWN keys, and the first in which each sees all."""
    first = gl.maximum(start_n - (problem.N_k - problem.N_q), 0) // BLOCK_M
    return first, gl.cdiv(gl.maximum(start_n + OWN - 1 - (problem.N_k - problem.N_q), 0), BLOCK_M)


@gluon.jit
def coordinates_of(place, problem, BLOCK_M: gl.constexpr, MASK: gl.constexpr, OWN: gl.constexpr = 128):
    """The place of a program that is not where its number in the grid says, but comes as number n of heads side by side.

    Each partition works it out by itself, and once more at the end. What the kernel knew before it parted would take registers
    of one of the consumers in every iteration, more than it has: others came from memory again in each.
    """
    start_n, kv_head, batch, first, full, full_stop, blocks, side, tile_index_smem, kv_heads = place
    if side is not None:
        key_blocks = gl.cdiv(problem.N_k, OWN)  # of a row
        n = as_if_new(gl.program_id(0))
        if tile_index_smem is not None:
            n = kept_tile_index(tile_index_smem)
        n, row = side_by_side(n, side, key_blocks, gl.num_programs(0) // key_blocks)
        start_n, kv_head, batch = n * OWN, row % kv_heads, row // kv_heads
        stop = gl.cdiv(problem.N_q, BLOCK_M)
        if MASK == "causal":
            first, full = causal_blocks(start_n, problem, BLOCK_M, OWN)
        full_stop = full
        if MASK == "ranges":
            low, full_high = query_range_at(start_n, batch, problem)
            full_low, high = query_range_at(start_n + OWN - 1, batch, problem)
            first, stop = low // BLOCK_M, gl.cdiv(high, BLOCK_M)
            full, full_stop = gl.cdiv(full_low, BLOCK_M), full_high // BLOCK_M
        blocks = gl.maximum(stop - first, 0)
    return Coordinates(start_n, kv_head, batch, first, full, full_stop, blocks)


@gluon.jit
def query_range_at(j, batch, problem):
    """The queries low .. high that see key j of a sequence, or many keys; past the last, those of the last."""
    ptr = problem.ranges_ptr + batch.to(gl.int64) * problem.range_stride + gl.minimum(j, problem.N_k - 1)
    return gl.load(ptr), gl.load(ptr + problem.N_k)


@gluon.jit
def query_ranges_of(start, batch, problem, S_LAYOUT: gl.constexpr, MASK: gl.constexpr):
    """Of each of 64 keys the first query that sees it, and how many do, (64,) each; under a causal mask the first alone counts."""
    LAYOUT: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    offs_n = start + gl.arange(0, KEYS, LAYOUT)
    low, count = gl.zeros([KEYS], gl.int32, LAYOUT), gl.full([KEYS], problem.N_q, gl.int32, LAYOUT)
    if MASK == "causal":
        low = offs_n - (problem.N_k - problem.N_q)  # past the last key: past the last query
    if MASK == "ranges":
        low, high = query_range_at(offs_n, batch, problem)
        count = gl.maximum(high - low, 0)
    return low, gl.where(offs_n < problem.N_k, count, 0)


@gluon.jit
def next_block(head, block, heads, here, DETERMINISTIC: gl.constexpr):
    """The next query head and block of queries: of a head one block after the other, from the last up, then of the next head.

    Deterministic: of a block one head after the other, then of the block above. A program waits for those of the keys before,
    which see more blocks. If it had to at the last block of each head, all would take as long as the longest.
    heads: the first, and the one after the last.
    """
    if DETERMINISTIC:
        over = head + 1 == heads[1]
        head, block = gl.where(over, heads[0], head + 1), gl.where(over, block - 1, block)
    else:
        over = block == here.first
        head, block = gl.where(over, head + 1, head), gl.where(over, here.first + here.blocks, block) - 1
    return head, block


@gluon.jit
def issue_first_loads(buffers, barriers, place, inputs, EARLY: gl.constexpr):
    """K, if EARLY the first Q and dO, and V, from TMA: S^T needs no V.

    EARLY: the kernel may have begun before attention_begin_sums_kernel has ended, which writes delta.
    """
    for i in gl.static_range(2):
        mbarrier.expect(barriers.kv_full.index(i), 2 * inputs.k.block_type.nbytes)
    for i in gl.static_range(2):
        async_load(
            inputs.k,
            [place.batch, place.kv_head, place.start_n + i * KEYS, 0],
            barriers.kv_full.index(0),
            buffers.k.index(i),
        )
    if EARLY and place.blocks > 0:
        load_q_do(0, place.kv_head * inputs.group, place.first + place.blocks - 1, buffers, barriers, place, inputs)
    for i in gl.static_range(2):
        async_load(
            inputs.v,
            [place.batch, place.kv_head, place.start_n + i * KEYS, 0],
            barriers.kv_full.index(1),
            buffers.v.index(i),
        )


@gluon.jit
def load(
    buffers, barriers, place, problem, inputs, MASK: gl.constexpr, DETERMINISTIC: gl.constexpr, AHEAD: gl.constexpr
):
    """The producer warp: Q and dO, of every head of the group and block of queries, as `next_block` has them.

    AHEAD: what `issue_first_loads` asks for has been issued before the warps parted.
    """
    place = coordinates_of(place, problem, buffers.q.shape[3], MASK)
    STAGES: gl.constexpr = buffers.q.shape[0]
    BLOCK_M: gl.constexpr = buffers.q.shape[3]
    if not AHEAD:
        issue_first_loads(buffers, barriers, place, inputs, not DETERMINISTIC)
    head = place.kv_head * inputs.group
    block = place.first + place.blocks - 1
    heads = (head, head + inputs.group)
    gdc_wait()  # for lse and delta; all that has been issued is older
    gdc_launch_dependents()  # attention_end_sums_kernel may begin: the counters that it reads are zeros by now
    for t in range(inputs.group * place.blocks):
        stage = t % STAGES
        mbarrier.wait(
            barriers.free.index(stage), (t // STAGES & 1) ^ 1
        )  # a fresh barrier lets the first iteration pass
        if DETERMINISTIC or t > 0:  # the first have been issued
            load_q_do(stage, head, block, buffers, barriers, place, inputs)
        async_load(
            inputs.rows,
            [place.batch, head, 0, block * BLOCK_M],
            barriers.rows_full.index(stage),
            buffers.rows.index(stage),
        )
        head, block = next_block(head, block, heads, place, DETERMINISTIC)


@gluon.jit
def load_q_do(stage, head, block, buffers, barriers, place, inputs):
    """Q and dO of a block of queries, from TMA; their barrier waits for lse and delta besides."""
    nbytes: gl.constexpr = inputs.q.block_type.nbytes + inputs.do.block_type.nbytes + inputs.rows.block_type.nbytes
    mbarrier.expect(barriers.rows_full.index(stage), nbytes)
    at = [place.batch, head, block * buffers.q.shape[3], 0]
    async_load(inputs.q, at, barriers.rows_full.index(stage), buffers.q.index(stage))
    async_load(inputs.do, at, barriers.rows_full.index(stage), buffers.do.index(stage))


@gluon.jit
def consume(index: gl.constexpr, buffers, barriers, place, problem, outputs, MASK: gl.constexpr, AHEAD: gl.constexpr):
    """A consumer: its 64 keys against every block of queries; AHEAD: the first S^T does not wait for V."""
    here = coordinates_of(place, problem, buffers.q.shape[3], MASK)
    STAGES: gl.constexpr = buffers.q.shape[0]
    BLOCK_M: gl.constexpr = buffers.q.shape[3]
    HEAD_DIM: gl.constexpr = buffers.q.shape[4]
    DETERMINISTIC: gl.constexpr = place.tile_index_smem is not None  # there is a tile index
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])  # of S^T
    KV_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, KV_LAYOUT, 2)
    k, v = buffers.k.index(index).reshape([KEYS, HEAD_DIM]), buffers.v.index(index).reshape([KEYS, HEAD_DIM])
    keys = query_ranges_of(here.start_n + index * KEYS, here.batch, problem, S_LAYOUT, MASK)
    dk, dv = gl.zeros([KEYS, HEAD_DIM], gl.float32, KV_LAYOUT), gl.zeros([KEYS, HEAD_DIM], gl.float32, KV_LAYOUT)
    mbarrier.wait(barriers.kv_full.index(0), 0)
    if not AHEAD:
        mbarrier.wait(barriers.kv_full.index(1), 0)
    head, block = 0, here.first + here.blocks - 1
    for t in range(problem.group * here.blocks):
        stage, phase = t % STAGES, (t // STAGES) & 1
        q, do = (
            buffers.q.index(stage).reshape([BLOCK_M, HEAD_DIM]),
            buffers.do.index(stage).reshape([BLOCK_M, HEAD_DIM]),
        )
        mbarrier.wait(barriers.rows_full.index(stage), phase)
        # nothing is under way: the assembler would wait in one of the two consumers for S^T else, before it asks for dP^T
        dk = warpgroup_mma_wait(0, deps=[dk])
        # both filled before the first product begins: a product under way lets go of no register
        s_t, dp_t = less_rows(buffers.rows.index(stage), 0), less_rows(buffers.rows.index(stage), 1)
        s_t = warpgroup_mma(
            k, q.permute((1, 0)), s_t, use_acc=problem.softcap is None, is_async=True
        )  # FA-2 Alg. 2, line 10
        if AHEAD:
            mbarrier.wait(barriers.kv_full.index(1), 0)  # V is there from the first iteration on
        dp_t = warpgroup_mma(v, do.permute((1, 0)), dp_t, is_async=True)  # line 13
        s_t = warpgroup_mma_wait(1, deps=[s_t])
        crossed = crosses(block, index, here, problem, BLOCK_M, MASK)
        p_t, w_t = probabilities(s_t, buffers.rows.index(stage), crossed, keys, block * BLOCK_M, problem, MASK)
        dv = warpgroup_mma(gl.convert_layout(p_t.to(q.dtype), P_LAYOUT), do, dv, is_async=True)  # line 12
        dp_t = warpgroup_mma_wait(1, deps=[dp_t])
        ds_16 = (w_t * dp_t).to(q.dtype)  # line 14
        store_ds(t, index, ds_16, buffers.ds, barriers.ds_full)
        dk, dv = end_iteration(t, index, ds_16, q, (dk, dv), buffers, barriers)
        head, block = next_block(head, block, (0, problem.group), here, DETERMINISTIC)
    finish(index, (problem.group * here.blocks, dk, dv), place, problem, buffers, barriers, outputs, MASK)


@gluon.jit
def end_iteration(t, index: gl.constexpr, ds_16, q, sums, buffers, barriers):
    """dK and dV with their parts of iteration t, of which dV's is under way; half of dQ of the iteration before goes to be added."""
    dk, dv = sums
    factor = gl.convert_layout(ds_16, gl.DotOperandLayout(0, dk.type.layout, 2))
    stage = t % buffers.q.shape[0]
    FIRST_IS_NONE: gl.constexpr = buffers.k.shape[4] == 128  # to leave a product out was slower at D = 64
    if FIRST_IS_NONE and t == 0:
        dk = warpgroup_mma_wait(0, deps=[warpgroup_mma(factor, q, dk, is_async=True)])  # FA-2 Alg. 2, line 16
    else:
        dq = half_of_dq(t, index, buffers.ds, barriers.ds_full, buffers.k)  # line 15
        dk_later = warpgroup_mma(factor, q, dk, is_async=True)  # line 16
        dq = warpgroup_mma_wait(1, deps=[dq])
        if t > 0:  # it leaves while dK is computed
            store_dq(t - 1, dq, index, buffers.dq, barriers.dq_full, barriers.dq_free)
        dk = warpgroup_mma_wait(0, deps=[dk_later])
    dv = warpgroup_mma_wait(0, deps=[dv])
    mbarrier.arrive(barriers.free.index(stage), count=1)
    return dk, dv


@gluon.jit
def probabilities(s_t, rows_smem, crossed, keys, start_m, problem, MASK: gl.constexpr):
    """P^T (64, BLOCK_M), line 11, from S^T less the rows' lse, and with what dP^T is multiplied: P^T, less under a softcap."""
    if problem.softcap is None:
        p_t = gl.exp2(s_t * (problem.scale * LOG2E))
        # queries past the end have P = 0 by their lse, but for an infinite key: 0 inf is NaN
        if crossed:
            p_t = hide(p_t, 0.0, keys, start_m, problem, MASK)
        w_t = p_t
    else:
        t = capped(s_t, problem.scale * (2 * LOG2E) / problem.softcap)
        if crossed:  # before P and the derivative part: registers are scarce; P becomes 0, and 0 times 1 - t^2
            t = hide(t, -1e18, keys, start_m, problem, MASK)
        p_t = gl.exp2((t + less_rows(rows_smem, 0)) * (problem.softcap * LOG2E))
        w_t = p_t * (1.0 - t * t)
    return p_t, w_t


@gluon.jit
def crosses(block, index: gl.constexpr, place, problem, BLOCK_M: gl.constexpr, MASK: gl.constexpr):
    """Whether some query of a block may not see some key of this program, or there is no such key or query."""
    tail = place.start_n + (index + 1) * KEYS > problem.N_k  # keys past the end: lse knows nothing of them, P must be 0
    masked = (block < place.full) | tail | (block * BLOCK_M + BLOCK_M > problem.N_q)
    if MASK == "ranges":
        masked = masked | (block >= place.full_stop)
    return masked


@gluon.jit
def hide(x, hidden, keys, start_m, problem, MASK: gl.constexpr):
    """x (64, BLOCK_M), with the value `hidden` where a key is not seen, or there is no such key or query."""
    low, count = keys
    offs_m = start_m + gl.arange(0, x.shape[1], gl.SliceLayout(0, x.type.layout))  # (BLOCK_M,)
    if MASK == "causal":
        x = gl.where(offs_m[None, :] >= low[:, None], x, hidden)
        if start_m + x.shape[1] > problem.N_q:
            x = gl.where((offs_m < problem.N_q)[None, :], x, hidden)
    else:  # less than 0, without a sign, is very much
        visible = (offs_m[None, :] - low[:, None]).to(gl.uint32) < count[:, None].to(gl.uint32)
        x = gl.where(visible, x, hidden)
    return x


@gluon.jit
def less_rows(rows_smem, which: gl.constexpr):
    """What a product (64, BLOCK_M) begins with, so that the queries' lse, or delta, comes out subtracted."""
    BLOCK_M: gl.constexpr = rows_smem.shape[3]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    rows = rows_smem.reshape([2, BLOCK_M]).slice(which, 1).load(LAYOUT)  # (1, BLOCK_M)
    return gl.zeros([KEYS, BLOCK_M], gl.float32, LAYOUT) - rows


@gluon.jit
def store_ds(t, index: gl.constexpr, ds_16, ds_smem, ds_full):
    """dS^T of iteration t (64, BLOCK_M) to where both consumers take it from.

    The other consumer may still read what this one has handed over in the two iterations before, and nothing older: Q of this
    iteration has come, so that both are through with the iteration two before (there are two buffers for Q).
    """
    ds_smem.index(t % ITERATIONS_KEPT * 2 + index).store(ds_16)
    fence_async_shared()
    mbarrier.arrive(ds_full.index(t % 2), count=1)


@gluon.jit
def half_of_dq(t, index: gl.constexpr, ds_smem, ds_full, k_smem):
    """Half of dS K (64, 64) of iteration t - 1, over the 128 keys of both consumers, still under way.

    Nobody waits for the other consumer: it handed over that dS an iteration ago. Before the first iteration there is none to wait
    for, and what comes out, at D = 64, is used by nobody.
    """
    DQ_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    HEAD_DIM: gl.constexpr = k_smem.shape[4]
    mbarrier.wait(ds_full.index((t + 1) % 2), ((t + 1) // 2 & 1) ^ 1)
    dq = gl.zeros([64, 64], gl.float32, DQ_LAYOUT)
    for other in gl.static_range(2):
        ds = ds_smem.index((t + 2) % ITERATIONS_KEPT * 2 + other)
        k = k_smem.index(other).reshape([KEYS, HEAD_DIM])
        if HEAD_DIM == 128:  # 64 queries: half of the columns each
            k = k.slice(64 * index, 64, dim=1)
        else:  # 128 queries: half of the rows each
            ds = ds.slice(64 * index, 64, dim=1)
        dq = warpgroup_mma(ds.permute((1, 0)), k, dq, use_acc=other > 0, is_async=True)
    return dq


@gluon.jit
def store_dq(t, dq, index: gl.constexpr, dq_smem, dq_full, dq_free):
    """Half of dQ (64, 64), the t-th of this consumer, to the warp that adds it, once the one before has left."""
    mbarrier.wait(dq_free.index(index), (t & 1) ^ 1)
    dq_smem.index(index).reshape([128, 32]).store(register_order(dq))
    fence_async_shared()
    mbarrier.arrive(dq_full.index(index), count=1)


@gluon.jit
def register_order(x):
    """What a product (64, 64) came to, in the order of registers (128, 32): so it gets to shared memory without bank conflicts.

    Number (j, h, p) of thread (w, g, t) is of row 16 w + 8 h + g and column 8 j + 2 t + p: four numbers of a thread lie side by
    side, and 32 threads' in a row. Of dQ, `end_sums` puts them deterministic again.
    """
    return x.reshape([4, 2, 8, 8, 4, 2]).permute((0, 3, 2, 4, 1, 5)).reshape([128, 32])  # w h g j t p: w j g t h p


@gluon.jit
def finish(index: gl.constexpr, done, place, problem, buffers, barriers, outputs, MASK: gl.constexpr):
    """The half of dQ that is left, if there was an iteration, and dV, one of which leaves while the other is made ready; and dK."""
    place = coordinates_of(place, problem, buffers.q.shape[3], MASK)
    iterations, dk, dv = done
    # elsewhere it brought nothing, or was not timed
    DQ_FIRST: gl.constexpr = MASK == "causal" and buffers.k.shape[4] == 128
    gdc_wait()  # over, but where no query sees these keys: until then others may read what is dK's and dV's memory now
    # only this consumer reads its V: room for the results, one after the other; V is there, but where no query sees these keys
    mbarrier.wait(barriers.kv_full.index(1), 0)
    if DQ_FIRST:
        last_of_dq(iterations, index, buffers, barriers)
    store(dv, index, place, buffers.v.index(index), outputs.dv)
    if not DQ_FIRST:
        last_of_dq(iterations, index, buffers, barriers)
    tma.store_wait(0)
    barrier()
    store(dk * problem.scale, index, place, buffers.v.index(index), outputs.dk)
    tma.store_wait(0)


@gluon.jit
def last_of_dq(iterations, index: gl.constexpr, buffers, barriers):
    """Half of dQ of the last iteration goes to be added, if there was one."""
    if iterations > 0:
        dq = warpgroup_mma_wait(0, deps=[half_of_dq(iterations, index, buffers.ds, barriers.ds_full, buffers.k)])
        store_dq(iterations - 1, dq, index, buffers.dq, barriers.dq_full, barriers.dq_free)


@gluon.jit
def add_dq(
    index: gl.constexpr, buffers, barriers, place, problem, sums, MASK: gl.constexpr, DETERMINISTIC: gl.constexpr
):
    """A warp that has TMA add what one consumer gives it, halves of dQ, to the sum in HBM.

    DETERMINISTIC: 0; 1: CTAs wait for a semaphore; 2: and the first one stores, as the sums do not begin at zero.
    """
    place = coordinates_of(place, problem, buffers.q.shape[3], MASK)
    semaphores_ptr, added_ptr = sums.semaphores_ptr, sums.added_ptr
    head, block = place.kv_head * problem.group, place.first + place.blocks - 1
    heads = (head, head + problem.group)
    before = place.start_n // (2 * KEYS)  # blocks of keys, all of which add to what this one adds to
    before_ptr: gl.constexpr = None
    if DETERMINISTIC:
        semaphores = 2 * problem.group * sums.m_blocks  # of a row
        if MASK == "ranges":
            key_blocks = gl.cdiv(problem.N_k, 2 * KEYS)
            which = gl.where(problem.range_stride > 0, place.batch, 0) * key_blocks + before
            before_ptr = semaphores_ptr + gl.num_programs(0) // key_blocks * semaphores + which * sums.m_blocks
        semaphores_ptr += place.batch * sums.kv_heads * semaphores
    gdc_wait()  # for attention_begin_sums_kernel, which lets the sums begin at zero: all, those of the first rows, or none
    if sums.zeros is not None:
        zero_initialise(index, buffers, barriers, place, problem, sums)
    for t in range(problem.group * place.blocks):
        if before_ptr is not None:
            before = gl.load(before_ptr + block)
        # so many blocks of keys have added to this half
        semaphore_ptr = semaphores_ptr + (head * sums.m_blocks + block) * 2 + index
        if DETERMINISTIC == 1:
            wait_for_semaphore(semaphore_ptr, before)
        elif DETERMINISTIC == 2 and before > 0:  # the first has nothing to add to, and stores
            wait_for_semaphore(semaphore_ptr, before)
        mbarrier.wait(barriers.dq_full.index(index), t & 1)
        at = [place.batch, head, (2 * block + index) * 128, 0]
        if DETERMINISTIC == 2 and before == 0:
            async_store(sums.dq, at, buffers.dq.index(index))
        else:
            async_add(sums.dq, at, buffers.dq.index(index))
        tma.store_wait(0)  # it has left shared memory
        mbarrier.arrive(barriers.dq_free.index(index), count=1)
        if DETERMINISTIC:
            wait_for_additions()
            barrier()
            release_semaphore(semaphore_ptr)
        head, block = next_block(head, block, heads, place, DETERMINISTIC != 0)
    if added_ptr is not None:  # once all programs of a row say so, attention_end_sums_kernel may end it
        if sums.side is not None:  # the kernel did not know which row: the grid has one axis
            added_ptr += 2 * (place.batch * sums.kv_heads + place.kv_head)
        wait_for_additions()
        barrier()
        release_semaphore(added_ptr)


@gluon.jit
def all_heads(side, kv_heads, N_k):
    """How many blocks of keys a row has, how many rows run at once, and how many rows there are."""
    key_blocks, at_once, rows = gl.num_programs(0), 1, kv_heads * gl.num_programs(2)
    if side is not None:
        key_blocks, at_once = gl.cdiv(N_k, 2 * KEYS), side
        rows = gl.num_programs(0) // key_blocks
    return key_blocks, at_once, rows


@gluon.jit
def zero_initialise(index: gl.constexpr, buffers, barriers, place, problem, sums):
    """This warp's share of the zeros that sums of a later row begin at, from where its half of dQ will be; and a wait for its own.

    The later row is the next, or, of rows that run side by side, the one at the same place in the next set.
    """
    key_blocks, at_once, rows = all_heads(sums.side, sums.kv_heads, problem.N_k)
    row = place.batch * sums.kv_heads + place.kv_head
    later = row + at_once
    if later < rows:
        mbarrier.expect(sums.zeros.index(index), sums.dq.block_type.nbytes)
        # past the end of the sums TMA finds zeros
        async_load(sums.dq, [0, 0, 256 * sums.m_blocks, 0], sums.zeros.index(index), buffers.dq.index(index))
        mbarrier.wait(sums.zeros.index(index), 0)
        # of the blocks of queries of all its heads
        for i in range(place.start_n // (2 * KEYS), problem.group * sums.m_blocks, key_blocks):
            head, block = later % sums.kv_heads * problem.group + i // sums.m_blocks, i % sums.m_blocks
            async_store(sums.dq, [later // sums.kv_heads, head, (2 * block + index) * 128, 0], buffers.dq.index(index))
        wait_for_additions()
        barrier()
        release_semaphore(sums.semaphores_ptr + 2 * later)
    mbarrier.arrive(barriers.dq_free.index(index), count=1)
    if row >= at_once:
        wait_for_semaphore(sums.semaphores_ptr + 2 * row, 2 * key_blocks)


@gluon.jit
def store(tile, index: gl.constexpr, place, smem, desc):
    """A tile (64, D) of this consumer's keys on its way to HBM, from shared memory."""
    smem.reshape([KEYS, tile.shape[1]]).store(tile.to(smem.dtype))
    fence_async_shared()
    barrier()
    async_store(desc, [place.batch, place.kv_head, place.start_n + index * KEYS, 0], smem)


def heads_beside(q: Tensor, k: Tensor, *, causal: bool, own: int = 2 * KEYS.value) -> int | None:
    """How many heads run side by side, in any order and without ranges, if a program owns so many keys; None: one after the other."""
    (B, H, _, _), (_, H_kv, N_k, _) = q.shape, k.shape
    if not causal or H == H_kv:
        return None
    return heads_of_shared_keys(B * H_kv, -(-N_k // own), sm_count(q.device))


def heads_beside_deterministic(
    q: Tensor, k: Tensor, ranges: Ranges | None, *, causal: bool, block_m: int, own: int = 2 * KEYS.value
) -> int:
    """How many heads run side by side where programs, of so many keys each, wait for semaphores at blocks of so many queries.

    Where heads share keys, twice as many as in any order: more of those that wait are then of other rows.
    With ranges `causal` is not looked at.
    """
    (B, H, N_q, _), (_, H_kv, N_k, _) = q.shape, k.shape
    seen = N_q if ranges is None else min(N_q, round(ranges.mean) + own)  # by the keys of one program
    rows, iterations = B * H_kv, H // H_kv * -(-seen // block_m)
    mask = "ranges" if ranges is not None else "none" if not causal else "causal" if N_k < LONG else "long causal"
    shared = heads_beside(q, k, causal="causal" in mask, own=own)
    if shared is not None:
        return min(rows, 2 * shared)
    return beside(rows, iterations, sm_count(q.device), LAGS[mask])


def heads_zeroed(q: Tensor, k: Tensor, *, causal: bool, deterministic: bool) -> int | None:
    """How many heads' sums of dQ are zero before the pass begins; None: all, since rows are so long that this is faster.

    In any order they are those of the first rows, and the pass sees to the others, in the L2 cache and not in HBM. In order
    none: the first block of keys stores its part, where every query sees a key. What is long is measured, see the top of this file;
    deterministic only for rows as long as those without a mask.
    """
    (_, H, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    longest = 4096 if causal and not deterministic else 32 * hopper_width(D)
    if N_q > longest or (deterministic and causal and N_q > N_k):
        return None
    return 0 if deterministic else H // H_kv * (heads_beside(q, k, causal=causal) or 1)


def attention_backward_hopper(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *, causal: bool, scale: float,
    begun: Begun | None = None, ranges: Ranges | None = None, deterministic: bool = False, softcap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk and dv, as `attention_backward` gives them; for inputs that `why_not_hopper` has nothing against, and D up to 128.

    ranges: the queries that see keys, as `attention_ranges(..., of_keys=True)` gives them; `causal` is then not looked at.
    begun: what `begin_sums` makes of o, do, lse and the gradient of lse, of which the sums are used up; None: without that
    gradient. Its `zeroed` is what `heads_zeroed` says, or None. It is to be launched after all that writes do, q, k, v and ranges: these are read
    while it runs (`flashlearn.fast.dependent_launch`).
    softcap: c, scores are c tanh(score / c).
    deterministic: whether blocks of keys take semaphores to add to dq, so that it has the same bits every time.
    Extra memory: lse, delta and the sums of dq in float32, of whole blocks of queries, the sums of 64 or 128 columns; deterministic, 8
    bytes for a block of 64 (D > 64) or 128 queries, with ranges also 4 bytes for every pair of a block of queries and one of 128 keys.
    """
    check_bool(causal, "causal")
    check_bool(deterministic, "deterministic")
    mask = "ranges" if ranges is not None else "causal" if causal else "none"
    (B, H, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    width = hopper_width(D)
    block_m = block_of_queries(D)
    if begun is None:
        zeroed = None if ranges is not None else heads_zeroed(q, k, causal=causal, deterministic=deterministic)
        begun = begin_sums(o, do, lse, factor_of(scale, softcap), zeroed=zeroed)
    numbers, sums, counters, zeroed = begun
    dq, dk, dv = uninitialised(q), uninitialised(k), uninitialised(v)
    q_tile, kv_tile = (1, 1, block_m, width), (1, 1, KEYS.value, width)
    key_blocks, rows = -(-N_k // (2 * KEYS.value)), B * H_kv
    semaphores, side = counters, heads_beside(q, k, causal=causal)
    if ranges is not None:
        nbytes = 2 * ranges.seen * width * 2 * q.element_size()  # of Q and dO; dQ, in float32, takes as much
        side = heads_with_masks(rows, nbytes)
    if deterministic:
        side = heads_beside_deterministic(q, k, ranges, causal=causal, block_m=block_m)
        semaphores = make_semaphores(q, k, ranges, block_m, 2 * KEYS.value)
    launch_hopper(
        attention_backward_hopper_kernel, (key_blocks, H_kv, B) if side is None else (key_blocks * rows, 1, 1),
        (
            in_tiles(q, q_tile), in_tiles(do, q_tile), in_tiles(k, kv_tile), in_tiles(v, kv_tile),
            in_tiles(numbers, (1, 1, 2, block_m)), in_tiles(sums, (1, 1, 128, 32)), in_tiles(dk, kv_tile), in_tiles(dv, kv_tile),
            counters if ranges is None else ranges.ends, 2 * N_k if ranges is not None and len(ranges.ends) > 1 else 0,
            semaphores, side or 0, N_q, N_k, H_kv, H // H_kv, scale, softcap,
        ),
        dict(
            HEAD_DIM=width, BLOCK_M=block_m, STAGES=2, DETERMINISTIC=deterministic,
            MASK=mask, SIDE_BY_SIDE=side is not None, BY_HEADS=zeroed is not None,
        ),
        dependent=dependent(q.device) and not deterministic,  # PyTorch's kernels write the semaphores, which are read at the beginning
    )  # fmt: skip
    # deterministic, with ranges, and at D = 64 nothing is counted: all rows wait
    end_sums(begun, scale, dq, H // H_kv, 2 * key_blocks)
    return dq, dk, dv
