"""Which keys a query sees, asked by every rung, formula, picture and kernel launcher alike.

    query i sees key j    when    -left <= j - (i + N_k - N_q) <= right

`i + N_k - N_q` is the key that query i stands at when both sequences end together (aligned to the bottom right, as
in `torch.nn.attention.bias.causal_lower_right`). causal: right = 0. window = (left, right): at most so many keys to
either side. None: no limit on that side. The keys that a query sees are thus one span, and so are those that any
query of a block sees, which is all that a loop over blocks needs to know.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from flashlearn.core.inputs import Sizes, check_bool
from flashlearn.core.numerics import INF, Span, T

Window = tuple[int | None, int | None]
NOTHING: Span = (0, 0)


@dataclass(frozen=True)
class Mask:
    """The band of keys that N_q queries see of N_k; a block is a span (start, stop) of rows or of keys.

    >>> Mask(N_q=4, N_k=6, right=0).keys((0, 2))
    (0, 4)
    """

    N_q: int
    N_k: int
    left: int | None = None
    right: int | None = None

    @classmethod
    def of(cls, sizes: Sizes, causal: bool = False, window: Window | None = None) -> Mask:
        """The mask that a caller asked for. TypeError, ValueError if `causal` or `window` are not what they should be."""
        check_bool(causal, "causal")
        left, right = check_window(window)
        return cls(sizes.N_q, sizes.N_k, left, 0 if causal else right)

    @property
    def diagonal(self) -> int:
        """N_k - N_q: query i stands at key i + diagonal."""
        return self.N_k - self.N_q

    @property
    def full(self) -> bool:
        """Whether nothing is hidden, whatever the sizes."""
        return self.left is None and self.right is None

    def keys(self, rows: Span) -> Span:
        """The keys (start, stop) that any query of the block sees; (0, 0) if there is none."""
        first, last = rows[0] + self.diagonal, rows[1] - 1 + self.diagonal
        start = 0 if self.left is None else max(0, first - self.left)
        stop = self.N_k if self.right is None else min(self.N_k, last + self.right + 1)
        return (start, stop) if rows[0] < rows[1] and start < stop else NOTHING

    def queries(self, cols: Span) -> Span:
        """The queries (start, stop) that see any key of the block; (0, 0) if there is none."""
        first, last = cols[0] - self.diagonal, cols[1] - 1 - self.diagonal
        start = 0 if self.right is None else max(0, first - self.right)
        stop = self.N_q if self.left is None else min(self.N_q, last + self.left + 1)
        return (start, stop) if cols[0] < cols[1] and start < stop else NOTHING

    def sees(self, rows: Span, cols: Span) -> bool:
        """Whether some query of the block sees some key of it."""
        start, stop = self.keys(rows)
        return max(start, cols[0]) < min(stop, cols[1])

    def crosses(self, rows: Span, cols: Span) -> bool:
        """Whether some query of the block may not see some key of it: only then it needs masking."""
        first, last = rows[0] + self.diagonal, rows[1] - 1 + self.diagonal
        past_right = self.right is not None and cols[1] - 1 > first + self.right
        past_left = self.left is not None and cols[0] < last - self.left
        return past_right or past_left

    def visible(self, rows: Span, cols: Span, device: torch.device | None = None) -> Tensor:
        """(rows, cols) booleans, True where a query of the block may see a key of it."""
        offset = torch.arange(*cols, device=device) - torch.arange(*rows, device=device)[:, None] - self.diagonal
        seen = torch.ones_like(offset, dtype=torch.bool)
        seen &= True if self.left is None else offset >= -self.left
        return seen & (True if self.right is None else offset <= self.right)

    def hide(self, S: T, rows: Span, cols: Span, value: float = -INF) -> T:
        """The block S with `value` where a query may not see a key; untouched if all is visible."""
        if not self.crosses(rows, cols):
            return S
        return S.masked_fill(~self.visible(rows, cols, S.device), value)  # type: ignore[return-value]

    def key_blocks(self, rows: Span, block_k: int) -> list[tuple[int, Span]]:
        """(j, (start, stop)) of the blocks of keys that a block of queries visits, in order."""
        return _blocks_of(self.keys(rows), self.N_k, block_k)

    def query_blocks(self, cols: Span, block_q: int) -> list[tuple[int, Span]]:
        """(i, (start, stop)) of the blocks of queries that visit a block of keys, in order."""
        return _blocks_of(self.queries(cols), self.N_q, block_q)


def _blocks_of(span: Span, N: int, block: int) -> list[tuple[int, Span]]:
    """The blocks of N elements, with their numbers, that meet a span."""
    start, stop = span
    numbers = range(start // block, -(-stop // block))
    return [(number, (number * block, min((number + 1) * block, N))) for number in numbers]


def check_window(window: Window | None) -> Window:
    """`window` as (left, right); None for no limit. TypeError, ValueError for anything else."""
    if window is None:
        return None, None
    if not isinstance(window, tuple) or len(window) != 2:
        raise TypeError(f"expected window to be (left, right) or None, got {window!r}")
    for side, limit in zip(("left", "right"), window, strict=True):
        if limit is not None and (not isinstance(limit, Integral) or isinstance(limit, bool)):
            raise TypeError(f"expected the {side} of window to be an int or None, got {limit!r}")
        if limit is not None and limit < 0:
            raise ValueError(f"expected the {side} of window to be at least 0, got {limit}")
    return window


def causal_mask(N_q: int, N_k: int, device: torch.device | None = None) -> Tensor:
    """(N_q, N_k) booleans, True where query i may see key j: j <= i + N_k - N_q.

    >>> causal_mask(2, 3).int().tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    return Mask(N_q, N_k, right=0).visible((0, N_q), (0, N_k), device)
