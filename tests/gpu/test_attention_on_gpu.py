"""What only a GPU can show: compiled kernels over the whole grid, determinism, long sequences, large offsets.

Run on a machine with a CUDA GPU: `pytest tests/gpu`. Without one every test here is skipped, and says so.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from flashlearn.ops import flash_attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here: compiled kernels are not tested"),
]

LENGTHS = (1, 2, 16, 63, 64, 100, 111, 192, 257)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
NAMES = ("o", "lse", "dq", "dk", "dv")


def standard(q, k, v, causal, scale=None):
    """Plain attention in the dtype of its inputs: (o, lse), bottom-right causal, zeros where no key is seen."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    s = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        i, j = torch.arange(s.shape[-2], device=s.device), torch.arange(s.shape[-1], device=s.device)
        s = s.masked_fill(j > i[:, None] + len(j) - len(i), float("-inf"))
    dead = (s == float("-inf")).all(-1, keepdim=True)
    p = s.masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0)
    lse = s.masked_fill(dead, 0).double().logsumexp(-1).masked_fill(dead[..., 0], float("-inf"))
    return p @ v, lse.to(torch.promote_types(s.dtype, torch.float32))


def results(attention, q, k, v, do):
    """(o, lse, dq, dk, dv) of an attention function."""
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    o, lse = attention(q, k, v)
    return (o, lse, *torch.autograd.grad(o, (q, k, v), do))


def errors(got, q, k, v, do, causal, scale=None):
    """FlashAttention's rule: error against float64 at most twice that of plain PyTorch in this dtype, plus eps."""
    with torch.no_grad():
        wide = [t.double() for t in (q, k, v, do)]
    with torch.enable_grad():
        want = results(lambda *t: standard(*t, causal, scale), *wide)
        plain = results(lambda *t: standard(*t, causal, scale), q, k, v, do)
    found = []
    for name, g, p, w in zip(NAMES, got, plain, want, strict=True):
        assert torch.equal(g == -torch.inf, w == -torch.inf), f"{name}: -inf at the wrong places"
        g, p, w = (t.masked_fill(w == -torch.inf, 0) for t in (g, p, w))
        error, allowed = (g - w).abs().max().item(), 2 * (p - w).abs().max().item()
        allowed += torch.finfo(g.dtype).eps * max(1.0, w.abs().max().item())
        if not error <= allowed:
            found.append(f"{name}: error {error:.3g}, allowed {allowed:.3g}")
    return found


def inputs(B, H_q, H_kv, N_q, N_k, D, dtype, layout="BHND"):
    """Random q, k, v, do; "BNHD" and "BHDN" are transposed views of other layouts, "expanded" has strides of 0."""
    shapes = (B, H_q, N_q, D), (B, H_kv, N_k, D), (B, H_kv, N_k, D), (B, H_q, N_q, D)
    if layout == "expanded":
        return [torch.randn(1, 1, *s[2:], dtype=dtype, device="cuda").expand(s) for s in shapes]
    order = [layout.index(c) for c in "BHND"]
    stored = [[s["BHND".index(c)] for c in layout] for s in shapes]
    return [torch.randn(s, dtype=dtype, device="cuda").permute(order) for s in stored]


def check(case, scale=None, **kw):
    *shape, dtype, causal, layout = case
    q, k, v, do = inputs(*shape, dtype, layout)
    got = results(lambda *t: flash_attention(*t, causal=causal, scale=scale, return_lse=True), q, k, v, do)
    return [f"{case}: {e}" for e in errors(got, q, k, v, do, causal, scale)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (1, 16, 40, 64, 96, 128))
@pytest.mark.parametrize("causal", (False, True))
def test_grid(dtype, D, causal):
    torch.manual_seed(0)
    found = []
    heads, layouts = itertools.cycle(((2, 2), (4, 2), (3, 1))), itertools.cycle(("BHND", "BNHD", "BHDN", "expanded"))
    for N_q, N_k in itertools.product(LENGTHS, LENGTHS):
        found += check((2, *next(heads), N_q, N_k, D, dtype, causal, next(layouts)))
    assert not found, f"{len(found)} of {81 * 5}: " + "; ".join(found[:8])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (3, 33, 80, 160, 192, 255, 256))
def test_other_head_dimensions(dtype, D):
    torch.manual_seed(0)
    sizes = itertools.product(((100, 100), (257, 64), (65, 300)), (False, True))
    found = [e for (N_q, N_k), causal in sizes for e in check((1, 4, 2, N_q, N_k, D, dtype, causal, "BNHD"))]
    assert not found, "; ".join(found[:8])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (64, 128))
@pytest.mark.parametrize("causal", (False, True))
def test_tuned_sizes(dtype, D, causal):
    """Sizes that speed rungs like: many blocks, one block and a half, N_q unlike N_k."""
    torch.manual_seed(0)
    lengths = (512, 512), (1024, 1024), (1000, 1000), (192, 1024), (1024, 192), (384, 640)
    found = [e for N_q, N_k in lengths for e in check((1, 4, 2, N_q, N_k, D, dtype, causal, "BHND"))]
    found += check((2, 4, 4, 640, 640, D, dtype, causal, "BNHD"))
    found += check((1, 2, 2, 300, 300, D, dtype, causal, "BHND"), scale=-0.2)
    found += check((1, 2, 2, 256, 256, D, dtype, causal, "BHND"), scale=0.0)
    assert not found, "; ".join(found[:8])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_extreme_logits(dtype):
    torch.manual_seed(0)
    q, k, v, do = inputs(1, 2, 2, 200, 200, 64, dtype)
    got = results(lambda *t: flash_attention(*t, causal=True, scale=20.0, return_lse=True), q, k, v, do)
    assert all(torch.isfinite(t).all() for t in got)
    assert not (found := errors(got, q, k, v, do, True, 20.0)), found


