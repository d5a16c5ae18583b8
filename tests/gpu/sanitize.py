"""Look for stray accesses and races in the kernels, with tools that see every access. Needs a Hopper GPU.

    python tests/gpu/sanitize.py                 all of the following, or only those named after it

memcheck    of NVIDIA's compute-sanitizer: accesses out of bounds, in all kernels
racecheck   of the same: races in shared memory, in all kernels. It knows nothing of the barriers in shared memory
            (mbarriers) that order the Hopper kernels, so it reports what they order; see `known`
consan      Triton's concurrency sanitizer, compiled into the Hopper kernels: it follows those barriers, the copy
            engine and asynchronous products. And the same with one barrier told too early, which it must notice

Each tool runs this file in another process, with `run` and the kernels wanted: all, hopper or early; the last two
with a head dimension, at the same time, since most of their minutes goes into compilation.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

KERNELS = Path(__file__).resolve().parents[2] / "flashlearn" / "fast"
TOOLS = ("memcheck", "racecheck", "consan")
P_HANDED_OVER = (
    "x = smem.reshape([128, 32]).load(register_order(like).type.layout)",
    "cta.p.smem.index(0).reshape([128, 32]).store(register_order(p.dp_factor))",
)  # the lines of flashlearn/fast/hopper/backward_wide.py that read it and write it


class Access(NamedTuple):
    """One of the two accesses of a race: "Read" or "Write", and the line of Python that it comes from."""

    kind: str
    line: str


def main(tools: list[str]) -> None:
    """Run the tools; exit with what they found, if anything."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("expected a Hopper GPU to look for races on, found none")
    faults = []
    for tool in tools or TOOLS:
        print(f"== {tool}", flush=True)
        found = globals()[tool]()
        print("\n".join(found) or "nothing", flush=True)
        faults += found
    sys.exit(1 if faults else 0)


def memcheck() -> list[str]:
    done = sanitized("memcheck", "--print-limit", "5")
    summary = re.search(r"ERROR SUMMARY: (\d+) error", done.stdout)
    good = done.returncode == 0 and summary and summary[1] == "0"
    return [] if good else [f"expected no error, got:\n{tail(done)}"]


def racecheck() -> list[str]:
    done = sanitized("racecheck", "--racecheck-report", "analysis", "--print-limit", "100000")
    if done.returncode:
        return [f"expected a run to its end, got:\n{tail(done)}"]
    return unknown_races(done.stdout)


def consan() -> list[str]:
    environment = {"TRITON_INSTRUMENTATION_MODE": "consan", "CUDA_LAUNCH_BLOCKING": "1"}
    with ThreadPoolExecutor() as pool:
        given = (("hopper", "64"), ("hopper", "128"), ("early", "64"), ("early", "128"))
        narrow, wide, *early = pool.map(lambda kernels: child(*kernels, **environment), given)
    faults = [f"expected no race, got:\n{tail(done)}" for done in (narrow, wide) if done.returncode]
    for done in early:
        if not (done.returncode and "Buffer being accessed has outstanding" in done.stdout):
            faults.append(f"expected a race where a barrier is told too early, got:\n{tail(done)}")
    return faults


def sanitized(tool: str, *options: str) -> subprocess.CompletedProcess:
    """All kernels under a tool of compute-sanitizer; compiled before, and with no caching allocator to hide strays."""
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = child("all", **environment)
    command = ("compute-sanitizer", "--tool", tool, *options)
    return done if done.returncode else child("all", before=command, **environment)


