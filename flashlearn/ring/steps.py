"""The ring in one process, for pictures and counts: the same code as over many, with letter boxes in place of wires.

    for step in ring_attention_steps(q, k, v, P=4, order="zigzag", causal=True): ...

A step is one step of the ring, in which all P processes compute at the same time. Its `reads` are what is sent over the wire
meanwhile, so that `hbm_bytes` of such steps counts the bytes on the wire; `writes` there are none.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flashlearn.algorithms.problem import backward_shapes
from flashlearn.core.inputs import check_block, check_like, check_qkv
from flashlearn.core.mask import Mask, Window
from flashlearn.core.numerics import Span
from flashlearn.core.steps import Step, Tile
from flashlearn.ring.agreement import scale_of
from flashlearn.ring.attention import Turn, Turns, at, backward_turns, forward_turns
from flashlearn.ring.local import Rows
from flashlearn.ring.plan import Plan, plan_of


class Letter(NamedTuple):
    """A message: from process to process, and a copy of the tensor."""

    source: int
    to: int
    tensor: Tensor


class Parcel(NamedTuple):
    """What a message holds: pieces of K or V, or of both gradients, of one owner."""

    source: int
    to: int
    name: str
    owner: int
    tiles: tuple[Tile, ...]


class Letters:
    """The letter boxes of P processes, and a note of what was posted since the last look."""

    def __init__(self) -> None:
        self.posted: dict[tuple[int, int, int], Tensor] = {}  # (from, to, number) -> tensor
        self.sent: dict[tuple[int, int], int] = {}
        self.awaited: dict[tuple[int, int], int] = {}
        self.new: list[Letter] = []

    def look(self) -> list[Letter]:
        """What was posted since the last look."""
        new, self.new = self.new, []
        return new


class Post:
    """What stands in for a `Wire`: messages of one process by letter box. They are there when they are asked for."""

    def __init__(self, letters: Letters, rank: int, size: int):
        self.letters, self.rank, self.size = letters, rank, size

    def mark(self) -> None:
        """Nothing waits: all is done in order."""

    def exchange(self, sends: list[tuple[Tensor, int]], receives: list[tuple[Tensor, int]], after: Any = None) -> _Due:
        """Post what is sent now; what is to be received is taken from the box when it is waited for."""
        due = []
        for tensor, source in receives:
            if tensor.numel():
                due.append((tensor, (source, self.rank, _next(self.letters.awaited, (source, self.rank)))))
        for tensor, to in sends:
            if tensor.numel():
                self.letters.posted[self.rank, to, _next(self.letters.sent, (self.rank, to))] = tensor.clone()
                self.letters.new.append(Letter(self.rank, to, tensor.clone()))
        return _Due(self.letters, due)


class _Due:
    """Letters that are to come."""

    def __init__(self, letters: Letters, due: list[tuple[Tensor, tuple[int, int, int]]]):
        self.letters, self.due = letters, due

    def wait(self) -> None:
        """Take them; KeyError for one that nobody has posted."""
        for tensor, address in self.due:
            tensor.copy_(self.letters.posted.pop(address))


def _next(numbers: dict[tuple[int, int], int], key: tuple[int, int]) -> int:
    numbers[key] = numbers.get(key, -1) + 1
    return numbers[key]


class Work(NamedTuple):
    """What a process computes in a step: a block of S, in places of the whole sequence, and which part of it the mask leaves."""

    process: int
    rows: Span
    cols: Span
    pairs: int


def ring_attention_steps(
    q: Tensor, k: Tensor, v: Tensor, *, P: int, order: str, causal: bool = False, window: Window | None = None,
    scale: float | None = None, do: Tensor | None = None,
) -> Iterator[Step]:  # fmt: skip
    """One step for each step of the ring forward and, if `do` is given, for each step backward; phases "forward", "backward".

    q, k, v and do are whole, as is the output: (o, lse), or with `do` (o, lse, dq, dk, dv). A step's values:

    s           its number in the ring, from 0
    owners      whose K and V each process has
    work        the blocks of S that are computed: `Work`, chunk by chunk
    letters     what was sent meanwhile: `Parcel`
    """
    check_block(P, "P")
    sizes = check_qkv(q, k, v)
    if sizes.N_q != sizes.N_k:
        raise ValueError(f"expected as many queries as keys, got {sizes.N_q} and {sizes.N_k}")
    if do is not None:
        check_like("do", do, "q", q)
    mask = Mask.of(sizes, causal, window)
    plan = plan_of(sizes.N_q, P, order, mask.left, mask.right)
    ring = _Ring(plan, {"Q": q, "K": k, "V": v}, backward_shapes(sizes))
    scale = scale_of(scale, sizes.D, q.dtype)
    shares = [(_share(plan, r, q), _share(plan, r, k), _share(plan, r, v)) for r in range(P)]
    forward = [forward_turns(ring.post(r), plan, Q, K, V, scale) for r, (Q, K, V) in enumerate(shares)]
    o_lse = yield from ring.run("forward", forward)
    output = [_whole(plan, parts) for parts in zip(*o_lse, strict=True)]
    if do is not None:
        rows = [Rows(_share(plan, r, do), None, shares[r][0], *o_lse[r]) for r in range(P)]
        backward = [backward_turns(ring.post(r), plan, rows[r], K, V, scale) for r, (_, K, V) in enumerate(shares)]
        grads = yield from ring.run("backward", backward)
        output += [_whole(plan, parts) for parts in zip(*grads, strict=True)]
    yield Step(phase="done", shapes=ring.shapes, values=ring.given, output=tuple(output), sentence=tell)


def _share(plan: Plan, r: int, t: Tensor) -> Tensor:
    return torch.cat([at(t, chunk) for chunk in plan.chunks[r]], 2)


def _whole(plan: Plan, parts: tuple[Tensor, ...]) -> Tensor:
    """All tokens in their order."""
    whole = parts[0].new_empty((*parts[0].shape[:2], plan.N, *parts[0].shape[3:]))
    for r, part in enumerate(parts):
        for chunk, place in zip(plan.chunks[r], plan.places[r], strict=True):
            whole[:, :, slice(*chunk)] = part[:, :, slice(*place)]
    return whole


class _Ring:
    """P generators that take their turns together, and the steps that are made of it."""

    def __init__(self, plan: Plan, given: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]):
        self.plan, self.given, self.shapes, self.letters = plan, given, shapes, Letters()

    def post(self, r: int) -> Post:
        return Post(self.letters, r, self.plan.P)

    def run(self, phase: str, processes: list[Turns]) -> Generator[Step, None, list[Any]]:
        """A step for each round of turns; returns what the processes return, in order."""
        results: list[Any] = []
        while not results:
            turns: list[Turn] = []
            for process in processes:
                try:
                    turns.append(next(process))
                except StopIteration as end:
                    results.append(end.value)
            if turns:
                yield self._step(phase, turns)
        return results

    def _step(self, phase: str, turns: list[Turn]) -> Step:
        sent = self._opened(self.letters.look(), turns[0].step)
        values = {
            **self.given,
            "s": turns[0].step,
            "processes": self.plan.P,
            "order": self.plan.order,
            "owners": tuple(turn.owner for turn in turns),
            "work": tuple(work for r, turn in enumerate(turns) for work in self._work(r, turn)),
            "letters": tuple(sent),
        }
        reads = tuple(tile for parcel in sent for tile in parcel.tiles)
        return Step(phase=phase, shapes=self.shapes, reads=reads, values=values, sentence=tell)

    def _opened(self, letters: list[Letter], s: int) -> list[Parcel]:
        """What is in the letters of step s, as tiles of whole matrices; K and V of a parcel are two letters."""
        counts: dict[tuple[int, int], int] = {}
        found = []
        for letter in letters:
            owner = (letter.source - s) % self.plan.P
            if letter.tensor.ndim == 5:  # dK and dV are one tensor
                names: tuple[str, ...] = ("dK", "dV")
                span = self.plan.route[owner][s][1]
            else:
                names = ("KV"[_next(counts, (letter.source, letter.to)) % 2],)
                span = self.plan.route[owner][s + 1][0]
            tiles = self._tiles(names, owner, span, letter.tensor)
            found.append(Parcel(letter.source, letter.to, " and ".join(names), owner, tuple(tiles)))
        return found

    def _tiles(self, names: tuple[str, ...], owner: int, span: Span, tensor: Tensor) -> list[Tile]:
        """Part of a share as chunks of whole matrices; RuntimeError if that is not what the tensor holds."""
        B, H, _, D = self.given["K"].shape
        chunks = zip(self.plan.chunks[owner], self.plan.places[owner], strict=True)
        here = [chunk for chunk, place in chunks if place[0] < place[1] and span[0] <= place[0] and place[1] <= span[1]]
        size = tensor.element_size()
        tiles = [Tile(name, ((0, B), (0, H), chunk, (0, D)), size) for name in names for chunk in here]
        if sum(tile.nbytes for tile in tiles) != tensor.nbytes:
            raise RuntimeError(f"expected {sum(tile.nbytes for tile in tiles)} bytes on the wire, got {tensor.nbytes}")
        return tiles

    def _work(self, r: int, turn: Turn) -> Iterator[Work]:
        """The blocks of S of one process in one step, chunk by chunk."""
        plan, j = self.plan, turn.owner
        mask = Mask(plan.N, plan.N, plan.left, plan.right)
        for visit in turn.visits:
            for rows in _met(visit.rows, plan, r):
                for cols in _met(visit.cols, plan, j):
                    pairs = _pairs(mask, rows, cols)
                    if pairs:
                        yield Work(r, rows, cols, pairs)


def _met(span: Span, plan: Plan, r: int) -> Iterator[Span]:
    """The pieces of the chunks of process r that a span of its share meets, in places of the whole sequence."""
    for chunk, place in zip(plan.chunks[r], plan.places[r], strict=True):
        start, stop = max(span[0], place[0]), min(span[1], place[1])
        if start < stop:
            yield chunk[0] + start - place[0], chunk[0] + stop - place[0]


def _pairs(mask: Mask, rows: Span, cols: Span) -> int:
    """Pairs of a query and a key of a block that the mask leaves."""
    if not mask.crosses(rows, cols):
        return (rows[1] - rows[0]) * (cols[1] - cols[0])
    keys = (mask.keys((i, i + 1)) for i in range(*rows))
    return sum(max(0, min(stop, cols[1]) - max(start, cols[0])) for start, stop in keys)


def tell(step: Step) -> str:
    """What happened in a step of the ring, in one sentence."""
    if step.phase == "done":
        return "Every process has its share of the result."
    s, P, work = step.values["s"], step.values["processes"], step.values["work"]
    busy = len({block.process for block in work})
    where = "their own K and V" if s == 0 else f"the K and V that have come {s} {'place' if s == 1 else 'places'}"
    sent = sum(tile.nbytes for tile in step.reads)
    wire = f"meanwhile {sent:,} bytes pass over the wire" if sent else "nothing is sent any more"
    return f"{step.phase.capitalize()}, step {s}: {busy} of {P} processes compute with {where}; {wire}."
