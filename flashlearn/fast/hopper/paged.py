"""Decoding over pages for Hopper GPUs: a producer warp runs ahead of the consumer warpgroup, from sequence to sequence.

In `flashlearn.fast.paged` a CTA loads nothing past the end of its tile of queries, so that each new sequence costs three
times the latency of memory. Here a producer warp fills a pipeline of STAGES buffers by TMA, and has gone on to the next
sequences while the consumer still computes this one. One CTA per SM is enough.

The work partition is the same (Stream-K): the tiles of keys of all key heads of all sequences are one line, of which every CTA computes an
equal partition. A head that is cut is merged by the same kernel. A head's queries are one tile: those of its group, ROWS at most.

TMA loads 16 keys at a time, so that pages may be as small. Past the last key a page may hold anything: such scores are
-inf, and such values 0, since 0 * NaN would be NaN. Figures: docs/engineering_log.md.
Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv:2407.08608), section 3.1, for warps that load.
"""

# A tuple that grows is none of Python's here: Triton knows the type of each of its parts.
# mypy: disable-error-code="assignment, var-annotated"

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, mma_v2

from flashlearn.fast.hopper.pipeline import Pipeline, make_barriers
from flashlearn.fast.hopper.versions import aggregate, async_load
from flashlearn.fast.launcher import launch_dependents
from flashlearn.fast.online_softmax import LN_2, LOG2E, scored
from flashlearn.fast.work_partition import QUERIES_COST, partition_size

ROWS = gl.constexpr(16)  # queries that share a key head, one tile: the height of one product of `mma_v2`
KEYS = gl.constexpr(64)  # of a tile
COLUMNS = gl.constexpr(64)  # of a buffer: 128 bytes, the widest that is free of bank conflicts
PIECE = gl.constexpr(16)  # keys that TMA loads at a time, of one page
UNDER_WAY = 96 * 1024  # bytes of K and V


