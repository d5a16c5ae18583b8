"""Ring attention: every process keeps its queries, and the keys of all others pass by.

    for s in 0 .. P-1:                                 process r holds K, V of j = r - s (mod P)
        send K, V on to r + 1, receive those of the next step from r - 1             while
        o_s, lse_s = attention(Q_r, K_j, V_j)          as much of it as the mask leaves
        o, lse = merge((o, lse), (o_s, lse_s))         in float32, as in notebook 03

Backward K and V make the same journey. o, lse and delta of the queries are at home, so that every visit gives its
part of dQ at once, and its parts of dK and dV, which are summed in float32 as they travel along: the last visitor
sends them home. A process keeps part of the work with its own keys for the end, when they are still on their way.

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
from flashlearn.ring.communicator import Pending, Wire
from flashlearn.ring.plan import Plan, Visit

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
    `window` and `scale` are as in `flash_attention`, in places of the whole sequence. Returns o, shaped as q, and
    with `return_lse` also lse (B, H_q, n) in float32 (float64 for float64); both carry gradients.

    Every process of the group must call this, and call backward if one does. Shares, dtypes or options that do not fit
    together are a ValueError or TypeError, the same in every process; a process that is gone, or late by more than the
    group's time limit, a RuntimeError in all that wait for it.
    """
    q, k, v = cast(q, k, v)
    wire = Wire(group, q.device if isinstance(q, Tensor) else torch.device("cpu"))
    options = {"causal": causal, "window": window, "scale": scale, "return_lse": return_lse}
    plan, scale = agree(wire, q, k, v, order=order, **options)
    o, lse = run_ring(q, k, v, wire, plan, scale)
    return (o, lse) if return_lse else o


def run_ring(q: Tensor, k: Tensor, v: Tensor, wire: Any, plan: Plan, scale: float) -> tuple[Tensor, Tensor]:
    """o and lse of this process, with their derivatives."""
    return _Ring.apply(q, k, v, wire, plan, scale)


def cast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """The inputs as autocast would have them."""
    tensors = all(isinstance(t, Tensor) for t in (q, k, v))
    if not tensors or q.is_meta or not torch.is_autocast_enabled(q.device.type):
        return q, k, v
    dtype = torch.get_autocast_dtype(q.device.type)
    return tuple(t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (q, k, v))


class _Ring(torch.autograd.Function):
    """The two generators below, run to their ends."""

    @staticmethod
    def forward(ctx, q, k, v, wire, plan, scale):
        o, lse = finish(forward_turns(wire, plan, q, k, v, scale))
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.set_materialize_grads(False)  # no zeros for the gradient of an lse that nobody used
        ctx.wire, ctx.plan, ctx.scale = wire, plan, scale
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse = ctx.saved_tensors
        do = torch.zeros_like(o) if do is None else do.contiguous()
        rows = local.Rows(do, dlse, q, o, lse)  # handed over one by one: autograd looks into no tuple
        return *_RingGradient.apply(ctx.wire, ctx.plan, ctx.scale, k, v, *rows), None, None, None


class _RingGradient(torch.autograd.Function):
    """dq, dk and dv, which have no derivative: PyTorch's `once_differentiable` drops it in silence where dO needs none."""

    @staticmethod
    def forward(ctx, wire, plan, scale, k, v, *rows):
        return finish(backward_turns(wire, plan, local.Rows(*rows), k, v, scale))

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError(
            "ring_attention and ulysses_attention are differentiable once; for second derivatives use "
            "flashlearn.standard_attention on the whole sequence"
        )


class Turn(NamedTuple):
    """What a process did in one step: whose keys it had, and which visits it computed."""

    step: int
    owner: int
    visits: tuple[Visit, ...]


Turns = Generator[Turn, None, Any]


