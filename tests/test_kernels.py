"""Every kernel, run by Triton's interpreter (or on a GPU, where there is one), against plain PyTorch."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import itertools
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch.autograd import forward_ad

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is tested", allow_module_level=True)

import flashlearn as fl
from flashlearn import kernels
from flashlearn.core import target
from flashlearn.core.options import plain_options
from flashlearn.core.target import INTERPRETED, check_grid
from flashlearn.fast.decode import attention_decode
from flashlearn.fast.portable.backward import attention_backward_portable
from flashlearn.fast.portable.forward import attention_forward_portable
from flashlearn.fast.portable.launches import PortableLaunch
from flashlearn.kernels import ladder, versions
from flashlearn.kernels.backward import backward_launch
from flashlearn.kernels.forward import Launch, forward_launch
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


@pytest.mark.parametrize("error, message, call", (
    (ValueError, r"at most 256, got 257", lambda: kernels.attention_forward(*qkv(D=257))),
    (TypeError, r"got torch.float64", lambda: kernels.attention_forward(*qkv(dtype=fp64))),
    (ValueError, r"power of two of at least 16, got 48", lambda: kernels.attention_forward(*qkv(), launch=Launch(48, 16))),
    (ValueError, r"power of two of at least 16, got 8", lambda: kernels.matmul(*torch.zeros(2, 4, 4, device=DEVICE), block_k=8)),
    (ValueError, r"\(M, K\) and b \(K, N\), got \(4, 3\) and \(4, 4\)", lambda: kernels.matmul(*(torch.zeros(s, device=DEVICE) for s in ((4, 3), (4, 4))))),
    (ValueError, r"of one length, got x \(3,\) and y \(4,\)", lambda: kernels.vector_add(*(torch.zeros(n, device=DEVICE) for n in (3, 4)))),
    (ValueError, r"block to be a power of two of at least 1, got True", lambda: kernels.vector_add(*torch.zeros(2, 3, device=DEVICE), block=True)),
    (ValueError, r"N up to 65536, got \(1, 65537\)", lambda: kernels.softmax(torch.zeros(1, 65537, device=DEVICE))),
    (ValueError, r"got a tensor on meta", lambda: kernels.softmax(torch.zeros(1, 2, device="meta"))),
    (TypeError, r"torch.Tensor, got list", lambda: kernels.softmax([[1.0]])),
    (ValueError, r"at most 65535 programs", lambda: check_grid((1, 65536, 1))),
))  # fmt: skip
def test_what_is_rejected(error, message, call):
    with pytest.raises(error, match=message):
        call()


def test_backward_rejects_what_is_not_from_one_forward_pass():
    q, k, v = qkv()
    o, lse = kernels.attention_forward(q, k, v)
    with pytest.raises(ValueError, match=r"expected lse of shape \(1, 1, 4\)"):
        kernels.attention_backward(o, q, k, v, o, lse[..., :2])
    with pytest.raises(ValueError, match=r"expected do of shape \(1, 1, 4, 16\)"):
        kernels.attention_backward(o[..., :8], q, k, v, o, lse)


def forward(launcher, *given, **options):
    return launcher(*(given or qkv(16, 16)), **options)


def backward(launcher, **options):
    """Of one forward pass over zeros; what is named in the options takes the place of what that gave."""
    q, k, v = qkv()
    given = {"do": q, "q": q, "k": k, "v": v, "o": q, "lse": torch.zeros(q.shape[:3], device=DEVICE)} | options
    return launcher(**given)


def in_gluon(way, **options):
    module = pytest.importorskip(f"flashlearn.fast.hopper.{'backward_launch' if way == 'backward' else way}")
    call = {"forward": forward, "backward": backward}[way]
    return call(getattr(module, f"attention_{way}_hopper"), scale=1.0, **options)


FORWARD = {
    "teaching": functools.partial(forward, kernels.attention_forward),
    "portable": functools.partial(forward, attention_forward_portable),
    "decode": functools.partial(forward, attention_decode),
    "ladder": functools.partial(
        forward, functools.partial(ladder.attend, ladder.VERSIONS["exp2"], launch=Launch(16, 16))
    ),
    "versions": functools.partial(forward, functools.partial(versions.attend, versions.grouped_kernel)),
}
BACKWARD = {
    "teaching": functools.partial(backward, kernels.attention_backward),
    "portable": functools.partial(backward, attention_backward_portable),
}
ATTENTION = {
    **{f"{name} forward": call for name, call in FORWARD.items()},
    **{f"{name} backward": call for name, call in BACKWARD.items()},
}
HOPPER = {f"hopper {way}": functools.partial(in_gluon, way) for way in ("forward", "backward")}


@pytest.mark.parametrize(
    "option, call",
    [
        *(pytest.param("causal", call, id=f"causal, {name}") for name, call in (ATTENTION | HOPPER).items()),
        *(
            pytest.param("allow_tf32", call, id=f"allow_tf32, {name}")
            for name, call in ATTENTION.items()
            if not name.startswith(("ladder", "versions"))
        ),
        ("one_launch", FORWARD["decode"]),
        ("allow_tf32", lambda **options: kernels.matmul(*torch.zeros(2, 4, 4, device=DEVICE), **options)),
    ],
)
def test_no_is_not_taken_for_true(option, call):
    for value in ("no", 1):
        with pytest.raises(TypeError, match=f"expected {option} to be True or False, got {value!r}"):
            call(**{option: value})


def paged(**changed):
    """flash_attention_paged of one query, and a page of two keys."""
    table, lengths = (torch.tensor(number, dtype=torch.int32, device=DEVICE) for number in ([[0]], [2]))
    q, page = torch.ones(1, 1, 1, 4, device=DEVICE), torch.ones(1, 1, 2, 4, device=DEVICE)
    tensors = {"q": q, "k_pages": page, "v_pages": page, "page_table": table, "lengths": lengths}
    return fl.flash_attention_paged(**(tensors | changed))


def negated(*shape):
    """What `z.conj().imag` is: minus one, of which there are ones in memory."""
    return torch._neg_view(torch.ones(shape, device=DEVICE))


@pytest.mark.parametrize(
    "name, call",
    [
        *(
            pytest.param("k", lambda call=call: call(qkv()[0], negated(1, 1, 4, 16), qkv()[2]), id=f"forward, {name}")
            for name, call in FORWARD.items()
        ),
        *(
            pytest.param(tensor, lambda call=call, tensor=tensor, shape=shape: call(**{tensor: negated(*shape)}), id=f"{tensor}, {name}")
            for name, call in BACKWARD.items()
            for tensor, shape in (("do", (1, 1, 4, 16)), ("lse", (1, 1, 4)), ("dlse", (1, 1, 4)))
        ),
        ("x", lambda: kernels.softmax(negated(2, 3))),
        ("y", lambda: kernels.vector_add(-negated(3), negated(3))),
        ("b", lambda: kernels.matmul(-negated(2, 3), negated(3, 2))),
        ("v_pages", lambda: paged(v_pages=negated(1, 1, 2, 4))),
    ],
)  # fmt: skip
def test_views_that_stand_for_their_negatives_are_rejected(name, call):
    with pytest.raises(ValueError, match=rf"expected {name} as it is in memory, .*: pass {name}.resolve_neg\(\)"):
        call()


def test_the_op_takes_such_a_view_for_what_it_stands_for():
    q, k, v = torch.randn(3, 1, 1, 4, 16, device=DEVICE)
    assert torch.equal(fl.flash_attention(q, torch._neg_view(k), v), fl.flash_attention(q, -k, v))


@pytest.mark.parametrize(
    "call",
    [
        *(lambda t, call=call: call(t, t, t) for call in FORWARD.values()),
        *(lambda t, call=call: call(k=t[:, :, :4]) for call in BACKWARD.values()),
        lambda t: kernels.softmax(t[0, 0]),
        lambda t: kernels.vector_add(t[0, 0, 0], t[0, 0, 0]),
        lambda t: kernels.matmul(t[0, 0], t[0, 0]),
    ],
)
def test_gradients_are_not_dropped_in_silence(call):
    t = torch.zeros(1, 1, 16, 16, device=DEVICE, requires_grad=True)
    with pytest.raises(NotImplementedError, match="without requires_grad.*flash_attention.*torch.no_grad"):
        call(t)
    with torch.no_grad():
        call(t)
    with forward_ad.dual_level():
        t = t.detach()
        dual = forward_ad.make_dual(t, torch.ones_like(t))
        for context in (contextlib.nullcontext(), torch.no_grad()):  # which forward mode does not heed
            with context, pytest.raises(NotImplementedError, match="without a forward-mode derivative"):
                call(dual)
        call(t)


@pytest.mark.parametrize("call", BACKWARD.values(), ids=BACKWARD)
@pytest.mark.parametrize(
    "error, message, options",
    (
        (TypeError, "expected lse to be a torch.Tensor, got NoneType", {"lse": None}),
        (TypeError, "expected dlse to be a torch.Tensor, got list", {"dlse": [1.0]}),
        (ValueError, r"expected dlse of shape \(1, 1, 4\) .*, got \(4,\)", {"dlse": torch.ones(4)}),
        (ValueError, r"expected dlse of shape \(1, 1, 4\) .*, got \(\)", {"dlse": torch.ones(())}),
        (ValueError, r"expected dlse .* in torch.float32 on .*, got .* in torch.float64", {"dlse": torch.ones(1, 1, 4).double()}),
    ),
)  # fmt: skip
def test_backward_wants_lse_and_its_gradient_as_they_are(call, error, message, options):
    there = {name: t.to(DEVICE) if isinstance(t, torch.Tensor) else t for name, t in options.items()}
    with pytest.raises(error, match=message):
        call(**there)


@pytest.mark.parametrize(
    "scale",
    (1e300, -1e300, 3e38, 10**400, -(10**5000)),
    ids=("large", "negative", "times log2(e)", "int", "long int"),
)
def test_a_scale_that_float32_does_not_hold_is_rejected(scale):
    for name, call in {**ATTENTION, "op": functools.partial(forward, fl.flash_attention), "paged": paged}.items():
        if not name.startswith("versions"):  # they have no scale
            with pytest.raises(ValueError, match="expected .*scale .*finite"):
                call(scale=scale)


@pytest.mark.parametrize("name", ("teaching", "portable", "decode", "paged"))
@pytest.mark.parametrize("scores", ((2.5e38, 2.5e38), (-2.5e38, -2.5e38), (3.4e38, -3.4e38), (-3.4e38, 0.0)))
def test_scores_may_be_as_large_as_float32_goes(name, scores):
    """Times log2(e) they would be infinite."""
    q, v = torch.tensor([[[[-1.0]]]], device=DEVICE), torch.tensor([[[[1.0], [3.0]]]], device=DEVICE)
    k = -torch.tensor(scores, device=DEVICE).reshape(1, 1, 2, 1)
    if name == "paged":  # on a GPU it takes D of 2 and more: a column of zeros changes nothing
        q, k, v = (torch.nn.functional.pad(t, (0, 1)) for t in (q, k, v))
        o, lse = paged(q=q, k_pages=k, v_pages=v, scale=1.0, return_lse=True)
        o, v = o[..., :1], v[..., :1]
    else:
        o, lse = FORWARD[name](q, k, v, scale=1.0)
    weights = torch.tensor(scores, dtype=fp64).softmax(0)
    torch.testing.assert_close(o.cpu().flatten(), (weights @ v.cpu().double().reshape(2, 1)).to(fp32))
    torch.testing.assert_close(lse.cpu().flatten(), torch.tensor(scores, dtype=fp64).logsumexp(0)[None].to(fp32))


@pytest.mark.parametrize("name", ("alibi", "sinks"))
@pytest.mark.parametrize("call", (FORWARD["portable"], FORWARD["decode"]), ids=("portable", "decode"))
def test_one_number_for_each_head_is_wanted(call, name):
    """A kernel would read what lies behind the others."""
    of_two = torch.zeros(2, device=DEVICE)
    with pytest.raises(ValueError, match=rf"expected {name} of shape \(H_q,\) = \(2,\), got \(1,\)"):
        call(*qkv(H=2), options=plain_options(qkv()[0].shape[-1], 1.0, causal=False)._replace(**{name: of_two[:1]}))


@pytest.mark.parametrize("softcap", (1e300, 1e-300, 10**400), ids=("large", "small", "int"))
def test_a_softcap_that_float32_does_not_hold_is_rejected(softcap):
    for call in (functools.partial(forward, fl.flash_attention), paged):
        with pytest.raises(ValueError, match="expected softcap "):
            call(softcap=softcap)


def test_numbers_that_float32_holds_are_taken():
    one = fl.flash_attention(*qkv(), scale=2.3e38, softcap=3e38)
    assert not one.isnan().any() and not fl.flash_attention(*qkv(), scale=-2.3e38, softcap=1.2e-38).isnan().any()


OF_TEACHING, OF_PORTABLE = Launch(16, 16), PortableLaunch(16, 16)
LAUNCHED = (
    (ATTENTION["teaching forward"], "launch", OF_TEACHING),
    (ATTENTION["teaching backward"], "launch", OF_TEACHING),
    (ATTENTION["ladder forward"], "launch", OF_TEACHING),
    (ATTENTION["portable forward"], "launch", OF_PORTABLE),
    (ATTENTION["portable backward"], "launch", OF_PORTABLE),
    (ATTENTION["portable backward"], "launch_dq", OF_PORTABLE),
)


@pytest.mark.parametrize("call, name, good", LAUNCHED)
def test_what_is_no_launch_is_rejected(call, name, good):
    other = OF_PORTABLE if good is OF_TEACHING else OF_TEACHING
    for bad in (64, (16, 16), 0, "", other):
        with pytest.raises(
            TypeError, match=rf"expected {name} to be a (Portable)?Launch\(block_m, block_n, .*\) or None, got "
        ):
            call(**{name: bad})
    for bad, message in (
        (good._replace(block_m=True), "block_m to be a power of two"),
        (good._replace(block_n=48), "block_n to be a power of two"),
        (good._replace(num_warps="x"), "num_warps to be a power of two of at least 1, got 'x'"),
        (good._replace(num_warps=3), "num_warps to be a power of two of at least 1, got 3"),
        (good._replace(num_stages=0), "num_stages of at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=f"expected {message}"):
            call(**{name: bad})
    if good is OF_PORTABLE:
        with pytest.raises(ValueError, match="expected registers of at least 1, got 0"):
            call(**{name: good._replace(registers=0)})


@needs_interpreter
def test_versions_that_do_not_fit_each_other_are_rejected(monkeypatch):
    monkeypatch.setattr(sys.modules[check_grid.__module__], "INTERPRETER_WORKS", False)
    with pytest.raises(RuntimeError, match="expected Triton 3.7 or newer, or NumPy before 2.4.*, got Triton 3"):
        kernels.vector_add(torch.ones(3), torch.ones(3))


@needs_interpreter
def test_interpreter_rejects_bfloat16():
    with pytest.raises(TypeError, match="bfloat16, which Triton's interpreter computes wrongly"):
        kernels.softmax(torch.zeros(2, 2, dtype=bf16))


@pytest.mark.slow  # a process of its own
@needs_interpreter
@pytest.mark.parametrize(
    "first, why",
    (
        ("os.environ.pop('TRITON_INTERPRET', None); import triton", "Triton was imported before flashlearn"),
        ("os.environ['TRITON_INTERPRET'] = '0'", "TRITON_INTERPRET=0 is set"),
        ("os.environ['TRITON_INTERPRET'] = ''; import triton", "Triton was imported before flashlearn"),
    ),
)
def test_why_nothing_is_interpreted_is_explained(first, why):
    """Without a GPU Triton compiles, be it that it was imported too early or told to: the kernels say what to do."""
    program = f"import os; {first}; import torch; from flashlearn import kernels; kernels.softmax(torch.zeros(2, 2))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode and why in done.stderr, done.stderr
    assert "Set TRITON_INTERPRET=1 before Python starts" in done.stderr


@needs_interpreter
@pytest.mark.parametrize(
    "set_to, gpu, why",
    (
        ("", False, "Triton was imported before flashlearn"),
        ("", True, "there is a GPU"),
        ("No", True, "TRITON_INTERPRET=No is set"),
        ("maybe", False, "TRITON_INTERPRET=maybe is set"),
        ("1", True, "Triton was imported before TRITON_INTERPRET was set"),
    ),
)
def test_no_wrong_reason_is_named(monkeypatch, set_to, gpu, why):
    monkeypatch.setenv("TRITON_INTERPRET", set_to)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(target, "INTERPRETED", False)
    with pytest.raises(RuntimeError, match=f"that is off because {why}. Set TRITON_INTERPRET=1"):
        target.check_device(torch.device("cpu"), "x")


@pytest.mark.parametrize("set_to, chosen", (("", True), (None, True), ("0", False), ("true", False)))
def test_an_empty_choice_is_none(monkeypatch, set_to, chosen):
    """`TRITON_INTERPRET= python` says nothing, and without a GPU kernels are interpreted."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if set_to is not None:
        monkeypatch.setenv("TRITON_INTERPRET", set_to)
    finder = importlib.import_module("flashlearn.core.interpreter").Interpreting()
    assert (finder.find_spec("triton") is not None) == chosen
    assert finder.find_spec("numpy") is None and finder.find_spec("triton.language") is None


