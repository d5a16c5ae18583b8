"""Exercises of notebook 13: dV, then dS transposed, inside the kernel.

As in notebook 12 the answers are functions of tiles that were already loaded; the kernels around them are below.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from flashlearn.core.mask import causal_mask
from flashlearn.exercises.grading import Case, Exercise
from flashlearn.exercises.launching import launch
from flashlearn.exercises.mistakes.triton_backward import MISTAKES
from flashlearn.exercises.solutions.triton_backward import ds_solution, dv_solution
from flashlearn.exercises.triton_forward import INF
from flashlearn.exercises.watching import WrongWay

if TYPE_CHECKING:
    import triton.language as tl
else:
    tl = None  # triton.language once a check runs: this module must import where Triton is missing


def dv_kernel(
    q_ptr, k_ptr, do_ptr, lse_ptr, dv_ptr, start_n, N_q, N_k, scale,
    ADD_DV: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """dV of one block of keys: ADD_DV for every block of queries; tensors are (N, D), contiguous."""
    keys = start_n + tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)[None, :]
    k = tl.load(k_ptr + keys[:, None] * D + d, mask=(keys < N_k)[:, None], other=0.0)
    dv = tl.zeros((BLOCK_N, D), dtype=tl.float32)
    for start_m in range(0, N_q, BLOCK_M):
        rows = start_m + tl.arange(0, BLOCK_M)
        mask = (rows < N_q)[:, None]
        q = tl.load(q_ptr + rows[:, None] * D + d, mask=mask, other=0.0)
        do = tl.load(do_ptr + rows[:, None] * D + d, mask=mask, other=0.0)
        lse = tl.load(lse_ptr + rows, mask=rows < N_q, other=float("inf"))
        dv = ADD_DV(dv, k, q, do, lse, rows, keys, N_q, N_k, scale)
    tl.store(dv_ptr + tl.arange(0, BLOCK_N)[:, None] * D + d, tl.broadcast_to(dv, (BLOCK_N, D)))


def ds_kernel(
    p_ptr, v_ptr, do_ptr, delta_ptr, ds_ptr,
    DS: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Hand one pair of blocks to DS; P^T and dS^T are (BLOCK_N, BLOCK_M)."""
    rows, keys, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, D)[None, :]
    square = keys[:, None] * BLOCK_M + rows[None, :]
    p_t = tl.load(p_ptr + square)
    v = tl.load(v_ptr + keys[:, None] * D + d)
    do = tl.load(do_ptr + rows[:, None] * D + d)
    ds_t = DS(p_t, v, do, tl.load(delta_ptr + rows))
    tl.store(ds_ptr + square, tl.broadcast_to(ds_t, (BLOCK_N, BLOCK_M)))


def _problem(N_q, N_k, dtype=torch.float32, scale=0.25, values=0.0, arriving=0.0):
    """q, k, v, do (N, 16), and in float64 P, lse, delta and the gradients of V and S that autograd finds.

    `values` and `arriving` are the means of v and do.
    """
    generator = torch.Generator().manual_seed(N_q + N_k)
    q, k, v, do = (torch.randn(n, 16, generator=generator) for n in (N_q, N_k, N_k, N_q))
    q, k, v, do = (t.to(dtype) for t in (q, k, v + values, do + arriving + arriving * do / 4))
    visible = causal_mask(N_q, N_k)
    s = (q.double() @ k.double().mT * scale).masked_fill(~visible, -INF).requires_grad_()
    v_64 = v.double().requires_grad_()
    p = torch.softmax(s, -1).masked_fill(~visible, 0.0)  # rows that see no key: 0, not NaN
    o = p @ v_64
    ds, dv = torch.autograd.grad(o, (s, v_64), do.double())
    lse = torch.logsumexp(s, -1).detach()
    return (q, k, v, do), p.detach(), lse, (o.detach() * do.double()).sum(-1), ds, dv


def _dv(N_q, N_k, start_n=0, scale=0.25, dtype=torch.float32, arriving=0.0, below=0.0):
    """dV of 16 keys from start_n on, over blocks of 32 queries; in units of what arrives, if that has a mean.

    lse may be so much larger that every P is e^-below of what it is; dV is compared in units of that.
    """

    def compare(function):
        (q, k, _, do), _, lse, _, _, want = _problem(N_q, N_k, dtype, scale, arriving=arriving)
        got, want = torch.full((16, 16), torch.nan), want[start_n : start_n + 16]
        launch(
            dv_kernel,
            q,
            k,
            do,
            (lse + below).float(),
            got,
            start_n,
            N_q,
            N_k,
            scale,
            ADD_DV=function,
            D=16,
            BLOCK_M=32,
            BLOCK_N=16,
        )
        unit = max(arriving, 1.0)
        return got[: len(want)] * math.exp(below) / unit, want / unit

    return compare


def _ds(block_m, block_n, start_m, start_n, dtype=torch.float32, means=(0.0, 0.0)):
    """dS^T of one pair of blocks, of 64 queries and 64 keys; `means` are those of v and do."""

    def compare(function):
        (_, _, v, do), p, _, delta, want, _ = _problem(64, 64, dtype, values=means[0], arriving=means[1])
        rows, keys = slice(start_m, start_m + block_m), slice(start_n, start_n + block_n)
        p_t, got = p[rows, keys].mT.float().contiguous(), torch.full((block_n, block_m), torch.nan)
        launch(
            ds_kernel,
            p_t,
            v[keys].contiguous(),
            do[rows].contiguous(),
            delta[rows].float(),
            got,
            DS=function,
            D=16,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
        )
        return got, want[rows, keys].mT

    return compare


