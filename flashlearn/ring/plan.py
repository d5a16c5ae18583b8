"""Who computes what, and who sends what to whom, when: a `Plan`, which every process makes for itself.

The N tokens are cut into P chunks, or 2 P in zigzag order; a share is one chunk, or a pair of them, end to end:

    order = "plain"     process r has chunk r
    order = "zigzag"    process r has the chunks r and 2 P - 1 - r, one early and one late

In step s process r holds the K and V of process r - s (mod P), its owner: they came round the ring, s places. The
queries of r visit them. Under a mask a chunk of queries sees all of a chunk of keys, part of it or nothing, and that
decides everything here: what is computed, how far K and V travel, and what comes home as dK and dV.

Under a causal mask the plain order leaves process 0 with one block of P, and the last with all of them. In zigzag order
a visit to an earlier owner is all queries with half of the keys, and to a later one half of the queries with all
keys: as much work for every process, in every step.

Source of the zigzag order: the implementation notes of Striped Attention (arXiv:2311.09431) and of Llama 3 (arXiv:2407.21783,
section 3.3.2, two chunks a process).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
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
    return list(zip(ends, ends[1:], strict=False))


def check_order(order: str) -> None:
    """Refuse anything but "plain" and "zigzag"."""
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
        """How many pairs of a query and a key it computes."""
        mask = Mask(self.rows[1] - self.rows[0], self.cols[1] - self.cols[0], self.left, self.right)
        spans = (mask.keys((i, i + 1)) for i in range(mask.N_q))
        return mask.N_q * mask.N_k if mask.full else sum(stop - start for start, stop in spans)


def hull(*spans: Span) -> Span:
    """The smallest span that holds all of them; (0, 0) for nothing."""
    there = [span for span in spans if span[0] < span[1]]
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
    def places(self) -> list[list[Span]]:
        """For each process where its chunks stand in its share."""
        found = []
        for mine in self.chunks:
            ends = [0]
            for start, stop in mine:
                ends.append(ends[-1] + stop - start)
            found.append(list(zip(ends, ends[1:], strict=False)))
        return found

    def size(self, r: int) -> int:
        """How many tokens process r has."""
        return self.places[r][-1][1]

    @cached_property
    def visits(self) -> list[list[tuple[Visit, ...]]]:
        """visits[r][j]: what process r computes with the keys of process j."""
        return [[self._visits(r, j) for j in range(self.P)] for r in range(self.P)]

    def _visits(self, r: int, j: int) -> tuple[Visit, ...]:
        if r == j and self.left is None and self.right in (None, 0):  # a share runs forward: its own mask is the same
            own = (0, self.size(r))
            return (Visit(own, own, self.left, self.right),) if own[1] else ()
        pairs = [
            visit
            for a, rows in enumerate(self.chunks[r])
            for b, cols in enumerate(self.chunks[j])
            if (visit := self._pair(rows, cols, self.places[r][a][0], self.places[j][b][0]))
        ]
        return tuple(_joined(pairs))

    def _pair(self, rows: Span, cols: Span, row: int, col: int) -> Visit | None:
        """A chunk of queries with a chunk of keys, less what sees nothing; they stand at `row` and `col` of their shares."""
        mask = Mask(self.N, self.N, self.left, self.right)
        if not mask.sees(rows, cols):
            return None
        seeing, seen = _both(mask.queries(cols), rows), _both(mask.keys(rows), cols)
        at = (seeing[0] - rows[0] + row, seeing[1] - rows[0] + row), (seen[0] - cols[0] + col, seen[1] - cols[0] + col)
        if not mask.crosses(seeing, seen):
            return Visit(*at)
        last = seen[1] - seeing[1]  # how much further the last key stands than the last query, which the rungs align
        left = None if self.left is None else self.left + last
        right = None if self.right is None else self.right - last
        return Visit(*at, left, right)

    def travels(self, j: int, s: int) -> Span:
        """The part of the K and V of j that arrives in step s: what the process there, or one after it, sees."""
        cols = (visit.cols for step in range(s, self.P) for visit in self.visits[(j + step) % self.P][j])
        return hull(*(_chunks_of(self.places[j], col) for col in cols))

    def returns(self, j: int, s: int) -> Span:
        """The part of dK and dV of j that goes on after step s: what the processes up to there have seen."""
        cols = (visit.cols for step in range(1, s + 1) for visit in self.visits[(j + step) % self.P][j])
        return hull(*(_chunks_of(self.places[j], col) for col in cols))

    def last(self, j: int) -> int:
        """The last step in which the K and V of j are seen by another; dK and dV go home after it. 0 if there is none."""
        return max((s for s in range(1, self.P) if self.visits[(j + s) % self.P][j]), default=0)

    @cached_property
    def route(self) -> list[list[tuple[Span, Span]]]:
        """route[j][s]: what travels to step s, and what returns from it; nothing returns after the last visit but home."""
        return [[(self.travels(j, s), self.returns(j, s)) for s in range(self.P)] for j in range(self.P)]

    @cached_property
    def lasts(self) -> list[int]:
        """`last` of every process."""
        return [self.last(j) for j in range(self.P)]

    def pairs(self, r: int) -> list[int]:
        """Pairs of a query and a key that process r computes in each step: its work."""
        return [sum(visit.pairs for visit in self.visits[r][(r - s) % self.P]) for s in range(self.P)]


@lru_cache(256)
def plan_of(N: int, P: int, order: str, left: int | None, right: int | None) -> Plan:
    """The plan, made once."""
    return Plan(N, P, order, left, right)


def _both(a: Span, b: Span) -> Span:
    return max(a[0], b[0]), min(a[1], b[1])


def _chunks_of(places: list[Span], cols: Span) -> Span:
    """The chunks, whole, that a span lies in: what is sent is whole chunks."""
    return hull(*(place for place in places if _both(place, cols)[0] < _both(place, cols)[1]))


def _joined(visits: list[Visit]) -> list[Visit]:
    """The same with fewer calls: full blocks side by side become one, then full blocks one above the other."""
    for join in (_side_by_side, _one_above_the_other):
        found: list[Visit] = []
        for visit in visits:
            joined = join(found[-1], visit) if found and _full(found[-1]) and _full(visit) else None
            found = [*found[:-1], joined] if joined else [*found, visit]
        visits = found
    return visits


def _side_by_side(a: Visit, b: Visit) -> Visit | None:
    return Visit(a.rows, (a.cols[0], b.cols[1])) if a.rows == b.rows and a.cols[1] == b.cols[0] else None


def _one_above_the_other(a: Visit, b: Visit) -> Visit | None:
    return Visit((a.rows[0], b.rows[1]), a.cols) if a.cols == b.cols and a.rows[1] == b.rows[0] else None


def _full(visit: Visit) -> bool:
    return visit.left is None and visit.right is None
