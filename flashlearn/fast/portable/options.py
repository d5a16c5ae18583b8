"""What beside `causal` and `scale` the portable kernels take, and how it reaches them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from flashlearn.core.scores import check_per_head
from flashlearn.fast.portable.masks import find_tiles


def about_seen(N_k: int, left: int | None, right: int | None, sequences: int) -> int:
    """How many of N_k keys a query sees, as far as the host knows: at most those of a window, and about those of a sequence.

    Where sequences begin and end stands on the GPU; the host knows how many there are.
    """
    window = N_k if left is None or right is None else left + right + 1
    return min(window, N_k // max(sequences, 1))


def mean_seen(N_k: int, left: int | None, right: int | None, sequences: int) -> float:
    """The same in the mean, if sequences are all as long: at the ends of each the window is cut off."""
    length = max(N_k // max(sequences, 1), 1)
    limits = [length - 1 if limit is None else min(limit, length - 1) for limit in (left, right)]
    return 1 + sum(limit - limit * (limit + 1) / (2 * length) for limit in limits)


class Options(NamedTuple):
    """Which keys exist and are seen, and what becomes of scores, as `flash_attention` takes it; None: nothing.

    left, right    the window; `right` is not looked at where attention is causal
    offsets        of the sequences that queries and keys are cut into, (sequences + 1,) int32 on their device: of
                   packed sequences both, of documents one and None
    key_range      (start, stop), each (B,) int32: the keys that exist
    softcap        scores become softcap tanh(score / softcap)
    alibi, sinks   (H_q,) float32, contiguous
    """

    left: int | None = None
    right: int | None = None
    offsets: tuple[Tensor, Tensor | None] | None = None
    key_range: tuple[Tensor, Tensor] | None = None
    softcap: float | None = None
    alibi: Tensor | None = None
    sinks: Tensor | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the options that are given, as the caller knows them."""
        window = "window" if self.left is not None or self.right else None
        offsets = self.offsets and ("documents" if self.offsets[1] is None else "packed sequences")
        others = [name for name in ("key_range", "softcap", "alibi", "sinks") if getattr(self, name) is not None]
        return tuple(name for name in (window, offsets, *others) if name)

    @property
    def scores(self) -> bool:
        """Whether a score is more than a scaled product."""
        return self.softcap is not None or self.alibi is not None

    @property
    def key(self) -> tuple:
        """What kernels are compiled for: which options are given, and how their tensors are aligned."""
        if self is PLAIN:
            return ()
        tensors = (*(self.key_range or (None, None)), self.alibi, self.sinks)
        aligned = tuple(None if t is None else t.data_ptr() % 16 for t in tensors)
        return (self.left is None, self.right is None, self.offsets is None, self.softcap is None, *aligned)

    @property
    def sequences(self) -> tuple[Tensor, Tensor] | None:
        """The offsets of queries and of keys, those of documents twice."""
        if self.offsets is None:
            return None
        queries_of, keys_of = self.offsets
        return queries_of, queries_of if keys_of is None else keys_of

    def about_seen(self, N_k: int) -> int:
        """`about_seen` of N_k keys, with these options."""
        return about_seen(N_k, self.left, self.right, 1 if self.offsets is None else self.offsets[0].numel() - 1)

    def check_heads(self, q: Tensor) -> None:
        """Reject slopes and sinks that are not one number for each head of q, which kernels would read past."""
        for name, t in (("alibi", self.alibi), ("sinks", self.sinks)):
            if t is not None:
                check_per_head(t, name, q.shape[1], q)

    def arguments(self, scale: float, N_own: int, N_other: int, block: int, keys: bool = False) -> tuple[int, tuple]:
        """How many tiles the rows of one side are cut into, and the kernel's arguments from tiles_ptr on.

        keys: that side is the keys.
        """
        if self.sequences is None:
            return -(-N_own // block), (None, *self.of_kernel(scale))
        queries_of, keys_of = self.sequences
        places = find_tiles(*((keys_of, queries_of) if keys else (queries_of, keys_of)), N_own, N_other, block)
        return len(places), (places, *self.of_kernel(scale))

    def of_kernel(self, scale: float) -> tuple:
        """The kernels' arguments from key_start_ptr on."""
        if self is PLAIN:
            return (None,) * 7
        return *self.masks_and_slopes(), scale if self.scores else None, self.softcap

    def masks_and_slopes(self) -> tuple:
        """The same without scale and softcap, for a kernel that takes these in any case."""
        start, stop = self.key_range or (None, None)
        return start, stop, self.alibi, self.left, self.right


PLAIN = Options()
