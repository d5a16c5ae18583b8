"""Compile every kernel and launch that `flash_attention` can choose, for GPUs that are not there, and compare.

    python tools/compile_table.py                         compile all, and say what is worse than tests/compiled.json
    python tools/compile_table.py --write                 ... and write that file again
    python tools/compile_table.py --gpu 75 --gpu 86       for these compute capabilities, times ten, only
    python tools/compile_table.py --triton FOLDER         by the Triton that is installed in a folder of its own

A case is a call of the op: forward, backward (deterministic or not) or decoding, or with masks all three. Its GPU is
one of `flashlearn.compiler.compile_only`, and the kernels are those that the dispatcher picks there. It fails if a
kernel does not compile or does not fit into shared memory. The table holds for every kernel the bytes of shared memory
of a program, and of a thread the bytes that found no register ("spilled"). All of it takes some minutes on 16 cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "compiled.json"
GPUS = (75, 80, 86, 89, 90, 100, 120)
WAYS = ("forward", "backward", "decode")
DTYPES = ("float16", "bfloat16", "float32")
HEAD_DIMS = (16, 64, 96, 128, 256)  # 96: columns are masked
WORSE = 16  # bytes: fewer are a matter of chance


class Case(NamedTuple):
    """One call of the op. str(case) is its name in the table."""

    gpu: int
    way: str
    dtype: str
    D: int
    causal: bool

    def __str__(self) -> str:
        return f"{self.way} {self.dtype} {self.D} {'causal' if self.causal else 'full'}"


CASES = tuple(Case(*values) for values in itertools.product(GPUS, WAYS, DTYPES, HEAD_DIMS, (False, True)))
# three chunks of 64 columns
CASES += tuple(Case(90, way, "float16", 192, causal) for way in ("forward", "backward") for causal in (False, True))
# with masks and changed scores: forward, backward and decoding, in a window of packed documents, and with every option
MASKED = tuple(
    Case(*values)
    for values in itertools.product((80, 90), ("windows", "options"), ("float16",), (64, 128, 256), (True,))
)
# backward where deterministic algorithms are set; and with a window of packed documents
ORDERED = tuple(
    Case(90, "in order", *values) for values in itertools.product(("float16",), (64, 128, 192, 256), (False, True))
)
MASKED += tuple(
    Case(90, way, "float16", D, True) for way in ("windows in order", "windows capped") for D in (64, 128, 256)
)
MASKED += (Case(90, "windows", "float16", 192, True),)
CASES += MASKED + ORDERED
Kernels = dict[str, list[int]]  # name: [bytes of shared memory, bytes spilled], the maximum of all launches of a case


def compiled(cases: Iterable[Case], *, jobs: int = 2, triton: str | None = None) -> Iterator[tuple[Case, Kernels]]:
    """Each case compiled, in `jobs` processes, by the Triton in the folder `triton`, if given."""
    by_gpu = itertools.groupby(sorted(cases), key=lambda case: case.gpu)
    chunks = [list(group) for _, group in by_gpu]
    pieces = max(1, -(-2 * jobs // max(len(chunks), 1)))  # two jobs for every process: they end at about the same time
    chunks = [chunk[i::pieces] for chunk in chunks for i in range(pieces) if chunk[i::pieces]]
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(partial(_in_a_process, triton=triton), chunks):
            yield from found


def _in_a_process(cases: list[Case], triton: str | None = None) -> list[tuple[Case, Kernels]]:
    paths = [path for path in (triton, str(ROOT), os.environ.get("PYTHONPATH")) if path]
    env = {**os.environ, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    env["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(
        [sys.executable, __file__, "--compile"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=env,
        encoding="utf-8",
    )
    if done.returncode:
        raise RuntimeError(
            f"expected all of {[f'sm_{case.gpu} {case}' for case in cases]} to compile, got:\n{done.stderr}"
        )
    return list(zip(cases, json.loads(done.stdout), strict=True))


def compile_here(cases: list[Case]) -> Iterator[Kernels]:
    """The same in this process, which has to be a fresh one; all cases are of one GPU."""
    from types import SimpleNamespace

    import torch

    from flashlearn.compiler.compile_only import SHARED, compile_for
    from flashlearn.fast import operators

    launches, gpu = compile_for(cases[0].gpu), cases[0].gpu
    properties: Any = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=SHARED[gpu])
    torch.cuda.get_device_capability = lambda device=None: divmod(gpu, 10)
    torch.cuda.get_device_properties = lambda device=None: properties
    torch.cuda.is_current_stream_capturing = lambda: False
    target: Any = sys.modules["flashlearn.core.target"]
    target.check_device = lambda *_: None  # tensors are on the CPU
    for case in cases:
        launches.clear()
        call(operators, torch, case)
        assert launches, f"expected {case} to launch something"
        kernels: Kernels = {}
        for launch in launches:
            shared, spilled = kernels.get(launch.kernel, (0, 0))
            kernels[launch.kernel] = [max(shared, launch.shared), max(spilled, launch.spilled)]
        yield kernels


def call(operators, torch, case: Case) -> None:
    """Let the op launch what it launches in such a case; nothing runs, and the tensors hold nothing."""
    dtype = getattr(torch, case.dtype)
    if case in MASKED:
        return call_masked(operators, torch, case)

    def tensors(H_q, N_q, N_k, H_kv):
        return [
            torch.empty(1, H, N, case.D, dtype=dtype) for H, N in ((H_q, N_q), (H_kv, N_k), (H_kv, N_k), (H_q, N_q))
        ]

    if case.way == "decode":  # one query; as many as a program takes; in one launch; in two, with many splits
        rows = 128 // dtype.itemsize if case.gpu >= 80 else 32
        for H_q, N_k in ((1, 4096), (rows, 4096), (rows // 2, 2**20 // case.D)):
            q, k, v, _ = tensors(H_q, 1, N_k, 1)
            operators._forward(q, k, v, case.causal, 0.1)
        return
    if case.way in ("backward", "in order"):
        torch.use_deterministic_algorithms(case.way == "in order")
        shapes = [(2, 512)]
        if case.gpu == 90:  # short and long sequences have their own launches, and so do heads of shared keys
            shapes += [(2, 8192), (4, 1024), (4, 4096)]
        for H, N in shapes:
            q, k, v, do = tensors(H, N, N, 2)
            operators._backward(do, None, q, k, v, do, torch.empty(1, H, N), case.causal, 0.1)
        torch.use_deterministic_algorithms(False)
        return
    hopper = case.gpu == 90  # its launches depend on the number of queries, and of heads
    for H, N in ((2, 512), *((160, N) for N in (512, 1024, 2048, 4096, 8192))) if hopper else ((2, 512),):
        q, k, v, _ = tensors(H, N, N, H)  # of few heads each program has one block of queries, of many it takes several
        operators._forward(q, k, v, case.causal, 0.1)


def call_masked(operators, torch, case: Case) -> None:
    """The same with masks: of documents in a window, of one long document, and of one query behind a cache."""
    from flashlearn.core.options import plain_options

    H = 160 if case.gpu == 90 else 2  # of so many heads each program takes several blocks of queries
    q, k, v, do = torch.empty(4, 1, H, 512, case.D, dtype=getattr(torch, case.dtype))
    numbers, per_head, lse = torch.zeros(2, dtype=torch.int32), torch.empty(H), torch.empty(1, H, 512)
    options = plain_options(case.D, 0.1, causal=True)._replace(left=100, offsets=(numbers, None))
    if case.way == "windows capped":
        options = options._replace(softcap=30.0)
    if case.way == "options":
        ends = numbers[:1], numbers[1:]
        options = options._replace(key_range=ends, softcap=30.0, alibi=per_head, sinks=per_head)
    torch.use_deterministic_algorithms(case.way == "windows in order")
    operators.run_forward(q, k, v, options)
    operators.run_backward(do, q, k, v, do, lse, None, options, options.changes_scores)
    long = torch.empty(1, H, 8192, case.D, dtype=q.dtype)
    if case.gpu == 90:  # launches depend on how many keys are attended to
        operators.run_forward(long, long, long, options._replace(left=None))
    operators.run_forward(q[:, :, :1], long, long, options._replace(offsets=None))
    torch.use_deterministic_algorithms(False)


def is_recorded(recorded: dict, case: Case) -> bool:
    """Whether the table has this case."""
    return str(case) in recorded.get(str(case.gpu), {})


def worse(recorded: dict, found: Iterable[tuple[Case, Kernels]]) -> list[str]:
    """The regressions: another kernel than recorded, or one that spills more; of cases that are in the table."""
    lines = []
    for case, kernels in found:
        if not is_recorded(recorded, case):
            continue
        known = recorded[str(case.gpu)][str(case)]
        if set(known) != set(kernels):
            lines.append(f"sm_{case.gpu} {case}: expected the kernels {sorted(known)}, got {sorted(kernels)}")
        for name in set(known) & set(kernels):
            spilled, before = kernels[name][1], known[name][1]
            if spilled > before + WORSE:
                lines.append(f"sm_{case.gpu} {case}: {name} spills {spilled} bytes, recorded are {before}")
    return sorted(lines)


def read() -> dict:
    """{"triton": version, "cases": {gpu: {case: {kernel: [shared, spilled]}}}}"""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def write(version: str, found: Iterable[tuple[Case, Kernels]]) -> None:
    """Write the table, a line a case."""
    lines: dict[int, list] = {gpu: [] for gpu in GPUS}
    for case, kernels in found:
        lines[case.gpu].append(f"   {json.dumps(str(case))}: {json.dumps(kernels, sort_keys=True)}")
    gpus = [f'  "{gpu}": {{\n' + ",\n".join(sorted(of)) + "\n  }" for gpu, of in lines.items() if of]
    TABLE.write_text(f'{{\n "triton": "{version}",\n "cases": {{\n' + ",\n".join(gpus) + "\n }\n}\n", encoding="utf-8")


def worst(found: Iterable[tuple[Case, Kernels]]) -> dict[tuple[int, str], tuple[int, str, str]]:
    """(GPU, way): the most bytes spilled, and by which kernel, in which case."""
    most: dict = {}
    for case, kernels in found:
        for name, (_, spilled) in kernels.items():
            most[case.gpu, case.way] = max(most.get((case.gpu, case.way), (-1, "", "")), (spilled, name, str(case)))
    return most


def version_of(triton: str | None) -> str:
    """The version of the Triton in a folder, or of the one that is installed."""
    program = "import triton; print(triton.__version__, triton.__file__)"
    paths = [path for path in (triton, os.environ.get("PYTHONPATH")) if path]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, encoding="utf-8",
    )  # fmt: skip
    version, _, file = done.stdout.strip().partition(" ")
    if done.returncode or (triton and not Path(file).is_relative_to(Path(triton).resolve())):
        raise SystemExit(f"expected Triton installed in {triton} (pip install --target), got {done.stderr or file}")
    return version


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, action="append", choices=GPUS, help="for these only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile")
    parser.add_argument("--triton", metavar="FOLDER", help="where another Triton is installed")
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.compile:
        print(json.dumps(list(compile_here([Case(*values) for values in json.load(sys.stdin)]))))
        return 0
    if given.write and (given.gpu or given.triton):
        parser.error("expected --write for all GPUs and the installed Triton, got it with --gpu or --triton")
    version = version_of(given.triton)
    cases = [case for case in CASES if not given.gpu or case.gpu in given.gpu]
    coming = compiled(cases, jobs=given.jobs, triton=given.triton)
    found = list(tqdm(coming, "compiling", len(cases), unit="case", disable=None))
    print(f"Triton {version}: {len(found)} cases compile and fit; the most bytes that a thread spills:")
    for (gpu, way), (spilled, kernel, case) in sorted(worst(found).items()):
        print(f"  sm_{gpu:<4} {way:9} {spilled:5}  {kernel}, {case}")
    if given.write:
        write(version, found)
        return 0
    recorded = read()["cases"]
    lines = worse(recorded, found)
    print("\n".join(lines) or "none is worse than recorded")
    if new := sum(not is_recorded(recorded, case) for case, _ in found):
        print(f"{new} cases are not recorded: --write records all")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
