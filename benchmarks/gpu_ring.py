"""Time ring attention over the GPUs of a host, next to one GPU and PyTorch's `context_parallel`.

    torchrun --nproc-per-node 2 benchmarks/gpu_ring.py --commit $(git rev-parse --short HEAD)
    python benchmarks/gpu_ring.py --table flashlearn/measurements/gpu_ring_h200x2.json     its table and targets

One layer, bfloat16, H 16, D 128, causal, N 65,536 to 1,048,576: milliseconds forward and backward, peak bytes on a GPU.

one         the whole problem on one GPU, by `flash_attention`; every GPU runs it, the fastest counts
zigzag      `ring_attention`, shares in zigzag order: as much work for every GPU
plain       the same with contiguous shares: the first GPU idles, the last does all
ulysses     `ulysses_attention`: all tokens of some heads
context_parallel    PyTorch's, which shares out the tokens as zigzag does

Times are those of the slowest GPU, medians of runs; a run starts when all are ready. efficiency = one / (P x ring). Before
anything is timed small shapes are compared with PyTorch in float32; then the results of every row at a sample of tokens with
those of one GPU. The JSON is written after every measurement. No row is begun after --minutes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from recording import file_of, parser_of, provenance, recorded, save
from torch import Tensor

import flashlearn.ring

CPU = not torch.cuda.is_available()  # a rehearsal: everything but the clock and the memory
DEVICE = "cpu" if CPU else "cuda"
LENGTHS = (131072, 65536, 262144, 524288, 1048576)  # the one that the targets speak of first
NAMES = ("one", "zigzag", "plain", "ulysses", "context_parallel")
H, D, DTYPE = 16, 128, torch.bfloat16
BOUND = 2e-2  # relative error; wrong results have far larger ones
SAMPLE = 4096  # tokens at which results are compared
RUNS = {65536: 7, 131072: 5, 262144: 3, 524288: 1, 1048576: 1}
WARM = 262144  # up to this number of tokens an untimed run comes first
SMALL = ((2051, (4, 2), 128, True), (1027, (4, 4), 64, True), (1540, (4, 1), 128, False))  # N, heads, D, causal
EFFICIENCY, OF_CONTEXT_PARALLEL, FROM = 0.92, 0.65, 131072  # the targets, and the tokens from which on they apply
UNITS = {"unit": "ms, median; of the slowest GPU, for one GPU of the fastest", "memory_unit": "bytes, peak on a GPU"}


def start_processes() -> tuple[int, int]:
    """(rank, size) of this process; messages between GPUs by NCCL, ahead of kernels, and between hosts' memories by gloo."""
    os.environ.setdefault("TORCH_NCCL_HIGH_PRIORITY", "1")
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    limit = datetime.timedelta(seconds=120)
    if CPU:
        dist.init_process_group("gloo", timeout=limit)
    else:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=limit, device_id=device)
    return dist.get_rank(), dist.get_world_size()


def inputs(N: int, seed: int = 0, heads: tuple[int, int] = (H, H), width: int = D) -> list[Tensor]:
    """q, k, v and do of all tokens, the same on every GPU."""
    source = torch.Generator(DEVICE).manual_seed(seed)
    sizes = (heads[0], heads[1], heads[1], heads[0])
    return [torch.randn(1, h, N, width, device=DEVICE, dtype=DTYPE, generator=source) for h in sizes]


def tokens_of(rank: int, P: int, N: int, order: str) -> Tensor:
    """The tokens of a share."""
    return torch.cat([torch.arange(start, stop) for start, stop in flashlearn.ring.shares(N, P, order)[rank]])


def attention_of(name: str, causal: bool = True) -> Callable:
    """attend(q, k, v) of this process's share; of all tokens for "one"."""
    if name == "one":
        attend = F.scaled_dot_product_attention if CPU else flashlearn.flash_attention
        mask = {"is_causal": causal} if CPU else {"causal": causal}
        return lambda q, k, v: attend(q, k, v, **mask)
    if name == "context_parallel":
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    if name == "ulysses":
        return lambda q, k, v: flashlearn.ring.ulysses_attention(q, k, v, order="plain", causal=causal)
    return lambda q, k, v: flashlearn.ring.ring_attention(q, k, v, order=name, causal=causal)


def order_of(name: str) -> str:
    """The order of the shares."""
    return "zigzag" if name in ("zigzag", "context_parallel") else "plain"


def once(
    attend: Callable, leaves: list[Tensor], do: Tensor, results: bool = False
) -> tuple[float, float, list[Tensor]]:
    """Milliseconds of one pass forward and backward, begun by all GPUs together; o, dq, dk and dv if requested."""
    marks = [Mark() for _ in range(3)]
    synchronize()
    dist.monitored_barrier(GLOO)
    marks[0].record()
    o = attend(*leaves)
    marks[1].record()
    grads = torch.autograd.grad(o, leaves, do)
    marks[2].record()
    synchronize()
    found = [o.detach(), *grads] if results else []
    return marks[0].elapsed_time(marks[1]), marks[1].elapsed_time(marks[2]), found


