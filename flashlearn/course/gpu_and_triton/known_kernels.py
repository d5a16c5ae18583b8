"""The kernels of the known wrong answers to notebook 11, imported when one is run: Triton is for Linux only."""

from flashlearn import kernels  # isort: skip (first: it chooses the backend)

import torch
import triton
import triton.language as tl

assert kernels  # imported for what it does


@triton.jit
def scale_kernel(x_ptr, y_ptr, factor, stride, N, MASKED: tl.constexpr, PID: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK * PID + tl.arange(0, BLOCK)
    mask = (offs < N) | (not MASKED)
    tl.store(y_ptr + offs, factor * tl.load(x_ptr + offs * stride, mask=mask), mask=mask)


def scale(x, factor, masked=True, pid=1, stride=None, rounded_down=False, block=256):
    y = torch.empty(x.shape)
    stride = x.stride(0) if stride is None else stride
    programs = x.numel() // block if rounded_down else triton.cdiv(x.numel(), block)
    scale_kernel[(max(1, programs),)](x, y, factor, stride, x.numel(), MASKED=masked, PID=pid, BLOCK=block)
    return y


@triton.jit
def lse_kernel(
    x_ptr, y_ptr, stride_m, stride_n, N,
    OTHER: tl.constexpr, MASKED: tl.constexpr, SAFE: tl.constexpr, TWICE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    ptrs, mask = x_ptr + row * stride_m + offs * stride_n, (offs < N) | (not MASKED)
    x = tl.load(ptrs, mask=mask, other=OTHER)
    m = tl.max(x, 0) * SAFE
    if TWICE:
        x = tl.load(ptrs, mask=mask, other=OTHER)
    tl.store(y_ptr + row, m + tl.log(tl.sum(tl.exp(x - m), 0)))


def row_lse(x, other=float("-inf"), masked=True, safe=1, twice=False, contiguous=False):
    (M, N), y = x.shape, torch.empty(len(x))
    strides = (N, 1) if contiguous else x.stride()
    block = triton.next_power_of_2(N)
    lse_kernel[(M,)](x, y, *strides, N, OTHER=other, MASKED=masked, SAFE=safe, TWICE=twice, BLOCK=block)
    return y


@triton.jit
def transpose_kernel(
    x_ptr, y_ptr, stride_xm, stride_xn, stride_ym, stride_yn, M, N, M_MASK, N_MASK, BLOCK: tl.constexpr
):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + m * stride_xm + n * stride_xn, mask=(m < M) & (n < N))
    tl.store(y_ptr + m * stride_ym + n * stride_yn, x, mask=(m < M_MASK) & (n < N_MASK))


def transpose(x, swap=True, swap_mask=False, mask=True, contiguous=False, rows_only=False):
    (M, N), y = x.shape, torch.empty(x.shape[::-1])
    stride_x = (N, 1) if contiguous else x.stride()
    stride_y = y.stride()[::-1] if swap else y.stride()
    limits = (N, M) if swap_mask else (M, N) if mask else (1 << 20, 1 << 20)
    grid = (triton.cdiv(M, 16), 1 if rows_only else triton.cdiv(N, 16))
    transpose_kernel[grid](x, y, *stride_x, *stride_y, M, N, *limits, BLOCK=16)
    return y


def copy_and_view(x):
    return transpose(x.T).T
