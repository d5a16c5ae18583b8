"""Decoding over pages for Hopper GPUs: a producer warp runs ahead of the consumer warpgroup, from sequence to sequence.

In `flashlearn.fast.paged` a CTA loads nothing past the end of its tile of queries, so that each new sequence costs three
times the latency of memory. Here a producer warp fills a ring of STAGES buffers by TMA, and has gone on to the next
sequences while the consumer is still busy with this one. The work is partitioned as there, and merged by the same kernel.
One CTA per SM is enough.

TMA loads 16 keys at a time, so that pages may be as small. Past the last key a page may hold anything: such scores are
-inf, and such values 0, since 0 * NaN would be NaN. Figures: docs/engineering_log.md.
Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv:2407.08608), section 3.1, for warps that load.
"""

# A tuple that grows is none of Python's here: Triton knows the type of each of its parts.
# mypy: disable-error-code="assignment, var-annotated"

from __future__ import annotations

from collections import namedtuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, mma_v2

from flashlearn.fast.dependent_launch import launch_dependents
from flashlearn.fast.hopper.versions import async_load
from flashlearn.fast.online_softmax import LN_2, LOG2E
from flashlearn.fast.portable.scores import scored
from flashlearn.fast.work_partition import ROW_COST, partition_size

ROWS = gl.constexpr(16)  # queries that share a key head, one tile: the height of one product of `mma_v2`
KEYS = gl.constexpr(64)  # of a tile
COLUMNS = gl.constexpr(64)  # of a buffer: 128 bytes, the widest that is free of bank conflicts
PIECE = gl.constexpr(16)  # keys that TMA brings at a time, of one page
UNDER_WAY = 96 * 1024  # bytes of K and V