class Mark:
    """A moment on the GPU; in a rehearsal, of the clock."""

    def __init__(self) -> None:
        self.event = None if CPU else torch.cuda.Event(enable_timing=True)

    def record(self) -> None:
        self.seconds = time.perf_counter()
        if self.event:
            self.event.record()

    def elapsed_time(self, other: Mark) -> float:
        """Milliseconds."""
        if self.event and other.event:
            return self.event.elapsed_time(other.event)
        return 1000 * (other.seconds - self.seconds)


def synchronize() -> None:
    """Wait for the GPU."""
    if not CPU:
        torch.cuda.synchronize()


def allocated(peak: bool = False) -> int:
    """Bytes on this GPU, now or at most since the last `forget`."""
    return 0 if CPU else torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()


def forget() -> None:
    """Release unused memory, and begin a new peak."""
    if not CPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def over_all(value: float, op: dist.ReduceOp) -> float:
    """The largest or smallest of a number of all processes."""
    t = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(t, op, group=GLOO)
    return t.item()


def measure(name: str, N: int, shares: list[Tensor]) -> tuple[dict, list[Tensor]]:
    """{"forward", "backward", "bytes"} of one backend, and its results."""
    *given, do = shares
    leaves = [t.detach().requires_grad_() for t in given]
    attend, runs = attention_of(name), RUNS.get(N, 3)
    others = allocated() - sum(t.nbytes for t in shares)
    if N <= WARM:
        once(attend, leaves, do)
    forget()
    times = [once(attend, leaves, do)[:2] for _ in range(runs - 1)]
    *last, results = once(attend, leaves, do, results=True)
    medians = [statistics.median(column) for column in zip(*times, last, strict=True)]
    op = dist.ReduceOp.MIN if name == "one" else dist.ReduceOp.MAX
    forward, backward = (over_all(ms, op) for ms in medians)
    peak = over_all(allocated(peak=True) - others, dist.ReduceOp.MAX)
    return {"forward": forward, "backward": backward, "bytes": int(peak)}, results


def in_context(name: str, N: int, P: int) -> tuple[dict, list[Tensor], Tensor]:
    """`measure`, for PyTorch's inside its context, and which tokens a share holds.

    PyTorch gets the positions alone, and its result says which tokens are this GPU's.
    """
    if name != "context_parallel":
        tokens = tokens_of(dist.get_rank(), P, N, order_of(name))
        return *measure(name, N, shares_of(N, tokens)), tokens
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    positions = torch.arange(N, device=DEVICE)
    mesh = init_device_mesh(DEVICE, (P,))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), context_parallel(mesh, buffers=[positions], buffer_seq_dims=[0]):
        tokens = positions.cpu().clone()
        return *measure(name, N, shares_of(N, tokens)), tokens


def shares_of(N: int, tokens: Tensor) -> list[Tensor]:
    """q, k, v and do of some tokens."""
    shares = [t[:, :, tokens.to(DEVICE)] for t in inputs(N)]
    forget()
    return shares


def error_of(results: list[Tensor], expected: list[Tensor], sample: Tensor, tokens: Tensor) -> float:
    """The largest relative error of o, dq, dk and dv at the tokens of a sample that this share holds, over all GPUs."""
    mine = torch.isin(tokens, sample)
    where = torch.searchsorted(sample, tokens[mine]).to(DEVICE)
    mine = mine.nonzero().squeeze(1).to(DEVICE)
    pairs = [(t[:, :, mine].float(), true[:, :, where].float()) for t, true in zip(results, expected, strict=True)]
    return over_all(
        max(((t - true).norm() / true.norm()).nan_to_num(nan=1e9).item() for t, true in pairs), dist.ReduceOp.MAX
    )


