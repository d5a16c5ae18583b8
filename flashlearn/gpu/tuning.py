"""Tuning: run a kernel with every candidate of block sizes, warps and stages, and keep the fastest.

    rates, where = tuned(64)         {(128, 64, 4, 2): 327.0, ...} in TFLOP/s, and where that was measured

With a GPU the candidates run in a separate process, because one that interprets kernels cannot compile them. Without
one the rates are those that were recorded.
"""

from __future__ import annotations

import json
import sys

import torch

from flashlearn.compiler.process import in_process
from flashlearn.measurements.records import load, provenance

Launches = dict[tuple[int, ...], float]  # block_m, block_n, num_warps, num_stages: TFLOP/s


def tuned(D: int = 64, N: int = 4096) -> tuple[Launches, str]:
    """Rates of the causal forward kernel of `flashlearn.kernels.ladder`, 16 heads, float16, and where they come from.

    Candidates that do not fit the GPU are left out. RuntimeError if the measuring process fails; ValueError if there is no
    GPU, and nothing recorded for D and N.
    """
    if torch.cuda.is_available():
        return _measured(D, N)
    results = load("gpu_ladder")
    for row in results["sweep"]:
        if (row["D"], row["N"]) == (D, N):
            found = {tuple(one["launch"]): one["forward"] for one in row["candidates"]}
            return {launch: rate for launch, rate in found.items() if not isinstance(rate, str)}, provenance(results)
    raise ValueError(f"expected D and N of {[(row['D'], row['N']) for row in results['sweep']]}, got {(D, N)}")


def _measured(D: int, N: int) -> tuple[Launches, str]:
    done = in_process(["-m", "flashlearn.gpu.tuning", str(D), str(N)], None)
    if done.returncode:
        raise RuntimeError(f"expected rates of the candidates, got:\n{done.stderr}")
    rates = {tuple(launch): rate for launch, rate in json.loads(done.stdout)}
    return rates, f"measured now: {torch.cuda.get_device_name()}, PyTorch {torch.__version__}"


def _main(D: int, N: int, heads: int = 16) -> None:
    """In the measuring process: the median of every candidate that fits."""
    from flashlearn import kernels  # first: it chooses the backend

    assert not kernels.INTERPRETED
    from triton.runtime.errors import OutOfResources
    from triton.testing import do_bench

    from flashlearn.kernels.ladder import CANDIDATES, VERSIONS, attend

    q, k, v = torch.randn(3, 1, heads, N, D, device="cuda", dtype=torch.float16)
    rates = []
    for launch in CANDIDATES:
        call = lambda launch=launch: attend(VERSIONS["blocks"], q, k, v, causal=True, launch=launch)  # noqa: E731
        try:
            ms = do_bench(call, return_mode="median")
        except OutOfResources:
            continue
        rates.append((list(launch), round(2 * heads * N * N * D / ms / 1e9, 1)))  # half of 4 N^2 D: causal
    print(json.dumps(rates))


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