def finish(turns: Turns) -> Any:
    """What a generator returns in the end."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return end.value


def forward_turns(wire: Any, plan: Plan, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Turns:
    """The forward pass of one process, a turn for each step; returns o and lse. The messages go through `wire`."""
    r, found = wire.rank, Result(plan, wire.rank, q)
    caravan = Caravan(wire, plan, k, v)
    for s in range(wire.size):
        j = (r - s) % wire.size
        K, V = caravan.arrive(s)
        caravan.send_on(s)
        for visit in plan.visits[r][j]:
            cols = caravan.within(j, s, visit.cols)
            o, lse = local.forward(at(q, visit.rows), at(K, cols), at(V, cols), visit, scale)
            found.add(visit.rows, o, lse)
        caravan.done(s)
        yield Turn(s, j, plan.visits[r][j])
    return found.all()


def backward_turns(wire: Any, plan: Plan, rows: local.Rows, k: Tensor, v: Tensor, scale: float) -> Turns:
    """The backward pass of one process, a turn for each step; returns dq, dk and dv."""
    r, P = wire.rank, wire.size
    grads = Gradients(rows, k, scale)
    caravan, way_home = Caravan(wire, plan, k, v), WayHome(wire, plan, k)
    early = slice(0, (k.shape[1] + 1) // 2 if P > 1 else None)
    for s in range(P):
        j = (r - s) % P
        K, V = caravan.arrive(s)
        caravan.send_on(s)
        parts = []
        for visit in plan.visits[r][j]:
            cols = caravan.within(j, s, visit.cols)
            if j == r:
                grads.own(visit, K, V, cols, early)
            else:
                parts.append((visit.cols, *grads.visit(visit, at(K, cols), at(V, cols))))
        caravan.done(s)
        way_home.pass_on(s, parts, grads.dk, grads.dv)
        yield Turn(s, j, plan.visits[r][j])
    for visit in plan.visits[r][r]:
        grads.own(visit, k, v, visit.cols, slice(early.stop, None) if P > 1 else slice(0, 0))
    way_home.end(grads.dk, grads.dv)
    return tuple(sum_.to(k.dtype) for sum_ in (grads.dq, grads.dk, grads.dv))


def at(t: Tensor, span: Span) -> Tensor:
    """The tokens (start, stop)."""
    return t[:, :, span[0] : span[1]]


class Caravan:
    """K and V on their journey: what this process holds in step s, and what is on its way for the next."""

    def __init__(self, wire: Any, plan: Plan, k: Tensor, v: Tensor):
        self.wire, self.plan = wire, plan
        self.held: tuple[Tensor, Tensor] = (k.contiguous(), v.contiguous())
        self.next = self.held
        self.pending: Pending | None = None
        most = max(plan.size(j) for j in range(wire.size)) * k.shape[0] * k.shape[1] * k.shape[3]
        room = range(min(wire.size - 1, BUFFERS))
        self.buffers = [(k.new_empty(most), k.new_empty(most)) for _ in room]
        self.free = [wire.mark() for _ in room]  # when the kernels are done with a buffer
        self.shape = k.shape

    def arrive(self, s: int) -> tuple[Tensor, Tensor]:
        """The K and V of step s, of `Plan.travels` their part."""
        if self.pending:
            self.pending.wait()
        self.held = self.next
        return self.held

    def send_on(self, s: int) -> None:
        """Begin to pass on what those after this process need, and to receive what step s + 1 needs."""
        r, P = self.wire.rank, self.wire.size
        if s + 1 == P:
            return
        here, there = (r - s) % P, (r - s - 1) % P
        part, slot = self.plan.route[here][s + 1][0], s % len(self.buffers)
        cols = self.within(here, s, part)
        leaving = [at(t, cols).contiguous() for t in self.held] if part[0] < part[1] else []
        copied = bool(leaving) and leaving[0].data_ptr() != self.held[0].data_ptr()
        size = (*self.shape[:2], _length(self.plan.route[there][s + 1][0]), self.shape[3])
        self.next = tuple(_shaped(flat, size) for flat in self.buffers[slot])  # type: ignore[assignment]
        after = self.wire.mark() if copied else self.free[slot]  # a copy must be made before it is sent
        self.pending = self.wire.exchange(
            [(t, (r + 1) % P) for t in leaving], [(t, (r - 1) % P) for t in self.next], after
        )

    def done(self, s: int) -> None:
        """The kernels of step s have been launched: after them its buffer is free."""
        if s:
            self.free[(s - 1) % len(self.buffers)] = self.wire.mark()

    def within(self, j: int, s: int, cols: Span) -> Span:
        """Columns of the share of j, in what arrived of it in step s."""
        first = self.plan.route[j][s][0][0] if s else 0
        return cols[0] - first, cols[1] - first


class WayHome:
    """dK and dV of others, summed as they travel with their K and V, and sent home after the last visit."""

    def __init__(self, wire: Any, plan: Plan, k: Tensor):
        self.wire, self.plan, self.k = wire, plan, k
        self.pending: Pending | None = None
        self.came: Tensor | None = None  # what others have added up for the owner of the next step
        self.home: tuple[Span, Tensor] | None = None  # what has come for this process itself

    def pass_on(self, s: int, parts: list[tuple[Span, Tensor, Tensor]], dk: Tensor, dv: Tensor) -> None:
        """Add what step s gave to what came along; send it on, or home; begin to receive what step s + 1 adds to."""
        r, P = self.wire.rank, self.wire.size
        came = self._arrived(dk, dv)
        j, before = (r - s) % P, (r - s - 1) % P
        sends, receives = [], []
        if 0 < s <= self.plan.lasts[j]:
            to = (r + 1) % P if s < self.plan.lasts[j] else j
            sends = [(self._total(j, s, came, parts), to)]
        if 0 < s < self.plan.lasts[before]:
            self.came = self._room(self.plan.route[before][s][1])
            receives = [(self.came, (r - 1) % P)]
        if 0 < s == self.plan.lasts[r]:
            span = self.plan.route[r][s][1]
            self.home = (span, self._room(span))
            receives.append((self.home[1], (r + s) % P))
        if sends or receives:
            self.pending = self.wire.exchange(sends, receives, self.wire.mark())

    def end(self, dk: Tensor, dv: Tensor) -> None:
        """Wait for what is still under way."""
        self._arrived(dk, dv)

    def _arrived(self, dk: Tensor, dv: Tensor) -> Tensor | None:
        """What came along for the owner of this step; what came home is added."""
        if self.pending:
            self.pending.wait()
        came, home = self.came, self.home
        self.pending = self.came = self.home = None
        if home:
            at(dk, home[0]).add_(home[1][0])
            at(dv, home[0]).add_(home[1][1])
        return came

    def _room(self, span: Span) -> Tensor:
        """dK and dV (2, B, H_kv, n, D) of a part of a share, in the dtype that sums are kept in."""
        B, H, _, D = self.k.shape
        return self.k.new_empty((2, B, H, _length(span), D), dtype=accumulator(self.k.dtype))

    def _total(self, j: int, s: int, came: Tensor | None, parts: list[tuple[Span, Tensor, Tensor]]) -> Tensor:
        """What the visitors of j up to step s give to its dK and dV."""
        span = self.plan.route[j][s][1]
        if came is None and len(parts) == 1 and parts[0][0] == span:
            return torch.stack([t.to(accumulator(t.dtype)) for t in parts[0][1:]])
        earlier = self.plan.route[j][s - 1][1]
        if came is None or earlier != span:
            total = self._room(span).zero_()
            if came is not None:
                total[:, :, :, earlier[0] - span[0] : earlier[1] - span[0]] += came
        else:
            total = came
        for cols, *grads in parts:
            for sum_, grad in zip(total, grads, strict=True):
                at(sum_, (cols[0] - span[0], cols[1] - span[0])).add_(grad)
        return total


def _length(span: Span) -> int:
    return span[1] - span[0]


def _shaped(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The beginning of a buffer, in this shape."""
    B, H, n, D = shape
    return flat[: B * H * n * D].view(shape)


