"""The tensors that an answer made on the way to its result, and the algorithms that it called.

    result, made = watched(function, *args)

An exercise may require a method: block by block, or by hand. An answer is held to it by its tensors, not by its text: a
loop over `torch.split` makes the same ones as a loop over slices.

In an examination (`flashlearn.grading`) an answer is in another process, and code that watches it runs there, too. Such
an answer has two methods: `run_there(function, *args)` returns what `function(answer, *args)` returns there, and
`launch_there(kernel, args, options)` launches a kernel of ours around it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

F = TypeVar("F", bound=Callable[..., Any])
PRODUCTS = ("mm", "bmm", "addmm", "addbmm", "baddbmm", "mv", "addmv", "dot")  # the operations behind matmul and einsum


Operand = tuple[tuple[int, ...], int]  # the shape of a tensor, and where in its storage it starts


class WrongWay(ValueError):
    """A result by a way that the task rules out; `detail` is the text in the table."""

    detail = "not in the way that the task requires"


def is_elsewhere(answer: Any) -> bool:
    """Whether an answer is in another process."""
    return hasattr(answer, "run_there")


def with_the_answer(function: F) -> F:
    """Run `function(answer, *args)` in the answer's process.

    Its result arrives as tuples, lists, numbers, tensors and steps.
    """

    @functools.wraps(function)
    def run(answer: Any, *args: Any) -> Any:
        return answer.run_there(function, *args) if is_elsewhere(answer) else function(answer, *args)

    return run  # type: ignore[return-value]


class Made(NamedTuple):
    """A tensor that an operation of PyTorch made, or changed in place; views are not listed."""

    operation: str  # without overload and, in place, without the underscore: "mm", "exp"
    shape: tuple[int, ...]
    operands: tuple[Operand, ...] = ()  # of every tensor that went in
    depth: int = 0  # how many operations had to wait for one another, this one included


class _Mode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to skip it, PyTorch would import its compiler first, which takes seconds."""
        return False


class _Watch(_Mode):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[Made] = []
        self._depths: dict[int, torch.Tensor] = {}  # by the address of a storage: the depth of each of its entries
        self._alive: list[torch.Tensor] = []  # so that no address is given away twice

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        operands = [*_tensors(args), *_tensors((kwargs or {}).values())]
        tensors = tuple((tuple(t.shape), int(t.storage_offset())) for t in operands)
        depth = 1 + max((int(self._depth(t).max()) for t in operands if t.numel()), default=0)
        result = func(*args, **(kwargs or {}))
        aliases = [value.alias_info for value in func._schema.returns if value.alias_info]
        if all(alias.is_write for alias in aliases):
            name = func._schema.name.removeprefix("aten::").rstrip("_")
            for t in _tensors((result,)):
                self.made.append(Made(name, tuple(t.shape), tensors, depth))
                self._depth(t).fill_(depth)
        return result

    def _depth(self, t: torch.Tensor) -> torch.Tensor:
        """The depth of every entry of t; a view shares them with what it looks at."""
        storage = t.untyped_storage()
        if storage.data_ptr() not in self._depths:
            self._alive.append(t)
            entries = storage.nbytes() // t.element_size()
            self._depths[storage.data_ptr()] = torch.zeros(entries, dtype=torch.int64)
        return self._depths[storage.data_ptr()].as_strided(t.shape, t.stride(), t.storage_offset())


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among values, and in the lists and tuples among them; none that has no storage to look at."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout == torch.strided and value.device.type != "meta":
                yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def watched(function: Callable, *args: Any) -> tuple[Any, list[Made]]:
    """The result of `function(*args)`, and the tensors made meanwhile, in order, those of autograd among them."""
    result, made = _watched(function, *args)
    return result, [Made(*one) for one in made]  # another process sends tuples


@with_the_answer
def _watched(function: Callable, *args: Any) -> tuple[Any, list[Made]]:
    with _Watch() as watch:
        result = function(*args)
    return result, watch.made


def no_loop(function: Callable, few: torch.Tensor, many: torch.Tensor) -> tuple[Any, Any]:
    """The results of `function` for `few` and for `many` numbers. WrongWay if it needs more operations for many."""
    (small, short), (large, long) = (watched(function, x.clone()) for x in (few, many))
    if len(short) != len(long):
        raise WrongWay(
            f"expected as many operations for {many.numel()} numbers as for {few.numel()}, "
            f"got {len(long)} and {len(short)}: a loop goes over them"
        )
    return small, large


def shapes(made: Iterable[Made], *operations: str) -> list[tuple[int, ...]]:
    """The shapes that these operations made, in order."""
    return [one.shape for one in made if one.operation in operations]


class _WithoutTheFlag(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is scaled_dot_product_attention and (kwargs or {}).get("enable_gqa"):
            raise WrongWay("expected heads shared by your own code, got enable_gqa=True")
        return func(*args, **(kwargs or {}))


@with_the_answer
def without_the_flag(function: Callable, *args: Any) -> Any:
    """The result of `function(*args)`; WrongWay where PyTorch shares heads by enable_gqa=True."""
    with _WithoutTheFlag():
        return function(*args)


PACKAGE = Path(__file__).parents[1]
ALGORITHMS = tuple(f"{PACKAGE / room}" for room in ("algorithms", "kernels", "fast", "ring", "models", "serving"))
# Operations that are whole algorithms, and the function of PyTorch that leads to them
LIBRARY = {
    "_softmax": "torch.softmax",
    "_log_softmax": "torch.log_softmax",
    "logsumexp": "torch.logsumexp",
    "_safe_softmax": "torch.nn.functional.scaled_dot_product_attention",  # its softmax, called by nothing else
    "_softmax_backward_data": "the backward pass of torch.softmax",
}


class _Algorithms(_Mode):
    """Notes the algorithms of PyTorch that are called inside."""

    def __init__(self, found: dict[str, None]):
        super().__init__()
        self._found = found

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        name = "_safe_softmax" if name.startswith("_scaled_dot_product") else name
        if name in LIBRARY:
            self._found[LIBRARY[name]] = None
        return func(*args, **(kwargs or {}))


@with_the_answer
def by_the_library(function: Callable, *args: Any) -> tuple[Any, tuple[str, ...]]:
    """The result of `function(*args)`, and the names of the algorithms it called, of PyTorch (`LIBRARY`) and of this
    package.

    Operations of PyTorch are recorded below every spelling, torch.softmax, x.softmax or nn.Softmax. A thread of the answer's
    own is not recorded.
    """
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ALGORITHMS) and not _imports(frame):
            name = frame.f_code.co_name
            room = "flashlearn" if hasattr(sys.modules["flashlearn"], name) else frame.f_globals["__name__"]
            found[f"{room}.{name}"] = None
            sys.setprofile(before)  # the first is the one that the answer called

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with _Algorithms(found):
            result = function(*args)
    finally:
        sys.setprofile(before)
    return result, tuple(found)


def _imports(frame: FrameType | None) -> bool:
    """Whether a module of the package is being imported here: then what runs is no call of the answer's."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            return True
        frame = frame.f_back
    return False
