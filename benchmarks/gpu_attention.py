"""Time `flash_attention` next to PyTorch's attention backends and, where installed, FlashAttention-4, on one GPU.

    python benchmarks/gpu_attention.py --commit $(git rev-parse --short HEAD)      all, and on an H200 the file below
    python benchmarks/gpu_attention.py --table flashlearn/measurements/gpu_attention_h200.json    its tables and targets
    python benchmarks/gpu_attention.py --parts speed --dtype float16 --lengths 4096 16384    a part

speed       TFLOP/s forward and backward: D 64 and 128, N 512 to 16384, causal and not; hidden size 2048, 16384 tokens
sustained   as speed, N 4096 and 16384, after 150 ms of work, next to cuDNN and FlashAttention-4
memory      peak bytes of forward and backward of one layer, N 1024 to 131072
gqa         as speed, with four query heads to a head of K and V
dims        as speed, with D 96, 192 and 256, and N 4096
order       ours, with `torch.use_deterministic_algorithms(True)` next to ours without
decoding    one query against N keys: microseconds, as called and in a CUDA graph, and GB/s of K and V
first-call  seconds until the first result, with empty caches of compiled kernels and with filled, the median of three

FLOPs: 4 B H N^2 D forward, half of it when causal, 2.5 times as much backward. Medians of repeated runs. All backends
of a row run in every round, in another order each time, so that none always follows the same one. For a call below a
millisecond the lowest of three medians counts, since other programs slow down the host for seconds at a time. For a
longer one the middle one of five counts (before 2026-11-23 there was one). Each follows a pause and ends before the GPU
lowers its clock, in steps, 25 to 70 ms after the start. (Before 2026-11-27 long calls were measured around these steps,
and the time of a step decided which of two was ahead.) "sustained" has the rates after them. As called, decoding is
mostly the host's work, which has slow minutes. So ours, FlashAttention-2 and cuDNN are measured in five passes, spread
over the run, and the lowest median of each counts. Every result is compared with PyTorch's in float32 before it is
timed. Times are those of the operator as called: launch overhead counts where the GPU has to wait for it.

The JSON is written after every row, so that an interrupted run keeps its rows. The same command continues there; runs
of parts are joined if they agree in all of their provenance. Ends by itself within 9 minutes; all of it takes three
calls.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from recording import RECORDS, check_gpu, commits, file_of, parser_of, provenance, recorded, save
from side_by_side import measure
from side_by_side.backends import DETERMINISTIC, NAMES, OURS, compile_flex, installed
from side_by_side.measure import Setting
from side_by_side.report import report

RESULTS = RECORDS / "gpu_attention_h200.json"
PARTS = ("speed", "sustained", "memory", "gqa", "dims", "order", "decoding", "first-call")
SECTIONS = {part: {"speed": "rows", "first-call": "first_call"}.get(part, part) for part in PARTS}
PASSES = 5  # of decoding, as called
COMPARED = (OURS, "fa2", "cudnn")  # in all passes, and in a CUDA graph
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
UNITS = {
    "unit": "TFLOP/s, median",
    "memory_unit": "bytes",
    "decoding_unit": "us, and GB/s of K and V",
    "first_call_unit": "seconds",
}


def start(out: Path, where: dict, anew: bool) -> dict:
    """The results so far: those of the file if they have the same provenance, and none if there is no file."""
    empty = {"provenance": where} | UNITS | {section: [] for section in SECTIONS.values()} | {"first_call": {}}
    if anew or not out.exists():
        return empty
    results = json.loads(out.read_text(encoding="utf-8"))
    theirs = results["provenance"]
    differing = [key for key in where | theirs if where.get(key) != theirs.get(key)]
    if differing:
        words = ", ".join(f"{key} {where.get(key)!r}, got {theirs.get(key)!r}" for key in differing)
        raise ValueError(f"expected {out} to be of {words}: give another --out, or --new to start anew")
    return empty | results


def settings_of(part: str, dtypes, lengths) -> list[Setting]:
    return {
        "speed": lambda: measure.speed_settings(dtypes, lengths),
        "sustained": lambda: measure.sustained_settings(dtypes),
        "memory": measure.memory_settings,
        "gqa": lambda: measure.gqa_settings(dtypes),
        "dims": lambda: measure.dims_settings(dtypes),
        "order": lambda: measure.order_settings(dtypes),
        "decoding": lambda: measure.decoding_settings(dtypes),
    }[part]()


def row_there(rows: list[dict], setting: Setting) -> dict | None:
    """The row of a setting, if it has been measured."""
    return next((row for row in rows if all(row.get(key) == value for key, value in setting._asdict().items())), None)


def todo(results: dict, args: argparse.Namespace) -> Iterator[tuple[str, Setting]]:
    """(part, setting) of every row that is not there yet; the passes of decoding before, between and after the others."""
    others, decoding = [], []
    for part in args.parts:
        if part != "first-call":
            settings = settings_of(part, args.dtype, args.lengths)
            (decoding if part == "decoding" else others).extend((part, setting) for setting in settings)
    others = [(part, setting) for part, setting in others if not row_there(results[SECTIONS[part]], setting)]
    for done in range(PASSES):
        if done:
            yield from others[len(others) * (done - 1) // (PASSES - 1) : len(others) * done // (PASSES - 1)]
        for part, setting in decoding:
            row = row_there(results["decoding"], setting)
            if row is None or row.get("passes", 1) <= done:
                yield part, setting


def row_of(part: str, setting: Setting, results: dict, names: list[str], graphs: bool, device: str) -> dict:
    """One row, measured. A step of decoding is short: in a CUDA graph, as servers run it, no Python is in its time.

    FlashAttention-4 is timed in the parts speed, sustained and dims alone: it compiles for long seconds.
    """
    names = [name for name in names if name != "fa4" or part in ("speed", "sustained", "dims")]
    if part == "sustained":
        names = [name for name in names if name in (OURS, "cudnn", "fa4")]
        row = measure.side_by_side(setting, names, sustained=True, device=device)
        return measure.rates(row, names)
    if part == "order":
        names = [OURS, DETERMINISTIC]
        return measure.rates(measure.side_by_side(setting, names, device=device), names)
    if part == "memory":
        gone = next((row["reasons"] for row in reversed(results["memory"]) if row["N"] < setting.N), {})
        return measure.memory_row(setting, [name for name in names if name != "flex"], gone, device)
    if part == "decoding":
        there = row_there(results["decoding"], setting)
        if there:
            return measure.another_pass(there, [name for name in names if name in COMPARED], device)
        row = measure.side_by_side(setting, names, backward=False, graphs=COMPARED, host=True, rounds=1, device=device)
        return measure.latencies(row, names)
    row = measure.side_by_side(setting, names, graphs=names if graphs and part == "speed" else (), device=device)
    return measure.rates(row, names)


def run(results: dict, args: argparse.Namespace, *, device: str = "cuda", clock: Callable = time.monotonic) -> int:
    """Measure what is missing, and save after every row; how many rows were left when the time was over."""
    begin, names = clock(), [name for name in installed() if name not in args.without]
    over = lambda: clock() - begin > 60 * args.minutes  # noqa: E731
    jobs = list(todo(results, args))
    if "flex" in names and device == "cuda":
        new = [
            (part, s)
            for part, s in jobs
            if part not in ("memory", "order") and not row_there(results[SECTIONS[part]], s)
        ]
        compile_flex(measure.warm_flex, list(dict.fromkeys((s, part != "decoding") for part, s in new)))
        print(f"flex compiled after {clock() - begin:.0f} s", flush=True)
    for number, (part, setting) in enumerate(jobs):
        if over():
            return len(jobs) - number
        row = row_of(part, setting, results, names, args.graphs, device)
        row["commits"] = commits(row, results, (*NAMES, DETERMINISTIC))
        if row not in results[SECTIONS[part]]:
            results[SECTIONS[part]].append(row)
        save(results, args.out)
        print(
            f"{clock() - begin:4.0f} s  {part:8} " + json.dumps({k: row[k] for k in row if k != "reasons"}), flush=True
        )
        if device == "cuda":
            torch.cuda.empty_cache()
    for name in (OURS, "flex") if "first-call" in args.parts else ():
        if name in names and name not in results["first_call"]:
            if over():
                return 1
            results["first_call"][name] = measure.first_call(name)
            save(results, args.out)
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = parser_of(__doc__, minutes=8.5, new=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--dtype", nargs="+", choices=tuple(measure.BOUND), default=tuple(measure.BOUND))
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="N of the part speed")
    parser.add_argument("--without", nargs="+", choices=NAMES[1:], default=(), metavar="PEER", help="leave peers out")
    parser.add_argument("--graphs", action="store_true", help="speed: also forward in a CUDA graph, without overhead")
    return parser


def main(given: list[str] | None = None) -> int:
    parser = arguments()
    args = parser.parse_args(given)
    if args.table:
        print(report(recorded(args.table, parser, "rows", "first_call")))
        return 0
    if min(args.lengths) < 1:
        parser.error(f"expected lengths of at least 1, got {min(args.lengths)}")
    check_gpu(parser, f"; --table {RESULTS} prints a recorded run")
    args.out = args.out or file_of("attention")
    try:
        results = start(args.out, provenance(args.commit), args.new)
    except ValueError as error:
        parser.error(str(error))
    left = run(results, args)
    print(report(results))
    if left:
        print(f"stopped after {args.minutes} minutes, {left} rows before the end: the same command goes on")
    failed = [
        row["reasons"][OURS]
        for section in SECTIONS.values()
        for row in results[section]
        if section != "first_call" and OURS in row["reasons"]
    ]
    if failed:
        print(f"{OURS} failed in {len(failed)} settings, first: {failed[0]}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
