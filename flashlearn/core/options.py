"""The options of attention: one record for the algorithms, their costs and the kernels."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypedDict, Unpack

from torch import Tensor

from flashlearn.core.inputs import Sizes, check_bool, resolve_scale
from flashlearn.core.mask import KeyRange, Mask, Window, check_documents, check_key_range, check_one_length, limits
from flashlearn.core.scores import Scores, check_softcap, per_head


class _Shared(TypedDict, total=False):
    documents: Tensor | None
    key_range: KeyRange | None
    softcap: float | None


class More(_Shared, total=False):
    """Options of every algorithm and its gradients other than `causal`, `window` and `scale`, all None unless given.

    documents   offsets (n + 1,) int32, 0 .. N, of texts packed into one sequence: tokens attend to their own text; N_q = N_k
    key_range   (start, stop), each (B,) int32: the keys that exist in each sequence of a batch, padded on either side
    softcap     c: scores become c tanh(score / c)
    alibi       (H_q,) float32: score - alibi |i + N_k - N_q - j|
    sinks       (H_q,) float32: one more term e^sink in the sum of every row, with a value of 0. To merge results over
                parts of the keys by (o, lse), give the sinks to one part alone, as each part counts them

    `alibi` and `sinks` in 16 bits are converted to float32, the dtype of their gradients. A score is scaled, capped,
    lowered with distance and masked, in this order; then comes the sink. See `flashlearn.core.mask` and
    `flashlearn.core.scores`.
    """

    alibi: Tensor | None
    sinks: Tensor | None


class Fixed(_Shared, total=False):
    """The options that have no gradient: `causal` is False, `window` None and `scale` 1 / sqrt(D) unless given."""

    causal: bool
    window: Window | None
    scale: float | None


class AttentionKwargs(Fixed, More, total=False):
    """All options of attention, as a caller gives them: `AttentionOptions` is made of them."""


class AttentionOptions(NamedTuple):
    """The keys that a query attends to, changes of its scores, and the widths of the matrices.

    D, D_v         columns of q and k, and of v and o
    scale          the factor on q.k
    left, right    at most so many keys before and after a query's own; a right of 0 is causal
    offsets        (of queries, of keys), (sequences + 1,) int32 each, of sequences that are packed into one; of documents,
                   whose queries and keys are the same tokens, (offsets, None)
    key_range      (start, stop), each (B,) int32: the keys that exist in each sequence of the batch
    softcap, alibi, sinks      as in `flashlearn.core.scores`; alibi and sinks (H_q,) in float32

    None: nothing is hidden or changed. The numbers in tensors are not read before `mask` is called: on a GPU, reading waits.

    >>> AttentionOptions.of(Sizes(1, 2, 2, 4, 6, 16), causal=True).mask(Sizes(1, 2, 2, 4, 6, 16)).keys((0, 2))
    (0, 4)
    """

    D: int
    D_v: int
    scale: float
    left: int | None = None
    right: int | None = None
    offsets: tuple[Tensor, Tensor | None] | None = None
    key_range: KeyRange | None = None
    softcap: float | None = None
    alibi: Tensor | None = None
    sinks: Tensor | None = None

    @classmethod
    def of(cls, sizes: Sizes, q: Tensor | None = None, **asked: Unpack[AttentionKwargs]) -> AttentionOptions:
        """The options of a caller. TypeError, ValueError if an option is not what it should be, tensors' numbers aside.

        alibi and sinks are compared with q in dtype and device.
        """
        causal, documents, key_range = asked.get("causal", False), asked.get("documents"), asked.get("key_range")
        check_bool(causal, "causal")
        left, right = limits(asked.get("window"), causal, sizes.N_q, sizes.N_k)
        if documents is not None:
            check_one_length(sizes.N_q, sizes.N_k)
            check_documents(documents, sizes.N_q, check=False)
        if key_range is not None:
            check_key_range(key_range, sizes.B, sizes.N_k, check=False)
        alibi, sinks = asked.get("alibi"), asked.get("sinks")
        if q is not None:
            alibi, sinks = per_head(alibi, "alibi", sizes.H_q, q), per_head(sinks, "sinks", sizes.H_q, q)
        scale, softcap = resolve_scale(asked.get("scale"), sizes.D), check_softcap(asked.get("softcap"))
        offsets = None if documents is None else (documents, None)
        return cls(sizes.D, sizes.D, scale, left, right, offsets, key_range, softcap, alibi, sinks)

    @property
    def causal(self) -> bool:
        return bool(self.right == 0)  # of NumPy, too

    @property
    def plain(self) -> bool:
        """Whether scores are scaled products, and nothing but `causal` hides any."""
        return (
            self.left is None and not self.right and self.offsets is None and self.key_range is None
            and self.softcap is None and self.alibi is None and self.sinks is None
        )  # fmt: skip

    @property
    def changes_scores(self) -> bool:
        """Whether a score differs from the scaled product."""
        return self.softcap is not None or self.alibi is not None

    @property
    def scores(self) -> Scores:
        return Scores(self.scale, self.softcap)

    @property
    def sequences(self) -> tuple[Tensor, Tensor] | None:
        """The offsets of queries and of keys, those of documents twice."""
        if self.offsets is None:
            return None
        queries_of, keys_of = self.offsets
        return queries_of, queries_of if keys_of is None else keys_of

    def mask(self, sizes: Sizes) -> Mask:
        """The mask, for which numbers are read, from any device. ValueError if they are no such offsets and ranges."""
        documents = None if self.offsets is None else self.offsets[0]
        return Mask.of(sizes, self.causal, (self.left, self.right), documents, self.key_range)


def check_tensors(options: AttentionOptions, q: Tensor, k: Tensor, *, read: bool = False) -> None:
    """Reject offsets and ranges that do not belong to q (B, H_q, N_q, D) and k (B, H_kv, N_k, D), or are on another device.

    Their numbers are checked on request, which waits for a GPU.
    """
    if options.offsets is not None:
        queries_of, keys_of = options.offsets
        given = [(queries_of, q.shape[2], "documents" if keys_of is None else "cu_seqlens_q")]
        for offsets, N, name in given if keys_of is None else (*given, (keys_of, k.shape[2], "cu_seqlens_k")):
            check_documents(offsets, N, check=read, name=name)
            _check_device_of(q, offsets, name)
            if len(offsets) == 1 and N:
                raise ValueError(f"expected {name} to end at N = {N}, got no sequence")
    if options.key_range is not None:
        check_key_range(options.key_range, q.shape[0], k.shape[2], check=read)
        for side, ends in zip(("start", "stop"), options.key_range, strict=True):
            _check_device_of(q, ends, f"the {side} of key_range")


def _check_device_of(q: Tensor, t: Tensor, name: str) -> None:
    if t.device != q.device:
        raise ValueError(f"expected {name} on the device of q, {q.device}, got {t.device}")


@lru_cache(4096)  # used at every call of a kernel
def plain_options(D: int, scale: float, causal: bool) -> AttentionOptions:
    """Attention without options, or with a causal mask."""
    return AttentionOptions(D, D, scale, right=0 if causal else None)
