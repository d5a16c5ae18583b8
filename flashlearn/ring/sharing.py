"""From all tokens to this process's share of them, and back."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from flashlearn.core.inputs import check_count
from flashlearn.ring.agreement import check_numbers
from flashlearn.ring.plan import plan_of, shares
from flashlearn.ring.wire import Wire

__all__ = ["Places", "join", "shares", "split"]


def split(t: Tensor, *, order: str, group: Any = None, dim: int = 2) -> Tensor:
    """This process's share of N tokens, which lie along `dim` of t; gradients flow back to them.

    order "plain" gives process r the r-th of P chunks, "zigzag" the chunks r and 2 P - 1 - r of 2 P; the first N mod P
    (or 2 P) chunks have a token more than the others. Every process hands in the same t; nothing is sent.
    """
    check_along(t, dim)
    wire = Wire(group, torch.device("cpu"))
    chunks = shares(t.shape[dim], wire.size, order)[wire.rank]
    return torch.cat([t.narrow(dim, start, stop - start) for start, stop in chunks], dim)


@torch.no_grad()
def join(t: Tensor, *, order: str, group: Any = None, dim: int = 2) -> Tensor:
    """All tokens in their order, in every process, from the shares that `split` makes; to look at, without gradients.

    ValueError, in every process, if the shares are not those of `split`.
    """
    check_along(t, dim)
    wire = Wire(group, t.device)
    notes = wire.ask({"tokens": t.shape[dim], "device": t.device.type})
    for note in notes:
        check_numbers(torch.device(note["device"]), "shares")
    sizes = [note["tokens"] for note in notes]
    plan = plan_of(sum(sizes), wire.size, order, None, None)
    wanted = [plan.size(r) for r in range(wire.size)]
    if sizes != wanted:
        raise ValueError(f"expected shares as `split` makes them in {order} order, of {wanted} tokens, got {sizes}")
    mine = t.movedim(dim, 0).contiguous()
    parts = [mine if r == wire.rank else mine.new_empty((n, *mine.shape[1:])) for r, n in enumerate(sizes)]
    others = [r for r in range(wire.size) if r != wire.rank]
    wire.exchange([(mine, r) for r in others], [(parts[r], r) for r in others], wire.mark()).wait()
    whole = mine.new_empty((plan.N, *mine.shape[1:]))
    for r, part in enumerate(parts):
        for (start, stop), (first, last) in zip(plan.chunks[r], plan.places[r], strict=True):
            whole[start:stop] = part[first:last]
    return whole.movedim(0, dim)


def check_along(t: Tensor, dim: int) -> None:
    """Refuse anything but a tensor that has this dimension; a negative one counts from the last."""
    if not isinstance(t, Tensor):
        raise TypeError(f"expected t to be a torch.Tensor, got {type(t).__name__}")
    if not isinstance(dim, Integral) or isinstance(dim, bool):
        raise TypeError(f"expected dim to be an int, got {type(dim).__name__}")
    if not -t.ndim <= dim < t.ndim:
        raise ValueError(f"expected dim to be one of the {t.ndim} dimensions of t, {tuple(t.shape)}, got {dim}")


class Places:
    """For a model of `flashlearn.models.gpt`, in place of a cache: where the tokens of this process stand among all N.

    model(tokens, [Places(N, order=order, group=group)] * layers) rotates queries and keys by these places; nothing is kept.
    """

    def __init__(self, N: int, *, order: str, group: Any = None):
        check_count(N, "N")
        self.length = split(torch.arange(N), order=order, group=group, dim=0)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of these tokens, as they are: the others are at other processes."""
        return k, v
