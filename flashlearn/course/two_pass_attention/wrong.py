"""Answers to the exercises of two_pass_attention that are no edit of the solution: `wrong.toml` names them."""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlearn.course.two_pass_attention.solutions import attention_solution, decode_solution


def shifted_softmax(shift, epsilon=0.0):
    """The weights of scores that are shifted by `shift(S)`, with a number added to their sum."""

    def softmax(S):
        P = torch.exp(S - shift(S))
        return P / (P.sum(-1, keepdim=True) + epsilon)

    return softmax


def attention_by(root=math.sqrt, weights=lambda S: torch.softmax(S, -1)):
    """Attention whose root of D or whose weights may be wrong."""
    return lambda q, k, v: weights(q @ k.mT / root(q.shape[-1])) @ v


def attention_of_as_many_queries_as_keys(q, k, v):
    """Queries past the last key are not asked."""
    n = min(q.shape[-2], k.shape[-2])
    o = torch.zeros_like(q)
    o[..., :n, :] = attention_solution(q[..., :n, :], k, v)
    return o


def attention_with_heads_and_batch_swapped(q, k, v):
    if q.ndim < 4:
        return attention_solution(q, k, v)
    S = torch.einsum("abqd,bakd->abqk", q, k) / math.sqrt(q.shape[-1])
    return torch.softmax(S, -1) @ v


def attention_causal(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def attention_query_by_query(q, k, v):
    rows = []
    for i in range(q.shape[-2]):
        s = (q[..., i : i + 1, :] * k).sum(-1) / math.sqrt(q.shape[-1])
        p = torch.exp(s - s.amax(-1, keepdim=True))
        rows.append((p[..., None] * v).sum(-2) / p.sum(-1, keepdim=True))
    return torch.stack(rows, -2)


def attention_by_einsum(q, k, v):
    S = torch.einsum("...id,...jd->...ij", q, k).mul_(q.shape[-1] ** -0.5)
    P = torch.exp(S - torch.logsumexp(S, -1, keepdim=True))
    return torch.einsum("...ij,...jd->...id", P, v)


def decode_by(attention=attention_solution, keep=lambda cache: cache):
    """A step of decoding whose attention, or what it keeps of the caches, may be wrong."""

    def decode(q, k, v, K_cache, V_cache):
        _, K_cache, V_cache = decode_solution(q, k, v, K_cache, V_cache)
        return attention(q, K_cache, V_cache), keep(K_cache), keep(V_cache)

    return decode


def decode_averages_old_and_new(q, k, v, K_cache, V_cache):
    n = K_cache.shape[-2]
    old = attention_solution(q, K_cache, V_cache) if n else torch.zeros_like(v)
    return (n * old + v) / (n + 1), torch.cat([K_cache, k], -2), torch.cat([V_cache, v], -2)


def decode_in_place(q, k, v, K_cache, V_cache):
    """Into room for one row more."""
    n = K_cache.shape[-2]
    K, V = (torch.empty_like(new.expand(*new.shape[:-2], n + 1, new.shape[-1])) for new in (k, v))
    K[..., :n, :], K[..., n:, :], V[..., :n, :], V[..., n:, :] = K_cache, k, V_cache, v
    return scaled_dot_product_attention(q, K, V), K, V
