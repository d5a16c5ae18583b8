"""Windows and documents in the Hopper kernels: the spans, and the kernels' own text run by the simulator of barriers."""

from __future__ import annotations

import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is run", allow_module_level=True)

from flashlearn.kernels.hopper.bands import attention_spans
from tests.test_barriers import backward_run, forward_run, problem

CPU = torch.device("cpu")
INF = float("inf")


def offsets(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def dense(N_q, N_k, left, right, packed=None, key_range=None):
    """(B or 1, N_q, N_k) booleans, from the definition."""
    own, other = packed or (torch.tensor([0, N_q]), torch.tensor([0, N_k]))
    i, j = torch.arange(N_q)[:, None], torch.arange(N_k)
    mine, its = (torch.searchsorted(ends, row, right=True) - 1 for ends, row in ((own, i), (other, j)))
    at = i - own[mine + 1] + other[mine + 1]
    seen = mine == its
    seen &= True if left is None else j >= at - left
    seen &= True if right is None else j <= at + right
    start, stop = (t[:, None, None] for t in key_range or (torch.tensor([0]), torch.tensor([N_k])))
    return seen & (j >= start) & (j < stop)


def visible_by(spans, N):
    """The booleans that spans stand for, (.., rows, N)."""
    j = torch.arange(N)
    return (j >= spans[:, 0, :, None]) & (j < spans[:, 1, :, None])


RAGGED = offsets(1, 70, 0, 129, 1, 99)
KEYS = offsets(60, 3, 5, 100, 0, 42)
RANGES = torch.tensor([0, 70, 299, 300], dtype=torch.int32), torch.tensor([300, 211, 300, 300], dtype=torch.int32)
CASES = {
    "window": ((300, 300), dict(left=70, right=0)),
    "two sides, more queries": ((300, 210), dict(left=40, right=9)),
    "two sides, more keys": ((130, 300), dict(left=0, right=64)),
    "left alone": ((200, 200), dict(left=33, right=None)),
    "wide": ((100, 200), dict(left=1000, right=1000)),
    "documents": ((300, 300), dict(left=None, right=None, offsets=(RAGGED, RAGGED))),
    "causal documents": ((300, 300), dict(left=None, right=0, offsets=(RAGGED, RAGGED))),
    "packed": ((300, 210), dict(left=50, right=0, offsets=(RAGGED, KEYS))),
    "padded": ((300, 300), dict(left=90, right=0, key_range=RANGES)),
}


def spans_of(sizes, options, of_keys=False):
    return attention_spans(*sizes, CPU, **options, of_keys=of_keys)


@pytest.mark.parametrize("name", CASES)
def test_spans_are_the_mask(name):
    sizes, options = CASES[name]
    want = dense(*sizes, options["left"], options["right"], options.get("offsets"), options.get("key_range"))
    of_queries, of_keys = spans_of(sizes, options), spans_of(sizes, options, of_keys=True)
    assert torch.equal(visible_by(of_queries, sizes[1]), want)
    assert torch.equal(visible_by(of_keys, sizes[0]), want.mT)
    for spans in (of_queries, of_keys):
        assert (spans.diff(dim=-1) >= 0).all(), "the start or the end of a span moves back"


def test_bad_offsets_stay_inside():
    wrong = torch.tensor([5, -3, 1000, 7], dtype=torch.int32)
    for of_keys, most in ((False, 90), (True, 100)):
        spans = attention_spans(100, 90, CPU, left=None, right=0, offsets=(wrong, wrong), of_keys=of_keys)
        assert (spans >= 0).all() and (spans <= most).all()


def attend(q, k, v, seen, sinks=None):
    """o and lse in float32, 0 and -inf, or the sink, where nothing is seen."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen[:, None], -INF)
    lse = s.logsumexp(-1)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks[:, None])
    return (s - lse.masked_fill(lse == -INF, 0.0)[..., None]).exp() @ v, lse


@pytest.mark.parametrize(
    ("name", "D", "how"),
    [
        ("window", 64, {}),
        pytest.param("window", 128, {"consumers": 3}, marks=pytest.mark.slow),
        ("packed", 64, {"block_n": 128, "consumers": 3}),
        pytest.param("documents", 128, {"stages": 3}, marks=pytest.mark.slow),
        pytest.param("causal documents", 64, {}, marks=pytest.mark.slow),
        pytest.param("two sides, more queries", 64, {"programs": 3}, marks=pytest.mark.slow),
        pytest.param("two sides, more keys", 64, {}, marks=pytest.mark.slow),
        pytest.param("wide", 64, {}, marks=pytest.mark.slow),
        ("padded", 64, {}),
    ],
)
def test_the_kernels_see_what_the_spans_say(name, D, how):
    sizes, options = CASES[name]
    B = 1 if "key_range" not in options else len(RANGES[0])
    q, k, v, do, *_ = problem(B, 2, 1, *sizes, D, False)
    wide = [t.float().requires_grad_() for t in (q, k, v)]
    seen = dense(*sizes, options["left"], options["right"], options.get("offsets"), options.get("key_range"))
    want, want_lse = attend(*wide, seen)
    o, lse = forward_run(q, k, v, False, **how, spans=spans_of(sizes, options))
    torch.testing.assert_close(o.float(), want, atol=3e-3, rtol=0)
    torch.testing.assert_close(lse, want_lse.detach(), atol=3e-3, rtol=0)
    gradients = torch.autograd.grad(want, wide, do.float())
    got = backward_run(q, k, v, do, o, lse, False, spans=spans_of(sizes, options, of_keys=True))
    for what, ours, wanted in zip(("dq", "dk", "dv"), got, gradients, strict=True):
        torch.testing.assert_close(ours.float(), wanted, atol=1e-2, rtol=1e-2, msg=what)


@pytest.mark.parametrize("sink", (-2.0, 3.0))
def test_a_sink_takes_part_in_the_sum_alone(sink):
    """Also where no key is seen: o = 0 and lse = sink."""
    sizes, options = CASES["packed"]
    q, k, v, *_ = problem(1, 2, 1, *sizes, 64, False)
    sinks = torch.tensor([sink, -sink])
    want, want_lse = attend(q.float(), k.float(), v.float(), dense(*sizes, 50, 0, (RAGGED, KEYS)), sinks)
    o, lse = forward_run(q, k, v, False, spans=spans_of(sizes, options), sinks=sinks)
    torch.testing.assert_close(o.float(), want, atol=3e-3, rtol=0)
    torch.testing.assert_close(lse, want_lse, atol=3e-3, rtol=0)
    assert (lse[0, 0] == sink).any()
