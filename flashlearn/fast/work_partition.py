"""How the work of attention over pages is shared out: all tiles are one line, of which every program takes an equal part."""

from __future__ import annotations

import triton
import triton.language as tl

MIN_KEYS = 256  # of a share, unless all sequences are shorter: a smaller one ends before its loads are well under way
# A row of tiles takes the time of about so many tiles more: its queries come, its result goes.
ROW_COST = tl.constexpr(1)


@triton.jit
def partition_size(total, longest, programs, LEAST: tl.constexpr):
    """How much of the line a program takes: an equal part, but at least LEAST or the longest row.

    A row that is at most a sixteenth longer than a share is not cut: where all are alike, nothing is left to merge then.
    """
    share = tl.maximum(tl.cdiv(total, programs), tl.minimum(longest, LEAST))
    return tl.where((share < longest) & (longest <= share + share // 16), longest, share)
