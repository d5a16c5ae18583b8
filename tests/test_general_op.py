"""`flash_attention` with options and `flash_attention_varlen` as operators: opcheck, torch.compile, rejections, packed sequences."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: flash_attention is not tested", allow_module_level=True)

import flashlearn as fl
from flashlearn.core.target import INTERPRETED
from flashlearn.fast import operators
from flashlearn.fast.api import flash_attention, options_of
from flashlearn.fast.operators import flat, general_forward
from flashlearn.fast.varlen import flash_attention_varlen
from tests.grid import bf16, fp16, fp32, make
from tests.masked import Problem, check, given, offsets_of, results_of
from tests.slow import slow

DEVICE = "cpu" if INTERPRETED else "cuda"
OPTIONS = {
    "window": {"window": (5, 2)},
    "documents": {"documents": (3, 0, 16, 1)},
    "key_range": {"key_range": ((2, 17),)},
    "softcap": {"softcap": 2.0},
    "alibi": {"alibi": True},
    "sinks": {"sinks": True},
}
EVERY = {name: value for some in OPTIONS.values() for name, value in some.items()}


def small(**options) -> Problem:
    return Problem(20, 20, 16, H_q=2, H_kv=1, causal=True, **options)


def attend(options: dict):
    return lambda q, k, v: flash_attention(q, k, v, return_lse=True, **options)


# opcheck ----------------------------------------------------------------------------------------------------


NAMES = (*OPTIONS, "every")


@pytest.mark.parametrize("name", [name if name == "sinks" else slow(name) for name in NAMES])
def test_opcheck(name):
    problem = small(**OPTIONS.get(name, EVERY))
    q, k, v, _ = make(problem, DEVICE)
    wanted = given(problem, DEVICE)
    wanted["scale"] = 0.2
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    options = options_of(q, k, **wanted)
    torch.library.opcheck(general_forward, (q, k, v, *flat(options), False))


@pytest.mark.parametrize("name", [name if name == "documents" else slow(name) for name in NAMES])
def test_it_compiles_as_one_graph(name):
    problem = small(**OPTIONS.get(name, EVERY))
    inputs, options = make(problem, DEVICE), given(problem, DEVICE)
    compiled = torch.compile(attend(options), backend="aot_eager", fullgraph=True)
    got, want = results_of(compiled, inputs, options), results_of(attend(options), inputs, options)
    assert set(got) == set(want) and all(torch.equal(got[name], want[name]) for name in want)


# gradients --------------------------------------------------------------------------------------------------


def test_gradients_of_lse_reach_all():
    problem = small(**EVERY)
    inputs, options = make(problem, DEVICE), given(problem, DEVICE)
    dlse = torch.randn(1, 2, 20, device=DEVICE)
    check(problem, inputs, results_of(attend(options), inputs, options, dlse), options, dlse)


@pytest.mark.parametrize("wanted", ("q", slow("sinks"), "alibi"))
def test_only_gradients_that_are_wanted(wanted):
    problem = small(**EVERY)
    q, k, v, do = make(problem, DEVICE)
    options = given(problem, DEVICE)
    leaves = {"q": q, "sinks": options["sinks"].detach(), "alibi": options["alibi"].detach()}
    leaves[wanted].requires_grad_()
    o = flash_attention(leaves["q"], k, v, **(options | {name: leaves[name] for name in ("sinks", "alibi")}))
    o.backward(do)
    assert {name for name, t in leaves.items() if t.grad is not None} == {wanted}
    assert leaves[wanted].grad.shape == leaves[wanted].shape


def test_second_derivatives_are_rejected():
    problem = small(sinks=True)
    q, k, v, _ = make(problem, DEVICE)
    sinks = given(problem, DEVICE)["sinks"]
    (ds,) = torch.autograd.grad(flash_attention(q, k, v, sinks=sinks).sum(), sinks, create_graph=True)
    with pytest.raises(NotImplementedError, match="differentiable once"):
        ds.sum().backward()


def test_without_an_option_nothing_changes():
    """Windows of everything, sinks of -inf, slopes of 0: the bits of the same kernels with less."""
    problem = small(window=(100, None))
    q, k, v, _ = make(problem, DEVICE)
    nothing = torch.zeros(2, device=DEVICE)
    want = flash_attention(q, k, v, causal=True)
    everything = tuple(torch.tensor([n], dtype=torch.int32, device=DEVICE) for n in (0, 20))
    one = torch.tensor([0, 20], dtype=torch.int32, device=DEVICE)
    for options in (
        {"window": (100, None)}, {"sinks": torch.full_like(nothing, -math.inf)}, {"alibi": nothing},
        {"key_range": everything}, {"documents": one}, {"softcap": 1e6},
    ):  # fmt: skip
        torch.testing.assert_close(flash_attention(q, k, v, causal=True, **options), want, atol=2e-6, rtol=2e-6)


def test_windows_of_any_size():
    q, k, v, do = make(Problem(20, 33, 16), DEVICE)
    want = results_of(attend({}), (q, k, v, do), {})
    for window in ((2**31 - 1, 2**31 - 1), (2**80, None), (52, 52)):
        got = results_of(attend({"window": window}), (q, k, v, do), {})
        for name in want:
            torch.testing.assert_close(got[name], want[name], msg=f"{name} {window}")


@pytest.mark.parametrize("size", (0.0, 1e-6, 0.05, 0.39, 0.41, 1.0, 9.0, 60.0))
def test_a_softcap_is_as_good_as_tanh(size):
    """One key: lse is its score, c tanh(x / c), to a few roundings, however small or large x / c is."""
    cap = 30.0
    q = torch.full((1, 1, 2, 1), size * cap, device=DEVICE) * torch.tensor([1.0, -1.0], device=DEVICE)[:, None]
    one = torch.ones(1, 1, 1, 1, device=DEVICE)
    _, lse = flash_attention(q, one, one, softcap=cap, scale=1.0, return_lse=True)
    want = cap * torch.tanh(q[..., 0].double() / cap)
    assert (lse - want).abs().max() <= 4e-7 * want.abs().max() + 1e-30


# packed sequences -------------------------------------------------------------------------------------------

PACKED = (
    ((1, 0, 33, 16, 2), (1, 5, 40, 0, 2), {"causal": True}),
    ((20, 1, 30), (33, 17, 1), {"window": (9, 2), "softcap": 3.0}),
    ((7, 7), (7, 7), {"causal": True, "sinks": True, "alibi": True}),
    ((0, 0), (3, 0), {}),
    ((3, 0), (0, 0), {"sinks": True}),
)


@pytest.mark.parametrize("dtype", (fp32, slow(fp16), slow(bf16)), ids=str)
@pytest.mark.parametrize("of_queries, of_keys, extra", [PACKED[0], slow(*PACKED[1]), *PACKED[2:]], ids=str)
def test_packed_sequences_are_those_alone(of_queries, of_keys, extra, dtype):
    """Of every sequence o, lse and gradients by brute force; dsinks and dalibi are sums over all."""
    H_q, H_kv, D = 4, 2, 16
    torch.manual_seed(0)
    shapes = [(sum(n), H, D) for n, H in ((of_queries, H_q), (of_keys, H_kv), (of_keys, H_kv), (of_queries, H_q))]
    q, k, v, do = (torch.randn(shape, device=DEVICE, dtype=dtype) for shape in shapes)
    cuts = offsets_of(of_queries, DEVICE), offsets_of(of_keys, DEVICE)
    options = given(Problem(1, 1, D, H_q=H_q, H_kv=H_kv, **extra), DEVICE)

    def packed(q, k, v):
        return flash_attention_varlen(q, k, v, *cuts, return_lse=True, **options)

    ours = results_of(packed, (q, k, v, do), options)
    assert ours["o"].shape == q.shape and ours["lse"].shape == (H_q, len(q))
    sums = {name: torch.zeros(H_q, device=DEVICE) for name in ("dsinks", "dalibi") if name in ours}
    starts = zip(*(cut.tolist() for cut in cuts), strict=True)
    for (i, j), N_q, N_k in zip(starts, of_queries, of_keys, strict=False):
        problem = Problem(N_q, N_k, D, dtype=dtype, H_q=H_q, H_kv=H_kv, **extra)
        whole = {"q": q[i : i + N_q], "k": k[j : j + N_k], "v": v[j : j + N_k], "do": do[i : i + N_q]}
        inputs = tuple(t.transpose(0, 1)[None] for t in whole.values())
        mine = {name: ours[name][i : i + N_q].transpose(0, 1)[None] for name in ("o", "dq")}
        mine |= {name: ours[name][j : j + N_k].transpose(0, 1)[None] for name in ("dk", "dv")}
        alone = results_of(attend(options), inputs, options)
        mine |= {"lse": ours["lse"][None, :, i : i + N_q]} | {name: alone[name] for name in sums}
        check(problem, inputs, mine, options)
        for name in sums:
            sums[name] += alone[name]
    for name, total in sums.items():
        torch.testing.assert_close(ours[name], total, atol=1e-4, rtol=1e-4)


def test_nothing_is_copied(monkeypatch):
    """What reaches the operator lies where the caller's tensors lie, and o lies as q does."""
    reached = []
    run = operators.attention_forward_portable
    monkeypatch.setattr(
        operators, "attention_forward_portable", lambda *qkv, **how: reached.extend(qkv) or run(*qkv, **how)
    )
    q, k, v = torch.randn(3, 24, 2, 16, device=DEVICE)
    cut = offsets_of((4, 20), DEVICE)
    o = fl.flash_attention_varlen(q, k, v, cut, cut)
    assert [t.data_ptr() for t in reached] == [t.data_ptr() for t in (q, k, v)]
    assert o.stride() == q.stride() and o.shape == q.shape