@pytest.mark.parametrize("D", (64, 128))
@pytest.mark.parametrize("causal", (False, True))
def test_same_bits_every_time(D, causal):
    torch.manual_seed(0)
    q, k, v, do = inputs(2, 8, 2, 1024, 1024, D, torch.bfloat16)
    first = results(lambda *t: flash_attention(*t, causal=causal, return_lse=True), q, k, v, do)
    for _ in range(20):
        again = results(lambda *t: flash_attention(*t, causal=causal, return_lse=True), q, k, v, do)
        assert all(map(torch.equal, first, again))


@pytest.mark.parametrize("D", (64, 128))
@pytest.mark.parametrize("causal", (False, True))
def test_long_sequence(D, causal, N=65536):
    """65536 tokens against float64, the reference a slab of queries at a time."""
    torch.manual_seed(0)
    q, k, v, do = inputs(1, 1, 1, N, N, D, torch.float16)
    got = results(lambda *t: flash_attention(*t, causal=causal, return_lse=True), q, k, v, do)
    keys, values = k.double().requires_grad_(), v.double().requires_grad_()
    dq, outputs = [], []
    for start in range(0, N, 2048):
        slab = q[:, :, start : start + 2048].double().requires_grad_()
        seen = start + 2048 if causal else N
        o, lse = standard(slab, keys[:, :, :seen], values[:, :, :seen], causal)
        o.backward(do[:, :, start : start + 2048].double())
        dq.append(slab.grad)
        outputs.append((o.detach(), lse.detach()))
    want = (*(torch.cat(part, 2) for part in zip(*outputs, strict=True)), torch.cat(dq, 2), keys.grad, values.grad)
    for name, g, w in zip(NAMES, got, want, strict=True):
        relative = ((g.double() - w).norm() / w.norm()).item()
        assert relative < 2e-3, f"{name}: relative error {relative:.2e}"


@pytest.mark.parametrize("dim", (0, 1, 2, 3))
def test_strides_past_32_bits(dim):
    """Elements more than 2^31 apart, along every dimension in turn: the same bits as from a compact copy."""
    shape = (3, 4, 100, 64)
    step = (2**31 + 2**20) // (shape[dim] - 1) // 16 * 16
    strides = [s * (1 if d > dim else 1) for d, s in enumerate((4 * 100 * 64, 100 * 64, 64, 1))]
    strides[dim] = step
    base = torch.empty(step * (shape[dim] - 1) + 3 * 4 * 100 * 64, dtype=torch.float16, device="cuda")
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(shape, dtype=torch.float16, device="cuda") for _ in range(4))
    want = results(lambda *t: flash_attention(*t, causal=True, return_lse=True), q, k, v, do)
    for i, name in enumerate(("q", "k", "v", "do")):
        far = base.as_strided(shape, strides).copy_((q, k, v, do)[i])
        tensors = [far if j == i else t for j, t in enumerate((q, k, v, do))]
        got = results(lambda *t: flash_attention(*t, causal=True, return_lse=True), *tensors)
        for what, a, b in zip(NAMES, got, want, strict=True):
            assert torch.allclose(a, b, atol=2e-3, rtol=2e-3), f"{what} differs when {name} is spread out"


def test_tensors_past_32_bits():
    """2^31 elements and more per tensor, inputs, outputs and gradients: the last heads come out as on their own."""
    torch.manual_seed(0)
    shape = (33, 32, 16384, 128)
    q, k, v, do = (torch.randn(shape, dtype=torch.float16, device="cuda") for _ in range(4))
    alone = results(lambda *t: flash_attention(*t, causal=True, return_lse=True), *(t[-1:, -2:] for t in (q, k, v, do)))
    whole = results(lambda *t: flash_attention(*t, causal=True, return_lse=True), q, k, v, do)
    for name, a, w in zip(NAMES, alone, whole, strict=True):
        assert torch.equal(a, w[-1:, -2:]), name


def test_compile_opcheck_autocast():
    torch.manual_seed(0)
    q, k, v, do = inputs(2, 4, 2, 100, 130, 64, torch.bfloat16, "BNHD")
    want = results(lambda *t: flash_attention(*t, causal=True, return_lse=True), q, k, v, do)
    compiled = torch.compile(lambda *t: flash_attention(*t, causal=True, return_lse=True), fullgraph=True)
    assert all(map(torch.equal, results(compiled, q, k, v, do), want))
    args = [t.detach().requires_grad_() for t in (q, k, v)]
    torch.library.opcheck(torch.ops.flashlearn.attention_forward.default, (*args, True, 0.2))
    with torch.autocast("cuda", dtype=torch.float16):
        o = flash_attention(*(t.float() for t in (q, k, v)))
        assert o.dtype == torch.nn.functional.scaled_dot_product_attention(do.float(), do.float(), do.float()).dtype


def test_tf32_only_when_allowed():
    torch.manual_seed(0)
    q, k, v, do = inputs(1, 2, 2, 256, 256, 64, torch.float32)
    want, _ = standard(*(t.double() for t in (q, k, v)), False)
    exact = (flash_attention(q, k, v) - want).abs().max()
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        rounded = (flash_attention(q, k, v) - want).abs().max()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert exact < 2e-6
    assert exact * 10 < rounded < 1e-2


def test_cpu_tensors_are_refused_on_a_gpu_machine():
    t = torch.randn(1, 1, 16, 16)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"):
        flash_attention(t, t, t)
