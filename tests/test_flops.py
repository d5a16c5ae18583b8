"""What PyTorch's FLOP counter says of `flash_attention`: the same as of PyTorch's own."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: there is no flash_attention", allow_module_level=True)

from flashlearn import flash_attention, flash_attention_varlen
from flashlearn.kernels import INTERPRETED

DEVICE = "cpu" if INTERPRETED else "cuda"


def counted(call) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def tensors(B=2, H_q=4, H_kv=2, N_q=48, N_k=80, D=16):
    shapes = (H_q, N_q), (H_kv, N_k), (H_kv, N_k)
    return [torch.randn(B, H, N, D, device=DEVICE, requires_grad=True) for H, N in shapes]


@pytest.mark.parametrize("options", ({}, {"causal": True}, {"window": (7, 7)}, {"softcap": 5.0, "causal": True}))
def test_as_many_as_for_pytorch_s_attention(options):
    q, k, v = tensors()
    forward = counted(lambda: flash_attention(q, k, v, **options))
    shapes = [(2, 4, t.shape[2], 16) for t in (q, k, v)]  # all heads: PyTorch 2.11 counts no grouped ones
    assert forward == sdpa_flop_count(*shapes) == 4 * 2 * 4 * 48 * 80 * 16
    with torch.no_grad():
        assert counted(lambda: flash_attention(q, k, v, **options)) == forward
    both = counted(lambda: flash_attention(q, k, v, **options).sum().backward())
    assert both == forward + sdpa_backward_flop_count(q.shape, *shapes)


def test_packed_sequences_are_counted_one_by_one():
    q, k, v = (t[0].transpose(0, 1).detach() for t in tensors(B=1, N_q=60, N_k=60))
    offsets = torch.tensor((0, 10, 10, 40, 60), dtype=torch.int32, device=DEVICE)
    found = counted(lambda: flash_attention_varlen(q, k, v, offsets, offsets))
    assert found == 4 * 4 * 16 * (10**2 + 30**2 + 20**2)