@pytest.mark.slow  # four graphs
def test_it_compiles_as_one_graph_where_scale_and_softcap_change():
    q, k, v, _ = make(small(), DEVICE)
    compiled = torch.compile(
        lambda *given: flash_attention(*given[:3], scale=given[3], softcap=given[4]),
        backend="aot_eager",
        fullgraph=True,
    )
    for scale, softcap in ((None, None), (0.3, 2.0), (0.4, 3.0), (1, 4), (2, 5)):
        want = flash_attention(q, k, v, scale=scale, softcap=softcap)
        torch.testing.assert_close(compiled(q, k, v, scale, softcap), want)


# rejections ---------------------------------------------------------------------------------------------------


def ints(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device=DEVICE)


BAD = (
    ({"documents": ints(0, 9, 5, 20)}, ValueError, "expected documents that do not fall, got 9 and then 5"),
    ({"documents": ints(1, 20)}, ValueError, "expected documents to start at 0, got 1"),
    ({"documents": ints(0, 19)}, ValueError, "expected documents to end at N = 20, got 19"),
    ({"documents": ints(0)}, ValueError, "expected documents to end at N = 20, got no sequence"),
    ({"documents": ints(0, 20, dtype=torch.int64)}, TypeError, "expected documents in int32, got torch.int64"),
    ({"documents": [0, 20]}, TypeError, "expected documents to be a torch.Tensor, got list"),
    ({"window": (-1, 0)}, ValueError, "left of window to be at least 0, or None for no limit on that side, got -1"),
    ({"window": 5}, TypeError, "expected window to be"),
    ({"key_range": (ints(3), ints(2))}, ValueError, "expected 0 <= start <= stop <= 20 in key_range, got 3 and 2"),
    ({"key_range": (ints(0), ints(21))}, ValueError, "got 0 and 21"),
    ({"key_range": (ints(0, 0), ints(1, 1))}, ValueError, r"expected the start of key_range of shape \(B,\) = \(1,\)"),
    ({"key_range": ints(0)}, TypeError, "expected key_range to be"),
    ({"softcap": 0.0}, ValueError, "expected softcap to be positive and finite, or None for no cap, got 0"),
    ({"softcap": -1}, ValueError, "got -1"),
    ({"softcap": math.inf}, ValueError, "got inf"),
    ({"alibi": torch.zeros(3, device=DEVICE)}, ValueError, r"expected alibi of shape \(H_q,\) = \(2,\), got \(3,\)"),
    ({"sinks": torch.zeros(2, 1, device=DEVICE)}, ValueError, "expected sinks of shape"),
    ({"sinks": torch.zeros(2, device=DEVICE, dtype=torch.int32)}, TypeError, "expected sinks in float32"),
    ({"softcap": 1.0, "check": 1}, TypeError, "expected check to be True or False, got 1"),
    ({"check": None}, TypeError, "expected check to be True or False, got None"),
)  # fmt: skip


