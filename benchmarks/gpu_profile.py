"""Profile the fast kernels, cuDNN's and FlashAttention-4's, with NVIDIA's Nsight Compute.

    python benchmarks/gpu_profile.py --commit $(git rev-parse --short HEAD)      writes flashlearn/measurements/gpu_profile.json

Two settings of each direction: one in which our kernel is slowest compared with FlashAttention-4, and one more. One
pass is counted after another has warmed up. The profiler runs each kernel of it many times, a few counters at a time,
and empties the caches before each, so its times are not for comparison with others.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from recording import check_gpu, provenance, save
from side_by_side.backends import bind, context, installed
from side_by_side.rounds import listings, stands
from tqdm import tqdm

RESULTS = Path(__file__).parents[1] / "flashlearn/measurements/gpu_profile.json"
BACKENDS = ("flashlearn", "cudnn", "fa4")
SETTINGS = [
    {"direction": direction, "B": 16384 // N, "H_q": 2048 // D, "N": N, "D": D, "causal": causal, "dtype": "bfloat16"}
    for direction, D, N, causal in (
        ("forward", 128, 16384, False),
        ("forward", 64, 8192, True),
        ("backward", 64, 4096, True),
        ("backward", 128, 16384, False),
    )
]
COUNTERS = {
    "ms": "gpu__time_duration.sum",
    "clock, GHz": "smsp__cycles_elapsed.avg.per_second",
    "tensor cores busy, % of cycles": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "unit for exponentials busy, %": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "shared memory busy, %": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active",
    "an instruction issued, % of cycles": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "instructions": "smsp__inst_executed.sum",
    "registers reloaded from memory": "smsp__sass_inst_executed_op_local_ld.sum",
    "bank conflicts of stores": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "warps of a scheduler": "smsp__warps_active.avg.per_cycle_active",
}
COUNTS = ("instructions", "registers reloaded from memory", "bank conflicts of stores")
# Reasons for a stalled warp, in the profiler's words. "barrier" counts waits for products, too, and "long_scoreboard" those at
# barriers in shared memory; `stands` separates them
CAUSES = (
    "selected", "not_selected", "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle",
    "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "short_scoreboard", "sleeping",
    "tex_throttle", "wait",
)  # fmt: skip
AS_TEXT = ("--csv", "--print-units", "base")
STALLED = {cause: f"smsp__average_warps_issue_stalled_{cause}_per_issue_active.ratio" for cause in CAUSES}


def run(name: str, setting: Mapping) -> None:
    """One call of a backend to get ready, and one within the profiler's range: of its forward or its backward pass."""
    import torch

    shape, dtype = tuple(setting[size] for size in ("B", "H_q", "N", "D")), getattr(torch, setting["dtype"])
    q, k, v, do = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(4))
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    with context(name):
        forward = bind(name, q, k, v, setting["causal"])
        torch.autograd.grad(forward(), (q, k, v), do)
        o = forward()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        forward() if setting["direction"] == "forward" else torch.autograd.grad(o, (q, k, v), do)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def profile(name: str, index: int, folder: Path) -> dict:
    """The counters of one pass of a backend, of its longest kernel, and the samples of that kernel's warps."""
    report = folder / f"{name}_{index}.ncu-rep"
    counters = ",".join([*COUNTERS.values(), *STALLED.values()])
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--section", "SourceCounters"]
    command += ["--metrics", counters, "--force-overwrite", "--export", str(report)]
    done = subprocess.run(
        [*command, sys.executable, __file__, "--run", name, str(index)],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    raw, source = (
        subprocess.run(
            ["ncu", "--import", str(report), *AS_TEXT, "--page", page], capture_output=True, text=True, encoding="utf-8"
        ).stdout
        for page in ("raw", "source")
    )
    try:
        kernels, sources = counted(raw), listings(source)
        if not kernels:
            raise ValueError("none")
        at = max(range(len(kernels)), key=lambda i: kernels[i]["ms"])
        found = kernels[at] | {"ms of all kernels": sum(each["ms"] for each in kernels), "round": stands(sources[at])}
        return to_digits(found)
    except (IndexError, KeyError, ValueError) as error:
        raise RuntimeError(
            f"expected the counters of {name}'s kernels, got {error}; the profiler said\n{done.stdout[-1000:]}{done.stderr[-1000:]}"
        ) from error


def counted(page: str) -> list[dict]:
    """Name and counters of every kernel in the profiler's table: a header, a line of units, a line for each kernel."""
    lines = list(csv.reader(line for line in page.splitlines() if line.startswith('"')))
    kernels = []
    for line in lines[2:]:
        cells = dict(zip(lines[0], line, strict=True))
        found = {words: float(cells[counter].replace(",", "")) for words, counter in COUNTERS.items()}
        found["ms"] /= 1e6  # from ns
        found["clock, GHz"] /= 1e9
        found |= {words: int(found[words]) for words in COUNTS}
        issued = found["an instruction issued, % of cycles"] / 100
        waits = {cause: float(cells[counter].replace(",", "")) * issued for cause, counter in STALLED.items()}
        kernels.append({"kernel": cells["Kernel Name"]} | found | {"warps": waits})
    return kernels


def to_digits(found: Mapping) -> dict:
    """The same to four digits after the point."""
    new = {key: to_digits(value) if isinstance(value, Mapping) else value for key, value in found.items()}
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in new.items()}


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--commit", help="what to record where there is no git checkout")
    parser.add_argument("--reports", type=Path, help="a folder to keep the profiler's reports in")
    parser.add_argument("--run", nargs=2, metavar=("BACKEND", "SETTING"), help="only run the kernels, for the profiler")
    args = parser.parse_args(given)
    if shutil.which("ncu") is None:
        parser.error("expected NVIDIA's profiler on the PATH, found no `ncu`: it comes with Nsight Compute")
    check_gpu(parser)
    if args.run:
        run(args.run[0], SETTINGS[int(args.run[1])])
        return
    results: dict = {"provenance": provenance(args.commit), "rows": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.reports or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        names = [name for name in BACKENDS if name in installed()]
        jobs = list(itertools.product(enumerate(SETTINGS), names))
        for (index, setting), name in tqdm(jobs, unit="backend", disable=None):
            results["rows"].append(setting | {"backend": name} | profile(name, index, folder))
            save(results, args.out)
    print(args.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
