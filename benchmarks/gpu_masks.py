"""Time `flash_attention` with a window and with documents next to flex, PyTorch's varlen and FlashAttention-4, on one GPU.

    python benchmarks/gpu_masks.py --commit $(git rev-parse --short HEAD)     all; on an H200 gpu_masks_h200.json
    python benchmarks/gpu_masks.py --table flashlearn/measurements/gpu_masks_h200.json       a recorded run, as a table

window       causal, every query attends to itself and the 1,023 keys before it, N 16384
documents    causal, 16 documents of 64 to 3,000 tokens, 1,024 on average, packed into 16,384

D 128, 16 heads, float16 and bfloat16, TFLOP/s forward and backward, as in gpu_attention.py: medians, the lowest of
three rounds, each in another order. Every result is compared with PyTorch's in float32 before it is timed. FLOPs are
those of visible pairs: 4 H D for a query and a key that it attends to, 2.5 times as much backward.

ours         flash_attention(q, k, v, causal=True, window=... or documents=...)
flex         flex_attention, compiled for the sizes, its block mask made beforehand
varlen       torch.nn.attention.varlen.varlen_attn: FlashAttention-2, where PyTorch has it
fa4          flash_attn.cute, where it is installed

The JSON is written after every row. Ends by itself: begins no row after 3.5 minutes.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import itertools
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from recording import check_gpu, commits, file_of, parser_of, provenance, recorded, save
from side_by_side import measure
from side_by_side.backends import OURS, Rejected, compile_flex, heard, reason
from torch import Tensor

NAMES = (OURS, "flex", "varlen", "fa4")
WINDOW = 1024  # keys that a query attends to
LENGTHS = (64, 3000, 128, 200, 1600, 333, 450, 2500, 512, 700, 1200, 64, 900, 1111, 1622, 2000)  # 1024 on average


class Setting(NamedTuple):
    """A mask over N tokens of H heads; `lengths` are those of the documents, () where there are none."""

    mask: str
    dtype: str
    N: int = sum(LENGTHS)
    window: int = WINDOW
    lengths: tuple[int, ...] = LENGTHS
    D: int = 128
    H: int = 16

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it attends to."""
        if self.mask == "window":
            within = min(self.window, self.N)
            return within * (within + 1) // 2 + (self.N - within) * within
        return sum(n * (n + 1) // 2 for n in self.lengths)

    def flops(self, backward: bool) -> float:
        return 4 * self.H * self.D * self.pairs * (2.5 if backward else 1)


SETTINGS = tuple(Setting(mask, dtype) for dtype in ("float16", "bfloat16") for mask in ("window", "documents"))


def installed() -> list[str]:
    """The names that can be timed here."""
    fa4 = importlib.util.find_spec("flash_attn") and importlib.util.find_spec("flash_attn.cute")
    there = {"varlen": importlib.util.find_spec("torch.nn.attention.varlen"), "fa4": fa4}
    return [name for name in NAMES if there.get(name, True)]


def offsets(setting: Setting, device: str) -> Tensor:
    """Of the documents, (n + 1,) int32; of one, where there are none."""
    lengths = (setting.N,) if setting.mask == "window" else setting.lengths
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)


def inputs(setting: Setting, device: str) -> list[Tensor]:
    """q, k, v and the gradient of o, (1, H, N, D)."""
    torch.manual_seed(0)
    shape = (1, setting.H, setting.N, setting.D)
    return [torch.randn(shape, dtype=getattr(torch, setting.dtype), device=device) for _ in range(4)]


def reference(setting: Setting, q: Tensor, k: Tensor, v: Tensor, do: Tensor) -> list[Tensor]:
    """o, dq, dk and dv by PyTorch in float32, a head at a time: each has N x N scores."""
    seen = torch.ones(setting.N, setting.N, dtype=torch.bool, device=q.device).tril()
    if setting.mask == "window":
        seen = seen.triu(1 - setting.window)
    else:
        document = torch.arange(len(setting.lengths)).repeat_interleave(torch.tensor(setting.lengths)).to(q.device)
        seen &= document[:, None] == document
    heads = []
    for h in range(setting.H):
        leaves = [t[:, h : h + 1].detach().float().requires_grad_() for t in (q, k, v)]
        o = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=seen)
        heads.append((o.detach(), *torch.autograd.grad(o, leaves, do[:, h : h + 1].float())))
    return [torch.cat(of_heads, 1) for of_heads in zip(*heads, strict=True)]