@pytest.mark.parametrize("options, error, message", BAD, ids=str)
def test_bad_options_are_rejected_before_a_launch(options, error, message, monkeypatch):
    monkeypatch.setattr(operators, "attention_forward_portable", None)
    q, k, v, _ = make(small(), DEVICE)
    with pytest.raises(error, match=message):
        flash_attention(q, k, v, **({"check": True} | options))


def test_documents_want_as_many_queries_as_keys():
    q, k, v, _ = make(Problem(3, 20, 16), DEVICE)
    with pytest.raises(ValueError, match="expected N_q = N_k with documents"):
        flash_attention(q, k, v, documents=ints(0, 20))


def test_explain_rejects_the_same():
    q, k, v, _ = make(small(), DEVICE)
    with pytest.raises(ValueError, match="expected softcap"):
        fl.explain(q, k, v, softcap=0.0)
    found = fl.explain(q, k, v, documents=ints(0, 5, 9, 20), window=(3, 0), sinks=torch.zeros(2, device=DEVICE))
    assert found.forward.kernel == found.backward.kernel == "portable"
    assert found.forward.why == found.backward.why == "kernels run in the interpreter" or not INTERPRETED


@pytest.mark.parametrize(
    "change, message",
    (
        ({"q": torch.zeros(1, 2, 5, 16)}, r"expected q of shape \(T, H, D\), got \(1, 2, 5, 16\)"),
        ({"cu_seqlens_q": ints(0, 2, 4)}, "expected cu_seqlens_q to end at N = 5, got 4"),
        ({"cu_seqlens_k": ints(0, 7)}, "expected as many offsets in cu_seqlens_q as in cu_seqlens_k, got 3 and 2"),
        ({"cu_seqlens_k": ints(0, 8, 7)}, "expected cu_seqlens_k that do not fall"),
        ({"cu_seqlens_k": ints(0)}, "expected cu_seqlens_k to end at N = 7, got no sequence"),
    ),
    ids=str,
)
def test_bad_packed_sequences_are_rejected(change, message):
    q, k = torch.zeros(5, 2, 16, device=DEVICE), torch.zeros(7, 2, 16, device=DEVICE)
    call = {"q": q, "k": k, "v": k, "cu_seqlens_q": ints(0, 2, 5), "cu_seqlens_k": ints(0, 3, 7)} | change
    with pytest.raises(ValueError, match=message):
        flash_attention_varlen(**call, check=True)