def stages(D: int) -> int:
    """How many tiles of K and V are under way, at least three."""
    columns = -(-D // COLUMNS.value) * COLUMNS.value
    return max(UNDER_WAY // (2 * KEYS.value * columns * 2), 3)


# Sizes, how far back a query attends, and the lengths.
Problem = namedtuple("Problem", "N_q B most_keys pages left lengths_ptr")
# K and V in shared memory, (STAGES * CHUNKS, 1, 1, KEYS, COLUMNS), and their barriers.
Buffers = namedtuple("Buffers", "k v full free")
# Descriptors of K and V, and the table of pages.
Inputs = namedtuple("Inputs", "k v table_ptr stride_tb stride_tn")
# Q and its strides.
Queries = namedtuple("Queries", "q_ptr stride_b stride_h stride_m stride_d")
# What becomes of a product of a query and a key.
Scores = namedtuple("Scores", "scale softcap sinks_ptr")
# o and lse, and their strides.
Results = namedtuple("Results", "o_ptr lse_ptr stride_ob stride_oh stride_om stride_od stride_lb stride_lh")
# A tile of keys: its number of this CTA and of its sequence, the sequence's keys, and the range of each query.
Tile = namedtuple("Tile", "t tile keys low high")


@gluon.jit(do_not_specialize=["N_q", "B", "most_keys", "pages", "left", "stride_lb", "stride_lh", "stride_tb"])
def attention_paged_hopper_kernel(
    # descriptors of k and v (P, H_kv, PAGE, D), tiles (1, 1, PIECE, COLUMNS)
    k_desc, v_desc,
    # pointers
    q_ptr, o_ptr, lse_ptr, o_part_ptr, lse_part_ptr, table_ptr, lengths_ptr, sinks_ptr,
    # strides of q and o (B, H_q, N_q, D), of lse (B, H_q, N_q) and of the table (B, most); contiguous are o_part
    # (programs, 2, ROWS, D) and lse_part
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_ob, stride_oh, stride_om, stride_od,
    stride_lb, stride_lh,
    stride_tb, stride_tn,
    # sizes; how far back a query sees, the factor on Q K^T, a softcap: None where there is none
    N_q, B, most_keys, pages, left, scale, softcap,
    H_KV: gl.constexpr, GROUP: gl.constexpr, HEAD_DIM: gl.constexpr, LEAST: gl.constexpr, BLOCK_B: gl.constexpr,
    PAGE: gl.constexpr, CAUSAL: gl.constexpr, SPLIT: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """(o, lse) for one share of all work: of whole rows of tiles, and of at most two pieces to be merged."""
    dtype: gl.constexpr = k_desc.dtype
    CHUNKS: gl.constexpr = (HEAD_DIM + COLUMNS - 1) // COLUMNS  # of the columns of a tile: each has a buffer of its own
    PIECES: gl.constexpr = KEYS // PIECE  # of its rows: each may lie in another page
    k_smem = gl.allocate_shared_memory(dtype, [STAGES * CHUNKS, 1, 1, KEYS, COLUMNS], k_desc.layout)
    v_smem = gl.allocate_shared_memory(dtype, [STAGES * CHUNKS, 1, 1, KEYS, COLUMNS], v_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())  # K and V are there
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())  # both have been read
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=PIECES)
        mbarrier.init(free.index(i), count=1)
    launch_dependents(SPLIT)  # attention_paged_merge_kernel
    buffers = Buffers(k_smem, v_smem, full, free)
    problem = Problem(N_q, B, most_keys, pages, left, lengths_ptr)
    queries = Queries(q_ptr, stride_qb, stride_qh, stride_qm, stride_qd)
    scores = Scores(scale, softcap, sinks_ptr)
    share = partition_of_cta(problem, H_KV, LEAST, BLOCK_B, SPLIT)
    results = Results(o_ptr, lse_ptr, stride_ob, stride_oh, stride_om, stride_od, stride_lb, stride_lh)
    outputs = (results, o_part_ptr, lse_part_ptr)
    SHAPE: gl.constexpr = (H_KV, GROUP, HEAD_DIM, CAUSAL, SPLIT)
    gl.warp_specialize(
        [
            (consume, (buffers, share, problem, queries, scores, outputs, SHAPE)),
            (load, (buffers, share, problem, Inputs(k_desc, v_desc, table_ptr, stride_tb, stride_tn), H_KV, PAGE, SPLIT)),
        ],
        [1],
        [64],
    )  # fmt: skip


@gluon.jit
def keys_in(b, problem):
    """How many keys sequence b has, or many sequences: none past the last, no more than there is memory for."""
    keys = gl.load(problem.lengths_ptr + b, mask=b < problem.B, other=0)
    return gl.minimum(gl.maximum(keys, 0), problem.most_keys)


@gluon.jit
def first_of(keys, problem):
    """The first tile of a row that any query sees."""
    first = keys * 0
    if problem.left is not None:
        first = gl.minimum(gl.maximum(keys - problem.N_q - problem.left, 0), keys) // KEYS
    return first


@gluon.jit
def length_of(keys, problem, SPLIT: gl.constexpr):
    """How long a row is on the line of all work: ROW_COST and its tiles; not SPLIT: one."""
    length = keys * 0 + 1
    if SPLIT:
        length = ROW_COST + gl.cdiv(keys, KEYS) - first_of(keys, problem)
    return length


@gluon.jit
def add(a, b):
    return a + b


@gluon.jit
def partition_of_cta(problem, H_KV: gl.constexpr, LEAST: gl.constexpr, BLOCK_B: gl.constexpr, SPLIT: gl.constexpr):
    """(where on the line the share begins, where it ends, its first row b * H_KV + head, how much of that is others').

    As `work` and `find` of `flashlearn.fast.paged`.
    """
    program, programs = gl.program_id(0), gl.num_programs(0)
    if not SPLIT:  # rows, whatever their lengths
        share = gl.cdiv(problem.B * H_KV, programs)
        at = program * share
        return at, gl.minimum(at + share, problem.B * H_KV), at, at * 0
    LANES: gl.constexpr = gl.BlockedLayout([max(BLOCK_B // 128, 1)], [32], [4], [0])
    b = gl.arange(0, BLOCK_B, LANES)
    lengths = gl.where(b < problem.B, length_of(keys_in(b, problem), problem, SPLIT), 0)
    ends = gl.associative_scan(lengths, 0, add) * H_KV  # where each sequence ends on the line
    total = gl.max(ends, 0)
    share = partition_size(total, gl.max(lengths, 0), programs, LEAST)
    at = program * share
    over = ends <= at
    sequence = gl.sum(over.to(gl.int32), 0)
    begins = gl.max(gl.where(over, ends, 0), 0)
    mine = gl.maximum(gl.sum(gl.where(b == sequence, lengths, 0), 0), 1)
    return at, gl.minimum(at + share, total), sequence * H_KV + (at - begins) // mine, (at - begins) % mine


@gluon.jit
def part_of_row(at, end, before, keys, problem, SPLIT: gl.constexpr):
    """(how far on the line this program goes in a row, its first tile, the tile after its last)."""
    distance = gl.minimum(length_of(keys, problem, SPLIT) - before, end - at)
    first = first_of(keys, problem)
    if not SPLIT:
        return distance, first, gl.cdiv(keys, KEYS)
    return distance, first + gl.maximum(before - ROW_COST, 0), first + gl.maximum(before + distance - ROW_COST, 0)


@gluon.jit
def pages_of(table, tile, keys, pages, stride_tn, PAGE: gl.constexpr):
    """In which page each piece of a tile lies, the first at least, no other than there is; past the last key any."""
    numbers = ()
    for p in gl.static_range(KEYS // PIECE if PAGE < KEYS else 1):
        key = tile * KEYS + p * PIECE
        number = gl.load(table + gl.cast(key // PAGE, gl.int64) * stride_tn, mask=key < keys, other=0)
        numbers = numbers + (gl.minimum(gl.maximum(number, 0), pages - 1),)
    return numbers


@gluon.jit
def load(buffers, share, problem, inputs, H_KV: gl.constexpr, PAGE: gl.constexpr, SPLIT: gl.constexpr):
    """The producer warp: K and V of one tile after another, of one row after another, as soon as a buffer is free."""
    at, end, row, before = share
    STAGES: gl.constexpr = buffers.full.shape[0]
    CHUNKS: gl.constexpr = buffers.k.shape[0] // STAGES
    t = 0  # tiles so far, over all rows
    while at < end:
        b, head = row // H_KV, row % H_KV
        keys = keys_in(b, problem)
        distance, first, stop = part_of_row(at, end, before, keys, problem, SPLIT)
        table = inputs.table_ptr + b.to(gl.int64) * inputs.stride_tb
        numbers = pages_of(table, first, keys, problem.pages, inputs.stride_tn, PAGE)
        for tile in range(first, stop):
            # on their way for an iteration
            numbers_next = pages_of(table, tile + 1, keys, problem.pages, inputs.stride_tn, PAGE)
            stage = t % STAGES
            mbarrier.wait(buffers.free.index(stage), (t // STAGES & 1) ^ 1)  # a fresh barrier lets the first pass
            for p in gl.static_range(KEYS // PIECE):
                key = tile * KEYS + p * PIECE
                if key < keys:
                    mbarrier.expect(
                        buffers.full.index(stage), CHUNKS * (inputs.k.block_type.nbytes + inputs.v.block_type.nbytes)
                    )
                    for c in gl.static_range(CHUNKS):
                        place = [numbers[p if PAGE < KEYS else 0], head, key % PAGE, c * COLUMNS]
                        k_piece = buffers.k.index(stage * CHUNKS + c).slice(p * PIECE, PIECE, dim=2)
                        v_piece = buffers.v.index(stage * CHUNKS + c).slice(p * PIECE, PIECE, dim=2)
                        async_load(inputs.k, place, buffers.full.index(stage), k_piece)
                        async_load(inputs.v, place, buffers.full.index(stage), v_piece)
                else:  # not issued
                    mbarrier.arrive(buffers.full.index(stage), count=1)
            numbers = numbers_next
            t += 1
        at = at + distance
        before = 0
        row = row + 1


@gluon.jit
def query_range_at(row, problem, queries, SHAPE: gl.constexpr):
    """Q of a row, (ROWS, COLUMNS) for each part of the columns: row i is query i // GROUP of head i % GROUP that shares
    its key head. Zeros past the last."""
    H_KV: gl.constexpr = SHAPE[0]
    GROUP: gl.constexpr = SHAPE[1]
    HEAD_DIM: gl.constexpr = SHAPE[2]
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    i = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    head = (row % H_KV * GROUP + i % GROUP).to(gl.int64)
    at = (
        (row // H_KV).to(gl.int64) * queries.stride_b
        + head * queries.stride_h
        + (i // GROUP).to(gl.int64) * queries.stride_m
    )
    there = (i < problem.N_q * GROUP) & (row < problem.B * H_KV)
    q = ()
    for c in gl.static_range((HEAD_DIM + COLUMNS - 1) // COLUMNS):
        d = c * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT)).to(gl.int64)
        mask = there[:, None] & (d < HEAD_DIM)[None, :]
        q = q + (gl.load(queries.q_ptr + (at[:, None] + d[None, :] * queries.stride_d), mask=mask, other=0.0),)
    return q


@gluon.jit
def consume(buffers, share, problem, queries, scores, outputs, SHAPE: gl.constexpr):
    """The computing warps: (o, lse) of one row after another."""
    at, end, row, before = share
    H_KV: gl.constexpr = SHAPE[0]
    GROUP: gl.constexpr = SHAPE[1]
    HEAD_DIM: gl.constexpr = SHAPE[2]
    CAUSAL: gl.constexpr = SHAPE[3]
    SPLIT: gl.constexpr = SHAPE[4]
    CHUNKS: gl.constexpr = (HEAD_DIM + COLUMNS - 1) // COLUMNS
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [1, 4], [16, 8])
    Q_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, S_LAYOUT, 2)
    i = gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))
    t = 0  # tiles so far, over all rows
    q_next = query_range_at(row, problem, queries, SHAPE)
    while at < end:
        q = ()
        for c in gl.static_range(CHUNKS):
            q = q + (gl.convert_layout(q_next[c], Q_LAYOUT),)
        q_next = query_range_at(row + 1, problem, queries, SHAPE)  # on its way while this row is computed
        keys = keys_in(row // H_KV, problem)
        distance, first, stop = part_of_row(at, end, before, keys, problem, SPLIT)
        # Row i sees the keys from low to high: all, or, as the last query of a sequence stands at its last key, some of them
        low = gl.zeros([ROWS], gl.int32, gl.SliceLayout(1, S_LAYOUT))
        high = low + keys
        full_stop = keys // KEYS
        if CAUSAL:
            high = gl.minimum(i // GROUP + keys - problem.N_q + 1, keys)
            full_stop = gl.maximum(keys - problem.N_q + 1, 0) // KEYS
        if problem.left is not None:
            low = i // GROUP + keys - problem.N_q - problem.left
            full_stop = first
        full_stop = gl.minimum(gl.maximum(full_stop, first), stop)
        state = nothing_yet(row, before, problem.N_q, scores, SHAPE, S_LAYOUT)
        for tile in range(first, full_stop):
            state = take_tile(Tile(t, tile, keys, low, high), q, state, buffers, scores, S_LAYOUT, False)
            t += 1
        for tile in range(full_stop, stop):
            state = take_tile(Tile(t, tile, keys, low, high), q, state, buffers, scores, S_LAYOUT, True)
            t += 1
        whole = distance == length_of(keys, problem, SPLIT)
        finish(row, before, whole, state, problem.N_q, outputs, SHAPE, buffers.k.dtype)
        at = at + distance
        before = 0
        row = row + 1


@gluon.jit
def nothing_yet(row, before, N_q, scores, SHAPE: gl.constexpr, S_LAYOUT: gl.constexpr):
    """(m, l, acc) before the first key, or after a sink, which comes where a row begins, once; l is still to be summed up."""
    H_KV: gl.constexpr = SHAPE[0]
    GROUP: gl.constexpr = SHAPE[1]
    HEAD_DIM: gl.constexpr = SHAPE[2]
    i = gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))
    m_i = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, S_LAYOUT))
    if scores.sinks_ptr is not None:
        there = (i < N_q * GROUP) & (before == 0)
        m_i = gl.load(scores.sinks_ptr + (row % H_KV * GROUP + i % GROUP), mask=there, other=float("-inf"))
    l_i = gl.zeros([ROWS, KEYS], gl.float32, S_LAYOUT)
    l_i = l_i + gl.where(m_i == float("-inf"), 0.0, 1.0 / KEYS)[:, None]
    acc = ()
    for _ in gl.static_range((HEAD_DIM + COLUMNS - 1) // COLUMNS):
        acc = acc + (gl.zeros([ROWS, COLUMNS], gl.float32, S_LAYOUT),)
    return m_i, l_i, acc


@gluon.jit
def take_tile(place, q, state, buffers, scores, S_LAYOUT: gl.constexpr, MASKED: gl.constexpr):
    """Online softmax: tile t of this program, a tile of a row, into (m, l, acc). Not MASKED: every query sees all of it."""
    m_i, l_i, acc = state
    STAGES: gl.constexpr = buffers.full.shape[0]
    CHUNKS: gl.constexpr = buffers.k.shape[0] // STAGES
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, S_LAYOUT, 2)
    K_LAYOUT: gl.constexpr = gl.DotOperandLayout(1, S_LAYOUT, 2)
    stage = place.t % STAGES
    mbarrier.wait(buffers.full.index(stage), place.t // STAGES & 1)
    s = gl.zeros([ROWS, KEYS], gl.float32, S_LAYOUT)
    v = ()
    for c in gl.static_range(CHUNKS):
        k = buffers.k.index(stage * CHUNKS + c).reshape([KEYS, COLUMNS]).permute((1, 0)).load(K_LAYOUT)
        v = v + (buffers.v.index(stage * CHUNKS + c).reshape([KEYS, COLUMNS]).load(K_LAYOUT),)
        s = mma_v2(q[c], k, s)
    mbarrier.arrive(buffers.free.index(stage), count=1)  # all is in registers
    s, _ = scored(s, None, None, None, scores.scale, scores.softcap, None)
    if MASKED:
        cols = place.tile * KEYS + gl.arange(0, KEYS, gl.SliceLayout(0, S_LAYOUT))
        s = gl.where((cols[None, :] >= place.low[:, None]) & (cols[None, :] < place.high[:, None]), s, float("-inf"))
    m_new = gl.maximum(m_i, gl.max(s, 1))
    m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)  # this row has seen no key so far
    p = gl.exp2((s - m_safe[:, None]) * LOG2E)
    alpha = gl.exp2((m_i - m_safe) * LOG2E)
    l_i = l_i * alpha[:, None] + p  # (ROWS, KEYS): a sum over columns here would have the warps wait for each other
    p = gl.convert_layout(p.to(buffers.k.dtype), P_LAYOUT)
    acc_new = ()
    for c in gl.static_range(CHUNKS):
        values = v[c]
        if MASKED:
            rows = place.tile * KEYS + gl.arange(0, KEYS, gl.SliceLayout(1, K_LAYOUT))
            values = gl.where(rows[:, None] < place.keys, values, gl.zeros([KEYS, COLUMNS], values.dtype, K_LAYOUT))
        acc_new = acc_new + (mma_v2(p, values, acc[c] * alpha[:, None]),)
    return m_new, l_i, acc_new


@gluon.jit
def finish(row, before, whole, state, N_q, outputs, SHAPE: gl.constexpr, dtype: gl.constexpr):
    """o and lse of a row, or, if that is not whole, of this piece of it, to be merged."""
    m_i, l_i, acc = state
    results, o_part_ptr, lse_part_ptr = outputs
    H_KV: gl.constexpr = SHAPE[0]
    GROUP: gl.constexpr = SHAPE[1]
    HEAD_DIM: gl.constexpr = SHAPE[2]
    SPLIT: gl.constexpr = SHAPE[4]
    S_LAYOUT: gl.constexpr = l_i.type.layout
    i = gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))
    there = i < N_q * GROUP
    l_i = gl.sum(l_i, 1)
    l_i = gl.where(l_i == 0.0, 1.0, l_i)  # a row that saw no key: o = 0 and lse = -inf, which weigh nothing
    lse = m_i + gl.log2(l_i) * LN_2
    b, query = (row // H_KV).to(gl.int64), (i // GROUP).to(gl.int64)
    head = (row % H_KV * GROUP + i % GROUP).to(gl.int64)
    # piece 1 has the beginning of a row of tiles, piece 0 has not
    part = (gl.program_id(0) * 2 + gl.where(before == 0, 1, 0)).to(gl.int64) * ROWS + i
    for c in gl.static_range((HEAD_DIM + COLUMNS - 1) // COLUMNS):
        d = c * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, S_LAYOUT)).to(gl.int64)
        mask = there[:, None] & (d < HEAD_DIM)[None, :]
        o = acc[c] / l_i[:, None]
        if whole:
            ptrs = (
                results.o_ptr
                + b * results.stride_ob
                + (head * results.stride_oh + query * results.stride_om)[:, None]
                + d[None, :] * results.stride_od
            )
            gl.store(ptrs, o.to(dtype), mask=mask)
        elif SPLIT:
            gl.store(o_part_ptr + part[:, None] * HEAD_DIM + d[None, :], o, mask=mask)
    if whole:
        if results.lse_ptr is not None:
            gl.store(results.lse_ptr + b * results.stride_lb + head * results.stride_lh + query, lse, mask=there)
    elif SPLIT:
        gl.store(lse_part_ptr + part, lse, mask=there)
