"""`flash_attention`, the public op: autograd, opcheck, torch.compile, autocast, rejections."""

from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch.autograd import forward_ad

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: flash_attention is not tested", allow_module_level=True)

import flashlearn as fl
from flashlearn.core.target import INTERPRETED
from flashlearn.fast import api, dispatch
from flashlearn.fast.api import flash_attention
from tests.grid import CASES, Case, bf16, check, check_kernel, fp16, fp32, fp64, make, oracle, plain, results, work
from tests.slow import covering, slow

DEVICE = "cpu" if INTERPRETED else "cuda"
SOME = [replace(case, dtype=fp32) if case.dtype == fp64 else case for case in CASES[::3]]
sdpa = torch.nn.functional.scaled_dot_product_attention


def attention_of(case: Case):
    return lambda *qkv: flash_attention(*qkv, causal=case.causal, scale=case.scale, return_lse=True)


def small(*dtypes, D=24):
    """q (1, 4, 20, D), k and v (1, 2, 30, D) that require gradients."""
    torch.manual_seed(0)
    dtypes = dtypes or (fp32,) * 3
    shapes = (1, 4, 20, D), (1, 2, 30, D), (1, 2, 30, D)
    pairs = zip(shapes, dtypes, strict=True)
    return [torch.randn(s, dtype=dtype, device=DEVICE).requires_grad_() for s, dtype in pairs]


def op_traits(case: Case) -> set:
    return {case.layout, case.dtype, case.causal, case.tame, case.masked_rows > 0, case.H_q > case.H_kv}


@pytest.mark.parametrize("case", covering(SOME, op_traits, work), ids=str)
def test_grid(case):
    inputs = make(case, DEVICE)
    ours = results(attention_of(case), *inputs)
    check_kernel(case, inputs, ours)


def infinite(t, *, keys=slice(None), columns=slice(None)):
    """t with -inf in those keys and columns."""
    t = t.clone()
    t[:, :, keys, columns] = float("-inf")
    return t


@pytest.mark.parametrize(
    "change",
    (
        infinite,
        lambda k: infinite(k, columns=3),  # one column is enough: all scores are -inf
        lambda k: infinite(k, keys=0),
        lambda k: infinite(k, keys=slice(-9, None)),
    ),
    ids=("all keys", "one column", "the first key", "the last keys"),
)
@pytest.mark.parametrize("causal", (False, True))
def test_keys_of_minus_infinity_weigh_nothing(change, causal):
    """As in PyTorch on a CPU: o = 0 where all of a row's keys are -inf, dv and dk are 0 there; dq = 0 times -inf is NaN."""
    case = Case(21, 30, 16, causal=causal)
    q, k, v, do = make(case, DEVICE)
    q, k = q.abs() + 0.1, change(k)
    mask = torch.ones(21, 30, dtype=torch.bool).tril(9 if causal else 30)
    got = {name: t.cpu() for name, t in results(attention_of(case), q, k, v, do).items()}
    want = results(lambda q, k, v: sdpa(q, k, v, attn_mask=mask), *(t.cpu() for t in (q, k, v, do)))
    for name in ("o", "dk", "dv"):
        torch.testing.assert_close(got[name], want[name], msg=name)
    assert torch.equal(got["dq"].isnan(), want["dq"].isnan()), "expected NaN in the columns that PyTorch has it in"


@pytest.mark.parametrize("score", (2.5e38, -2.5e38, 3.4e38, -3.4e38))
@pytest.mark.parametrize("options", ({}, {"alibi": (0.0,)}, {"sinks": (0.0,)}), ids=("plain", "alibi", "sinks"))
def test_scores_near_the_largest_float(score, options):
    """A score times log2(e) is infinite from 2.36e38 on: the factor goes to differences."""
    options = {name: torch.tensor(given, device=DEVICE) for name, given in options.items()}
    q, v = torch.ones(1, 1, 4, 1, device=DEVICE), torch.randn(1, 1, 4, 1, device=DEVICE)
    attention = lambda *qkv: flash_attention(*qkv, scale=1.0, **options)  # noqa: E731
    got = results(attention, q, torch.full_like(q, score), v, torch.ones_like(q))
    alone = "sinks" in options and score < 0  # a sink of 0 takes it all
    torch.testing.assert_close(got["o"], 0 * v if alone else v.mean(2, keepdim=True).expand(v.shape))
    assert got["dv"].isfinite().all()


