"""Answers to the exercises of two_pass_attention that are no edit of the solution: `wrong.toml` names them."""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlearn.course.two_pass_attention.solutions import attention_solution


def decode_attends_before_it_appends(q, k, v, K_cache, V_cache):
    o = attention_solution(q, K_cache, V_cache)
    return o, torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, v], dim=-2)


def decode_forgets_to_return_them(q, k, v, K_cache, V_cache):
    o = attention_solution(q, torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, v], dim=-2))
    return o, K_cache, V_cache


def weights(q, k):
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)


def weights_only(q, k, v):
    return weights(q, k)


def with_a_mask(q, k, v, K_cache, V_cache):
    K_cache, V_cache = torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, v], dim=-2)
    return scaled_dot_product_attention(q, K_cache, V_cache, is_causal=True), K_cache, V_cache


def only_the_new_key(q, k, v, K_cache, V_cache):
    return weights(q, k) @ v, torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, v], dim=-2)


def only_o(q, k, v, K_cache, V_cache):
    return weights(q, torch.cat([K_cache, k], dim=-2)) @ torch.cat([V_cache, v], dim=-2)


def joined_along_the_last(q, k, v, K_cache, V_cache):
    K_cache, V_cache = torch.cat([K_cache, k], dim=-1), torch.cat([V_cache, v], dim=-1)
    return weights(q, K_cache) @ V_cache, K_cache, V_cache


def attention_by(root=math.sqrt, weights=lambda S: torch.softmax(S, -1)):
    """Attention whose root of D or whose weights may be wrong."""
    return lambda q, k, v: weights(q @ k.mT / root(q.shape[-1])) @ v


def softmax_with_epsilon(S):
    P = torch.exp(S - S.amax(-1, keepdim=True))
    return P / (P.sum(-1, keepdim=True) + 1e-9)


def softmax_by_the_first(S):
    P = torch.exp(S - S[..., :1])
    return P / P.sum(-1, keepdim=True)


def softmax_by_the_mean(S):
    P = torch.exp(S - S.mean(-1, keepdim=True))
    return P / P.sum(-1, keepdim=True)


def softmax_clamped(S):
    return torch.softmax(S.clamp(-100, 100), -1)


def attention_with_heads_and_batch_swapped(q, k, v):
    if q.ndim < 4:
        return attention_solution(q, k, v)
    S = torch.einsum("abqd,bakd->abqk", q, k) / math.sqrt(q.shape[-1])
    return torch.softmax(S, -1) @ v


def attention_of_as_many_queries_as_keys(q, k, v):
    """Queries past the last key are not asked."""
    n = min(q.shape[-2], k.shape[-2])
    o = torch.zeros_like(q)
    o[..., :n, :] = attention_solution(q[..., :n, :], k, v)
    return o


def attention_causal(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def decode_by(attention=attention_solution, keep=None):
    """A step of decoding whose attention, or what it keeps of the caches, may be wrong."""

    def decode(q, k, v, K_cache, V_cache):
        K_cache, V_cache = torch.cat([K_cache, k], -2), torch.cat([V_cache, v], -2)
        o = attention(q, K_cache, V_cache)
        return (o, K_cache, V_cache) if keep is None else (o, keep(K_cache), keep(V_cache))

    return decode


def decode_averages_old_and_new(q, k, v, K_cache, V_cache):
    n = K_cache.shape[-2]
    old = attention_solution(q, K_cache, V_cache) if n else torch.zeros_like(v)
    return (n * old + v) / (n + 1), torch.cat([K_cache, k], -2), torch.cat([V_cache, v], -2)


def decode_stores_the_query(q, k, v, K_cache, V_cache):
    o = attention_solution(q, torch.cat([K_cache, k], -2), torch.cat([V_cache, v], -2))
    return o, torch.cat([K_cache, q], -2), torch.cat([V_cache, v], -2)


def decode_asks_with_the_key(q, k, v, K_cache, V_cache):
    return decode_by()(k, k, v, K_cache, V_cache)


def decode_replaces_the_last_row(q, k, v, K_cache, V_cache):
    o, K, V = decode_by()(q, k, v, K_cache, V_cache)
    return (o, K, V) if K.shape[-2] < 8 else (o, K[..., 1:, :], V[..., 1:, :])


def decode_returns_the_caches_swapped(q, k, v, K_cache, V_cache):
    o, K, V = decode_by()(q, k, v, K_cache, V_cache)
    return o, V, K


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


def decode_in_place(q, k, v, K_cache, V_cache):
    """Into room for one row more."""
    n = K_cache.shape[-2]
    K, V = (torch.empty_like(new.expand(*new.shape[:-2], n + 1, new.shape[-1])) for new in (k, v))
    K[..., :n, :], K[..., n:, :], V[..., :n, :], V[..., n:, :] = K_cache, k, V_cache, v
    return scaled_dot_product_attention(q, K, V), K, V
