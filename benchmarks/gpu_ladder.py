"""Time every version of the ladder of notebook 14 on one GPU, each next to the one before it.

    python benchmarks/gpu_ladder.py --commit $(git rev-parse --short HEAD)     a table, and flashlearn/measurements/gpu_ladder.json
    python benchmarks/gpu_ladder.py --table flashlearn/measurements/gpu_ladder.json

float16, hidden size 2048, 16384 tokens in all, medians; FLOPs as in gpu_attention.py. Every result is compared with
PyTorch's before it is timed. "standard" is softmax(Q K^T) V in PyTorch, with S and P in memory. "matmul" is the product
of two matrices of 8192 x 8192, the highest rate of this card on that day. Takes about two minutes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from recording import check_gpu, parser_of, provenance, recorded, save
from side_by_side.measure import ROUNDS, median_ms
from tqdm import tqdm

RESULTS = Path(__file__).parents[1] / "flashlearn/measurements/gpu_ladder.json"
HIDDEN, TOKENS = 2048, 16384
SETTINGS = [(D, N, causal) for D in (64, 128) for N in (4096, 16384) for causal in (False, True)]


def flops(N: int, causal: bool, backward: bool = False) -> float:
    """4 B H N^2 D = 4 TOKENS N HIDDEN forward, halved when causal; 2.5 times as much backward."""
    return 4 * TOKENS * N * HIDDEN * (0.5 if causal else 1) * (2.5 if backward else 1)


def inputs(D: int, N: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(TOKENS // N, HIDDEN // D, N, D, device="cuda", dtype=torch.float16) for _ in range(4)]


def standard(q, k, v, causal):
    """softmax(Q K^T / sqrt(D)) V with S and P in memory, in the dtype of q."""
    S = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(S.shape[-2:], dtype=torch.bool, device=S.device).triu(1)
        S = S.masked_fill_(hidden, float("-inf"))
    return torch.softmax(S, dim=-1) @ v


def check(name: str, got: torch.Tensor, want: torch.Tensor) -> None:
    """Do not time wrong results: relative error above 5e-3."""
    error = ((got.float() - want.float()).norm() / want.float().norm()).item()
    if not error < 5e-3:
        raise AssertionError(f"{name} is wrong, relative error {error:.1e}: not timed")


def forward_versions(causal: bool, scale: float) -> dict:
    """name -> function of (q, k, v) -> o."""
    from flashlearn.fast.api import flash_attention
    from flashlearn.kernels import attention_forward
    from flashlearn.kernels.ladder import VERSIONS, attend

    versions = {"standard": lambda q, k, v: standard(q, k, v, causal)}
    versions |= {
        name: lambda q, k, v, version=version: attend(version, q, k, v, causal=causal)[0]
        for name, version in VERSIONS.items()
    }
    versions["teaching"] = lambda q, k, v: attention_forward(q, k, v, causal=causal)[0]
    versions["op"] = lambda q, k, v: flash_attention(q, k, v, causal=causal)
    return versions


def forward_row(D: int, N: int, causal: bool) -> dict:
    """TFLOP/s of every version; None where it ran out of memory."""
    q, k, v, _ = inputs(D, N)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    row = {"D": D, "N": N, "causal": causal}
    for name, version in forward_versions(causal, D**-0.5).items():
        try:
            check(name, version(q, k, v), want)
            row[name] = round(flops(N, causal) / median_ms(lambda: version(q, k, v)) / 1e9, 1)  # noqa: B023
        except torch.cuda.OutOfMemoryError:
            row[name] = None
    return row


def backward_row(D: int, N: int, causal: bool) -> dict:
    """TFLOP/s of the two-pass kernels and of the op's choice."""
    from flashlearn.fast.api import flash_attention
    from flashlearn.kernels import attention_backward, attention_forward

    q, k, v, do = inputs(D, N)
    with torch.no_grad():
        o, lse = attention_forward(q, k, v, causal=causal)
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    o_op = flash_attention(*leaves, causal=causal)
    sweeps = lambda: attention_backward(do, q, k, v, o, lse, causal=causal)  # noqa: E731
    op = lambda: torch.autograd.grad(o_op, leaves, do, retain_graph=True)  # noqa: E731
    for name, got, want in zip(("dq", "dk", "dv"), op(), sweeps(), strict=True):
        check(name, got, want)
    rate = lambda f: round(flops(N, causal, backward=True) / median_ms(f) / 1e9, 1)  # noqa: E731
    return {"D": D, "N": N, "causal": causal, "two sweeps": rate(sweeps), "op": rate(op)}


