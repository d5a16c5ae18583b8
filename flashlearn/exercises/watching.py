"""How an answer came to its result: which tensors it made on the way.

    result, made = watched(function, *args)

An exercise that asks for a method (block by block, by hand) holds an answer to it by what it made, not by how it is
written: a loop over `torch.split` makes what a loop over slices makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = ("mm", "bmm", "addmm", "addbmm", "baddbmm", "mv", "addmv", "dot")  # what matmul and einsum come down to


class WrongWay(ValueError):
    """A result by a way that the task rules out."""


class Made(NamedTuple):
    """A tensor that an operation of PyTorch made, or changed in place; views are not listed."""

    operation: str  # without overload and, in place, without the underscore: "mm", "exp"
    shape: tuple[int, ...]


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[Made] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        aliases = [value.alias_info for value in func._schema.returns if value.alias_info]
        if all(alias.is_write for alias in aliases):
            name = func._schema.name.removeprefix("aten::").rstrip("_")
            tensors = result if isinstance(result, tuple | list) else (result,)
            self.made += (Made(name, tuple(t.shape)) for t in tensors if isinstance(t, torch.Tensor))
        return result


def watched(function: Callable, *args: Any) -> tuple[Any, list[Made]]:
    """What `function(*args)` returns, and the tensors made meanwhile, in order, those of autograd among them."""
    with _Watch() as watch:
        result = function(*args)
    return result, watch.made


def shapes(made: Iterable[Made], *operations: str) -> list[tuple[int, ...]]:
    """The shapes that these operations made, in order."""
    return [one.shape for one in made if one.operation in operations]