def bind(name: str, setting: Setting, device: str) -> tuple[Callable, bool]:
    """attend(q, k, v), and whether it takes and gives (N, H, D), packed, in place of (1, H, N, D)."""
    cut = offsets(setting, device)
    windowed = setting.mask == "window"
    left = setting.window - 1
    if name == OURS:
        from flashlearn.fast.api import flash_attention

        options = {"window": (left, 0)} if windowed else {"documents": cut, "causal": True}
        return lambda q, k, v: flash_attention(q, k, v, **options), False
    if name == "flex":
        return _flex(setting, cut, device), False
    if name == "varlen":
        return _varlen(setting, cut, left if windowed else -1), True
    from flash_attn.cute import flash_attn_func, flash_attn_varlen_func

    if windowed:
        window = {"window_size": (left, 0)}
        return lambda q, k, v: _first(flash_attn_func(q[None], k[None], v[None], causal=True, **window))[0], True
    lengths = dict.fromkeys(("max_seqlen_q", "max_seqlen_k"), max(setting.lengths))
    given = {"cu_seqlens_q": cut, "cu_seqlens_k": cut, **_taken(flash_attn_varlen_func, lengths)}
    return lambda q, k, v: _first(flash_attn_varlen_func(q, k, v, causal=True, **given)), True


def _first(o):
    return o[0] if isinstance(o, tuple) else o


def _taken(function: Callable, given: dict) -> dict:
    """Of these arguments those that this version of a function takes."""
    return {name: value for name, value in given.items() if name in inspect.signature(function).parameters}


def _varlen(setting: Setting, cut: Tensor, left: int) -> Callable:
    from torch.nn.attention.varlen import varlen_attn

    longest = setting.N if setting.mask == "window" else max(setting.lengths)
    given = _taken(varlen_attn, {"window_size": (left, 0)})
    if not given:
        if setting.mask == "window":
            raise Rejected("this PyTorch's varlen_attn has no window")
        given = {"is_causal": True}
    return lambda q, k, v: varlen_attn(q, k, v, cut, cut, longest, longest, **given)


def _flex(setting: Setting, cut: Tensor, device: str) -> Callable:
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._functorch.config.donated_buffer = False  # so that backward may run again and again on one forward
    torch.compiler.reset()
    document = torch.bucketize(torch.arange(setting.N, device=device), cut, right=True)

    def in_window(b, h, i, j):
        return (i >= j) & (i - j < setting.window)

    def in_document(b, h, i, j):
        return (i >= j) & (document[i] == document[j])

    seen = in_window if setting.mask == "window" else in_document
    mask = create_block_mask(seen, None, None, setting.N, setting.N, device=device)
    flex = torch.compile(flex_attention, dynamic=False) if device == "cuda" else flex_attention
    return lambda q, k, v: flex(q, k, v, block_mask=mask)


def warm_flex(setting: Setting) -> str | None:
    """Compile flex for one setting, in a process of its own; the reason if that fails."""

    def compile_all():
        q, k, v, do = inputs(setting, "cuda")
        leaves = [t.requires_grad_() for t in (q, k, v)]
        attend, _ = bind("flex", setting, "cuda")
        with torch.no_grad():
            attend(*leaves)
        torch.autograd.grad(attend(*leaves), leaves, do)

    error = measure._failure(compile_all)
    return None if error is None else reason(error, ())


def calls_of(name: str, setting: Setting, tensors: list[Tensor], want: list[Tensor], device: str) -> dict:
    """{"forward", "backward"}: a call each, its results checked."""
    attend, packed = bind(name, setting, device)
    q, k, v, do = (t[0].transpose(0, 1).contiguous() if packed else t for t in tensors)
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    o = attend(*leaves)
    got = [o.detach(), *torch.autograd.grad(o, leaves, do, retain_graph=True)]
    got = [t.transpose(0, 1)[None] if packed else t for t in got]
    measure.check(("o", "dq", "dk", "dv"), got, want, setting.dtype)
    return {
        "forward": torch.no_grad()(lambda: attend(*leaves)),
        "backward": lambda: torch.autograd.grad(o, leaves, do, retain_graph=True),
    }