@pytest.mark.skipif(not INTERPRETED, reason="on a GPU offsets are looked at with check alone")
def test_the_interpreter_checks_always():
    q, k, v, _ = make(small(), DEVICE)
    with pytest.raises(ValueError, match="expected documents to end at N = 20, got 19"):
        flash_attention(q, k, v, documents=ints(0, 19))


def test_elsewhere_only_when_asked(monkeypatch):
    """Without `check` no number is read on the host; with it, before the launch."""
    q, k, v, _ = make(small(), DEVICE)
    monkeypatch.setattr(operators, "INTERPRETED", False)
    seen = []
    monkeypatch.setattr(torch.Tensor, "tolist", lambda t: seen.append(t) or [0, 19])
    flash_attention(q, k, v, documents=ints(0, 19))
    assert not seen
    with pytest.raises(ValueError, match="got 19"):
        flash_attention(q, k, v, documents=ints(0, 19), check=True)


@pytest.mark.skipif(not INTERPRETED, reason="tests/gpu has its own")
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_sinks_and_slopes_in_16_bits_are_converted(dtype):
    q, k, v = (torch.randn(1, 2, 5, 16) for _ in range(3))
    for name in ("sinks", "alibi"):
        narrow = torch.tensor([0.3, -1.2], dtype=dtype, requires_grad=True)
        wide = narrow.detach().float().requires_grad_()
        got, want = (flash_attention(q, k, v, **{name: t}) for t in (narrow, wide))
        assert torch.equal(got, want)
        got.sum().backward()
        want.sum().backward()
        assert narrow.grad.dtype == dtype and torch.equal(narrow.grad, wide.grad.to(dtype))
