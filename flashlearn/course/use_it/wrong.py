"""Answers to the exercises of use_it that are no edit of the solution: `wrong.toml` names them."""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention


def _stored(k, v, K, V, start):
    stop = start + k.shape[-2]
    K[..., start:stop, :], V[..., start:stop, :] = k, v
    return stop


def cache_aligned_to_the_top_left(q, k, v, K, V, length):
    stop = _stored(k, v, K, V, length)
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :], is_causal=True)


def cache_without_a_mask(q, k, v, K, V, length):
    stop = _stored(k, v, K, V, length)
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :])


def cache_attends_to_all_the_room(q, k, v, K, V, length):
    stop = _stored(k, v, K, V, length)
    i, j = torch.arange(length, stop)[:, None], torch.arange(K.shape[-2])[None, :]
    return scaled_dot_product_attention(q, K, V, attn_mask=(j <= i) | (j >= stop))


def cache_writes_at_the_front(q, k, v, K, V, length):
    _stored(k, v, K, V, 0)
    stop = length + k.shape[-2]
    i, j = torch.arange(length, stop)[:, None], torch.arange(stop)[None, :]
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :], attn_mask=j <= i)


def cache_stores_nothing(q, k, v, K, V, length):
    K, V = (torch.cat([old[..., :length, :], new], dim=-2) for old, new in ((K, k), (V, v)))
    i, j = torch.arange(length, K.shape[-2])[:, None], torch.arange(K.shape[-2])[None, :]
    return scaled_dot_product_attention(q, K, V, attn_mask=j <= i)


def gqa_first_head_for_all(q, k, v):
    return scaled_dot_product_attention(
        q, k[:, :1].expand(-1, q.shape[1], -1, -1), v[:, :1].expand(-1, q.shape[1], -1, -1)
    )


def gqa_averages_the_heads(q, k, v):
    k, v = (t.mean(1, keepdim=True).expand(-1, q.shape[1], -1, -1) for t in (k, v))
    return scaled_dot_product_attention(q, k, v)


def stored(k, v, K, V, length):
    stop = length + k.shape[-2]
    K[..., length:stop, :], V[..., length:stop, :] = k, v
    return stop, torch.arange(length, stop)[:, None], torch.arange(stop)[None, :]


def not_itself(q, k, v, K, V, length):
    stop, i, j = stored(k, v, K, V, length)
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :], attn_mask=j < i)


def keys_into_v(q, k, v, K, V, length):
    stop, i, j = stored(k, k, K, V, length)
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :], attn_mask=j <= i)


def without_the_cache(q, k, v, K, V, length):
    stored(k, v, K, V, length)
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def unscaled(q, k, v, K, V, length):
    stop, i, j = stored(k, v, K, V, length)
    S = (q @ K[..., :stop, :].mT).masked_fill(j > i, -float("inf"))
    return torch.softmax(S, -1) @ V[..., :stop, :]


def other_stored(k, v, K, V, length):
    stop = length + k.shape[-2]
    K[..., length:stop, :], V[..., length:stop, :] = k, v
    return stop


def _softmax(S):
    e = torch.exp(S - S.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _cached(q, k, v, K, V, length, *, hidden=-math.inf, room=False, scale=None, softmax=_softmax, first=None):
    stop = other_stored(k, v, K, V, length)
    seen = K.shape[-2] if room else stop
    i = torch.arange(length if first is None else first, (length if first is None else first) + q.shape[-2])
    S = q @ K[..., :seen, :].mT / (scale or math.sqrt(q.shape[-1]))
    S = S.masked_fill(torch.arange(seen)[None, :] > i[:, None], hidden)
    return softmax(S) @ V[..., :seen, :]


def cache_whole_room_minus_1e9(*args):
    return _cached(*args, room=True, hidden=-1e9)


def cache_whole_room_masked(q, k, v, K, V, length):
    stop = other_stored(k, v, K, V, length)
    mask = torch.arange(K.shape[-2])[None, :] <= torch.arange(length, stop)[:, None]
    return scaled_dot_product_attention(q, K, V, attn_mask=mask)


def cache_zeroed_behind(q, k, v, K, V, length):
    stop = other_stored(k, v, K, V, length)
    K[..., stop:, :], V[..., stop:, :] = 0, 0
    return _cached(q, k, v, K, V, length, room=True)


def cache_reshaped(q, k, v, K, V, length):
    """Heads and batches as one dimension: a view of a cache of its own, a copy of one that is a part of another."""
    shape = q.shape
    flat = (t.reshape(-1, *t.shape[-2:]) for t in (q, k, v, K, V))
    return _cached(*flat, length).reshape(shape)


def cache_first_dimension(q, k, v, K, V, length):
    stop = length + len(k)  # right without batches, and for as many batches as new tokens
    K[..., length:stop, :], V[..., length:stop, :] = k, v
    mask = torch.arange(stop)[None, :] <= torch.arange(length, stop)[:, None]
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :], attn_mask=mask)


