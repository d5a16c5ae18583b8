"""Tiled products: equal to PyTorch's for any blocks, bytes equal to the formula, nothing stored on the way."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flashlearn as fl

size = st.integers(1, 12)


def randn(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(dtype)


@settings(max_examples=60, deadline=None)
@given(M=size, K=size, N=size, block_m=size, block_n=size, block_k=size)
def test_product_and_bytes_for_any_blocks(M, K, N, block_m, block_n, block_k):
    a, b = randn(M, K), randn(K, N)
    steps = fl.record(fl.tiled_matmul_steps(a, b, block_m=block_m, block_n=block_n, block_k=block_k))
    torch.testing.assert_close(steps[-1].output, a @ b)
    torch.testing.assert_close(steps[-1].written("C"), a @ b)
    reads = M * K * math.ceil(N / block_n) + K * N * math.ceil(M / block_m)
    assert fl.hbm_bytes(steps) == (8 * reads, 8 * M * N)
    assert fl.matmul_flops(steps) == 2 * M * K * N
    m, n, k = min(block_m, M), min(block_n, N), min(block_k, K)
    assert fl.sram_peak(steps) == 8 * (m * k + k * n + m * n)


@settings(max_examples=60, deadline=None)
@given(N_q=size, N_k=size, D=size, block_q=size, block_k=size)
def test_qkv_and_bytes_for_any_blocks(N_q, N_k, D, block_q, block_k):
    q, k, v = randn(N_q, D), randn(N_k, D), randn(N_k, D) + 1
    steps = fl.record(fl.tiled_qkv_steps(q, k, v, block_q=block_q, block_k=block_k))
    torch.testing.assert_close(steps[-1].output, q @ k.T @ v)
    torch.testing.assert_close(steps[-1].written("O"), q @ k.T @ v)
    T_r = math.ceil(N_q / block_q)
    assert fl.hbm_bytes(steps) == (8 * (N_q * D + T_r * 2 * N_k * D), 8 * N_q * D)
    assert fl.hbm_bytes(steps, "S") == (0, 0)
    assert fl.matmul_flops(steps) == 4 * N_q * N_k * D


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(dtype):
    a, b = randn(9, 7, dtype=dtype), randn(7, 5, dtype=dtype)
    c = fl.tiled_matmul(a, b, block_m=4, block_n=2, block_k=3)
    assert c.dtype == dtype
    torch.testing.assert_close(c, (a.double() @ b.double()).to(dtype))
    q, k, v = randn(6, 4, dtype=dtype), randn(5, 4, dtype=dtype), randn(5, 4, dtype=dtype)
    o = fl.tiled_qkv(q, k, v, block_q=4, block_k=3)
    assert o.dtype == dtype
    expected = q.double() @ k.double().T @ v.double()
    torch.testing.assert_close(o, expected.to(dtype))


def test_sixteen_bit_sums_are_kept_in_float32():
    ones = torch.ones(1, 4096, dtype=torch.float16)
    assert fl.tiled_matmul(ones, ones.T, block_m=1, block_n=1, block_k=1) == 4096


def test_the_courses_example_has_eight_workers():
    steps = fl.record(fl.tiled_matmul_steps(randn(8, 4), randn(4, 8), block_m=4, block_n=2, block_k=2))
    assert len({step.program for step in steps if step.program}) == 8
    assert len(steps) == 17
    assert sum(tile.name == "C" for step in steps for tile in step.writes) == 8
    assert {tile.shape for step in steps for tile in step.writes} == {(4, 2)}


def test_values_of_a_step_are_not_changed_by_later_ones():
    a, b = randn(4, 4), randn(4, 4)
    kept = [
        (step.values["acc"], step.values["acc"].clone())
        for step in fl.tiled_matmul_steps(a, b, block_m=2, block_n=2, block_k=1)
        if "acc" in step.values
    ]
    assert all(torch.equal(now, then) for now, then in kept)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (randn(2, 3), randn(2, 3), ValueError, r"a \(M, K\) and b \(K, N\) with one K .*got \(2, 3\) and \(2, 3\)"),
        (randn(2, 0), randn(0, 3), ValueError, "no empty dimension"),
        (randn(2), randn(2, 2), ValueError, r"expected a with two dimensions, got shape \(2,\)"),
        (torch.ones(2, 2, dtype=torch.int64), randn(2, 2), TypeError, "expected a in float16"),
        ([[1.0]], randn(1, 1), TypeError, "expected a to be a torch.Tensor, got list"),
        (randn(2, 2), randn(2, 2).float(), TypeError, "one dtype on one device, got torch.float64"),
    ],
)
def test_bad_matrices(a, b, error, message):
    with pytest.raises(error, match=message):
        fl.tiled_matmul(a, b, block_m=1, block_n=1, block_k=1)


@pytest.mark.parametrize("name", ["block_m", "block_n", "block_k"])
def test_bad_blocks(name):
    blocks = {"block_m": 1, "block_n": 1, "block_k": 1}
    with pytest.raises(ValueError, match=f"expected {name} of at least 1, got 0"):
        fl.tiled_matmul(randn(2, 2), randn(2, 2), **{**blocks, name: 0})
    with pytest.raises(TypeError, match=f"expected {name} to be an int, got float"):
        fl.tiled_matmul(randn(2, 2), randn(2, 2), **{**blocks, name: 1.5})


@pytest.mark.parametrize(
    ("q", "k", "v", "error", "message"),
    [
        (randn(2, 3), randn(4, 2), randn(4, 2), ValueError, r"q \(M, K\) and k\^T \(K, N\)"),
        (randn(2, 3), randn(4, 3), randn(5, 3), ValueError, r"expected v shaped as k, \(4, 3\), got \(5, 3\)"),
        (randn(2, 3), randn(4, 3), None, TypeError, "expected v to be a torch.Tensor, got NoneType"),
        (
            randn(2, 3),
            randn(4, 3),
            randn(4, 3).float(),
            TypeError,
            "in the dtype of k, torch.float64, got torch.float32",
        ),
        (randn(2, 3), randn(4, 3), randn(4, 3).to("meta"), ValueError, "v on the device of k, cpu, got meta"),
        (randn(2, 3), randn(1, 4, 3), randn(4, 3), ValueError, r"expected k\^T with two dimensions"),
        (randn(2, 3), "k", randn(4, 3), TypeError, r"expected k\^T to be a torch.Tensor, got str"),
    ],
)
def test_bad_qkv(q, k, v, error, message):
    with pytest.raises(error, match=message):
        fl.tiled_qkv(q, k, v, block_q=1, block_k=1)
