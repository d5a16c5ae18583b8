"""Solutions of the exercises of notebook 12."""

from __future__ import annotations

import math
from typing import Any

import torch

from flashlearn.core.mask import causal_mask

tl: Any = None  # triton.language once a check runs: this module must import where Triton is missing


# 12.causal
def causal_solution(s, start_m, start_n, N_q, N_k):
    rows = start_m + tl.arange(0, s.shape[0])
    keys = start_n + tl.arange(0, s.shape[1])
    visible = keys[None, :] <= rows[:, None] + N_k - N_q
    return tl.where(visible, s, float("-inf"))


# 12.bugs
def bugs_solution(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    visible = keys[None, :] <= rows[:, None] + N_k - N_q
    s = tl.where(visible, s, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(s, 1))
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - m_safe[:, None])
    alpha = tl.exp2(m_i - m_safe)
    l_i = l_i * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, l_i, acc


# 12.kernel
def kernel_solution(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, N_q, N_k, qk_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64)  # offsets may pass 2^31
    rows, d = start_m + tl.arange(0, BLOCK_M), tl.arange(0, D)[None, :]
    at_q = (head * N_q + rows)[:, None] * D + d
    q = tl.load(q_ptr + at_q, mask=(rows < N_q)[:, None], other=0.0)
    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    end = N_k
    if CAUSAL:
        end = tl.minimum(tl.maximum(start_m + BLOCK_M + N_k - N_q, 0), N_k)
    for start_n in range(0, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        at_k = (head * N_k + keys)[:, None] * D + d
        k = tl.load(k_ptr + at_k, mask=(keys < N_k)[:, None], other=0.0)
        v = tl.load(v_ptr + at_k, mask=(keys < N_k)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
        visible = (keys < N_k)[None, :]
        if CAUSAL:
            visible = visible & (keys[None, :] <= rows[:, None] + N_k - N_q)
        s = tl.where(visible, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - base[:, None])
        alpha = tl.exp2(m - base)
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        m = m_new
    l = tl.where(l == 0.0, 1.0, l)
    o = acc / l[:, None]
    tl.store(o_ptr + at_q, o.to(o_ptr.dtype.element_ty), mask=(rows < N_q)[:, None])
    tl.store(lse_ptr + head * N_q + rows, (m + tl.log2(l)) * 0.6931471805599453, mask=rows < N_q)


def reference(q, k, v, causal, scale=None):
    """o and lse in float64 by the definition; (0, -inf) where a query attends to no key."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    S = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        S = S.masked_fill(~causal_mask(q.shape[2], k.shape[2]), -math.inf)
    return torch.softmax(S, -1).nan_to_num(0.0) @ v, torch.logsumexp(S, -1)


def agrees(attention, N_q, N_k, *, causal, H_q=2, H_kv=2, scale=None):
    q, k, v = (torch.randn(1, H, N, 16) for H, N in ((H_q, N_q), (H_kv, N_k), (H_kv, N_k)))
    o, lse = attention(q, k, v, causal=causal, scale=scale, return_lse=True)
    expected_o, expected_lse = reference(q, k, v, causal, scale)
    torch.testing.assert_close(o.double(), expected_o, rtol=0, atol=1e-4)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=0, atol=1e-4)


# 12.mutants
def test_no_mask(attention):
    """Several blocks of keys, the last of them not full; lse is compared too."""
    agrees(attention, 20, 40, causal=False)


def test_causal(attention):
    agrees(attention, 40, 40, causal=True)


def test_more_keys_than_queries(attention):
    agrees(attention, 20, 40, causal=True)


def test_more_queries_than_keys(attention):
    agrees(attention, 40, 20, causal=True)


def test_scale(attention):
    agrees(attention, 8, 8, causal=False, scale=1.0)


def test_heads_that_share_keys(attention):
    agrees(attention, 8, 8, causal=False, H_q=4, H_kv=2)


def test_gradients(attention):
    q, k, v, do = (torch.randn(1, 1, 20, 16) for _ in range(4))
    grads = []
    for function in (attention, lambda q, k, v, causal: reference(q, k, v, causal)[0].float()):
        q, k, v = (t.detach().clone().requires_grad_() for t in (q, k, v))
        grads.append(torch.autograd.grad(function(q, k, v, causal=True), (q, k, v), do))
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
