"""The grid of shapes that every algorithm is tested on, the oracle, and the error rule.

    case = Case(63, 111, 40, causal=True)       one problem; `CASES` is the grid, `SMALL` its cheap part
    q, k, v, do = make(case)                    its inputs and an upstream gradient
    want = oracle(case, q, k, v, do)            {"o", "lse", "dq", "dk", "dv"} in float64
    ours = {"o": o, "lse": lse}                 any of the names, from the code under test
    check(case, ours, want, plain(case, q, k, v, do))

The rule is FlashAttention's own: the largest error of each, against float64, is at most twice that of plain
PyTorch in the dtype of the inputs, plus a floor (`floor` says which). Infinities must be where the oracle has
them, NaN is never right, and shape and dtype must be those expected. `check` names every offender with its
largest error. Plain PyTorch in 16 bits is no yardstick for large or extreme logits, which it rounds to 16 bits:
`case.tame` tells those cases apart, and `check_kernel` holds kernels to `rounding` there, a bound by analysis.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields

import torch
from torch import Tensor

fp16, bf16, fp32, fp64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
DTYPES = (fp16, bf16, fp32, fp64)
LENGTHS = (1, 2, 16, 63, 64, 100, 111, 192, 257)
HEAD_DIMS = (1, 16, 40, 64, 96, 128)
LAYOUTS = ("contiguous", "transposed", "strided", "expanded", "packed")
LOGITS = ("normal", "large", "extreme", "rising", "equal")

# Absolute part of the floor. It lets a result differ where plain PyTorch happens to be exact, no more.
FLOOR = {fp16: 1e-5, bf16: 1e-5, fp32: 1e-5, fp64: 1e-11}


# A GPU rounds P below 1.2e-38 to 0; what such a P adds to a gradient is below this.
UNDERFLOW = 1e-30


@dataclass(frozen=True)
class Case:
    """One attention problem: q (B, H_q, N_q, D), k and v (B, H_kv, N_k, D), and block sizes for tiled algorithms.

    layout   how q, k, v and do lie in memory
             contiguous; transposed: (B, N, H, D) in memory, as a linear layer leaves them; strided: every
             second column of a wider tensor; expanded: k and v of one head, stride 0; packed: slices of one
             tensor
    logits   normal; large: scores to about 100; extreme: to about 4000; rising: every key beats those before
             it, so that the maximum rises in each block; equal: all scores are 0
    documents, key_range   lengths of the documents; (start, stop) of every sequence of the batch
    alibi, sinks   whether there are any: tests/masked.py makes them
    """

    N_q: int
    N_k: int
    D: int
    causal: bool = False
    dtype: torch.dtype = fp32
    H_q: int = 2
    H_kv: int = 2
    B: int = 1
    layout: str = "contiguous"
    logits: str = "normal"
    scale: float | None = None
    block_q: int = 64
    block_k: int = 64
    window: tuple[int | None, int | None] | None = None
    documents: tuple[int, ...] | None = None
    key_range: tuple[tuple[int, int], ...] | None = None
    softcap: float | None = None
    alibi: bool = False
    sinks: bool = False

    def __str__(self) -> str:
        """A test's name: the sizes, and whatever differs from the defaults."""
        parts = [f"{self.N_q}x{self.N_k}x{self.D}"]
        for f in fields(self)[3:]:
            value = getattr(self, f.name)
            if value != f.default:
                if value is True:
                    parts.append(f.name)
                elif f.name in ("dtype", "layout", "logits"):
                    parts.append(str(value).removeprefix("torch."))
                else:
                    parts.append(f"{f.name}={value}")
        return "-".join(parts)

    @property
    def options(self) -> frozenset[str]:
        """Which options are given."""
        names = ("window", "documents", "key_range", "softcap", "alibi", "sinks")
        return frozenset(name for name in names if getattr(self, name) not in (None, False))

    @property
    def tame(self) -> bool:
        """Whether scores stay small enough for 16-bit gradients to mean something."""
        return self.logits not in ("large", "extreme")

    @property
    def masked_rows(self) -> int:
        """Queries that see no key."""
        return self.N_q if self.N_k == 0 else max(0, self.N_q - self.N_k) * self.causal


