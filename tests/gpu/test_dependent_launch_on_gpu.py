"""Kernels that begin while the one before ends give what they give one after the other, at once and in CUDA graphs."""

from __future__ import annotations

import importlib.util
from functools import partial

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: compiled kernels are not tested", allow_module_level=True)

import flashlearn as fl
from flashlearn.fast import launcher as follow
from flashlearn.fast.decode import attention_decode

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU: compiled kernels are not tested"),
]


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def decode():
    """A call: two kernels, of which the second merges."""
    q, k, v = normal(2, 8, 1, 128), normal(2, 2, 4096, 128), normal(2, 2, 4096, 128)
    return partial(attention_decode, q, k, v, one_launch=False)


def pages():
    """The same over pages."""
    q, k, v = normal(2, 8, 1, 128), normal(64, 2, 128, 128), normal(64, 2, 128, 128)
    table = torch.randperm(64, device="cuda").view(2, 32).int()
    lengths = torch.tensor([4000, 300], dtype=torch.int32, device="cuda")
    return partial(fl.flash_attention_paged, q, k, v, table, lengths, return_lse=True)


def gradients():
    """dV, dK and dQ: three kernels."""
    q, k, v, do = normal(2, 4, 512, 64), normal(2, 2, 700, 64), normal(2, 2, 700, 64), normal(2, 4, 512, 64)
    o, lse = fl.flash_attention(q, k, v, causal=True, return_lse=True)
    backward = torch.ops.flashlearn.attention_backward
    return lambda: backward(do, None, q, k, v, o, lse, True, 0.125)[::-1]


@pytest.mark.parametrize("make", (decode, pages, gradients))
def test_early_is_as_in_turn(monkeypatch, make):
    if not follow.dependent(torch.device("cuda", torch.cuda.current_device())):
        pytest.skip("this GPU lets no kernel begin before the one before has ended")
    torch.manual_seed(0)
    calls = [make() for _ in range(8)]
    monkeypatch.setattr(follow, "ALLOWED", False)
    want = [call() for call in calls]
    monkeypatch.setattr(follow, "ALLOWED", True)
    for _ in range(50):
        agree([call() for call in calls], want)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = [call() for call in calls]
    for _ in range(50):
        graph.replay()
        agree(got, want)
        for results in got:
            for t in results:
                t.fill_(torch.nan)


def test_decoding_follows_whatever_was_there_before():
    """In a CUDA graph: nothing, a copy, zeros, another kernel, and two streams that join; each writes what it reads."""
    torch.manual_seed(0)
    q, k, v = normal(2, 8, 1, 128), normal(2, 2, 4096, 128), normal(2, 2, 4096, 128)
    call = partial(attention_decode, q, k, v, one_launch=False)
    written, other = q.clone(), torch.cuda.Stream()
    want = [call()[0], attention_decode(torch.zeros_like(q), k, v)[0], attention_decode(3 * written, k, v)[0]]
    got = []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got.append(call()[0])
        q.zero_()
        got.append(call()[0])
        q.copy_(written)
        got.append(call()[0])
        q.mul_(3)
        got.append(call()[0])
        here = torch.cuda.current_stream()
        other.wait_stream(here)
        with torch.cuda.stream(other):
            q.copy_(written)
        k.copy_(k.clone())
        here.wait_stream(other)
        got.append(call()[0])
    for _ in range(50):
        graph.replay()
        assert all(map(torch.equal, got, (want[0], want[1], want[0], want[2], want[0])))
        for o in got:
            o.fill_(torch.nan)


def agree(got, want) -> None:
    """The same bits, but for dQ, the last of three, which is added up in any order."""
    for ours, theirs in zip(got, want, strict=True):
        assert all(map(torch.equal, ours[:2], theirs[:2]))
        for dq, wanted in zip(ours[2:], theirs[2:], strict=True):
            torch.testing.assert_close(dq, wanted, atol=2e-3, rtol=2e-3)
