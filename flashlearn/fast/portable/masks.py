"""Which keys a query attends to, inside a kernel: what `Mask` answers in Python, for two kinds of block; and how options reach it.

    Mask.keys(rows)       keys_seen            and of these, keys_seen_by_all: the blocks that need no masking
    Mask.queries(cols)    queries_seeing       and of these, queries_seeing_all
    Mask.visible          is_visible

Whatever is None does not limit: `left` and `right`, at most so many keys before and after a query's own; `first_key`,
the first key that exists. It costs nothing either, since Triton compiles a kernel anew for a None. The position of
query i is that of key i + diagonal, diagonal = N_k - N_q.

Documents and packed sequences are cut apart instead of masked. A tile of a kernel's grid is a block of *one* sequence,
and everything in the kernel is about that sequence alone. Which block of which sequence a tile is, `find_tiles` has a
small kernel compute, so that the host need not know the offsets, and waits for nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.options import AttentionOptions
from flashlearn.core.scores import check_per_head
from flashlearn.fast.launcher import launch as launch_kept

PER_TILE = tl.constexpr(5)  # numbers kept of a tile


@triton.jit
def keys_seen(
    start_m, diagonal, first_key, end_key, left, right, BLOCK_M, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """(start, end): the keys that any query of a block attends to, from the first of a block of keys on."""
    start = 0
    end = end_key
    if right is not None:
        end = tl.minimum(tl.maximum(start_m + BLOCK_M + right + diagonal, 0), end_key)
    if left is not None or first_key is not None:
        if first_key is not None:
            start = first_key
        if left is not None:
            start = tl.maximum(start_m + diagonal - left, start)
        end = tl.where(start < end, end, 0)
        start = tl.where(start < end, start // BLOCK_N * BLOCK_N, 0)
    return start, end


@triton.jit
def keys_seen_by_all(
    start_m, end, diagonal, first_key, end_key, left, right, BLOCK_M, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """(full, full_end): every query of a block attends to the blocks of keys between these, whose keys end at `end`."""
    seen = end_key
    if right is not None:
        seen = tl.minimum(tl.maximum(start_m + 1 + right + diagonal, 0), end_key)
    full = 0
    full_end = seen // BLOCK_N * BLOCK_N
    if left is not None or first_key is not None:
        if first_key is not None:
            full = first_key
        if left is not None:
            full = tl.maximum(start_m + BLOCK_M - 1 + diagonal - left, full)
        full = tl.minimum(tl.cdiv(full, BLOCK_N), tl.cdiv(end, BLOCK_N)) * BLOCK_N
        full_end = tl.maximum(tl.minimum(full_end, end), full)
    return full, full_end


@triton.jit
def queries_seeing(
    start_n, N_q, diagonal, first_key, end_key, left, right, BLOCK_M, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """(first, stop): the queries that attend to any key of a block, from the first of a block of queries on."""
    first = N_q * 0
    stop = N_q
    begin = start_n
    if first_key is not None:
        begin = tl.maximum(start_n, first_key)
    if right is not None:
        first = tl.maximum(begin - right - diagonal, 0) // BLOCK_M * BLOCK_M
    if left is not None:
        stop = tl.minimum(tl.maximum(tl.minimum(start_n + BLOCK_N, end_key) + left - diagonal, 0), N_q)
    if first_key is not None:
        stop = tl.where(begin < tl.minimum(start_n + BLOCK_N, end_key), stop, 0)
    return first, stop


@triton.jit
def queries_seeing_all(
    start_n, first, stop, diagonal, left, right, BLOCK_M, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """(full, full_stop): blocks of queries between these attend to all keys of a block, `first` .. `stop` to some."""
    full = first
    full_stop = stop // BLOCK_M * BLOCK_M
    if right is not None:
        full = tl.cdiv(tl.maximum(start_n + BLOCK_N - 1 - right - diagonal, 0), BLOCK_M) * BLOCK_M
    if left is not None:
        full_stop = tl.minimum(full_stop, tl.maximum(start_n + left + 1 - diagonal, 0) // BLOCK_M * BLOCK_M)
    return full, full_stop


@triton.jit
def is_visible(rows, cols, diagonal, first_key, end_key, left, right):
    """Whether a query attends to a key: rows and cols are broadcast to a block of both."""
    visible = cols < end_key
    if first_key is not None:
        visible = visible & (cols >= first_key)
    if right is not None:
        visible = visible & (cols <= rows + (diagonal + right))
    if left is not None:
        visible = visible & (cols >= rows + (diagonal - left))
    return visible


@triton.jit
def end_of_keys(keys, batch, k_first, N_k):
    """Where the keys that exist end, of the N_k from k_first on (None: 0), whatever the tensor says."""
    end = N_k
    if keys.stop_ptr is not None:
        end = tl.minimum(tl.maximum(tl.load(keys.stop_ptr + batch) - (0 if k_first is None else k_first), 0), N_k)
    return end


@triton.jit
def start_of_keys(keys, batch, k_first, end):
    """Where they start; None: at the first."""
    start = None
    if keys.start_ptr is not None:
        start = tl.minimum(tl.maximum(tl.load(keys.start_ptr + batch) - (0 if k_first is None else k_first), 0), end)
    return start


@triton.jit
def tile_coordinates(tiles_ptr, tile):
    """Of a tile: its start in its sequence, then the first row and the length of that, and of the other side of it."""
    ptr = tiles_ptr + tile * PER_TILE
    return tl.load(ptr), tl.load(ptr + 1), tl.load(ptr + 2), tl.load(ptr + 3), tl.load(ptr + 4)


@triton.jit
def clamped(offsets_ptr, sequence, minimum, N):
    """An offset, or the nearest number in minimum .. N: bad offsets make wrong results and no stray access."""
    return tl.minimum(tl.maximum(tl.load(offsets_ptr + sequence), minimum), N)


@triton.jit(do_not_specialize=["sequences", "N_own", "N_other"])
def attention_tiles_kernel(own_ptr, other_ptr, tiles_ptr, sequences, N_own, N_other, BLOCK: tl.constexpr):
    """What `tile_coordinates` reads, for one tile.

    Sequence s, with the queries from own[s] on, has the tiles from own[s] // BLOCK + s on. That is room for all of its
    blocks, and an unused tile gets length 0.
    """
    tile = tl.program_id(0)
    low = tile * 0
    high = low + sequences - 1
    while low < high:  # the last sequence whose tiles begin here or before
        middle = (low + high + 1) // 2
        here = clamped(own_ptr, middle, 0, N_own) // BLOCK + middle <= tile
        low = tl.where(here, middle, low)
        high = tl.where(here, high, middle - 1)
    first = clamped(own_ptr, low, 0, N_own)
    length = clamped(own_ptr, low + 1, first, N_own) - first
    other = clamped(other_ptr, low, 0, N_other)
    start = tl.maximum(tile - first // BLOCK - low, 0) * BLOCK
    there = start < length
    ptr = tiles_ptr + tile * PER_TILE
    tl.store(ptr, tl.where(there, start, 0))
    tl.store(ptr + 1, first)
    tl.store(ptr + 2, tl.where(there, length, 0))
    tl.store(ptr + 3, other)
    tl.store(ptr + 4, tl.where(there, clamped(other_ptr, low + 1, other, N_other) - other, 0))


def find_tiles(own: Tensor, other: Tensor, N_own: int, N_other: int, block: int) -> Tensor:
    """(tiles, 5) int32, what `tile_coordinates` reads: the sequences' rows own[s] .. own[s + 1] cut into blocks, never across.

    N_own // block + sequences tiles: few more than blocks. HBM: a logarithm of the offsets and 20 bytes a tile.
    """
    sequences = own.numel() - 1
    count = N_own // block + sequences
    tiles = torch.empty((count, PER_TILE.value), dtype=torch.int32, device=own.device)
    launch_kept(
        attention_tiles_kernel, (count, 1, 1), (own, other, tiles, sequences, N_own, N_other), dict(BLOCK=block),
        key=(own.device, own.data_ptr() % 16, other.data_ptr() % 16), num_warps=1,
    )  # fmt: skip
    return tiles


# How `AttentionOptions` reach the kernels --------------------------------------------------------------------


class Strides(NamedTuple):
    """Of a tensor (B, H, N, D), as a kernel takes them."""

    b: int
    h: int
    n: int
    d: int


@lru_cache(4096)  # for every tensor of every launch: a look-up takes a third of the time of a new tuple
def named(strides: tuple[int, int, int, int]) -> Strides:
    return Strides(*strides)


class Keys(NamedTuple):
    """Which keys exist, as a kernel takes it: the tiles of packed sequences, the range of each sequence of the batch.

    Lengths and windows are arguments of their own: Triton compiles anew for a number in a tuple that is 1, or a multiple of 16.
    """

    tiles_ptr: Tensor | None
    start_ptr: Tensor | None
    stop_ptr: Tensor | None


ALL_KEYS = Keys(None, None, None)


class Scores(NamedTuple):
    """What becomes of a product q.k, as a kernel takes it.

    qk_scale               the factor in the exponent: |scale| log2(e); log2(e) alone where scores are more than scaled products
    scale, softcap, alibi_ptr    as in `scored`; None where scores are scaled products
    gradient               the factor on dQ and dK, for the backward pass
    """

    qk_scale: float | None
    scale: float | None
    softcap: float | None
    alibi_ptr: Tensor | None
    gradient: float | None = None


def about_seen(N_k: int, left: int | None, right: int | None, sequences: int) -> int:
    """How many of N_k keys a query attends to, as far as the host knows: those of a window, and about those of a sequence.

    Where sequences begin and end is known on the GPU; the host knows how many there are.
    """
    window = N_k if left is None or right is None else left + right + 1
    return min(window, N_k // max(sequences, 1))


def mean_seen(N_k: int, left: int | None, right: int | None, sequences: int) -> float:
    """The same in the mean, if sequences are all as long: at the ends of each the window is cut off."""
    length = max(N_k // max(sequences, 1), 1)
    limits = [length - 1 if limit is None else min(limit, length - 1) for limit in (left, right)]
    return 1 + sum(limit - limit * (limit + 1) / (2 * length) for limit in limits)


def check_options(options: AttentionOptions, q: Tensor) -> None:
    """Reject options of other widths, and slopes and sinks that are not one number for each head of q: kernels read past."""
    if options.D != q.shape[-1]:
        raise ValueError(f"expected options for D = {q.shape[-1]}, got them for D = {options.D}")
    for name, t in (("alibi", options.alibi), ("sinks", options.sinks)):
        if t is not None:
            check_per_head(t, name, q.shape[1], q)


def compiled_for(options: AttentionOptions) -> tuple:
    """What kernels differ in: which options are given, and how their tensors are aligned."""
    if options.plain:
        return ()
    tensors = (*(options.key_range or (None, None)), options.alibi, options.sinks)
    aligned = tuple(None if t is None else t.data_ptr() % 16 for t in tensors)
    return (options.left is None, options.right is None, options.offsets is None, options.softcap is None, *aligned)


def tiles_of(
    options: AttentionOptions, N_own: int, N_other: int, block: int, keys: bool = False
) -> tuple[int, Tensor | None]:
    """How many tiles the rows of one side are cut into, and of packed sequences where each tile is. keys: of the keys."""
    if options.sequences is None:
        return -(-N_own // block), None
    queries_of, keys_of = options.sequences
    tiles = find_tiles(*((keys_of, queries_of) if keys else (queries_of, keys_of)), N_own, N_other, block)
    return len(tiles), tiles


def mask_arguments(options: AttentionOptions, tiles: Tensor | None = None) -> tuple[Keys, int | None, int | None]:
    """(keys, left, right) as the kernels take them. Of causal attention they know the right end."""
    start, stop = options.key_range or (None, None)
    keys = ALL_KEYS if tiles is start is None else Keys(tiles, start, stop)
    return keys, options.left, options.right or None
