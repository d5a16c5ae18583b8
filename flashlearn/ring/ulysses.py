"""Ulysses: for the time of attention every process gives up most heads for all tokens of the others.

    q, k, v  (B, H, n, D), all heads of a share   ->  all to all  ->  (B, H / P, N, D), some heads of all tokens
    o = attention(q, k, v)                            one call, nothing to merge, whatever the mask
    o        (B, H / P, N, D)                     ->  all to all  ->  (B, H, n, D)

Each of the four crossings moves the part (P - 1) / P of a tensor once, so that a process sends less the more there are of
them, where the ring sends all of K and V on and on. The price: P must divide the numbers of heads, and nothing is computed
while tensors cross. With fewer heads of K and V than processes, copy heads before the call; the copies are sent, too.

Source: S. A. Jacobs et al., "DeepSpeed Ulysses", 2023 (arXiv:2309.14509).
"""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor

from flashlearn.core.mask import Window
from flashlearn.ring.agreement import agree
from flashlearn.ring.attention import at, cast, run_ring
from flashlearn.ring.communicator import Alone, Wire
from flashlearn.ring.plan import Plan, plan_of


@overload
def ulysses_attention(
    q: Tensor, k: Tensor, v: Tensor, *, order: str, group: Any = None, causal: bool = False,
    window: Window | None = None, scale: float | None = None, return_lse: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def ulysses_attention(
    q: Tensor, k: Tensor, v: Tensor, *, order: str, group: Any = None, causal: bool = False,
    window: Window | None = None, scale: float | None = None, return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
def ulysses_attention(
    q: Tensor, k: Tensor, v: Tensor, *, order: str, group: Any = None, causal: bool = False,
    window: Window | None = None, scale: float | None = None, return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """`ring_attention` by another way: same shares, same results, same errors; H_q and H_kv must be multiples of P."""
    q, k, v = cast(q, k, v)
    wire = Wire(group, q.device if isinstance(q, Tensor) else torch.device("cpu"))
    options = {"causal": causal, "window": window, "scale": scale, "return_lse": return_lse}
    plan, scale = agree(wire, q, k, v, order=order, **options)
    if q.shape[1] % wire.size or k.shape[1] % wire.size:
        heads = f"{q.shape[1]} and {k.shape[1]}"
        raise ValueError(f"expected heads of q and of k and v in multiples of the {wire.size} processes, got {heads}")
    q, k, v = (_Cross.apply(t, wire, plan, True) for t in (q, k, v))
    alone = plan_of(plan.N, 1, "plain", plan.left, plan.right)
    o, lse = run_ring(q, k, v, Alone(), alone, scale)
    o = _Cross.apply(o, wire, plan, False)
    return (o, _Cross.apply(lse[..., None], wire, plan, False)[..., 0]) if return_lse else o


class _Cross(torch.autograd.Function):
    """From all heads of some tokens to some heads of all tokens, or back; the gradient crosses the other way."""

    @staticmethod
    def forward(ctx, t, wire, plan, to_tokens):
        ctx.wire, ctx.plan, ctx.to_tokens = wire, plan, to_tokens
        return to_all_tokens(wire, plan, t) if to_tokens else to_all_heads(wire, plan, t)

    @staticmethod
    def backward(ctx, grad):
        return _Cross.apply(grad, ctx.wire, ctx.plan, not ctx.to_tokens), None, None, None


def to_all_tokens(wire: Any, plan: Plan, t: Tensor) -> Tensor:
    """(B, H, n, D), this process's tokens, to (B, H / P, N, D), its heads, in the order of the tokens."""
    mine = [part.contiguous() for part in t.chunk(wire.size, dim=1)]
    (B, h, _, D) = mine[0].shape
    came = [t.new_empty((B, h, plan.size(r), D)) for r in range(wire.size)]
    _all_to_all(wire, mine, came)
    whole = t.new_empty((B, h, plan.N, D))
    for r, part in enumerate(came):
        for chunk, place in zip(plan.chunks[r], plan.places[r], strict=True):
            at(whole, chunk).copy_(at(part, place))
    return whole


def to_all_heads(wire: Any, plan: Plan, t: Tensor) -> Tensor:
    """(B, H / P, N, D) back to (B, H, n, D)."""
    mine = [torch.cat([at(t, chunk) for chunk in chunks], 2) for chunks in plan.chunks]
    came = [torch.empty_like(mine[wire.rank]) for _ in range(wire.size)]
    _all_to_all(wire, mine, came)
    return torch.cat(came, 1)


def _all_to_all(wire: Any, leaving: list[Tensor], arriving: list[Tensor]) -> None:
    """leaving[r] goes to process r, arriving[r] comes from it; what is for this process itself is copied."""
    arriving[wire.rank].copy_(leaving[wire.rank])
    others = [r for r in range(wire.size) if r != wire.rank]
    if others:
        sends, receives = ([(tensors[r], r) for r in others] for tensors in (leaving, arriving))
        wire.exchange(sends, receives, wire.mark()).wait()