def measure_length(results: dict, N: int, rank: int, P: int, args: argparse.Namespace) -> None:
    """One row: all backends at N tokens, saved after each."""
    row: dict = {"N": N, "B": 1, "H": H, "D": D, "dtype": "bfloat16", "causal": True, "P": P, "reasons": {}}
    results["rows"].append(row)
    sample = torch.linspace(0, N - 1, SAMPLE).long().unique()
    whole = inputs(N)
    row["one"], outputs = measure("one", N, whole)
    expected = [t[:, :, sample.to(DEVICE)].clone() for t in outputs]
    del whole, outputs
    for name in NAMES[1:]:
        if name in args.without:
            continue
        forget()
        try:
            found, outputs, tokens = in_context(name, N, P)
        except (RuntimeError, AttributeError, ImportError, NotImplementedError) as error:
            if name in ("zigzag", "plain"):
                raise
            row["reasons"][name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            continue
        found["error"] = error_of(outputs, expected, sample, tokens)
        found["efficiency"] = total(row["one"]) / (P * total(found))
        row[name] = found
        del outputs
        if rank == 0:
            save(results, args.out)
            print(f"N {N:8,} {name:17} " + json.dumps(found), flush=True)
        if not found["error"] < BOUND:
            row["reasons"][name] = f"wrong: relative error {found['error']:.1e}"


def total(found: dict) -> float:
    """Milliseconds forward and backward."""
    return found["forward"] + found["backward"]


def check_small(rank: int, P: int) -> float:
    """Odd lengths, grouped heads, masks: o, dq, dk, dv against PyTorch in float32; the largest relative error.

    RuntimeError for an error above that of 16 bits.
    """
    worst = 0.0
    for N, heads, width, causal in SMALL:
        whole = inputs(N, N, heads, width)
        leaves = [t.float().requires_grad_() for t in whole[:3]]
        wide = [t.repeat_interleave(heads[0] // t.shape[1], 1) for t in leaves]
        o = F.scaled_dot_product_attention(*wide, is_causal=causal)
        true = [o.detach(), *torch.autograd.grad(o, leaves, whole[3].float())]
        for name in ("zigzag", "plain", "ulysses"):
            if name == "ulysses" and any(h % P for h in heads):
                continue
            tokens = tokens_of(rank, P, N, order_of(name))
            *given, do = (t[:, :, tokens.to(DEVICE)] for t in whole)
            results = once(attention_of(name, causal), [t.requires_grad_() for t in given], do, results=True)[2]
            error = error_of(results, true, torch.arange(N), tokens)
            if not error < BOUND:
                raise RuntimeError(f"expected {name} at N {N} within {BOUND} of PyTorch in float32, got {error:.1e}")
            worst = max(worst, error)
    return worst


def targets(results: dict) -> list[str]:
    """A line for each row and target: the goal, and whether it is met."""
    lines = []
    for row in results["rows"]:
        if row["N"] < FROM or "zigzag" not in row:
            continue
        found = row["zigzag"]["efficiency"]
        lines.append(f"N {row['N']:9,}: efficiency {found:.2f}, wanted {EFFICIENCY}: {_met(found >= EFFICIENCY)}")
        if "context_parallel" in row:
            part = total(row["zigzag"]) / total(row["context_parallel"])
            words = f"of context_parallel's time {part:.2f}, wanted {OF_CONTEXT_PARALLEL}"
            lines.append(f"N {row['N']:9,}: {words}: {_met(part <= OF_CONTEXT_PARALLEL)}")
    return lines


def _met(is_so: bool) -> str:
    return "met" if is_so else "MISSED"


def table(results: dict) -> str:
    """Milliseconds, GB and efficiency of every backend, a line for each; then the targets."""
    lines = [f"{'N':>9}  {'backend':17} {'forward':>9} {'backward':>9} {'sum, ms':>9} {'GB':>6} {'efficiency':>10}"]
    for row in sorted(results["rows"], key=lambda row: row["N"]):
        for name in NAMES:
            if name in row:
                f = row[name]
                times = f"{f['forward']:9.1f} {f['backward']:9.1f} {total(f):9.1f} {f['bytes'] / 1e9:6.1f}"
                lines.append(f"{row['N']:9,}  {name:17} {times} {f.get('efficiency', 1.0):10.2f}")
            elif name in row["reasons"]:
                lines.append(f"{row['N']:9,}  {name:17} {row['reasons'][name]}")
    return "\n".join([*lines, "", *targets(results)])


def arguments() -> argparse.ArgumentParser:
    parser = parser_of(__doc__, minutes=3.0)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="N")
    parser.add_argument(
        "--without", nargs="+", choices=NAMES[1:], default=(), metavar="BACKEND", help="leave backends out"
    )
    return parser


def where(commit: str | None, P: int) -> dict:
    """Provenance, with the number of GPUs and NCCL's version."""
    nccl = "none" if CPU else ".".join(map(str, torch.cuda.nccl.version()))
    return provenance(commit) | {"gpus": P, "nccl": nccl}


def run(args: argparse.Namespace, rank: int, P: int) -> dict:
    """Every row for which there is time."""
    begin = time.monotonic()
    if args.out is None:
        path = file_of("ring")
        args.out = path.with_stem(f"{path.stem}x{P}")
    results = {"provenance": where(args.commit, P)} | UNITS | {"rows": []}
    results["small shapes, relative error"] = check_small(rank, P)
    for N in args.lengths:
        if over_all(time.monotonic() - begin, dist.ReduceOp.MAX) > 60 * args.minutes:
            break
        forget()
        measure_length(results, N, rank, P, args)
        if rank == 0:
            save(results, args.out)
    return results


def main(given: list[str] | None = None) -> int:
    global GLOO
    parser = arguments()
    args = parser.parse_args(given)
    if args.table:
        print(table(recorded(args.table, parser, "rows", row="P")))
        return 0
    if "RANK" not in os.environ or (CPU and args.out is None):
        parser.error(
            "expected torchrun and GPUs: torchrun --nproc-per-node 2 benchmarks/gpu_ring.py; "
            "without GPUs --out FILE --lengths 64 rehearses it"
        )
    rank, P = start_processes()
    GLOO = dist.new_group(backend="gloo")
    results = run(args, rank, P)
    if rank == 0:
        print(table(results))
    dist.destroy_process_group()
    return 0


GLOO = None  # the group of all processes for numbers in the memory of the hosts

if __name__ == "__main__":
    sys.exit(main())
