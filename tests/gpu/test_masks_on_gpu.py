"""Masks and changed scores by compiled kernels: against brute force in float64, without waiting, with bad offsets.

    pytest -n 12 tests/gpu/test_masks_on_gpu.py

Nearly all of the time is compilation; the kernels of a combination of options are compiled once for each D and dtype.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: compiled kernels are not tested", allow_module_level=True)

from flashlearn.fast import dispatch, operators
from flashlearn.fast.api import flash_attention
from flashlearn.fast.varlen import flash_attention_varlen
from tests.grid import answers, bf16, dense, fp16, fp32, make
from tests.masked import Problem, check, given, offsets_of, results_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU: compiled kernels are not tested"),
]

LENGTHS = (0, 1, 300, 16, 0, 128, 255)  # of documents, 700 tokens
RANGES = ((0, 700), (130, 577))
EVERY = {"softcap": 20.0, "alibi": True, "sinks": True, "key_range": RANGES, "window": (333, 40)}
OPTIONS = {
    "window": {"window": (200, 0)},
    "both sides": {"window": (150, 70)},
    "documents": {"documents": LENGTHS, "causal": True},
    "ranges": {"key_range": RANGES},
    "softcap": {"softcap": 2.0, "causal": True},
    "alibi": {"alibi": True, "causal": True},
    "sinks": {"sinks": True, "causal": True},
    "every": {**EVERY, "documents": LENGTHS, "causal": True},
    "longer": {**EVERY, "N_q": 450},
}


def problem_of(name: str, D: int, dtype: torch.dtype) -> Problem:
    return Problem(**{"N_q": 700, "N_k": 700, "D": D, "dtype": dtype, "B": 2, "H_q": 4, "H_kv": 2, **OPTIONS[name]})


@pytest.fixture
def portable(monkeypatch):
    """The portable kernels, also where there are faster ones."""
    monkeypatch.setattr(operators, "choose", lambda *_, **__: dispatch.Choice("portable", {}, "the test wants it"))


def attend(options: dict):
    return lambda q, k, v: flash_attention(q, k, v, return_lse=True, **options)


@pytest.mark.parametrize("D, dtype", ((64, fp16), (128, bf16), (200, bf16)), ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_each_option(name, D, dtype):
    problem = problem_of(name, D, dtype)
    inputs, options = make(problem, "cuda"), given(problem, "cuda")
    check(problem, inputs, results_of(attend(options), inputs, options), options)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in ("softcap", "alibi", "every", "longer")])
def test_each_option_by_the_portable_kernels(name, portable):
    """The others they run anyway."""
    problem = problem_of(name, 64, fp16)
    inputs, options = make(problem, "cuda"), given(problem, "cuda")
    check(problem, inputs, results_of(attend(options), inputs, options), options)


@pytest.mark.parametrize("D", (64, 128, 192, 256))
@pytest.mark.parametrize("name", ("both sides", "documents", "ranges", "sinks"))
def test_same_bits_every_time_when_asked_for(name, D, request):
    """Twenty runs of the fast kernels, the same bits; programs enough that most wait for others."""
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    torch.use_deterministic_algorithms(True)
    problem = replace(problem_of(name, D, fp16), H_q=24, H_kv=12)
    inputs, options = make(problem, "cuda"), given(problem, "cuda")
    first = results_of(attend(options), inputs, options)
    check(problem, inputs, first, options)
    for _ in range(19):
        again = results_of(attend(options), inputs, options)
        assert all(torch.equal(again[what], first[what]) for what in first)


def test_float32():
    problem = replace(problem_of("every", 64, fp32), documents=None)
    inputs, options = make(problem, "cuda"), given(problem, "cuda")
    ours, want = results_of(attend(options), inputs, options), answers(problem, inputs, options)
    for name, got in ours.items():
        torch.testing.assert_close(got.double(), want[name], atol=2e-5, rtol=2e-5, msg=name)


@pytest.mark.parametrize("N_q", (1, 3))
def test_decoding(N_q):
    problem = Problem(
        N_q, 5000, 128, B=2, H_q=8, H_kv=2, dtype=bf16, causal=True, window=(1023, None), softcap=20.0, alibi=True,
        sinks=True, key_range=((0, 5000), (4500, 4990)),
    )  # fmt: skip
    for some in (problem, replace(problem, softcap=None, alibi=False, key_range=None)):
        inputs, options = make(some, "cuda"), given(some, "cuda")
        check(some, inputs, results_of(attend(options), inputs, options), options)


@pytest.mark.parametrize("lengths", ((1, 4096, 0, 2000, 1999, 96),), ids=str)
@pytest.mark.parametrize("window", (None, (1023, 0)))
def test_long_packed_sequences(lengths, window):
    """Each sequence against brute force on its own."""
    torch.manual_seed(0)
    cut = offsets_of(lengths, "cuda")
    q, k, v, do = (torch.randn(sum(lengths), 2, 128, device="cuda", dtype=fp16) for _ in range(4))
    leaves = [t.requires_grad_() for t in (q, k, v)]
    o = flash_attention_varlen(*leaves, cut, cut, causal=True, window=window)
    grads = torch.autograd.grad(o, leaves, do)
    for start, stop in zip(cut.tolist(), cut.tolist()[1:], strict=False):
        N = stop - start
        problem = Problem(N, N, 128, causal=True, window=window)
        parts = [t[start:stop].transpose(0, 1)[None].detach().double() for t in (q, k, v, do)]
        want = results_of(lambda *qkv: dense(problem, *qkv, {}), parts, {})  # noqa: B023
        for name, got in zip(("o", "dq", "dk", "dv"), (o.detach(), *grads), strict=True):
            error = got[start:stop].transpose(0, 1)[None].double() - want[name]
            # of one key dQ is 0: what is left of dP - delta, which cancel, is a rounding of float32
            assert not N or error.norm() < 3e-3 * want[name].norm() + 1e-5, f"{name} of {start}:{stop}"


def run(options: dict, problem: Problem, inputs) -> dict:
    return results_of(attend(options), inputs, options)


def test_the_host_waits_for_nothing():
    problem = problem_of("every", 64, fp16)
    inputs, options = make(problem, "cuda"), given(problem, "cuda")
    run(options, problem, inputs)  # compiles
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(options, problem, inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_same_bits_every_time():
    problem = problem_of("every", 64, fp16)
    inputs, options = make(problem, "cuda"), given(problem, "cuda")
    first = run(options, problem, inputs)
    for _ in range(10):
        again = run(options, problem, inputs)
        assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("offsets", ([0, 900, 100, -7, 700], [5, 10**9, -(10**9), 2, 3], [700, 0, 0, 0, 0]), ids=str)
def test_bad_offsets_read_nothing_outside(offsets):
    """The device stays alive, and a check tells; what the result is nobody says."""
    problem = problem_of("documents", 64, fp16)
    inputs, options = make(problem, "cuda"), given(problem, "cuda")
    options["documents"] = torch.tensor(offsets, dtype=torch.int32, device="cuda")
    run(options, problem, inputs)
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="expected documents"):
        flash_attention(*inputs[:3], check=True, **options)


def test_it_compiles_as_one_graph():
    problem = problem_of("every", 64, fp16)
    inputs, options = make(problem, "cuda"), given(problem, "cuda")
    compiled = torch.compile(attend(options), fullgraph=True)
    got, want = results_of(compiled, inputs, options), run(options, problem, inputs)
    assert all(torch.equal(got[name], want[name]) for name in want)
