"""Answers that are part of a kernel, whole kernels, or functions that launch kernels: run and recorded, and compiled.

launch(kernel, *args, f=answer)       one program of a kernel of ours around an answer, a function of tiles that were loaded
launched(kernel, grid, {...}, *args)  an answer that is a kernel, with or without @triton.jit
recorded(function, x)                 an answer that launches kernels itself
compiles(kernel, {"q_ptr": "*fp16", ...}, {"D": 64, "BLOCK_M": 64})    for a GPU that need not be there

In Triton's interpreter the recorder watches every launch. An address outside of the tensors and two programs that
access the same element become errors. Compiled kernels run as they are, without steps. Errors come without the
interpreter's wrapping; a stub raises NotImplementedError.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from flashlearn.compiler.rejected import Rejection, rejected
from flashlearn.core.steps import Step, hbm_bytes, record
from flashlearn.exercises.raised import unwrapped
from flashlearn.exercises.watching import WrongWay, is_elsewhere, with_the_answer

MAX_PROGRAMS = 300  # of one launch: the interpreter takes some 10 ms for each
FAR_HEAD = 2**23  # of N = 16 queries and D = 16 numbers: element 2^31, where head 256 begins if N = 65,536 and D = 128
NOT_INTERPRETED = "expected Triton's interpreter, got compiled kernels: set TRITON_INTERPRET=1"


# An answer inside a kernel of ours


def launch(kernel: Callable, *args: Any, **options: Any) -> list[tuple[int, ...]]:
    """Run one program of `kernel`, a plain function that is compiled here, on tensors of the CPU.

    `options` are its constexprs, functions among them. Returns the shapes of the tiles that were transposed, in order.
    """
    from flashlearn import kernels  # first: it chooses the backend

    for option in options.values():
        if is_elsewhere(option):
            return option.launch_there(kernel, args, options)
    compiled = _jit(kernel)
    for function in filter(inspect.isfunction, options.values()):
        _give_language(function)
    if not kernels.INTERPRETED:
        options = {name: _compilable(value) for name, value in options.items()}
        ran = _on_gpu(compiled, (1,), args, options)
        sizes = re.findall(r"tt\.trans .*: tensor<(\d+)x(\d+)x\w+> ->", ran.asm["ttir"])  # the compiler's first text
        return [(int(rows), int(cols)) for rows, cols in sizes]
    with _plain_errors(), _transposed() as shapes:
        compiled[(1,)](*args, **options)
    return shapes


@contextmanager
def _transposed() -> Iterator[list[tuple[int, ...]]]:
    """The shapes of the tiles that Triton's interpreter transposes meanwhile."""
    from triton.runtime.interpreter import interpreter_builder

    transpose, shapes = interpreter_builder.create_trans, []

    def noted(tile, order):
        shapes.append(tuple(map(int, tile.data.shape)))
        return transpose(tile, order)

    with mock.patch.object(interpreter_builder, "create_trans", noted):
        yield shapes


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors of the interpreter inside come without its wrapping, and NumPy's warnings are off."""
    from triton.runtime.errors import InterpreterError

    try:
        with np.errstate(all="ignore"):
            yield
    except InterpreterError as error:
        raise unwrapped(error) from None


