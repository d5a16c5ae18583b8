"""What Triton's compiler makes of a kernel for a GPU, on any machine with Triton, with a GPU or without.

A process compiles kernels or interprets them, never both, so the compiler runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import NamedTuple

KERNELS = {  # module of flashlearn.kernels: what a launch of contiguous float16 tensors fixes
    "vector_add": {"BLOCK": 1024, "stride_x": 1, "stride_y": 1, "stride_out": 1},
    "softmax": {"BLOCK_N": 1024, "stride_xn": 1, "stride_yn": 1},
    "matmul": {
        "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "PRECISION": "ieee",
        "stride_ak": 1, "stride_bn": 1, "stride_cn": 1,
    },
}  # fmt: skip
GPUS = {"A100": 80, "H100": 90}  # compute capability, times ten


class Compiled(NamedTuple):
    """Of one program: its threads, and the bytes of shared memory that the compiler gave it."""

    threads: int
    shared: int


def compiled(*wanted: tuple[str, str, dict]) -> list[Compiled]:
    """Compile each (kernel, gpu, options), e.g. ("matmul", "H100", {"num_stages": 3}).

    kernel   vector_add, softmax or matmul of `flashlearn.kernels`, for contiguous float16 tensors
    gpu      A100 or H100; none is needed to compile for it
    options  num_warps, num_stages

    RuntimeError with the compiler's message if it fails.
    """
    for kernel, gpu, _ in wanted:
        if kernel not in KERNELS or gpu not in GPUS:
            raise ValueError(f"expected a kernel of {list(KERNELS)} and a GPU of {list(GPUS)}, got {kernel!r}, {gpu!r}")
    done = subprocess.run(
        [sys.executable, "-m", "flashlearn.compiled"], input=json.dumps(wanted), capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "0"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"expected Triton to compile {wanted}, got:\n{done.stderr}")
    return [Compiled(*pair) for pair in json.loads(done.stdout)]


def _compile(kernel: str, gpu: str, options: dict) -> Compiled:
    """In the compiling process: one kernel, as if launched with sizes and pointers that 16 divides."""
    import importlib

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(importlib.import_module(f"flashlearn.kernels.{kernel}"), f"{kernel}_kernel")
    constants = KERNELS[kernel]
    names = enumerate(function.arg_names)
    kinds = {n: "constexpr" if n in constants else "*fp16" if n.endswith("_ptr") else "i32" for n in function.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in names if n not in constants}
    source = ASTSource(fn=function, signature=kinds, constexprs=constants, attrs=aligned)
    result = triton.compile(source, target=GPUTarget("cuda", GPUS[gpu], 32), options=options)
    threads = re.search(r"\.(?:req|max)ntid (\d+)", result.asm["ptx"]).group(1)
    return Compiled(int(threads), result.metadata.shared)


if __name__ == "__main__":
    print(json.dumps([_compile(*one) for one in json.load(sys.stdin)]))
