"""Kernels and launchers of the wrong, and of other right, answers to notebook 11, imported when one is run."""

from flashlearn import kernels  # isort: skip (first: it chooses the backend)

import torch
import triton
import triton.language as tl

assert kernels  # imported for what it does


@triton.jit
def scale_kernel(x_ptr, y_ptr, factor, stride_x, stride_y, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs * stride_x, mask=offs < N)
    tl.store(y_ptr + offs * stride_y, factor * x, mask=offs < N)


def scale(x, factor, block=256, dtype=None, y=None):
    y = torch.empty(x.shape, dtype=dtype or x.dtype) if y is None else y
    grid = (triton.cdiv(x.numel(), block),)
    scale_kernel[grid](x, y, factor, x.stride(0), y.stride(0), x.numel(), BLOCK=block)
    return y


def scale_grid_by_a_function(x, factor):
    y = torch.empty(x.shape, dtype=x.dtype)

    def grid(meta):
        return (triton.cdiv(meta["N"], meta["BLOCK"]),)

    scale_kernel[grid](x, y, factor, x.stride(0), y.stride(0), x.numel(), BLOCK=128)
    return y


def scale_after(x, factor):
    y = scale(x, 1.0)
    y *= factor
    return y


def scale_beside(x, factor):
    scale(x, factor)
    return factor * x


@triton.jit
def scale_loose_kernel(x_ptr, y_ptr, factor, stride_x, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs * stride_x, mask=offs <= N)
    tl.store(y_ptr + offs, factor * x, mask=offs <= N)


def scale_loose(x, factor):
    y = torch.empty(x.shape, dtype=x.dtype)
    scale_loose_kernel[(triton.cdiv(x.numel(), 256),)](x, y, factor, x.stride(0), x.numel(), BLOCK=256)
    return y


@triton.jit
def scale_loop_kernel(x_ptr, y_ptr, factor, stride_x, N, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, N, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs * stride_x, mask=offs < N, other=0.0)
        tl.store(y_ptr + offs, x * factor, mask=offs < N)


def scale_loop(x, factor, programs=8):
    y = torch.empty(x.numel(), dtype=x.dtype)
    scale_loop_kernel[(programs,)](x, y, factor, x.stride(0), x.numel(), BLOCK=128)
    return y


@triton.jit
def lse_kernel(
    x_ptr, y_ptr, stride_m, stride_n, M, N,
    HOW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0) * ROWS, tl.minimum(tl.program_id(0) * ROWS + ROWS, M)):
        x = tl.load(x_ptr + row * stride_m + offs * stride_n, mask=offs < N, other=float("-inf"))
        m = tl.max(x, 0)
        if HOW == "floor":
            m = tl.maximum(m, 0.0)
        if HOW == "shift":
            m = 50.0
        lse = tl.log(tl.sum(tl.exp(x - m), 0))
        if HOW == "log2":
            lse = tl.log2(tl.sum(tl.exp(x - m), 0))
        if HOW == "exp2":
            lse = tl.log2(tl.sum(tl.exp2(x - m), 0))
        if HOW != "no maximum":
            lse += m
        if HOW == "spoil":
            tl.store(x_ptr + row * stride_m + offs * stride_n, x - m, mask=offs < N)
        if HOW == "maximum":
            lse = m
        tl.store(y_ptr + row, lse)


def row_lse(x, how="", rows=1, block=None, dtype=None):
    (M, N), y = x.shape, torch.empty(len(x), dtype=dtype or x.dtype)
    block = block or triton.next_power_of_2(N)
    lse_kernel[(triton.cdiv(M, rows),)](x, y, *x.stride(), M, N, HOW=how, ROWS=rows, BLOCK=block)
    return y


def row_lse_beside(x):
    row_lse(x, how="maximum")
    return torch.logsumexp(x, -1)


