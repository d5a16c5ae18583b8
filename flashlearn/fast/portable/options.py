"""How `AttentionOptions` reach the kernels: their arguments, and what kernels are compiled for."""

from __future__ import annotations

from torch import Tensor

from flashlearn.core.options import AttentionOptions
from flashlearn.core.scores import check_per_head
from flashlearn.fast.portable.masks import find_tiles


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


def arguments(options: AttentionOptions, N_own: int, N_other: int, block: int, keys: bool = False) -> tuple[int, tuple]:
    """How many tiles the rows of one side are cut into, and the kernel's arguments from tiles_ptr on.

    keys: that side is the keys.
    """
    scale = options.scale if options.changes_scores else None
    rest = (*masks_and_slopes(options), scale, options.softcap)
    if options.sequences is None:
        return -(-N_own // block), (None, *rest)
    queries_of, keys_of = options.sequences
    places = find_tiles(*((keys_of, queries_of) if keys else (queries_of, keys_of)), N_own, N_other, block)
    return len(places), (places, *rest)


def masks_and_slopes(options: AttentionOptions) -> tuple:
    """The kernels' arguments from key_start_ptr to right. Of causal attention they know the right end."""
    start, stop = options.key_range or (None, None)
    return start, stop, options.alibi, options.left, None if options.causal else options.right
