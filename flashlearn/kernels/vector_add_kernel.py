"""Vector addition: the first kernel. One program adds one block of elements.

The grid overshoots when N is not a multiple of BLOCK, so the last program masks the elements past the end. N = 98432 in
blocks of 1024 takes 97 programs, and the last has 128 valid elements.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.target import check_power_of_two, check_runnable


@triton.jit
def vector_add_kernel(
    # pointers to the first elements
    x_ptr, y_ptr, out_ptr,
    # elements from one entry to the next
    stride_x, stride_y, stride_out,
    # size
    N,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = x + y for one block. Reads 2 BLOCK elements, writes BLOCK."""
    pid = tl.program_id(0).to(tl.int64)  # 64 bits: byte offsets may pass 2^31
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    mask = offs < N
    x = tl.load(x_ptr + offs * stride_x, mask=mask)  # (BLOCK,)
    y = tl.load(y_ptr + offs * stride_y, mask=mask)  # (BLOCK,)
    tl.store(out_ptr + offs * stride_out, x + y, mask=mask)


def vector_add(x: Tensor, y: Tensor, *, block: int = 1024) -> Tensor:
    """x + y for two vectors of N elements, in cdiv(N, block) programs.

    HBM: reads 2N elements, writes N. Shapes (N,) and (N,), any strides, one dtype; anything else is rejected.
    """
    check_runnable(x=x, y=y)
    check_power_of_two(1, block=block)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"expected two vectors of one length, got x {tuple(x.shape)} and y {tuple(y.shape)}")
    if (x.dtype, x.device) != (y.dtype, y.device):
        raise ValueError(f"expected one dtype and device, got {x.dtype} on {x.device} and {y.dtype} on {y.device}")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        grid = (triton.cdiv(x.numel(), block),)
        vector_add_kernel[grid](x, y, out, x.stride(0), y.stride(0), out.stride(0), x.numel(), BLOCK=block)
    return out
