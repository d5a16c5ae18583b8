"""Matrix multiplication by blocks: one program computes one (BLOCK_M, BLOCK_N) block of C.

What is new compared with softmax: a loop along K. In each iteration the program reads a block of A and a block of B and
adds their product to an accumulator on chip. Attention is two such products with softmax between them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.inputs import check_bool
from flashlearn.core.target import check_grid, check_power_of_two, check_runnable


@triton.jit
def matmul_kernel(
    # pointers
    a_ptr, b_ptr, c_ptr,
    # strides of A (M, K), B (K, N), C (M, N)
    stride_am, stride_ak,
    stride_bk, stride_bn,
    stride_cm, stride_cn,
    # sizes
    M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """C = A B for one block of C. Reads cdiv(K, BLOCK_K) blocks of A and of B, writes one of C."""
    # 64 bits: byte offsets may pass 2^31
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start_k in range(0, K, BLOCK_K):
        offs_k = (start_k + tl.arange(0, BLOCK_K)).to(tl.int64)  # (BLOCK_K,)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        # zeros past the edge add nothing to the product
        a = tl.load(a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn, mask=b_mask, other=0.0)
        # (BLOCK_M, BLOCK_K) (BLOCK_K, BLOCK_N) -> (BLOCK_M, BLOCK_N)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def matmul(
    a: Tensor, b: Tensor, *, block_m: int = 64, block_n: int = 64, block_k: int = 32, allow_tf32: bool = False
) -> Tensor:
    """C = A B, accumulated in float32; `allow_tf32` lets a GPU round float32 inputs to 10 bits of mantissa.

    Shapes (M, K) and (K, N), any strides, one dtype. Blocks: powers of two from 16, as tl.dot wants.
    HBM: MK cdiv(N, block_n) + KN cdiv(M, block_m) elements read, MN written.
    """
    check_runnable(a=a, b=b)
    check_power_of_two(16, block_m=block_m, block_n=block_n, block_k=block_k)
    check_bool(allow_tf32, "allow_tf32")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"expected a (M, K) and b (K, N), got {tuple(a.shape)} and {tuple(b.shape)}")
    if (a.dtype, a.device) != (b.dtype, b.device):
        raise ValueError(f"expected one dtype and device, got {a.dtype} on {a.device} and {b.dtype} on {b.device}")
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if c.numel():
        grid = check_grid((triton.cdiv(M, block_m), triton.cdiv(N, block_n)))
        matmul_kernel[grid](
            a, b, c, *a.stride(), *b.stride(), *c.stride(), M, N, K,
            BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, PRECISION="tf32" if allow_tf32 else "ieee",
        )  # fmt: skip
    return c
