"""Windows, documents, padding and sinks in the compiled Hopper kernels, against float64."""

from __future__ import annotations

import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: compiled kernels are not tested", allow_module_level=True)

from flashlearn.fast import dispatch
from flashlearn.fast.hopper.backward_launch import attention_backward_hopper
from flashlearn.fast.hopper.forward import attention_forward_hopper
from flashlearn.fast.hopper.ranges import attention_ranges
from tests.ranges import CASES, attend, dense

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU: compiled kernels are not tested"),
]
LAUNCHES = ((64, {}), (64, dispatch.TWO_CTAS), (128, {}), (256, {"block_n": 64}))
BOUND = {torch.float16: 3e-3, torch.bfloat16: 2e-2}  # of the norm


def on_gpu(options):
    there = lambda pair: pair and tuple(t.cuda() for t in pair)  # noqa: E731
    return {name: there(value) if isinstance(value, tuple) else value for name, value in options.items()}


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("D, options_of_launch", LAUNCHES)
@pytest.mark.parametrize("times", (1, 7))
@pytest.mark.parametrize("name", CASES)
def test_ranges(name, times, D, options_of_launch, dtype):
    """`times` as long, so that whole blocks are skipped, seen and crossed; twenty runs of the same bits but for dq."""
    if why := dispatch.why_not_this_machine(torch.device("cuda", torch.cuda.current_device())):
        pytest.skip(why)
    torch.manual_seed(0)
    (N_q, N_k), options = CASES[name]
    N_q, N_k = times * N_q, times * N_k
    longer = lambda value: value if value is None else tuple(times * t for t in value)  # noqa: E731
    options = {key: longer(value) if isinstance(value, tuple) else value for key, value in options.items()}
    B = len(options["key_range"][0]) if "key_range" in options else 2
    q, do = (torch.randn(B, 4, N_q, D, device="cuda", dtype=dtype) for _ in range(2))
    k, v = (torch.randn(B, 2, N_k, D, device="cuda", dtype=dtype) for _ in range(2))
    sinks = torch.tensor([0.5, -1.0, 3.0, -20.0], device="cuda") if name in ("window", "packed") else None
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    seen = dense(N_q, N_k, options["left"], options["right"], options.get("offsets"), options.get("key_range")).cuda()
    want, want_lse = attend(*wide, seen, sinks)
    gradients = torch.autograd.grad(want, wide, do.double())
    ranges, of_keys = (attention_ranges(N_q, N_k, q.device, **on_gpu(options), of_keys=side) for side in (False, True))
    first = None
    for _ in range(20):
        o, lse = attention_forward_hopper(
            q, k, v, causal=False, scale=D**-0.5, ranges=ranges, sinks=sinks, **options_of_launch
        )
        grads = attention_backward_hopper(do, q, k, v, o, lse, causal=False, scale=D**-0.5, ranges=of_keys)
        first = first or (o, lse, *grads[1:])
        assert all(map(torch.equal, first, (o, lse, *grads[1:])))
    for what, got, wanted in zip(("o", "dq", "dk", "dv"), (o, *grads), (want, *gradients), strict=True):
        error = (got.double() - wanted).norm() / wanted.norm()
        assert error < BOUND[dtype], f"{what}: expected a relative error under {BOUND[dtype]}, got {error:.1e}"
    torch.testing.assert_close(lse.double(), want_lse.detach(), atol=1e-4, rtol=1e-4)
