"""What runs before and after the sweep of the Hopper backward pass, in the interpreter or compiled: delta, zeros, and dQ in
16 bits."""

from __future__ import annotations

import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn.kernels.hopper.sums import begin_sums, block_of_queries, end_sums
from flashlearn.kernels.target import INTERPRETED

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
    delta, sums = begin_sums(o, do, dlse)
    want = (o.double() * do.double()).sum(-1) - (dlse.double() if with_dlse else 0)
    torch.testing.assert_close(delta.double(), want, rtol=1e-5, atol=1e-5)
    blocks = -(-N // (128 if D <= 64 else 64))
    assert sums.shape == (B, H, blocks * 256, 32) and sums.dtype == torch.float32
    assert sums.is_contiguous() and not sums.count_nonzero()


def as_summed(dq: torch.Tensor) -> torch.Tensor:
    """dq (B, H, N, D) in the order that `begin_sums` tells of, entry by entry; NaN where there is no query or column."""
    B, H, N, D = dq.shape
    rows = block_of_queries(D)
    blocks = -(-N // rows)
    sums = torch.full((B, H, blocks * 8192), float("nan"), device=dq.device)
    i, d = torch.arange(N)[:, None], torch.arange(D)[None, :]
    tile = i // rows * 2 + (d // 64 if rows == 64 else i % 128 // 64)
    r, c = i % 64, d % 64
    w, h, g, j, t, p = r // 16, r % 16 // 8, r % 8, c // 8, c % 8 // 2, c % 2
    place = tile * 4096 + 4 * (32 * (8 * w + j) + 4 * g + t) + 2 * h + p
    sums[..., place.flatten().to(dq.device)] = dq.flatten(2)
    return sums.view(B, H, blocks * 256, 32)


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
