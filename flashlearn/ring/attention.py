"""Ring attention: every process keeps its queries, and receives the keys of all others one after another.

    for s in 0 .. P-1:                                 process r holds K, V of j = r - s (mod P)
        send K, V on to r + 1, receive those of the next step from r - 1             meanwhile
        o_s, lse_s = attention(Q_r, K_j, V_j)          as much of it as the mask leaves
        o, lse = merge((o, lse), (o_s, lse_s))         in float32, as in notebook 03

Backward, K and V make the same journey. o, lse and delta stay with their queries, so every visit gives its part of dQ
at once. Its parts of dK and dV are summed in float32 as they travel, and the last visitor sends them to their owner. A
process computes half of its own heads at the end, while these are under way.

Source: H. Liu et al., "Ring Attention with Blockwise Transformers", 2023 (arXiv:2310.01889).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from flashlearn.core.mask import Window
from flashlearn.core.numerics import INF, Span, accumulator
from flashlearn.ring import local
from flashlearn.ring.agreement import agree
from flashlearn.ring.communicator import Communicator, Pending
from flashlearn.ring.plan import Plan, Visit, length, overlap, shifted

BUFFERS = 3  # for K and V that arrive: one computed with, one on its way, one that may still be sent on


@overload
def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, *, order: str, group: Any = None, causal: bool = False,
    window: Window | None = None, scale: float | None = None, return_lse: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, *, order: str, group: Any = None, causal: bool = False,
    window: Window | None = None, scale: float | None = None, return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, *, order: str, group: Any = None, causal: bool = False,
    window: Window | None = None, scale: float | None = None, return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """This process's share of O = softmax(Q K^T scale) V, over all tokens of all processes; differentiable once.

    q (B, H_q, n, D); k, v (B, H_kv, n, D): the shares that `flashlearn.ring.split` makes of N tokens in this `order`,
    "plain" or "zigzag". The order has no default: shares in another order give a wrong result in silence. `causal`,
    `window` and `scale` are as in `flash_attention`, in positions of the whole sequence. Returns o, shaped as q, and
    with `return_lse` also lse (B, H_q, n) in float32 (float64 for float64); both carry gradients.

    Every process of the group must call this, and call backward if one does. Shares, dtypes or options that do not fit
    together are a ValueError or TypeError, the same in every process. A process that is gone, or late by more than the
    group's time limit, is a RuntimeError in all that wait for it.
    """
    options = {"order": order, "causal": causal, "window": window, "scale": scale, "return_lse": return_lse}
    q, k, v, comm, plan, scale = agreed(q, k, v, group, **options)
    o, lse = run_ring(q, k, v, comm, plan, scale)
    return (o, lse) if return_lse else o


def agreed(q: Tensor, k: Tensor, v: Tensor, group: Any, **options: Any) -> tuple:
    """q, k and v as autocast has them, the communicator, and the plan and the scale on which all processes agree."""
    tensors = all(isinstance(t, Tensor) for t in (q, k, v))
    if tensors and not q.is_meta and torch.is_autocast_enabled(q.device.type):
        dtype = torch.get_autocast_dtype(q.device.type)
        q, k, v = (t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (q, k, v))
    comm = Communicator(group, q.device if isinstance(q, Tensor) else torch.device("cpu"))
    return q, k, v, comm, *agree(comm, q, k, v, **options)


def run_ring(q: Tensor, k: Tensor, v: Tensor, comm: Any, plan: Plan, scale: float) -> tuple[Tensor, Tensor]:
    """o and lse of this process, with their derivatives."""
    return _Ring.apply(q, k, v, comm, plan, scale)


class _Ring(torch.autograd.Function):
    """The two generators below, run to their ends."""

    @staticmethod
    def forward(ctx, q, k, v, comm, plan, scale):
        o, lse = finish(forward_steps(comm, plan, q, k, v, scale))
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.set_materialize_grads(False)  # no zeros for the gradient of an unused lse
        ctx.comm, ctx.plan, ctx.scale = comm, plan, scale
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse = ctx.saved_tensors
        do = torch.zeros_like(o) if do is None else do.contiguous()
        queries = local.Queries(do, dlse, q, o, lse)  # passed one by one: autograd looks into no tuple
        return *_RingGradient.apply(ctx.comm, ctx.plan, ctx.scale, k, v, *queries), None, None, None


class _RingGradient(torch.autograd.Function):
    """dq, dk and dv, which have no derivative: PyTorch's `once_differentiable` drops it in silence where dO needs none."""

    @staticmethod
    def forward(ctx, comm, plan, scale, k, v, *queries):
        return finish(backward_steps(comm, plan, local.Queries(*queries), k, v, scale))

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError(
            "ring_attention and ulysses_attention are differentiable once; for second derivatives use "
            "flashlearn.standard_attention on the whole sequence"
        )