def sweep_row(D: int, N: int = 4096, rounds: int = ROUNDS) -> dict:
    """TFLOP/s of the version "blocks", causal, for every candidate; the compiler's words where one does not fit.

    The lowest median of some rounds counts for each. All alternate in a round: they are so close that the order would decide.
    """
    from triton.runtime.errors import OutOfResources

    from flashlearn.kernels.ladder import CANDIDATES, VERSIONS, attend

    q, k, v, _ = inputs(D, N)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    calls = {launch: partial(attend, VERSIONS["blocks"], q, k, v, causal=True, launch=launch) for launch in CANDIDATES}
    found, least = {}, {}
    for launch, call in calls.items():
        try:
            check(str(launch), call()[0], want)
            least[launch] = float("inf")
        except OutOfResources as error:
            found[launch] = f"{type(error).__name__}: {error}"[:120]
    for _ in range(rounds):
        for launch in least:
            least[launch] = min(least[launch], median_ms(calls[launch]))
    found |= {launch: round(flops(N, True) / ms / 1e9, 1) for launch, ms in least.items()}
    candidates = [{"launch": list(launch), "forward": found[launch]} for launch in CANDIDATES]
    return {"D": D, "N": N, "causal": True, "candidates": candidates}


def matmul() -> float:
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    return round(2 * 8192**3 / median_ms(lambda: a @ a) / 1e9, 1)


def table(results: dict) -> str:
    """A column for each setting, a row for each version, in TFLOP/s, then its gain over the version before."""
    lines = [", ".join(f"{key} {value}" for key, value in results["provenance"].items())]
    lines.append(f"matmul of 8192 x 8192: {results['matmul']:.0f}")
    for direction in ("forward", "backward"):
        rows = results[direction]
        heads = [f"{row['D']}, {row['N']}{', causal' if row['causal'] else ''}" for row in rows]
        lines.append(f"{direction:12} " + " ".join(f"{head:>18}" for head in heads))
        for name in [key for key in rows[0] if key not in ("D", "N", "causal")]:
            cells = ["out of memory" if row[name] is None else f"{row[name]:.0f}" for row in rows]
            lines.append(f"{name:12} " + " ".join(f"{cell:>18}" for cell in cells))
    for row in results["sweep"]:
        lines.append(f"D = {row['D']}: " + ", ".join(f"{c['launch']} {c['forward']}" for c in row["candidates"]))
    return "\n".join(lines)


def main(given: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.set_defaults(out=RESULTS)
    parser.add_argument("--quick", action="store_true", help="D = 128, N = 4096 only, without block sizes: seconds")
    args = parser.parse_args(given)
    if args.table:
        print(table(recorded(args.table, parser, "forward", "backward", "sweep", "matmul")))
        return
    check_gpu(parser, f"; --table {RESULTS} prints a recorded run")
    results = {"provenance": provenance(args.commit), "unit": "TFLOP/s, median", "matmul": matmul()}
    results["forward"], results["backward"], results["sweep"] = [], [], []
    settings = [(128, 4096, False), (128, 4096, True)] if args.quick else SETTINGS
    for setting in tqdm(settings, unit="setting", disable=None):
        results["forward"].append(forward_row(*setting))
        results["backward"].append(backward_row(*setting))
        torch.cuda.empty_cache()
        save(results, args.out)  # an interrupted run keeps its rows
    results["sweep"] = [] if args.quick else [sweep_row(D) for D in tqdm((64, 128), "block sizes", disable=None)]
    save(results, args.out)
    print(table(results))


if __name__ == "__main__":
    main()
