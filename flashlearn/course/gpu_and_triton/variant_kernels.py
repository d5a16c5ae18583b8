"""The kernels of the wrong answers to notebook 11, imported when one is run."""

from flashlearn import kernels  # isort: skip (first: it chooses the backend)

import torch
import triton
import triton.language as tl

assert kernels  # imported for what it does


@triton.jit
def scale_kernel(x_ptr, y_ptr, factor, stride, N, STEP: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs * stride, mask=offs < N)
    tl.store(y_ptr + offs, factor * x, mask=offs < N)


@triton.jit
def scale_in_place_kernel(x_ptr, factor, stride, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs * stride, mask=offs < N)
    tl.store(x_ptr + offs * stride, factor * x, mask=offs < N)


def scale(x, factor, into_x=False, overlapping=False):
    y, grid = torch.empty(x.shape), (triton.cdiv(x.numel(), 256),)
    if into_x:
        scale_in_place_kernel[grid](x, factor, x.stride(0), x.numel(), BLOCK=256)
    else:
        scale_kernel[grid](x, y, factor, x.stride(0), x.numel(), STEP=1 if overlapping else 256, BLOCK=256)
    return y


def scale_without_grid(x, factor):
    y = torch.empty(x.shape)
    scale_kernel(x, y, factor, x.stride(0), x.numel(), STEP=256, BLOCK=256)
    return y


@triton.jit
def row_lse_kernel(
    x_ptr, lse_ptr, stride_m, stride_n, N,
    ADD_M: tl.constexpr, BASE_2: tl.constexpr, ONLY_M: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_m + offs * stride_n, mask=offs < N, other=float("-inf"))
    m = tl.max(x, 0)
    l = tl.sum(tl.exp(x - m), 0)
    lse = tl.log2(l) if BASE_2 else tl.log(l)
    lse = lse + m if ADD_M else lse
    tl.store(lse_ptr + row, m if ONLY_M else lse)


def row_lse(x, strides=None, add_m=True, base_2=False, only_m=False, block=None):
    lse = torch.empty(len(x))
    row_lse_kernel[(len(x),)](
        x,
        lse,
        *(strides or x.stride()),
        x.shape[1],
        ADD_M=add_m,
        BASE_2=base_2,
        ONLY_M=only_m,
        BLOCK=block or triton.next_power_of_2(x.shape[1]),
    )
    return lse


@triton.jit
def transpose_kernel(
    x_ptr, y_ptr, stride_xm, stride_xn, stride_yn, stride_ym, M, N, MASK_N: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * 16 + tl.arange(0, 16)
    offs_n = tl.program_id(1) * 16 + tl.arange(0, 16)
    mask = (offs_m[:, None] < M) & ((offs_n[None, :] < N) if MASK_N else (offs_n[None, :] >= 0))
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask)
    x = tl.trans(x) if TURNED else x
    tl.store(y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :] * stride_yn, x, mask=mask)


def transpose(x, y=None, mask_n=True, grid_exchanged=False, turned=False):
    M, N = x.shape
    strides = (M, 1) if y is not None else None
    y = torch.empty(N, M) if y is None else y
    grid = (triton.cdiv(N, 16), triton.cdiv(M, 16)) if grid_exchanged else (triton.cdiv(M, 16), triton.cdiv(N, 16))
    transpose_kernel[grid](x, y, *x.stride(), *(strides or y.stride()), M, N, MASK_N=mask_n, TURNED=turned)
    return y
