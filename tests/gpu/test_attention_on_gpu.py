"""What only a GPU can show: compiled kernels over the whole grid, determinism, long sequences, large offsets.

Run on a machine with a CUDA GPU: `pytest tests/gpu`. Without one every test here is skipped, and says so.
"""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import replace

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: compiled kernels are not tested", allow_module_level=True)

from flashlearn.ops import flash_attention
from tests.grid import CASES, LENGTHS, Case, bf16, check, fp16, fp32, fp64, make, oracle, plain, results
from tests.test_kernels import check_tame

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU: compiled kernels are not tested"),
]

torch.set_num_threads(1)  # the CPU only draws inputs here; many workers share it
DTYPES = (fp16, bf16, fp32)
NAMES = ("o", "lse", "dq", "dk", "dv")
sdpa = torch.nn.functional.scaled_dot_product_attention


def attention_of(case: Case):
    return lambda *qkv: flash_attention(*qkv, causal=case.causal, scale=case.scale, return_lse=True)


def check_case(case: Case) -> None:
    inputs = make(case, "cuda")
    ours, want, yardstick = results(attention_of(case), *inputs), oracle(case, *inputs), plain(case, *inputs)
    # cuBLAS may add in an order that happens to be kinder than one running sum: 3 for 2, 5 in float32,
    # where the yardstick itself is a few units in the last place
    check_tame(case, ours, want, yardstick, factor=5.0 if case.dtype == fp32 else 3.0)


def check_all(cases) -> None:
    """Check every case, and then tell of all that failed."""
    faults = []
    for case in cases:
        try:
            check_case(case)
        except AssertionError as fault:
            faults.append(str(fault))
    assert not faults, f"{len(faults)} cases failed:\n" + "\n".join(faults[:10])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (1, 16, 40, 64, 96, 128))
@pytest.mark.parametrize("causal", (False, True))
def test_all_pairs_of_lengths(dtype, D, causal):
    heads = itertools.cycle(((2, 2), (4, 2), (3, 1)))
    check_all(Case(N_q, N_k, D, causal, dtype, *next(heads), B=2) for N_q, N_k in itertools.product(LENGTHS, LENGTHS))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_grid(dtype):
    check_all(replace(case, dtype=dtype) for case in CASES if case.dtype in (dtype, fp64, fp32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (3, 33, 80, 160, 192, 255, 256))
def test_other_head_dimensions(dtype, D):
    sizes = itertools.product(((100, 100), (257, 64), (65, 300)), (False, True))
    check_all(Case(N_q, N_k, D, causal, dtype, 4, 2, layout="transposed") for (N_q, N_k), causal in sizes)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (64, 128))
@pytest.mark.parametrize("causal", (False, True))
def test_many_blocks(dtype, D, causal):
    """Sizes that the fast kernels take: many blocks, a block and a half, N_q unlike N_k, other layouts."""
    lengths = (512, 512), (1024, 1024), (1000, 1000), (192, 1024), (1024, 192), (384, 640), (1, 4096), (640, 65)
    cases = [Case(N_q, N_k, D, causal, dtype, 4, 2) for N_q, N_k in lengths]
    for layout in ("transposed", "strided", "expanded", "packed"):
        cases.append(Case(640, 640, D, causal, dtype, 4, 4, B=2, layout=layout))
    cases += [Case(300, 300, D, causal, dtype, scale=scale) for scale in (-0.2, 0.0, 1.0)]
    cases += [Case(384, 384, D, causal, dtype, logits=logits) for logits in ("rising", "equal", "extreme")]
    check_all(cases)


def test_gradient_of_lse():
    case = Case(384, 384, 64, causal=True, dtype=bf16)
    q, k, v, do = make(case, "cuda")
    dlse = torch.randn(do.shape[:3], device="cuda")
    ours = results(attention_of(case), q, k, v, do, dlse)
    check(case, ours, oracle(case, q, k, v, do, dlse), plain(case, q, k, v, do, dlse))


@pytest.mark.parametrize("D", (64, 128))
@pytest.mark.parametrize("causal", (False, True))
def test_same_bits_every_time(D, causal, request):
    """Twenty runs, the same bits forward; and backward, if asked for: the fast kernel adds up dq in any order."""
    torch.use_deterministic_algorithms(True)
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    case = Case(1024, 1024, D, causal, bf16, 8, 2, B=2)
    inputs = make(case, "cuda")
    first = results(attention_of(case), *inputs)
    for _ in range(20):
        again = results(attention_of(case), *inputs)
        assert all(torch.equal(first[name], again[name]) for name in NAMES)