class RankStep(NamedTuple):
    """One step of a process: the owner of its keys, and the visits that it computed."""

    step: int
    owner: int
    visits: tuple[Visit, ...]


RankSteps = Generator[RankStep, None, Any]


def finish(steps: RankSteps) -> Any:
    """The return value of a generator."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def forward_steps(comm: Any, plan: Plan, q: Tensor, k: Tensor, v: Tensor, scale: float) -> RankSteps:
    """The forward pass of one process; returns o and lse. The messages go through `comm`."""
    r, result = comm.rank, Result(plan, comm.rank, q)
    ring = KVRing(comm, plan, k, v)
    for s in range(comm.size):
        j = (r - s) % comm.size
        K, V = ring.arrive()
        ring.send_on(s)
        for visit in plan.visits[r][j]:
            cols = ring.within(j, s, visit.cols)
            result.add(visit.rows, *local.forward(at(q, visit.rows), at(K, cols), at(V, cols), visit, scale))
        ring.done(s)
        yield RankStep(s, j, plan.visits[r][j])
    return result.all()


def backward_steps(comm: Any, plan: Plan, queries: local.Queries, k: Tensor, v: Tensor, scale: float) -> RankSteps:
    """The backward pass of one process; returns dq, dk and dv."""
    r, P = comm.rank, comm.size
    grads = Gradients(queries, k, scale)
    ring, gradient_ring = KVRing(comm, plan, k, v), GradientRing(comm, plan, k)
    early = slice(0, (k.shape[1] + 1) // 2 if P > 1 else None)
    for s in range(P):
        j = (r - s) % P
        K, V = ring.arrive()
        ring.send_on(s)
        parts = []
        for visit in plan.visits[r][j]:
            cols = ring.within(j, s, visit.cols)
            if j == r:
                grads.own(visit, K, V, cols, early)
            else:
                parts.append((visit.cols, *grads.visit(visit, at(K, cols), at(V, cols))))
        ring.done(s)
        gradient_ring.pass_on(s, parts, grads.dk, grads.dv)
        yield RankStep(s, j, plan.visits[r][j])
    for visit in plan.visits[r][r] if P > 1 else ():
        grads.own(visit, k, v, visit.cols, slice(early.stop, None))
    gradient_ring.arrive(grads.dk, grads.dv)
    return tuple(sum_.to(k.dtype) for sum_ in (grads.dq, grads.dk, grads.dv))


def at(t: Tensor, span: Span) -> Tensor:
    """The tokens (start, stop)."""
    return t[:, :, span[0] : span[1]]


class KVRing:
    """K and V in the ring: those of this process in step s, and those under way for the next."""

    def __init__(self, comm: Any, plan: Plan, k: Tensor, v: Tensor):
        self.comm, self.plan, self.shape = comm, plan, k.shape
        self.held = self.next = (k.contiguous(), v.contiguous())
        self.pending: Pending | None = None
        largest = max(plan.size(j) for j in range(comm.size)) * k.shape[0] * k.shape[1] * k.shape[3]
        buffers = range(min(comm.size - 1, BUFFERS))
        self.buffers = [(k.new_empty(largest), k.new_empty(largest)) for _ in buffers]
        self.free = [comm.mark() for _ in buffers]  # when the kernels are done with a buffer

    def arrive(self) -> tuple[Tensor, Tensor]:
        """Wait for the part of K and V that `Plan.route` sends to this step."""
        if self.pending:
            self.pending.wait()
        self.held = self.next
        return self.held

    def send_on(self, s: int) -> None:
        """Begin to pass on what those after this process need, and to receive what step s + 1 needs."""
        r, P = self.comm.rank, self.comm.size
        if s + 1 == P:
            return
        here, there = (r - s) % P, (r - s - 1) % P
        part, slot = self.plan.route[here][s + 1][0], s % len(self.buffers)
        leaving = [at(t, self.within(here, s, part)).contiguous() for t in self.held] if length(part) else []
        copied = bool(leaving) and leaving[0].data_ptr() != self.held[0].data_ptr()
        B, H, _, D = self.shape
        n = length(self.plan.route[there][s + 1][0])
        self.next = tuple(flat[: B * H * n * D].view(B, H, n, D) for flat in self.buffers[slot])  # type: ignore[assignment]
        after = self.comm.mark() if copied else self.free[slot]  # a copy must be made before it is sent
        right, left = (r + 1) % P, (r - 1) % P
        self.pending = self.comm.exchange([(t, right) for t in leaving], [(t, left) for t in self.next], after)

    def done(self, s: int) -> None:
        """The kernels of step s have been launched: after them its buffer is free."""
        if s:
            self.free[(s - 1) % len(self.buffers)] = self.comm.mark()

    def within(self, j: int, s: int, cols: Span) -> Span:
        """Columns of the share of j, in what arrived of it in step s."""
        return shifted(cols, -self.plan.route[j][s][0][0] if s else 0)


Parts = list[tuple[Span, Tensor, Tensor]]  # columns of a share, and the contribution of a visit to dK and dV there


class GradientRing:
    """dK and dV of others, summed as they travel with their K and V, and sent to their owner after the last visit."""

    def __init__(self, comm: Any, plan: Plan, k: Tensor):
        self.comm, self.plan, self.k = comm, plan, k
        self.pending: Pending | None = None
        self.came: Tensor | None = None  # the sum of others for the owner of the next step
        self.own: tuple[Span, Tensor] | None = None  # the sum of others for this process

    def pass_on(self, s: int, parts: Parts, dk: Tensor, dv: Tensor) -> None:
        """Add what step s gave to what arrived; send it on, or to its owner; begin to receive what step s + 1 adds to."""
        r, P, last = self.comm.rank, self.comm.size, self.plan.last
        came = self.arrive(dk, dv)
        j, before = (r - s) % P, (r - s - 1) % P
        sends, receives = [], []
        if 0 < s <= last[j]:
            sends = [(self._total(j, s, came, parts), (r + 1) % P if s < last[j] else j)]
        if 0 < s < last[before]:
            self.came = self._empty(self.plan.route[before][s][1])
            receives = [(self.came, (r - 1) % P)]
        if 0 < s == last[r]:
            span = self.plan.route[r][s][1]
            self.own = (span, self._empty(span))
            receives.append((self.own[1], (r + s) % P))
        if sends or receives:
            self.pending = self.comm.exchange(sends, receives, self.comm.mark())

    def arrive(self, dk: Tensor, dv: Tensor) -> Tensor | None:
        """Wait for what is under way: what has come for this process is added to dk and dv, the rest is returned."""
        if self.pending:
            self.pending.wait()
        came, own = self.came, self.own
        self.pending = self.came = self.own = None
        if own:
            span, grads = own
            at(dk, span).add_(grads[0])
            at(dv, span).add_(grads[1])
        return came

    def _empty(self, span: Span) -> Tensor:
        """dK and dV (2, B, H_kv, n, D) of a part of a share, in the dtype that sums are kept in."""
        B, H, _, D = self.k.shape
        return self.k.new_empty((2, B, H, length(span), D), dtype=accumulator(self.k.dtype))

    def _total(self, j: int, s: int, came: Tensor | None, parts: Parts) -> Tensor:
        """What the visitors of j up to step s give to its dK and dV."""
        span, earlier = self.plan.route[j][s][1], self.plan.route[j][s - 1][1]
        if came is None and len(parts) == 1 and parts[0][0] == span:
            return torch.stack([t.to(accumulator(t.dtype)) for t in parts[0][1:]])
        if came is not None and earlier == span:
            total = came
        else:
            total = self._empty(span).zero_()
            if came is not None:
                total[:, :, :, earlier[0] - span[0] : earlier[1] - span[0]] += came
        for cols, *grads in parts:
            for sum_, grad in zip(total, grads, strict=True):
                at(sum_, shifted(cols, -span[0])).add_(grad)
        return total


class Result:
    """o and lse of a process, as visit after visit merges into them; chunk by chunk, for their visits differ.

    The sum is kept in float32 from the second visit to the last but one. The first result is taken as it is, and the
    last sum is written in the dtype of q.
    """

    def __init__(self, plan: Plan, r: int, q: Tensor):
        self.chunks = [chunk for chunk in plan.offsets[r] if length(chunk)]
        self.o = torch.empty_like(q, memory_format=torch.contiguous_format)
        self.lse = q.new_empty(q.shape[:3], dtype=accumulator(q.dtype))
        self.sums: list[Tensor | None] = [None] * len(self.chunks)
        rows = [visit.rows for visits in plan.visits[r] for visit in visits]
        met = [[length(overlap(span, chunk)) for span in rows] for chunk in self.chunks]
        self.whole = [set(sizes) <= {0, length(chunk)} for sizes, chunk in zip(met, self.chunks, strict=True)]
        self.left = [sum(map(bool, sizes)) for sizes in met]
        self.blind = [not left for left in self.left]  # chunks that attend to nothing

    def add(self, rows: Span, o: Tensor, lse: Tensor) -> None:
        """Merge the result of one visit."""
        for c, chunk in enumerate(self.chunks):
            span = overlap(rows, chunk)
            if length(span):
                part = shifted(span, -rows[0])
                self._add(c, span, at(o, part), at(lse, part))

    def _add(self, c: int, span: Span, o: Tensor, lse: Tensor) -> None:
        chunk, sum_ = self.chunks[c], self.sums[c]
        self.left[c] -= 1
        if sum_ is None and self.whole[c]:
            at(self.lse, chunk).copy_(lse)
            self.sums[c] = o if self.left[c] else at(self.o, chunk).copy_(o)
            return
        if sum_ is None:
            sum_ = self.sums[c] = o.new_zeros((*o.shape[:2], length(chunk), o.shape[3]), dtype=self.lse.dtype)
            at(self.lse, chunk).fill_(-INF)
        within = shifted(span, -chunk[0])
        last = self.whole[c] and not self.left[c]
        if self.whole[c] and not last and sum_.dtype != self.lse.dtype:
            self.sums[c] = torch.empty_like(sum_, dtype=self.lse.dtype, memory_format=torch.contiguous_format)
        out = at(self.o, chunk) if last else at(self.sums[c], within)  # type: ignore[arg-type]
        local.merge(at(sum_, within), at(self.lse, span), o, lse, out)
        if last:
            self.sums[c] = None

    def all(self) -> tuple[Tensor, Tensor]:
        """o and lse; 0 and -inf for queries that attend to no key."""
        for c, chunk in enumerate(self.chunks):
            sum_ = self.sums[c]
            if self.blind[c]:
                at(self.o, chunk).zero_()
                at(self.lse, chunk).fill_(-INF)
            elif sum_ is not None:
                at(self.o, chunk).copy_(sum_)
        return self.o, self.lse


class Gradients:
    """dQ, dK and dV of one process, summed in float32, and what a visit gives to them."""

    def __init__(self, queries: local.Queries, k: Tensor, scale: float):
        self.queries, self.scale, self.group = queries, scale, queries.q.shape[1] // k.shape[1]
        self.dq, self.dk, self.dv = (
            torch.zeros_like(t, dtype=accumulator(k.dtype), memory_format=torch.contiguous_format)
            for t in (queries.q, k, k)
        )

    def own(self, visit: Visit, K: Tensor, V: Tensor, cols: Span, heads: slice) -> None:
        """A visit to the process's own keys, of some of their heads."""
        K, V = K[:, heads], V[:, heads]
        if K.numel():
            dk, dv = self.visit(visit, at(K, cols), at(V, cols), heads)
            at(self.dk, visit.cols)[:, heads].add_(dk)
            at(self.dv, visit.cols)[:, heads].add_(dv)

    def visit(self, visit: Visit, K: Tensor, V: Tensor, heads: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """dK and dV of one visit; its dQ is added. `heads` are those of K and V."""
        first, stop = (None if end is None else end * self.group for end in (heads.start, heads.stop))
        queries = self.queries.part(slice(first, stop), visit.rows)
        dq, dk, dv = local.backward(queries, K, V, visit, self.scale)
        at(self.dq, visit.rows)[:, first:stop].add_(dq)
        return dk, dv
