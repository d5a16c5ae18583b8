"""Time the kernels of notebook 15 on one Hopper GPU, with one stage after another.

    python benchmarks/gpu_lesson.py --commit $(git rev-parse --short HEAD)     on an H200 gpu_lesson_h200.json
    python benchmarks/gpu_lesson.py --table flashlearn/measurements/gpu_lesson_h200.json       a recorded run, as a table

double      y = 2 x, a tile of 64 by 64 for each SM
alone       O = (Q K^T) V, 64 queries for each SM; the warpgroup that multiplies issues its own loads
shared      the same, 128 queries: one producer warp, two consumer warpgroups
attend      the same with the online softmax: attention

float16, D 64, 65536 keys, one program for each SM, so that no other program hides its waiting. Nanoseconds for each
tile of 64 keys, from medians, the lowest of three rounds in which all alternate. Every result is compared with
PyTorch's in float32 before it is timed; without the softmax all numbers are whole, and it must be the same. Takes a
minute.
"""

from __future__ import annotations

import importlib.util
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from recording import check_gpu, file_of, parser_of, provenance, recorded, save
from side_by_side import measure
from side_by_side.backends import Rejected
from torch import Tensor
from tqdm import tqdm

STAGES = {"double": (1,), "alone": (1, 2, 3, 4), "shared": (1, 2, 3, 4), "attend": (1, 2, 3, 4)}
KEYS, TILE = 65536, 64
QUERIES = {"double": 64, "alone": 64}  # of one program; 128 of the others
QK_SCALE = TILE**-0.5 * 1.4426950408889634  # exp2 in place of exp


class Inputs(NamedTuple):
    """q, k, v, all of 64 columns, an o to write, and the right o."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    want: Tensor


def inputs(kernel: str, programs: int, keys: int = KEYS, device: str = "cuda") -> Inputs:
    """Whole numbers without a softmax: sums in any order are exact."""
    torch.manual_seed(0)
    rows = programs * QUERIES.get(kernel, 128)
    if kernel == "attend":
        q, k, v = (torch.randn(n, TILE, device=device).half() for n in (rows, keys, keys))
        want = torch.nn.functional.scaled_dot_product_attention(*(t.float()[None, None] for t in (q, k, v)))[0, 0]
    else:
        q, k, v = (torch.randint(-1, 2, (n, TILE), device=device).half() for n in (rows, keys, keys))
        want = q.double() @ (k.double().T @ v.double())
    return Inputs(q, k, v, torch.zeros_like(q), want)


def lesson_of(folder: str) -> dict[str, Any]:
    """The lesson's kernels, `attend_kernel` among them: `shared_kernel` with `attend` in the place of `consume`."""
    from flashlearn.compiler.compiled_source import HEADER, source_of
    from flashlearn.kernels import lesson

    path = Path(folder, "attend_kernel.py")
    path.write_text(HEADER + source_of(lesson.shared_kernel, {"consume": lesson.attend}), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("attend_kernel", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        "double": lesson.double_kernel,
        "alone": lesson.alone_kernel,
        "shared": lesson.shared_kernel,
        "attend": module.shared_kernel,
    }


def descriptor(t: Tensor):
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon import nvidia

    layout = gl.NVMMASharedLayout.get_default_for([TILE, TILE], gl.float16)
    return nvidia.hopper.TensorDescriptor.from_tensor(t, [TILE, TILE], layout)


def call_of(name: str, stages: int, kernels: dict, given: Inputs, programs: int) -> Callable[[], object]:
    """One launch; its result is checked here."""
    q, k, v, o = map(descriptor, given[:4])
    blocks = len(given.k) // TILE
    args = {"double": (q, o), "alone": (q, k, v, o, blocks)}.get(name, (q, k, v, o, blocks, QK_SCALE))
    constants = {} if name == "double" else {"STAGES": stages}
    call = lambda: kernels[name][(programs,)](*args, **constants, num_warps=4)  # noqa: E731
    checked(name, call, given)
    return call


def checked(name: str, call: Callable, given: Inputs) -> None:
    """Run it once and check it before it is timed: whole numbers must be the same, others within measure.BOUND."""
    given.o.zero_()
    call()
    if name == "attend":
        measure.check((name,), (given.o,), (given.want,), "float16")
        return
    want = 2 * given.q if name == "double" else given.want.half()
    wrong = int((given.o != want).sum())
    if wrong:
        raise Rejected(f"{name} is wrong in {wrong} of {want.numel()} entries: not timed")


def measured(kernels: dict, programs: int, keys: int = KEYS, device: str = "cuda") -> list[dict]:
    """A row for each kernel and number of stages: microseconds, and nanoseconds for a tile of keys."""
    calls: dict[tuple[str, int], Callable] = {}
    for name, counts in STAGES.items():
        given = inputs(name, programs, keys, device)
        for stages in counts:
            calls[name, stages] = call_of(name, stages, kernels, given, programs)
    best: dict[tuple[str, int], float] = {}
    jobs = list(itertools.product(range(measure.ROUNDS), calls))
    for _, key in tqdm(jobs, unit="kernel", disable=None):
        best[key] = min(best.get(key, float("inf")), measure.median_ms(calls[key]))
    return [row(*key, ms, programs, keys) for key, ms in best.items()]


def row(name: str, stages: int, ms: float, programs: int, keys: int) -> dict:
    tiles = 1 if name == "double" else keys // TILE
    us, ns = measure.shortened(1e3 * ms), measure.shortened(1e6 * ms / tiles)
    return {"kernel": name, "stages": stages, "programs": programs, "tiles": tiles, "us": us, "ns_per_tile": ns}


def table(results: dict) -> str:
    """A line for each kernel and number of stages."""
    lines = [", ".join(f"{key} {value}" for key, value in results["provenance"].items())]
    for row in results["rows"]:
        lines.append(
            f"{row['kernel']:8} {row['stages']} stages {row['us']:9.1f} us {row['ns_per_tile']:8.1f} ns a tile"
        )
    return "\n".join(lines)


def main(given: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    args = parser.parse_args(given)
    if args.table:
        print(table(recorded(args.table, parser, "rows", row="kernel")))
        return
    check_gpu(parser, "; --table prints a recorded run")
    out = args.out or file_of("lesson")
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    results = {"provenance": provenance(args.commit), "unit": "us, and ns for a tile of 64 keys, medians"}
    with tempfile.TemporaryDirectory() as folder:
        results["rows"] = measured(lesson_of(folder), programs)
    save(results, out)
    print(table(results))


if __name__ == "__main__":
    main()
