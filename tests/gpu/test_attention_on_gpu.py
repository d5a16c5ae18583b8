"""What only a GPU can show: compiled kernels over the whole grid, determinism, long sequences, large offsets.

    FLASHLEARN_FAULTS=faults.txt pytest -n 12 tests/gpu

on a machine with a CUDA GPU; without one every test here is skipped, and says so. Nearly all of the time is
compilation: sizes and layouts are chosen so that few strides fall into different classes of Triton's (1, a
multiple of 16, other). With FLASHLEARN_FAULTS every fault of every case is appended to that file, and for each
test how often which kernel ran.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections import Counter
from dataclasses import replace

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: compiled kernels are not tested", allow_module_level=True)

from flashlearn.fast import dispatch, operators
from flashlearn.fast.api import flash_attention
from flashlearn.kernels.backward import attention_backward
from flashlearn.kernels.forward import attention_forward
from tests.grid import CASES, LENGTHS, Case, bf16, check, check_kernel, fp16, fp32, fp64, make, oracle, plain, results

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU: compiled kernels are not tested"),
]

torch.set_num_threads(1)  # the CPU only draws inputs here; many workers share it
DTYPES = (fp16, bf16, fp32)
NAMES = ("o", "lse", "dq", "dk", "dv")
# float32 is left to the portable kernels anyway (but for decoding): no second run of it
RUNS = (*(("automatic", dtype) for dtype in DTYPES), ("portable", fp16), ("teaching", bf16))
both_choices = pytest.mark.parametrize("choice, dtype", RUNS, indirect=["choice"], ids=str)
sdpa = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture
def choice(request, monkeypatch):
    """("automatic" or the kernels' name, the kernels that ran): given a name `flash_attention` may pick no others.

    It never picks the teaching kernels: they stand in for the portable ones, whose signatures they have.
    """
    name, picked = getattr(request, "param", "automatic"), []
    forced = dispatch.Choice("portable" if name == "teaching" else name, {}, "the test wants it")
    if name == "teaching":
        monkeypatch.setattr(operators, "attention_forward_portable", teaching_forward)
        monkeypatch.setattr(operators, "attention_gradients", teaching_backward)

    choose = operators.choose

    def chosen(*given, backward=False):
        choice = choose(*given, backward=backward) if name == "automatic" else forced
        way = "backward" if backward else "forward"
        picked.append(f"{way} {choice.name if name == 'automatic' else name}")
        return choice

    monkeypatch.setattr(operators, "choose", chosen)
    return name, picked


def teaching_forward(q, k, v, *, options, **how):
    return attention_forward(q, k, v, causal=options.causal, scale=options.scale, **how)


def teaching_backward(do, q, k, v, o, lse, dlse, how):
    options = {"causal": how.options.causal, "scale": how.options.scale, "allow_tf32": how.allow_tf32}
    return *attention_backward(do, q, k, v, o, lse, dlse=dlse, **options), None, None


def attention_of(case: Case):
    return lambda *qkv: flash_attention(*qkv, causal=case.causal, scale=case.scale, return_lse=True)


def takes_hopper(case: Case) -> bool:
    """Whether this is a Hopper GPU with the right Triton, and the case one for its kernels: see `why_not_hopper`."""
    here = not dispatch.why_not_this_machine(torch.device("cuda", torch.cuda.current_device()))
    rows_of_16_bytes = case.D % 8 == 0 and case.layout not in ("strided", "expanded")
    positive = case.scale is None or case.scale > 0
    return here and case.dtype.itemsize == 2 and rows_of_16_bytes and positive


def check_case(case: Case, choice) -> None:
    name, picked = choice
    before = len(picked)
    inputs = make(case, "cuda")
    check_kernel(case, inputs, results(attention_of(case), *inputs))
    slow = [pick for pick in picked[before:] if "hopper" not in pick and "decode" not in pick]
    assert not (slow and name == "automatic" and takes_hopper(case)), f"{case}: expected fast kernels, got {slow}"


def check_all(cases, choice) -> None:
    """Check every case, and then tell of all that failed, and of which kernels ran."""
    cases, faults = list(cases), []
    for case in cases:
        try:
            check_case(case, choice)
        except AssertionError as fault:
            faults.append(str(fault))
    test = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)")
    summary = f"{test}: {len(cases)} cases, {len(faults)} failed; {dict(Counter(choice[1]))}"
    print(summary)
    if path := os.environ.get("FLASHLEARN_FAULTS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n".join([summary, *faults, ""]))
    assert not faults, "\n".join([summary, *faults[:10]])


@both_choices
@pytest.mark.parametrize("D", (1, 16, 40, 64, 96, 128))
@pytest.mark.parametrize("causal", (False, True))
def test_all_pairs_of_lengths(choice, dtype, D, causal):
    lengths, heads, layout = LENGTHS, itertools.cycle(((2, 2), (4, 2), (3, 1))), "contiguous"
    if D == 1:  # the others of LENGTHS would have to be compiled for each pair; a few are in the grid
        lengths, heads = (2, 63, 100, 111, 257), itertools.cycle(((2, 2),))
    elif D == 40:  # with heads side by side, strides are 40 and multiples of 16, for all lengths
        heads, layout = itertools.cycle(((2, 2), (4, 2), (8, 4))), "transposed"
    pairs = itertools.product(lengths, lengths)
    check_all((Case(*pair, D, causal, dtype, *next(heads), B=2, layout=layout) for pair in pairs), choice)


GRID = [("automatic", replace(case, dtype=dtype)) for case in CASES for dtype in DTYPES]
GRID += [(name, case) for name in ("portable", "teaching") for case in CASES if case.dtype.itemsize == 2]


@pytest.mark.parametrize("choice, case", GRID, indirect=["choice"], ids=str)
def test_grid(choice, case):
    check_all([case], choice)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (3, 33, 80, 160, 192, 255, 256))
@pytest.mark.parametrize("causal", (False, True))
def test_other_head_dimensions(choice, dtype, D, causal):
    lengths = (101, 101), (257, 67), (65, 301)  # odd: see the note on strides above
    check_all((Case(*pair, D, causal, dtype, 4, 2, layout="transposed") for pair in lengths), choice)


@both_choices
@pytest.mark.parametrize("D", (64, 128, 192, 256))
@pytest.mark.parametrize("causal", (False, True))
def test_many_blocks(choice, dtype, D, causal):
    """Many blocks, a block and a half, N_q unlike N_k, other layouts, negative and no scale, extreme logits."""
    lengths = (512, 512), (1024, 1024), (1000, 1000), (192, 1024), (1024, 192), (384, 640), (2304, 2304), (640, 65)
    cases = [Case(N_q, N_k, D, causal, dtype, 4, 2) for N_q, N_k in lengths]
    for layout in ("transposed", "strided", "expanded", "packed"):
        cases.append(Case(640, 640, D, causal, dtype, 4, 4, B=2, layout=layout))
    cases += [Case(300, 300, D, causal, dtype, scale=scale) for scale in (-0.2, 0.0, 1.0)]
    cases += [Case(384, 384, D, causal, dtype, logits=logits) for logits in ("rising", "equal", "extreme")]
    check_all(cases, choice)


@pytest.mark.parametrize("D", (64, 128, 192, 256))
def test_rows_of_shared_keys(choice, D):
    """Backward, rows run side by side there: 18, of 16 or 32 blocks, in two sets or four; and 5, all at once."""
    lengths = (2048, 2048), (1500, 2048), (2048, 1500)
    cases = [Case(*pair, D, True, dtype, 12, 6, B=3) for pair, dtype in zip(lengths, (fp16, bf16, fp16), strict=True)]
    check_all([*cases, Case(2048, 2048, D, True, bf16, 10, 1, B=5)], choice)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (40, 128))
def test_few_queries(choice, dtype, D):
    """Decoding: few queries, many keys, which are cut into splits and merged."""
    heads = itertools.cycle(((4, 4), (4, 2), (8, 1)))
    sizes = itertools.product(((1, 512), (1, 4096), (4, 1000)), (False, True), ("normal", "extreme"))
    cases = [
        Case(*pair, D, causal, dtype, *next(heads), B=2, layout="transposed", logits=logits)
        for pair, causal, logits in sizes
    ]
    check_all(cases, choice)
    assert Counter(choice[1])["forward decode"] == len(cases)


@pytest.mark.parametrize("dtype", (fp16, bf16))
@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("D", (64, 128))
def test_maxima_that_grow_and_fall(D, causal, dtype, N=4097):
    """From the last block of keys to the first the scores of a third of the rows grow by 8 a block, too much to trust an old
    maximum in every other block, those of a third fall, and every eighth row has none above -200."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, N, D, device="cuda", dtype=dtype)
    unit = D**0.5
    k[..., 0], k[..., 1] = torch.linspace(16, -16, N), unit
    q[..., 0], q[..., 1] = torch.tensor((unit, -unit, 0.0)).repeat(N)[:N] * 8, 0
    q[..., ::8, 1] = -400
    o, lse = flash_attention(q, k, v, causal=causal, return_lse=True)
    s = q.double() @ k.double().mT / unit
    if causal:
        s = s.masked_fill(torch.ones(N, N, dtype=torch.bool, device="cuda").triu(1), -torch.inf)
    assert s.amax(-1).max() > 100 and s.amax(-1).min() < -200
    assert (lse - s.logsumexp(-1)).abs().max() < 1e-3
    want = s.softmax(-1) @ v.double()
    assert ((o - want).norm() / want.norm()) < (1e-3 if dtype == fp16 else 6e-3)


def test_gradient_of_lse():
    case = Case(384, 384, 64, causal=True, dtype=bf16)
    q, k, v, do = make(case, "cuda")
    dlse = torch.randn(do.shape[:3], device="cuda")
    ours = results(attention_of(case), q, k, v, do, dlse)
    check(case, ours, oracle(case, q, k, v, do, dlse), plain(case, q, k, v, do, dlse))


def differences(case: Case, times: int) -> tuple[dict, dict]:
    """Run `times` times: how often the bits of each result were others, and its largest difference, in the end."""
    inputs = make(case, "cuda")
    first, others, largest = results(attention_of(case), *inputs), Counter(), Counter()
    for _ in range(times):
        again = results(attention_of(case), *inputs)
        for name in NAMES:
            if not torch.equal(again[name], first[name]):
                others[name] += 1
                largest[name] = max(largest[name], (again[name].double() - first[name].double()).abs().max().item())
    return others, largest


@pytest.mark.parametrize("D", (64, 128, 192, 256))
@pytest.mark.parametrize("causal", (False, True))
def test_same_bits_every_time_when_asked_for(choice, D, causal, request):
    """Twenty runs, the same bits, forward and backward; the second with programs enough that most wait for others."""
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    torch.use_deterministic_algorithms(True)
    for case in (Case(1024, 1024, D, causal, bf16, 8, 2, B=2), Case(3000, 3000, D, causal, bf16, 12, 12)):
        others, _ = differences(case, 20)
        assert not others, f"expected the same bits in 20 runs, got others in {dict(others)}; {Counter(choice[1])}"
        inputs = make(case, "cuda")
        check_kernel(case, inputs, results(attention_of(case), *inputs))


@pytest.mark.parametrize("D", (64, 128, 192, 256))
@pytest.mark.parametrize("causal", (False, True))
def test_only_dq_depends_on_order(choice, D, causal):
    """200 runs of the fast kernels, 128 rounds and more in each program: all but dq keep their bits.

    dq is added up in any order; in float32, so that what is left after rounding is a last digit. A race between
    the warps that load and those that compute would show in dk and dv.
    """
    case = Case(4096, 2048, D, causal, bf16, 8, 2, B=2)
    others, largest = differences(case, 200)
    assert set(others) <= {"dq"}, f"expected the same bits in 200 runs, got others in {dict(others)}"
    dq = results(attention_of(case), *make(case, "cuda"))["dq"]
    assert largest["dq"] <= torch.finfo(bf16).eps * dq.abs().max().item()
    if takes_hopper(case):
        assert set(choice[1]) == {"forward hopper", "backward hopper"}


@pytest.mark.parametrize("D", (64, 128, 192))
@pytest.mark.parametrize("causal", (False, True))
def test_long_sequence(alone, D, causal, N=65536, chunk=2048):
    """65536 tokens against float64, the reference a chunk of queries at a time."""
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(1, 1, N, D, dtype=fp16, device="cuda") for _ in range(4))
    got = results(lambda *qkv: flash_attention(*qkv, causal=causal, return_lse=True), q, k, v, do)
    whole = Case(N, N, D)
    parts = {"o": [], "lse": [], "dq": []}
    dk, dv = torch.zeros_like(k, dtype=fp64), torch.zeros_like(v, dtype=fp64)
    for start in range(0, N, chunk):
        seen = start + chunk if causal else N
        case = replace(whole, N_q=chunk, N_k=seen, causal=causal)
        part = oracle_of_chunk(case, *(t[:, :, start : start + chunk] for t in (q, do)), k[:, :, :seen], v[:, :, :seen])
        for name in parts:
            parts[name].append(part[name])
        dk[:, :, :seen] += part["dk"]
        dv[:, :, :seen] += part["dv"]
    want = {name: torch.cat(part, 2) for name, part in parts.items()} | {"dk": dk, "dv": dv}
    for name in NAMES:
        relative = ((got[name].double() - want[name]).norm() / want[name].norm()).item()
        assert relative < 2e-3, f"{name}: relative error {relative:.2e}"


