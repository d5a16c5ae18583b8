"""A `Plan`: the computations and messages of every process in every step. Every process makes it for itself.

The N tokens are cut into P chunks, or 2 P in zigzag order; a share is one chunk, or a pair of them, end to end:

    order = "plain"     process r has chunk r
    order = "zigzag"    process r has the chunks r and 2 P - 1 - r, one early and one late

In step s process r holds the K and V of their owner, process r - s (mod P). A visit computes queries of r with them.
Under a mask a chunk of queries attends to all of a chunk of keys, part of it or nothing. That decides what is
computed, how far K and V travel, and what returns as dK and dV.

Under a causal mask and in plain order process 0 computes one block of P, and the last process all of them. In zigzag
order a visit to an earlier owner is all queries with half of the keys, and to a later one half of the queries with all
keys. So every process has the same work in every step.

Source of the zigzag order: the implementation notes of Striped Attention (arXiv:2311.09431) and of Llama 3 (arXiv:2407.21783,
section 3.3.2, two chunks a process).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from flashlearn.core.inputs import check_block, check_count
from flashlearn.core.mask import EMPTY, Mask
from flashlearn.core.numerics import Span

ORDERS = ("plain", "zigzag")


def cut(N: int, parts: int) -> list[Span]:
    """(start, stop) of `parts` pieces of N tokens; the first N mod parts have one more than the others.

    >>> cut(5, 3)
    [(0, 2), (2, 4), (4, 5)]
    """
    ends = [i * (N // parts) + min(i, N % parts) for i in range(parts + 1)]
    return list(pairwise(ends))


def check_order(order: str) -> None:
    """ValueError for anything but "plain" and "zigzag"."""
    if order not in ORDERS:
        raise ValueError(f"expected order to be 'plain' or 'zigzag', got {order!r}")


def shares(N: int, P: int, order: str) -> list[list[Span]]:
    """For each of P processes the chunks of N tokens that it has, as (start, stop), in the order of its share.

    >>> shares(8, 2, "plain"), shares(8, 2, "zigzag")
    ([[(0, 4)], [(4, 8)]], [[(0, 2), (6, 8)], [(2, 4), (4, 6)]])
    """
    check_order(order)
    check_count(N, "N")
    check_block(P, "P")
    if order == "plain":
        return [[chunk] for chunk in cut(N, P)]
    chunks = cut(N, 2 * P)
    return [[chunks[r], chunks[2 * P - 1 - r]] for r in range(P)]


class Visit(NamedTuple):
    """One call of the kernel: rows of this process's Q with columns of the owner's K and V, both within their shares.

    left and right are as in `Mask`, for these rows and columns alone.
    """

    rows: Span
    cols: Span
    left: int | None = None
    right: int | None = None

    @property
    def pairs(self) -> int:
        """The number of pairs of a query and a key that it computes."""
        mask = Mask(self.rows[1] - self.rows[0], self.cols[1] - self.cols[0], self.left, self.right)
        spans = (mask.keys((i, i + 1)) for i in range(mask.N_q))
        return mask.N_q * mask.N_k if mask.full else sum(stop - start for start, stop in spans)


def length(span: Span) -> int:
    """The number of tokens of a range."""
    return max(0, span[1] - span[0])


def overlap(a: Span, b: Span) -> Span:
    """The common part of two ranges; its length is 0 if there is none."""
    return max(a[0], b[0]), min(a[1], b[1])


def shifted(span: Span, by: int) -> Span:
    """The range, `by` tokens further on."""
    return span[0] + by, span[1] + by


def hull(spans: Iterable[Span]) -> Span:
    """The smallest range that contains all of them; (0, 0) for none."""
    there = [span for span in spans if length(span)]
    return (min(a for a, _ in there), max(b for _, b in there)) if there else EMPTY


@dataclass(frozen=True)
class Plan:
    """The schedule of N tokens over P processes in one order, under one mask (left, right) as in `Mask`."""

    N: int
    P: int
    order: str
    left: int | None = None
    right: int | None = None

    @cached_property
    def chunks(self) -> list[list[Span]]:
        """For each process its chunks of the N tokens."""
        return shares(self.N, self.P, self.order)

    @cached_property
    def offsets(self) -> list[list[Span]]:
        """For each process where its chunks are in its share."""
        ends = [list(accumulate(map(length, chunks), initial=0)) for chunks in self.chunks]
        return [list(pairwise(one)) for one in ends]

    def size(self, r: int) -> int:
        """The number of tokens of process r."""
        return self.offsets[r][-1][1]

    @cached_property
    def visits(self) -> list[list[tuple[Visit, ...]]]:
        """visits[r][j]: the computations of process r with the keys of process j."""
        return [[self._visits(r, j) for j in range(self.P)] for r in range(self.P)]

    def _visits(self, r: int, j: int) -> tuple[Visit, ...]:
        if r == j and self.left is None and self.right in (None, 0):  # a share runs forward: its own mask is the same
            own = (0, self.size(r))
            return (Visit(own, own, self.left, self.right),) if own[1] else ()
        visits = [
            self._pair(rows, cols, row, col)
            for rows, (row, _) in zip(self.chunks[r], self.offsets[r], strict=True)
            for cols, (col, _) in zip(self.chunks[j], self.offsets[j], strict=True)
        ]
        return tuple(_joined([visit for visit in visits if visit]))

    def _pair(self, rows: Span, cols: Span, row: int, col: int) -> Visit | None:
        """A chunk of queries with a chunk of keys, less what attends to nothing; they are at `row` and `col` of their shares."""
        mask = Mask(self.N, self.N, self.left, self.right)
        if not mask.attends(rows, cols):
            return None
        queries, keys = overlap(mask.queries(cols), rows), overlap(mask.keys(rows), cols)
        at = shifted(queries, row - rows[0]), shifted(keys, col - cols[0])
        if not mask.crosses(queries, keys):
            return Visit(*at)
        last = keys[1] - queries[1]  # how far the last key is behind the last query: the algorithms align these two
        left = None if self.left is None else self.left + last
        right = None if self.right is None else self.right - last
        return Visit(*at, left, right)

    @cached_property
    def route(self) -> list[list[tuple[Span, Span]]]:
        """route[j][s]: the part of the share of j that travels as K and V, and returns as dK and dV. In step s the keys
        arrive that the process there, or one after it, attends to. After step s the gradients go on of the keys that
        the processes up to there have attended to. Messages are whole chunks.
        """
        met = [[self._chunks_met(j, s) for s in range(self.P)] for j in range(self.P)]
        return [[(hull(of[s:]), hull(of[1 : s + 1])) for s in range(self.P)] for of in met]

    def _chunks_met(self, j: int, s: int) -> Span:
        """The chunks of j, in its share, to which the process attends that has them in step s."""
        cols = [visit.cols for visit in self.visits[(j + s) % self.P][j]]
        return hull(chunk for chunk in self.offsets[j] if any(length(overlap(chunk, span)) for span in cols))

    @cached_property
    def last(self) -> list[int]:
        """For each process the last step in which another attends to its keys, 0 if none does: dK and dV return after it."""
        steps = range(1, self.P)
        return [max((s for s in steps if self.visits[(j + s) % self.P][j]), default=0) for j in range(self.P)]

    def pairs(self, r: int) -> list[int]:
        """Pairs of a query and a key that process r computes in each step: its work."""
        return [sum(visit.pairs for visit in self.visits[r][(r - s) % self.P]) for s in range(self.P)]


@lru_cache(256)
def plan_of(N: int, P: int, order: str, left: int | None, right: int | None) -> Plan:
    """The plan, made once."""
    return Plan(N, P, order, left, right)


def _joined(visits: list[Visit]) -> list[Visit]:
    """The same with fewer calls: full blocks next to each other become one, then full blocks one above another."""
    for join in (_side_by_side, _one_above_the_other):
        found: list[Visit] = []
        for visit in visits:
            full = bool(found) and all(one[2:] == (None, None) for one in (found[-1], visit))
            joined = join(found[-1], visit) if full else None
            found = [*found[:-1], joined] if joined else [*found, visit]
        visits = found
    return visits


def _side_by_side(a: Visit, b: Visit) -> Visit | None:
    return Visit(a.rows, (a.cols[0], b.cols[1])) if a.rows == b.rows and a.cols[1] == b.cols[0] else None


def _one_above_the_other(a: Visit, b: Visit) -> Visit | None:
    return Visit((a.rows[0], b.rows[1]), a.cols) if a.cols == b.cols and a.rows[1] == b.rows[0] else None