@triton.jit
def lse_online_kernel(x_ptr, y_ptr, stride_m, stride_n, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = float("-inf")
    total = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_m + offs * stride_n, mask=offs < N, other=float("-inf"))
        m_new = tl.maximum(m, tl.max(x, 0))
        total = total * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), 0)
        m = m_new
    tl.store(y_ptr + row, m + tl.log(total))


def row_lse_online(x):
    (M, N), y = x.shape, torch.empty(len(x), dtype=x.dtype)
    lse_online_kernel[(M,)](x, y, *x.stride(), N, BLOCK=32)
    return y


@triton.jit
def copy_kernel(
    x_ptr, y_ptr, stride_xm, stride_xn, stride_ym, stride_yn, M, N,
    ONE_AXIS: tl.constexpr, SLACK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    if ONE_AXIS:
        across = tl.cdiv(N, BLOCK_N)
        i, j = tl.program_id(0) // across, tl.program_id(0) % across
    else:
        i, j = tl.program_id(0), tl.program_id(1)
    m = i * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = j * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (m < M + SLACK) & (n < N + SLACK)
    x = tl.load(x_ptr + m * stride_xm + n * stride_xn, mask=mask)
    tl.store(y_ptr + m * stride_ym + n * stride_yn, x, mask=mask)


def copy(x, y, one_axis=False, row_grid=False, slack=0, block=(16, 16)):
    (M, N), grid = x.shape, (triton.cdiv(x.shape[0], block[0]), triton.cdiv(x.shape[1], block[1]))
    grid = (grid[0] * grid[1],) if one_axis else (x.shape[0], grid[1]) if row_grid else grid
    options = {"ONE_AXIS": one_axis, "SLACK": slack, "BLOCK_M": block[0], "BLOCK_N": block[1]}
    copy_kernel[grid](x, y, *x.stride(), *y.stride(), M, N, **options)
    return y


def transpose(x, dtype=None, **options):
    y = torch.empty(x.shape[::-1], dtype=dtype or x.dtype)
    copy(x, y.T, **options)
    return y


def transpose_plain_copy(x):
    return copy(x.T.contiguous(), torch.empty(x.shape[::-1]))


def transpose_afterwards(x):
    return copy(x, torch.empty(x.shape)).T.contiguous()


def transpose_beside(x):
    transpose(x)
    return x.T.contiguous()


def transpose_reshaped(x):
    return copy(x, torch.empty(x.shape)).reshape(x.shape[::-1])


def transpose_rows(x):
    return transpose(x, block=(1, triton.next_power_of_2(x.shape[1])))


@triton.jit
def one_program_kernel(x_ptr, y_ptr, stride_xm, stride_xn, stride_ym, stride_yn, M, N, BLOCK: tl.constexpr):
    for start_m in range(0, M, BLOCK):
        for start_n in range(0, N, BLOCK):
            m = start_m + tl.arange(0, BLOCK)[:, None]
            n = start_n + tl.arange(0, BLOCK)[None, :]
            mask = (m < M) & (n < N)
            x = tl.load(x_ptr + m * stride_xm + n * stride_xn, mask=mask)
            tl.store(y_ptr + m * stride_ym + n * stride_yn, x, mask=mask)


def transpose_one_program(x):
    y = torch.empty(x.shape[::-1])
    one_program_kernel[(1, 1)](x, y, *x.stride(), *y.T.stride(), *x.shape, BLOCK=16)
    return y


@triton.jit
def turned_kernel(x_ptr, y_ptr, stride_xm, stride_xn, N, M, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (m < M)[:, None] & (n < N)[None, :]
    x = tl.load(x_ptr + m[:, None] * stride_xm + n[None, :] * stride_xn, mask=inside, other=0.0)
    tl.store(y_ptr + n[:, None] * M + m[None, :], tl.trans(x), mask=tl.trans(inside))


def transpose_on_chip(x):
    (M, N), y = x.shape, x.new_empty(x.shape[1], x.shape[0])
    turned_kernel[(triton.cdiv(N, 16), triton.cdiv(M, 16))](x, y, *x.stride(), N, M, BLOCK=16)
    return y