class Result:
    """o and lse of a process, as visit after visit merges into them; chunk by chunk, for their visits differ.

    The sum is kept in float32 from the second visit to the last but one: the first result is taken as it is, the
    last sum written in the dtype of q.
    """

    def __init__(self, plan: Plan, r: int, q: Tensor):
        self.places = [place for place in plan.places[r] if _length(place)]
        self.o = torch.empty_like(q, memory_format=torch.contiguous_format)
        self.lse = q.new_empty(q.shape[:3], dtype=accumulator(q.dtype))
        self.sums: list[Tensor | None] = [None] * len(self.places)
        rows = [visit.rows for visits in plan.visits[r] for visit in visits]
        self.whole = [all(_covers(span, place) or not _meets(span, place) for span in rows) for place in self.places]
        self.left = [sum(_meets(span, place) for span in rows) for place in self.places]
        self.blind = [not left for left in self.left]  # chunks that see nothing

    def add(self, rows: Span, o: Tensor, lse: Tensor) -> None:
        """Merge the result of one visit."""
        for c, place in enumerate(self.places):
            if _meets(rows, place):
                span = max(rows[0], place[0]), min(rows[1], place[1])
                part = span[0] - rows[0], span[1] - rows[0]
                self._add(c, span, at(o, part), at(lse, part))

    def _add(self, c: int, span: Span, o: Tensor, lse: Tensor) -> None:
        place, sum_ = self.places[c], self.sums[c]
        self.left[c] -= 1
        if sum_ is None and self.whole[c]:
            at(self.lse, place).copy_(lse)
            self.sums[c] = o if self.left[c] else at(self.o, place).copy_(o)
            return
        if sum_ is None:
            sum_ = self.sums[c] = o.new_zeros((*o.shape[:2], _length(place), o.shape[3]), dtype=self.lse.dtype)
            at(self.lse, place).fill_(-INF)
        within = span[0] - place[0], span[1] - place[0]
        ends = self.whole[c] and not self.left[c]
        if self.whole[c] and not ends and sum_.dtype != self.lse.dtype:
            self.sums[c] = torch.empty_like(sum_, dtype=self.lse.dtype, memory_format=torch.contiguous_format)
        out = at(self.o, place) if ends else at(self.sums[c], within)  # type: ignore[arg-type]
        local.merge(at(sum_, within), at(self.lse, span), o, lse, out)
        self.sums[c] = None if ends else self.sums[c]

    def all(self) -> tuple[Tensor, Tensor]:
        """o and lse, of rows that saw no key 0 and -inf."""
        for c, place in enumerate(self.places):
            sum_ = self.sums[c]
            if self.blind[c]:
                at(self.o, place).zero_()
                at(self.lse, place).fill_(-INF)
            elif sum_ is not None:
                at(self.o, place).copy_(sum_)
        return self.o, self.lse


def _meets(a: Span, b: Span) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


def _covers(a: Span, b: Span) -> bool:
    return a[0] <= b[0] and b[1] <= a[1]


class Gradients:
    """dQ, dK and dV of one process, summed in float32, and what a visit gives to them."""

    def __init__(self, rows: local.Rows, k: Tensor, scale: float):
        self.rows, self.scale, self.group = rows, scale, rows.q.shape[1] // k.shape[1]
        dtype = accumulator(k.dtype)
        self.dq = torch.zeros_like(rows.q, dtype=dtype, memory_format=torch.contiguous_format)
        self.dk, self.dv = (torch.zeros_like(k, dtype=dtype, memory_format=torch.contiguous_format) for _ in range(2))

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
        rows = self.rows.part(slice(first, stop), visit.rows)
        dq, dk, dv = local.backward(rows, K, V, visit, self.scale)
        at(self.dq, visit.rows)[:, first:stop].add_(dq)
        return dk, dv
