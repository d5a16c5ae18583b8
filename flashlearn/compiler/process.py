"""Triton's compiler in a separate process: one that interprets kernels cannot compile them.

That process runs this file alone and imports nothing of the package: the import of PyTorch takes longer than the
look-up of a kernel in Triton's cache. No GPU is needed.
"""

from __future__ import annotations

import inspect
import json
import linecache
import math
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any


def in_process(command: list[str], jobs: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with this command in a process that compiles kernels; it reads the jobs as JSON."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "0", "PYTHONUTF8": "1", **environment},
        encoding="utf-8",
    )


def job_of(
    function: Callable, kinds: dict[str, str], constants: dict[str, Any], capability: int, **options: Any
) -> dict:
    """A kernel for that process: its source, the types of its arguments, and the options of its launch."""
    return {
        "source": source_of(function),
        "kernel": function.__name__,
        "kinds": {name: kinds.get(name, "constexpr") for name in inspect.signature(function).parameters},
        "constants": constants,
        "capability": capability,
        "options": options,
    }


def source_of(function: Callable) -> str:
    """The source of a kernel and of all that it uses, as a program that defines it."""
    return "\n\n".join(dict.fromkeys(_sources(function, set())))


def _sources(function: Callable, seen: set[str]) -> Iterator[str]:
    """The sources of the kernel and of every function that it calls, and a line for every number that it uses."""
    seen.add(function.__name__)
    for name in function.__code__.co_names:
        value: Any = function.__globals__.get(name)
        inner = getattr(value, "fn", None)
        if inspect.isfunction(inner) and name not in seen:
            yield from _sources(inner, seen)
        elif inspect.ismodule(value) and name not in ("triton", "tl", "math"):
            yield f"import {value.__name__} as {name}"
        elif type(value).__module__ == "triton.language.core" and type(value).__name__ == "dtype":
            yield f"{name} = tl.dtype({value.name!r})"
        elif type(value).__name__ == "constexpr":
            yield f"{name} = tl.constexpr({value.value!r})"
        elif isinstance(value, int | float):
            yield f"{name} = float('{value}')" if isinstance(value, float) else f"{name} = {value!r}"
    lines = textwrap.dedent(inspect.getsource(function))
    yield "@triton.jit\n" + lines[re.search(r"^def ", lines, re.MULTILINE).start() :]  # type: ignore[union-attr]


def _compile(job: dict[str, Any], whole: bool) -> tuple | None:
    """Compile one kernel, as if launched with pointers that 16 divides; for a whole job with sizes too.

    Returns the result.
    """
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names: dict[str, Any] = {"triton": triton, "tl": tl, "math": math, "__name__": "kernel"}
    linecache.cache["kernel.py"] = (len(job["source"]), None, job["source"].splitlines(keepends=True), "kernel.py")
    exec(compile(job["source"], "kernel.py", "exec"), names)
    kinds = job["kinds"].values()
    divided = [kind.startswith("*") or whole and kind not in ("constexpr", "fp32") for kind in kinds]
    aligned = {(i,): [["tt.divisibility", 16]] for i, so in enumerate(divided) if so}
    source = ASTSource(fn=names[job["kernel"]], signature=job["kinds"], constexprs=job["constants"], attrs=aligned)
    result = triton.compile(source, target=GPUTarget("cuda", job["capability"], 32), options=job["options"])
    if not whole:
        return None
    ptx = result.asm["ptx"]
    instructions = Counter(re.findall(r"^\s*(?:@%p\d+ )?([a-z]\w*(?:\.\w+)+)", ptx, flags=re.MULTILINE))
    threads = _number(r"\.(?:req|max)ntid (\d+)", ptx)
    return threads, result.metadata.shared, *resources(result.asm["cubin"]), instructions


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


def _main() -> None:
    """In the process: compile a list of jobs and print the results, or one job; an error of the compiler ends it."""
    jobs = json.load(sys.stdin)
    if isinstance(jobs, list):
        print(json.dumps([_compile(job, whole=True) for job in jobs]))
        return
    from triton.runtime import cache

    cache.triton_key = str  # all of Triton as one number, a second's work: here the cache is thrown away
    _compile(jobs, whole=False)


if __name__ == "__main__":
    _main()