def _turned(function):
    """dS^T of 32 queries and 16 keys, of which nobody may turn what has the shape of dS."""
    M, N = 32, 16
    generator = torch.Generator().manual_seed(1)
    p_t, v, do, delta = (torch.randn(*shape, generator=generator) for shape in ((N, M), (N, 32), (M, 32), (M,)))
    got = torch.full((N, M), torch.nan)
    turned = launch(ds_kernel, p_t, v, do, delta, got, DS=function, D=32, BLOCK_M=M, BLOCK_N=N)
    if (M, N) in turned:
        raise WrongWay(f"expected only do to be turned, or v, got a product of ({M}, {N}) that is: turning it is dear")
    return got, p_t * (v @ do.T - delta)


EXERCISES = (
    Exercise(
        "13.dv",
        "add_dv(dv, k, q, do, lse, rows, keys, N_q, N_k, scale) -> dV_j + P^T dO, (BLOCK_N, D), causal",
        dv_solution,
        (
            Case(
                "one block of queries",
                _dv(32, 32),
                "P^T = exp(K Q^T scale - lse); with exp2 both S and lse take the factor log2(e)",
                1e-2,
            ),
            Case("several blocks of queries", _dv(90, 90), "add to the dv that came in", 1e-2),
            Case("some of the keys", _dv(64, 64, 16), "rows of P sum to 1 over all keys: use lse, no softmax", 1e-2),
            Case("another scale", _dv(32, 32, scale=1.0), "use the scale that is handed over", 1e-2),
            Case(
                "more keys than queries",
                _dv(32, 48, 16),
                "aligned to the bottom right: query i sees keys j <= i + N_k - N_q",
                1e-2,
            ),
            Case(
                "queries that see no key",
                _dv(48, 20),
                "their lse is -inf and makes P inf: put 0 there with tl.where; inf * 0 is NaN",
                1e-2,
            ),
            Case(
                "float16",
                _dv(32, 32, dtype=torch.float16),
                "both factors of tl.dot in one dtype: p_t.to(do.dtype)",
                2e-2,
            ),
            Case(
                "large scores",
                _dv(48, 48, scale=20.0),
                "subtract lse before the exponential: exp(S) overflows, and so does exp(lse)",
                1e-2,
            ),
            Case(
                "small weights",
                _dv(32, 32, below=20.0),
                "e^x = 2^(x log2(e)) with all digits, 1.4426950408889634: the larger x, the more an error in them counts",
                1e-2,
            ),
            Case(
                "float16, large sums",
                _dv(90, 90, scale=4.0, dtype=torch.float16, arriving=20000.0),
                "what tl.dot gives is float32, and dv is: keep both. Sums in float16 end at 65,504",
                2e-2,
            ),
        ),
        hints=(
            "P^T comes back from K, Q and lse, and dV gets P^T dO. Which of the tiles must be turned to get K Q^T?",
            "P^T = exp(K Q^T scale - lse), one lse for each column: lse[None, :]. Hide with tl.where, after the exponential.",
            "tl.exp2 takes (s_t - lse[None, :]) * 1.4426950408889634; the mask is keys[:, None] <= rows[None, :] + N_k - N_q; add to dv.",
        ),
        mistakes=MISTAKES["13.dv"],
    ),
    Exercise(
        "13.ds",
        "ds_t(p_t, v, do, delta): (BLOCK_N, BLOCK_M), (BLOCK_N, D), (BLOCK_M, D), (BLOCK_M,) -> dS^T",
        ds_solution,
        (
            Case("more keys than queries", _ds(16, 32, 32, 0), "dS^T = P^T o (dP^T - delta), dP^T = V dO^T", 1e-2),
            Case("more queries than keys", _ds(32, 16, 32, 16), "dP^T is (BLOCK_N, BLOCK_M): V dO^T, not dO V^T", 1e-2),
            Case("as many queries as keys", _ds(16, 16, 32, 16), "delta has one entry for each column of dS^T", 1e-2),
            Case("part of it masked", _ds(32, 32, 32, 32), "P is 0 where the mask hides: then dS is 0 too", 1e-2),
            Case("float16", _ds(16, 32, 32, 0, torch.float16), "tl.dot gives float32; keep it", 1e-2),
            Case(
                "float16, large dP and delta",
                _ds(16, 32, 32, 0, torch.float16, (60.0, 4.0)),
                "dP and delta are float32 and differ by little: rounded to float16 before, their difference is noise",
                1e-2,
            ),
            Case(
                "only what was loaded is turned",
                _turned,
                "V dO^T is dP^T already: with tl.trans(do), nothing else needs turning",
                1e-2,
            ),
        ),
        hints=(
            "dS = P o (dP - delta), and all of it transposed. Which product of V and dO is dP^T?",
            "V dO^T is (BLOCK_N, BLOCK_M): only dO is turned, tl.trans(do). delta belongs to the queries, which are the columns here.",
            "dp_t = tl.dot(v, tl.trans(do)); take delta[None, :] off it, and weigh by p_t.",
        ),
        mistakes=MISTAKES["13.ds"],
    ),
)
