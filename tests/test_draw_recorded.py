"""Recorded kernels in the pictures of the algorithms: same tiles, same bytes on chip, same masks."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is recorded", allow_module_level=True)

import flashlearn as fl
from flashlearn import kernels
from flashlearn.algorithms.tiled import tiled_attention_v2_steps
from flashlearn.algorithms.tiled_backward import tiled_attention_backward_steps
from flashlearn.core.inputs import Sizes
from flashlearn.core.mask import Mask
from flashlearn.core.steps import hbm_bytes, record
from flashlearn.core.target import INTERPRETED
from flashlearn.kernels.forward import Launch
from flashlearn.kernels.recorder import kernel_steps
from flashlearn.show.draw import draw_backward, draw_tiling, drawable, without_numbers
from flashlearn.show.frame import as_runs, count, paint
from tests.slow import slow

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled here: nothing to record")

BLOCKS = {"block_q": 16, "block_k": 32}


def inputs(N_q=40, N_k=56, H=1):
    torch.manual_seed(0)
    return [torch.randn(1, H, n, 16) for n in (N_q, N_k, N_k, N_q)]


def both_ways(N_q=40, N_k=56):
    """Steps of (kernel, algorithm), forward and backward, causal, without the last."""
    q, k, v, do = inputs(N_q, N_k)
    launch = Launch(*BLOCKS.values())
    forward = list(kernel_steps(kernels.attention_forward, q, k, v, causal=True, launch=launch))
    o, lse = forward[-1].output
    backward = kernel_steps(kernels.attention_backward, do, q, k, v, o, lse, causal=True, launch=launch)
    algorithm = tiled_attention_v2_steps(q, k, v, causal=True, **BLOCKS)
    sweeps = tiled_attention_backward_steps(do, q, k, v, o, lse, causal=True, **BLOCKS)
    meeting = [step for step in sweeps if step.phase in ("dK and dV", "dQ")]
    recorded = [step for step in drawable(backward) if step.phase in ("attention_dkdv", "attention_dq")]
    return (list(drawable(forward))[:-1], list(algorithm)[:-1]), (recorded, meeting)


@pytest.mark.parametrize("N_q, N_k", ((40, 56), slow(56, 40), slow(33, 33)))
def test_what_is_on_chip_is_what_the_algorithm_has_there(N_q, N_k):
    for ours, theirs in both_ways(N_q, N_k):
        for kernel, algorithm in zip(ours, theirs, strict=True):
            met = algorithm.values["i"] is not None and algorithm.values["j"] is not None
            assert sorted(map(str, kernel.reads)) == sorted(map(str, algorithm.reads))
            if met:
                assert sorted(map(str, kernel.on_chip)) == sorted(map(str, algorithm.on_chip))
                assert sum(t.nbytes for t in kernel.on_chip) == sum(t.nbytes for t in algorithm.on_chip)


def test_masks_are_those_of_the_algorithm():
    (forward, algorithm), (backward, sweeps) = both_ways()
    assert any(step.values["masked"] for step in forward)
    for kernel, other in zip(forward, algorithm, strict=True):
        if kernel.values["masked"]:
            assert torch.equal(kernel.values["S"].isneginf(), other.values["S"].isneginf())
        else:
            assert "S" not in kernel.values
    for kernel, other in zip(backward, sweeps, strict=True):
        if kernel.values["masked"]:
            assert torch.equal(kernel.values["P"] == 0, other.values["P"] == 0)


def test_products_are_named_as_multiplied():
    _, (backward, sweeps) = both_ways()
    for kernel, other in zip(backward, sweeps, strict=True):
        assert len(kernel.values["products"]) == len(other.values["products"])
    assert backward[0].values["products"][0] == "Sᵀ = K Qᵀ"


def test_other_shapes_are_rejected():
    q, k, v, _ = inputs()
    steps = list(kernel_steps(kernels.attention_forward, q, k, v, launch=Launch(16, 32)))
    turned = [replace(step, matmuls=tuple((b, p, n, m) for b, m, n, p in step.matmuls)) for step in steps]
    with pytest.raises(ValueError, match=r"expected the products \('S = Q Kᵀ', .* got the shapes"):
        list(drawable(turned))


@pytest.mark.parametrize("mask", ({"causal": True}, {"window": (3, 5)}, {"causal": True, "window": (8, None)}), ids=str)
def test_what_a_recorded_kernel_hides_is_what_its_mask_hides(mask):
    q, k, v = torch.randn(3, 1, 1, 64, 16)
    shown = drawable(record(kernel_steps(fl.flash_attention, q, k, v, **mask)))
    steps = [step for step in shown if step.values.get("masked") and "S" in step.values]
    assert steps
    window = Mask.of(Sizes(1, 1, 1, 64, 64, 16), mask.get("causal", False), mask.get("window"))
    for step in steps:
        rows, cols = ((start, min(stop, 64)) for start, stop in (step.values["rows"], step.values["cols"]))
        assert torch.equal(step.values["S"][0, 0] == 0, window.visible(rows, cols)), (rows, cols)


def test_no_byte_is_added():
    q, k, v, _ = inputs(H=2)
    steps = record(kernel_steps(kernels.attention_forward, q, k, v, launch=Launch(16, 32)))
    shown = record(drawable(steps))
    assert hbm_bytes(shown) == hbm_bytes(steps)
    assert shown[-1].output is steps[-1].output and not shown[-1].on_chip


@pytest.mark.parametrize("shown", (4, slow(None)))
def test_pictures_of_all_steps_differ(shown):
    q, k, v, do = inputs()
    forward = list(kernel_steps(kernels.attention_forward, q, k, v, causal=True, launch=Launch(16, 32)))
    backward = kernel_steps(kernels.attention_backward, do, q, k, v, *forward[-1].output, causal=True)
    theirs = without_numbers(tiled_attention_v2_steps(q, k, v, causal=True, **BLOCKS))
    for steps, draw in (
        ({"kernel": drawable(forward), "algorithm": theirs}, draw_tiling),
        (drawable(backward), draw_backward),
    ):
        runs = as_runs(steps)
        frames = [np.asarray(paint(runs, number, draw, (12.8, 6.0))) for number in range(count(runs))[:shown]]
        assert all((a != b).any() for a, b in zip(frames, frames[1:], strict=False))


def test_the_columns_of_a_recorded_kernel_are_those_of_the_algorithm():
    """m is in units of log2 in the kernel; l and the factor are what they are."""
    from flashlearn.kernels import versions

    q, k, v = torch.randn(3, 1, 1, 24, 16, generator=torch.Generator().manual_seed(5))
    recorded = list(drawable(record(kernel_steps(versions.attend, versions.grouped_kernel, q, k, v, causal=True))))[:-1]
    algorithm = record(tiled_attention_v2_steps(q, k, v, causal=True, block_q=16, block_k=16))[:-1]
    assert len(recorded) == len(algorithm) == 3
    for ours, theirs in zip(recorded, algorithm, strict=True):
        m, l, factor = (theirs.values[name].reshape(-1, 1) for name in ("m_i", "l_i", "factor"))
        torch.testing.assert_close(ours.values["m_i"] * math.log(2), m.float())
        torch.testing.assert_close(ours.values["l_i"], l.float())
        torch.testing.assert_close(ours.values["factor"], factor.float())