def oracle_of_chunk(case, q, do, k, v):
    return results(lambda *qkv: plain_attention(case, *qkv), q.double(), k.double(), v.double(), do.double())


def plain_attention(case, q, k, v):
    s = q @ k.mT * case.D**-0.5
    if case.causal:
        i, j = torch.arange(case.N_q, device=q.device), torch.arange(case.N_k, device=q.device)
        s = s.masked_fill(j > i[:, None] + case.N_k - case.N_q, float("-inf"))
    return s.softmax(-1) @ v, s.detach().logsumexp(-1)


@pytest.mark.parametrize("dim", (0, 1, 2, 3))
def test_strides_past_32_bits(alone, dim):
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


@pytest.mark.parametrize(
    "N_q, H_kv, names", ((16384, 1, ("o", "lse", "dq")), (128, 32, NAMES)), ids=("queries", "keys")
)
def test_tensors_past_32_bits(alone, N_q, H_kv, names):
    """More than 2^31 elements per tensor, of queries or of keys, in and out: the last heads come out as on their own."""
    torch.manual_seed(0)
    q, do = (torch.randn(33, 32, N_q, 128, dtype=fp16, device="cuda") for _ in range(2))
    k, v = (torch.randn(33, H_kv, 16384, 128, dtype=fp16, device="cuda") for _ in range(2))
    run = lambda *t: results(lambda *qkv: flash_attention(*qkv, causal=True, return_lse=True), *t)  # noqa: E731
    part = run(*(t[-1:, -2:] for t in (q, k, v, do)))
    whole = run(q, k, v, do)
    for name in names:  # dq is added up in any order; dk and dv of a key head have a part of each of its query heads
        torch.testing.assert_close(part[name], whole[name][-1:, -2:], atol=1e-3 if name == "dq" else 0, rtol=0)


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


def test_cpu_tensors_are_rejected_on_a_gpu_machine():
    t = torch.randn(1, 1, 16, 16)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"):
        flash_attention(t, t, t)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs: the choice of the GPU is not tested")
@pytest.mark.parametrize("N_q", (1, 600))
def test_tensors_on_a_gpu_that_is_not_the_current_one(N_q):
    case = Case(N_q, 600, 64, causal=True)
    inputs = [t.to("cuda:1") for t in make(case)]
    ours = results(attention_of(case), *inputs)
    assert torch.cuda.current_device() == 0
    check(case, ours, oracle(case, *inputs), plain(case, *inputs))
