"""An answer as a check calls it: its inputs must stay as they are, and calls into a library are noted.

answer = Called(function, solution, writes=("K", "V"), library=("torch.softmax",))
answer(x)          Overwritten if x holds other numbers afterwards
answer.helped      the names in `library` that the answer has called so far
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flashlearn.exercises.watching import WrongWay, by_the_library


class Overwritten(WrongWay):
    """An answer changed one of its inputs."""

    detail = "changes its input"


class ByTheLibrary(WrongWay):
    """An answer calls a function that does the whole task, where that is forbidden."""

    detail = "leaves the work to the library"


class Called:
    """`function`, watched at every call. Its other attributes, such as `run_there`, are available as before."""

    def __init__(self, function: Callable, solution: Callable, writes: Sequence[str] = (), library: Sequence[str] = ()):
        """`writes` names the inputs that the task has overwritten, `library` the functions that do the whole task."""
        self._function = function
        self._names = tuple(inspect.signature(solution).parameters)
        self._writes, self._library = writes, library
        self.helped: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name == "_function":  # a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self._function, name)

    def __call__(self, *args: Any) -> Any:
        kept = [
            (name, arg, _content(arg)) for name, arg in zip(self._names, args, strict=False) if name not in self._writes
        ]
        if self._library:
            result, helped = by_the_library(self._function, *args)
            new = [name for name in helped if name.startswith(tuple(self._library))]
            self.helped = tuple(dict.fromkeys((*self.helped, *new)))
        else:
            result = self._function(*args)
        for name, arg, content in kept:
            if _content(arg) != content:
                raise Overwritten(
                    f"expected the input {name} as it was, got other numbers in it afterwards: the answer overwrites it. "
                    "Make new tensors (y = y * 2 in place of y *= 2, y.exp() in place of y.exp_()), or start with a clone()"
                )
        return result


def _content(value: Any) -> Any:
    """The contents of a value, to be compared later: shapes and bytes of tensors, also of those in lists and tuples.
    The bytes are read from memory, without an operation of PyTorch, which `watched` would take for one of the answer's.
    """
    if isinstance(value, torch.Tensor):
        memory = value.untyped_storage().cpu()
        return value.shape, ctypes.string_at(memory.data_ptr(), memory.nbytes())
    if isinstance(value, list | tuple):
        return [_content(each) for each in value]
    return value if isinstance(value, int | float | str) else None
