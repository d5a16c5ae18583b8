"""Keys and values in pages: one pool for all sequences, and for each a list of the pages that hold its tokens.

    pool = PagePool(pages=8, page=16, H_kv=2, D=64)
    a = pool.allocate()                 a sequence without tokens
    slots = pool.append(a, 20)          room for 20 tokens: two pages
    pool.write(0, slots, k, v)          their keys and values, (H_kv, 20, D), of layer 0
    b = pool.fork(a, 18)                the first 18 tokens of a, in the same pages
    pool.free(a)                        pages that nobody else holds are free again

Token t of a sequence is in its page number t // page, at offset t % page. A sequence takes as many pages as its tokens
fill, and wastes less than one. A cache of one size would take the longest possible sequence for every request.

The pool counts how many sequences hold each page. Before a sequence writes into a page that others hold as well, it gets
a copy of it (copy-on-write). So a shared prefix costs its pages once, and no sequence changes another's keys.

Source: W. Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023
(arXiv:2309.06180).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from flashlearn.core.inputs import check_block, check_count, check_float


class OutOfPages(RuntimeError):
    """The pool has fewer free pages than were requested; nothing was changed."""


@dataclass(eq=False)
class PagedSequence:
    """The tokens of one sequence: how many, and which pages of the pool hold them, in order."""

    pages: list[int] = field(default_factory=list)
    length: int = 0


class Slots(NamedTuple):
    """Where n tokens are: the page of each, (n,), and its offset in that page, (n,)."""

    pages: Tensor
    offsets: Tensor


class Ragged(NamedTuple):
    """Sequences of different lengths as one batch, as `flash_attention_paged` takes them.

    page_table     (B, most) int32, the pages of each sequence, filled up with 0
    lengths        (B,) int32, the keys of each sequence, the new tokens among them
    cu_seqlens_q   (B + 1,) int32, where the new tokens of each sequence begin among all T new ones
    positions      (T,), the position of each new token in its sequence
    slots          where the keys and values of the new tokens go
    """

    page_table: Tensor
    lengths: Tensor
    cu_seqlens_q: Tensor
    positions: Tensor
    slots: Slots


class PagePool:
    """Room for the keys and values of `layers` layers, k and v (layers, P, H_kv, page, D), and who holds which page.

    A page number means the same page in every layer.
    """

    def __init__(self, pages: int, page: int, H_kv: int, D: int, *, layers: int = 1, **options):
        """`options` are those of torch.zeros: device, dtype (floating point). ValueError for sizes below 1."""
        for size, name in ((pages, "pages"), (page, "page"), (H_kv, "H_kv"), (D, "D"), (layers, "layers")):
            check_block(size, name)
        if options.get("requires_grad"):
            raise ValueError("expected pages without gradients, since they are written to, got requires_grad=True")
        self.page = page
        self.k, self.v = (torch.zeros(layers, pages, H_kv, page, D, **options) for _ in "kv")
        check_float(self.k, "the pages")
        self.holders = [0] * pages  # the number of sequences that hold each page
        self._free = list(reversed(range(pages)))  # a stack: page 0 goes first
        self._live: set[PagedSequence] = set()

    @property
    def pages(self) -> int:
        """The number of pages."""
        return len(self.holders)

    @property
    def free_pages(self) -> int:
        """The number of pages that no sequence holds."""
        return len(self._free)

    def allocate(self) -> PagedSequence:
        """A sequence without tokens, which holds no page yet."""
        sequence = PagedSequence()
        self._live.add(sequence)
        return sequence

    def pages_needed(self, sequence: PagedSequence, n: int) -> int:
        """How many free pages `append(sequence, n)` takes: new ones, and the copy of a last page that others hold too."""
        more = -(-(sequence.length + n) // self.page) - len(sequence.pages)
        return more + bool(n and self._shared_end(sequence))

    def append(self, sequence: PagedSequence, n: int) -> Slots:
        """Room for n more tokens, and where they go. OutOfPages, and nothing changes, if the pool has no such room."""
        self.reserve(sequence, n)
        return self.slots(sequence, sequence.length - n, sequence.length)

    def reserve(self, sequence: PagedSequence, n: int) -> None:
        """Make room for n more tokens; `ragged` gives the slots of all sequences."""
        self._check_live(sequence)
        check_count(n, "n")
        wanted = self.pages_needed(sequence, n)
        if wanted > self.free_pages:
            raise OutOfPages(f"expected at most {self.free_pages} more pages, as many as are free, got {wanted}")
        if n and self._shared_end(sequence):
            self._copy_last_page(sequence)
            wanted -= 1
        sequence.pages += [self._take() for _ in range(wanted)]
        sequence.length += n

    def truncate(self, sequence: PagedSequence, length: int) -> None:
        """Keep the first `length` tokens of a sequence; pages that are left without any are released."""
        self._check_live(sequence)
        self._check_length(length, sequence)
        kept = -(-length // self.page)
        for number in reversed(sequence.pages[kept:]):
            self._release(number)
        sequence.pages, sequence.length = sequence.pages[:kept], length

    def write(self, layer: int, slots: Slots, k: Tensor, v: Tensor) -> None:
        """Put the keys and values of n tokens, k and v (H_kv, n, D), where `append` made room for them.

        They are stored in the dtype of the pool, without gradients. ValueError for another shape or device, or for a layer
        that does not exist.
        """
        self._check_layer(layer)
        self._check_new(slots, k=k, v=v)
        for pages, new in ((self.k[layer], k), (self.v[layer], v)):
            pages[slots.pages, :, slots.offsets] = new.detach().transpose(0, 1).to(pages.dtype)

    def fork(self, sequence: PagedSequence, length: int | None = None) -> PagedSequence:
        """A new sequence with the first `length` tokens of another, all of them unless given, in the same pages."""
        self._check_live(sequence)
        length = sequence.length if length is None else length
        self._check_length(length, sequence)
        child = self.allocate()
        child.pages, child.length = sequence.pages[: -(-length // self.page)], length
        for number in child.pages:
            self.holders[number] += 1
        return child

    def free(self, sequence: PagedSequence) -> None:
        """Release the pages of a sequence; those that no other sequence holds are free. The sequence cannot be used again."""
        self._check_live(sequence)
        self._live.remove(sequence)
        for number in reversed(sequence.pages):
            self._release(number)
        sequence.pages, sequence.length = [], 0

    def slots(self, sequence: PagedSequence, start: int, stop: int) -> Slots:
        """Where tokens start .. stop of a sequence are. ValueError if it has no such tokens."""
        self._check_live(sequence)
        check_count(start, "start")
        check_count(stop, "stop")
        if not start <= stop <= sequence.length:
            length = f"{sequence.length}, the length of the sequence"
            raise ValueError(f"expected start <= stop <= {length}, got start {start} and stop {stop}")
        return self._slots([(sequence, t) for t in range(start, stop)])

    def _slots(self, tokens: Sequence[tuple[PagedSequence, int]]) -> Slots:
        """Where these tokens of these sequences are. From lists: a tensor for each sequence would take longer."""
        pages, offsets = [s.pages[t // self.page] for s, t in tokens], [t % self.page for _, t in tokens]
        return Slots(*torch.tensor([pages, offsets], dtype=torch.int64, device=self.k.device))

    def gather(self, layer: int, sequence: PagedSequence) -> tuple[Tensor, Tensor]:
        """The keys and values of a sequence in one piece, a copy, (H_kv, length, D) each: for tests and lessons."""
        self._check_layer(layer)
        pages, offsets = self.slots(sequence, 0, sequence.length)
        k, v = (t[layer][pages, :, offsets].transpose(0, 1) for t in (self.k, self.v))
        return k, v

    def ragged(self, sequences: Sequence[PagedSequence], counts: Sequence[int]) -> Ragged:
        """The batch in which sequence b has just got its last counts[b] tokens. ValueError if it does not have as many."""
        self._check_counts(sequences, counts)
        most = max((len(s.pages) for s in sequences), default=0)
        table = [s.pages + [0] * (most - len(s.pages)) for s in sequences]
        new = [(s, t) for s, n in zip(sequences, counts, strict=True) for t in range(s.length - n, s.length)]
        int32 = partial(torch.tensor, dtype=torch.int32, device=self.k.device)
        return Ragged(
            int32(table).reshape(len(sequences), most),
            int32([s.length for s in sequences]),
            int32([0, *accumulate(counts)]),
            torch.tensor([t for _, t in new], dtype=torch.int64, device=self.k.device),
            self._slots(new),
        )

    def _shared_end(self, sequence: PagedSequence) -> bool:
        """Whether the next token goes into a page that others hold as well."""
        return bool(sequence.length % self.page) and self.holders[sequence.pages[-1]] > 1

    def _copy_last_page(self, sequence: PagedSequence) -> None:
        """Copy-on-write: the sequence gets a copy of its last page, which no other sequence holds."""
        old, new = sequence.pages[-1], self._take()
        for pages in (self.k, self.v):
            pages[:, new] = pages[:, old]
        sequence.pages[-1] = new
        self._release(old)

    def _take(self) -> int:
        number = self._free.pop()
        self.holders[number] = 1
        return number

    def _release(self, number: int) -> None:
        self.holders[number] -= 1
        if not self.holders[number]:
            self._free.append(number)

    def _check_length(self, length: int, sequence: PagedSequence) -> None:
        check_count(length, "length")
        if length > sequence.length:
            raise ValueError(f"expected a length of at most {sequence.length}, that of the sequence, got {length}")

    def _check_layer(self, layer: int) -> None:
        check_count(layer, "layer")
        if layer >= len(self.k):
            raise ValueError(f"expected layer from 0 to {len(self.k) - 1}, got {layer}")

    def _check_new(self, slots: Slots, **new: Tensor) -> None:
        if not isinstance(slots, Slots):
            raise TypeError(f"expected the Slots that append returns, got {type(slots).__name__}")
        shape = (self.k.shape[2], len(slots.pages), self.k.shape[4])
        for name, t in new.items():
            check_float(t, name)
            if t.shape != shape:
                raise ValueError(f"expected {name} of shape (H_kv, n, D) = {shape}, got {tuple(t.shape)}")
            if t.device != self.k.device:
                raise ValueError(f"expected {name} on the device of the pool, {self.k.device}, got {t.device}")

    def _check_counts(self, sequences: Sequence[PagedSequence], counts: Sequence[int]) -> None:
        if len(sequences) != len(counts):
            raise ValueError(f"expected a count for each of {len(sequences)} sequences, got {len(counts)} counts")
        for b, (sequence, n) in enumerate(zip(sequences, counts, strict=True)):
            self._check_live(sequence)
            check_count(n, f"counts[{b}]")
            if n > sequence.length:
                raise ValueError(f"expected counts[{b}] of at most the sequence's length {sequence.length}, got {n}")

    def _check_live(self, sequence: PagedSequence) -> None:
        if not isinstance(sequence, PagedSequence):
            raise TypeError(f"expected the PagedSequence that allocate returns, got {type(sequence).__name__}")
        if sequence not in self._live:
            raise ValueError("expected a sequence that this pool allocated and that was not freed, got another")
