"""Answers to the exercises of gpu_and_triton that are no edit of a kernel and its launcher: `wrong.toml` names them."""

from flashlearn import kernels  # isort: skip (first: it chooses the backend)

import inspect

import torch
import triton
import triton.language as tl

from flashlearn.course.gpu_and_triton import solutions
from flashlearn.exercises.altered import replaced, run

assert kernels  # imported for what it does


def edited(name, *changes):
    """The solution `name`, a kernel and its launcher, with pieces of their source replaced."""
    parts = getattr(solutions, f"{name}_kernel").fn, getattr(solutions, name)
    source = replaced("\n".join(map(inspect.getsource, parts)), name, *changes)
    return run(source, f"<{name}: {'; '.join(new for _, new in changes)}>", dict(vars(solutions)))[name]


copied = edited("transpose", ("torch.empty(N, M,", "torch.empty(M, N,"), ("*y.stride()", "*y.stride()[::-1]"))


@triton.jit
def scale_loop_kernel(x_ptr, y_ptr, factor, stride_x, N, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, N, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs * stride_x, mask=offs < N, other=0.0)
        tl.store(y_ptr + offs, x * factor, mask=offs < N)


def scale_by(x, factor, programs):
    y = torch.empty(x.numel(), dtype=x.dtype)
    scale_loop_kernel[(programs,)](x, y, factor, x.stride(0), x.numel(), BLOCK=128)
    return y


@triton.jit
def lse_loop_kernel(x_ptr, y_ptr, stride_m, stride_n, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0) * ROWS, tl.minimum(tl.program_id(0) * ROWS + ROWS, M)):
        x = tl.load(x_ptr + row * stride_m + offs * stride_n, mask=offs < N, other=float("-inf"))
        m = tl.max(x, 0)
        tl.store(y_ptr + row, m + tl.log(tl.sum(tl.exp(x - m), 0)))


def row_lse_of(x, rows):
    (M, N), y = x.shape, torch.empty(len(x), dtype=x.dtype)
    lse_loop_kernel[(triton.cdiv(M, rows),)](x, y, *x.stride(), M, N, ROWS=rows, BLOCK=triton.next_power_of_2(N))
    return y


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
