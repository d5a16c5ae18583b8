"""Whole kernels as answers: launched under the recorder, and compiled for a GPU that need not be there.

An answer is a kernel, with or without @triton.jit; the exercise launches it. In the interpreter the recorder watches every
launch: an address outside of the tensors and two programs that meet in an element become errors, and what no program
wrote stays NaN. Compiled kernels run as they are; then there are no steps.

    o = torch.full((1, 32, 16), torch.nan)
    steps = launched(kernel, (2, 1), {"D": 16, "BLOCK_M": 16}, q, k, v, o, 32, 0.25)     o holds what was written
    compiles(kernel, {"q_ptr": "*fp16", ...}, {"D": 64, "BLOCK_M": 64})                  DoesNotCompile if it does not
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch

from flashlearn.compiler.rejected import Rejection, rejected
from flashlearn.core.steps import Step, hbm_bytes, record
from flashlearn.exercises.elsewhere import with_the_answer
from flashlearn.exercises.launching import _compilable, _jit
from flashlearn.exercises.raised import unwrapped
from flashlearn.exercises.watching import WrongWay

MOST_PROGRAMS = 300  # of one launch: the interpreter takes some 10 ms for each
FAR_HEAD = 2**23  # of N = 16 rows and D = 16 numbers: element 2^31, where head 256 begins if N = 65,536 and D = 128


class DoesNotCompile(WrongWay):
    """A kernel that the compiler rejects, or compiles into another program; the line is the answer's own."""

    def __init__(self, message: str, line: str):
        super().__init__(message)
        self.detail = f"does not compile: {line}"


@with_the_answer
def launched(kernel: Any, grid: Sequence[int], constants: dict[str, Any], *args: Any) -> list[Step]:
    """Launch a kernel on tensors of the CPU and numbers, in their order; tensors are changed as the kernel changes them.

    Returns its steps, none where kernels are compiled. What goes wrong in the kernel is raised as it is, without the
    interpreter's wrapping; a kernel that is still a stub raises NotImplementedError.
    """
    from flashlearn import kernels

    if math.prod(grid) > MOST_PROGRAMS:
        raise ValueError(f"expected at most {MOST_PROGRAMS} programs, got {math.prod(grid)}")
    if not kernels.INTERPRETED:
        _launched_on_gpu(kernel, grid, constants, args)
        return []
    from triton.runtime.errors import InterpreterError

    from flashlearn.kernels.recorder import kernel_steps

    runnable = _jit(kernel) if inspect.isfunction(kernel) else kernel
    try:
        with np.errstate(all="ignore"):
            *steps, _ = record(kernel_steps(lambda: runnable[tuple(grid)](*args, **constants)))
    except InterpreterError as error:
        raise unwrapped(error) from None
    return steps


@with_the_answer
def launched_with_tf32(kernel: Any, grid: Sequence[int], constants: dict[str, Any], *args: Any) -> list[Step]:
    """As `launched`, with products of float32 as a GPU makes them: rounded to TF32, unless the kernel asks for "ieee"."""
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


@with_the_answer
def launched_far(kernel: Any, grid: Sequence[int], constants: dict[str, Any], *args: Any) -> list[Step]:
    """As `launched`, for head `FAR_HEAD` alone: the tensors hold that head, and begin as many heads before it.

    Memory before the head is never allocated. A whole number that leaves the range of its dtype raises an
    AssertionError on the kernel's line, an address outside of the head WrongWay.
    """
    from flashlearn import kernels

    if not kernels.INTERPRETED:
        raise RuntimeError("expected Triton's interpreter, got compiled kernels: set TRITON_INTERPRET=1")
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


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """float32 with 10 bits of mantissa, the nearest; other dtypes as they are."""
    if x.dtype != np.float32:
        return x
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def _launched_on_gpu(kernel: Any, grid: Sequence[int], constants: dict[str, Any], args: Sequence[Any]) -> None:
    there = [arg.cuda() if isinstance(arg, torch.Tensor) else arg for arg in args]
    _compilable(kernel)[tuple(grid)](*there, **constants)
    for arg, moved in zip(args, there, strict=True):
        if isinstance(arg, torch.Tensor):
            arg.copy_(moved)


def traffic(steps: Sequence[Step]) -> tuple[float, float]:
    """Bytes read and bytes written; RuntimeError where kernels are compiled, and nobody has seen them."""
    if not steps:
        raise RuntimeError("expected Triton's interpreter, got compiled kernels: set TRITON_INTERPRET=1")
    read, written = hbm_bytes(steps)
    return float(read), float(written)


@with_the_answer
def refusal_of(kernel: Any, kinds: dict[str, str], constants: dict[str, Any], capability: int = 90) -> tuple[str, ...]:
    """As `rejected`, of an answer: (line, what the compiler says, what it means), nothing if it compiles."""
    _compilable(kernel)  # a stub is no error of the compiler's
    return tuple(rejected(kernel, kinds, constants, capability) or ())


def compiles(kernel: Any, kinds: dict[str, str], constants: dict[str, Any], capability: int = 90) -> None:
    """DoesNotCompile with the compiler's message, and what it means, if a kernel does not compile for a GPU."""
    found = refusal_of(kernel, kinds, constants, capability)
    if found:
        rejection = Rejection(*map(str, found))
        means = f"\nThat is: {rejection.plain}" if rejection.plain else ""
        at = f" at `{rejection.line}`" if rejection.line else ""
        raise DoesNotCompile(
            f"expected a kernel that compiles for sm_{capability}, got an error{at}. The compiler says: {rejection.says}{means}",
            rejection.line or rejection.says,
        )