CHOICE = """
import os, subprocess, sys
import torch; torch.cuda.is_available = lambda: {gpu}
import flashlearn
assert "triton" not in sys.modules
import triton, triton.language as tl
child = subprocess.run([sys.executable, "-c", "import os; print(os.environ.get('TRITON_INTERPRET'))"], capture_output=True, text=True)
print(triton.knobs.runtime.interpret, type(tl.sum).__name__, os.environ.get("TRITON_INTERPRET"), child.stdout.strip())
"""


@pytest.mark.slow  # a process of its own
@pytest.mark.parametrize(
    "gpu, set_to, said",
    (
        (False, None, "True InterpretedFunction None None"),
        (False, "", "True InterpretedFunction  "),
        (False, "0", "False JITFunction 0 0"),
        (True, None, "False JITFunction None None"),
        (True, "1", "True InterpretedFunction 1 1"),
    ),
)
def test_the_choice_is_made_for_this_process_alone(gpu, set_to, said):
    """Triton interprets without a GPU, and other processes are told nothing of it."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env |= {} if set_to is None else {"TRITON_INTERPRET": set_to}
    done = subprocess.run(
        [sys.executable, "-c", CHOICE.format(gpu=gpu)], capture_output=True, text=True, env=env, encoding="utf-8"
    )
    assert done.stdout.rstrip("\n").strip() == said.strip(), done.stderr


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