def cache_half_d(*args):
    return _cached(*args, scale=args[0].shape[-1] / 2)


def cache_unsafe_softmax(*args):
    return _cached(*args, softmax=lambda S: S.exp() / S.exp().sum(-1, keepdim=True))


def cache_masked_only_at_first(q, k, v, K, V, length):
    stop = other_stored(k, v, K, V, length)
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :], is_causal=length == 0)


def cache_written_at_the_end(q, k, v, K, V, length):
    stop, n = length + k.shape[-2], k.shape[-2]
    K[..., -n:, :], V[..., -n:, :] = k, v
    mask = torch.arange(stop)[None, :] <= torch.arange(length, stop)[:, None]
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :], attn_mask=mask)


def cache_without_the_own_key(*args):
    return _cached(*args, first=args[-1] - 1)


def cache_one_key_too_many(*args):
    return _cached(*args, first=args[-1] + 1)


def cache_new_tokens_only(q, k, v, K, V, length):
    other_stored(k, v, K, V, length)
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def cache_values_not_stored(q, k, v, K, V, length):
    stop = length + k.shape[-2]
    K[..., length:stop, :] = k
    mask = torch.arange(stop)[None, :] <= torch.arange(length, stop)[:, None]
    values = torch.cat([V[..., :length, :], v], dim=-2)
    return scaled_dot_product_attention(q, K[..., :stop, :], values, attn_mask=mask)


def cache_softmax_over_queries(*args):
    return _cached(*args, softmax=lambda S: torch.softmax(S, -2))


def _grouped(q, k, v, *, scale=None, softmax=_softmax, order=lambda o: o):
    B, H_q, N, D = q.shape
    q = q.reshape(B, k.shape[1], -1, N, D)
    P = softmax(q @ k[:, :, None].mT / (scale or math.sqrt(D)))
    return order(P @ v[:, :, None]).reshape(B, H_q, N, D)


def gqa_half_d(q, k, v):
    return _grouped(q, k, v, scale=q.shape[-1] / 2)


def gqa_unsafe_softmax(q, k, v):
    return _grouped(q, k, v, softmax=lambda S: S.exp() / S.exp().sum(-1, keepdim=True))


def gqa_merged_across(q, k, v):
    return _grouped(q, k, v, order=lambda o: o.transpose(1, 2))


def gqa_heads_not_merged(q, k, v):
    B, H_q, N, D = q.shape
    return scaled_dot_product_attention(q.reshape(B, k.shape[1], -1, N, D), k[:, :, None], v[:, :, None])


def gqa_softmax_over_queries(q, k, v):
    return _grouped(q, k, v, softmax=lambda S: torch.softmax(S, -2))


def gqa_group_of_two(q, k, v):
    k, v = (t.repeat_interleave(2, dim=1)[:, : q.shape[1]] for t in (k, v))
    return scaled_dot_product_attention(q, k, v)


def cache_by_hand(q, k, v, K, V, length):
    n, stop = q.shape[-2], length + q.shape[-2]
    K[..., length:stop, :].copy_(k)
    V.narrow(-2, length, n).copy_(v)
    mask = torch.ones(n, stop, dtype=torch.bool).tril(length)
    S = (q @ K[..., :stop, :].mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
    return torch.softmax(S, -1) @ V[..., :stop, :]


def cache_row_by_row(q, k, v, K, V, length):
    rows = []
    for i in range(q.shape[-2]):
        stop = length + i + 1
        K[..., stop - 1, :], V[..., stop - 1, :] = k[..., i, :], v[..., i, :]
        rows.append(scaled_dot_product_attention(q[..., i : i + 1, :], K[..., :stop, :], V[..., :stop, :]))
    return torch.cat(rows, dim=-2)


def cache_old_and_new(q, k, v, K, V, length):
    keys, values = (torch.cat([old[..., :length, :], new], dim=-2) for old, new in ((K, k), (V, v)))
    other_stored(k, v, K, V, length)
    hidden = torch.full((q.shape[-2], keys.shape[-2]), -1e9, dtype=q.dtype).triu(length + 1)
    return scaled_dot_product_attention(q, keys, values, attn_mask=hidden)


def gqa_head_by_head(q, k, v):
    group = q.shape[1] // k.shape[1]
    heads = [scaled_dot_product_attention(q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
    return torch.stack(heads, dim=1)


def gqa_by_index(q, k, v):
    owner = torch.arange(q.shape[1]) * k.shape[1] // q.shape[1]
    return scaled_dot_product_attention(q, k[:, owner], v[:, owner])
