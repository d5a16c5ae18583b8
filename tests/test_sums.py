"""What runs before and after the sweep of the Hopper backward pass, in the interpreter or compiled: delta, zeros, and dQ in
16 bits."""

from __future__ import annotations

import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn.kernels.hopper.sums import begin_sums, end_sums
from flashlearn.kernels.target import INTERPRETED
from tests.summed import as_summed

DEVICE = "cpu" if INTERPRETED else "cuda"
SHAPES = [(2, 3, 130, 64), (1, 2, 64, 128), (1, 1, 1, 8), (2, 2, 70, 96)]


def filled(*shape: int, dtype=torch.float16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


@pytest.mark.parametrize("with_dlse", (False, True))
@pytest.mark.parametrize("shape", SHAPES)
def test_delta_and_zeros(shape, with_dlse):
    B, H, N, D = shape
    o, do = filled(*shape), filled(B, N, H, D + 1)[..., 1:].transpose(1, 2)  # columns of a wider tensor, heads inside
    dlse = filled(B, N, H, dtype=torch.float32).transpose(1, 2) if with_dlse else None
    delta, sums, ready = begin_sums(o, do, dlse)
    want = (o.double() * do.double()).sum(-1) - (dlse.double() if with_dlse else 0)
    torch.testing.assert_close(delta.double(), want, rtol=1e-5, atol=1e-5)
    blocks = -(-N // (128 if D <= 64 else 64))
    assert sums.shape == (B, H, blocks * 256, 32) and sums.dtype == torch.float32
    assert sums.is_contiguous() and not sums.count_nonzero() and ready is None


@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_heads_get_zeros_and_the_others_are_counted(shape):
    B, H, N, D = shape
    o, do = filled(*shape), filled(B, H, N, D)
    delta, sums, ready = begin_sums(o, do, zeroed=1)
    torch.testing.assert_close(delta.double(), (o.double() * do.double()).sum(-1), rtol=1e-5, atol=1e-5)
    assert not sums[0, 0].count_nonzero()
    assert ready.shape == (B, H) and ready.dtype == torch.int32 and not ready.count_nonzero()


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
@pytest.mark.parametrize("shape", SHAPES)
def test_dq_is_scaled_and_rounded_once(shape, dtype):
    B, H, N, D = shape
    exactly = filled(*shape, dtype=torch.float32)
    like = torch.empty(B, N, H, D, dtype=dtype, device=DEVICE).transpose(1, 2)
    dq = end_sums(as_summed(exactly), 0.3, like)
    exact = dtype == torch.float16 or not INTERPRETED  # Triton's interpreter cuts off where bfloat16 is rounded
    torch.testing.assert_close(dq, (exactly * 0.3).to(dtype), rtol=0 if exact else 2**-7, atol=0)
    assert dq.stride() == torch.empty_like(like).stride()
