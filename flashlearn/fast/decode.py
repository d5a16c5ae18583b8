"""The forward pass for few queries, as in decoding: the keys are cut into splits, one CTA each, and merged.

1. A CTA takes *all* queries of a group of heads as its rows, so K and V are read once per key head.
2. It takes one split of the keys, and writes the (o, lse) of that split. One query over a long cache then makes as many
   CTAs as fill the GPU, where the teaching kernel has one per head.
3. The splits are merged: each lse is a score, each o a value of an online softmax. A second kernel does it, or, to save
   its launch, the CTA of a key head that finishes last; a counter in memory tells which.

The time is that of reading K and V once. From compute capability 9.0 on both kernels begin while the one before ends
(`flashlearn.fast.launcher`). Findings and figures: docs/engineering_log.md.
Source: T. Dao, D. Haziza, F. Massa, G. Sizov, "Flash-Decoding for long-context inference", 2023
(pytorch.org/blog/flash-decoding).
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.inputs import check_block, check_bool, check_qkv
from flashlearn.core.options import AttentionOptions, plain_options
from flashlearn.core.target import INTERPRETED, check_grid, check_head_dim, check_runnable, padded, resolve_scale
from flashlearn.fast.launcher import current_stream, dependent, launch, launch_dependents, sm_count, wait_for_previous
from flashlearn.fast.online_softmax import LN_2, NOTHING, merge_splits, online_softmax_update, scored, with_sink
from flashlearn.fast.portable.launches import PortableLaunch
from flashlearn.fast.portable.masks import (
    Scores,
    check_options,
    compiled_for,
    end_of_keys,
    is_visible,
    keys_seen,
    keys_seen_by_all,
    mask_arguments,
    named,
    start_of_keys,
)

KEYS_PER_SPLIT = 256  # at least, of many splits: a shorter one ends before its loads are well under way
SHORT_SPLITS, KEYS_PER_SHORT_SPLIT = 16, 64  # up to so many splits may be so short: few CTAs have the GPU to themselves
CTAS_PER_SM = 2  # one computes while the other waits for memory
MERGED_BY_ONE = 2**15  # elements of o, of all splits, that one CTA merges


@triton.jit(do_not_specialize=["N_q", "N_k", "group", "left", "right"])  # one compilation for all lengths
def attention_decode_kernel(
    # pointers
    q_ptr, k_ptr, v_ptr, o_splits_ptr, lse_splits_ptr, o_ptr, lse_ptr, finished_ptr,
    # `Strides` of q and o (B, H_q, N_q, D), of k and v (B, H_kv, N_k, D); contiguous are o_splits (B, H_q, N_q, splits,
    # D), lse_splits (B, H_q, N_q, splits), lse (B, H_q, N_q) and finished (B, H_kv)
    stride_q, stride_k, stride_v, stride_o,
    # sizes; what hides keys and changes scores: `Keys`, the window, `Scores`
    N_q, N_k, group, keys, left, right, scores, sinks_ptr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_S: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr, MERGE: tl.constexpr,
):  # fmt: skip
    """(o, lse) of one split of the keys, for all queries of one group of heads of one sequence.

    MERGE: and then, in the last program of the group, (o, lse) over all keys; finished is 0 before and after.
    """
    split = tl.program_id(0).to(tl.int64)
    splits = tl.num_programs(0)
    if splits > 1:  # attention_merge_kernel: another one would take room, on few SMs, and wait
        launch_dependents(not MERGE)
    wait_for_previous()  # whatever that is: it may have written q, or the last k and v
    kv_head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    k_ptr += batch * stride_k.b + kv_head * stride_k.h
    v_ptr += batch * stride_v.b + kv_head * stride_v.h

    offs_m = tl.arange(0, BLOCK_M)  # (BLOCK_M,): row r is query r % N_q of head r // N_q of the group
    offs_n = tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # (BLOCK_D,)
    head = kv_head * group + offs_m // N_q
    query = offs_m % N_q
    m_mask = offs_m < group * N_q
    d_mask = offs_d < HEAD_DIM
    q_mask = m_mask[:, None] & d_mask[None, :]

    diagonal = N_k - N_q
    if CAUSAL:
        right = 0
    end_key = end_of_keys(keys, batch, None, N_k)
    first_key = start_of_keys(keys, batch, None, end_key)
    slope = None
    if scores.alibi_ptr is not None:
        slope = tl.load(scores.alibi_ptr + head, mask=m_mask, other=0.0)[:, None]

    # This split: of the blocks that any query attends to, from split * blocks / splits on, as even as can be; none if there
    # are fewer blocks than splits. Blocks full .. full_end are attended to by every query: they need no mask.
    seen, seen_end = keys_seen(0, diagonal, first_key, end_key, left, None, N_q, BLOCK_N)
    full, full_end = keys_seen_by_all(0, seen_end, diagonal, first_key, end_key, left, right, N_q, BLOCK_N)
    blocks = tl.cdiv(seen_end - seen, BLOCK_N)
    start = seen + (split * blocks // splits * BLOCK_N).to(tl.int32)
    end = seen + ((split + 1) * blocks // splits * BLOCK_N).to(tl.int32)
    full = start if left is None and first_key is None else tl.minimum(tl.maximum(full, start), end)
    full_end = tl.minimum(tl.maximum(full_end, full), end)

    q_ptrs = q_ptr + batch * stride_q.b + head[:, None] * stride_q.h
    q_ptrs += query[:, None].to(tl.int64) * stride_q.n + offs_d[None, :] * stride_q.d
    q = tl.load(q_ptrs, mask=q_mask, other=0.0)  # (BLOCK_M, BLOCK_D)
    m_i = tl.full((BLOCK_M,), NOTHING, dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)

    for start_n in range(full, full_end, BLOCK_N):
        cols = (start_n + offs_n).to(tl.int64)
        k = tl.load(k_ptr + cols[None, :] * stride_k.n + offs_d[:, None] * stride_k.d,
                    mask=d_mask[:, None], other=0.0)  # (BLOCK_D, BLOCK_N)  # fmt: skip
        v = tl.load(v_ptr + cols[:, None] * stride_v.n + offs_d[None, :] * stride_v.d,
                    mask=d_mask[None, :], other=0.0)  # (BLOCK_N, BLOCK_D)  # fmt: skip
        s = tl.dot(q, k, input_precision=PRECISION)  # (BLOCK_M, BLOCK_N)
        s, _ = scored(s, query[:, None], (start_n + offs_n)[None, :], diagonal, scores.scale, scores.softcap, slope)
        m_i, l_i, acc = online_softmax_update(m_i, l_i, acc, s, v, PRECISION)

    # not attended to by all: before `full`, and from full_end on
    for at in range(full_end - (full - start), end, BLOCK_N):
        start_n = at
        if left is not None or first_key is not None:
            start_n = tl.where(at < full_end, at - (full_end - full), at)
        cols = (start_n + offs_n).to(tl.int64)
        n_mask = cols < end_key
        if first_key is not None:
            n_mask = n_mask & (cols >= first_key)
        k = tl.load(k_ptr + cols[None, :] * stride_k.n + offs_d[:, None] * stride_k.d,
                    mask=d_mask[:, None] & n_mask[None, :], other=0.0)  # fmt: skip
        v = tl.load(v_ptr + cols[:, None] * stride_v.n + offs_d[None, :] * stride_v.d,
                    mask=n_mask[:, None] & d_mask[None, :], other=0.0)  # fmt: skip
        s = tl.dot(q, k, input_precision=PRECISION)
        cols = start_n + offs_n
        s, _ = scored(s, query[:, None], cols[None, :], diagonal, scores.scale, scores.softcap, slope)
        visible = is_visible(query[:, None], cols[None, :], diagonal, first_key, end_key, left, right)
        m_i, l_i, acc = online_softmax_update(m_i, l_i, acc, tl.where(visible, s, NOTHING), v, PRECISION)

    if sinks_ptr is not None:  # once
        sink = tl.load(sinks_ptr + head, mask=m_mask, other=0.0)
        m_i, l_i, acc = with_sink(m_i, l_i, acc, tl.where(split == 0, sink, NOTHING))

    # A query that attends to no key of this split writes o = 0 and lse = -inf: to the merge it weighs nothing
    l_i = tl.where(l_i == 0.0, 1.0, l_i)
    rows = (batch * tl.num_programs(1) + kv_head) * group * N_q + offs_m  # of B * H_q * N_q
    parts = rows * splits + split
    o_ptrs = o_splits_ptr + parts[:, None] * HEAD_DIM + offs_d[None, :]
    tl.store(o_ptrs, (acc / l_i[:, None]).to(o_splits_ptr.dtype.element_ty), mask=q_mask)
    if lse_splits_ptr is not None:
        tl.store(lse_splits_ptr + parts, m_i + tl.log2(l_i) * LN_2, mask=m_mask)

    if MERGE:
        finished_ptr += batch * tl.num_programs(1) + kv_head
        tl.debug_barrier()  # all threads of this program have written: one of them may say so
        before = tl.atomic_add(finished_ptr, 1, sem="acq_rel")  # who reads splits - 1 sees what the others wrote
        if before == splits - 1:
            tl.store(finished_ptr, 0)  # for the next launch
            for start_r in range(0, group * N_q, BLOCK_R):
                merge(
                    o_splits_ptr, lse_splits_ptr, o_ptr, lse_ptr, stride_o,
                    batch, kv_head, start_r, N_q, group, splits, HEAD_DIM, BLOCK_R, BLOCK_S, BLOCK_D,
                )  # fmt: skip


@triton.jit(do_not_specialize=["N_q", "group", "splits"])
def attention_merge_kernel(
    # pointers
    o_splits_ptr, lse_splits_ptr, o_ptr, lse_ptr,
    # `Strides` of o (B, H_q, N_q, D); o_splits, lse_splits and lse are contiguous
    stride_o,
    N_q, group, splits,
    HEAD_DIM: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """(o, lse) over all keys from those of the splits, for one query of one head of one sequence."""
    wait_for_previous()  # attention_decode_kernel, which writes o_splits and lse_splits
    merge(
        o_splits_ptr, lse_splits_ptr, o_ptr, lse_ptr, stride_o,
        tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64), tl.program_id(0), N_q, group, splits,
        HEAD_DIM, 1, BLOCK_S, BLOCK_D,
    )  # fmt: skip


@triton.jit
def merge(
    o_splits_ptr, lse_splits_ptr, o_ptr, lse_ptr, stride_o,
    batch, kv_head, start_r, N_q, group, splits,
    HEAD_DIM: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """BLOCK_R rows of a group of heads: lse = log(sum_s exp(lse_s)), o = sum_s exp(lse_s - lse) o_s over its splits s.

    That is the softmax of the lse, a block at a time.
    """
    offs_r = start_r + tl.arange(0, BLOCK_R)  # (BLOCK_R,): row r is query r % N_q of head r // N_q of the group
    offs_s = tl.arange(0, BLOCK_S)  # (BLOCK_S,)
    offs_d = tl.arange(0, BLOCK_D)  # (BLOCK_D,)
    r_mask = offs_r < group * N_q
    d_mask = offs_d < HEAD_DIM
    rows = (batch * tl.num_programs(1) + kv_head) * group * N_q + offs_r  # of B * H_q * N_q
    m = tl.full((BLOCK_R,), NOTHING, dtype=tl.float32)
    l = tl.zeros((BLOCK_R,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_R, BLOCK_D), dtype=tl.float32)
    for start_s in range(0, splits, BLOCK_S):
        split = rows[:, None] * splits + start_s + offs_s[None, :]  # (BLOCK_R, BLOCK_S)
        mask = r_mask[:, None] & (start_s + offs_s < splits)[None, :]
        # .cg: from the L2 cache, where other SMs write; not from this one's own L1
        m, l, acc = merge_splits(m, l, acc, o_splits_ptr, lse_splits_ptr, split, mask, HEAD_DIM, BLOCK_D, ".cg")

    l = tl.where(l == 0.0, 1.0, l)
    head = kv_head * group + offs_r // N_q
    o_ptrs = o_ptr + batch * stride_o.b + head[:, None] * stride_o.h
    o_ptrs += (offs_r % N_q)[:, None].to(tl.int64) * stride_o.n + offs_d[None, :].to(tl.int64) * stride_o.d
    tl.store(o_ptrs, (acc / l[:, None]).to(o_ptr.dtype.element_ty), mask=r_mask[:, None] & d_mask[None, :])
    if lse_ptr is not None:
        tl.store(lse_ptr + rows, m + tl.log(l), mask=r_mask)


def attention_decode(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None,
    splits: int | None = None, one_launch: bool | None = None, allow_tf32: bool = False,
    options: AttentionOptions | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """O = softmax(Q K^T scale) V and lse, as `attention_forward` gives them, for few queries and many keys.

    q (B, H_q, N_q, D); k, v (B, H_kv, N_k, D), any strides, D up to 256. At most 64 queries share a key head,
    H_q / H_kv * N_q (float32: 32).
    splits: the number of pieces of a head's keys; enough to fill the GPU unless given.
    one_launch: whether the last program of a key head merges its splits, or a second kernel all of them. Unless given:
    in one launch on a GPU, if there is little to merge and no CUDA graph is being captured.
    options: these in place of `causal` and `scale`, all but documents and packed sequences.

    HBM: K and V (of a window its keys alone) once per key head, and Q once per split. (o, lse) of every split in
    float32 are written and read, O and lse once. A single split writes O and lse at once. Source: Dao et al. 2023.
    """
    check_runnable(q=q, k=k, v=v)
    size = check_qkv(q, k, v)
    check_head_dim(size.D)
    maximum = max_rows(q.element_size())
    if size.group * size.N_q > maximum:
        raise ValueError(f"expected H_q / H_kv * N_q of at most {maximum} in {q.dtype}, got {size.group} * {size.N_q}")
    if splits is not None:
        check_block(splits, "splits")
    if one_launch is not None:
        check_bool(one_launch, "one_launch")
    check_bool(causal, "causal")
    check_bool(allow_tf32, "allow_tf32")
    options = options or plain_options(size.D, resolve_scale(scale, size.D), causal)
    check_options(options, q)
    if options.offsets is not None:
        raise ValueError(
            "expected options without offsets, got some: documents need N_q = N_k, and decoding has fewer queries"
        )
    o, lse = decode(q, k, v, options, splits, one_launch, allow_tf32)
    assert lse is not None  # requested
    return o, lse


def decode(
    q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions, splits: int | None = None,
    one_launch: bool | None = None, allow_tf32: bool = False, with_lse: bool = True,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """`attention_decode` after its checks, and None for an lse that nobody wants: the host's part is to take little."""
    (B, H_q, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    group, device = H_q // H_kv, q.device
    splits, kind = cut(q, k, options.left, splits)
    o = torch.empty_like(q)
    lse = q.new_empty((B, H_q, N_q), dtype=torch.float32) if with_lse else None
    if not B * H_q * N_q:
        return o, lse
    finished = None
    parts: tuple[Tensor, Tensor | None]
    if splits == 1 and o.is_contiguous():  # nothing to merge
        one_launch, parts = False, (o, lse)
    else:
        one_launch, parts, finished = room_for_splits(q, H_kv, splits, one_launch)
    merged = (o, lse, finished) if one_launch else (None, None, None)
    strides = (named(q.stride()), named(k.stride()), named(v.stride()), named(o.stride()))
    aligned = (q.data_ptr() % 16, k.data_ptr() % 16, v.data_ptr() % 16)
    constants, compiled_with = decode_constants(
        group * N_q, D, q.dtype.itemsize, kind, options.causal, allow_tf32, one_launch
    )
    launch(
        attention_decode_kernel, check_grid((splits, H_kv, B)),
        (
            q, k, v, *parts, *merged, *strides, N_q, N_k, group, *mask_arguments(options),
            Scores(None, options.scale, options.softcap, options.alibi), options.sinks,
        ),
        constants, key=(q.dtype, parts[0].dtype, parts[1] is None, with_lse, device, strides, aligned, compiled_for(options)),
        dependent=dependent(device), **compiled_with,
    )  # fmt: skip
    if parts[0] is not o and not one_launch:
        block_s, num_warps = merge_launch(splits, D)
        launch(
            attention_merge_kernel, check_grid((group * N_q, H_kv, B)),
            (*parts, o, lse, strides[3], N_q, group, splits),
            dict(HEAD_DIM=D, BLOCK_S=block_s, BLOCK_D=padded(D)), key=(q.dtype, with_lse, device, strides[3]),
            dependent=dependent(device), num_warps=num_warps,
        )  # fmt: skip
    return o, lse


def room_for_splits(
    q: Tensor, H_kv: int, splits: int, one_launch: bool | None
) -> tuple[bool, tuple[Tensor, Tensor], Tensor | None]:
    """Whether one launch also merges; (o, lse) of all splits, float32; and the counters for one launch."""
    B, H_q, N_q, D = q.shape
    kept = not (INTERPRETED or torch.cuda.is_current_stream_capturing())
    if one_launch is None:
        one_launch = kept and H_q // H_kv * N_q * splits * D <= MERGED_BY_ONE
    if one_launch:
        rows = B * H_q * N_q * splits
        o_splits, lse_splits, finished = workspace(q.device, kept, rows * D, rows, B * H_kv)
        return True, (o_splits, lse_splits), finished
    o_splits = q.new_empty((B, H_q, N_q, splits, D), dtype=torch.float32)
    return False, (o_splits, q.new_empty((B, H_q, N_q, splits), dtype=torch.float32)), None


_workspaces: dict[tuple, tuple[Tensor, Tensor, Tensor]] = {}


def workspace(device: torch.device, kept: bool, of_o: int, of_lse: int, counters: int) -> tuple[Tensor, Tensor, Tensor]:
    """Room for o and for lse of all splits, float32, and for counters, int32, which are 0 between launches.

    Each has as many elements as said, or more. They are kept for the next call, since to allocate takes as long as to
    compute: one workspace for each stream, whose launches run one after the other. Not kept: for a CUDA graph, which
    may be replayed on any stream, and in the interpreter, where a program that was interrupted leaves its counters.
    """
    place = (device, current_stream(device)) if kept else ()
    found = _workspaces.get(place)
    if found is not None:
        o_splits, lse_splits, finished = found
        if o_splits.numel() >= of_o and lse_splits.numel() >= of_lse and finished.numel() >= counters:
            return found
        of_o, of_lse = max(of_o, o_splits.numel()), max(of_lse, lse_splits.numel())
        counters = max(counters, finished.numel())
    found = (
        torch.empty(of_o, dtype=torch.float32, device=device),
        torch.empty(of_lse, dtype=torch.float32, device=device),
        torch.zeros(counters, dtype=torch.int32, device=device),
    )
    if kept:
        _workspaces[place] = found
    return found


def max_rows(itemsize: int) -> int:
    """How many queries may share a key head: they are one block, and its S and O must stay in registers."""
    return 128 // itemsize


def cut(q: Tensor, k: Tensor, left: int | None, splits: int | None = None) -> tuple[int, str]:
    """Into how many splits the keys are cut that some query attends to, unless given, and their launch: `decode_launch`."""
    seen = k.shape[2] if left is None else min(k.shape[2], q.shape[2] + left)
    if splits is None:
        splits = decode_splits(q.shape[0] * k.shape[1], seen, sm_count(q.device))
    return splits, "short" if seen <= splits * KEYS_PER_SPLIT else ""


def decode_splits(programs: int, N_k: int, sms: int) -> int:
    """Into how many splits the N_k keys of each of `programs` key heads are cut, at least 1.

    Enough that all programs together fill the GPU, all at the same time; not so many that a split has fewer
    than KEYS_PER_SPLIT keys, or, if they are few, KEYS_PER_SHORT_SPLIT.
    """
    room = CTAS_PER_SM * sms // max(programs, 1)
    long_enough = max(N_k // KEYS_PER_SPLIT, min(SHORT_SPLITS, N_k // KEYS_PER_SHORT_SPLIT))
    return max(1, min(room, long_enough))


def decode_launch(rows: int, D: int, itemsize: int, kind: str = "") -> PortableLaunch:
    """One block of all rows; two tiles of K and two of V always under way, in the 99 KB of small GPUs.

    kind: "short" where a split has at most KEYS_PER_SPLIT keys: then blocks of at most 64, so that there are several to a split.
    """
    block_m = padded(rows)
    tile = 16384 if block_m == 16 else 8192  # bytes of a tile of K: less, where S and O take more registers
    block_n = min(max(tile // (padded(D) * itemsize), 16), 64 if kind == "short" else 128)
    return PortableLaunch(block_m, block_n, num_warps=4 if itemsize == 2 else 8, num_stages=3)


@cache
def merge_launch(splits: int, D: int) -> tuple[int, int]:
    """BLOCK_S of attention_merge_kernel, all splits if they are few, and the warps that merge them: 32 numbers a thread."""
    block_s = min(triton.next_power_of_2(splits), 8192 // padded(D))
    return block_s, min(max(block_s * padded(D) // 1024, 1), 4)


@cache
def decode_constants(
    rows: int, D: int, itemsize: int, kind: str, causal: bool, allow_tf32: bool, one_launch: bool
) -> tuple[dict, dict]:
    """What attention_decode_kernel is compiled for, and with. In one launch few turns merge all rows, from registers."""
    launch = decode_launch(rows, D, itemsize, kind)
    block_r = min(triton.next_power_of_2(rows), 16)
    constants = dict(
        HEAD_DIM=D, BLOCK_M=launch.block_m, BLOCK_N=launch.block_n, BLOCK_D=padded(D),
        BLOCK_R=block_r, BLOCK_S=max(16384 // (padded(D) * block_r), 1),
        CAUSAL=causal, PRECISION="tf32" if allow_tf32 else "ieee", MERGE=one_launch,
    )  # fmt: skip
    return constants, dict(num_warps=launch.num_warps, num_stages=launch.num_stages)
