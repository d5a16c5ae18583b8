"""Ulysses: during attention every process has some heads of all tokens instead of all heads of some tokens.

    q, k, v  (B, H, n, D), all heads of a share   ->  all to all  ->  (B, H / P, N, D), some heads of all tokens
    o = attention(q, k, v)                            one call, nothing to merge, whatever the mask
    o        (B, H / P, N, D)                     ->  all to all  ->  (B, H, n, D)

Each of the four exchanges moves the part (P - 1) / P of a tensor once, so a process sends less the more processes there
are. In the ring it sends all of K and V in every step. In return P must divide the numbers of heads, and nothing is
computed meanwhile. With fewer heads of K and V than processes, copy heads before the call; the copies are sent, too.

Source: S. A. Jacobs et al., "DeepSpeed Ulysses", 2023 (arXiv:2309.14509).
"""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor

from flashlearn.core.mask import Window
from flashlearn.ring.attention import agreed, run_ring
from flashlearn.ring.communicator import Alone
from flashlearn.ring.plan import Plan, plan_of
from flashlearn.ring.sharing import share, whole


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
    """As `ring_attention`: same shares, results and errors; H_q and H_kv must be multiples of P."""
    options = {"order": order, "causal": causal, "window": window, "scale": scale, "return_lse": return_lse}
    q, k, v, comm, plan, scale = agreed(q, k, v, group, **options)
    if q.shape[1] % comm.size or k.shape[1] % comm.size:
        heads = f"{q.shape[1]} and {k.shape[1]}"
        raise ValueError(f"expected heads of q and of k and v in multiples of the {comm.size} processes, got {heads}")
    q, k, v = (_Exchange.apply(t, comm, plan, True) for t in (q, k, v))
    alone = plan_of(plan.N, 1, "plain", plan.left, plan.right)
    o, lse = run_ring(q, k, v, Alone(), alone, scale)
    o = _Exchange.apply(o, comm, plan, False)
    return (o, _Exchange.apply(lse[..., None], comm, plan, False)[..., 0]) if return_lse else o


class _Exchange(torch.autograd.Function):
    """From all heads of some tokens to some heads of all tokens, or back; the gradient goes the other way."""

    @staticmethod
    def forward(ctx, t, comm, plan, to_tokens):
        ctx.comm, ctx.plan, ctx.to_tokens = comm, plan, to_tokens
        return to_all_tokens(comm, plan, t) if to_tokens else to_all_heads(comm, plan, t)

    @staticmethod
    def backward(ctx, grad):
        return _Exchange.apply(grad, ctx.comm, ctx.plan, not ctx.to_tokens), None, None, None


def to_all_tokens(comm: Any, plan: Plan, t: Tensor) -> Tensor:
    """(B, H, n, D), this process's tokens, to (B, H / P, N, D), its heads, in the order of the tokens."""
    mine = [part.contiguous() for part in t.chunk(comm.size, dim=1)]
    (B, h, _, D) = mine[0].shape
    came = [t.new_empty((B, h, plan.size(r), D)) for r in range(comm.size)]
    _all_to_all(comm, mine, came)
    return whole(plan, came)


def to_all_heads(comm: Any, plan: Plan, t: Tensor) -> Tensor:
    """(B, H / P, N, D) back to (B, H, n, D)."""
    mine = [share(t, chunks) for chunks in plan.chunks]
    came = [torch.empty_like(mine[comm.rank]) for _ in range(comm.size)]
    _all_to_all(comm, mine, came)
    return torch.cat(came, 1)


def _all_to_all(comm: Any, leaving: list[Tensor], arriving: list[Tensor]) -> None:
    """leaving[r] goes to process r, arriving[r] comes from it; what is for this process itself is copied."""
    arriving[comm.rank].copy_(leaving[comm.rank])
    others = [r for r in range(comm.size) if r != comm.rank]
    if others:
        sends, receives = ([(tensors[r], r) for r in others] for tensors in (leaving, arriving))
        comm.exchange(sends, receives, comm.mark()).wait()
