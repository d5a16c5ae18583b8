"""One row of measurements at a time: rates, times, bytes and first calls of all backends, each checked first."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from .backends import Rejected, bind, context, heard, reason

HIDDEN, TOKENS = 2048, 16384
BOUND = {"float16": 5e-3, "bfloat16": 2e-2}  # relative error; wrong results have far larger ones
SLOW = 20.0  # ms: above it three calls are enough for a median
SHORT = 1.0  # ms: below it the host can be slower than the GPU, and other programs of the host slow down stretches
ROUNDS, LONG_ROUNDS = 3, 5  # in which short calls and longer ones are measured
SCORES_LIMIT = 20e9  # bytes of float32 scores above which "math" is not timed: long seconds, and no lesson
FIRST_CALL_LIMIT = 60  # seconds
FIRST_CALLS = 3
LATENCIES = {"forward": "us", "graph": "graph us", "host": "host us"}
PAUSE = 0.1  # seconds before a measurement, so that none inherits the heat of the one before
COOL = 25.0  # ms after a pause in which a GPU keeps its clock, before it lowers it: see `sustained_ms`
WARM = 150.0  # ms of work after which the clock stays where it is


class Setting(NamedTuple):
    """Shapes of q (B, H_q, N_q, D), k and v (B, H_kv, N, D); the first entries of every row."""

    D: int
    N: int
    causal: bool
    dtype: str
    B: int
    H_q: int
    H_kv: int
    N_q: int


def speed_settings(dtypes: Iterable[str], lengths: Sequence[int], dims: Sequence[int] = (128, 64)) -> list[Setting]:
    """16384 tokens in all, hidden size 2048 or as much of it as whole heads take; causal and not."""
    return [
        Setting(D, N, causal, dtype, max(1, TOKENS // N), HIDDEN // D, HIDDEN // D, N)
        for dtype in dtypes
        for D in dims
        for N in lengths
        for causal in (False, True)
    ]


def gqa_settings(dtypes: Iterable[str]) -> list[Setting]:
    """The same with four query heads to a head of K and V; causal, as the models that group heads are."""
    wide = [setting for setting in speed_settings(dtypes, (1024, 4096, 16384)) if setting.causal]
    return [setting._replace(H_kv=setting.H_q // 4) for setting in wide]


def sustained_settings(dtypes: Iterable[str]) -> list[Setting]:
    """Long sequences, at sustained clocks."""
    return speed_settings(dtypes, (4096, 16384))


def dims_settings(dtypes: Iterable[str]) -> list[Setting]:
    """The same with other head dimensions, N 4096."""
    return speed_settings(dtypes, (4096,), (96, 192, 256))


def order_settings(dtypes: Sequence[str]) -> list[Setting]:
    """Short rows and long ones, and with four query heads to a head of K and V; beyond D 128 of one length."""
    wide = speed_settings(dtypes, (4096,), (192, 256))
    return speed_settings(dtypes, (512, 1024, 4096, 16384)) + gqa_settings(dtypes) + wide


def decoding_settings(dtypes: Iterable[str]) -> list[Setting]:
    """One new query against a cache of N keys. Not causal: aligned to the bottom right it attends to every key."""
    return [
        Setting(D, N, False, dtype, B, 32, H_kv, 1)
        for dtype in dtypes
        for D in (128, 64)
        for B in (1, 8)
        for H_kv in (8, 32)
        for N in (1024, 8192, 65536)
    ]


def memory_settings() -> list[Setting]:
    """One layer of hidden size 2048, a single sequence of 1024 to 131072 tokens."""
    return [Setting(128, 2**e, True, "float16", 1, 16, 16, 2**e) for e in range(10, 18)]


def flops(setting: Setting, backward: bool = False) -> float:
    """4 B H N_q N D forward, halved when causal; 2.5 times as much backward."""
    whole = 4 * setting.B * setting.H_q * setting.N_q * setting.N * setting.D
    return whole * (0.5 if setting.causal else 1) * (2.5 if backward else 1)


def cache_bytes(setting: Setting) -> int:
    """Bytes of K and V in two-byte numbers: what decoding has to read."""
    return 2 * 2 * setting.B * setting.H_kv * setting.N * setting.D


def inputs(setting: Setting, device: str, grads: bool = True) -> list[Tensor]:
    """q, k, v and the gradient of o, normally distributed."""
    torch.manual_seed(0)
    dtype = getattr(torch, setting.dtype)
    q_shape = (setting.B, setting.H_q, setting.N_q, setting.D)
    k_shape = (setting.B, setting.H_kv, setting.N, setting.D)
    q, k, v, do = (torch.randn(s, dtype=dtype, device=device) for s in (q_shape, k_shape, k_shape, q_shape))
    return [*(t.requires_grad_(grads) for t in (q, k, v)), do]


def reference(q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool) -> list[Tensor]:
    """o, and dq, dk, dv where gradients are requested: PyTorch in float32, heads repeated."""
    wide = [t.detach().float().requires_grad_(t.requires_grad) for t in (q, k, v)]
    repeated = [t.repeat_interleave(q.shape[1] // t.shape[1], 1) if t.shape[1] < q.shape[1] else t for t in wide]
    o = torch.nn.functional.scaled_dot_product_attention(*repeated, is_causal=causal)
    return [o.detach(), *(torch.autograd.grad(o, wide, do.float()) if q.requires_grad else ())]


def check(names: Sequence[str], got: Sequence[Tensor], want: Sequence[Tensor], dtype: str) -> None:
    """Do not time wrong results."""
    for name, g, w in zip(names, got, want, strict=True):
        error = ((g.float() - w).norm() / w.norm()).item()
        if not error < BOUND[dtype]:
            raise Rejected(f"{name} is wrong, relative error {error:.1e}: not timed")


def median_ms(call: Callable) -> float:
    """Median milliseconds of a call after a pause, the L2 cache flushed before each."""
    from triton.testing import do_bench

    time.sleep(PAUSE)
    call()  # the first may compile, and would pass for a slow one
    once = event_ms(call)
    if once > SLOW:
        return statistics.median(event_ms(call) for _ in range(3))
    if once > SHORT:
        return flushed_ms(call, max(3, int(COOL / once) - 2))
    return do_bench(call, warmup=10, rep=40 / ROUNDS, return_mode="median")


def sustained_ms(call: Callable) -> float:
    """The same at sustained clocks: after call upon call the GPU has lowered its clock to keep to its power.

    An H100 does so in two to four steps, 25 to 70 ms after it began, later where a kernel draws less. Calls on both
    sides of a step would measure the time of the step.
    """
    call()
    for _ in range(int(WARM / event_ms(call)) + 1):
        call()
    return flushed_ms(call, 12)


def flushed_ms(call: Callable, calls: int) -> float:
    """Median milliseconds of some calls, one after another, the L2 cache flushed before each."""
    from triton.runtime import driver

    cache = driver.active.get_empty_cache_for_benchmark()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    for start, end in events:
        driver.active.clear_cache(cache)
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def event_ms(call: Callable) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def _graph_ms(name: str, tensors: Sequence[Tensor], setting: Setting) -> float:
    """Median milliseconds of forward inside a CUDA graph: without launch overhead, and with what L2 still holds."""
    from triton.testing import do_bench_cudagraph

    with torch.no_grad(), context(name):
        return do_bench_cudagraph(bind(name, *tensors[:3], setting.causal), rep=20, return_mode="median")


def _host_ms(name: str, call: Callable, calls: int = 20) -> float:
    """Median milliseconds after which a call returns; the GPU is not waited for."""
    times = []
    with torch.no_grad(), context(name):
        for _ in range(5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times.append((time.perf_counter() - start) / calls * 1e3)
    return statistics.median(times)


def side_by_side(
    setting: Setting,
    names: Sequence[str],
    *,
    backward: bool = True,
    graphs: Sequence[str] = (),
    host: bool = False,
    rounds: int = ROUNDS,
    sustained: bool = False,
    device: str = "cuda",
) -> dict:
    """A row: the setting, milliseconds of every backend, and "reasons" for every None.

    A backend that rejects the setting, or is wrong, is None; else {"forward", "backward"}. Of the backends named in
    `graphs` also "graph", and, if requested, "host": the CPU's time of a forward call until it is free again. All
    backends are measured in each round, every round in another order (`sequence`). A shared host has slow seconds, and
    a kernel runs at a lower clock after one that draws much power. For short calls the lowest median of `rounds`
    counts, for longer ones the middle one of LONG_ROUNDS. With rounds = 1, and above SLOW, there is one. sustained: at
    sustained clocks (`sustained_ms`), not `median_ms`.
    """
    timed = partial(_timed, milliseconds=sustained_ms) if sustained else _timed
    tensors = inputs(setting, device, grads=backward)
    want = reference(*tensors, setting.causal)
    row = setting._asdict() | {name: None for name in names} | {"reasons": {}}
    calls = {}
    for name in names:
        found, reasons = {}, row["reasons"]
        with heard() as said:
            error = _failure(lambda: calls.update(_measure(name, setting, tensors, want, found, backward, timed)))  # noqa: B023
        if error is not None:
            reasons[name] = ("backward: " if found else "") + reason(error, said)
        if found and name in graphs:
            error = _failure(lambda: found.update(graph=_graph_ms(name, tensors, setting)))  # noqa: B023
            if error is not None:
                reasons[f"{name}, graph"] = reason(error, ())
            if host:
                found["host"] = _host_ms(name, bind(name, *tensors[:3], setting.causal))
        row[name] = found or None
    times = {(name, kind): [row[name][kind]] for name, kind in calls}
    timed_names = list(dict.fromkeys(name for name, _ in calls))
    for turn in range(1, LONG_ROUNDS if rounds > 1 else 1):
        for name in sequence(timed_names, turn):
            for kind in ("forward", "backward"):
                if (name, kind) in calls and (turn < rounds or times[name, kind][0] >= SHORT):
                    times[name, kind].append(timed(name, kind, calls[name, kind]))
    for (name, kind), found in times.items():
        row[name][kind] = min(found) if found[0] < SHORT else statistics.median(found)
    return row


def sequence(names: Sequence[str], turn: int) -> list[str]:
    """The order of a round: over n rounds (2 n where n is odd) each name follows each other equally often.

    Williams' design (1949): 0, n-1, 1, n-2, ... and its shifts; where n is odd, also all of them backwards.
    """
    n = len(names)
    zigzag = [place // 2 if place % 2 == 0 else n - 1 - place // 2 for place in range(n)]
    order = [names[(place + turn) % n] for place in zigzag]
    return order[::-1] if n % 2 and turn // n % 2 else order


def _failure(call: Callable) -> Exception | None:
    """The error with which a call was rejected, if it was; a GPU in an undefined state ends everything."""
    from triton.errors import TritonError

    try:
        call()
    except torch.AcceleratorError:
        raise
    except (Rejected, RuntimeError, ValueError, TritonError) as error:
        return error.with_traceback(None)  # a traceback would keep tensors alive
    return None


def _measure(name: str, setting: Setting, tensors, want, found: dict, backward: bool, timed: Callable) -> dict:
    """Fill `found` with milliseconds, each entry after its check; {(name, entry): call} of those that are not SLOW."""
    q, k, v, do = tensors
    scores = 4 * setting.B * setting.H_q * setting.N_q * setting.N
    if name == "math" and scores > SCORES_LIMIT:
        raise Rejected(f"not run: its scores alone take {scores / 1e9:.0f} GB")
    with context(name):
        calls = {"forward": bind(name, q, k, v, setting.causal)}
        with torch.no_grad():
            check(("o",), (calls["forward"](),), want[:1], setting.dtype)
        found["forward"] = timed(name, "forward", calls["forward"])
        if backward:
            o = calls["forward"]()
            calls["backward"] = lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True)
            check(("dq", "dk", "dv"), calls["backward"](), want[1:], setting.dtype)
            found["backward"] = timed(name, "backward", calls["backward"])
    return {(name, kind): call for kind, call in calls.items() if found[kind] < SLOW}


def _timed(name: str, kind: str, call: Callable, milliseconds: Callable | None = None) -> float:
    with context(name), torch.set_grad_enabled(kind == "backward"):
        return (milliseconds or median_ms)(call)


def warm_flex(job: tuple[Setting, bool], device: str = "cuda") -> str | None:
    """Compile flex for one setting, forward and, if asked, backward; the reason if that fails. For other processes."""
    setting, backward = job

    def compile_all():
        q, k, v, do = inputs(setting, device, grads=backward)
        call = bind("flex", q, k, v, setting.causal)
        with torch.no_grad():
            call()
        if backward:
            torch.autograd.grad(call(), (q, k, v), do)

    try:
        error = _failure(compile_all)
    except torch.AcceleratorError as fault:  # of that process: this one measures on
        error = fault
    return None if error is None else reason(error, ())


def rates(row: dict, names: Sequence[str]) -> dict:
    """Milliseconds turned into TFLOP/s."""
    setting = Setting(*(row[field] for field in Setting._fields))

    for name in names:
        if row[name]:
            found = {key: shortened(flops(setting, key == "backward") / ms / 1e9) for key, ms in row[name].items()}
            row[name] = {"forward": None, "backward": None} | found
    return row


def shortened(number: float) -> float:
    """Five digits: more than the clock's precision."""
    return float(f"{number:.5g}")


