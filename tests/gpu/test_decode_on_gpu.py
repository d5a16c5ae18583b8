"""What only a GPU can show of the decoding kernels: compiled, over many shapes, long caches, the same bits.

Run on a machine with a CUDA GPU: `pytest tests/gpu`. Without one every test here is skipped, and says so.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: compiled kernels are not tested", allow_module_level=True)

from flashlearn.fast.api import flash_attention
from flashlearn.fast.decode import attention_decode, max_rows
from flashlearn.fast.dispatch import choose_forward
from tests.grid import LAYOUTS, Case, bf16, check_kernel, fp16, fp32, make, results

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU: compiled kernels are not tested"),
]

torch.set_num_threads(1)  # the CPU only draws inputs here; many workers share it
DTYPES = (fp16, bf16, fp32)


def check_all(cases, splits=(None,)) -> None:
    """Check every case with every number of splits, and then tell of all that failed."""
    faults = []
    for case in cases:
        inputs = make(case, "cuda")
        for each, one_launch in itertools.product(splits, (False, True)):
            how = {"splits": each, "one_launch": one_launch}
            o, lse = attention_decode(*inputs[:3], causal=case.causal, scale=case.scale, **how)
            try:
                check_kernel(case, inputs, {"o": o, "lse": lse})
            except AssertionError as fault:
                faults.append(f"{how}: {fault}")
    assert not faults, f"{len(faults)} failed:\n" + "\n".join(faults[:10])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (1, 40, 64, 128, 256))
@pytest.mark.parametrize("causal", (False, True))
def test_shapes_and_splits(dtype, D, causal):
    """Every pair of lengths, heads and layouts in turn: each is compiled anew, for seconds."""
    layouts, heads = itertools.cycle(LAYOUTS), ((2, 2), (6, 2), (8, 1))
    cases = []
    for (i, N_q), (j, N_k) in itertools.product(enumerate((1, 2, 16)), enumerate((1, 63, 700))):
        H_q, H_kv = heads[(i + j + causal) % 3]
        if N_q * H_q // H_kv <= max_rows(dtype.itemsize):
            cases.append(Case(N_q, N_k, D, causal, dtype, H_q, H_kv, B=2, layout=next(layouts)))
    assert {case.layout for case in cases} == set(LAYOUTS)
    check_all(cases, splits=(None, 1, 3, 60))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (64, 128, 256))
def test_full_blocks_of_rows(dtype, D):
    """As many rows as a program takes; scores of every kind."""
    most = max_rows(dtype.itemsize)
    cases = [Case(most, N_k, D, causal=True, dtype=dtype) for N_k in (17, 64, 1000)]
    cases += [Case(most // 8, 1000, D, dtype=dtype, H_q=8, H_kv=1, scale=scale) for scale in (-0.2, 0.0, 1.0)]
    cases += [Case(2, 1000, D, True, dtype, logits=logits) for logits in ("large", "extreme", "rising", "equal")]
    check_all(cases, splits=(None, 5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("D", (64, 128))
def test_long_cache(dtype, D):
    """65536 keys, through the op, against float64."""
    for case in (Case(1, 65536, D, True, dtype, 8, 2), Case(4, 65536, D, True, dtype, 8, 2, layout="transposed")):
        inputs = make(case, "cuda")
        assert choose_forward(*inputs[:3], scale=0.1).name == "decode"
        ours = results(lambda *qkv: flash_attention(*qkv, causal=True, return_lse=True), *inputs[:3])
        check_kernel(case, inputs, ours)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_behind_a_cache(dtype):
    """o and lse of the decoding kernels go into whichever backward kernels run here."""
    case = Case(4, 1000, 64, causal=True, dtype=dtype, H_q=8, H_kv=2)
    inputs = make(case, "cuda")
    assert choose_forward(*inputs[:3], scale=0.1).name == "decode"
    ours = results(lambda *qkv: flash_attention(*qkv, causal=True, return_lse=True), *inputs)
    assert set(ours) == {"o", "lse", "dq", "dk", "dv"}
    check_kernel(case, inputs, ours)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_same_bits_every_time(dtype):
    """Whichever program comes last merges the splits in their order."""
    q, k, v, _ = make(Case(1, 20000, 128, dtype=dtype, H_q=8, H_kv=2), "cuda")
    for one_launch in (False, True):
        first = attention_decode(q, k, v, one_launch=one_launch)
        for _ in range(200):
            assert all(map(torch.equal, first, attention_decode(q, k, v, one_launch=one_launch)))


def test_streams_side_by_side():
    """Each stream has its own counters: calls that overlap do not take each other's splits for their own."""
    cases = [Case(1, 30000, 64, dtype=fp16, H_q=8, H_kv=2, B=b) for b in (1, 2, 3, 4)]
    inputs = [make(case, "cuda")[:3] for case in cases]
    want = [attention_decode(*qkv, one_launch=True) for qkv in inputs]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    got = []
    for _ in range(100):
        for stream, qkv in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                got.append(attention_decode(*qkv, one_launch=True))
    torch.cuda.synchronize()
    for number, result in enumerate(got):
        assert all(map(torch.equal, want[number % len(cases)], result))


@pytest.mark.parametrize("one_launch", (None, True))
def test_in_a_cuda_graph(one_launch):
    """Replayed with other numbers in the same tensors, while the same call runs outside on another stream."""
    decode = functools.partial(attention_decode, one_launch=one_launch)
    q, k, v, _ = make(Case(1, 30000, 128, dtype=fp16, H_q=8, H_kv=2), "cuda")
    other = make(Case(1, 30000, 128, dtype=fp16, H_q=8, H_kv=2, logits="rising"), "cuda")[:3]
    want = [attention_decode(*qkv, one_launch=True) for qkv in ((q, k, v), other)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = decode(q, k, v)
    stream = torch.cuda.Stream()
    for _ in range(50):
        with torch.cuda.stream(stream):
            outside = decode(*other)
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(replayed, want[0], atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(outside, want[1], atol=1e-3, rtol=1e-3)
    for t, new in zip((q, k, v), other, strict=True):
        t.copy_(new)
    graph.replay()
    torch.testing.assert_close(replayed, want[1], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dim", (0, 1, 2, 3))
def test_strides_past_32_bits(alone, dim):
    """Elements of a cache more than 2^31 apart, along every dimension in turn: as from a compact copy."""
    shape = (3, 4, 1000, 64)
    step = (2**31 + 2**20) // (shape[dim] - 1) // 16 * 16
    strides = [4 * 1000 * 64, 1000 * 64, 64, 1]
    strides[dim] = step
    base = torch.empty(sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1, dtype=fp16, device="cuda")
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 8, 2, 64, dtype=fp16, device="cuda"), *torch.randn(2, *shape, dtype=fp16, device="cuda"))
    want = attention_decode(q, k, v, causal=True)
    for i, one_launch in itertools.product((0, 1), (False, True)):
        kv = [k, v]
        kv[i] = base.as_strided(shape, strides).copy_(kv[i])
        for got, compact in zip(attention_decode(q, *kv, causal=True, one_launch=one_launch), want, strict=True):
            torch.testing.assert_close(got, compact, atol=4e-3, rtol=4e-3)
