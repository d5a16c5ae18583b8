"""Solutions of the exercises of notebook 11. This file is imported when one is run: Triton is for Linux only."""

from __future__ import annotations

from flashlearn import kernels  # isort: skip (first: it chooses the backend)

import torch
import triton
import triton.language as tl

assert kernels  # imported for what it does


# 11.scale
@triton.jit
def scale_kernel(x_ptr, y_ptr, factor, stride_x, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    mask = offs < N
    x = tl.load(x_ptr + offs * stride_x, mask=mask)
    tl.store(y_ptr + offs, factor * x, mask=mask)


def scale(x, factor):
    y = torch.empty(x.shape, dtype=x.dtype)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, y, factor, x.stride(0), x.numel(), BLOCK=256)
    return y


# 11.row_lse
@triton.jit
def row_lse_kernel(x_ptr, lse_ptr, stride_xm, stride_xn, N, BLOCK_N: tl.constexpr):
    row = tl.program_id(0)
    offs_n = tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    x = tl.load(x_ptr + row * stride_xm + offs_n * stride_xn, mask=offs_n < N, other=float("-inf"))
    m = tl.max(x, 0)
    tl.store(lse_ptr + row, m + tl.log(tl.sum(tl.exp(x - m), 0)))


def row_lse(x):
    M, N = x.shape
    lse = torch.empty(M, dtype=x.dtype)
    row_lse_kernel[(M,)](x, lse, *x.stride(), N, BLOCK_N=triton.next_power_of_2(N))
    return lse


# 11.transpose
@triton.jit
def transpose_kernel(
    x_ptr, y_ptr, stride_xm, stride_xn, stride_yn, stride_ym, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)  # (BLOCK_M, BLOCK_N)
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask)
    # the same element of y: its row is n, its column m
    tl.store(y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :] * stride_yn, x, mask=mask)


def transpose(x):
    M, N = x.shape
    y = torch.empty(N, M, dtype=x.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    transpose_kernel[grid](x, y, *x.stride(), *y.stride(), M, N, BLOCK_M=16, BLOCK_N=16)
    return y