def latencies(row: dict, names: Sequence[str]) -> dict:
    """Milliseconds turned into microseconds, and, as called, into GB/s of K and V."""
    for name in names:
        if row[name]:
            row[name] = {LATENCIES[key]: shortened(1000 * ms) for key, ms in row[name].items()}
            row[name]["GB/s"] = _bandwidth(row, name)
    return row


def another_pass(row: dict, names: Sequence[str], device: str = "cuda") -> dict:
    """The row, measured again as called: of each backend the lower of what was there and what is found."""
    setting = Setting(*(row[field] for field in Setting._fields))
    tensors = inputs(setting, device, grads=False)
    for name in sequence(names, row.get("passes", 1)):
        if row[name]:
            call = bind(name, *tensors[:3], setting.causal)
            for key, ms in {"forward": _timed(name, "forward", call), "host": _host_ms(name, call)}.items():
                row[name][LATENCIES[key]] = min(row[name][LATENCIES[key]], shortened(1000 * ms))
            row[name]["GB/s"] = _bandwidth(row, name)
    row["passes"] = row.get("passes", 1) + 1
    return row


def _bandwidth(row: dict, name: str) -> float:
    return shortened(cache_bytes(Setting(*(row[field] for field in Setting._fields))) / row[name]["us"] / 1e3)


