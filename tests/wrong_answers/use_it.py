"""Wrong answers to the exercises of notebook 16."""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention


def _stored(k, v, K, V, length):
    stop = length + k.shape[-2]
    K[..., length:stop, :], V[..., length:stop, :] = k, v
    return stop


def _softmax(S):
    e = torch.exp(S - S.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _cached(q, k, v, K, V, length, *, hidden=-math.inf, room=False, scale=None, softmax=_softmax, first=None):
    stop = _stored(k, v, K, V, length)
    seen = K.shape[-2] if room else stop
    i = torch.arange(length if first is None else first, (length if first is None else first) + q.shape[-2])
    S = q @ K[..., :seen, :].mT / (scale or math.sqrt(q.shape[-1]))
    S = S.masked_fill(torch.arange(seen)[None, :] > i[:, None], hidden)
    return softmax(S) @ V[..., :seen, :]


def cache_whole_room_minus_1e9(*args):
    return _cached(*args, room=True, hidden=-1e9)


def cache_whole_room_masked(q, k, v, K, V, length):
    stop = _stored(k, v, K, V, length)
    mask = torch.arange(K.shape[-2])[None, :] <= torch.arange(length, stop)[:, None]
    return scaled_dot_product_attention(q, K, V, attn_mask=mask)


def cache_zeroed_behind(q, k, v, K, V, length):
    stop = _stored(k, v, K, V, length)
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
    stop = _stored(k, v, K, V, length)
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
    _stored(k, v, K, V, length)
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def cache_values_not_stored(q, k, v, K, V, length):
    stop = length + k.shape[-2]
    K[..., length:stop, :] = k
    mask = torch.arange(stop)[None, :] <= torch.arange(length, stop)[:, None]
    values = torch.cat([V[..., :length, :], v], dim=-2)
    return scaled_dot_product_attention(q, K[..., :stop, :], values, attn_mask=mask)


def cache_softmax_over_queries(*args):
    return _cached(*args, softmax=lambda S: torch.softmax(S, -2))


def gqa_by_the_flag(q, k, v):
    return scaled_dot_product_attention(q, k, v, enable_gqa=True)


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


def gqa_causal(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def gqa_batch_repeated(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=0).reshape(len(q), -1, *t.shape[2:]) for t in (k, v))
    return scaled_dot_product_attention(q, k, v)


def gqa_queries_averaged(q, k, v):
    group = q.shape[1] // k.shape[1]
    q = q.reshape(len(q), k.shape[1], group, *q.shape[2:]).mean(2)
    return scaled_dot_product_attention(q, k, v).repeat_interleave(group, dim=1)


def gqa_softmax_over_queries(q, k, v):
    return _grouped(q, k, v, softmax=lambda S: torch.softmax(S, -2))


def gqa_only_one_head_shared(q, k, v):
    return scaled_dot_product_attention(q, k.expand(-1, q.shape[1], -1, -1), v.expand(-1, q.shape[1], -1, -1))


def gqa_last_head_first(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = (t.flip(1).repeat_interleave(group, dim=1) for t in (k, v))
    return scaled_dot_product_attention(q, k, v)


def gqa_group_of_two(q, k, v):
    k, v = (t.repeat_interleave(2, dim=1)[:, : q.shape[1]] for t in (k, v))
    return scaled_dot_product_attention(q, k, v)


WRONG = {
    "16.cache": (
        (
            "the whole room is read, -1e9 hides what is not in use",
            cache_whole_room_minus_1e9,
            "NaN here, which no mask undoes",
        ),
        (
            "the whole room is read, a mask hides what is not in use",
            cache_whole_room_masked,
            "NaN here, which no mask undoes",
        ),
        ("what lies behind is cleared and read", cache_zeroed_behind),
        ("the rows go into a copy that reshape made", cache_reshaped, "reshape may copy them"),
        ("new tokens are counted by len(k)", cache_first_dimension, "the rows are the last dimension but one"),
        ("scores are divided by D / 2", cache_half_d),
        ("softmax does not subtract the maximum", cache_unsafe_softmax, "subtracts the maximum"),
        ("a chunk behind the cache has no mask", cache_masked_only_at_first),
        ("the new rows go to the end of the room", cache_written_at_the_end),
        ("a new token does not see itself", cache_without_the_own_key),
        ("a new token sees the next one", cache_one_key_too_many),
        ("new tokens see new tokens only", cache_new_tokens_only),
        ("the new values are not stored", cache_values_not_stored),
        ("softmax runs over the queries", cache_softmax_over_queries),
    ),
    "16.gqa": (
        ("the flag does it", gqa_by_the_flag, "got enable_gqa=True"),
        ("scores are divided by D / 2", gqa_half_d),
        ("softmax does not subtract the maximum", gqa_unsafe_softmax, "subtracts the maximum"),
        ("heads are merged in another order", gqa_merged_across),
        ("heads are not merged", gqa_heads_not_merged),
        ("a causal mask that nobody asked for", gqa_causal),
        ("batches are repeated in place of heads", gqa_batch_repeated),
        ("the queries of a group are averaged", gqa_queries_averaged),
        ("softmax runs over the queries", gqa_softmax_over_queries),
        ("one head serves all, or there is none to share", gqa_only_one_head_shared),
        ("the heads of k and v are in reverse order", gqa_last_head_first),
        ("a group is taken to have two heads", gqa_group_of_two),
    ),
}


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
    _stored(k, v, K, V, length)
    hidden = torch.full((q.shape[-2], keys.shape[-2]), -1e9, dtype=q.dtype).triu(length + 1)
    return scaled_dot_product_attention(q, keys, values, attn_mask=hidden)


def gqa_head_by_head(q, k, v):
    group = q.shape[1] // k.shape[1]
    heads = [scaled_dot_product_attention(q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
    return torch.stack(heads, dim=1)


def gqa_by_index(q, k, v):
    owner = torch.arange(q.shape[1]) * k.shape[1] // q.shape[1]
    return scaled_dot_product_attention(q, k[:, owner], v[:, owner])


RIGHT = {
    "16.cache": (("by hand", cache_by_hand), ("row by row", cache_row_by_row), ("-1e9 in use", cache_old_and_new)),
    "16.gqa": (
        ("head by head", gqa_head_by_head),
        ("by index", gqa_by_index),
        ("a dimension of groups", _grouped),
    ),
}
