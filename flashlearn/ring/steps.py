"""The ring in one process, for pictures and counts: the same code as over many, with a dictionary in place of messages.

    for step in ring_attention_steps(q, k, v, P=4, order="zigzag", causal=True): ...

A step is one step of the ring, in which all P processes compute at the same time. Its `reads` are what is sent
meanwhile, so `hbm_bytes` of such steps counts the bytes of messages. It has no `writes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from flashlearn.algorithms.problem import backward_shapes
from flashlearn.core.inputs import check_block, check_like, check_qkv
from flashlearn.core.mask import Mask, Window
from flashlearn.core.numerics import Span
from flashlearn.core.steps import Step, Tile
from flashlearn.ring.agreement import scale_of
from flashlearn.ring.attention import RankStep, RankSteps, backward_steps, forward_steps
from flashlearn.ring.local import Queries
from flashlearn.ring.plan import Plan, length, overlap, plan_of, shifted
from flashlearn.ring.sharing import share, whole


class Sent(NamedTuple):
    """The contents of a message: tiles of K or V, or of both gradients, of one owner."""

    source: int
    to: int
    name: str
    owner: int
    tiles: tuple[Tile, ...]


class Mailbox:
    """The messages between P processes: those not yet received, and a list of those sent since the last step."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[int, int, int], Tensor] = {}  # (from, to, number) -> tensor
        self.sent: Counter[tuple[int, int]] = Counter()
        self.received: Counter[tuple[int, int]] = Counter()
        self.new: list[tuple[int, int, Tensor]] = []  # from, to, tensor


class Endpoint:
    """A substitute for a `Communicator`: the messages of one process by way of the mailbox."""

    def __init__(self, mailbox: Mailbox, rank: int, size: int):
        self.mailbox, self.rank, self.size = mailbox, rank, size

    def mark(self) -> None:
        """Nothing waits: all is done in order."""

    def exchange(
        self, sends: list[tuple[Tensor, int]], receives: list[tuple[Tensor, int]], after: Any = None
    ) -> Receiving:
        """Send now; what is to be received is taken from the mailbox by `Receiving.wait`."""
        mailbox, pending = self.mailbox, []
        for tensor, source in receives:
            if tensor.numel():
                pending.append((tensor, (source, self.rank, mailbox.received[source, self.rank])))
                mailbox.received[source, self.rank] += 1
        for tensor, to in sends:
            if tensor.numel():
                mailbox.waiting[self.rank, to, mailbox.sent[self.rank, to]] = tensor.clone()
                mailbox.sent[self.rank, to] += 1
                mailbox.new.append((self.rank, to, tensor.clone()))
        return Receiving(mailbox, pending)


class Receiving:
    """Messages that are to come."""

    def __init__(self, mailbox: Mailbox, messages: list[tuple[Tensor, tuple[int, int, int]]]):
        self.mailbox, self.messages = mailbox, messages

    def wait(self) -> None:
        """Take the messages; KeyError for one that nobody has sent."""
        for tensor, address in self.messages:
            tensor.copy_(self.mailbox.waiting.pop(address))


class Work(NamedTuple):
    """What a process computes in a step: a block of S, in positions of the whole sequence, and how much of it the mask leaves."""

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
    messages    what was sent meanwhile: `Sent`
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
    shares = [[share(t, chunks) for t in (q, k, v)] for chunks in plan.chunks]
    forward = [forward_steps(ring.endpoint(r), plan, Q, K, V, scale) for r, (Q, K, V) in enumerate(shares)]
    o_lse = yield from ring.run("forward", forward)
    output = [whole(plan, parts) for parts in zip(*o_lse, strict=True)]
    if do is not None:
        backward = []
        for r, (Q, K, V) in enumerate(shares):
            queries = Queries(share(do, plan.chunks[r]), None, Q, *o_lse[r])
            backward.append(backward_steps(ring.endpoint(r), plan, queries, K, V, scale))
        grads = yield from ring.run("backward", backward)
        output += [whole(plan, parts) for parts in zip(*grads, strict=True)]
    yield Step(phase="done", shapes=ring.shapes, values=ring.given, output=tuple(output), sentence=caption)


