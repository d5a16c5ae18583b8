"""From all tokens to this process's share of them, and back."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from flashlearn.core.inputs import check_count
from flashlearn.ring.agreement import ask_all, check_numbers, plan_of_notes
from flashlearn.ring.communicator import Wire
from flashlearn.ring.plan import check_order, shares

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

    t is a dense tensor of any dtype, with this process's tokens along `dim`. Every process of the group must call this.
    Shares that are not those of `split`, or that differ in dtype, device, order, `dim` or another dimension, are a
    ValueError or TypeError, the same in every process; a process that is gone, or late by more than the group's time
    limit, a RuntimeError in all that wait for it.
    """
    wire = Wire(group, t.device if isinstance(t, Tensor) else torch.device("cpu"))
    plan = plan_of_notes(ask_all(wire, lambda: _note(t, order, dim)))
    mine = t.movedim(dim, 0).contiguous()
    parts = [mine if r == wire.rank else mine.new_empty((plan.size(r), *mine.shape[1:])) for r in range(wire.size)]
    others = [r for r in range(wire.size) if r != wire.rank]
    wire.exchange([(mine, r) for r in others], [(parts[r], r) for r in others], wire.mark()).wait()
    whole = mine.new_empty((plan.N, *mine.shape[1:]))
    for r, part in enumerate(parts):
        for (start, stop), (first, last) in zip(plan.chunks[r], plan.places[r], strict=True):
            whole[start:stop] = part[first:last]
    return whole.movedim(0, dim)


def _note(t: Tensor, order: str, dim: int) -> dict:
    """What all must agree on, and how many tokens this process has."""
    check_order(order)
    check_along(t, dim)
    check_numbers(t.device, "shares")
    if t.is_nested or t.layout is not torch.strided:
        raise TypeError(f"expected t to be a dense tensor, got {'a nested tensor' if t.is_nested else t.layout}")
    dim = int(dim) % t.ndim
    return {
        "tokens": t.shape[dim],
        "dtype": str(t.dtype),
        "device": t.device.type,
        "order": order,
        "number of dimensions": t.ndim,
        "dim": dim,
        "dimensions besides the tokens": [*t.shape[:dim], *t.shape[dim + 1 :]],
    }


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
        self.length = split(torch.arange(N, device="cpu"), order=order, group=group, dim=0)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of these tokens, as they are: the others are at other processes."""
        return k, v
