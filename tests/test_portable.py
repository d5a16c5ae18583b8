"""The portable kernels, run by Triton's interpreter (or on a GPU, where there is one), and which launch a GPU gets."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is tested", allow_module_level=True)

from flashlearn.core.target import INTERPRETED
from flashlearn.fast import api, dispatch
from flashlearn.fast.portable import launches
from flashlearn.fast.portable.backward import attention_backward_portable, attention_rows
from flashlearn.fast.portable.forward import attention_forward_portable
from flashlearn.fast.portable.launches import DKDV, DQ, FORWARD, PortableLaunch, is_wide, portable_launch
from tests.compiling import compiling
from tests.grid import CASES, Case, bf16, check, check_kernel, fp16, fp32, fp64, make, oracle, plain, traits, work
from tests.slow import across, covering, slow

DEVICE = "cpu" if INTERPRETED else "cuda"
CASES_HERE = tuple(replace(case, dtype=fp32) if case.dtype in (fp64, bf16) else case for case in CASES)
TABLES = {"forward": FORWARD, "dk and dv": DKDV, "dq": DQ}


def run_portable(case: Case, inputs, forward: PortableLaunch, backward: PortableLaunch, **options) -> dict:
    """{"o", "lse", "dq", "dk", "dv"} by the portable kernels."""
    q, k, v, do = inputs
    given = {"causal": case.causal, "scale": case.scale}
    o, lse = attention_forward_portable(q, k, v, launch=forward, **given)
    grads = attention_backward_portable(do, q, k, v, o, lse, launch=backward, **given, **options)
    return dict(zip(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads), strict=True))


@pytest.mark.parametrize("case", covering(CASES_HERE, traits, work), ids=str)
def test_attention(case):
    inputs = make(case, DEVICE)
    check_kernel(case, inputs, run_portable(case, inputs, PortableLaunch(64, 32), PortableLaunch(32, 64)))


@pytest.mark.parametrize("lengths, blocks", across(((50, 61), (61, 50)), ((32, 32), (16, 64), (64, 16), (16, 16))))
def test_block_sizes_change_nothing(lengths, blocks):
    case = Case(*lengths, 16, causal=True, H_q=2, H_kv=1)
    inputs = make(case, DEVICE)
    ours = run_portable(case, inputs, PortableLaunch(*blocks), PortableLaunch(*blocks))
    check(case, ours, oracle(case, *inputs), plain(case, *inputs))


@pytest.mark.parametrize("causal", (slow(False), True))
def test_wide_offsets_are_the_same_offsets(monkeypatch, causal):
    """Where rows lie so far apart that 32 bits do not hold an offset: only the type of the offsets differs."""
    case = Case(20, 37, 24, causal=causal, H_q=2, H_kv=1)
    inputs = make(case, DEVICE)
    narrow = run_portable(case, inputs, PortableLaunch(16, 16), PortableLaunch(16, 16))
    monkeypatch.setattr("flashlearn.fast.portable.forward.is_wide", lambda *_: True)
    wide = run_portable(case, inputs, PortableLaunch(16, 16), PortableLaunch(16, 16))
    assert all(torch.equal(narrow[name], wide[name]) for name in narrow)


@pytest.mark.parametrize(
    "stride, wide",
    (
        ((1, 1, 64, 1), False),
        ((1, 1, 2**24, 1), True),  # 128 rows of 2^24 elements
        ((1, 1, 2**24 - 3, 1), False),
        ((1, 1, -(2**24), 1), True),
        ((1, 1, 1, 2**23), True),  # 256 columns
        ((2**40, 2**40, 64, 1), False),  # of heads and sequences the offset is always wide
    ),
)
def test_when_offsets_are_wide(stride, wide):
    assert is_wide(PortableLaunch(128, 64), (1, 1, 64, 1), stride) is wide


@pytest.mark.parametrize("causal", (False, True))
def test_keys_past_the_end_harm_nobody(causal):
    """All scores are near -3600, so that exp(0 - lse) is infinite for the zeros that stand where there is no key."""
    case = Case(40, 37, 16, causal=causal, logits="extreme")
    q, k, v, do = make(replace(case, logits="normal"), DEVICE)
    inputs = q + 30, k - 30, v, do
    ours = run_portable(case, inputs, PortableLaunch(16, 16), PortableLaunch(16, 16))
    assert ours["lse"][ours["lse"].isfinite()].max() < -3000
    check_kernel(case, inputs, ours)


@pytest.mark.parametrize(
    "keys, causal", across((slice(None), slice(0, 1), slice(-9, None), slice(0, 16)), (True, False)), ids=str
)
def test_keys_of_minus_infinity_weigh_nothing(keys, causal):
    """o, dk and dv are as if those keys were not there; a query that sees no others gets o = 0, lse = -inf."""
    case = Case(21, 30, 16, causal=causal)
    q, k, v, do = make(case, DEVICE)
    q = q.abs() + 0.1
    there = torch.ones(30, dtype=torch.bool, device=DEVICE)
    there[keys] = False
    visible = torch.ones(21, 30, dtype=torch.bool, device=DEVICE).tril(9 if causal else 30) & there
    leaves = [t.double().requires_grad_() for t in (q, k, v)]
    S = (leaves[0] @ leaves[1].mT / 4).masked_fill(~visible, -1e300)
    o = (torch.softmax(S, -1) * visible) @ leaves[2]
    _, dk, dv = torch.autograd.grad(o, leaves, do.double())
    k = k.masked_fill(~there[:, None], float("-inf"))
    ours = run_portable(case, (q, k, v, do), PortableLaunch(16, 16), PortableLaunch(16, 16))
    for name, want in (("o", o.detach()), ("dk", dk), ("dv", dv)):
        torch.testing.assert_close(ours[name].double(), want, atol=1e-5, rtol=1e-5, msg=name)
    assert torch.equal(ours["lse"].isinf(), ~visible.any(-1).expand(ours["lse"].shape))


@pytest.mark.parametrize("scale", (0.0, 1e-40, -0.25))
def test_scales_of_any_sign_and_size(scale):
    case = Case(33, 40, 16, causal=True, scale=scale)
    inputs = make(case, DEVICE)
    ours = run_portable(case, inputs, PortableLaunch(16, 32), PortableLaunch(16, 32))
    check(case, ours, oracle(case, *inputs), plain(case, *inputs))


def test_gradient_of_lse():
    case = Case(63, 70, 16, causal=True)
    inputs = make(case, DEVICE)
    dlse = torch.randn(inputs[0].shape[:3], device=DEVICE)
    ours = run_portable(case, inputs, PortableLaunch(64, 32), PortableLaunch(32, 32), dlse=dlse.mT.contiguous().mT)
    ours = {name: ours[name] for name in ("dq", "dk", "dv")}
    check(case, ours, oracle(case, *inputs, dlse), plain(case, *inputs, dlse))


@pytest.mark.parametrize("mistake", ("delta", "lse"))
def test_the_check_sees_mistakes(mistake):
    case = Case(63, 70, 16, causal=True)
    q, k, v, do = inputs = make(case, DEVICE)
    o, lse = attention_forward_portable(q, k, v, causal=True)
    spoiled = {"lse": lse + 0.01} if mistake == "lse" else {"lse": lse, "dlse": torch.full_like(lse, 0.01)}
    grads = attention_backward_portable(do, q, k, v, o, **spoiled, causal=True)
    with pytest.raises(AssertionError, match="dv: error" if mistake == "lse" else "dk: error"):
        check_kernel(case, inputs, dict(zip(("dq", "dk", "dv"), grads, strict=True)))


@pytest.mark.parametrize("N_q, N_k", ((3, 0), (0, 3), (0, 0)))
def test_nothing_to_see(N_q, N_k):
    case = Case(N_q, N_k, 16, causal=True)
    ours = run_portable(case, make(case, DEVICE), PortableLaunch(16, 16), PortableLaunch(16, 16))
    assert not ours["o"].any() and (ours["lse"] == -torch.inf).all()
    assert not any(ours[name].any() for name in ("dq", "dk", "dv"))


def test_what_is_said_of_every_query():
    o, do = torch.randn(2, 1, 2, 70, 24, device=DEVICE)
    lse = torch.randn(1, 2, 70, device=DEVICE)
    lse[0, 1, 3] = float("-inf")
    for scale in (0.5, -0.5):
        shift, delta = attention_rows(o, do, lse, None, scale)
        torch.testing.assert_close(delta, -(o * do).sum(-1))
        assert shift[0, 1, 3] * scale == float("-inf"), "expected P = exp2((S + shift) scale) = 0"
        finite = lse.isfinite()
        torch.testing.assert_close(shift[finite], -lse[finite] / scale)


@pytest.mark.parametrize(
    "error, message, launch", ((ValueError, "power of two of at least 16, got 48", PortableLaunch(48, 16)),)
)
def test_refusals(error, message, launch):
    with pytest.raises(error, match=message):
        attention_forward_portable(*torch.zeros(3, 1, 1, 4, 16, device=DEVICE), launch=launch)


@pytest.mark.parametrize("sweep", TABLES)
def test_launches_are_powers_of_two_and_there_for_every_gpu(sweep):
    table = TABLES[sweep]
    assert set(table) == {(size, width) for size in (2, 4) for width in (64, 128, 256)}
    for by_memory in table.values():
        assert min(by_memory) == 0, "expected a launch for a GPU with little shared memory"
        assert all(n >= 8 and n & (n - 1) == 0 for launch in by_memory.values() for n in launch[:2])


@pytest.mark.parametrize(
    "kilobytes, D, itemsize, launch",
    (
        (227, 128, 2, PortableLaunch(128, 128, 8, 3)),  # H100, H200, B200
        (227, 65, 2, PortableLaunch(128, 128, 8, 3)),
        (199, 128, 2, PortableLaunch(128, 64, 8, 3)),
        (163, 256, 2, PortableLaunch(64, 64, 8, 2)),  # A100
        (99, 256, 2, PortableLaunch(64, 32, 4, 2)),  # RTX
        (99, 64, 2, PortableLaunch(128, 64, 4, 3)),
        (64, 129, 4, PortableLaunch(16, 16, 4, 2)),  # T4
    ),
)
def test_less_shared_memory_gets_a_smaller_launch(monkeypatch, kilobytes, D, itemsize, launch):
    monkeypatch.setattr(launches, "INTERPRETED", False)
    monkeypatch.setattr(launches, "shared_memory", lambda device: kilobytes * 1024)
    assert portable_launch(FORWARD, D, itemsize, torch.device("cuda")) == launch


@pytest.mark.parametrize("tensor_cores, dtype, wide", ((True, bf16, False), (False, bf16, True), (False, fp32, False)))
def test_without_tensor_cores_16_bits_are_widened(monkeypatch, tensor_cores, dtype, wide):
    monkeypatch.setattr(dispatch, "INTERPRETED", False)
    monkeypatch.setattr(dispatch, "has_tensor_cores", lambda device: tensor_cores)
    assert dispatch.must_widen(torch.zeros(1, dtype=dtype)) is wide


@pytest.mark.skipif(not INTERPRETED, reason="on a GPU `tests/gpu` runs the op with the portable kernels")
@pytest.mark.parametrize("dtype", (fp16, slow(fp32)))
def test_the_op_runs_them_in_the_interpreter(dtype):
    case = Case(33, 40, 16, causal=True, dtype=dtype, H_q=4, H_kv=2)
    inputs = make(case)
    q, k, v = (t.requires_grad_() for t in inputs[:3])
    o, lse = api.flash_attention(q, k, v, causal=True, return_lse=True)
    grads = torch.autograd.grad(o, (q, k, v), inputs[3])
    ours = dict(zip(("o", "lse", "dq", "dk", "dv"), (o.detach(), lse.detach(), *grads), strict=True))
    want = run_portable(case, tuple(t.detach() for t in inputs), None, None)
    assert all(torch.equal(ours[name], want[name]) for name in ours)
    check_kernel(case, tuple(t.detach() for t in inputs), ours)


COMPILE_WIDE = """
import flashlearn.kernels
from flashlearn.compiler.compile_only import compile_for
launches = compile_for(90)
import torch
from flashlearn.core import target
from flashlearn.fast.portable import backward, forward, launches as sizes
sizes.shared_memory = lambda device: 232448
target.check_device = lambda *given: None  # tensors lie on the CPU
far = torch.empty(2**31 + 2**20, dtype=torch.float16).as_strided((1, 1, 20, 64), (1, 1, 2**26, 1))
near = torch.empty(1, 1, 20, 64, dtype=torch.float16)
o, lse = forward.attention_forward_portable(far, near, near, causal=True)
backward.attention_backward_portable(near, near, far, near, near, lse, causal=True)
print([launch.constants["WIDE"] for launch in launches if "WIDE" in launch.constants])
"""


@pytest.mark.slow  # a process of its own, and a compiler; that of the lesson's kernels is in test_hopper_compiled.py
def test_wide_offsets_compile():
    """The interpreter takes what the compiler rejects."""
    done = compiling(COMPILE_WIDE)
    assert done.stdout == "[True, True, True]\n", done.stderr
