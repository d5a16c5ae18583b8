"""Known wrong answers to the exercises of notebook 16."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlearn.exercises.assessment import Mistake


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


def gqa_repeats_in_turn(q, k, v):
    group = q.shape[1] // k.shape[1]
    return scaled_dot_product_attention(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1))


def gqa_first_head_for_all(q, k, v):
    return scaled_dot_product_attention(
        q, k[:, :1].expand(-1, q.shape[1], -1, -1), v[:, :1].expand(-1, q.shape[1], -1, -1)
    )


def gqa_averages_the_heads(q, k, v):
    k, v = (t.mean(1, keepdim=True).expand(-1, q.shape[1], -1, -1) for t in (k, v))
    return scaled_dot_product_attention(q, k, v)


def gqa_values_in_turn(q, k, v):
    group = q.shape[1] // k.shape[1]
    return scaled_dot_product_attention(q, k.repeat_interleave(group, dim=1), v.repeat(1, group, 1, 1))


MISTAKES = {
    "16.cache": (
        Mistake("the mask is aligned to the top left", cache_aligned_to_the_top_left, "a chunk behind the cache"),
        Mistake("new tokens see the ones after them", cache_without_a_mask, "the first chunk"),
        Mistake("the room that is not used yet is attended to", cache_attends_to_all_the_room, "room to spare"),
        Mistake("the new rows are written over the first ones", cache_writes_at_the_front, "one token more"),
        Mistake("the new rows are not written into K and V", cache_stores_nothing, "room to spare"),
    ),
    "16.gqa": (
        Mistake("heads of k and v are taken in turn: 0, 1, 0, 1", gqa_repeats_in_turn, "two groups of three"),
        Mistake("the first head of k and v serves all groups", gqa_first_head_for_all, "two groups of three"),
        Mistake("the heads of k and v are averaged", gqa_averages_the_heads, "no sharing"),
        Mistake("keys are shared by groups and values in turn", gqa_values_in_turn, "two groups of three"),
    ),
}