@pytest.mark.parametrize("D", (64, 128))
@pytest.mark.parametrize("causal", (False, True))
def test_long_sequence(D, causal, N=65536, slab=2048):
    """65536 tokens against float64, the reference a slab of queries at a time."""
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(1, 1, N, D, dtype=fp16, device="cuda") for _ in range(4))
    got = results(lambda *qkv: flash_attention(*qkv, causal=causal, return_lse=True), q, k, v, do)
    whole = Case(N, N, D)
    parts = {"o": [], "lse": [], "dq": []}
    dk, dv = torch.zeros_like(k, dtype=fp64), torch.zeros_like(v, dtype=fp64)
    for start in range(0, N, slab):
        seen = start + slab if causal else N
        case = replace(whole, N_q=slab, N_k=seen, causal=causal)
        part = oracle_of_slab(case, *(t[:, :, start : start + slab] for t in (q, do)), k[:, :, :seen], v[:, :, :seen])
        for name in parts:
            parts[name].append(part[name])
        dk[:, :, :seen] += part["dk"]
        dv[:, :, :seen] += part["dv"]
    want = {name: torch.cat(part, 2) for name, part in parts.items()} | {"dk": dk, "dv": dv}
    for name in NAMES:
        relative = ((got[name].double() - want[name]).norm() / want[name].norm()).item()
        assert relative < 2e-3, f"{name}: relative error {relative:.2e}"


def oracle_of_slab(case, q, do, k, v):
    return results(lambda *qkv: plain_attention(case, *qkv), q.double(), k.double(), v.double(), do.double())


def plain_attention(case, q, k, v):
    s = q @ k.mT * case.D**-0.5
    if case.causal:
        i, j = torch.arange(case.N_q, device=q.device), torch.arange(case.N_k, device=q.device)
        s = s.masked_fill(j > i[:, None] + case.N_k - case.N_q, float("-inf"))
    return s.softmax(-1) @ v, s.detach().logsumexp(-1)


@pytest.mark.parametrize("dim", (0, 1, 2, 3))
def test_strides_past_32_bits(dim):
    """Elements more than 2^31 apart, along every dimension in turn: as from a compact copy."""
    shape = (3, 4, 100, 64)
    step = (2**31 + 2**20) // (shape[dim] - 1) // 16 * 16
    strides = [4 * 100 * 64, 100 * 64, 64, 1]
    strides[dim] = step
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    base = torch.empty(reach + 1, dtype=fp16, device="cuda")
    torch.manual_seed(0)
    tensors = [torch.randn(shape, dtype=fp16, device="cuda") for _ in range(4)]
    run = lambda *t: results(lambda *qkv: flash_attention(*qkv, causal=True, return_lse=True), *t)  # noqa: E731
    want = run(*tensors)
    for i, name in enumerate(("q", "k", "v", "do")):
        far = base.as_strided(shape, strides).copy_(tensors[i])
        got = run(*(far if j == i else t for j, t in enumerate(tensors)))
        for what in NAMES:
            message = f"{what} differs when {name} is spread out"  # another kernel, other roundings
            torch.testing.assert_close(got[what], want[what], atol=4e-3, rtol=4e-3, msg=message)


def test_tensors_past_32_bits():
    """More than 2^31 elements per tensor, in and out: the last heads come out as on their own."""
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(33, 32, 16384, 128, dtype=fp16, device="cuda") for _ in range(4))
    run = lambda *t: results(lambda *qkv: flash_attention(*qkv, causal=True, return_lse=True), *t)  # noqa: E731
    alone = run(*(t[-1:, -2:] for t in (q, k, v, do)))
    whole = run(q, k, v, do)
    for name in NAMES:  # dq is added up in any order
        torch.testing.assert_close(alone[name], whole[name][-1:, -2:], atol=1e-3 if name == "dq" else 0, rtol=0)


def test_compiles_as_one_graph():
    case = Case(100, 130, 64, causal=True, dtype=bf16, H_q=4, H_kv=2, layout="transposed")
    inputs = make(case, "cuda")
    compiled = torch.compile(attention_of(case), fullgraph=True)
    got, want = results(compiled, *inputs), results(attention_of(case), *inputs)
    assert all(torch.equal(got[name], want[name]) for name in NAMES)
    args = [t.detach().requires_grad_() for t in inputs[:3]]
    torch.library.opcheck(torch.ops.flashlearn.attention_forward.default, (*args, True, 0.2))


def test_autocast_as_in_pytorch():
    q = torch.randn(1, 2, 64, 64, device="cuda")
    with torch.autocast("cuda", dtype=bf16):
        assert flash_attention(q, q, q).dtype == sdpa(q, q, q).dtype == bf16


def test_tf32_only_when_allowed():
    case = Case(256, 256, 64)
    inputs = make(case, "cuda")
    want = oracle(case, *inputs)
    error = lambda: (results(attention_of(case), *inputs[:3])["o"] - want["o"]).abs().max()  # noqa: E731
    exact = error()
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        rounded = error()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert exact < 2e-6
    assert exact * 10 < rounded < 1e-2


def test_cpu_tensors_are_refused_on_a_gpu_machine():
    t = torch.randn(1, 1, 16, 16)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"):
        flash_attention(t, t, t)