def memory_row(setting: Setting, names: Sequence[str], gone: dict[str, str], device: str = "cuda") -> dict:
    """Peak bytes of forward and backward above q, k, v and do; "results" is what o, dq, dk and dv take of it.

    gone   {name: reason} of backends that gave up at a shorter length, and are not tried again
    """
    small = setting._replace(N=128, N_q=128)
    row = setting._asdict() | {"results": 4 * 2 * setting.H_q * setting.N * setting.D}
    row |= {name: None for name in names} | {"reasons": dict(gone)}
    for name in [name for name in names if name not in gone]:

        def layer(*, setting=setting, name=name):
            q, k, v, do = inputs(setting, device)
            with context(name):
                row[name] = peak_bytes(lambda: _forward_backward(name, q, k, v, do, setting.causal))

        with heard() as said:
            error = _failure(lambda: (layer(setting=small), layer()))
        if error is not None:
            row[name], row["reasons"][name] = None, reason(error, said)
    return row


def _forward_backward(name, q, k, v, do, causal) -> tuple:
    o = bind(name, q, k, v, causal)()
    return o, *torch.autograd.grad(o, (q, k, v), do)


def peak_bytes(call: Callable) -> int:
    """Bytes that PyTorch's allocator had given out at most during a call, less those it had given out before."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results = call()
    torch.cuda.synchronize()
    del results
    return torch.cuda.max_memory_allocated() - before


def first_call(name: str) -> dict:
    """Seconds of the first forward and backward in a new process, with empty caches of compiled kernels and with filled.

    The median of three: what a machine has not read from its disk yet would be in one.
    """
    found: list[dict] = []
    for _ in range(FIRST_CALLS):
        found.append(_first_call(name))
        if "reason" in found[-1]:
            return found[-1]
    middle = lambda caches, way: statistics.median(one[caches][way] for one in found)  # noqa: E731
    return {caches: {way: middle(caches, way) for way in of} for caches, of in found[0].items()}


def _first_call(name: str) -> dict:
    """The same once."""
    found: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            "PYTHONUTF8": "1",
            "TRITON_CACHE_DIR": f"{folder}/triton",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        }
        caches["PYTHONPATH"] = os.pathsep.join(sys.path)  # the same packages are found
        environment = {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_COMPILE_THREADS"} | caches
        for caches_are in ("empty", "filled"):
            command = [sys.executable, "-m", "side_by_side.first_call", name]
            try:
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, timeout=FIRST_CALL_LIMIT, encoding="utf-8"
                )
            except subprocess.TimeoutExpired:
                return found | {"reason": f"caches {caches_are}: more than {FIRST_CALL_LIMIT} s"}
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                return found | {"reason": f"caches {caches_are}: {last}"[:200]}
            found[caches_are] = json.loads(done.stdout.splitlines()[-1])
    return found
