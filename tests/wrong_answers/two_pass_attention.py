"""Wrong answers to the exercises of notebook 04."""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlearn.course.two_pass_attention.solutions import attention_solution


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


def attention_in_float32(q, k, v):
    return attention_solution(q.float(), k.float(), v.float()).double()


def attention_with_heads_and_batch_swapped(q, k, v):
    if q.ndim < 4:
        return attention_solution(q, k, v)
    S = torch.einsum("abqd,bakd->abqk", q, k) / math.sqrt(q.shape[-1])
    return torch.softmax(S, -1) @ v


def attention_for_two_or_four_dimensions(q, k, v):
    keys = k.permute(0, 1, 3, 2) if k.ndim == 4 else k.transpose(0, -1)
    return torch.softmax(q @ keys / math.sqrt(q.shape[-1]), -1) @ v


def attention_of_as_many_queries_as_keys(q, k, v):
    """Queries past the last key are not asked."""
    n = min(q.shape[-2], k.shape[-2])
    o = torch.zeros_like(q)
    o[..., :n, :] = attention_solution(q[..., :n, :], k, v)
    return o


def attention_scales_the_output(q, k, v):
    return torch.softmax(q @ k.mT, -1) @ v / math.sqrt(q.shape[-1])


def attention_causal(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def attention_divides_at_the_end(q, k, v):
    """By the sum over the queries."""
    P = torch.exp(q @ k.mT / math.sqrt(q.shape[-1]))
    return P @ v / P.sum(-2).amax(-1)[..., None, None]


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


def decode_along_the_second_dimension(q, k, v, K_cache, V_cache):
    dim = 1 if q.ndim > 2 else 0
    K_cache, V_cache = torch.cat([K_cache, k], dim), torch.cat([V_cache, v], dim)
    return attention_solution(q, K_cache, V_cache), K_cache, V_cache


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


WRONG = {
    "04.attention": (
        ("the values are asked, in place of the keys", lambda q, k, v: attention_solution(q, v, v)),
        ("q and k change places where they can", lambda q, k, v: attention_solution(k[..., : q.shape[-2], :], k, v)),
        ("the root of D is rounded to an integer", attention_by(math.isqrt), "sqrt\\(D\\)|square root of D"),
        ("a small number is added to the sum", attention_by(weights=softmax_with_epsilon), "nothing is added"),
        ("the work is done in float32", attention_in_float32, "dtype|float32"),
        ("the shift is the first score", attention_by(weights=softmax_by_the_first), "cannot overflow"),
        ("the shift is the mean score", attention_by(weights=softmax_by_the_mean), "cannot overflow"),
        ("scores are clamped", attention_by(weights=softmax_clamped)),
        ("batch and heads change places", attention_with_heads_and_batch_swapped),
        ("two or four dimensions are thought of", attention_for_two_or_four_dimensions, "any number of dim"),
        ("queries past the last key are not asked", attention_of_as_many_queries_as_keys),
        ("sqrt(D) divides the output", attention_scales_the_output),
        ("a causal mask is added", attention_causal),
        ("one sum divides all rows", attention_divides_at_the_end),
    ),
    "04.decode": (
        (
            "the softmax of the attention overflows",
            decode_by(attention_by(weights=lambda S: S.exp() / S.exp().sum(-1, keepdim=True))),
            "overflow",
        ),
        ("the root of D is rounded to an integer", decode_by(attention_by(math.isqrt))),
        ("the caches are kept in float32", decode_by(keep=lambda cache: cache.float().double()), "dtype|float32"),
        ("the caches are kept in bfloat16", decode_by(keep=lambda cache: cache.bfloat16().double())),
        ("the mask is causal from the top left: the new token sees the first key only", decode_by(attention_causal)),
        ("the scores are not scaled", decode_by(attention_by(lambda D: 1))),
        ("the new row and the old output are averaged", decode_averages_old_and_new),
        ("the query is stored for the key", decode_stores_the_query),
        ("the key asks in place of the query", decode_asks_with_the_key),
        ("the oldest row is dropped when there are eight", decode_replaces_the_last_row),
        ("the caches change places", decode_returns_the_caches_swapped),
        ("rows are appended along the second dimension", decode_along_the_second_dimension),
    ),
}

RIGHT = {
    "04.attention": (
        ("torch's own", lambda q, k, v: scaled_dot_product_attention(q, k, v)),
        ("query by query", attention_query_by_query),
        ("einsum and lse", attention_by_einsum),
        (
            "q is scaled first",
            lambda q, k, v: torch.softmax((q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1), -1) @ v,
        ),
    ),
    "04.decode": (
        ("copied into new caches", decode_in_place),
        ("query by query", decode_by(attention_query_by_query)),
        ("einsum", decode_by(attention_by_einsum)),
    ),
}
