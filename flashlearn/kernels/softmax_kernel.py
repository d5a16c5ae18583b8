"""Fused softmax: what `safe_softmax` does in three passes over HBM, with one.

What is new compared with safe_softmax: a program keeps its whole row on chip, so that maximum, sum and division need no
second read. HBM: MN elements read, MN written, against 3MN and MN. A row must fit on chip. For longer rows
FlashAttention uses online softmax.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.target import check_runnable

MAX_COLUMNS = 65536  # one row, in float32, fills the registers of one SM: 65536 of 4 bytes


@triton.jit
def softmax_kernel(
    # pointers
    x_ptr, y_ptr,
    # strides of (M, N)
    stride_xm, stride_xn,
    stride_ym, stride_yn,
    # sizes
    N,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """y = softmax(x) for one row. Reads N elements, writes N."""
    row = tl.program_id(0).to(tl.int64)  # 64 bits: byte offsets may pass 2^31
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)  # (BLOCK_N,)
    mask = offs_n < N
    # lanes past the end hold -inf: they change no maximum, and exp(-inf) = 0 adds nothing to the sum
    x = tl.load(x_ptr + row * stride_xm + offs_n * stride_xn, mask=mask, other=float("-inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, 0))  # (BLOCK_N,)
    y = p / tl.sum(p, 0)  # (BLOCK_N,)
    tl.store(y_ptr + row * stride_ym + offs_n * stride_yn, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax(x: Tensor) -> Tensor:
    """Softmax of every row of x, one program per row.

    y_mn = exp(x_mn - max_n x_mn) / sum_n exp(x_mn - max_n x_mn)

    Shape (M, N) with N up to 65536, any strides; a row that is -inf throughout is NaN, as in `torch.softmax`.
    """
    check_runnable(x=x)
    if x.ndim != 2 or x.shape[1] > MAX_COLUMNS:
        raise ValueError(f"expected x of shape (M, N) with N up to {MAX_COLUMNS}, got {tuple(x.shape)}")
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if x.numel():
        block_n = triton.next_power_of_2(N)
        num_warps = min(max(block_n // 512, 1), 16)  # 16 elements per thread, until that takes more than 16 warps
        softmax_kernel[(M,)](x, y, *x.stride(), *y.stride(), N, BLOCK_N=block_n, num_warps=num_warps)
    return y
