"""Problems with masks and changed scores for the tests of kernels: their inputs, and the oracle by brute force.

problem = Problem(63, 80, window=(5, 2), sinks=True)         as a `Case`, with options
q, k, v, do = inputs = make(problem)
options = given(problem, inputs)                             what `flash_attention` takes by keyword
want = answers(problem, *inputs, options)                    {"o", "lse", "dq", "dk", "dv", "dsinks", "dalibi"}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tests import grid
from tests.grid import Case, fp32, fp64


@dataclass(frozen=True)
class Problem(Case):
    """A `Case`, and what hides keys and changes scores.

    documents    lengths of the documents
    key_range    (start, stop) of every sequence of the batch
    alibi, sinks   whether there are any
    """

    window: tuple[int | None, int | None] | None = None
    documents: tuple[int, ...] | None = None
    key_range: tuple[tuple[int, int], ...] | None = None
    softcap: float | None = None
    alibi: bool = False
    sinks: bool = False

    @property
    def options(self) -> frozenset[str]:
        """Which options are given."""
        names = ("window", "documents", "key_range", "softcap", "alibi", "sinks")
        return frozenset(name for name in names if getattr(self, name) not in (None, False))


def offsets_of(lengths: tuple[int, ...], device="cpu") -> Tensor:
    """(sequences + 1,) int32: 0, and after every length the sum so far."""
    return torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)


def given(problem: Problem, device="cpu") -> dict:
    """What `flash_attention` takes by keyword; sinks and slopes are leaves."""
    g, wide = torch.Generator().manual_seed(7), torch.promote_types(problem.dtype, fp32)
    options: dict = {"causal": problem.causal, "scale": problem.scale}
    if problem.window is not None:
        options["window"] = problem.window
    if problem.documents is not None:
        options["documents"] = offsets_of(problem.documents, device)
    if problem.key_range is not None:
        options["key_range"] = tuple(
            torch.tensor(side, dtype=torch.int32, device=device) for side in zip(*problem.key_range, strict=True)
        )
    if problem.softcap is not None:
        options["softcap"] = problem.softcap
    if problem.alibi:
        options["alibi"] = (torch.rand(problem.H_q, generator=g) / 4).to(device, wide).requires_grad_()
    if problem.sinks:
        options["sinks"] = torch.randn(problem.H_q, generator=g).to(device, wide).requires_grad_()
    return options


def seen(problem: Problem) -> Tensor:
    """(B, N_q, N_k) booleans, by the definition of each option, a pair at a time."""
    i = torch.arange(problem.N_q)[:, None] + problem.N_k - problem.N_q
    j = torch.arange(problem.N_k)
    left, right = problem.window or (None, None)
    see = torch.ones(problem.N_q, problem.N_k, dtype=torch.bool)
    if problem.causal:
        see &= j <= i
    if left is not None:
        see &= i - j <= left
    if right is not None:
        see &= j - i <= right
    if problem.documents is not None:
        document = torch.arange(len(problem.documents)).repeat_interleave(torch.tensor(problem.documents))
        see &= document[:, None] == document
    see = see.repeat(problem.B, 1, 1)
    for b, (start, stop) in enumerate(problem.key_range or ()):
        see[b] &= (j >= start) & (j < stop)
    return see


def distances(problem: Problem, q: Tensor) -> Tensor:
    """|i + N_k - N_q - j|, (N_q, N_k)."""
    i = torch.arange(problem.N_q, device=q.device)[:, None] + problem.N_k - problem.N_q
    return (i - torch.arange(problem.N_k, device=q.device)).abs()


def probabilities(problem: Problem, q: Tensor, k: Tensor, options: dict) -> tuple[Tensor, Tensor]:
    """P (B, H_q, N_q, N_k) and lse, with all scores in memory, in the dtype of q."""
    see = seen(problem)[:, None].to(q.device)
    k = k.repeat_interleave(problem.H_q // problem.H_kv, dim=1)
    S = q @ k.mT * (problem.D**-0.5 if problem.scale is None else problem.scale)
    if problem.softcap is not None:
        S = problem.softcap * torch.tanh(S / problem.softcap)
    if problem.alibi:
        S = S - (options["alibi"][:, None, None] * distances(problem, q)).to(q.dtype)
    sinks = options["sinks"] if problem.sinks else torch.full((problem.H_q,), float("-inf"), device=q.device)
    sinks = sinks.to(S.dtype)[:, None, None].expand(*S.shape[:3], 1)
    row_seen = see.any(-1, keepdim=True) | sinks.isfinite()
    S = torch.cat((S.masked_fill(~see, float("-inf")), sinks), -1).masked_fill(~row_seen, 0)
    lse = torch.logsumexp(S.to(torch.promote_types(S.dtype, fp32)), -1).masked_fill(~row_seen[..., 0], float("-inf"))
    return (torch.softmax(S, -1) * row_seen)[..., :-1], lse


def dense(problem: Problem, q: Tensor, k: Tensor, v: Tensor, options: dict) -> tuple[Tensor, Tensor]:
    """o and lse by brute force."""
    P, lse = probabilities(problem, q, k, options)
    return P @ v.repeat_interleave(problem.H_q // problem.H_kv, dim=1), lse


def answers(problem: Problem, inputs, options: dict, dlse=None, dtype=fp64) -> dict:
    """What is right, in float64; or, given another dtype, what plain PyTorch makes of it, the yardstick."""
    inputs = tuple(t.detach().to(dtype) for t in inputs)
    wide = torch.promote_types(dtype, fp32)
    options = {
        name: t.detach().to(wide).requires_grad_() if name in ("alibi", "sinks") else t for name, t in options.items()
    }
    want = results_of(lambda *qkv: dense(problem, *qkv, options), inputs, options, dlse)
    return want | {"terms": _terms(problem, *inputs, options)} if dtype == fp64 else want


def _terms(problem: Problem, q: Tensor, k: Tensor, v: Tensor, do: Tensor, options: dict) -> dict:
    """As `tests.grid` has them: the size of what cancels in dq, dk and dalibi."""
    scale = abs(problem.D**-0.5 if problem.scale is None else problem.scale)
    P, _ = probabilities(problem, q, k, options)
    group = problem.H_q // problem.H_kv
    dP = (do @ v.repeat_interleave(group, dim=1).mT).abs()
    dS = (P * (dP + (P * dP).sum(-1, keepdim=True))).detach()
    dk = (dS.mT @ q.abs()).unflatten(1, (problem.H_kv, group)).sum(2)
    dq = dS @ k.abs().repeat_interleave(group, dim=1)
    terms = {"dq": scale * dq, "dk": scale * dk, "dalibi": (dS * distances(problem, q)).sum((0, 2, 3))}
    return {name: t.max().item() if t.numel() else 0.0 for name, t in terms.items()}


def results_of(forward, inputs, options: dict, dlse=None) -> dict:
    """{"o", "lse", "dq", "dk", "dv", and "dsinks", "dalibi" of those given} of forward(q, k, v) = o, lse."""
    q, k, v, do = inputs
    leaves = {name: t.detach().requires_grad_() for name, t in {"dq": q, "dk": k, "dv": v}.items()}
    o, lse = forward(*leaves.values())
    leaves |= {f"d{name}": options[name] for name in ("sinks", "alibi") if name in options}
    upstream = (do.to(o.dtype),) if dlse is None else (do.to(o.dtype), dlse.to(lse.dtype))
    grads = torch.autograd.grad((o, lse)[: len(upstream)], list(leaves.values()), upstream)
    return {"o": o.detach(), "lse": lse.detach()} | dict(zip(leaves, grads, strict=True))


def check(problem: Problem, inputs, ours: dict, options: dict, dlse=None) -> None:
    """Hold everything in `ours` to FlashAttention's rule, as `tests.grid.check` does."""
    want = answers(problem, inputs, options, dlse)
    yardstick = answers(problem, inputs, options, dlse, dtype=problem.dtype)
    assert set(ours) == set(want) - {"terms"}
    matrices = {name: t for name, t in ours.items() if name not in ("dsinks", "dalibi")}
    grid.check(problem, matrices, want, yardstick)
    per_head = {name: t for name, t in ours.items() if name not in matrices}
    if per_head:
        grid.check(replace(problem, dtype=fp32), per_head, _of_16_bits(problem, want, per_head), yardstick)


def _of_16_bits(problem: Problem, want: dict, names: Iterable[str]) -> dict:
    """Sums over all queries come in float32, but of factors in the dtype of the inputs, whose rounding `floor` allows."""
    ratio = torch.finfo(problem.dtype).eps / torch.finfo(fp32).eps
    rounded = {name: want["terms"].get(name, 0.0) + ratio * want[name].abs().max().item() for name in names}
    return want | {"terms": want["terms"] | rounded}
