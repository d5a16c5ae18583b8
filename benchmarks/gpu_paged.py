"""Time `flash_attention_paged` in decoding next to other attention over pages, in CUDA graphs, on one GPU.

    python benchmarks/gpu_paged.py --commit $(git rev-parse --short HEAD)
    python benchmarks/gpu_paged.py --table flashlearn/measurements/gpu_paged_h200.json     its table and targets

One new query for each of 1, 16 and 128 sequences; H 32/8, D 128, float16. 128 to 65,536 keys, the same number for all
("uniform"), or most of them short ("skewed"). Microseconds of a call, and GB/s of K and V.

flashlearn       pages of 256 keys; "flashlearn 64" and "flashlearn 16": smaller pages
portable         our kernel for every GPU, pages of 256, also where there is one for this GPU
varlen_attn      PyTorch's `torch.nn.attention.varlen.varlen_attn` with a `block_table`, pages of 256
fa4              FlashAttention-4's `flash_attn_varlen_func` with a `page_table`, pages of 128
flashinfer       FlashInfer's `BatchDecodeWithPagedKVCacheWrapper`, pages of 16; its plan is made outside of the graph
dense            yardsticks, uniform lengths only: `attention_decode` and PyTorch's attention on a cache in one piece

A call of a graph is one of several layers, each with pages of its own in random order. There are at most 32, all in 20
GB, and together they need more than the L2 cache holds. So K and V come from memory, as they do in a model. A graph has
at least 8 calls, since its start takes as long as a short call: with fewer layers each is called more than once. Every
result is compared with PyTorch's in float32 before it is timed. `plans` has times of our kernel cut and launched in
other ways. The JSON is written after every row; no row is begun after --minutes, and what cannot be imported, or
rejects, is recorded with its reason.
"""

from __future__ import annotations

import argparse
import inspect
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from recording import check_gpu, commits, file_of, parser_of, provenance, recorded, save
from side_by_side.measure import sequence
from torch import Tensor
from triton.errors import TritonError

H_Q, H_KV, D, DTYPE = 32, 8, 128, torch.float16
TOKEN = 2 * H_KV * D * 2  # bytes of K and V of one key, all heads
LARGEST = 256  # a sequence takes whole pages of this size, whatever the size of the pages it is read in
PAGES = {
    "flashlearn": 256,
    "flashlearn 64": 64,
    "flashlearn 16": 16,
    "portable": 256,
    "varlen_attn": 256,
    "fa4": 128,
    "flashinfer": 16,
}
DENSE = ("flashlearn dense", "sdpa dense")
NAMES = (*PAGES, *DENSE)
OURS, PEERS = "flashlearn", ("varlen_attn", "fa4", "flashinfer")
BOUND = 5e-3  # relative error; wrong results have far larger ones
SAMPLE = 3  # sequences that are compared: the shortest, the longest and one between
L2 = 128 * 2**20  # bytes: more than any cache holds
LAYERS, ROOM = 32, 20 * 10**9  # at most, in a graph, and bytes of K and V of all of them
CALLS = 8  # of a graph, at least
LEAST, OF_BANDWIDTH, LONG = 0.9, 0.8, 2**28  # the targets; the second applies from this number of bytes on
BANDWIDTH = {"H200": 4800.0, "H100": 3350.0}  # GB/s, as the data sheets say