class _Ring:
    """P generators that run step by step together, and the steps that are made of it."""

    def __init__(self, plan: Plan, given: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]):
        self.plan, self.given, self.shapes, self.mailbox = plan, given, shapes, Mailbox()

    def endpoint(self, r: int) -> Endpoint:
        return Endpoint(self.mailbox, r, self.plan.P)

    def run(self, phase: str, processes: list[RankSteps]) -> Generator[Step, None, list[Any]]:
        """A step for each step of all processes; returns what the processes return, in order."""
        results: list[Any] = []
        while not results:
            steps: list[RankStep] = []
            for process in processes:
                try:
                    steps.append(next(process))
                except StopIteration as end:
                    results.append(end.value)
            if steps:
                yield self._step(phase, steps)
        return results

    def _step(self, phase: str, steps: list[RankStep]) -> Step:
        sent = tuple(self._sent(steps[0].step))
        values = {
            **self.given,
            "s": steps[0].step,
            "processes": self.plan.P,
            "order": self.plan.order,
            "owners": tuple(step.owner for step in steps),
            "work": tuple(work for r, step in enumerate(steps) for work in self._work(r, step)),
            "messages": sent,
        }
        reads = tuple(tile for message in sent for tile in message.tiles)
        return Step(phase=phase, shapes=self.shapes, reads=reads, values=values, sentence=caption)

    def _sent(self, s: int) -> Iterator[Sent]:
        """The messages of step s, as tiles of whole matrices: K, then V, or both gradients as one tensor."""
        new, self.mailbox.new = self.mailbox.new, []
        counts: Counter[tuple[int, int]] = Counter()
        for source, to, tensor in new:
            owner = (source - s) % self.plan.P
            if tensor.ndim == 5:  # dK and dV are one tensor
                names: tuple[str, ...] = ("dK", "dV")
                span = self.plan.route[owner][s][1]
            else:
                names = ("KV"[counts[source, to] % 2],)
                span = self.plan.route[owner][s + 1][0]
                counts[source, to] += 1
            yield Sent(source, to, " and ".join(names), owner, tuple(self._tiles(names, owner, span, tensor)))

    def _tiles(self, names: tuple[str, ...], owner: int, span: Span, tensor: Tensor) -> list[Tile]:
        """Part of a share as chunks of whole matrices; RuntimeError if that is not what the tensor holds."""
        B, H, _, D = self.given["K"].shape
        chunks = zip(self.plan.chunks[owner], self.plan.offsets[owner], strict=True)
        here = [chunk for chunk, offsets in chunks if length(offsets) and overlap(offsets, span) == offsets]
        size = tensor.element_size()
        tiles = [Tile(name, ((0, B), (0, H), chunk, (0, D)), size) for name in names for chunk in here]
        if sum(tile.nbytes for tile in tiles) != tensor.nbytes:
            raise RuntimeError(f"expected a message of {sum(tile.nbytes for tile in tiles)} bytes, got {tensor.nbytes}")
        return tiles

    def _work(self, r: int, step: RankStep) -> Iterator[Work]:
        """The blocks of S of one process in one step, chunk by chunk."""
        mask = Mask(self.plan.N, self.plan.N, self.plan.left, self.plan.right)
        for visit in step.visits:
            for rows in _in_the_sequence(visit.rows, self.plan, r):
                for cols in _in_the_sequence(visit.cols, self.plan, step.owner):
                    pairs = _pairs(mask, rows, cols)
                    if pairs:
                        yield Work(r, rows, cols, pairs)


def _in_the_sequence(span: Span, plan: Plan, r: int) -> Iterator[Span]:
    """A range of the share of process r, chunk by chunk, in positions of the whole sequence."""
    for chunk, offsets in zip(plan.chunks[r], plan.offsets[r], strict=True):
        met = overlap(span, offsets)
        if length(met):
            yield shifted(met, chunk[0] - offsets[0])


def _pairs(mask: Mask, rows: Span, cols: Span) -> int:
    """Pairs of a query and a key of a block that the mask leaves."""
    if not mask.crosses(rows, cols):
        return length(rows) * length(cols)
    return sum(length(overlap(mask.keys((i, i + 1)), cols)) for i in range(*rows))


def caption(step: Step) -> str:
    """The caption of a step of the ring."""
    if step.phase == "done":
        return "Every process has its share of the result."
    s, P, work = step.values["s"], step.values["processes"], step.values["work"]
    busy = len({block.process for block in work})
    where = "their own K and V" if s == 0 else f"the K and V that have come {s} {'place' if s == 1 else 'places'}"
    sent = sum(tile.nbytes for tile in step.reads)
    messages = f"meanwhile {sent:,} bytes pass over the wire" if sent else "nothing is sent any more"
    return f"{step.phase.capitalize()}, step {s}: {busy} of {P} processes compute with {where}; {messages}."
