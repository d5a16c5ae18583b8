"""What Triton's compiler makes of a kernel for a GPU, on any machine with Triton, with a GPU or without.

A process compiles kernels or interprets them, never both, so the compiler runs in a process of its own. It gets the
kernel's source, runs this file alone and imports nothing of the package: PyTorch takes longer to import than a kernel
that is in Triton's cache to look up.
"""

from __future__ import annotations

import inspect
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from typing import Any, NamedTuple

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # of the compiler
KERNELS: dict[str, dict[str, object]] = {  # kernel: what a launch of contiguous float16 tensors fixes
    "vector_add": {"BLOCK": 1024, "stride_x": 1, "stride_y": 1, "stride_out": 1},
    "softmax": {"BLOCK_N": 1024, "stride_xn": 1, "stride_yn": 1},
    "matmul": {
        "BLOCK_M": 64,
        "BLOCK_N": 64,
        "BLOCK_K": 32,
        "PRECISION": "ieee",
        "stride_ak": 1,
        "stride_bn": 1,
        "stride_cn": 1,
    },
    "ladder": {
        "HEAD_DIM": 64,
        "BLOCK_M": 128,
        "BLOCK_N": 64,
        "CAUSAL": False,
        "EXP2": True,
        "SKIP": True,
        "SPLIT": True,
    },
}
FLOATS = ("scale", "lse_ptr")  # arguments in float32; other pointers are to float16, other numbers are int32
GPUS = {"A100": 80, "H100": 90}  # compute capability, times ten


class Compiled(NamedTuple):
    """What one program gets: threads, bytes of shared memory, registers of a thread.

    spilled       bytes per thread that found no register and go through memory
    instructions  in all of the kernel's source for the GPU (PTX), by name, e.g. "ex2.approx.f32"; a loop counts once
    """

    threads: int
    shared: int
    registers: int
    spilled: int
    instructions: dict[str, int]


def lane_operations(fact: Compiled, scores: int) -> float:
    """float32 arithmetic, comparisons and selections per score, without what needs other units.

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
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        input=json.dumps([_job(*one) for one in wanted]),
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "0", "PYTHONUTF8": "1"},
        encoding="utf-8",
    )
    if done.returncode:
        raise RuntimeError(f"expected Triton to compile {wanted}, got:\n{done.stderr}")
    return [Compiled(*pair) for pair in json.loads(done.stdout)]


def _job(kernel: str, gpu: str, options: dict) -> dict[str, object]:
    """What the compiling process needs to know of one kernel: its source, and how it would be launched."""
    import importlib

    from flashlearn.compiler.rejected import source_of

    module = f"flashlearn.kernels.{kernel if kernel == 'ladder' else f'{kernel}_kernel'}"
    function = getattr(importlib.import_module(module), f"{kernel}_kernel").fn
    constants = {**KERNELS[kernel], **{name: value for name, value in options.items() if name in KERNELS[kernel]}}
    return {
        "source": source_of(function),
        "kernel": function.__name__,
        "kinds": {name: _kind(name) for name in inspect.signature(function).parameters if name not in constants},
        "names": list(inspect.signature(function).parameters),
        "constants": constants,
        "capability": GPUS[gpu],
        "options": {name: value for name, value in options.items() if name not in constants},
    }


def _compile(job: dict[str, Any]) -> Compiled:
    """In the compiling process: one kernel, as if launched with sizes and pointers that 16 divides."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": "kernel"}
    linecache.cache["kernel.py"] = (len(job["source"]), None, job["source"].splitlines(keepends=True), "kernel.py")
    exec(compile(job["source"], "kernel.py", "exec"), names)
    kinds = {name: job["kinds"].get(name, "constexpr") for name in job["names"]}
    aligned = {
        (i,): [["tt.divisibility", 16]] for i, kind in enumerate(kinds.values()) if kind not in ("constexpr", "fp32")
    }
    source = ASTSource(fn=names[job["kernel"]], signature=kinds, constexprs=job["constants"], attrs=aligned)
    result = triton.compile(source, target=GPUTarget("cuda", job["capability"], 32), options=job["options"])
    ptx = result.asm["ptx"]
    threads = _number(r"\.(?:req|max)ntid (\d+)", ptx)
    instructions = Counter(re.findall(r"^\s*(?:@%p\d+ )?([a-z]\w*(?:\.\w+)+)", ptx, flags=re.MULTILINE))
    return Compiled(threads, result.metadata.shared, *resources(result.asm["cubin"]), instructions)


def _kind(name: str) -> str:
    """The type of an argument that is no constant."""
    number = "fp32" if name in FLOATS else "fp16" if name.endswith("_ptr") else "i32"
    return f"*{number}" if name.endswith("_ptr") else number


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread, and bytes of stack that it spills to, from the compiled code."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.check_output(
            [knobs.nvidia.cuobjdump.path, "-res-usage", file.name], text=True, encoding="utf-8"
        )
    return _number(r"REG:(\d+)", usage), _number(r"STACK:(\d+)", usage)


def _number(pattern: str, text: str) -> int:
    """The number that the pattern's group finds; RuntimeError if the text has none."""
    found = re.search(pattern, text)
    if not found:
        raise RuntimeError(f"expected {pattern} in what the compiler wrote, got:\n{text[:1000]}")
    return int(found.group(1))


if __name__ == "__main__":
    print(json.dumps([_compile(job) for job in json.load(sys.stdin)]))
