"""From all tokens to this process's share of them, and back."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from flashlearn.core.inputs import check_count
from flashlearn.core.numerics import Span
from flashlearn.ring.agreement import check_numbers, compare_notes, plan_of_notes
from flashlearn.ring.communicator import Communicator
from flashlearn.ring.plan import Plan, check_order, shares


def split(t: Tensor, *, order: str, group: Any = None, dim: int = 2) -> Tensor:
    """This process's share of the N tokens along `dim` of t; differentiable.

    order "plain" gives process r the r-th of P chunks, "zigzag" the chunks r and 2 P - 1 - r of 2 P. The first N mod P
    (or 2 P) chunks have one token more than the others. Every process passes the same t; nothing is sent.
    """
    check_along(t, dim)
    comm = Communicator(group, torch.device("cpu"))
    return share(t, shares(t.shape[dim], comm.size, order)[comm.rank], dim)


@torch.no_grad()
def join(t: Tensor, *, order: str, group: Any = None, dim: int = 2) -> Tensor:
    """All tokens in their order, in every process, from the shares that `split` makes; to look at, without gradients.

    t is a dense tensor of any dtype, with this process's tokens along `dim`. Every process of the group must call this.
    Shares that are not those of `split`, or that differ in dtype, device, order, `dim` or another dimension, are a
    ValueError or TypeError, the same in every process. A process that is gone, or late by more than the group's time
    limit, is a RuntimeError in all that wait for it.
    """
    comm = Communicator(group, t.device if isinstance(t, Tensor) else torch.device("cpu"))
    plan = plan_of_notes(compare_notes(comm, lambda: _note(t, order, dim)))
    mine = t.movedim(dim, 0).contiguous()
    parts = [mine if r == comm.rank else mine.new_empty((plan.size(r), *mine.shape[1:])) for r in range(comm.size)]
    others = [r for r in range(comm.size) if r != comm.rank]
    comm.exchange([(mine, r) for r in others], [(parts[r], r) for r in others], comm.mark()).wait()
    return whole(plan, parts, 0).movedim(0, dim)


def share(t: Tensor, chunks: Sequence[Span], dim: int = 2) -> Tensor:
    """The chunks of all tokens that one process has, end to end."""
    return torch.cat([t.narrow(dim, start, stop - start) for start, stop in chunks], dim)


def whole(plan: Plan, parts: Sequence[Tensor], dim: int = 2) -> Tensor:
    """All tokens in their order, from the shares of all processes."""
    shape = list(parts[0].shape)
    shape[dim] = plan.N
    found = parts[0].new_empty(shape)
    for part, chunks, offsets in zip(parts, plan.chunks, plan.offsets, strict=True):
        for (start, stop), (first, _) in zip(chunks, offsets, strict=True):
            found.narrow(dim, start, stop - start).copy_(part.narrow(dim, first, stop - start))
    return found


def _note(t: Tensor, order: str, dim: int) -> dict:
    """The values on which all must agree, and the number of tokens of this process."""
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
    """TypeError or ValueError for anything but a tensor that has this dimension; a negative one counts from the last."""
    if not isinstance(t, Tensor):
        raise TypeError(f"expected t to be a torch.Tensor, got {type(t).__name__}")
    if not isinstance(dim, Integral) or isinstance(dim, bool):
        raise TypeError(f"expected dim to be an int, got {type(dim).__name__}")
    if not -t.ndim <= dim < t.ndim:
        raise ValueError(f"expected dim to be one of the {t.ndim} dimensions of t, {tuple(t.shape)}, got {dim}")


class Places:
    """For a model of `flashlearn.models.gpt`, in place of a cache: the positions of this process's tokens among all N.

    model(tokens, [Places(N, order=order, group=group)] * layers) rotates queries and keys by them; nothing is kept.
    """

    def __init__(self, N: int, *, order: str, group: Any = None):
        check_count(N, "N")
        self.length = split(torch.arange(N, device="cpu"), order=order, group=group, dim=0)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of these tokens, as they are: other processes have the others."""
        return k, v