def failure(call: Callable) -> Exception | None:
    """The error with which a call was rejected, if it was; another version of a peer may take other arguments."""
    try:
        return measure._failure(call)
    except (AssertionError, AttributeError, ImportError, TypeError) as error:
        return error.with_traceback(None)


def row_of(setting: Setting, names: list[str], device: str = "cuda") -> dict:
    """One row: the setting, TFLOP/s of every backend, and "reasons" for every None."""
    tensors = inputs(setting, device)
    want = reference(setting, *tensors)
    row = setting._asdict() | {"lengths": list(setting.lengths), "pairs": setting.pairs} | {"reasons": {}}
    calls: dict[str, dict] = {}
    for name in names:
        with heard() as said:
            error = failure(lambda: calls.update({name: calls_of(name, setting, tensors, want, device)}))  # noqa: B023
        if error is not None:
            row["reasons"][name] = reason(error, said)
    best: dict[tuple[str, str], float] = {}
    for turn in range(measure.ROUNDS):
        for name, kind in itertools.product(measure.sequence(list(calls), turn), ("forward", "backward")):
            best[name, kind] = min(best.get((name, kind), float("inf")), measure.median_ms(calls[name][kind]))
    for name in names:
        rate = {kind: setting.flops(kind == "backward") / best[name, kind] / 1e9 for kind in calls.get(name, ())}
        row[name] = {kind: measure.shortened(tflops) for kind, tflops in rate.items()} or None
    return row


def run(args: argparse.Namespace, results: dict, settings=SETTINGS, device: str = "cuda", clock=time.monotonic) -> int:
    """Measure what is missing; how many rows were left when the time was over."""
    begin, names = clock(), [name for name in installed() if name not in args.without]
    left = [s for s in settings if not any(r["mask"] == s.mask and r["dtype"] == s.dtype for r in results["rows"])]
    if "flex" in names and device == "cuda":
        compile_flex(warm_flex, left)
        print(f"flex compiled after {clock() - begin:.0f} s", flush=True)
    for number, setting in enumerate(left):
        if clock() - begin > 60 * args.minutes:
            return len(left) - number
        row = row_of(setting, names, device)
        results["rows"].append(row | {"commits": commits(row, results, NAMES)})
        save(results, args.out)
        print(f"{clock() - begin:4.0f} s  {line(results['rows'][-1])}", flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
    return 0


def line(row: dict) -> str:
    """A row of the table: forward / backward of each, in TFLOP/s."""
    found = {name: row.get(name) for name in NAMES}
    rates = [f"{name} {r['forward']:.0f} / {r['backward']:.0f}" for name, r in found.items() if r]
    reasons = [f"{name}: {words}" for name, words in row["reasons"].items()]
    return f"{row['mask']:9} {row['dtype']:8} " + ", ".join(rates) + "".join(f"; {words}" for words in reasons)


def arguments() -> argparse.ArgumentParser:
    parser = parser_of(__doc__, minutes=3.5)
    parser.add_argument("--without", nargs="+", choices=NAMES[1:], default=(), metavar="PEER", help="leave peers out")
    return parser


def main(given: list[str] | None = None) -> int:
    parser = arguments()
    args = parser.parse_args(given)
    if args.table:
        print("\n".join(map(line, recorded(args.table, parser, "rows", row="mask")["rows"])))
        return 0
    check_gpu(parser, "; --table prints a recorded run")
    args.out = args.out or file_of("masks")
    results = {"provenance": provenance(args.commit), "unit": "TFLOP/s, median", "rows": []}
    left = run(args, results)
    if left:
        print(f"stopped after {args.minutes} minutes, {left} rows before the end")
    failed = [row["reasons"][OURS] for row in results["rows"] if OURS in row["reasons"]]
    if failed:
        print(f"{OURS} failed, first: {failed[0]}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