def child(*kernels: str, before: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess:
    """This file in another process, to run `kernels`; stdout and stderr together. Status 124: not done in time."""
    program = ["timeout", "500", *before, sys.executable, __file__, "run", *kernels]
    environment = {**os.environ, **environment, "PYTHONPATH": str(KERNELS.parents[1])}
    return subprocess.run(
        program, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )


def tail(done: subprocess.CompletedProcess) -> str:
    return f"exit status {done.returncode}, and at the end\n{done.stdout[-3000:]}"


def unknown_races(report: str) -> list[str]:
    """The races in racecheck's report that are not `known`, and whatever makes the report doubtful."""
    report = re.sub(r"^=+ ", "", report, flags=re.MULTILINE)
    races, faults = report.split("Race reported between ")[1:], []
    summary = re.search(r"RACECHECK SUMMARY: (\d+) hazards? displayed", report)
    if summary is None or int(summary[1]) != len(races):
        faults.append(f"expected a summary of {len(races)} hazards, got {summary and summary[0]}")
    known_races = 0
    for race in races:
        text = "\n".join(re.findall(r"^.*(?:Read|Write) access at.*$", race, flags=re.MULTILINE))
        (kind, *first), *others = re.findall(r"(Read|Write) access at (.*)", text) or [("", "")]
        pairs = [(Access(kind, source_line(first[0])), Access(k, source_line(where))) for k, where in others]
        if pairs and all(map(known, pairs)):
            known_races += 1
        else:
            faults.append(f"a new race: {text}\n  lines: {pairs}")
    print(f"{len(races)} reports, {known_races} of them of accesses that barriers order")
    return faults


def source_line(where: str) -> str:
    """The line of flashlearn.fast that racecheck names, e.g. "..._kernel+0x80 in .../fast/x.py:12"; "" for others.

    Some versions name no folder, "..._kernel+0x80 in x.py:12": that is the file of this name which defines the kernel.
    """
    found = re.search(r"(\w+)\+0x\w+ in (\S+\.py):(\d+)", where)
    if found is None:
        return ""
    kernel, path, number = found.groups()
    named = [KERNELS / path.split("/fast/")[-1]] if "/fast/" in path else []
    if "/" not in path:
        named = [file for file in KERNELS.rglob(path) if f"def {kernel}(" in file.read_text(encoding="utf-8")]
    if len(named) != 1 or not named[0].exists():
        return ""
    lines = named[0].read_text(encoding="utf-8").splitlines()
    return lines[int(number) - 1].strip() if int(number) <= len(lines) else ""


def known(race: tuple[Access, Access]) -> bool:
    """Whether this is what in the Hopper kernels is ordered, as racecheck cannot tell.

    The bytes through which Triton tells its groups of warps what to run: written and read by code of its own, to
    which it gives the line of the kernel's `def`, or that where the groups part, with barrier 1 of the hardware
    between the two. And P, which one group of the backward pass of wide heads hands over to the other: ordinary reads and
    writes, each of which waits for a barrier in shared memory that follows the other (`p_full`, `p_free`; what happens without
    either, tests/test_barriers.py shows).
    """
    a, b = sorted(race)
    if {a.kind, b.kind} != {"Read", "Write"}:
        return False
    if (a.line, b.line) == P_HANDED_OVER:
        return True
    of_kernel = re.match(r"def attention_\w+_(hopper|wide)_kernel\(", a.line)
    return bool(of_kernel) and b.line in (a.line, "gl.warp_specialize(", "if CONSUMERS == 2:", "if DETERMINISTIC:")


def run(kernels: str, D: str = "") -> None:
    """Small shapes through all kernels, or the Hopper kernels for D, or "early" ones, which have a race."""
    import torch

    from flashlearn.fast.api import flash_attention

    torch.manual_seed(0)
    torch.autograd.set_multithreading_enabled(False)  # the allocator is known to this thread only
    if os.environ.get("TRITON_INSTRUMENTATION_MODE") == "consan":
        import triton

        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    if kernels != "all":
        sizes, causal = [(600, 600, int(D)), (1030, 1030, int(D))], (True,)  # more iterations than buffers
    else:
        run_others()
        sizes = (
            (65, 130, 64),
            (130, 65, 128),
            (1, 33, 40),
            (1, 600, 64),
            (3, 1500, 64),  # in splits
            (256, 256, 64),
            (256, 256, 128),
            (300, 300, 128),
            (1030, 1030, 64),
            (1030, 1030, 128),
            (130, 200, 192),
            (200, 130, 256),
        )
        causal = (False, True)
    for N_q, N_k, D in sizes:
        for each in causal:
            heads = 2 if N_q > 1024 else 1  # of so many keys, two rows of shared keys run side by side backward
            q = torch.randn(1, 2 * heads, N_q, D, device="cuda", dtype=torch.float16, requires_grad=True)
            k, v = (
                torch.randn(1, heads, N_k, D, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(2)
            )
            if kernels == "early":
                run_early(q, k, v)
            else:
                flash_attention(q, k, v, causal=each).sum().backward()
    torch.cuda.synchronize()


def run_others() -> None:
    """The kernels that are not attention; and those of attention that Hopper GPUs do not pick."""
    import torch

    from flashlearn import kernels

    x = torch.randn(1000, device="cuda")
    kernels.vector_add(x, x)
    kernels.softmax(x.view(10, 100))
    kernels.matmul(x.view(10, 100), x.view(100, 10))
    for causal in (False, True):
        q, k, v = (torch.randn(1, 2, n, 64, device="cuda", dtype=torch.float16) for n in (65, 130, 130))
        o, lse = kernels.attention_forward(q, k, v, causal=causal)
        kernels.attention_backward(torch.randn_like(o), q, k, v, o, lse, causal=causal)


def run_early(q, k, v) -> None:
    """The Hopper backward pass, with groups that tell each other of dS before they store it."""
    import torch

    stored = "    cta.ds.index(t % DS_STAGES * 2 + CONSUMER).store(ds_t)\n    fence_async_shared()\n"
    told = "    mbarrier.arrive(cta.ds_full.index(t % 2), count=1)\n"
    source = (KERNELS / "hopper/backward.py").read_text(encoding="utf-8")
    broken = source.replace(stored + told, told + stored)
    assert broken != source, f"expected {stored!r} and then {told!r} in hopper/backward.py, got neither"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "attention_backward_early.py")
        path.write_text(broken, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        with torch.no_grad():
            lse = torch.zeros(q.shape[:3], device="cuda")
            from flashlearn.fast.hopper import backward_launch

            backward_launch.attention_backward_hopper_kernel = module.attention_backward_hopper_kernel
            backward_launch.attention_backward_hopper(q, q, k, v, q, lse, causal=True, scale=0.1)
            torch.cuda.synchronize()


if __name__ == "__main__":
    run(*sys.argv[2:]) if sys.argv[1:2] == ["run"] else main(sys.argv[1:])
