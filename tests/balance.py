"""How evenly pieces of work are shared out, if whoever is through takes the next one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def last_over_mean(lengths: Iterable[float], workers: int) -> float:
    """When the last of so many workers ends, over the mean of all; they take the pieces in the order given."""
    ends = [0.0] * workers
    for length in lengths:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends) / (sum(ends) / workers)
