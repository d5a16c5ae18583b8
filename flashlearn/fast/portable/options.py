"""How `AttentionOptions` reach the kernels: their arguments, and what kernels are compiled for."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from flashlearn.core.options import AttentionOptions
from flashlearn.core.scores import check_per_head
from flashlearn.fast.portable.masks import find_tiles


class Strides(NamedTuple):
    """Of a tensor (B, H, N, D), as a kernel takes them."""

    b: int
    h: int
    n: int
    d: int


@lru_cache(4096)  # asked for every tensor of every launch: a look-up takes a third of the time of a new tuple
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
