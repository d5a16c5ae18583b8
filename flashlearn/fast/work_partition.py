"""How the work of attention over pages is partitioned: all tiles are one line, of which every CTA takes an equal partition."""

from __future__ import annotations

import triton
import triton.language as tl

MIN_KEYS = (
    256  # of a partition, unless all sequences are shorter: a smaller one ends before its loads are well under way
)
# A tile of queries takes the time of about so many tiles of keys more: its queries come, its result goes.
QUERIES_COST = tl.constexpr(1)


@triton.jit
def partition_size(total, longest, programs, MINIMUM: tl.constexpr):
    """How much of the line a CTA takes: an equal partition, but at least MINIMUM or the longest tile of queries.

    One that is at most a sixteenth longer than a partition is not cut: where all are alike, nothing is left to merge then.
    """
    size = tl.maximum(tl.cdiv(total, programs), tl.minimum(longest, MINIMUM))
    return tl.where((size < longest) & (longest <= size + size // 16), longest, size)
