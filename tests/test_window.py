"""Windows through the whole ladder: results, gradients, and bytes that are those of the formulas."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import flashlearn as fl
from flashlearn.algorithms.tiled import visited_blocks
from flashlearn.core.mask import Mask
from flashlearn.core.steps import hbm_bytes, matmul_flops, record
from flashlearn.cost import (
    ATTENTION_COSTS,
    fused_backward_cost,
    standard_backward_cost,
    stored_backward_cost,
    two_pass_backward_cost,
)

ALGORITHMS = {
    "standard_attention": (),
    "two_pass_attention": ("block_k",),
    "one_pass_attention": ("block_k",),
    "tiled_attention_v1": ("block_q", "block_k"),
    "tiled_attention_v2": ("block_q", "block_k"),
}
WINDOWS = [(0, 0), (2, None), (None, 1), (1, 2), (3, 0), (20, 20)]
LENGTHS = [(7, 7), (5, 11), (11, 5), (1, 9), (9, 1)]
SETTINGS = random.Random(2).sample(list(itertools.product(WINDOWS, LENGTHS, (False, True))), 40)


def tensors(N_q, N_k, B=2, H_q=4, H_kv=2, D=3, dtype=torch.float64):
    g = torch.Generator().manual_seed(N_q * 100 + N_k)
    q, do = (torch.randn(B, H_q, N_q, D, generator=g, dtype=dtype) for _ in range(2))
    k, v = (torch.randn(B, H_kv, N_k, D, generator=g, dtype=dtype) for _ in range(2))
    return do, q, k, v


def reference(q, k, v, window, causal):
    """Softmax over the visible keys, 0 where there are none, by plain PyTorch."""
    N_q, N_k = q.shape[2], k.shape[2]
    left, right = window
    seen = Mask(N_q, N_k, left, 0 if causal else right).visible((0, N_q), (0, N_k))
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    S = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -1e30)
    return (torch.softmax(S, -1) * seen) @ v


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_sees_what_the_window_shows(name):
    blocks = {b: size for b, size in (("block_q", 2), ("block_k", 3)) if b in ALGORITHMS[name]}
    for window, (N_q, N_k), causal in SETTINGS:
        _, q, k, v = tensors(N_q, N_k)
        o = getattr(fl, name)(q, k, v, causal=causal, window=window, **blocks)
        torch.testing.assert_close(o, reference(q, k, v, window, causal), msg=f"{window} {N_q} {N_k} {causal}")


@pytest.mark.parametrize("form", ["dense", "two sweeps", "fused"])
def test_gradients_are_those_of_autograd(form):
    for window, (N_q, N_k), causal in SETTINGS[::2]:
        do, *qkv = tensors(N_q, N_k)
        q, k, v = (t.requires_grad_() for t in qkv)
        expected = torch.autograd.grad(reference(q, k, v, window, causal), (q, k, v), do)
        options = {"causal": causal, "window": window}
        if form == "dense":
            got = fl.attention_backward(do, q, k, v, **options)
        else:
            blocks = {"block_q": 2, "block_k": 3}
            o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True, **options, **blocks)
            got = fl.tiled_attention_backward(do, q, k, v, o, lse, fused=form == "fused", **options, **blocks)
        for mine, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(mine, theirs, msg=f"{window} {N_q} {N_k} {causal}")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_bytes_and_flops_are_those_of_the_formula(name):
    rng = random.Random(0)
    for window, (N_q, N_k), causal in rng.sample(SETTINGS, 25):
        _, q, k, v = tensors(N_q, N_k, dtype=torch.float16)
        blocks = {b: rng.randint(1, 4) for b in ALGORITHMS[name]}
        options = {"causal": causal, "window": window, **blocks}
        steps = record(getattr(fl, f"{name}_steps")(q, k, v, **options))
        cost = ATTENTION_COSTS[name](2, 4, N_q, N_k, 3, dtype=torch.float16, **options)
        assert hbm_bytes(steps) == (cost.read, cost.written), (options, N_q, N_k)
        assert matmul_flops(steps) == cost.flops, (options, N_q, N_k)


def test_bytes_of_the_backward_passes_are_those_of_the_formulas():
    rng = random.Random(1)
    for window, (N_q, N_k), causal in rng.sample(SETTINGS, 25):
        do, q, k, v = tensors(N_q, N_k, dtype=torch.float16)
        options, blocks = (
            {"causal": causal, "window": window},
            {"block_q": rng.randint(1, 4), "block_k": rng.randint(1, 4)},
        )
        o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True, **options)
        runs = [(standard_backward_cost, {}, fl.attention_backward_steps(do, q, k, v, **options))]
        P = fl.last(fl.standard_attention_steps(q, k, v, **options)).values["P"]
        runs.append((stored_backward_cost, {}, fl.attention_backward_steps(do, q, k, v, stored=P, **options)))
        for formula, fused in ((two_pass_backward_cost, False), (fused_backward_cost, True)):
            steps = fl.tiled_attention_backward_steps(do, q, k, v, o, lse, fused=fused, **options, **blocks)
            runs.append((formula, blocks, steps))
        for formula, sizes, steps in runs:
            steps = record(steps)
            cost = formula(2, 4, N_q, N_k, 3, dtype=torch.float16, H_kv=2, **options, **sizes)
            assert hbm_bytes(steps) == (cost.read, cost.written), (formula.__name__, options, sizes, N_q, N_k)
            assert matmul_flops(steps) == cost.flops


def test_a_window_visits_few_blocks_and_reads_q_once_wherever_it_starts():
    _, q, k, v = tensors(64, 64, B=1, H_q=1, H_kv=1, D=4, dtype=torch.float32)
    steps = record(fl.tiled_attention_v2_steps(q, k, v, causal=True, window=(8, None), block_q=8, block_k=8))
    visits = [(s.values["i"], s.values["j"]) for s in steps if s.matmuls]
    assert visits == [(i, j) for i in range(8) for j in (i - 1, i) if j >= 0]
    assert len(visits) == visited_blocks(64, 64, 8, 8, True, (8, None)) == 15 < visited_blocks(64, 64, 8, 8, True) == 36
    assert hbm_bytes(steps, "Q").read == q.numel() * 4


def test_the_names_in_a_step_are_documented():
    from flashlearn.core.steps import VALUES

    do, q, k, v = tensors(5, 5, dtype=torch.float32)
    o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True)
    x = torch.randn(5)
    runs = [getattr(fl, f"{name}_steps")(q, k, v) for name in ALGORITHMS]
    runs += [fl.attention_backward_steps(do, q, k, v), fl.merge_tree_steps(x, 2), fl.online_softmax_steps(x)]
    runs += [
        fl.safe_softmax_steps(x),
        fl.naive_softmax_steps(x),
        fl.tiled_qkv_steps(q[0, 0], k[0, 0], v[0, 0], block_q=2, block_k=2),
    ]
    runs += [fl.tiled_matmul_steps(q[0, 0], k[0, 0].mT, block_m=2, block_n=2, block_k=2)]
    for fused in (False, True):
        runs.append(fl.tiled_attention_backward_steps(do, q, k, v, o, lse, block_q=2, block_k=2, fused=fused))
    used = {name for steps in runs for step in steps for name in step.values if name not in step.shapes}
    assert used <= set(VALUES), used - set(VALUES)