def test_gradients_at_large_logits_are_as_good_as_their_scores():
    """Scores to about 400: P = exp(S - lse) is off by 2^-22 of them, and dv by as much; plain PyTorch does better.

    A compiled product begins with -lse, and rounds 64 times at its size: twice as much. The interpreter subtracts once.
    """
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(1, 2, 130, 64, device=DEVICE) for _ in range(4))
    q, k = 9 * q, 9 * k
    S = q.double() @ k.double().mT / 8
    P = S.softmax(-1)
    got = results(lambda *qkv: flash_attention(*qkv), q, k, v, do)["dv"].double()
    bound = (2**-22 if INTERPRETED else 2**-21) * S.abs().max() * (P.mT @ do.double().abs()) + 1e-6
    error = (got - P.mT @ do.double()).abs()
    assert S.abs().max() > 300 and (error <= bound).all(), f"{(error / bound).max():.2f} of the bound"
    assert (error > 0.02 * bound).any(), "expected the bound to be of the right size"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("attention", (flash_attention, fl.tiled_attention_v2), ids=("op", "algorithm"))
def test_only_dense_tensors_are_taken(attention):
    two = [torch.zeros(2, 3, 4, device=DEVICE) for _ in range(2)]
    with pytest.raises(
        TypeError, match="expected q to be a dense tensor, got a nested tensor .*flash_attention_varlen"
    ):
        attention(*[torch.nested.nested_tensor(two)] * 3)
    with pytest.raises(TypeError, match="expected q to be a dense tensor, got a nested tensor"):
        attention(*[torch.nested.nested_tensor(two, layout=torch.jagged)] * 3)
    with pytest.raises(TypeError, match="expected q to be a dense tensor, got torch.sparse_coo"):
        attention(*[torch.zeros(1, 2, 3, 4, device=DEVICE).to_sparse()] * 3)


def test_equals_scaled_dot_product_attention():
    q, k, v = small()
    torch.testing.assert_close(flash_attention(q, k, v), sdpa(q, k, v, enable_gqa=True))


