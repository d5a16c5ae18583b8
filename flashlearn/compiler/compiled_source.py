"""Triton's compiled code for Hopper of a kernel's source, which may be a notebook's cell.

    built = compiled_for_hopper(Call(kernel, (tiles("Q", q, (64, 64)), ...), {"STAGES": 2}))

The texts of the kernel and of the functions that it calls go to a separate process, as a process compiles kernels or
interprets them, never both. It compiles them and launches them on a GPU that is not there
(`flashlearn.compiler.compile_only`).
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flashlearn.compiler.process import in_process

HEADER = """
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait,
)
from flashlearn.fast.hopper.versions import async_load, async_store, barrier
"""


@dataclass(frozen=True)
class Call:
    """A launch: a kernel, its arguments (descriptors made by `tiles`, and numbers) and constants; `replaced` are
    functions to take for those that it calls by these names."""

    kernel: Any
    args: tuple
    constants: dict[str, Any] = field(default_factory=dict)
    replaced: dict[str, Any] = field(default_factory=dict)


class Built(NamedTuple):
    """The resources of one program, as `flashlearn.compiler.compiled.Compiled`, and the kernel as text for the GPU."""

    shared: int
    registers: int
    spilled: int
    ptx: str


def compiled_for_hopper(*calls: Call) -> list[Built]:
    """Compile each call for compute capability 9.0; no GPU is needed. RuntimeError with the compiler's message."""
    with tempfile.TemporaryDirectory() as folder:
        for number, call in enumerate(calls):
            Path(folder, f"kernel_{number}.py").write_text(
                HEADER + source_of(call.kernel, call.replaced), encoding="utf-8"
            )
        wanted = [(call.kernel.__name__, [_described(arg) for arg in call.args], call.constants) for call in calls]
        done = in_process(["-m", "flashlearn.compiler.compiled_source", folder], wanted)
    if done.returncode:
        raise RuntimeError(f"expected Triton to compile {[name for name, *_ in wanted]}, got:\n{done.stderr}")
    return [Built(*built) for built in json.loads(done.stdout)]


def source_of(kernel: Any, replaced: dict[str, Any]) -> str:
    """The texts of a kernel and of all functions that it calls, each before its caller."""
    texts: dict[str, str] = {}

    def add(name: str, function: Any) -> None:
        plain = _plain(function)
        if name in texts:
            return
        texts[name] = ""  # under way
        for each in plain.__code__.co_names:
            called = replaced.get(each, plain.__globals__.get(each))
            if each in replaced or hasattr(called, "fn"):
                add(each, called)
        text = textwrap.dedent(inspect.getsource(plain))
        text = text if text.startswith("@") else f"@gluon.jit\n{text}"
        texts[name] = text + (f"\n\n{name} = {plain.__name__}\n" if plain.__name__ != name else "")
        texts[name] = texts.pop(name)  # behind those that it calls

    add(_plain(kernel).__name__, kernel)
    return "\n\n".join(texts.values())


def _plain(function: Any) -> Callable:
    return inspect.unwrap(getattr(function, "fn", function))


def _described(arg: Any) -> Any:
    """A descriptor as name, sizes, tile and type; a number as it is."""
    if not hasattr(arg, "block"):
        return arg
    return [list(arg.tensor.shape), list(arg.block), str(arg.dtype).removeprefix("torch.")]


def _compile(folder: str, wanted: list) -> list[Built]:
    """In the compiling process: launch each kernel on a GPU that is not there."""
    import importlib

    from flashlearn.compiler.compile_only import compile_for

    launches = compile_for(90)
    sys.path.insert(0, folder)
    built = []
    for number, (name, args, constants) in enumerate(wanted):
        kernel = getattr(importlib.import_module(f"kernel_{number}"), name)
        result = kernel[(1,)](*map(_made, args, [kernel] * len(args)), **constants, num_warps=4)
        built.append(Built(*launches[-1][3:], result.asm["ptx"]))
    return built


def _made(arg: Any, kernel: Any) -> Any:
    """A descriptor as the kernel's language wants it; a number as it is."""
    if not isinstance(arg, list):
        return arg
    import torch
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon import nvidia
    from triton.tools.tensor_descriptor import TensorDescriptor

    shape, block, dtype = arg
    tensor = torch.empty(shape, dtype=getattr(torch, dtype), device="cpu")
    if not type(kernel).__name__.startswith("Gluon"):
        return TensorDescriptor.from_tensor(tensor, block)
    layout = gl.NVMMASharedLayout.get_default_for(block, getattr(gl, dtype))
    return nvidia.hopper.TensorDescriptor.from_tensor(tensor, block, layout)


if __name__ == "__main__":
    print(json.dumps(_compile(sys.argv[1], json.load(sys.stdin))))
