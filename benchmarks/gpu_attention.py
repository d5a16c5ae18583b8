"""Time `flash_attention` beside PyTorch's FlashAttention-2, cuDNN and compiled flex backends, on one GPU.

    python benchmarks/gpu_attention.py                     a table, and benchmarks/results/gpu_attention.json
    python benchmarks/gpu_attention.py --table FILE        the table and the targets from a recorded run

Settings: float16, hidden size 2048, 16384 tokens in all; D 64 and 128; causal and not; forward and backward.
FLOPs: 4 B H N^2 D forward, half of it when causal, 2.5 times as much backward; medians of repeated runs.
Every result is compared with PyTorch's before it is timed. Times are GPU time, launch overheads included
where they are not hidden.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import pathlib
import subprocess

import torch
import torch._dynamo
import torch._functorch.config

RESULTS = pathlib.Path(__file__).parent / "results" / "gpu_attention.json"
HIDDEN, TOKENS = 2048, 16384
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
TARGETS = {"forward": (0.95, 0.88), "backward": (0.85, 0.78)}  # of cuDNN: geometric mean, and each; N >= 4096


def flops(D: int, N: int, causal: bool, backward: bool) -> float:
    """4 B H N^2 D forward, halved when causal; 2.5 times as much backward."""
    return 4 * TOKENS * N * HIDDEN * (0.5 if causal else 1) * (2.5 if backward else 1)


def backends() -> dict:
    """name -> attention(q, k, v, causal)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from flashlearn.ops import flash_attention

    torch._functorch.config.donated_buffer = False  # flex: lets backward run again on one forward
    torch._dynamo.config.recompile_limit = 64  # flex: past 8 shapes it would silently run uncompiled
    sdpa = torch.nn.functional.scaled_dot_product_attention
    flex = torch.compile(flex_attention)
    masks = {}

    def with_backend(backend):
        def attention(q, k, v, causal):
            with sdpa_kernel(backend):
                return sdpa(q, k, v, is_causal=causal)

        return attention

    def flex_backend(q, k, v, causal):
        N = q.shape[2]
        if causal and N not in masks:
            masks[N] = create_block_mask(lambda b, h, i, j: i >= j, None, None, N, N, device=q.device)
        return flex(q, k, v, block_mask=masks[N] if causal else None)

    return {
        "flashlearn": lambda q, k, v, causal: flash_attention(q, k, v, causal=causal),
        "fa2": with_backend(SDPBackend.FLASH_ATTENTION),
        "cudnn": with_backend(SDPBackend.CUDNN_ATTENTION),
        "flex": flex_backend,
    }


def measure(attention, D: int, N: int, causal: bool, dtype: torch.dtype) -> dict:
    """TFLOP/s forward and backward, after a check of o, dq, dk and dv against PyTorch's FlashAttention-2."""
    from triton.testing import do_bench

    torch.manual_seed(0)
    shape = (TOKENS // N, HIDDEN // D, N, D)
    q, k, v, do = (torch.randn(shape, dtype=dtype, device="cuda") for _ in range(4))
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    check(attention, q, k, v, do, causal)
    time = lambda f: do_bench(f, warmup=20, rep=80, return_mode="median")  # noqa: E731
    with torch.no_grad():
        forward = time(lambda: attention(q, k, v, causal))
    o = attention(q, k, v, causal)
    backward = time(lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True))
    rate = lambda ms, back: round(flops(D, N, causal, back) / ms / 1e9, 1)  # noqa: E731
    return {"forward": rate(forward, False), "backward": rate(backward, True)}


def check(attention, q, k, v, do, causal: bool) -> None:
    """Refuse to time what is wrong: relative error against PyTorch's FlashAttention-2 above 5e-3."""
    want_o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    want = (want_o, *torch.autograd.grad(want_o, (q, k, v), do))
    got_o = attention(q, k, v, causal)
    got = (got_o, *torch.autograd.grad(got_o, (q, k, v), do))
    for name, g, w in zip(("o", "dq", "dk", "dv"), got, want, strict=True):
        error = ((g.float() - w.float()).norm() / w.float().norm()).item()
        if not error < 5e-3:
            raise AssertionError(f"{name} is wrong, relative error {error:.1e}: not timed")


def run(lengths, dtype: torch.dtype, commit: str | None) -> dict:
    """All backends at all settings, and where, with what and when it was measured."""
    rows = []
    for D in (128, 64):
        for N in lengths:
            for causal in (False, True):
                row = {"D": D, "N": N, "causal": causal, "dtype": str(dtype).removeprefix("torch.")}
                row |= {name: measure(f, D, N, causal, dtype) for name, f in backends_once().items()}
                print(line(row), flush=True)
                rows.append(row)
    return {"provenance": provenance(commit), "unit": "TFLOP/s, median", "rows": rows}


def backends_once(cache={}) -> dict:  # noqa: B006 (one compilation of flex for all settings)
    if not cache:
        cache.update(backends())
    return cache


def provenance(commit: str | None) -> dict:
    """GPU, driver, versions, commit, date."""
    import triton

    ask = lambda *command: subprocess.run(command, capture_output=True, text=True).stdout.strip()  # noqa: E731
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": ask("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "commit": commit or ask("git", "rev-parse", "--short", "HEAD") or "unknown",
        "date": datetime.date.today().isoformat(),
    }


def line(row: dict) -> str:
    """One row of the table: forward / backward of each backend."""
    cells = [f"{row[name]['forward']:4.0f} /{row[name]['backward']:4.0f}" for name in NAMES]
    return f"{row['D']:4} {row['N']:6} {'causal' if row['causal'] else '':7} " + "   ".join(cells)


NAMES = ("flashlearn", "fa2", "cudnn", "flex")


def table(results: dict) -> str:
    """The table, and how far the targets are met."""
    lines = [f"{'D':>4} {'N':>6} {'':7} " + "   ".join(f"{name:>10}" for name in NAMES)]
    lines += [line(row) for row in results["rows"]]
    long = [row for row in results["rows"] if row["N"] in (4096, 16384)]
    for direction, (mean_target, each_target) in TARGETS.items():
        for peer in NAMES[1:]:
            ratios = [row["flashlearn"][direction] / row[peer][direction] for row in long]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")
            target = f" (target {mean_target}, each {each_target})" if peer == "cudnn" else ""
            lines.append(f"{direction:8} / {peer:5}: mean {mean:.3f}, least {min(ratios, default=0):.3f}{target}")
    return "\n".join([*lines, ", ".join(f"{k} {v}" for k, v in results["provenance"].items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=pathlib.Path, help="print the table of a recorded run")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--commit", help="what to record where there is no git checkout")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(args.table.read_text())))
        return
    results = run(args.lengths, getattr(torch, args.dtype), args.commit)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1))
    print(table(results))


if __name__ == "__main__":
    main()