def test_lse_is_differentiable():
    case = Case(30, 40, 16, causal=True)
    q, k, v, do = make(case, DEVICE)
    dlse = torch.randn(do.shape[:3], device=DEVICE)
    ours = results(attention_of(case), q, k, v, do, dlse)
    check(case, ours, oracle(case, q, k, v, do, dlse), plain(case, q, k, v, do, dlse))
    (dq,) = torch.autograd.grad(attention_of(case)(q.requires_grad_(), k, v)[1].sum(), q)
    want = oracle(case, q.detach(), k, v, torch.zeros_like(do), torch.ones_like(dlse))["dq"]
    torch.testing.assert_close(dq.double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("wanted", ((True, False, False), (False, True, False), (False, False, True)), ids=str)
def test_gradients_only_where_asked(wanted):
    inputs = [t.detach().requires_grad_(w) for t, w in zip(small(), wanted, strict=True)]
    flash_attention(*inputs).sum().backward()
    assert [t.grad is not None for t in inputs] == list(wanted)


def test_finite_differences():
    """gradcheck in float32: a directional derivative against a central difference."""
    q, k, v = small()
    weights, direction = torch.randn_like(q), torch.randn_like(k)
    loss = lambda k: (flash_attention(q, k, v, causal=True) * weights).sum()  # noqa: E731
    (dk,) = torch.autograd.grad(loss(k), k)
    h = 1e-2
    with torch.no_grad():
        difference = (loss(k + h * direction) - loss(k - h * direction)) / (2 * h)
    torch.testing.assert_close((dk * direction).sum(), difference, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("dtype", (fp32, slow(bf16)))
@pytest.mark.slow
def test_opcheck(dtype):
    q, k, v = small(dtype, dtype, dtype)
    forward, backward = torch.ops.flashlearn.attention_forward, torch.ops.flashlearn.attention_backward
    torch.library.opcheck(forward.default, (q, k, v, True, 0.3))
    q, k, v = (t.detach() for t in (q, k, v))
    torch.library.opcheck(torch.ops.flashlearn.attention_inference.default, (q, k, v, True, 0.3))
    o, lse = forward(q, k, v, True, 0.3)
    torch.library.opcheck(backward.default, (torch.randn_like(o), None, q, k, v, o, lse, True, 0.3))


@pytest.mark.slow
def test_opcheck_of_a_transposed_layout():
    q, k, v = (t.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for t in small())
    torch.library.opcheck(torch.ops.flashlearn.attention_forward.default, (q, k, v, False, 0.3))


@pytest.mark.slow  # notebook 16 compiles a model with it, and test_general_op.py the op with options
def test_compiles_as_one_graph():
    q, k, v = small()
    f = lambda *qkv: sum(t.sin().sum() for t in flash_attention(*qkv, causal=True, return_lse=True))  # noqa: E731
    want = torch.autograd.grad(f(q, k, v), (q, k, v))
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(compiled(q, k, v), (q, k, v))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", (fp16, bf16))
@pytest.mark.parametrize("from_dtypes", ((fp32, fp32, fp32), (fp32, fp16, bf16)), ids=str)
def test_autocast_as_in_pytorch(dtype, from_dtypes):
    q, k, v = small(*from_dtypes)
    with torch.autocast(DEVICE, dtype=dtype):
        got, want = flash_attention(q, k, v), sdpa(q, k, v, enable_gqa=True)
    assert got.dtype == want.dtype == dtype
    torch.testing.assert_close(got, want, atol=2e-2, rtol=2e-2)
    got.sum().backward()
    assert [t.grad.dtype for t in (q, k, v)] == list(from_dtypes)


def test_autocast_leaves_float64_alone():
    with torch.autocast(DEVICE, dtype=bf16), pytest.raises(TypeError, match="got torch.float64"):
        flash_attention(*small(fp64, fp64, fp64))


def test_second_order_is_rejected():
    q, k, v = small()
    loss = flash_attention(q, k, v).square().sum()
    (dq,) = torch.autograd.grad(loss, q, create_graph=True)  # first order is fine
    with pytest.raises(NotImplementedError, match="differentiable once"):
        dq.sum().backward()


def test_forward_mode_is_rejected():
    q, k, v = (t.detach() for t in small())
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(k, torch.ones_like(k))
        for return_lse in (False, True):
            with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
                flash_attention(q, dual, v, return_lse=return_lse)
        assert torch.equal(flash_attention(q, k, v), flash_attention(q, dual.clone().detach(), v))


@pytest.mark.parametrize("wanted", (False, True))
def test_the_differentiable_operator_is_called_where_a_backward_pass_may_follow(wanted):
    q, k, v = (t.detach().requires_grad_(wanted) for t in small())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with torch.no_grad():
            without = flash_attention(q, k, v)
        with_grad = flash_attention(q, k, v)
    assert with_grad.requires_grad == wanted and torch.equal(without, with_grad)
    names = [event.name.removeprefix("flashlearn::") for event in profile.events() if "flashlearn::" in event.name]
    assert names == ["attention_inference", "attention_forward" if wanted else "attention_inference"]


def test_inputs_are_not_changed():
    inputs = small()
    before = [t.detach().clone() for t in inputs]
    flash_attention(*inputs, causal=True).sum().backward()
    assert all(map(torch.equal, inputs, before))


def test_output_keeps_the_layout_of_q():
    q = torch.randn(2, 20, 4, 16, device=DEVICE).transpose(1, 2)
    assert flash_attention(q, q, q).stride() == q.stride()


@pytest.mark.parametrize(
    "error, message, change",
    (
        (TypeError, "torch.Tensor, got int", lambda q, k, v: (1, k, v)),
        (TypeError, "one dtype", lambda q, k, v: (q.half(), k, v)),
        (TypeError, "got torch.int64", lambda q, k, v: (q.long(), k.long(), v.long())),
        (TypeError, "got torch.float64", lambda q, k, v: (q.double(), k.double(), v.double())),
        (ValueError, "got a tensor on meta", lambda q, k, v: (q.to("meta"), k.to("meta"), v.to("meta"))),
        (ValueError, r"shape \(B, H, N, D\), got \(4, 20, 24\)", lambda q, k, v: (q[0], k, v)),
        (ValueError, "one shape, got k", lambda q, k, v: (q, k, v[:, :, :4])),
        (ValueError, "same B and D", lambda q, k, v: (q[..., :8], k, v)),
        (ValueError, "multiple of those of k and v, got 3 and 2", lambda q, k, v: (q[:, :3], k, v)),
        (ValueError, "at most 256, got 264", lambda q, k, v: [t.repeat(1, 1, 1, 11) for t in (q, k, v)]),
    ),
)
def test_refusals(error, message, change):
    with torch.no_grad(), pytest.raises(error, match=message):
        flash_attention(*change(*small()))


@pytest.mark.parametrize(
    "error, message, kwargs",
    (
        (TypeError, "causal to be True or False, got 1", {"causal": 1}),
        (TypeError, "scale to be a number or None, got str", {"scale": "1"}),
        (ValueError, "finite scale, got inf", {"scale": float("inf")}),
    ),
)
def test_rejected_options(error, message, kwargs):
    with pytest.raises(error, match=message):
        flash_attention(*small(), **kwargs)


@pytest.mark.parametrize("transform", ("grad", "vjp", "jacrev", "vmap of grad"))
def test_torch_func_is_told_of_autograd(transform):
    func, q = torch.func, torch.randn(1, 1, 4, 16, device=DEVICE)
    loss = lambda q: flash_attention(q, q, q).sum()  # noqa: E731
    with pytest.raises(NotImplementedError, match="standard_attention under torch.func"):
        if transform == "vjp":
            func.vjp(loss, q)
        else:
            {"grad": func.grad(loss), "jacrev": func.jacrev(loss), "vmap of grad": func.vmap(func.grad(loss))}[
                transform
            ](q[None] if "vmap" in transform else q)


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled in this process: nothing is interpreted")
def test_threads_take_turns_in_the_interpreter():
    """Three at a time: each gets what it would get alone. Without turns one finds another's functions, or none."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        q = torch.randn(2, 2, 40, 16)
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda _: flash_attention(q, q, q, causal=True), range(9)))
    finally:
        sys.setswitchinterval(before)
    want = sdpa(q, q, q, is_causal=True)
    for o in found:
        torch.testing.assert_close(o, want)


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled in this process")
def test_the_interpreter_runs_the_portable_kernels():
    q, k, v = small()
    for choice in (dispatch.choose_forward(q, k, v, scale=0.1), dispatch.choose_backward(q, k, v, scale=0.1)):
        assert choice == ("portable", {}, "kernels run in the interpreter")


@pytest.fixture
def as_on_hopper(monkeypatch):
    """Let the choice of a kernel believe that it is made on a Hopper GPU with the right Triton."""
    monkeypatch.setattr(dispatch, "INTERPRETED", False)
    monkeypatch.setattr(dispatch, "why_not_this_machine", lambda device: "")


@pytest.mark.parametrize(
    "D, N, causal, options",
    (
        (40, 1024, False, {"stages": 3}),
        (64, 768, False, {"stages": 3, "consumers": 3}),
        (64, 8192, False, {"stages": 3, "consumers": 3}),
        (64, 3071, True, {"block_n": 64, "stages": 3, "ctas_per_sm": 2}),
        (64, 3072, True, {"stages": 3, "consumers": 3}),
        (128, 4096, False, {}),
        (128, 1023, True, {"block_n": 64, "stages": 4}),
        (128, 1024, True, {}),
        (128, 16384, True, {}),
    ),
)
def test_rungs_on_hopper(as_on_hopper, D, N, causal, options):
    q = torch.zeros(1, 2, N, D, dtype=bf16)
    assert dispatch.choose_forward(q, q, q, causal=causal, scale=0.1) == ("hopper", options, "")
    assert dispatch.choose_backward(q, q, q, scale=0.1).name == "hopper"


@pytest.mark.parametrize(
    "why, scale, change",
    (
        ("float32 inputs", 0.1, lambda q: q.float()),
        ("scale = -0.1", -0.1, lambda q: q),
        ("scale = 1e-40", 1e-40, lambda q: q),
        ("empty", 0.1, lambda q: q[:, :, :0]),
        ("columns 64 elements apart", 0.1, lambda q: q.mT),
        ("stride of 0", 0.1, lambda q: q[:, :1].expand(q.shape)),
        ("stride of 65", 0.1, lambda q: torch.zeros(1, 2, 64, 65, dtype=fp16)[..., :64]),
        ("aligned to 16 bytes", 0.1, lambda q: torch.zeros(1, 2, 64, 72, dtype=fp16)[..., 1:65]),
    ),
)
def test_what_hopper_kernels_leave_to_the_portable_kernel(as_on_hopper, why, scale, change):
    t = change(torch.zeros(1, 2, 64, 64, dtype=fp16))
    choice = dispatch.choose_forward(t, t, t, scale=scale)
    assert choice.name == "portable" and why in choice.why


@pytest.mark.parametrize("D", (136, 192, 256))
def test_wide_heads_run_on_hopper_both_ways(as_on_hopper, D):
    q = torch.zeros(1, 2, 64, D, dtype=fp16)
    assert dispatch.choose_forward(q, q, q, scale=0.1) == ("hopper", {"block_n": 64}, "")
    assert dispatch.choose_backward(q, q, q, scale=0.1) == ("hopper", {"deterministic": False}, "")


def test_wider_heads_are_left_to_the_portable_kernels(as_on_hopper):
    q = torch.zeros(1, 2, 64, 264, dtype=fp16)
    for choose in (dispatch.choose_forward, dispatch.choose_backward):
        choice = choose(q, q, q, scale=0.1)
        assert choice.name == "portable" and "D = 264" in choice.why and "256 columns" in choice.why


def test_deterministic_backward_on_hopper(as_on_hopper):
    q = torch.zeros(1, 2, 64, 64, dtype=fp16)
    torch.use_deterministic_algorithms(True)
    try:
        assert dispatch.choose_backward(q, q, q, scale=0.1) == ("hopper", {"deterministic": True}, "")
        assert dispatch.choose_forward(q, q, q, scale=0.1).name == "hopper"
    finally:
        torch.use_deterministic_algorithms(False)


def test_windows_that_say_causal_or_nothing_run_the_plain_operators(monkeypatch):
    q, k, v = (torch.randn(1, 1, n, 16, device=DEVICE) for n in (5, 9, 9))
    monkeypatch.setattr(api, "general_forward", None)
    for causal, window in ((False, (None, 0)), (True, (None, 3)), (True, (None, None)), (False, (None, None))):
        expected = fl.standard_attention(q, k, v, causal=causal, window=window)
        torch.testing.assert_close(flash_attention(q, k, v, causal=causal, window=window), expected)
    with pytest.raises(TypeError, match="NoneType"):
        flash_attention(q, k, v, window=(2, 0))


def test_return_lse_is_a_bool():
    q = torch.zeros(1, 1, 4, 16, device=DEVICE)
    with pytest.raises(TypeError, match="expected return_lse to be True or False, got 'no'"):
        flash_attention(q, q, q, return_lse="no")
