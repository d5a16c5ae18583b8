"""The merge of two results over different keys, as one kernel: each of them is read once, and the sum written once.

PyTorch would take three passes in float32, 26 bytes an entry in place of 6 to 10. HBM: a and b read, out written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.target import check_device  # noqa: F401  before Triton is used: it may have to interpret


@triton.jit
def merge_kernel(
    a_ptr, lse_a_ptr, b_ptr, lse_b_ptr, out_ptr,
    # strides of a, b and out (B, H, N, D), whose last stride is 1, and of lse (B, H, N)
    stride_ab, stride_ah, stride_an, stride_bb, stride_bh, stride_bn, stride_ob, stride_oh, stride_on,
    stride_lab, stride_lah, stride_lbb, stride_lbh,
    N, H, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of one head: out = a e^(lse_a - lse) + b e^(lse_b - lse), and lse over lse_a."""
    batch, head = (tl.program_id(1) // H).to(tl.int64), (tl.program_id(1) % H).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    rows = offs_m < N
    mask = rows[:, None] & (offs_d < D)[None, :]
    lse_a_ptrs = lse_a_ptr + batch * stride_lab + head * stride_lah + offs_m
    lse_a = tl.load(lse_a_ptrs, mask=rows, other=0.0)
    lse_b = tl.load(lse_b_ptr + batch * stride_lbb + head * stride_lbh + offs_m, mask=rows, other=0.0)
    m = tl.maximum(lse_a, lse_b)
    m = tl.where(m == float("-inf"), 0.0, m)  # a query without keys so far: both weights are 0
    e_a, e_b = tl.exp(lse_a - m), tl.exp(lse_b - m)
    l = e_a + e_b
    divisor = tl.where(l == 0.0, 1.0, l)
    base_a, base_b = batch * stride_ab + head * stride_ah, batch * stride_bb + head * stride_bh
    a = tl.load(a_ptr + base_a + offs_m[:, None] * stride_an + offs_d[None, :], mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + base_b + offs_m[:, None] * stride_bn + offs_d[None, :], mask=mask, other=0.0).to(tl.float32)
    out = a * (e_a / divisor)[:, None] + b * (e_b / divisor)[:, None]
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + offs_m[:, None] * stride_on + offs_d[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)
    lse = tl.where(l == 0.0, float("-inf"), m + tl.log(divisor))
    tl.store(lse_a_ptrs, lse, mask=rows)


def merge_on_gpu(a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, out: Tensor, *, block_m: int = 16) -> None:
    """`flashlearn.ring.local.merge` by the kernel, for float32 and less; lse_a and lse_b in float32."""
    B, H, N, D = a.shape
    if not a.numel():
        return
    with torch.cuda.device_of(a):
        merge_kernel[(triton.cdiv(N, block_m), B * H)](
            a, lse_a, b, lse_b, out, *a.stride()[:3], *b.stride()[:3], *out.stride()[:3],
            *lse_a.stride()[:2], *lse_b.stride()[:2], N, H,
            D=D, BLOCK_M=block_m, BLOCK_D=triton.next_power_of_2(D),
        )  # fmt: skip
