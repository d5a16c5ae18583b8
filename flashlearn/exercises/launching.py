"""One program of a kernel around an answer: what the exercises of notebooks 12 and 13 run.

The answers are functions of tiles that were already loaded. They run on a GPU, or in Triton's interpreter.
"""

from __future__ import annotations

import functools
import inspect
import re
from contextlib import contextmanager
from unittest import mock

import numpy as np
import torch

from flashlearn.exercises.elsewhere import is_elsewhere


def launch(kernel, *args, **options) -> list[tuple[int, ...]]:
    """Run one program of `kernel`, a plain function that is compiled here, on tensors of the CPU.

    `options` are its constexprs, functions among them. What goes wrong inside an answer is raised as it is,
    without the interpreter's wrapping; an answer that is still a stub raises NotImplementedError. Returns the
    shapes of the tiles that were transposed, in order.
    """
    from flashlearn import kernels  # first: it chooses the backend

    for option in options.values():
        if is_elsewhere(option):
            return option.launch_there(kernel, args, options)
    compiled = _jit(kernel)
    for function in filter(inspect.isfunction, options.values()):
        _give_language(function)
    device = "cpu" if kernels.INTERPRETED else "cuda"
    there = [arg.to(device) if isinstance(arg, torch.Tensor) else arg for arg in args]
    if not kernels.INTERPRETED:
        options = {name: _compilable(value) for name, value in options.items()}
    from triton.runtime.errors import InterpreterError

    try:
        with np.errstate(all="ignore"), _noting_what_is_turned() as turned:
            ran = compiled[(1,)](*there, **options)
    except InterpreterError as error:
        inner = error
        while isinstance(inner, InterpreterError) and inner.__cause__ is not None:
            inner = inner.__cause__
        raise inner from None
    for arg, moved in zip(args, there, strict=True):
        if isinstance(arg, torch.Tensor):
            arg.copy_(moved)
    if ran is None:
        return turned
    sizes = re.findall(r"tt\.trans .*: tensor<(\d+)x(\d+)x\w+> ->", ran.asm["ttir"])  # the compiler's first text
    return [(int(rows), int(cols)) for rows, cols in sizes]


@contextmanager
def _noting_what_is_turned():
    """The shapes of the tiles that Triton's interpreter transposes meanwhile."""
    from triton.runtime.interpreter import interpreter_builder

    turn, shapes = interpreter_builder.create_trans, []

    def noted(tile, order):
        shapes.append(tuple(map(int, tile.data.shape)))
        return turn(tile, order)

    with mock.patch.object(interpreter_builder, "create_trans", noted):
        yield shapes


@functools.cache
def _jit(function):
    """The function as a kernel."""
    import triton

    _give_language(function)
    return triton.jit(function)


def _give_language(function) -> None:
    """Where a module of ours says `tl = None`, put Triton's language in its place."""
    import triton.language

    if function.__globals__.get("tl", triton) is None:
        function.__globals__["tl"] = triton.language


def _compilable(value):
    """An answer as the compiler takes it. A stub would be a compile error there: tell it by its source."""
    if not callable(value):
        return value
    if "raise NotImplementedError" in inspect.getsource(getattr(value, "fn", value)):
        raise NotImplementedError("your turn")
    return _jit(value) if inspect.isfunction(value) else value
