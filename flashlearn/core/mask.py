"""The keys that a query attends to, for every algorithm, formula, picture and kernel launcher.

    query i attends to key j    when    -left <= j - (i + N_k - N_q) <= right

`i + N_k - N_q` is the key at the position of query i when both sequences end together (aligned to the bottom right, as
in `torch.nn.attention.bias.causal_lower_right`). With causal right is 0. window = (left, right): at most so many keys
to either side. None: no limit on that side. documents: of several texts packed into one sequence a token attends to its
own alone. So the keys that a query attends to are one range, and so are those of all queries of a block. A loop over
blocks needs to know nothing else.

key_range: in each sequence of a batch only some keys exist; the others are padding. All sequences take a step together,
so the methods on blocks answer for the whole batch. `visible` distinguishes sequences.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from flashlearn.core.inputs import Sizes, check_block, check_bool, check_count, check_int32
from flashlearn.core.numerics import INF, Span, T

Window = tuple[int | None, int | None]
KeyRange = tuple[Tensor, Tensor]
EMPTY: Span = (0, 0)


@dataclass(frozen=True)
class Mask:
    """The keys that N_q queries attend to of N_k; a block is a range (start, stop) of rows or of keys.

    left, right   the window along the diagonal, None for no limit
    documents     the offsets 0 .. N of packed texts, for N_q = N_k: query i attends to keys of its own document
    key_range     the keys (start, stop) that exist, one range for each sequence of the batch

    TypeError, ValueError for what is none of these.

    >>> Mask(N_q=4, N_k=6, right=0).keys((0, 2))
    (0, 4)
    >>> Mask(N_q=6, N_k=6, documents=(0, 2, 6)).keys((3, 4))
    (2, 6)
    """

    N_q: int
    N_k: int
    left: int | None = None
    right: int | None = None
    documents: tuple[int, ...] | None = None
    key_range: tuple[Span, ...] | None = None

    def __post_init__(self) -> None:
        for name, size in (("N_q", self.N_q), ("N_k", self.N_k)):
            if type(size) is not int or size < 0:  # first, as masks are made in loops, and check_count is slow
                check_count(size, name)
                object.__setattr__(self, name, int(size))  # NumPy's integers overflow, and equal Python's in a cache
        for name, limit in (("left", self.left), ("right", self.right)):
            _check_limit(limit, name)
            if limit is not None:
                object.__setattr__(self, name, int(limit))
        if self.documents is not None:
            check_one_length(self.N_q, self.N_k)
            if not _are_ints(self.documents) or not self.documents:
                raise TypeError(f"expected documents to be a tuple of ints or None, got {self.documents!r:.80}")
            object.__setattr__(self, "documents", tuple(map(int, self.documents)))
            _check_offsets(self.documents, self.N_q, "documents")
        if self.key_range is not None:
            _check_pairs(self.key_range)
            object.__setattr__(self, "key_range", tuple((int(start), int(stop)) for start, stop in self.key_range))

    @classmethod
    def of(
        cls,
        sizes: Sizes,
        causal: bool = False,
        window: Window | None = None,
        documents: Tensor | None = None,
        key_range: KeyRange | None = None,
    ) -> Mask:
        """The mask of a caller's options. TypeError, ValueError if an option is not what it should be.

        documents is (n + 1,) int32, key_range two tensors (B,) int32; their numbers are read, from any device.
        """
        check_bool(causal, "causal")
        left, right = limits(window, causal, sizes.N_q, sizes.N_k)
        offsets = ranges = None
        if documents is not None:
            check_one_length(sizes.N_q, sizes.N_k)
            check_documents(documents, sizes.N_q)
            offsets = tuple(documents.tolist())
        if key_range is not None:
            check_key_range(key_range, sizes.B, sizes.N_k)
            ranges = tuple(zip(*(ends.tolist() for ends in key_range), strict=True))
        return cls(sizes.N_q, sizes.N_k, left, right, offsets, ranges)

    @property
    def diagonal(self) -> int:
        """N_k - N_q: the position of query i is that of key i + diagonal."""
        return self.N_k - self.N_q

    @property
    def full(self) -> bool:
        """Whether nothing is hidden, whatever the sizes."""
        return self.left is None and self.right is None and self.documents is None and self.key_range is None

    def keys(self, rows: Span) -> Span:
        """The keys (start, stop) that any query of the block attends to, in any sequence; (0, 0) if there is none."""
        band = self._band_of_keys(rows)
        return band if self.key_range is None else _hull(_meet(band, there) for there in self.key_range)

    def queries(self, cols: Span) -> Span:
        """The queries (start, stop) that attend to any key of the block, in any sequence; (0, 0) if there is none."""
        if self.key_range is None:
            return self._band_of_queries(cols)
        return _hull(self._band_of_queries(_meet(cols, there)) for there in self.key_range)

    def attends(self, rows: Span, cols: Span) -> bool:
        """Whether some query of the block attends to some key of it, in any sequence."""
        seen = _meet(self._band_of_keys(rows), cols)
        if self.key_range is None:
            return seen != EMPTY
        return any(_meet(seen, there) != EMPTY for there in self.key_range)

    def crosses(self, rows: Span, cols: Span) -> bool:
        """Whether some query of the block may not attend to some key of it: only then it needs masking."""
        first, last = rows[0] + self.diagonal, rows[1] - 1 + self.diagonal
        past_right = self.right is not None and cols[1] - 1 > first + self.right
        past_left = self.left is not None and cols[0] < last - self.left
        stops_inside = any(start > cols[0] or stop < cols[1] for start, stop in self.key_range or ())
        return past_right or past_left or stops_inside or self._meet_two_documents(rows, cols)

    def visible(self, rows: Span, cols: Span, device: torch.device | None = None) -> Tensor:
        """(rows, cols) booleans, True where a query of the block may attend to a key of it; (B, 1, rows, cols) with key_range."""
        i, j = torch.arange(*rows, device=device)[:, None], torch.arange(*cols, device=device)
        offset = j - i - self.diagonal
        seen = torch.ones_like(offset, dtype=torch.bool)
        seen &= True if self.left is None else offset >= -self.left
        seen &= True if self.right is None else offset <= self.right
        if self.documents is not None:
            offsets = torch.tensor(self.documents, device=device)
            seen &= torch.bucketize(i, offsets, right=True) == torch.bucketize(j, offsets, right=True)
        return seen if self.key_range is None else seen & self.exist(cols, device)

    def exist(self, cols: Span, device: torch.device | None = None) -> Tensor:
        """(B, 1, 1, cols) booleans, True where a key of the block exists in a sequence; for a mask with key_range."""
        start, stop = torch.tensor(self.key_range, device=device).reshape(-1, 2, 1, 1, 1).unbind(1)
        j = torch.arange(*cols, device=device)
        return (j >= start) & (j < stop)

    def hide(self, S: T, rows: Span, cols: Span, value: float = -INF) -> T:
        """The block S with `value` where a query may not attend to a key; untouched if all is visible."""
        if not self.crosses(rows, cols):
            return S
        return S.masked_fill(~self.visible(rows, cols, S.device), value)  # type: ignore[return-value]

    def key_blocks(self, rows: Span, block_k: int) -> list[tuple[int, Span]]:
        """(j, (start, stop)) of the blocks of keys that a block of queries visits, in order."""
        check_block(block_k, "block_k")
        blocks = _blocks_of(self.keys(rows), self.N_k, block_k)
        return [(j, cols) for j, cols in blocks if self.key_range is None or self.attends(rows, cols)]

    def query_blocks(self, cols: Span, block_q: int) -> list[tuple[int, Span]]:
        """(i, (start, stop)) of the blocks of queries that visit a block of keys, in order."""
        check_block(block_q, "block_q")
        blocks = _blocks_of(self.queries(cols), self.N_q, block_q)
        return [(i, rows) for i, rows in blocks if self.key_range is None or self.attends(rows, cols)]

    def _band_of_keys(self, rows: Span) -> Span:
        """`keys`, wherever they may exist."""
        return self._band(rows, self.diagonal, self.left, self.right, self.N_k)

    def _band_of_queries(self, cols: Span) -> Span:
        """`queries`, of keys that exist."""
        return self._band(cols, -self.diagonal, self.right, self.left, self.N_q)

    def _band(self, tokens: Span, shift: int, left: int | None, right: int | None, N: int) -> Span:
        """Of N others those that are, for any token of a block, at most `left` before or `right` after its diagonal."""
        if tokens[0] >= tokens[1]:
            return EMPTY
        start = 0 if left is None else max(0, tokens[0] + shift - left)
        stop = N if right is None else min(N, tokens[1] + shift + right)
        return _meet((start, stop), (start, stop) if self.documents is None else self._documents_of(tokens))

    def _documents_of(self, tokens: Span) -> Span:
        """(start, stop) of the documents that a block is part of, together."""
        assert self.documents is not None
        first, last = (bisect_right(self.documents, token) for token in (tokens[0], tokens[1] - 1))
        return self.documents[first - 1], self.documents[last]

    def _meet_two_documents(self, rows: Span, cols: Span) -> bool:
        """Whether queries and keys of two blocks are in more than one document."""
        if self.documents is None:
            return False
        first, last = min(rows[0], cols[0]), max(rows[1], cols[1]) - 1
        return bisect_right(self.documents, first) != bisect_right(self.documents, last)


def _meet(a: Span, b: Span) -> Span:
    """The common part of two ranges; (0, 0) if there is none."""
    start, stop = max(a[0], b[0]), min(a[1], b[1])
    return (start, stop) if start < stop else EMPTY


def _hull(several: Iterable[Span]) -> Span:
    """The shortest range that contains all of them; (0, 0) if they are empty."""
    full = [span for span in several if span[0] < span[1]]
    return (min(start for start, _ in full), max(stop for _, stop in full)) if full else EMPTY


def _blocks_of(span: Span, N: int, block: int) -> list[tuple[int, Span]]:
    """The blocks of N elements, with their numbers, that overlap a range."""
    start, stop = span
    numbers = range(start // block, -(-stop // block))
    return [(number, (number * block, min((number + 1) * block, N))) for number in numbers]


def check_window(window: Window | None) -> Window:
    """`window` as (left, right); None for no limit. TypeError, ValueError for anything else."""
    if window is None:
        return None, None
    if not isinstance(window, tuple) or len(window) != 2:
        raise TypeError(f"expected window to be a tuple (left, right) or None, got {window!r:.80}")
    for side, limit in zip(("left", "right"), window, strict=True):
        _check_limit(limit, f"the {side} of window")
        if limit is not None and limit < 0:
            none = ", or None for no limit on that side" if limit == -1 else ""
            raise ValueError(f"expected the {side} of window to be at least 0{none}, got {limit}")
    return window


def limits(window: Window | None, causal: bool, N_q: int, N_k: int) -> Window:
    """(left, right) of `window` and `causal` together, without a limit that hides nothing from N_q queries of N_k keys.

    The last query is at key N_k - 1, the first one N_q - 1 before it. So a left of N_k - 1 or more hides nothing, nor does
    a right of N_q - 1 or more. A right of 0 is kept in any case: it is `causal`.

    >>> limits((9, 0), False, 4, 6), limits((2, 9), False, 4, 6)
    ((None, 0), (2, None))
    """
    left, right = check_window(window)
    if left is not None and left >= N_k - 1:
        left = None
    if causal:
        return left, 0
    return left, None if right is not None and right and right >= N_q - 1 else right


def _check_limit(limit: int | None, name: str) -> None:
    if limit is not None and not _is_int(limit):
        raise TypeError(f"expected {name} to be an int or None, got {limit!r:.80}")


def _is_int(number: Any) -> bool:
    return isinstance(number, (int, Integral)) and not isinstance(number, bool)  # int first: asking Integral is slow


def _are_ints(numbers: Any) -> bool:
    return isinstance(numbers, tuple) and all(map(_is_int, numbers))


def _check_pairs(key_range: tuple[Span, ...]) -> None:
    """Accept only pairs; they may extend past the keys, as in an unchecked launch, and are cut."""
    if not isinstance(key_range, tuple) or not all(_are_ints(span) and len(span) == 2 for span in key_range):
        raise TypeError(f"expected key_range to be a tuple of (start, stop) or None, got {key_range!r:.80}")


def check_one_length(N_q: int, N_k: int) -> None:
    """Reject documents where queries and keys are not the same tokens."""
    if N_q != N_k:
        raise ValueError(f"expected N_q = N_k with documents, got N_q = {N_q} and N_k = {N_k}")


def check_documents(offsets: Tensor, N: int, check: bool = True, name: str = "documents") -> None:
    """Reject what are not offsets (n + 1,) int32 that run from 0 to N and never fall; read only with `check`."""
    check_int32(offsets, name)
    if offsets.ndim != 1 or not len(offsets):
        raise ValueError(f"expected {name} of shape (n + 1,), got {tuple(offsets.shape)}")
    if not check:
        return
    _check_offsets(offsets.tolist(), N, name)


def _check_offsets(values: Sequence[int], N: int, name: str) -> None:
    """Reject numbers that do not run from 0 to N, or fall."""
    if values[0] != 0:
        raise ValueError(f"expected {name} to start at 0, got {values[0]}")
    for n, (start, stop) in enumerate(zip(values, values[1:], strict=False)):
        if stop < start:
            raise ValueError(f"expected {name} that do not fall, got {start} and then {stop} at {n} and {n + 1}")
    if values[-1] != N:
        raise ValueError(f"expected {name} to end at N = {N}, got {values[-1]}")


def check_key_range(key_range: KeyRange, B: int, N_k: int, check: bool = True) -> None:
    """Accept only (start, stop), each (B,) int32, 0 <= start <= stop <= N_k; read only with `check`."""
    if not isinstance(key_range, tuple) or len(key_range) != 2:
        raise TypeError(f"expected key_range to be a tuple (start, stop) of tensors or None, got {key_range!r:.80}")
    for side, ends in zip(("start", "stop"), key_range, strict=True):
        check_int32(ends, f"the {side} of key_range")
        if ends.shape != (B,):
            raise ValueError(f"expected the {side} of key_range of shape (B,) = ({B},), got {tuple(ends.shape)}")
    if not check:
        return
    for b, (start, stop) in enumerate(zip(*(ends.tolist() for ends in key_range), strict=True)):
        if not 0 <= start <= stop <= N_k:
            raise ValueError(f"expected 0 <= start <= stop <= {N_k} in key_range, got {start} and {stop} at {b}")


def causal_mask(N_q: int, N_k: int, device: torch.device | None = None) -> Tensor:
    """(N_q, N_k) booleans, True where query i may attend to key j: j <= i + N_k - N_q.

    >>> causal_mask(2, 3).int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    return Mask(N_q, N_k, right=0).visible((0, N_q), (0, N_k), device)