def _on_gpu(kernel: Any, grid: tuple[int, ...], args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Launch a compiled kernel on copies of the tensors and copy the results back; returns the result of the launch."""
    there = [arg.cuda() if isinstance(arg, torch.Tensor) else arg for arg in args]
    ran = kernel[grid](*there, **options)
    for arg, moved in zip(args, there, strict=True):
        if isinstance(arg, torch.Tensor):
            arg.copy_(moved)
    return ran


@functools.cache
def _jit(function: Callable) -> Any:
    """The function as a kernel."""
    import triton

    _give_language(function)
    return triton.jit(function)


def _give_language(function: Callable) -> None:
    """Where a module of ours says `tl = None`, put Triton's language in its place."""
    import triton.language

    if function.__globals__.get("tl", triton) is None:
        function.__globals__["tl"] = triton.language


def _compilable(value: Any) -> Any:
    """An answer as the compiler takes it. A stub would be a compile error there: it is known by its source."""
    if not callable(value):
        return value
    if "raise NotImplementedError" in inspect.getsource(getattr(value, "fn", value)):
        raise NotImplementedError("your turn")
    return _jit(value) if inspect.isfunction(value) else value


# An answer that is a kernel


@with_the_answer
def launched(kernel: Any, grid: Sequence[int], constants: dict[str, Any], *args: Any) -> list[Step]:
    """Launch a kernel on tensors of the CPU and numbers, in their order; tensors are changed as the kernel changes them.

    Returns its steps, none where kernels are compiled.
    """
    from flashlearn import kernels

    if math.prod(grid) > MAX_PROGRAMS:
        raise ValueError(f"expected at most {MAX_PROGRAMS} programs, got {math.prod(grid)}")
    if not kernels.INTERPRETED:
        _on_gpu(_compilable(kernel), tuple(grid), args, constants)
        return []
    from flashlearn.kernels.recorder import kernel_steps

    runnable = _jit(kernel) if inspect.isfunction(kernel) else kernel
    with _plain_errors():
        *steps, _ = record(kernel_steps(lambda: runnable[tuple(grid)](*args, **constants)))
    return steps


@with_the_answer
def launched_with_tf32(kernel: Any, grid: Sequence[int], constants: dict[str, Any], *args: Any) -> list[Step]:
    """As `launched`, with products of float32 as a GPU makes them: rounded to TF32, unless the kernel sets "ieee"."""
    from flashlearn import kernels

    if not kernels.INTERPRETED:
        return launched(kernel, grid, constants, *args)
    from triton.runtime.interpreter import TensorHandle, interpreter_builder

    exact = interpreter_builder.create_dot

    def create_dot(a, b, d, input_precision, *rest):
        if str(input_precision).endswith("TF32"):  # TF32x3 keeps the digits
            a, b = (TensorHandle(rounded_to_tf32(factor.data), factor.dtype) for factor in (a, b))
        return exact(a, b, d, input_precision, *rest)

    with mock.patch.object(interpreter_builder, "create_dot", create_dot):
        return launched(kernel, grid, constants, *args)


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """float32 with 10 bits of mantissa, the nearest; other dtypes as they are."""
    if x.dtype != np.float32:
        return x
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


@with_the_answer
def launched_far(kernel: Any, grid: Sequence[int], constants: dict[str, Any], *args: Any) -> list[Step]:
    """As `launched`, for head `FAR_HEAD` alone: the tensors hold that head, and begin as many heads before it.

    Memory before the head is never allocated. A whole number that leaves the range of its dtype raises an
    AssertionError on the kernel's line, an address outside of the head WrongWay.
    """
    from flashlearn import kernels

    if not kernels.INTERPRETED:
        raise RuntimeError(NOT_INTERPRETED)
    from triton.runtime import interpreter

    from flashlearn.kernels.recorder import StrayAccess

    builder, converted = interpreter.interpreter_builder, interpreter._implicit_cvt

    def set_grid_idx(x, y, z):
        builder.grid_idx = (x, y + FAR_HEAD, z)

    def begins_before(arg):
        found = converted(arg)
        if isinstance(arg, torch.Tensor):
            found.handle.data -= np.uint64(FAR_HEAD * arg.numel() * arg.element_size())
        return found

    checked = dataclasses.replace(builder.options, debug=True, sanitize_overflow=True)
    patched = mock.patch.multiple(builder, set_grid_idx=set_grid_idx, options=checked)
    with patched, mock.patch.object(interpreter, "_implicit_cvt", begins_before):
        try:
            return launched(kernel, grid, constants, *args)
        except StrayAccess:
            raise WrongWay(
                f"expected the addresses of head {FAR_HEAD} alone, got others: head h begins at row h * N of its tensor"
            ) from None


def traffic(steps: Sequence[Step]) -> tuple[float, float]:
    """Bytes read and bytes written; RuntimeError where kernels are compiled, and not recorded."""
    if not steps:
        raise RuntimeError(NOT_INTERPRETED)
    read, written = hbm_bytes(steps)
    return float(read), float(written)


# An answer that launches kernels


class Run(NamedTuple):
    """A run of an answer: the steps of its kernels, its result, its input, and the arguments of its kernels."""

    steps: list[Step]
    output: torch.Tensor
    x: torch.Tensor
    given: list[tuple[torch.Tensor, torch.Tensor]]  # every tensor of every launch, and a copy as the launch left it
    grids: list[tuple[int, ...]]  # of every launch

    @property
    def programs(self) -> int:
        """Of all launches, those that did nothing among them."""
        return sum(map(math.prod, self.grids))


def recorded(function: Any, x: torch.Tensor, *args: Any) -> Run:
    """The run of `function(x, *args)` with a copy of x; RuntimeError if it launched no kernel."""
    steps, *rest = _recorded(function, x, *args)
    return Run(record(steps), *rest)  # again: steps from another process do not know their run


@with_the_answer
def _recorded(function: Any, x: torch.Tensor, *args: Any) -> tuple:
    from triton.runtime.interpreter import InterpretedFunction

    from flashlearn.kernels.recorder import kernel_steps, launch_grid

    own = torch.empty_strided(x.shape, x.stride()).copy_(x)  # the answer may spoil its input
    given: list[tuple[torch.Tensor, torch.Tensor]] = []
    grids: list[tuple[int, ...]] = []

    def launcher():
        run = InterpretedFunction.run  # the recorder's by now

        def noted(kernel, *args, grid, **kwargs):
            grids.append(grid := launch_grid(kernel, grid, args, kwargs))
            if (programs := math.prod(grid)) > MAX_PROGRAMS:  # it would take minutes
                raise WrongWay(
                    f"expected at most {MAX_PROGRAMS} programs, got {programs}: a program has a block of elements"
                )
            run(kernel, *args, grid=grid, **kwargs)
            tensors = (arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor))
            given.extend((tensor, tensor.clone()) for tensor in tensors)

        with mock.patch.object(InterpretedFunction, "run", noted), np.errstate(all="ignore"):
            return function(own, *args)

    *steps, done = record(kernel_steps(launcher))
    if not isinstance(done.output, torch.Tensor):
        raise TypeError(f"expected a tensor to be returned, got {type(done.output).__name__}")
    if not steps:
        raise RuntimeError("expected a kernel to run, got none: launch it with kernel[grid](...)")
    return steps, done.output, own, given, grids