class Setting(NamedTuple):
    """B sequences; `longest` keys each, or, skewed, one of them and the others 128 and more, most of them few."""

    B: int
    longest: int
    shape: str

    def lengths(self) -> list[int]:
        """Keys of each sequence, the same in every run."""
        if self.shape == "uniform":
            return [self.longest] * self.B
        draw = random.Random(self.B + self.longest)
        others = [int(128 * (self.longest / 128) ** (draw.random() ** 2)) for _ in range(self.B - 1)]
        return [*others, self.longest]

    def layers(self) -> int:
        """How many have pages of their own: what fits in ROOM, and at least what needs more than the L2 cache holds."""
        size = sum(self.lengths()) * TOKEN
        return min(LAYERS, max(1 + L2 // size, ROOM // size))


SETTINGS = (
    *(Setting(B, N, "uniform") for N in (128, 1024, 8192, 65536) for B in (1, 16, 128)),
    *(Setting(B, N, "skewed") for N in (8192, 65536) for B in (16, 128)),
)


class Rejected(RuntimeError):
    """A result is wrong, or a backend cannot do this."""


class Layer(NamedTuple):
    """The inputs of one call: a query for each sequence, and the numbers of the largest pages of each, in order."""

    q: Tensor  # (B, H_q, D)
    pages: list[list[int]]


class Problem:
    """One setting on the GPU: memory for K and V, which each backend cuts into pages of its size and order."""

    def __init__(self, setting: Setting, device: str = "cuda", layers: int | None = None):
        self.setting, self.device, self.lengths = setting, device, setting.lengths()
        used = [-(-length // LARGEST) for length in self.lengths]
        layers = layers or setting.layers()
        torch.manual_seed(0)
        shape = (layers * sum(used), H_KV, LARGEST, D)
        self.k, self.v = (torch.empty(shape, dtype=DTYPE, device=device).normal_() for _ in "kv")
        numbers = random.Random(1).sample(range(shape[0]), shape[0])
        self.layers = [
            Layer(torch.randn(setting.B, H_Q, D, dtype=DTYPE, device=device), [[numbers.pop() for _ in range(n)] for n in used])
            for _ in range(layers)
        ]  # fmt: skip
        self.seqused = torch.tensor(self.lengths, dtype=torch.int32, device=device)

    @property
    def bytes(self) -> int:
        """Of K and V that one call has to read."""
        return sum(self.lengths) * TOKEN

    def cut(self, page: int, heads_first: bool = True) -> list[Tensor]:
        """k and v as pages of another size, (P, H_kv, page, D) or (P, page, H_kv, D): the same memory, other numbers."""
        shape = (-1, H_KV, page, D) if heads_first else (-1, page, H_KV, D)
        return [t.view(shape) for t in (self.k, self.v)]

    def table(self, layer: Layer, page: int) -> Tensor:
        """(B, most) int32: the pages of this size of each sequence, in random order within each of the largest pages."""
        parts, draw = LARGEST // page, random.Random(2)
        rows = []
        for pages in layer.pages:
            cut = [[number * parts + i for i in draw.sample(range(parts), parts)] for number in pages]
            rows.append([number for some in cut for number in some])
        table = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int32)
        for row, numbers in zip(table, rows, strict=True):
            row[: len(numbers)] = torch.tensor(numbers, dtype=torch.int32)
        return table.to(self.device)


Calls = list[Callable[[], Tensor]]  # one for each layer, each returns o (B, H_q, D)


def bind(name: str, problem: Problem) -> Calls:
    """A call for every layer."""
    if name in DENSE:
        return bind_dense(name, problem)
    makers = {"portable": bind_portable, "varlen_attn": bind_varlen, "fa4": bind_fa4, "flashinfer": bind_flashinfer}
    return makers.get(name, bind_ours)(problem, PAGES[name])


def bind_ours(problem: Problem, page: int) -> Calls:
    from flashlearn import flash_attention_paged

    k, v = problem.cut(page)

    def call(layer: Layer) -> Callable[[], Tensor]:
        table = problem.table(layer, page)
        return lambda: flash_attention_paged(layer.q[:, :, None], k, v, table, problem.seqused)[:, :, 0]

    return [call(layer) for layer in problem.layers]


def bind_portable(problem: Problem, page: int, plan: Any = None) -> Calls:
    """By the kernel for every GPU, with its own plan or another one."""
    from flashlearn.core.options import plain_options
    from flashlearn.core.pages import check_paged
    from flashlearn.fast.paged import PagedPlan, PagedProblem, paged

    k, v = problem.cut(page)

    def call(layer: Layer) -> Callable[[], Tensor]:
        given = (layer.q[:, :, None], k, v, problem.table(layer, page), problem.seqused)
        what = PagedProblem(*given, None, check_paged(*given), plain_options(D, D**-0.5, causal=True))
        how = plan or PagedPlan.of(what.sizes, layer.q.element_size(), k.device)
        return lambda: paged(what, plan=how, with_lse=False)[0][:, :, 0]

    return [call(layer) for layer in problem.layers]


def bind_varlen(problem: Problem, page: int) -> Calls:
    from torch.nn.attention.varlen import varlen_attn

    known = inspect.signature(varlen_attn).parameters
    if "block_table" not in known:
        raise Rejected(f"varlen_attn of PyTorch {torch.__version__} takes no block_table")
    grouped = {"enable_gqa": True} if "enable_gqa" in known else {}  # PyTorch 2.11 accepts fewer heads anyway
    k, v = problem.cut(page, heads_first=False)
    B, longest = problem.setting.B, max(problem.lengths)
    starts = torch.arange(B + 1, dtype=torch.int32, device=problem.device)
    ends = torch.tensor([0, *problem.lengths]).cumsum(0).to(problem.device, torch.int32)

    def call(layer: Layer) -> Callable[[], Tensor]:
        options = grouped | {"seqused_k": problem.seqused, "block_table": problem.table(layer, page)}
        return lambda: varlen_attn(layer.q, k, v, starts, ends, 1, longest, **options)

    return [call(layer) for layer in problem.layers]


def bind_fa4(problem: Problem, page: int) -> Calls:
    from flash_attn.cute import flash_attn_varlen_func

    k, v = problem.cut(page, heads_first=False)
    starts = torch.arange(problem.setting.B + 1, dtype=torch.int32, device=problem.device)

    def call(layer: Layer) -> Callable[[], Tensor]:
        options = {"cu_seqlens_q": starts, "seqused_k": problem.seqused, "page_table": problem.table(layer, page)}

        def run() -> Tensor:
            o = flash_attn_varlen_func(layer.q, k, v, max_seqlen_q=1, max_seqlen_k=max(problem.lengths), **options)
            return o[0] if isinstance(o, tuple) else o

        return run

    return [call(layer) for layer in problem.layers]


def bind_flashinfer(problem: Problem, page: int) -> Calls:
    import flashinfer

    pages = [-(-length // page) for length in problem.lengths]
    starts = torch.tensor([0, *pages]).cumsum(0).to(problem.device, torch.int32)
    left = torch.tensor([(n - 1) % page + 1 for n in problem.lengths], dtype=torch.int32, device=problem.device)
    room = torch.empty(2**28, dtype=torch.uint8, device=problem.device)

    def call(layer: Layer) -> Callable[[], Tensor]:
        table = problem.table(layer, page)
        numbers = torch.cat([row[:n] for row, n in zip(table, pages, strict=True)])
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            room, "HND", use_cuda_graph=True, use_tensor_cores=True,
            paged_kv_indptr_buffer=starts, paged_kv_indices_buffer=numbers, paged_kv_last_page_len_buffer=left,
        )  # fmt: skip
        wrapper.plan(starts, numbers, left, H_Q, H_KV, D, page, q_data_type=DTYPE, kv_data_type=DTYPE)
        return lambda: wrapper.run(layer.q, tuple(problem.cut(page)))

    return [call(layer) for layer in problem.layers]


def bind_dense(name: str, problem: Problem) -> Calls:
    """The memory as one cache (B, H_kv, N, D) a layer: no page is looked up, and the keys are others."""
    if problem.setting.shape != "uniform":
        raise Rejected("lengths differ")
    from flashlearn.fast.decode import attention_decode

    def call(number: int, layer: Layer) -> Callable[[], Tensor]:
        size = problem.setting.B * H_KV * problem.setting.longest * D
        shape = (problem.setting.B, H_KV, problem.setting.longest, D)
        k, v = (t.view(-1)[number * size : (number + 1) * size].view(shape) for t in (problem.k, problem.v))
        q = layer.q[:, :, None]
        if name == "sdpa dense":
            sdpa = torch.nn.functional.scaled_dot_product_attention
            return lambda: sdpa(q, k, v, enable_gqa=True)[:, :, 0]
        return lambda: attention_decode(q, k, v)[0][:, :, 0]

    return [call(i, layer) for i, layer in enumerate(problem.layers)]


def check(name: str, problem: Problem, got: Tensor) -> None:
    """Do not time wrong results: compare some sequences of the first layer with PyTorch in float32."""
    order = sorted(range(problem.setting.B), key=problem.lengths.__getitem__)
    for b in {order[0], order[len(order) // 2], order[-1]}:
        q, n = problem.layers[0].q[b].float(), problem.lengths[b]
        k, v = (t.float() for t in keys_of(name, problem, b, n))
        want = torch.nn.functional.scaled_dot_product_attention(q[None, :, None], k[None], v[None], enable_gqa=True)
        error = ((got[b].float() - want[0, :, 0]).norm() / want.norm()).item()
        if not error < BOUND:
            raise Rejected(f"o of a sequence of {n} keys is wrong, relative error {error:.1e}: not timed")


def keys_of(name: str, problem: Problem, b: int, n: int) -> list[Tensor]:
    """k and v (H_kv, n, D) of a sequence of the first layer, as this backend finds them in memory."""
    if name in DENSE:
        size, shape = problem.setting.B * H_KV * n * D, (problem.setting.B, H_KV, n, D)
        return [t.view(-1)[:size].view(shape)[b] for t in (problem.k, problem.v)]
    page, heads_first = PAGES[name], name.startswith(OURS) or name in ("portable", "flashinfer")
    numbers = problem.table(problem.layers[0], page)[b, : -(-n // page)].long()
    pages = [t[numbers] if heads_first else t[numbers].transpose(1, 2) for t in problem.cut(page, heads_first)]
    return [t.transpose(0, 1).flatten(1, 2)[:, :n] for t in pages]


def enough(calls: Calls) -> Calls:
    """The calls, all of them again and again until they are CALLS at least."""
    return calls * max(1, -(-CALLS // len(calls)))


def graph_us(calls: Calls, runs: int = 7) -> float:
    """Microseconds of a call: the median over replays of a graph of all layers."""
    calls = enough(calls)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    replay_ms(graph)
    repeats = max(1, min(20, int(5 / max(replay_ms(graph), 1e-3))))  # 5 ms at least
    return 1000 * statistics.median(replay_ms(graph, repeats) for _ in range(runs)) / len(calls)


def replay_ms(graph: torch.cuda.CUDAGraph, repeats: int = 1) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


def clock_of(device: str) -> Callable[[Calls], float]:
    """The clock for a call; without a GPU, in a rehearsal, none."""
    return graph_us if device == "cuda" else lambda calls: next(1.0 for call in calls if call() is not None)


def measure(name: str, problem: Problem, device: str) -> dict[str, float]:
    """{"us", "GB/s"} of a backend, once its result is right."""
    calls = bind(name, problem)
    check(name, problem, calls[0]())
    us = clock_of(device)(calls)
    return {"us": float(f"{us:.5g}"), "GB/s": float(f"{problem.bytes / us / 1e3:.5g}")}


REJECTIONS = (  # errors of backends that are not installed or cannot do this
    AssertionError, AttributeError, ImportError, KeyError, OSError, RuntimeError, TritonError, TypeError, ValueError,
)  # fmt: skip


def attempt(call: Callable[[], Any]) -> tuple[Any, str]:
    """The result of a call and "", or None and why it failed; a GPU in an undefined state ends everything."""
    try:
        return call(), ""
    except torch.AcceleratorError:
        raise
    except REJECTIONS as error:
        return None, f"{type(error).__name__}: {error}".split("\n")[0][:200]


def row_of(setting: Setting, names: tuple[str, ...], device: str) -> dict:
    """One setting, all backends."""
    problem = Problem(setting, device)
    row: dict[str, Any] = setting._asdict() | {"keys": sum(problem.lengths), "bytes": problem.bytes}
    row |= {"layers": len(problem.layers), "reasons": {}}
    for name in names:
        row[name], reason = attempt(lambda: measure(name, problem, device))  # noqa: B023
        if reason:
            row["reasons"][name] = reason
    return row


PLANS = {  # programs on an SM, keys of a tile, tiles under way: the options of our portable kernel
    "1 program": (1, 64, 5), "2 programs": (2, 64, 5), "3 programs": (3, 64, 5), "4 programs": (4, 64, 3),
    "2 programs, 3 tiles": (2, 64, 7), "2 programs, 1 tile": (2, 64, 3), "2 programs, tiles of 32": (2, 32, 9),
    "2 programs, tiles of 128": (2, 128, 5), "4 programs, tiles of 32": (4, 32, 5),
}  # fmt: skip
PLANNED = (Setting(1, 65536, "uniform"), Setting(16, 8192, "uniform"), Setting(128, 8192, "skewed"))


def plan_us(problem: Problem, how: tuple[int, int, int], page: int = 256) -> float:
    """Microseconds of our portable kernel launched in one of those ways."""
    from flashlearn.fast.launcher import sm_count
    from flashlearn.fast.paged import PagedPlan
    from flashlearn.fast.portable.launches import PortableLaunch

    programs, block_n, stages = how
    plan = PagedPlan(PortableLaunch(16, block_n, 4, stages), programs * sm_count(problem.k.device), True)
    calls = bind_portable(problem, page, plan)
    check(OURS, problem, calls[0]())
    return float(f"{graph_us(calls):.5g}")


def compare_plans(problem: Problem, found: dict, end: float) -> None:
    """Microseconds of every way that was not measured yet, or why it cannot be."""
    for name, how in PLANS.items():
        if name not in found and time.monotonic() < end:
            us, reason = attempt(lambda: plan_us(problem, how))  # noqa: B023
            found[name] = us or reason


def run(results: dict, args: argparse.Namespace, device: str = "cuda") -> int:
    """Measure what is missing, and save after every row; how many rows were left when the time was over."""
    begin = time.monotonic()
    there = {(row["B"], row["longest"], row["shape"]) for row in results["rows"]}
    jobs = [setting for setting in args.settings if tuple(setting) not in there]
    for number, setting in enumerate(jobs):
        if time.monotonic() - begin > 60 * args.minutes:
            return len(jobs) - number
        if device == "cuda" and 1.5 * setting.layers() * sum(setting.lengths()) * TOKEN > torch.cuda.mem_get_info()[0]:
            print(f"left out, does not fit: {setting}", flush=True)
            continue
        row = row_of(setting, tuple(sequence(args.names, number)), device)  # none always follows the same
        row["commits"] = commits(row, results, NAMES)
        results["rows"].append(row)
        save(results, args.out)
        print(f"{time.monotonic() - begin:4.0f} s  " + json.dumps(row), flush=True)
        torch.cuda.empty_cache()
    for setting in PLANNED if device == "cuda" else ():
        found = results["plans"].setdefault(f"{setting.B} x {setting.longest} {setting.shape}", {})
        compare_plans(Problem(setting, device), found, begin + 60 * args.minutes)
        save(results, args.out)
        print(setting, json.dumps(found), flush=True)
        torch.cuda.empty_cache()
    return 0


def targets(results: dict) -> list[str]:
    """Whether ours takes at most 1 / 0.9 of the best peer's time, and, long, reaches 0.8 of the bandwidth."""
    gpu = next((name for name in BANDWIDTH if name in results["provenance"]["gpu"]), None)
    lines = []
    for row in results["rows"]:
        where = f"B {row['B']}, {row['longest']} keys, {row['shape']}"
        peers = {name: row[name]["us"] for name in PEERS if row.get(name)}
        if not row.get(OURS):
            lines.append(f"MISSED  {where}: {row['reasons'].get(OURS)}")
            continue
        if peers:
            best = min(peers, key=peers.__getitem__)
            ratio = peers[best] / row[OURS]["us"]
            lines.append(f"{'met   ' if ratio >= LEAST else 'MISSED'}  {where}: {ratio:.2f} of {best}")
        if gpu and row["bytes"] >= LONG:
            part = row[OURS]["GB/s"] / BANDWIDTH[gpu]
            lines.append(f"{'met   ' if part >= OF_BANDWIDTH else 'MISSED'}  {where}: {part:.2f} of the bandwidth")
    return lines


def report(results: dict) -> str:
    """The table, microseconds and GB/s, what was not measured and why, and the targets."""
    lines = [json.dumps(results["provenance"]), f"{'':26}" + "".join(f"{name:>22}" for name in NAMES)]
    for row in results["rows"]:
        cells = (row.get(name) for name in NAMES)
        shown = ("-" if cell is None else f"{cell['us']:.1f} us {cell['GB/s']:.0f}" for cell in cells)
        lines.append(f"{row['B']:4} x {row['longest']:6} {row['shape']:11} " + "".join(f"{text:>22}" for text in shown))
    reasons = {f"{name}: {why}" for row in results["rows"] for name, why in row["reasons"].items()}
    plans = [f"{where}: {json.dumps(found)}" for where, found in results["plans"].items()]
    return "\n".join([*lines, *sorted(reasons), *plans, *targets(results)])


def arguments() -> argparse.ArgumentParser:
    parser = parser_of(__doc__, minutes=2.6, new=True)
    parser.add_argument("--names", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.set_defaults(settings=SETTINGS)
    return parser


def start(args: argparse.Namespace, where: dict) -> dict:
    """The results so far: those of the file if they have the same provenance, and none if there is no file."""
    empty = {"provenance": where, "unit": "us of a call, GB/s of K and V", "rows": [], "plans": {}}
    if args.new or not args.out.exists():
        return empty
    results = json.loads(args.out.read_text(encoding="utf-8"))
    return results if results["provenance"] == where else empty


def main(given: list[str] | None = None) -> int:
    parser = arguments()
    args = parser.parse_args(given)
    if args.table:
        print(report(recorded(args.table, parser, "rows", "plans")))
        return 0
    check_gpu(parser)
    where = provenance(args.commit)
    args.out = args.out or file_of("paged")
    results = start(args, where)
    left = run(results, args)
    print(report(results))
    if left:
        print(f"stopped after {args.minutes} minutes, {left} rows before the end: the same command goes on")
    failed = [row["reasons"][OURS] for row in results["rows"] if OURS in row["reasons"]]
    if failed:
        print(f"{OURS} failed in {len(failed)} settings, first: {failed[0]}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