CASES = (
    Case(1, 1, 1),
    Case(1, 1, 16, causal=True, dtype=fp16),
    Case(2, 1, 40, causal=True, dtype=bf16),
    Case(1, 2, 64, dtype=fp64),
    Case(2, 2, 96, causal=True, block_q=1, block_k=1),
    Case(1, 257, 64, causal=True, dtype=bf16, H_q=4, H_kv=1, B=2, layout="transposed"),  # decoding
    Case(1, 192, 128, dtype=fp16, H_q=6, H_kv=2, block_k=128),
    Case(2, 111, 40, causal=True, dtype=fp64, H_q=4, H_kv=2, block_q=1, block_k=16),
    Case(16, 16, 128, causal=True, dtype=fp16, layout="strided", block_q=16, block_k=16),
    Case(16, 100, 1, dtype=bf16, layout="expanded", block_q=5, block_k=7),
    Case(16, 63, 16, causal=True, B=3, layout="packed", block_q=4, block_k=4),
    Case(16, 2, 64, dtype=fp64, logits="large"),
    Case(63, 63, 64, causal=True, dtype=fp16, block_q=16, block_k=32),
    Case(63, 64, 40, dtype=bf16, block_q=64, block_k=16, layout="transposed"),
    Case(63, 16, 96, causal=True, dtype=fp64, block_q=16, block_k=16),  # 47 rows see no key
    Case(64, 64, 64, causal=True, dtype=bf16, B=2),
    Case(64, 64, 128, dtype=fp16, H_q=4, H_kv=1),
    Case(64, 192, 16, causal=True, dtype=fp32, H_q=4, H_kv=2, layout="transposed", logits="rising"),
    Case(64, 1, 40, causal=True, dtype=fp32, block_q=32),  # 63 rows see no key
    Case(100, 100, 96, causal=True, dtype=fp16, block_q=32, block_k=64, logits="large"),
    Case(100, 111, 64, dtype=bf16, H_q=3, H_kv=1, layout="strided", block_q=64, block_k=32),
    Case(100, 257, 40, causal=True, dtype=fp32, block_q=128, block_k=32, logits="extreme"),
    Case(100, 63, 16, causal=True, dtype=fp64, layout="expanded", block_q=7, block_k=5),  # 37 rows see no key
    Case(111, 111, 64, causal=True, dtype=bf16, block_q=64, block_k=32, logits="rising"),
    Case(111, 100, 128, dtype=fp16, layout="packed", block_q=32, block_k=48),
    Case(111, 16, 1, causal=True, dtype=fp16, H_q=4, H_kv=2, block_q=16, block_k=16),  # 95 rows see no key
    Case(192, 192, 64, causal=True, dtype=fp16),
    Case(192, 64, 128, causal=True, dtype=bf16, block_q=64, block_k=32),  # 128 rows see no key: 2 blocks
    Case(192, 257, 96, dtype=fp32, layout="expanded", logits="extreme"),
    Case(192, 100, 40, causal=True, dtype=fp32, H_q=2, H_kv=1, scale=0.3, layout="strided"),
    Case(257, 257, 64, causal=True, dtype=fp16, block_q=128, block_k=64, layout="transposed"),
    Case(257, 257, 40, causal=True, dtype=bf16, block_q=64, block_k=8),
    Case(257, 192, 16, dtype=fp16, logits="equal", block_q=100, block_k=100),
    Case(257, 111, 96, causal=True, dtype=fp32, H_q=4, H_kv=2),  # 146 rows see no key
    Case(257, 257, 128, causal=True, dtype=fp64, block_q=48, block_k=80),
    Case(257, 1, 16, dtype=bf16, logits="extreme"),
    Case(2, 257, 1, causal=True, dtype=fp32, logits="rising", scale=-1.0, block_q=2, block_k=2),
    Case(64, 63, 64, causal=True, dtype=fp64, scale=0.0),
)
SMALL = tuple(case for case in CASES if case.N_q * case.N_k <= 64 * 64)


def traits(case: Case) -> set:
    """What a case shows, for `tests.slow.covering`: its settings, some in pairs, and what is special about its sizes."""
    grouped, unseen = case.H_q > case.H_kv, case.masked_rows > 0
    longer = (case.N_q > case.N_k) - (case.N_q < case.N_k)
    divide = case.N_q % case.block_q == 0 == case.N_k % case.block_k
    return {
        f"D {case.D}",
        f"B > 1 {case.B > 1}",
        f"N_q = 1 {case.N_q == 1}",
        f"divide {divide}",
        f"scale {case.scale}",
        case.layout,
        case.logits,
        (case.causal, case.dtype),
        (case.causal, longer),
        (unseen, case.dtype),
        (unseen, grouped),
    }


