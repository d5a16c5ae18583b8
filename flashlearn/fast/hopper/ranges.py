"""Which keys a query attends to, for the Hopper kernels: a range of keys for every query, and of queries for every key.

    sequence s has the queries own[s] <= i < own[s + 1] and the keys other[s] <= j < other[s + 1]; their ends are aligned
    query i of it is at key         p = i - own[s + 1] + other[s + 1]
    and attends to the keys         max(other[s], p - left) <= j < min(other[s + 1], p + right + 1)

That is `flashlearn.core.mask.Mask` with documents and a window. From one query to the next neither end of the range moves back. So a
block of queries attends to the keys from the start of its first query's range to the end of its last one's. A block of keys needs no
mask if it is between the start of the last query's range and the end of the first one's.

The kernel here computes both numbers for every query, and in the backward pass for every key, on the GPU. So the host
need not know the offsets, and does not wait. Wrong offsets give wrong results, but no kernel reads outside of its
tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.options import AttentionOptions
from flashlearn.fast.launcher import launch, uninitialised
from flashlearn.fast.portable.masks import about_seen, mean_seen

ROWS = 256  # queries, or keys, of one program


@triton.jit
def offset_of(offsets_ptr, sequence, N):
    """offsets[sequence]; without offsets, one sequence of N queries or keys."""
    if offsets_ptr is None:
        offset = tl.where(sequence > 0, N, 0)
    else:
        offset = tl.minimum(tl.maximum(tl.load(offsets_ptr + sequence), 0), N)
    return offset


@triton.jit(do_not_specialize=["sequences", "N_own", "N_other", "before", "after"])
def attention_ranges_kernel(
    # (sequences + 1,) int32 each, or None; (B,) int32 each, or None; (B or 1, 2, N_own) int32
    own_ptr, other_ptr, start_ptr, stop_ptr, ranges_ptr,
    sequences, N_own, N_other, before, after,
    OF_KEYS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The range of keys of each query; OF_KEYS: of queries of each key."""
    batch = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    low = tl.zeros((ROWS,), dtype=tl.int32)  # the last sequence that begins here or before
    high = low + sequences - 1
    left = sequences  # to search
    while left > 1:
        middle = (low + high + 1) // 2
        here = offset_of(own_ptr, middle, N_own) <= rows
        low = tl.where(here, middle, low)
        high = tl.where(here, high, tl.maximum(middle - 1, low))
        left = (left + 1) // 2
    at = rows - offset_of(own_ptr, low + 1, N_own) + offset_of(other_ptr, low + 1, N_other)
    begin, end = offset_of(other_ptr, low, N_other), offset_of(other_ptr, low + 1, N_other)
    first = tl.minimum(tl.maximum(at - before, begin), end)  # both within the sequence: neither moves back
    last = tl.minimum(tl.maximum(at + after + 1, begin), end)
    if start_ptr is not None:
        start = tl.maximum(tl.load(start_ptr + batch), 0)
        stop = tl.minimum(tl.load(stop_ptr + batch), N_own if OF_KEYS else N_other)
        if OF_KEYS:  # keys that do not exist get empty ranges whose ends move back nowhere
            there = (rows >= start) & (rows < stop)
            nowhere = tl.where(rows < start, 0, N_other)
            first = tl.where(there, first, nowhere)
            last = tl.where(there, last, nowhere)
        else:
            first = tl.maximum(first, start)
            last = tl.minimum(last, stop)
    first = tl.minimum(tl.maximum(first, 0), N_other)
    last = tl.minimum(tl.maximum(last, 0), N_other)
    ranges_ptr += batch.to(tl.int64) * 2 * N_own
    tl.store(ranges_ptr + rows, first, mask=rows < N_own)
    tl.store(ranges_ptr + N_own + rows, last, mask=rows < N_own)


class Ranges(NamedTuple):
    """What `attention_ranges` returns."""

    ends: Tensor  # (B or 1, 2, N): where each range starts and ends
    seen: int  # how many keys a query attends to, at most, as far as the host knows
    mean: float  # and in the mean


def attention_ranges(
    N_q: int, N_k: int, device: torch.device, *, left: int | None, right: int | None,
    offsets: tuple[Tensor, Tensor] | None = None, key_range: tuple[Tensor, Tensor] | None = None,
    of_keys: bool = False,
) -> Ranges:  # fmt: skip
    """(B or 1, 2, N_q) int32: starts and ends of the keys that each query attends to; B with a `key_range`, 1 without.

    left, right   the window, None for no limit; causal: right = 0
    offsets       of the sequences of queries and of keys, (sequences + 1,) int32 each
    key_range     (start, stop), each (B,) int32: the keys that exist
    of_keys       (B or 1, 2, N_k) instead: of the queries that attend to each key
    """
    sizes, limits, own = (N_q, N_k), (left, right), offsets or (None, None)
    if of_keys:
        sizes, limits, own = sizes[::-1], limits[::-1], own[::-1]
    before, after = (N_q + N_k if limit is None else min(limit, N_q + N_k) for limit in limits)
    start, stop = key_range or (None, None)
    batches = 1 if start is None else start.numel()
    ranges = uninitialised(device, (batches, 2, sizes[0]), torch.int32)
    sequences = 1 if own[0] is None else own[0].numel() - 1
    if ranges.numel():
        launch(
            attention_ranges_kernel, (-(-sizes[0] // ROWS), batches, 1),
            (*own, start, stop, ranges, sequences, *sizes, before, after),
            dict(OF_KEYS=of_keys, ROWS=ROWS),
            key=(device, *(None if t is None else t.data_ptr() % 16 for t in (*own, start, stop))),
        )  # fmt: skip
    return Ranges(ranges, about_seen(sizes[1], *limits, sequences), mean_seen(sizes[1], *limits, sequences))


def ranges_of(q: Tensor, k: Tensor, options: AttentionOptions, *, of_keys: bool) -> Ranges | None:
    """The ranges of these options; None of a mask that is causal or none."""
    if options.plain:
        return None
    return attention_ranges(
        q.shape[2], k.shape[2], q.device, left=options.left, right=options.right, offsets=options.sequences,
        key_range=options.key_range, of_keys=of_keys,
    )  # fmt: skip