def stages(D: int) -> int:
    """How many tiles of K and V are under way, at least three."""
    columns = -(-D // COLUMNS.value) * COLUMNS.value
    return max(UNDER_WAY // (2 * KEYS.value * columns * 2), 3)


@aggregate
class DecodingProblem:
    """Sizes, the sequences' lengths, and what the kernel is compiled for."""

    N_q: Any
    B: Any
    max_keys: Any
    pages: Any
    left: Any  # how far back a query attends, or None
    lengths_ptr: Any
    H_KV: Any
    GROUP: Any
    HEAD_DIM: Any
    CHUNKS: Any  # of the head dimension
    CAUSAL: Any
    SPLIT: Any  # whether heads are cut

    @gluon.jit
    def keys_in(self, b):
        """How many keys sequence b has, or many sequences: none past the last, no more than there is memory for."""
        keys = gl.load(self.lengths_ptr + b, mask=b < self.B, other=0)
        return gl.minimum(gl.maximum(keys, 0), self.max_keys)

    @gluon.jit
    def first_tile(self, keys):
        """The first tile of keys that any query attends to."""
        first = keys * 0
        if self.left is not None:
            first = gl.minimum(gl.maximum(keys - self.N_q - self.left, 0), keys) // KEYS
        return first

    @gluon.jit
    def length(self, keys):
        """How long a head is on the line of all work: QUERIES_COST and its tiles; not SPLIT: one."""
        length = keys * 0 + 1
        if self.SPLIT:
            length = QUERIES_COST + gl.cdiv(keys, KEYS) - self.first_tile(keys)
        return length


@aggregate
class Work:
    """What a CTA still has to do: on the line of all work from `at` to `end`."""

    at: Any
    end: Any
    head: Any  # its key head, counted over all sequences: b * H_KV + head
    before: Any  # how much of that head is another CTA's

    @gluon.jit
    def split(self, keys, problem):
        """What this CTA computes of its head, which has so many keys."""
        distance = gl.minimum(problem.length(keys) - self.before, self.end - self.at)
        first = problem.first_tile(keys)
        if not problem.SPLIT:
            return Split(distance, first, gl.cdiv(keys, KEYS))
        stop = first + gl.maximum(self.before + distance - QUERIES_COST, 0)
        return Split(distance, first + gl.maximum(self.before - QUERIES_COST, 0), stop)

    @gluon.jit
    def next(self, split):
        """What is left after a split: it begins with the next head."""
        return Work(self.at + split.distance, self.end, self.head + 1, self.before * 0)


@aggregate
class Split:
    """What a CTA computes of a head: how long it is on the line, and its tiles of keys, first <= tile < stop."""

    distance: Any
    first: Any
    stop: Any


@aggregate
class DecodingCTA:
    """What the warps of a CTA share."""

    k: Any  # pipelines of K and V, which share their barriers
    v: Any
    work: Any
    problem: Any


@aggregate
class Pages:
    """The table of pages (B, most)."""

    ptr: Any
    stride_b: Any
    stride_n: Any
    PAGE: Any  # keys of a page


@aggregate
class Queries:
    """Q (B, H_q, N_q, D), and the options of its scores."""

    ptr: Any
    strides: Any
    scale: Any
    softcap: Any  # or None
    sinks_ptr: Any  # (H_q,), or None


@aggregate
class Outputs:
    """o (B, H_q, N_q, D) and lse (B, H_q, N_q) or None; and those of splits, (programs, 2, ROWS, D) and (programs, 2, ROWS)."""

    o_ptr: Any
    lse_ptr: Any
    o_splits_ptr: Any
    lse_splits_ptr: Any
    o_strides: Any


@aggregate
class DecodingState:
    """The online softmax of a head's queries; l (ROWS, KEYS) is still to be summed up."""

    m_i: Any
    l_i: Any
    acc: Any


@aggregate
class KeyBounds:
    """The keys of a sequence, and those low <= key < high that each query attends to."""

    number: Any
    low: Any
    high: Any


@gluon.jit(do_not_specialize=["N_q", "B", "max_keys", "pages", "left", "stride_tb"])
def attention_paged_hopper_kernel(
    # descriptors of k and v (P, H_kv, PAGE, D), tiles (1, 1, PIECE, COLUMNS)
    k_desc, v_desc,
    # pointers
    q_ptr, o_ptr, lse_ptr, o_splits_ptr, lse_splits_ptr, table_ptr, lengths_ptr, sinks_ptr,
    # `Strides` of q and o (B, H_q, N_q, D), strides of the table (B, most); lse (B, H_q, N_q), o_splits (programs, 2, ROWS, D) and
    # lse_splits are contiguous
    q_strides, o_strides, stride_tb, stride_tn,
    # sizes; how far back a query attends, the factor on Q K^T, a softcap: None where there is none
    N_q, B, max_keys, pages, left, scale, softcap,
    H_KV: gl.constexpr, GROUP: gl.constexpr, HEAD_DIM: gl.constexpr, MINIMUM: gl.constexpr, BLOCK_B: gl.constexpr,
    PAGE: gl.constexpr, CAUSAL: gl.constexpr, SPLIT: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """o and lse of this CTA's partition of all work: of whole heads, and of at most two splits of heads, which are merged later."""
    dtype: gl.constexpr = k_desc.dtype
    CHUNKS: gl.constexpr = (HEAD_DIM + COLUMNS - 1) // COLUMNS  # of the head dimension: each has a buffer of its own
    k_smem = gl.allocate_shared_memory(dtype, [STAGES * CHUNKS, 1, 1, KEYS, COLUMNS], k_desc.layout)
    v_smem = gl.allocate_shared_memory(dtype, [STAGES * CHUNKS, 1, 1, KEYS, COLUMNS], v_desc.layout)
    full = make_barriers(STAGES)  # K and V are there: an arrival for each piece
    free = make_barriers(STAGES)  # both have been read
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=KEYS // PIECE)
        mbarrier.init(free.index(i), count=1)
    launch_dependents(SPLIT)  # attention_paged_merge_kernel
    k, v = Pipeline(k_smem, full, free, STAGES, CHUNKS), Pipeline(v_smem, full, free, STAGES, CHUNKS)
    problem = DecodingProblem(N_q, B, max_keys, pages, left, lengths_ptr, H_KV, GROUP, HEAD_DIM, CHUNKS, CAUSAL, SPLIT)
    cta = DecodingCTA(k, v, work_of_cta(problem, MINIMUM, BLOCK_B), problem)
    queries = Queries(q_ptr, q_strides, scale, softcap, sinks_ptr)
    results = Outputs(o_ptr, lse_ptr, o_splits_ptr, lse_splits_ptr, o_strides)
    table = Pages(table_ptr, stride_tb, stride_tn, PAGE)
    gl.warp_specialize([(consume, (cta, queries, results)), (load, (cta, table, k_desc, v_desc))], [1], [64])


@gluon.jit
def add(a, b):
    return a + b


@gluon.jit
def work_of_cta(problem, MINIMUM: gl.constexpr, BLOCK_B: gl.constexpr):
    """This CTA's partition of all work, as `line_of_work` and `find` of `flashlearn.fast.paged` have it."""
    program, programs = gl.program_id(0), gl.num_programs(0)
    if not problem.SPLIT:  # heads, whatever their lengths
        size = gl.cdiv(problem.B * problem.H_KV, programs)
        at = program * size
        return Work(at, gl.minimum(at + size, problem.B * problem.H_KV), at, at * 0)
    LANES: gl.constexpr = gl.BlockedLayout([max(BLOCK_B // 128, 1)], [32], [4], [0])
    b = gl.arange(0, BLOCK_B, LANES)
    lengths = gl.where(b < problem.B, problem.length(problem.keys_in(b)), 0)  # (BLOCK_B,), of a head of each sequence
    ends = gl.associative_scan(lengths, 0, add) * problem.H_KV  # where each sequence ends on the line
    total = gl.max(ends, 0)
    size = partition_size(total, gl.max(lengths, 0), programs, MINIMUM)
    at = program * size
    over = ends <= at
    sequence = gl.sum(over.to(gl.int32), 0)
    begins = gl.max(gl.where(over, ends, 0), 0)
    mine = gl.maximum(gl.sum(gl.where(b == sequence, lengths, 0), 0), 1)
    head = sequence * problem.H_KV + (at - begins) // mine
    return Work(at, gl.minimum(at + size, total), head, (at - begins) % mine)


@gluon.jit
def pages_of(row_ptr, tile, keys, pages, table):
    """The page of each piece of a tile, of the first piece at least; none but pages that there are, and past the last key any."""
    numbers = ()
    for p in gl.static_range(KEYS // PIECE if table.PAGE < KEYS else 1):
        key = tile * KEYS + p * PIECE
        number = gl.load(row_ptr + gl.cast(key // table.PAGE, gl.int64) * table.stride_n, mask=key < keys, other=0)
        numbers = numbers + (gl.minimum(gl.maximum(number, 0), pages - 1),)
    return numbers


@gluon.jit
def load(cta, table, k_desc, v_desc):
    """The producer warp: K and V of one tile after another, of one head after another, as soon as a buffer is free."""
    work, problem = cta.work, cta.problem
    t = 0  # tiles so far, over all heads
    while work.at < work.end:
        b, head = work.head // problem.H_KV, work.head % problem.H_KV
        keys = problem.keys_in(b)
        split = work.split(keys, problem)
        row_ptr = table.ptr + b.to(gl.int64) * table.stride_b
        numbers = pages_of(row_ptr, split.first, keys, problem.pages, table)
        for tile in range(split.first, split.stop):
            numbers_next = pages_of(row_ptr, tile + 1, keys, problem.pages, table)  # an iteration ahead
            cta.k.producer_acquire(t)
            for p in gl.static_range(KEYS // PIECE):
                key = tile * KEYS + p * PIECE
                if key < keys:
                    page = numbers[p if table.PAGE < KEYS else 0]
                    load_piece(t, p, page, head, key % table.PAGE, cta, k_desc, v_desc)
                else:  # nothing is loaded
                    mbarrier.arrive(cta.k.full.index(cta.k.index(t)), count=1)
            numbers = numbers_next
            t += 1
        work = work.next(split)


@gluon.jit
def load_piece(t, p: gl.constexpr, page, head, start, cta, k_desc, v_desc):
    """Let TMA fill piece p of K and of V of iteration t with keys from `start` on of a page."""
    index = cta.k.index(t)
    full = cta.k.full.index(index)
    mbarrier.expect(full, cta.k.CHUNKS * (k_desc.block_type.nbytes + v_desc.block_type.nbytes))
    for c in gl.static_range(cta.k.CHUNKS):
        at, chunk = [page, head, start, c * COLUMNS], index * cta.k.CHUNKS + c
        async_load(k_desc, at, full, cta.k.smem.index(chunk).slice(p * PIECE, PIECE, dim=2))
        async_load(v_desc, at, full, cta.v.smem.index(chunk).slice(p * PIECE, PIECE, dim=2))


@gluon.jit
def consume(cta, queries, results):
    """The consumer warpgroup: o and lse of one head after another."""
    work, problem = cta.work, cta.problem
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [1, 4], [16, 8])
    Q_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, S_LAYOUT, 2)
    t = 0  # tiles so far, over all heads
    q_next = queries_of(work.head, queries, problem)
    while work.at < work.end:
        q = ()
        for c in gl.static_range(problem.CHUNKS):
            q = q + (gl.convert_layout(q_next[c], Q_LAYOUT),)
        q_next = queries_of(work.head + 1, queries, problem)  # loaded while this head is computed
        number = problem.keys_in(work.head // problem.H_KV)
        split = work.split(number, problem)
        keys = keys_of(number, problem, S_LAYOUT)
        full_stop = end_of_full_tiles(number, split, problem)
        state = initial_state(work, queries, problem, S_LAYOUT)
        for tile in range(split.first, full_stop):
            state = update(t, tile, q, keys, state, cta, queries, False)
            t += 1
        for tile in range(full_stop, split.stop):
            state = update(t, tile, q, keys, state, cta, queries, True)
            t += 1
        whole = split.distance == problem.length(number)
        finish(work, whole, state, results, problem, cta.k.smem.dtype)
        work = work.next(split)


@gluon.jit
def queries_of(head, queries, problem):
    """Q of a head, (ROWS, COLUMNS) for each chunk: row i is query i // GROUP of query head i % GROUP. Zeros past the last."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    strides = queries.strides
    i = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    q_head = (head % problem.H_KV * problem.GROUP + i % problem.GROUP).to(gl.int64)
    b, query = (head // problem.H_KV).to(gl.int64), (i // problem.GROUP).to(gl.int64)
    offsets = b * strides.b + q_head * strides.h + query * strides.n
    there = (i < problem.N_q * problem.GROUP) & (head < problem.B * problem.H_KV)
    q = ()
    for c in gl.static_range(problem.CHUNKS):
        d = c * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT)).to(gl.int64)
        mask = there[:, None] & (d < problem.HEAD_DIM)[None, :]
        q = q + (gl.load(queries.ptr + (offsets[:, None] + d[None, :] * strides.d), mask=mask, other=0.0),)
    return q


@gluon.jit
def keys_of(number, problem, S_LAYOUT: gl.constexpr):
    """The keys that each query attends to, of so many: the last query of a sequence is at its last key."""
    i = gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))
    low = gl.zeros([ROWS], gl.int32, gl.SliceLayout(1, S_LAYOUT))
    high = low + number
    if problem.CAUSAL:
        high = gl.minimum(i // problem.GROUP + number - problem.N_q + 1, number)
    if problem.left is not None:
        low = i // problem.GROUP + number - problem.N_q - problem.left
    return KeyBounds(number, low, high)


@gluon.jit
def end_of_full_tiles(number, split, problem):
    """The first tile, of a split of a head with so many keys, that needs a mask."""
    full_stop = number // KEYS
    if problem.CAUSAL:
        full_stop = gl.maximum(number - problem.N_q + 1, 0) // KEYS
    if problem.left is not None:
        full_stop = split.first
    return gl.minimum(gl.maximum(full_stop, split.first), split.stop)


@gluon.jit
def initial_state(work, queries, problem, S_LAYOUT: gl.constexpr):
    """Before the first key, or after a sink, which comes where a head begins, once."""
    i = gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))
    m_i = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, S_LAYOUT))
    if queries.sinks_ptr is not None:
        there = (i < problem.N_q * problem.GROUP) & (work.before == 0)
        q_head = work.head % problem.H_KV * problem.GROUP + i % problem.GROUP
        m_i = gl.load(queries.sinks_ptr + q_head, mask=there, other=float("-inf"))
    l_i = gl.zeros([ROWS, KEYS], gl.float32, S_LAYOUT)
    l_i = l_i + gl.where(m_i == float("-inf"), 0.0, 1.0 / KEYS)[:, None]
    acc = ()
    for _ in gl.static_range(problem.CHUNKS):
        acc = acc + (gl.zeros([ROWS, COLUMNS], gl.float32, S_LAYOUT),)
    return DecodingState(m_i, l_i, acc)


@gluon.jit
def update(t, tile, q, keys, state, cta, queries, MASKED: gl.constexpr):
    """The online-softmax update with a tile of keys, the t-th of this CTA; not MASKED: every query attends to all of it."""
    S_LAYOUT: gl.constexpr = state.l_i.type.layout
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, S_LAYOUT, 2)
    K_LAYOUT: gl.constexpr = gl.DotOperandLayout(1, S_LAYOUT, 2)
    CHUNKS: gl.constexpr = cta.problem.CHUNKS
    cta.k.consumer_wait(t)
    k_chunks, v_chunks = cta.k.chunks(t), cta.v.chunks(t)
    s = gl.zeros([ROWS, KEYS], gl.float32, S_LAYOUT)
    v = ()
    for c in gl.static_range(CHUNKS):
        k = k_chunks[c].permute((1, 0)).load(K_LAYOUT)  # (COLUMNS, KEYS)
        v = v + (v_chunks[c].load(K_LAYOUT),)  # (KEYS, COLUMNS)
        s = mma_v2(q[c], k, s)
    cta.k.consumer_release(t)  # K and V are in registers
    s, _ = scored(s, None, None, None, queries.scale, queries.softcap, None)
    if MASKED:
        cols = tile * KEYS + gl.arange(0, KEYS, gl.SliceLayout(0, S_LAYOUT))
        s = gl.where((cols[None, :] >= keys.low[:, None]) & (cols[None, :] < keys.high[:, None]), s, float("-inf"))
    m_new = gl.maximum(state.m_i, gl.max(s, 1))
    m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)  # this query has seen no key so far
    p = gl.exp2((s - m_safe[:, None]) * LOG2E)
    alpha = gl.exp2((state.m_i - m_safe) * LOG2E)
    l_i = state.l_i * alpha[:, None] + p  # a sum over columns here would have the warps wait for each other
    p = gl.convert_layout(p.to(cta.k.smem.dtype), P_LAYOUT)
    acc = ()
    for c in gl.static_range(CHUNKS):
        values = v[c]
        if MASKED:
            rows = tile * KEYS + gl.arange(0, KEYS, gl.SliceLayout(1, K_LAYOUT))
            values = gl.where(rows[:, None] < keys.number, values, gl.zeros([KEYS, COLUMNS], values.dtype, K_LAYOUT))
        acc = acc + (mma_v2(p, values, state.acc[c] * alpha[:, None]),)
    return DecodingState(m_new, l_i, acc)


@gluon.jit
def finish(work, whole, state, results, problem, dtype: gl.constexpr):
    """o and lse of a head, or, if it is not whole, of this split of it, to be merged."""
    S_LAYOUT: gl.constexpr = state.l_i.type.layout
    HEAD_DIM: gl.constexpr = problem.HEAD_DIM
    i = gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))
    there = i < problem.N_q * problem.GROUP
    l_i = gl.sum(state.l_i, 1)
    l_i = gl.where(l_i == 0.0, 1.0, l_i)  # a query that saw no key: o = 0 and lse = -inf, which weigh nothing
    lse = state.m_i + gl.log2(l_i) * LN_2
    b, query = (work.head // problem.H_KV).to(gl.int64), (i // problem.GROUP).to(gl.int64)
    q_head = (work.head % problem.H_KV * problem.GROUP + i % problem.GROUP).to(gl.int64)
    # split 1 of a CTA has the first keys of a head, split 0 has not
    index = (gl.program_id(0) * 2 + gl.where(work.before == 0, 1, 0)).to(gl.int64) * ROWS + i
    strides = results.o_strides
    for c in gl.static_range(problem.CHUNKS):
        d = c * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, S_LAYOUT)).to(gl.int64)
        mask = there[:, None] & (d < HEAD_DIM)[None, :]
        o = state.acc[c] / l_i[:, None]
        if whole:
            rows = results.o_ptr + b * strides.b + (q_head * strides.h + query * strides.n)[:, None]
            gl.store(rows + d[None, :] * strides.d, o.to(dtype), mask=mask)
        elif problem.SPLIT:
            gl.store(results.o_splits_ptr + index[:, None] * HEAD_DIM + d[None, :], o, mask=mask)
    if whole:
        if results.lse_ptr is not None:
            offsets = (b * problem.H_KV * problem.GROUP + q_head) * problem.N_q + query
            gl.store(results.lse_ptr + offsets, lse, mask=there)
    elif problem.SPLIT:
        gl.store(results.lse_splits_ptr + index, lse, mask=there)