def work(case: Case) -> float:
    """How long a case takes in Triton's interpreter, roughly: one for a program, and for a step of its loop."""
    return case.B * case.H_q * -(-case.N_q // 64) * (2 + case.N_k / 32 * (1 + case.D / 64))


def make(case: Case, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v and do (the gradient of the output) for a case, the same on every call and every device."""
    generator = torch.Generator().manual_seed(zlib.crc32(str(case).encode()))
    of_queries, of_keys = (case.B, case.H_q, case.N_q, case.D), (case.B, case.H_kv, case.N_k, case.D)
    shapes = (of_queries, of_keys, of_keys, of_queries)
    q, k, v, do = (torch.randn(shape, generator=generator, dtype=fp64) for shape in shapes)
    q, k = _set_logits(case.logits, q, k)
    q, k, v, do = (t.to(device, case.dtype) for t in (q, k, v, do))
    if case.layout == "expanded":
        return q, k[:, :1].expand(k.shape), v[:, :1].expand(v.shape), do
    if case.layout == "packed":
        return *_pack(q, k, v), do
    return tuple(_lay_out(case.layout, t) for t in (q, k, v, do))


def _set_logits(logits: str, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Scale or shape q and k so that the scores q.k are as the name says; see `Case`."""
    if logits == "equal":
        return q * 0, k
    if logits == "rising":  # q = 1 and k = 0, 0.05, 0.1, ... throughout, plus a little noise
        ramp = torch.arange(k.shape[2], dtype=k.dtype)[:, None] * 0.05
        return q * 0.01 + 1, k * 0.01 + ramp / k.shape[3] ** 0.5
    return q * {"normal": 1, "large": 30, "extreme": 1000}[logits], k


def _lay_out(layout: str, t: Tensor) -> Tensor:
    """The same numbers in another place: not contiguous, except for "contiguous"."""
    if layout == "transposed":
        return t.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "strided":
        return torch.stack((t, torch.full_like(t, float("nan"))), dim=-1).flatten(-2)[..., ::2]
    return t


def _pack(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as slices of one (B, H, N, 3D) tensor that has NaN wherever none of them is."""
    B, D = q.shape[0], q.shape[3]
    H, N = max(q.shape[1], k.shape[1]), max(q.shape[2], k.shape[2])
    packed = q.new_full((B, H, N, 3 * D), float("nan"))
    for i, t in enumerate((q, k, v)):
        packed[:, : t.shape[1], : t.shape[2], i * D : (i + 1) * D] = t
    return tuple(packed[:, : t.shape[1], : t.shape[2], i * D : (i + 1) * D] for i, t in enumerate((q, k, v)))


def seen(case: Case) -> Tensor:
    """(B, N_q, N_k) booleans, by the definition of each option, a pair at a time."""
    i = torch.arange(case.N_q)[:, None] + case.N_k - case.N_q
    j = torch.arange(case.N_k)
    left, right = case.window or (None, None)
    see = torch.ones(case.N_q, case.N_k, dtype=torch.bool)
    if case.causal:
        see &= j <= i
    if left is not None:
        see &= i - j <= left
    if right is not None:
        see &= j - i <= right
    if case.documents is not None:
        document = torch.arange(len(case.documents)).repeat_interleave(torch.tensor(case.documents))
        see &= document[:, None] == document
    see = see.repeat(case.B, 1, 1)
    for b, (start, stop) in enumerate(case.key_range or ()):
        see[b] &= (j >= start) & (j < stop)
    return see


def distances(case: Case, q: Tensor) -> Tensor:
    """|i + N_k - N_q - j|, (N_q, N_k)."""
    i = torch.arange(case.N_q, device=q.device)[:, None] + case.N_k - case.N_q
    return (i - torch.arange(case.N_k, device=q.device)).abs()


def reference(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float | None = None):
    """o and lse by plain PyTorch in the dtype of q, nothing of flashlearn; 0 and -inf where none is seen."""
    return dense(_case_of(q, k, causal, scale), q, k, v, {})


def probabilities(q: Tensor, k: Tensor, *, causal: bool, scale: float | None) -> tuple[Tensor, Tensor]:
    """P (B, H_q, N_q, N_k) and lse (B, H_q, N_q), by plain PyTorch."""
    return weights(_case_of(q, k, causal, scale), q, k, {})


def _case_of(q: Tensor, k: Tensor, causal: bool, scale: float | None) -> Case:
    B, H_q, N_q, D = q.shape
    return Case(N_q, k.shape[2], D, causal, H_q=H_q, H_kv=k.shape[1], B=B, scale=scale)


def weights(case: Case, q: Tensor, k: Tensor, options: dict) -> tuple[Tensor, Tensor]:
    """P (B, H_q, N_q, N_k) and lse, with all scores in memory, in the dtype of q."""
    see = seen(case)[:, None].to(q.device)
    k = k.repeat_interleave(case.H_q // case.H_kv, dim=1)
    S = q @ k.mT * (case.D**-0.5 if case.scale is None else case.scale)
    if case.softcap is not None:
        S = case.softcap * torch.tanh(S / case.softcap)
    if case.alibi:
        S = S - (options["alibi"][:, None, None] * distances(case, q)).to(q.dtype)
    S, row_seen = S.masked_fill(~see, float("-inf")), see.any(-1, keepdim=True)
    if case.sinks:
        sinks = options["sinks"].to(S.dtype)[:, None, None].expand(*S.shape[:3], 1)
        S, row_seen = torch.cat((S, sinks), -1), row_seen | sinks.isfinite()
    S = S.masked_fill(~row_seen, 0)
    lse = torch.logsumexp(S.to(torch.promote_types(S.dtype, fp32)), -1).masked_fill(~row_seen[..., 0], float("-inf"))
    return (torch.softmax(S, -1) * row_seen)[..., : case.N_k], lse


def dense(case: Case, q: Tensor, k: Tensor, v: Tensor, options: dict) -> tuple[Tensor, Tensor]:
    """o and lse by brute force."""
    P, lse = weights(case, q, k, options)
    return P @ v.repeat_interleave(case.H_q // case.H_kv, dim=1), lse


def results(forward, q: Tensor, k: Tensor, v: Tensor, do=None, dlse=None, options: dict | None = None) -> dict:
    """{"o", "lse"} of forward(q, k, v), which returns o or (o, lse); with `do` also "dq", "dk", "dv", "dsinks", "dalibi"."""
    if do is None:
        with torch.no_grad():
            out = forward(q, k, v)
        return dict(zip(("o", "lse"), out if isinstance(out, tuple) else (out,), strict=False))
    leaves = {name: t.detach().requires_grad_() for name, t in {"dq": q, "dk": k, "dv": v}.items()}
    out = forward(*leaves.values())
    out = out if isinstance(out, tuple) else (out,)
    leaves |= {f"d{name}": options[name] for name in ("sinks", "alibi") if name in (options or ())}
    upstream = [t.to(result.dtype) for t, result in zip((do, dlse), out, strict=False) if t is not None]
    grads = torch.autograd.grad(out[: len(upstream)], list(leaves.values()), upstream)
    return dict(zip(("o", "lse"), (t.detach() for t in out), strict=False)) | dict(zip(leaves, grads, strict=True))


def answers(case: Case, inputs, options: dict, dlse=None, dtype=fp64) -> dict:
    """What is right, in float64, with `do` also "terms", the size of what cancels in them (`floor`).

    Given another dtype, what plain PyTorch makes of it; its error is the yardstick.
    """
    q, k, v, do = (None if t is None else t.detach().to(dtype) for t in inputs)
    wide = torch.promote_types(dtype, fp32)
    options = {
        name: t.detach().to(wide).requires_grad_() if name in ("alibi", "sinks") else t for name, t in options.items()
    }
    want = results(lambda *qkv: dense(case, *qkv, options), q, k, v, do, dlse, options)
    return want | {"terms": _terms(case, q, k, v, do, options)} if dtype == fp64 and do is not None else want


def _terms(case: Case, q: Tensor, k: Tensor, v: Tensor, do: Tensor, options: dict) -> dict:
    """dS = P (dP - D) with a sum in place of the difference, carried on to dq, dk and dalibi: the largest entries."""
    scale = abs(case.D**-0.5 if case.scale is None else case.scale)
    P, _ = weights(case, q, k, options)
    group = case.H_q // case.H_kv
    dP = (do @ v.repeat_interleave(group, dim=1).mT).abs()
    dS = (P * (dP + (P * dP).sum(-1, keepdim=True))).detach()
    dk = (dS.mT @ q.abs()).unflatten(1, (case.H_kv, group)).sum(2)
    dq = dS @ k.abs().repeat_interleave(group, dim=1)
    terms = {"dq": scale * dq, "dk": scale * dk, "dalibi": (dS * distances(case, q)).sum((0, 2, 3))}
    return {name: t.max().item() if t.numel() else 0.0 for name, t in terms.items()}


def oracle(case: Case, q: Tensor, k: Tensor, v: Tensor, do=None, dlse=None) -> dict:
    """What is right of a case without options, in float64."""
    return answers(case, (q, k, v, do), {}, dlse)


def plain(case: Case, q: Tensor, k: Tensor, v: Tensor, do=None, dlse=None) -> dict:
    """What plain PyTorch makes of it in the dtype of the inputs."""
    return answers(case, (q, k, v, do), {}, dlse, dtype=q.dtype)


def check_kernel(case: Case, inputs: tuple[Tensor, ...], ours: dict) -> None:
    """Hold what a kernel made of q, k, v and do to the rule; to `rounding` where the yardstick is a poor one.

    It is one at large and extreme logits; and on a GPU in float32, where it is itself only a few roundings.
    """
    few = inputs[0].is_cuda and case.dtype == fp32
    bounds = None if case.tame and not few else rounding(case, *inputs)
    check(case, ours, oracle(case, *inputs), plain(case, *inputs) if case.tame else None, bounds)


def check(case: Case, ours: dict, want: dict, yardstick: dict | None, bounds: dict | None = None) -> None:
    """Hold every result in `ours` to the rule; the message names each with its largest error.

    With `bounds`, {name: the error allowed for each entry}, an error may be as large as the rule or its bound
    allows; without `yardstick` the bounds are all there is.
    """
    assert ours, "expected at least one result to check, got none"
    lines, good = [], True
    for name, got in ours.items():
        fault = _fault(case, name, got, want, yardstick, bounds)
        good &= fault is None
        lines.append(f"  {name}: {fault or 'ok'}")
    assert good, f"{case}\n" + "\n".join(lines)


def _fault(case, name, got: Tensor, want: dict, yardstick: dict | None, bounds: dict | None) -> str | None:
    """What is wrong with one result, or None."""
    dtype = torch.promote_types(case.dtype, fp32) if name == "lse" else case.dtype
    if got.shape != want[name].shape or got.dtype != dtype:
        return f"expected {tuple(want[name].shape)} {dtype}, got {tuple(got.shape)} {got.dtype}"
    least = floor(case, name, want, on_gpu=got.is_cuda)
    got, right = got.detach().double().cpu(), want[name].detach().cpu()
    if got.isnan().any():
        return f"{int(got.isnan().sum())} NaN, the first at {tuple(got.isnan().nonzero()[0].tolist())}"
    finite = right.isfinite()
    if not torch.equal(got[~finite], right[~finite]):
        found = got[~finite].unique().tolist()
        return f"expected {right[~finite].unique().tolist()} where the oracle has it, got {found}"
    error = (got - right).abs().masked_fill(~finite, 0)
    if not error.numel():
        return None
    allowed, rule = torch.full_like(error, UNDERFLOW), "by rounding"
    if yardstick is not None:
        plain_error = largest_error(yardstick[name].detach().double().cpu(), right)
        allowed += 2 * plain_error + least
        rule = f"2 x {plain_error:.3e} of plain PyTorch + {least:.3e}"
    if bounds is not None:
        allowed = torch.maximum(allowed, bounds[name].cpu())
    excess = error - allowed
    if (excess <= 0).all():  # an infinite `got` fails here
        return None
    at = tuple(int(i) for i in torch.unravel_index(excess.argmax(), error.shape))
    values = f"got {got[at]:.6g}, want {right[at]:.6g}"
    return f"error {error[at]:.3e} at {at}, allowed {allowed[at]:.3e} ({rule}): {values}"


def largest_error(got: Tensor, want: Tensor) -> float:
    """The largest difference where both are finite; 0 if there is nothing to compare."""
    both = got.isfinite() & want.isfinite()
    return (got - want)[both].abs().max().item() if both.any() else 0.0


def floor(case: Case, name: str, want: dict, *, on_gpu: bool = False) -> float:
    """What is allowed where plain PyTorch happens to be exact: three times rounding, none of them wide.

    Two roundings of the largest number wanted, in the dtype of the inputs; for dq and dk one rounding of the
    terms that cancel, in the dtype that sums are kept in; and the absolute FLOOR. On a GPU, if it is more, what
    FlashAttention's tests allow: twice the rounding of x + 0.3 - 0.3, because there plain PyTorch and the kernel
    add up in orders of their own, and either may be lucky.
    """
    finite = want[name][want[name].isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    terms = want.get("terms", {}).get(name, 0.0)
    wide = torch.promote_types(case.dtype, fp32)
    least = torch.finfo(case.dtype).eps * largest + torch.finfo(wide).eps * terms + FLOOR[case.dtype]
    if not on_gpu or not finite.numel():
        return least
    x = finite.to(wide if name == "lse" else case.dtype)
    return max(least, 2 * (x + 0.3 - 0.3 - x).abs().max().item())


def rounding(case: Case, q: Tensor, k: Tensor, v: Tensor, do: Tensor) -> dict:
    """The error that rounding may cause in each entry of a kernel's o, lse, dq, dk, dv: float64, to first order.

    A running float32 sum of n terms is off by about eps sqrt(n) sum |terms| (roundings are as often up as down;
    tensor cores cut off, but add 16 terms at once); so S_ij is off by eps sqrt(D) sum_d |q_id k_jd| scale plus the
    roundings of its product with scale log2(e), exp makes that a relative error of P_ij, and backward, where
    P = exp(S - lse), the error of lse_i is added to it. What the kernels keep in the dtype of the inputs (P, dS and
    all results but lse) is off by half its eps besides, and from there errors pass through the equations of
    attention by the product rule, with absolute values throughout: dO o (error of o) into delta, and so on.
    """
    eps = torch.finfo(torch.promote_types(case.dtype, fp32)).eps
    stored = torch.finfo(case.dtype)
    q, k, v, do = (t.double() for t in (q, k, v, do))
    group = case.H_q // case.H_kv
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    scale = abs(case.D**-0.5 if case.scale is None else case.scale)

    def kept(t):  # the rounding of what is stored
        return stored.eps / 2 * t.abs().clamp(min=stored.tiny)

    def summed(n, t):  # the roundings of a sum of n terms, of which t is the sum of absolute values
        return eps * n**0.5 * t

    def of_group(t):  # one key head's sum over its query heads
        return t.unflatten(1, (case.H_kv, group)).sum(2)

    P, lse = probabilities(q, k, causal=case.causal, scale=case.scale)
    o, lse = P @ v, lse.masked_fill(lse.isinf(), 0).abs()
    S = scale * q.abs() @ k.abs().mT
    P_off = P * (summed(case.D, S) + 2 * eps * (S + 1))  # S scale log2(e), exp2
    lse_off = P_off.sum(-1) + summed(case.N_k, 1) + 2 * eps * lse
    # o moves with the part of P's error that l does not undo: sum_j P_off |v_j - o|
    columns = [(P_off * (v[..., None, :, d] - o[..., d, None]).abs()).sum(-1) for d in range(case.D)]
    o_off = torch.stack(columns, -1) + kept(P) @ v.abs() + summed(case.N_k, P @ v.abs()) + kept(o)

    P_off = P_off + P * (lse_off + 2 * eps * lse)[..., None]
    dP = do @ v.mT
    difference = dP - (do * o).sum(-1, keepdim=True)  # dP - delta
    dS = P * difference
    delta_off = (do.abs() * o_off + summed(case.D, (do * o).abs())).sum(-1, keepdim=True)
    dP_off = summed(case.D, do.abs() @ v.abs().mT)
    dS_off = P_off * difference.abs() + P * (dP_off + delta_off) + kept(dS)
    queries = case.N_q * group
    dv_off = of_group((P_off + kept(P) + summed(queries, P)).mT @ do.abs())
    dq_off = scale * (dS_off + summed(case.N_k, dS.abs())) @ k.abs()
    dk_off = scale * of_group((dS_off + summed(queries, dS.abs())).mT @ q.abs())
    dv, dq, dk = of_group(P.mT @ do), scale * dS @ k, scale * of_group(dS.mT @ q)
    return {"o": o_off, "lse": lse_off, "dq": dq_off + kept(dq), "dk": dk_off + kept(dk), "dv": dv_off + kept(dv)}
