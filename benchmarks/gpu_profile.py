"""Count what the fast kernels do on the chip, and cuDNN's beside them, with NVIDIA's profiler. Needs Nsight Compute.

    python benchmarks/gpu_profile.py --commit $(git rev-parse --short HEAD)      writes flashlearn/measurements/gpu_profile.json

One layer, D 128, 16 heads, 16384 tokens, not causal, float16. The profiler runs a kernel many times, a few counters
at a time, so its times are not for comparison with others.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from pathlib import Path

from gpu_attention import check_gpu, provenance, save

RESULTS = Path(__file__).parents[1] / "flashlearn/measurements/gpu_profile.json"
SETTING = {"B": 1, "H": 16, "N": 16384, "D": 128, "causal": False, "dtype": "float16"}
KERNELS = {"flashlearn": "hopper_kernel", "cudnn": "cudnn.*sdpa"}  # regular expressions of names
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
COUNTERS = {
    "ms": "gpu__time_duration.sum",
    "tensor cores busy, % of cycles": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "an instruction issued, % of cycles": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "registers reloaded from memory": "smsp__sass_inst_executed_op_local_ld.sum",
    "bank conflicts of stores": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "warps waiting at barriers": STALLED.format("barrier"),
    "warps waiting for memory": STALLED.format("long_scoreboard"),
}


def run(name: str) -> None:
    """One forward and one backward pass of a backend."""
    import torch
    from side_by_side.backends import bind, context

    shape = tuple(SETTING[size] for size in "BHND")
    q, k, v, do = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(4))
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    with context(name):
        torch.autograd.grad(bind(name, q, k, v, SETTING["causal"])(), (q, k, v), do)
    torch.cuda.synchronize()


def profile(name: str) -> dict[str, dict]:
    """{"forward": {counter: number}, "backward": ...} of a backend."""
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    command += ["--metrics", ",".join(COUNTERS.values()), "--kernel-name", f"regex:{KERNELS[name]}"]
    done = subprocess.run([*command, sys.executable, __file__, "--run", name], capture_output=True, text=True)
    kernels = read(done.stdout)
    if done.returncode or len(kernels) != 2:
        raise RuntimeError(
            f"expected the counters of two kernels of {name}, got {len(kernels)}; the profiler said\n"
            f"{done.stdout[-1000:]}{done.stderr[-1000:]}"
        )
    return dict(zip(("forward", "backward"), kernels, strict=True))


def read(report: str) -> list[dict]:
    """Name and counters of every kernel in the profiler's table: a header, a line of units, a line for each kernel."""
    lines = list(csv.reader(line for line in report.splitlines() if line.startswith('"')))
    kernels = []
    for line in lines[2:]:
        cells = dict(zip(lines[0], line, strict=True))
        counted = {words: float(cells[counter].replace(",", "")) for words, counter in COUNTERS.items()}
        counted["ms"] /= 1e6  # from ns
        kernels.append({"kernel": cells["Kernel Name"]} | counted)
    return kernels


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--commit", help="what to record where there is no git checkout")
    parser.add_argument("--run", choices=KERNELS, help="only run the kernels, for the profiler")
    args = parser.parse_args(given)
    if shutil.which("ncu") is None:
        parser.error("expected NVIDIA's profiler on the PATH, found no `ncu`: it comes with Nsight Compute")
    check_gpu(parser)
    if args.run:
        run(args.run)
        return
    results = {"provenance": provenance(args.commit), "setting": SETTING}
    save(results | {name: profile(name) for name in KERNELS}, args.out)
    print(args.out.read_text())


if __name__ == "__main__":
    main()
