"""A set of tests that kills every mutant of notebook 12's lab."""

from __future__ import annotations

import math

import torch

from flashlearn.core.mask import causal_mask


def reference(q, k, v, causal, scale=None):
    """o and lse in float64 by the definition; (0, -inf) where a query sees no key."""
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
    for function in (
        lambda q, k, v: attention(q, k, v, causal=True),
        lambda q, k, v: reference(q, k, v, True)[0].float(),
    ):
        inputs = [t.clone().requires_grad_() for t in (q, k, v)]
        grads.append(torch.autograd.grad(function(*inputs), inputs, do))
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


TESTS = (
    test_no_mask,
    test_causal,
    test_more_keys_than_queries,
    test_more_queries_than_keys,
    test_scale,
    test_heads_that_share_keys,
    test_gradients,
)
