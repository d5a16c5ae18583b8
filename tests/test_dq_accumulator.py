"""What runs before and after the sweep of the Hopper backward pass, in the interpreter or compiled: delta, zeros, and dQ in
16 bits."""

from __future__ import annotations

import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn.core.target import INTERPRETED
from flashlearn.fast.hopper import dq_accumulator as module
from flashlearn.fast.hopper.dq_accumulator import Preprocessed, postprocess, preprocess
from tests.summed import as_summed, tiles

DEVICE = "cpu" if INTERPRETED else "cuda"
SHAPES = [(2, 3, 130, 64), (1, 2, 64, 128), (1, 1, 1, 8), (2, 2, 70, 96), (1, 2, 70, 192), (1, 1, 130, 232)]


def filled(*shape: int, dtype=torch.float16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


@pytest.mark.parametrize("with_dlse", (False, True))
@pytest.mark.parametrize("shape", SHAPES)
def test_lse_delta_and_zeros(shape, with_dlse):
    B, H, N, D = shape
    o, do = filled(*shape), filled(B, N, H, D + 1)[..., 1:].transpose(1, 2)  # columns of a wider tensor, heads inside
    dlse = filled(B, N, H, dtype=torch.float32).transpose(1, 2) if with_dlse else None
    lse = filled(B, N, H, dtype=torch.float32).transpose(1, 2)
    lse[0, 0, N // 2] = -torch.inf  # a query that saw no key
    rows, sums, counters, zeroed = preprocess(o, do, lse, 0.3, dlse)
    block_m = 128 if D <= 64 else 64
    blocks = -(-N // block_m)
    assert rows.shape == (B, H, 2, blocks * block_m) and rows.dtype == torch.float32 and rows.is_contiguous()
    want = (lse.double() / 0.3).masked_fill(lse == -torch.inf, torch.inf)
    torch.testing.assert_close(rows[:, :, 0, :N].double(), want, rtol=1e-6, atol=0)
    want = (o.double() * do.double()).sum(-1) - (dlse.double() if with_dlse else 0)
    torch.testing.assert_close(rows[:, :, 1, :N].double(), want, rtol=1e-5, atol=1e-5)
    assert (rows[:, :, 0, N:] == torch.inf).all() and not rows[:, :, 1, N:].count_nonzero()
    assert sums.shape == (B, H, blocks * tiles(D) * 128, 32) and sums.dtype == torch.float32
    assert sums.is_contiguous() and not sums.count_nonzero() and zeroed is None
    assert counters.shape == (B, H, 2) and counters.dtype == torch.int32 and not counters.count_nonzero()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_heads_get_zeros_and_the_others_are_counted(shape):
    B, H, N, D = shape
    o, do = filled(*shape), filled(B, H, N, D)
    rows, sums, counters, zeroed = preprocess(o, do, filled(B, H, N, dtype=torch.float32), 1.0, zeroed=1)
    torch.testing.assert_close(rows[:, :, 1, :N].double(), (o.double() * do.double()).sum(-1), rtol=1e-5, atol=1e-5)
    assert not sums[0, 0].count_nonzero() and zeroed == 1
    assert counters.shape == (B, H, 2) and counters.dtype == torch.int32 and not counters.count_nonzero()


def preprocessed_with(sums: torch.Tensor) -> Preprocessed:
    """What the sweep leaves: these sums, of which nothing is counted."""
    B, H = sums.shape[:2]
    return Preprocessed(torch.empty(0), sums, torch.zeros(B, H, 2, dtype=torch.int32, device=DEVICE), None)


@pytest.mark.skipif(not INTERPRETED, reason="counts waits in Python, as the interpreter runs kernels")
@pytest.mark.parametrize("counted", ((), (0,), (1, 2), (0, 1, 2), (3,), (0, 1, 2, 3)))
def test_only_rows_with_all_their_parts_do_not_wait_and_the_last_row_always_does(counted, monkeypatch):
    """Two sequences of two rows of two heads, 300 queries: 5 blocks a head. What is not there yet arrives with the first wait."""
    B, H, N, D, group, added = 2, 4, 300, 128, 2, 6
    exactly = filled(B, H, N, D, dtype=torch.float32)
    preprocessed, waits = preprocessed_with(as_summed(exactly)), []
    rows = preprocessed.counters.view(-1, 2)
    rows[:4, 0] = added  # of zeros: not what is asked
    rows[:4, 1] = added - 1
    rows[list(counted), 1] = added
    there = preprocessed.accumulator.clone()
    late = [row for row in range(4) if row not in counted]
    preprocessed.accumulator.view(4, -1)[late] = torch.nan

    def arrive():
        waits.append(True)
        preprocessed.accumulator.copy_(there)

    monkeypatch.setattr(module, "wait_for_previous", arrive)
    dq = torch.empty(B, H, N, D, dtype=torch.float16)
    postprocess(preprocessed, 0.3, dq, group, added)
    torch.testing.assert_close(dq, (exactly * 0.3).half(), rtol=0, atol=0)
    assert len(waits) == len({*late, 3}) * group * 5


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
@pytest.mark.parametrize("shape", SHAPES)
def test_dq_is_scaled_and_rounded_once(shape, dtype):
    B, H, N, D = shape
    exactly = filled(*shape, dtype=torch.float32)
    dq = torch.empty(B, N, H, D, dtype=dtype, device=DEVICE).transpose(1, 2)
    postprocess(preprocessed_with(as_summed(exactly)), 0.3, dq, 1, 4)
    exact = dtype == torch.float16 or not INTERPRETED  # Triton's interpreter cuts off where bfloat16 is rounded
    torch.testing.assert_close(dq, (exactly * 0.3).to(dtype), rtol=0 if exact else 2**-7, atol=0)
