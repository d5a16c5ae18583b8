"""Triton's interpreter, made safe for threads and faster: what `flashlearn.core.target` changes in it before any kernel runs."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.interpreter import np as numpy


def in_turn(run: Callable[..., Any]) -> Callable[..., Any]:
    """The same, for one thread at a time: the interpreter puts its own functions in the place of the language's."""
    lock = threading.RLock()

    @functools.wraps(run)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with lock:
            replaced_in.append(set())
            try:
                return run(*args, **kwargs)
            finally:
                replaced_in.pop()

    return alone


replaced_in: list[set[int]] = []  # for the launch that runs: the modules in which the language has been replaced


def once_in_a_launch(replace: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, done once for a module; the interpreter does it, slowly, at every call of a function by a kernel."""

    @functools.wraps(replace)
    def replace_once(function: Any) -> Any:
        module = id(function.__globals__)
        if replaced_in and module in replaced_in[-1]:
            return interpreter._LangPatchScope()  # nothing to restore
        scope = replace(function)
        if replaced_in:
            replaced_in[-1].add(module)
        return scope

    return replace_once


def by_name(dtype_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, a look in a table; the interpreter makes its table anew at every operation of a kernel."""
    known: dict[str, numpy.dtype] = {}

    @functools.wraps(dtype_of)
    def looked_up(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in known:
            known[name] = dtype_of(dtype)
        return known[name]

    return looked_up


def without_idle_checks(builder: Any) -> None:
    """Leave out the check of sums and products for overflow, whose result is not used where `debug` is off."""
    if not builder.options.debug:
        builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


def patch_interpreter() -> None:
    """Change the interpreter of this process, for every kernel."""
    InterpretedFunction.run = in_turn(InterpretedFunction.run)
    if hasattr(interpreter, "_LangPatchScope"):
        interpreter._patch_lang = once_in_a_launch(interpreter._patch_lang)
    if hasattr(interpreter, "_get_np_dtype"):
        interpreter._get_np_dtype = by_name(interpreter._get_np_dtype)
    without_idle_checks(interpreter.interpreter_builder)
