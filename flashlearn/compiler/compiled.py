"""Triton's compiled code of a kernel for a GPU, on any machine with Triton, with a GPU or without."""

from __future__ import annotations

import importlib
import inspect
import json
from typing import Any, NamedTuple

from flashlearn.compiler import process
from flashlearn.compiler.process import in_process, job_of

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # of the compiler
KERNELS: dict[str, dict[str, object]] = {  # kernel: what a launch of contiguous float16 tensors fixes
    "vector_add": {"BLOCK": 1024, "stride_x": 1, "stride_y": 1, "stride_out": 1},
    "softmax": {"BLOCK_N": 1024, "stride_xn": 1, "stride_yn": 1},
    "matmul": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "PRECISION": "ieee", "stride_ak": 1, "stride_bn": 1, "stride_cn": 1},
    "ladder": {"HEAD_DIM": 64, "BLOCK_M": 128, "BLOCK_N": 64, "CAUSAL": False, "EXP2": True, "SKIP": True, "SPLIT": True},
}  # fmt: skip
FLOATS = ("scale", "lse_ptr")  # arguments in float32; other pointers are to float16, other numbers are int32
GPUS = {"A100": 80, "H100": 90}  # compute capability, times ten


class Compiled(NamedTuple):
    """The resources of one program: threads, bytes of shared memory, registers of a thread.

    spilled       bytes per thread that found no register and go through memory
    instructions  in all of the kernel's source for the GPU (PTX), by name, e.g. "ex2.approx.f32"; a loop counts once
    """

    threads: int
    shared: int
    registers: int
    spilled: int
    instructions: dict[str, int]


def lane_operations(fact: Compiled, scores: int) -> float:
    """float32 arithmetic, comparisons and selections per score, without operations of other units.

    scores   how many scores a thread has in one block
    """
    kinds = ("mul.f32", "max.f32", "fma.rn.f32", "add.f32", "sub.f32", "selp.f32", "setp.")
    return sum(n for kind, n in fact.instructions.items() if kind.startswith(kinds)) / scores


def compiled(*wanted: tuple[str, str, dict]) -> list[Compiled]:
    """Compile each (kernel, gpu, options), e.g. ("matmul", "H100", {"num_stages": 3}).

    kernel   vector_add, softmax, matmul or ladder of `flashlearn.kernels`, for contiguous float16 tensors
    gpu      A100 or H100; none is needed to compile for it
    options  num_warps, num_stages, and constants of the kernel, e.g. BLOCK_N

    TypeError for another option, ValueError for another kernel or GPU; RuntimeError with the compiler's message if it fails.
    """
    for kernel, gpu, options in wanted:
        if kernel not in KERNELS or gpu not in GPUS:
            raise ValueError(f"expected a kernel of {list(KERNELS)} and a GPU of {list(GPUS)}, got {kernel!r}, {gpu!r}")
        known = {*OPTIONS, *KERNELS[kernel]}
        if strange := [name for name in options if name not in known]:
            raise TypeError(f"expected options of {', '.join(sorted(known))}, got {', '.join(map(str, strange))}")
    done = in_process([process.__file__], [_job(*one) for one in wanted])
    if done.returncode:
        raise RuntimeError(f"expected Triton to compile {wanted}, got:\n{done.stderr}")
    return [Compiled(*pair) for pair in json.loads(done.stdout)]


def _job(kernel: str, gpu: str, options: dict) -> dict[str, Any]:
    module = importlib.import_module(f"flashlearn.kernels.{kernel if kernel == 'ladder' else f'{kernel}_kernel'}")
    function = getattr(module, f"{kernel}_kernel").fn
    constants = {**KERNELS[kernel], **{name: value for name, value in options.items() if name in KERNELS[kernel]}}
    kinds = {name: _kind(name) for name in inspect.signature(function).parameters if name not in constants}
    of_compiler = {name: value for name, value in options.items() if name not in constants}
    return job_of(function, kinds, constants, GPUS[gpu], **of_compiler)


def _kind(name: str) -> str:
    """The type of an argument that is no constant."""
    number = "fp32" if name in FLOATS else "fp16" if name.endswith("_ptr") else "i32"
    return f"*{number}" if name.endswith("_ptr") else number
