"""Attention over a cache in pages, for sequences of every length and any number of queries: `flash_attention_paged`.

1. Key t of a sequence is in page table[t // page], at t % page: one more load before those of K and V.
2. A tile of queries holds those of all heads that share a key head, query by query: row r is query r // group of head
   r % group. So K and V are read once per key head and tile.
3. The work is one line of tiles of keys: sequence by sequence, key head by key head, tile of queries by tile of queries.
   Every CTA takes an equal partition of that line, wherever it begins and ends. A tile of queries counts for one tile of
   keys more than it has, for its beginning and end. Every CTA computes its partition from the lengths; the host knows
   shapes only, waits for nothing, and the launch can be part of a CUDA graph.
4. At most two tiles of queries of a CTA are cut: it has a split of their keys. The (o, lse) of splits go to memory of their
   own, and a second kernel merges them.
5. Where no sequence can be long enough to be worth cutting, a CTA takes a tile of queries with all its keys.
6. Few queries in 16 bits, as in decoding, on a Hopper GPU: another first kernel (`flashlearn.fast.hopper.paged`).

A query of decoding reads 2 D keys bytes(element) per key head, and nothing else counts.
Sources: W. Kwon et al., 2023 (arXiv:2309.06180), for pages; R. Sanovar et al., "Lean Attention", 2024 (arXiv:2405.10480),
for equal partitions, after M. Osama et al., "Stream-K", 2023 (arXiv:2301.03598).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Literal, NamedTuple, Unpack, overload

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.inputs import check_bool, dual
from flashlearn.core.interpreter_warning import warn_if_slow_paged
from flashlearn.core.mask import Window, limits
from flashlearn.core.options import AttentionOptions
from flashlearn.core.pages import PagedSizes, check_paged, check_paged_numbers
from flashlearn.core.scores import per_head
from flashlearn.core.target import (
    INTERPRETED,
    check_device,
    check_head_dim,
    check_softcap,
    padded,
    reject_negated,
    resolve_scale,
)
from flashlearn.fast.api import Common
from flashlearn.fast.decode import decode_launch, max_rows
from flashlearn.fast.dispatch import allow_tf32, must_widen, why_not_this_machine, why_not_tma
from flashlearn.fast.hopper import paged as hopper
from flashlearn.fast.hopper.tiles import in_tiles, with_descriptors
from flashlearn.fast.launcher import dependent, launch_dependents, sm_count, wait_for_previous
from flashlearn.fast.launcher import launch as launch_kept
from flashlearn.fast.online_softmax import LN_2, NOTHING, merge_splits, online_softmax_update, scored
from flashlearn.fast.portable.launches import FORWARD, PortableLaunch, shared_memory
from flashlearn.fast.portable.masks import Strides, named
from flashlearn.fast.work_partition import MIN_KEYS, QUERIES_COST, partition_size

# Three CTAs fit an SM if a thread takes at most so many registers, and a CTA so many bytes of shared memory. With few rows
# and pages of more than a tile they do; elsewhere two are launched.
REGISTERS, SHARED = 168, 74 * 1024
MAX_SEQUENCES = 8192  # every program looks at all lengths


@triton.jit
def sequence_of(b, sequences, N_q, T, B, max_keys):
    """(first query, queries, keys) of sequence b, one or many; none past the last. No more than there is memory for."""
    there = b < B
    keys = tl.load(sequences.lengths_ptr + b, mask=there, other=0)
    keys = tl.minimum(tl.maximum(keys, 0), max_keys)
    first = b * 0
    queries = tl.where(there, N_q, 0)
    if sequences.starts_ptr is not None:
        first = tl.load(sequences.starts_ptr + b, mask=there, other=0)
        first = tl.minimum(tl.maximum(first, 0), T)
        end = tl.load(sequences.starts_ptr + b + 1, mask=there, other=0)
        queries = tl.maximum(tl.minimum(end, T) - first, 0)
    return first, queries, keys


@triton.jit
def keys_of(r, queries, keys, left, right, GROUP: tl.constexpr, BLOCK_M: tl.constexpr):
    """(first query, last query, start, stop) of tile of queries r: it attends to no key but those from start to stop.

    Query i attends to keys i + keys - queries - left to i + keys - queries + right.
    """
    first = r * BLOCK_M // GROUP
    last = tl.minimum(((r + 1) * BLOCK_M - 1) // GROUP, queries - 1)
    start = keys * 0
    stop = keys
    if left is not None:
        start = tl.minimum(tl.maximum(first + keys - queries - left, 0), keys)
    if right is not None:
        stop = tl.maximum(tl.minimum(last + keys - queries + right + 1, keys), 0)
    return first, last, start, tl.maximum(start, stop)


@triton.jit
def tiles_between(start, stop, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr):
    """How long a tile of queries is on the line of all work: QUERIES_COST and its tiles of keys; not SPLIT: one."""
    if not SPLIT:
        return tl.maximum(start * 0, 1)
    return QUERIES_COST + tl.maximum(tl.cdiv(stop, BLOCK_N) - start // BLOCK_N, 0)


@triton.jit
def line_of_work(
    sequences, N_q, T, B, max_keys, left, right, programs,
    H_KV: tl.constexpr, GROUP: tl.constexpr, MINIMUM: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """The line of all work: (how long a key head of each sequence is on it (BLOCK_B,), its length, the size of a partition)."""
    b = tl.arange(0, BLOCK_B)
    _, queries, keys = sequence_of(b, sequences, N_q, T, B, max_keys)
    rows = tl.cdiv(queries * GROUP, BLOCK_M)
    tiles = b * 0
    longest = b * 0
    for r in range(0, tl.max(rows, 0)):
        _, _, start, stop = keys_of(r, queries, keys, left, right, GROUP, BLOCK_M)
        more = tl.where(r < rows, tiles_between(start, stop, BLOCK_N, SPLIT), 0)
        tiles += more
        longest = tl.maximum(longest, more)
    total = tl.sum(tiles, 0) * H_KV
    return tiles, total, partition_size(total, tl.max(longest, 0), programs, MINIMUM)


@triton.jit
def find(
    at, tiles, sequences, N_q, T, B, max_keys, left, right,
    H_KV: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """(sequence, key head, tile of queries, how much of it comes before) at a place on the line."""
    sequence = tl.arange(0, BLOCK_B)
    b = tl.sum((tl.cumsum(tiles, 0) * H_KV <= at).to(tl.int32), 0)  # those that end before it
    at -= tl.sum(tl.where(sequence < b, tiles, 0), 0) * H_KV
    mine = tl.maximum(tl.sum(tl.where(sequence == b, tiles, 0), 0), 1)
    head = at // mine
    at = at % mine
    _, queries, keys = sequence_of(b, sequences, N_q, T, B, max_keys)
    r = at * 0
    _, _, start, stop = keys_of(r, queries, keys, left, right, GROUP, BLOCK_M)
    here = tiles_between(start, stop, BLOCK_N, SPLIT)
    while at >= here:
        at -= here
        r += 1
        _, _, start, stop = keys_of(r, queries, keys, left, right, GROUP, BLOCK_M)
        here = tiles_between(start, stop, BLOCK_N, SPLIT)
    return b, head, r, at


@triton.jit
def take_tile(
    m_i, l_i, acc, q, j, start, stop, rows, diagonal, left, right,
    table_ptr, k_ptr, v_ptr, stride_k, stride_v, stride_tn, pages, scores,
    HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Online softmax: the keys and values of tile j into (m, l, acc). Not MASKED: every query attends to all of them."""
    cols = j * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)[None, :]  # (1, BLOCK_D)
    there = (cols >= start) & (cols < stop)
    if BLOCK_N <= PAGE:  # one page; key 0 is there, so the table has this entry
        number = tl.load(table_ptr + tl.cast(j * BLOCK_N // PAGE, tl.int64) * stride_tn, mask=start < stop, other=0)
    elif MASKED:
        number = tl.load(table_ptr + (cols // PAGE).to(tl.int64) * stride_tn, mask=there, other=0)[:, None]
    else:
        number = tl.load(table_ptr + (cols // PAGE).to(tl.int64) * stride_tn)[:, None]
    number = tl.minimum(tl.maximum(number, 0), pages - 1).to(tl.int64)
    within = (cols % PAGE).to(tl.int64)[:, None]  # (BLOCK_N, 1)
    k_ptrs = k_ptr + number * stride_k.b + within * stride_k.n + offs_d * stride_k.d
    v_ptrs = v_ptr + number * stride_v.b + within * stride_v.n + offs_d * stride_v.d
    if MASKED:
        k = tl.load(k_ptrs, mask=there[:, None] & (offs_d < HEAD_DIM), other=0.0)  # (BLOCK_N, BLOCK_D)
        v = tl.load(v_ptrs, mask=there[:, None] & (offs_d < HEAD_DIM), other=0.0)
    elif HEAD_DIM < BLOCK_D:
        k = tl.load(k_ptrs, mask=offs_d < HEAD_DIM, other=0.0)
        v = tl.load(v_ptrs, mask=offs_d < HEAD_DIM, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # (BLOCK_M, BLOCK_N)
    s, _ = scored(s, None, None, None, scores.scale, scores.softcap, None)
    if MASKED:
        visible = there[None, :] & (rows[:, None] >= 0)  # (BLOCK_M, BLOCK_N)
        if right is not None:
            visible = visible & (cols[None, :] <= rows[:, None] + diagonal + right)
        if left is not None:
            visible = visible & (cols[None, :] >= rows[:, None] + diagonal - left)
        s = tl.where(visible, s, NOTHING)  # before the maximum: a hidden score must not raise it
    return online_softmax_update(m_i, l_i, acc, s, v, PRECISION)


@triton.jit
def seen_by_all(j, j_end, first, last, keys, diagonal, left, right, BLOCK_N: tl.constexpr):
    """Of the tiles j .. j_end of keys full .. masked, to all of which queries first .. last attend; the others need a mask."""
    full = j
    if left is not None:
        full = tl.minimum(tl.maximum(tl.cdiv(tl.maximum(last + diagonal - left, 0), BLOCK_N), j), j_end)
    seen = keys
    if right is not None:
        seen = tl.minimum(tl.maximum(first + diagonal + right + 1, 0), keys)
    return full, tl.minimum(tl.maximum(seen // BLOCK_N, full), j_end)


@triton.jit
def lse_rows(b, head, token, N_q, T, HEADS: tl.constexpr, RAGGED: tl.constexpr):
    """Where the lse of a query is: in (B, H_q, N_q), or RAGGED in (H_q, T)."""
    if RAGGED:
        row = head.to(tl.int64) * T
    else:
        row = (b.to(tl.int64) * HEADS + head.to(tl.int64)) * N_q
    return row + token


# One compilation for all of their values
UNSPECIALIZED = ["N_q", "T", "B", "max_keys", "left", "right"]


@triton.jit(do_not_specialize=[*UNSPECIALIZED, "pages", "stride_tb"])
def attention_paged_kernel(
    # pointers
    q_ptr, k_ptr, v_ptr, results, table_ptr, sequences,  # `Results`, `Sequences`
    # `Strides` of q and o (B, H_q, N_q, D), where queries are ragged with a B of stride 0, and of k and v (P, H_kv, PAGE, D);
    # strides of the table (B, most); the others are contiguous
    stride_q, stride_o, stride_k, stride_v, stride_tb, stride_tn,
    # sizes; how far a query attends; `PagedScores`
    N_q, T, B, max_keys, pages, left, right, scores,
    H_KV: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, MINIMUM: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr, SPLIT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(o, lse) for one partition of all work: of whole tiles of queries, and of at most two splits to be merged."""
    launch_dependents(SPLIT)  # attention_paged_merge_kernel
    program = tl.program_id(0)
    tiles, total, size = line_of_work(
        sequences, N_q, T, B, max_keys, left, right, tl.num_programs(0),
        H_KV, GROUP, MINIMUM, BLOCK_B, BLOCK_M, BLOCK_N, SPLIT,
    )  # fmt: skip
    at = program * size
    end = tl.minimum(at + size, total)
    offs_m = tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # (BLOCK_D,)
    b = at * 0
    kv_head = at * 0
    r = at * 0
    before = at * 0
    if at < end:
        b, kv_head, r, before = find(
            at, tiles, sequences, N_q, T, B, max_keys, left, right,
            H_KV, GROUP, BLOCK_B, BLOCK_M, BLOCK_N, SPLIT,
        )  # fmt: skip

    while at < end:
        first_query, queries, keys = sequence_of(b, sequences, N_q, T, B, max_keys)
        first, last, start, stop = keys_of(r, queries, keys, left, right, GROUP, BLOCK_M)
        whole = tiles_between(start, stop, BLOCK_N, SPLIT)
        distance = tl.minimum(whole - before, end - at)  # on the line; not SPLIT: the one that stands for all
        j = start // BLOCK_N + tl.maximum(before - QUERIES_COST, 0)  # the first QUERIES_COST are no tiles of keys
        j_end = start // BLOCK_N + tl.maximum(before + distance - QUERIES_COST, 0)
        if not SPLIT:
            j_end = tl.maximum(tl.cdiv(stop, BLOCK_N), j + 1)
        diagonal = keys - queries
        full, masked = seen_by_all(j, j_end, first, last, keys, diagonal, left, right, BLOCK_N)

        # Row i of the tile is query i // GROUP of head i % GROUP
        i = r * BLOCK_M + offs_m
        rows = i // GROUP
        head = kv_head * GROUP + i % GROUP
        m_mask = rows < queries
        token = (first_query + rows).to(tl.int64)
        mask = m_mask[:, None] & (offs_d < HEAD_DIM)[None, :]
        q_ptrs = q_ptr + b.to(tl.int64) * stride_q.b + head[:, None].to(tl.int64) * stride_q.h
        q_ptrs += token[:, None] * stride_q.n + offs_d[None, :] * stride_q.d
        q = tl.load(q_ptrs, mask=mask & (start < stop), other=0.0)  # no key, no read
        m_i = tl.full((BLOCK_M,), NOTHING, dtype=tl.float32)
        l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
        acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
        if scores.sinks_ptr is not None:  # a key of its own, whose value is 0: once, in the split with its first keys
            sink = tl.load(scores.sinks_ptr + head, mask=m_mask & (before == 0), other=NOTHING)
            m_i = sink
            l_i = tl.where(sink == NOTHING, 0.0, 1.0)

        table = table_ptr + b.to(tl.int64) * stride_tb
        k_head = k_ptr + kv_head.to(tl.int64) * stride_k.h
        v_head = v_ptr + kv_head.to(tl.int64) * stride_v.h
        edges = (
            j,
            full,
            masked,
            j_end,
        )  # the beginning of a window; keys that all attend to; the diagonal and the last keys
        for n in tl.static_range(0 if left is not None else 1, 3):
            for tile in range(edges[n], edges[n + 1]):
                m_i, l_i, acc = take_tile(
                    m_i, l_i, acc, q, tile, start, stop, rows, diagonal, left, right, table, k_head, v_head,
                    stride_k, stride_v, stride_tn, pages, scores, HEAD_DIM, PAGE, BLOCK_N, BLOCK_D, n != 1, PRECISION,
                )  # fmt: skip

        # A query that attends to no key writes o = 0 and lse = -inf: to a merge it weighs nothing
        l_i = tl.where(l_i == 0.0, 1.0, l_i)
        o = acc / l_i[:, None]
        lse = m_i + tl.log2(l_i) * LN_2
        if distance == whole:
            o_ptrs = results.o_ptr + b.to(tl.int64) * stride_o.b + head[:, None].to(tl.int64) * stride_o.h
            o_ptrs += token[:, None] * stride_o.n + offs_d[None, :] * stride_o.d
            tl.store(o_ptrs, o.to(results.o_ptr.dtype.element_ty), mask=mask)
            if results.lse_ptr is not None:
                rows_of_lse = lse_rows(b, head, token, N_q, T, H_KV * GROUP, sequences.starts_ptr is not None)
                tl.store(results.lse_ptr + rows_of_lse, lse, mask=m_mask)
        elif SPLIT:  # split 1 of a CTA has the first keys, split 0 has not
            split = (program * 2 + (before == 0).to(tl.int32)).to(tl.int64) * BLOCK_M + offs_m
            tl.store(results.o_splits_ptr + split[:, None] * HEAD_DIM + offs_d[None, :], o, mask=mask)
            tl.store(results.lse_splits_ptr + split, lse, mask=m_mask)

        # The next tile of queries: of this key head, of the next one, of the next sequence that has any
        at += distance
        before = at * 0
        r += 1
        if r * BLOCK_M >= queries * GROUP:
            r = at * 0
            kv_head += 1
            if kv_head == H_KV:
                kv_head = at * 0
                b += 1
                _, queries, _ = sequence_of(b, sequences, N_q, T, B, max_keys)
                while (queries == 0) & (b < B):
                    b += 1
                    _, queries, _ = sequence_of(b, sequences, N_q, T, B, max_keys)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def attention_paged_merge_kernel(
    # pointers
    results, sequences,
    stride_o,
    # sizes, and how far a query attends
    N_q, T, B, max_keys, left, right,
    H_KV: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, MINIMUM: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """BLOCK_R rows of a tile of queries whose keys were cut: lse = log(sum_s exp(lse_s)), o = sum_s exp(lse_s - lse) o_s.

    Program p looks at the cut before partition p + 1, and is done unless it is the first cut through its tile of queries.
    """
    program = tl.program_id(0) + 1  # splits of this one, of the one before, and perhaps of some after
    tiles, total, size = line_of_work(
        sequences, N_q, T, B, max_keys, left, right, tl.num_programs(0) + 1,
        H_KV, GROUP, MINIMUM, BLOCK_B, BLOCK_M, BLOCK_N, True,
    )  # fmt: skip
    at = program * size
    b = at * 0
    kv_head = at * 0
    r = at * 0
    before = at * 0
    if at < total:
        b, kv_head, r, before = find(
            at, tiles, sequences, N_q, T, B, max_keys, left, right,
            H_KV, GROUP, BLOCK_B, BLOCK_M, BLOCK_N, True,
        )  # fmt: skip
    first_query, queries, keys = sequence_of(b, sequences, N_q, T, B, max_keys)
    _, _, start, stop = keys_of(r, queries, keys, left, right, GROUP, BLOCK_M)
    wait_for_previous()  # the kernel before, which writes o_splits and lse_splits; lengths are older
    if (before > 0) & (before <= size):
        end = at - before + tiles_between(start, stop, BLOCK_N, True)  # where its tile of queries ends
        splits = tl.cdiv(end, size) - program + 1

        offs_r = tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)  # (BLOCK_R,) of BLOCK_M
        offs_s = tl.arange(0, BLOCK_S)  # (BLOCK_S,)
        offs_d = tl.arange(0, BLOCK_D)  # (BLOCK_D,)
        i = r * BLOCK_M + offs_r
        rows = i // GROUP
        r_mask = (rows < queries) & (offs_r < BLOCK_M)
        d_mask = offs_d < HEAD_DIM
        m = tl.full((BLOCK_R,), NOTHING, dtype=tl.float32)
        l = tl.zeros((BLOCK_R,), dtype=tl.float32)
        acc = tl.zeros((BLOCK_R, BLOCK_D), dtype=tl.float32)
        for start_s in range(0, splits, BLOCK_S):
            s = start_s + offs_s
            split = ((program - 1 + s) * 2 + (s == 0).to(tl.int32)).to(tl.int64)
            split = split[None, :] * BLOCK_M + offs_r[:, None]  # (BLOCK_R, BLOCK_S)
            mask = r_mask[:, None] & (s < splits)[None, :]
            m, l, acc = merge_splits(
                m, l, acc, results.o_splits_ptr, results.lse_splits_ptr, split, mask, HEAD_DIM, BLOCK_D, ""
            )

        l = tl.where(l == 0.0, 1.0, l)
        head = (kv_head * GROUP + i % GROUP).to(tl.int64)
        token = (first_query + rows).to(tl.int64)
        o_ptrs = results.o_ptr + b.to(tl.int64) * stride_o.b + head[:, None] * stride_o.h
        o_ptrs += token[:, None] * stride_o.n + offs_d[None, :].to(tl.int64) * stride_o.d
        tl.store(o_ptrs, (acc / l[:, None]).to(results.o_ptr.dtype.element_ty), mask=r_mask[:, None] & d_mask[None, :])
        if results.lse_ptr is not None:
            rows_of_lse = lse_rows(b, head, token, N_q, T, H_KV * GROUP, sequences.starts_ptr is not None)
            tl.store(results.lse_ptr + rows_of_lse, m + tl.log(l), mask=r_mask)


@overload
def flash_attention_paged(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, *,
    cu_seqlens_q: Tensor | None = ..., return_lse: Literal[False] = ..., **options: Unpack[Common],
) -> Tensor: ...  # fmt: skip
@overload
def flash_attention_paged(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, *,
    cu_seqlens_q: Tensor | None = ..., return_lse: Literal[True], **options: Unpack[Common],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def flash_attention_paged(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, *,
    cu_seqlens_q: Tensor | None = ..., return_lse: bool, **options: Unpack[Common],
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def flash_attention_paged(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor, *,
    cu_seqlens_q: Tensor | None = None, causal: bool = True, window: Window | None = None,
    softcap: float | None = None, sinks: Tensor | None = None, scale: float | None = None,
    return_lse: bool = False, check: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Attention, causal unless `causal=False`, of sequences whose keys and values are in pages of one pool, without a copy.

    q             (B, H_q, N_q, D), or (T, H_q, D) with cu_seqlens_q (B + 1,) int32: queries cu_seqlens_q[b] to
                  cu_seqlens_q[b + 1] are those of sequence b, 1 or more, or none
    pages         k_pages, v_pages (P, H_kv, page, D), any strides, a page of any power of two; D up to 256, on a GPU at least 2
    page_table    (B, most) int32: key t of sequence b is in page page_table[b, t // page], at t % page. Entries of pages
                  before the window of the first query may be anything, -1 for example; page 0 must then be finite
    lengths       (B,) int32: the keys of each sequence; its last query is at its last key
    check         read the numbers in table, lengths and cu_seqlens_q, for which the host waits; in the interpreter always.
                  Unchecked, numbers out of range are taken for the nearest that is right

    window, softcap, sinks and scale are as in `flash_attention`; causal is, too, but True here. Returns o, shaped as q, and
    with return_lse also lse, (B, H_q, N_q) or (H_q, T), natural logarithm, float32. A query that attends to no key gets o = 0
    and lse = -inf, or its sink. Nothing here waits for the GPU, and lengths and table may change between replays of a CUDA
    graph. No gradients: NotImplementedError. torch.compile breaks its graph here; with fullgraph=True that is its error.
    Extra memory: two (o, lse) of a tile of queries for each of a fixed number of CTAs, in float32.
    """
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.graph_break(msg="flash_attention_paged runs uncompiled: leave out fullgraph=True")
        return torch.compiler.disable(flash_attention_paged)(
            q, k_pages, v_pages, page_table, lengths, cu_seqlens_q=cu_seqlens_q, causal=causal, window=window,
            softcap=softcap, sinks=sinks, scale=scale, return_lse=return_lse, check=check,
        )  # fmt: skip
    sizes = check_paged(q, k_pages, v_pages, page_table, lengths, cu_seqlens_q)
    for value, name in ((causal, "causal"), (return_lse, "return_lse"), (check, "check")):
        check_bool(value, name)
    left, right = limits(window, causal, sizes.T if sizes.N_q is None else sizes.N_q, sizes.most_keys)
    check_head_dim(sizes.D)
    sinks = per_head(sinks, "sinks", sizes.H_q, q)
    _check_supported(q, k_pages, v_pages, sizes, sinks)
    if check or INTERPRETED:
        check_paged_numbers(sizes, page_table, lengths, cu_seqlens_q, left)
    if INTERPRETED and sizes.B:
        warn_if_slow_paged(sizes, lengths, cu_seqlens_q, left, PagedPlan.of(sizes, 4, q.device).launch[:2])
    lengths = lengths.contiguous()  # kernels know no strides of these three
    cu_seqlens_q = None if cu_seqlens_q is None else cu_seqlens_q.contiguous()
    sinks = None if sinks is None else sinks.contiguous().resolve_neg()
    scale, softcap = resolve_scale(scale, sizes.D), check_softcap(softcap)
    options = AttentionOptions(sizes.D, sizes.D, scale, left, right, softcap=softcap, sinks=sinks)
    with torch.cuda.device_of(q):  # kernels are launched on the current device
        given = PagedProblem(q, k_pages, v_pages, page_table, lengths, cu_seqlens_q, sizes, options)
        o, lse = paged(given, with_lse=return_lse)
    return (o, lse) if return_lse and lse is not None else o


def _check_supported(q: Tensor, k_pages: Tensor, v_pages: Tensor, sizes: PagedSizes, sinks: Tensor | None) -> None:
    """Reject what the kernels do not do."""
    check_device(q.device, "q")
    if q.dtype == torch.float64:
        raise TypeError("expected q in float16, bfloat16 or float32, got torch.float64: use flashlearn.paged_attention")
    if sizes.D == 1 and not INTERPRETED:  # Triton 3.7 compiles reads outside of shared memory
        raise ValueError("expected D of at least 2 on a GPU, got 1: flashlearn.paged_attention takes it")
    if sizes.B > MAX_SEQUENCES:
        raise ValueError(f"expected at most {MAX_SEQUENCES} sequences, got {sizes.B}")
    for name, t in (("q", q), ("k_pages", k_pages), ("v_pages", v_pages)):
        if t.is_neg():
            reject_negated(name)
    given = (q, k_pages, v_pages) if sinks is None else (q, k_pages, v_pages, sinks)
    if torch.is_grad_enabled() and any(t.requires_grad for t in given):
        raise NotImplementedError("flash_attention_paged has no backward pass: call it under torch.no_grad()")
    if dual(*given):
        raise NotImplementedError(
            "flash_attention_paged has no forward-mode derivative; use flashlearn.paged_attention"
        )


class PagedProblem(NamedTuple):
    """A problem after its checks; tensors as in `flash_attention_paged`."""

    q: Tensor
    k_pages: Tensor
    v_pages: Tensor
    page_table: Tensor
    lengths: Tensor
    cu_seqlens_q: Tensor | None
    sizes: PagedSizes
    options: AttentionOptions

    @property
    def window(self) -> tuple[int | None, int | None]:
        """left and right, so small that no sum of them and a length passes 2^31."""
        left, right = self.options.left, self.options.right
        return None if left is None else min(left, 2**30), None if right is None else min(right, 2**30)


class PagedPlan(NamedTuple):
    """How the work is cut, from shapes alone: never from numbers that only the GPU knows."""

    launch: PortableLaunch
    programs: int
    split: bool
    hopper: bool = False  # by the kernel of `flashlearn.fast.hopper.paged`

    @classmethod
    def of_hopper(cls, sizes: PagedSizes, device: torch.device) -> PagedPlan:
        """One CTA per SM, or less if there is less to do; short sequences are not cut."""
        rows, split = sizes.B * sizes.H_kv, sizes.most_keys > MIN_KEYS
        launch = PortableLaunch(hopper.ROWS.value, hopper.KEYS.value)
        longest = QUERIES_COST.value + -(-sizes.most_keys // launch.block_n)
        partitions = -(-rows * longest * launch.block_n // MIN_KEYS) if split else rows
        return cls(launch, min(sm_count(device), partitions), split, True)

    @classmethod
    def of(cls, sizes: PagedSizes, itemsize: int, device: torch.device) -> PagedPlan:
        """One tile of queries for each sequence if that can be; as many programs as fill the GPU, if any work is cut."""
        queries = -(-sizes.T // sizes.B) if sizes.N_q is None else sizes.N_q
        launch = paged_launch(max(queries, 1) * sizes.group, sizes.D, itemsize)
        tiles = tiles_of_queries(sizes, launch.block_m)
        if sizes.most_keys <= MIN_KEYS:
            return cls(launch, tiles * sizes.H_kv, False)
        minimum = max(MIN_KEYS // launch.block_n, 1)
        longest = QUERIES_COST.value + -(-sizes.most_keys // launch.block_n)  # a tile of queries can be
        partitions = -(-tiles * sizes.H_kv * longest // minimum)
        few = launch.block_m == 16 and itemsize == 2 and sizes.D <= 128
        if few and sizes.page > launch.block_n and shared_memory(device) >= 3 * SHARED:
            return cls(launch._replace(registers=REGISTERS), min(3 * sm_count(device), partitions), True)
        return cls(launch, min(2 * sm_count(device), partitions), True)


def tiles_of_queries(sizes: PagedSizes, block_m: int) -> int:
    """How many tiles of queries one key head of all sequences has, or more: where they are ragged, the host cannot know."""
    if sizes.N_q is not None:
        return sizes.B * -(-sizes.N_q * sizes.group // block_m)
    return min(sizes.B, sizes.T) + sizes.T * sizes.group // block_m


@cache
def paged_launch(rows: int, D: int, itemsize: int) -> PortableLaunch:
    """As for decoding where the queries that share a key head are one tile, otherwise as in the portable forward pass.

    Triton divides the stages of its pipeline among loads that wait for each other, here of a page's number and of the
    page. So it is given twice the number of stages.
    """
    if rows > max_rows(itemsize):
        chosen = FORWARD[itemsize, 64 if D <= 64 else 128 if D <= 128 else 256][0]  # larger tiles spill
    else:
        chosen = decode_launch(rows, D, itemsize)
    return chosen._replace(num_stages=2 * chosen.num_stages - 1)


def paged(given: PagedProblem, *, plan: PagedPlan | None = None, with_lse: bool = True) -> tuple[Tensor, Tensor | None]:
    """`flash_attention_paged` after its checks; None for an lse that nobody wants."""
    q, sizes = given.q, given.sizes
    if must_widen(q):
        wide = given._replace(q=q.float(), k_pages=given.k_pages.float(), v_pages=given.v_pages.float())
        o32, lse = paged(wide, plan=plan, with_lse=with_lse)
        return torch.empty_like(q).copy_(o32), lse
    o = torch.empty_like(q)
    shape = (sizes.H_q, sizes.T) if sizes.N_q is None else (sizes.B, sizes.H_q, sizes.N_q)
    lse = q.new_empty(shape, dtype=torch.float32) if with_lse else None
    if not sizes.T or not sizes.B:
        return o, lse
    if plan is None and not why_not_hopper_paged(given):
        plan = PagedPlan.of_hopper(sizes, q.device)
    plan = plan or PagedPlan.of(sizes, q.element_size(), q.device)
    results = Results(o, lse, None, None)
    if plan.split:
        rows = (plan.programs, 2, plan.launch.block_m)
        o_splits, lse_splits = (q.new_empty(shape, dtype=torch.float32) for shape in ((*rows, sizes.D), rows))
        results = Results(o, lse, o_splits, lse_splits)
    (_launch_hopper if plan.hopper else _launch_portable)(given, plan, results)
    if plan.split and plan.programs > 1:
        _launch_merge(given, plan, results)
    return o, lse


class Sequences(NamedTuple):
    """What the kernels read of all sequences: their lengths (B,), and where queries are ragged cu_seqlens_q (B + 1,)."""

    lengths_ptr: Tensor
    starts_ptr: Tensor | None


class Results(NamedTuple):
    """What the kernels write: o and lse, and the same of splits. None: an lse that nobody wants, no splits."""

    o_ptr: Tensor
    lse_ptr: Tensor | None
    o_splits_ptr: Tensor | None
    lse_splits_ptr: Tensor | None


class PagedScores(NamedTuple):
    """What becomes of a product q.k, as the kernel takes it, and the sinks."""

    scale: float
    softcap: float | None
    sinks_ptr: Tensor | None


def _launch_portable(given: PagedProblem, plan: PagedPlan, results: Results) -> None:
    q, k_pages, v_pages, page_table, lengths, cu_seqlens_q, sizes, options = given
    strides = (_strides(q), _strides(results.o_ptr), named(k_pages.stride()), named(v_pages.stride()))
    tensors = (q, k_pages, v_pages, *results, page_table, lengths, cu_seqlens_q, options.sinks)
    launch_kept(
        attention_paged_kernel, (plan.programs, 1, 1),
        (
            q, k_pages, v_pages, results, page_table, Sequences(lengths, cu_seqlens_q), *strides, *page_table.stride(),
            *_integers(sizes), sizes.pages, *given.window, PagedScores(options.scale, options.softcap, options.sinks),
        ),
        _constants(sizes, plan.launch, MIN_KEYS)
        | dict(PAGE=sizes.page, SPLIT=plan.split, PRECISION="tf32" if allow_tf32(q) else "ieee"),
        key=(q.dtype, q.device, strides, page_table.stride(1), options.softcap is None, plan.launch, *_compiled_in(tensors, options)),
        num_warps=plan.launch.num_warps, num_stages=plan.launch.num_stages, maxnreg=plan.launch.registers,
    )  # fmt: skip


def why_not_hopper_paged(given: PagedProblem) -> str:
    """Why the kernel for decoding on Hopper GPUs cannot run; "" if it can."""
    if why := why_not_these_pages(given.sizes, given.options, given.q.dtype):
        return why
    if why := "kernels run in the interpreter" if INTERPRETED else why_not_this_machine(given.q.device):
        return why
    for name, t in (("k_pages", given.k_pages), ("v_pages", given.v_pages)):
        if why := why_not_tma(t):
            return f"{name}: {why}"
    return ""


def why_not_these_pages(sizes: PagedSizes, options: AttentionOptions, dtype: torch.dtype) -> str:
    """The same of the sizes and options alone."""
    if dtype not in (torch.float16, torch.bfloat16):
        return f"{dtype} inputs: tensor cores take 16 bits"
    if sizes.N_q is None:
        return "ragged queries: a tile has those of one sequence"
    if sizes.N_q * sizes.group > hopper.ROWS.value:
        return f"{sizes.N_q * sizes.group} queries share a key head, and a tile has room for {hopper.ROWS.value}"
    if sizes.page < hopper.PIECE.value:
        return f"pages of {sizes.page} tokens, where TMA brings {hopper.PIECE.value} at a time"
    if sizes.D % 8:
        return f"D = {sizes.D}: a key has no whole 16 bytes"
    if options.right not in (None, 0):
        return "a window to the right"
    return "" if sizes.most_keys else "there are no pages"


def _launch_hopper(given: PagedProblem, plan: PagedPlan, results: Results) -> None:
    q, k_pages, v_pages, page_table, lengths, _, sizes, options = given
    tile = (1, 1, hopper.PIECE.value, hopper.COLUMNS.value)
    tensors = (q, *results, page_table, lengths, options.sinks)
    strides = (_strides(q), _strides(results.o_ptr))
    constants = _constants(sizes, plan.launch, MIN_KEYS)
    launch_kept(
        hopper.attention_paged_hopper_kernel, (plan.programs, 1, 1),
        (
            in_tiles(k_pages, tile), in_tiles(v_pages, tile), *tensors, *strides, *page_table.stride(),
            sizes.N_q, sizes.B, sizes.most_keys, sizes.pages, given.window[0], options.scale, options.softcap,
        ),
        {name: constants[name] for name in ("H_KV", "GROUP", "HEAD_DIM", "MINIMUM", "BLOCK_B")}
        | dict(PAGE=sizes.page, CAUSAL=options.right == 0, SPLIT=plan.split, STAGES=hopper.stages(sizes.D)),
        key=(q.dtype, q.device, strides, page_table.stride(1), options.softcap is None, *_compiled_in(tensors, options)),
        first=with_descriptors, num_warps=4,
    )  # fmt: skip


def _launch_merge(given: PagedProblem, plan: PagedPlan, results: Results) -> None:
    o, sizes, block_m = results.o_ptr, given.sizes, plan.launch.block_m
    queries = sizes.T if sizes.N_q is None else sizes.N_q
    rows = min(block_m, queries * sizes.group)  # those that any tile of queries has
    block_r = 1 if rows <= 8 else 8
    sequences = Sequences(given.lengths, given.cu_seqlens_q)
    launch_kept(
        attention_paged_merge_kernel, (plan.programs - 1, -(-rows // block_r), 1),
        (results, sequences, _strides(o), *_integers(sizes), *given.window),
        _constants(sizes, plan.launch, MIN_KEYS) | dict(BLOCK_R=block_r, BLOCK_S=8192 // (padded(sizes.D) * block_r)),
        key=(o.dtype, o.device, _strides(o), *_compiled_in((*results, *sequences), given.options)), dependent=dependent(o.device),
    )  # fmt: skip


@lru_cache(4096)
def _constants(sizes: PagedSizes, launch: PortableLaunch, min_keys: int) -> dict[str, int]:
    """What all of these kernels are compiled for, in the order of their parameters."""
    return dict(
        H_KV=sizes.H_kv, GROUP=sizes.group, HEAD_DIM=sizes.D, MINIMUM=max(min_keys // launch.block_n, 1),
        BLOCK_B=triton.next_power_of_2(sizes.B), BLOCK_M=launch.block_m, BLOCK_N=launch.block_n, BLOCK_D=padded(sizes.D),
    )  # fmt: skip


def _integers(sizes: PagedSizes) -> tuple[int, ...]:
    return sizes.N_q or 0, sizes.T, sizes.B, sizes.most_keys


def _compiled_in(tensors: tuple[Tensor | None, ...], options: AttentionOptions) -> tuple:
    """Further differences of kernels than dtype, device and strides: the given arguments, and their alignment."""
    aligned = (None if t is None else t.data_ptr() % 16 for t in tensors)
    return (*aligned, options.left is None, options.right is None)


def _strides(t: Tensor) -> Strides:
    """Those of (B, H, N, D); of (T, H, D) with a B of stride 0."""
    return named(t.stride()) if t.ndim == 4 else Strides(0, t.stride(1), t.stride(0), t.stride(2))