# Whether a kernel compiles


class DoesNotCompile(WrongWay):
    """A kernel that the compiler rejects, or compiles into another program; the line is the answer's own."""

    def __init__(self, message: str, line: str):
        super().__init__(message)
        self.detail = f"does not compile: {line}"


@with_the_answer
def rejection_of(
    kernel: Any, kinds: dict[str, str], constants: dict[str, Any], capability: int = 90
) -> tuple[str, ...]:
    """As `rejected`, of an answer: (line, what the compiler says, what it means), nothing if it compiles."""
    _compilable(kernel)  # a stub is no error of the compiler's
    return tuple(rejected(kernel, kinds, constants, capability) or ())


def compiles(kernel: Any, kinds: dict[str, str], constants: dict[str, Any], capability: int = 90) -> None:
    """DoesNotCompile with the compiler's message, and what it means, if a kernel does not compile for a GPU."""
    found = rejection_of(kernel, kinds, constants, capability)
    if found:
        rejection = Rejection(*map(str, found))
        means = f"\nThat is: {rejection.plain}" if rejection.plain else ""
        at = f" at `{rejection.line}`" if rejection.line else ""
        raise DoesNotCompile(
            f"expected a kernel that compiles for sm_{capability}, got an error{at}. The compiler says: {rejection.says}{means}",
            rejection.line or rejection.says,
        )
