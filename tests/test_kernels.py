"""Every kernel, run by Triton's interpreter (or on a GPU, where there is one), against plain PyTorch."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is tested", allow_module_level=True)

from flashlearn import kernels
from flashlearn.kernels.target import INTERPRETED, check_grid
from flashlearn.kernels.teaching.backward import backward_launch
from flashlearn.kernels.teaching.forward import Launch, forward_launch
from tests.grid import CASES, Case, bf16, check, check_kernel, fp16, fp32, fp64, make, oracle, plain, traits, work
from tests.slow import covering, slow

DEVICE = "cpu" if INTERPRETED else "cuda"
needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled in this process")


def in_kernel_dtype(case: Case) -> Case:
    """Kernels take no float64, and the interpreter no bfloat16: those cases run in float32."""
    return replace(case, dtype=fp32) if case.dtype in (fp64, bf16) else case


CASES_HERE = tuple(in_kernel_dtype(case) for case in CASES)


def run_kernels(case: Case, launch: Launch, backward_launch: Launch):
    """{"o", "lse", "dq", "dk", "dv"} from the two launchers, and the inputs."""
    q, k, v, do = make(case, DEVICE)
    o, lse = kernels.attention_forward(q, k, v, causal=case.causal, scale=case.scale, launch=launch)
    grads = kernels.attention_backward(
        do, q, k, v, o, lse, causal=case.causal, scale=case.scale, launch=backward_launch
    )
    return dict(zip(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads), strict=True)), (q, k, v, do)


@pytest.mark.parametrize("N", (1, 1023, 1024, 98432))
def test_vector_add(N):
    x, y = torch.randn(2 * N, device=DEVICE)[::2], torch.randn(N, device=DEVICE)
    assert torch.equal(kernels.vector_add(x, y), x + y)


@pytest.mark.parametrize("shape", ((1, 1), (3, 5), (4, 1000), (0, 4), (4, 0)), ids=str)
@pytest.mark.parametrize("dtype", (fp16, fp32))
def test_softmax(shape, dtype):
    x = (torch.randn(shape[::-1], device=DEVICE) * 10).to(dtype).T
    torch.testing.assert_close(kernels.softmax(x), torch.softmax(x, -1))


def test_softmax_of_masked_rows():
    x = torch.tensor([[1.0, -torch.inf, 2.0]], device=DEVICE)
    torch.testing.assert_close(kernels.softmax(x), torch.softmax(x, -1))


@pytest.mark.parametrize("M, N, K", ((1, 1, 1), (64, 64, 64), (65, 33, 17), (100, 40, 0)))
def test_matmul(M, N, K):
    a, b = torch.randn(K, M, device=DEVICE).T, torch.randn(K, N, device=DEVICE)
    blocks = {"block_m": 32, "block_n": 16, "block_k": 16}
    torch.testing.assert_close(kernels.matmul(a, b, **blocks), a @ b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("case", covering(CASES_HERE, traits, work), ids=str)
def test_attention(case):
    ours, inputs = run_kernels(case, Launch(64, 32), Launch(32, 64))
    check_kernel(case, inputs, ours)


@functools.cache
def run_forward(case: Case):
    """The inputs, o and lse."""
    q, k, v, _ = inputs = make(case, DEVICE)
    return inputs, *kernels.attention_forward(q, k, v, causal=case.causal, scale=case.scale)


WILD = tuple(replace(case, dtype=dtype) for case in CASES if not case.tame for dtype in (fp16, fp32))


def wild_traits(case: Case, mistake: str) -> set:
    """One key is too few to be told from."""
    return {(mistake, case.logits), (case.dtype, case.causal)} if case.N_k > 1 else set()


@pytest.mark.parametrize(
    "case, mistake",
    covering(itertools.product(WILD, ("none", "delta", "lse")), wild_traits, lambda case, mistake: work(case)),
    ids=str,
)
def test_bounds_at_large_logits_catch_mistakes(case, mistake):
    """A delta off by a tenth, or an lse by 0.1, where the scores reach 4000 and plain PyTorch is no yardstick."""
    inputs, o, lse = run_forward(case)
    q, k, v, do = inputs
    options = {"causal": case.causal, "scale": case.scale}
    spoiled = {"lse": lse + 0.1} if mistake == "lse" else {"lse": lse}
    spoiled["dlse"] = 0.1 * (o.float() * do.float()).sum(-1) if mistake == "delta" else None
    grads = kernels.attention_backward(do, q, k, v, o, **spoiled, **options)
    ours = dict(zip(("dq", "dk", "dv"), grads, strict=True))
    if mistake == "none":
        check_kernel(case, inputs, ours)
    else:
        with pytest.raises(AssertionError, match="dv: error" if mistake == "lse" else r"(?s)dq: error.*dk: error"):
            check_kernel(case, inputs, ours)


@pytest.mark.parametrize("blocks", ((16, 16), (16, 128), (128, 16), (64, 64)), ids=str)
@pytest.mark.parametrize("N_q, N_k", ((40, 51), slow(51, 40), slow(100, 111), slow(111, 100)))
def test_block_sizes_change_nothing(blocks, N_q, N_k):
    case = Case(N_q, N_k, 16, causal=True, H_q=4, H_kv=2)
    ours, inputs = run_kernels(case, Launch(*blocks), Launch(*blocks))
    check(case, ours, oracle(case, *inputs), plain(case, *inputs))


@pytest.mark.parametrize("causal", (False, True))
def test_keys_past_the_end_harm_nobody(causal):
    """All scores are near -3600, so that exp(0 - lse) is infinite for the zeros that stand where there is no key."""
    case = Case(40, 37, 16, causal=causal, logits="extreme")
    q, k, v, do = make(replace(case, logits="normal"), DEVICE)
    inputs = q + 30, k - 30, v, do
    o, lse = kernels.attention_forward(*inputs[:3], causal=causal, launch=Launch(16, 16))
    assert lse[lse.isfinite()].max() < -3000
    grads = kernels.attention_backward(do, *inputs[:3], o, lse, causal=causal, launch=Launch(16, 16))
    check_kernel(case, inputs, dict(zip(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads), strict=True)))


@pytest.mark.parametrize("N_q, N_k", ((3, 0), (0, 3), (0, 0)))
def test_nothing_to_see(N_q, N_k):
    case = Case(N_q, N_k, 16, causal=True)
    ours, _ = run_kernels(case, Launch(16, 16), Launch(16, 16))
    assert not ours["o"].any() and (ours["lse"] == -torch.inf).all()
    assert not any(ours[name].any() for name in ("dq", "dk", "dv"))


def test_gradient_of_lse():
    case = Case(63, 70, 16, causal=True)
    q, k, v, do = make(case, DEVICE)
    dlse = torch.randn(do.shape[:3], device=DEVICE)
    o, lse = kernels.attention_forward(q, k, v, causal=True)
    grads = kernels.attention_backward(do, q, k, v, o, lse, causal=True, dlse=dlse)
    ours = dict(zip(("dq", "dk", "dv"), grads, strict=True))
    check(case, ours, oracle(case, q, k, v, do, dlse), plain(case, q, k, v, do, dlse))


@pytest.mark.parametrize("D", (1, 16, 64, 96, 128, 192, 256))
@pytest.mark.parametrize("itemsize", (2, 4))
def test_launches_are_powers_of_two_that_tl_dot_takes(D, itemsize):
    for launch in (forward_launch(D, itemsize), backward_launch(D, itemsize)):
        assert all(n >= 16 and n & (n - 1) == 0 for n in launch[:2])


def qkv(N_q=4, N_k=4, D=16, dtype=fp32, H=1):
    return [torch.zeros(1, H, N, D, dtype=dtype, device=DEVICE) for N in (N_q, N_k, N_k)]


@pytest.mark.parametrize(
    "error, message, call",
    (
        (ValueError, r"at most 256, got 257", lambda: kernels.attention_forward(*qkv(D=257))),
        (TypeError, r"got torch.float64", lambda: kernels.attention_forward(*qkv(dtype=fp64))),
        (
            ValueError,
            r"power of two of at least 16, got 48",
            lambda: kernels.attention_forward(*qkv(), launch=Launch(48, 16)),
        ),
        (
            ValueError,
            r"power of two of at least 16, got 8",
            lambda: kernels.matmul(*torch.zeros(2, 4, 4, device=DEVICE), block_k=8),
        ),
        (
            ValueError,
            r"\(M, K\) and b \(K, N\), got \(4, 3\) and \(4, 4\)",
            lambda: kernels.matmul(*(torch.zeros(s, device=DEVICE) for s in ((4, 3), (4, 4)))),
        ),
        (
            ValueError,
            r"of one length, got x \(3,\) and y \(4,\)",
            lambda: kernels.vector_add(*(torch.zeros(n, device=DEVICE) for n in (3, 4))),
        ),
        (ValueError, r"N up to 65536, got \(1, 65537\)", lambda: kernels.softmax(torch.zeros(1, 65537, device=DEVICE))),
        (ValueError, r"got a tensor on meta", lambda: kernels.softmax(torch.zeros(1, 2, device="meta"))),
        (TypeError, r"torch.Tensor, got list", lambda: kernels.softmax([[1.0]])),
        (ValueError, r"at most 65535 programs", lambda: check_grid((1, 65536, 1))),
    ),
)
def test_refusals(error, message, call):
    with pytest.raises(error, match=message):
        call()


def test_backward_refuses_what_is_not_from_one_forward_pass():
    q, k, v = qkv()
    o, lse = kernels.attention_forward(q, k, v)
    with pytest.raises(ValueError, match=r"expected lse of shape \(1, 1, 4\)"):
        kernels.attention_backward(o, q, k, v, o, lse[..., :2])
    with pytest.raises(ValueError, match=r"expected do of shape \(1, 1, 4, 16\)"):
        kernels.attention_backward(o[..., :8], q, k, v, o, lse)


@needs_interpreter
def test_versions_that_do_not_fit_each_other_are_refused(monkeypatch):
    monkeypatch.setattr(sys.modules[check_grid.__module__], "INTERPRETER_WORKS", False)
    with pytest.raises(RuntimeError, match="expected Triton 3.7 or newer, or NumPy before 2.4.*, got Triton 3"):
        kernels.vector_add(torch.ones(3), torch.ones(3))


@needs_interpreter
def test_interpreter_refuses_bfloat16():
    with pytest.raises(TypeError, match="bfloat16, which Triton's interpreter computes wrongly"):
        kernels.softmax(torch.zeros(2, 2, dtype=bf16))


@pytest.mark.slow  # a process of its own
@needs_interpreter
@pytest.mark.parametrize(
    "first, why",
    (
        ("os.environ.pop('TRITON_INTERPRET', None); import triton", "Triton was imported before flashlearn"),
        ("os.environ['TRITON_INTERPRET'] = '0'", "TRITON_INTERPRET=0 is set"),
    ),
)
def test_why_nothing_is_interpreted_is_explained(first, why):
    """Without a GPU Triton compiles, be it that it was imported too early or told to: the kernels say what to do."""
    program = f"import os; {first}; import torch; from flashlearn import kernels; kernels.softmax(torch.zeros(2, 2))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode and why in done.stderr, done.stderr
    assert "Set TRITON_INTERPRET=1 before Python starts" in done.stderr


def test_fp16_backward_of_rows_without_keys_is_zero():
    case = Case(192, 64, 16, causal=True, dtype=fp16)
    ours, _ = run_kernels(case, Launch(64, 32), Launch(32, 64))
    assert not ours["dq"][:, :, : case.masked_rows].any()


@needs_interpreter
def test_the_language_is_replaced_once_for_a_module_of_a_launch(monkeypatch):
    """Functions that kernels call replace it too, again and again: a quarter of the time, before."""
    from triton.runtime import interpreter

    replaced, replace = [], interpreter._patch_builtin
    monkeypatch.setattr(interpreter, "_patch_builtin", lambda to, *rest: (replaced.append(to), replace(to, *rest)))
    q, k, v = qkv(N_q=70, N_k=70)
    for launches in (1, 2):
        kernels.attention_forward(q, k, v, launch=Launch(16, 16))
        assert launches <= replaced.count(interpreter.tl.tensor) <= 3 * launches  # the kernel's module, Triton's own


@pytest.mark.skipif(not kernels.INTERPRETED, reason="the interpreter is not used here")
def test_what_the_interpreter_need_not_do_is_left_out_and_changes_nothing():
    import triton.language as tl
    from triton.runtime import interpreter

    types = (tl.int1, tl.int32, tl.int64, tl.float16, tl.bfloat16, tl.float32, tl.float8e5)
    made_anew = interpreter._get_np_dtype.__wrapped__
    for each in (*types, *map(tl.pointer_type, types), *(tl.block_type(t, [4, 2]) for t in types)):
        assert interpreter._get_np_dtype(each) is interpreter._get_np_dtype(each) == made_anew(each), each
    pointers = tl.block_type(tl.pointer_type(tl.float16), [4])
    assert interpreter._get_np_dtype(pointers) == made_anew(pointers)
    options = interpreter.interpreter_builder.options
    assert not options.debug and not options.sanitize_overflow, "the check would be made, and its outcome not looked at"
