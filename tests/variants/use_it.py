"""Wrong answers to the exercises of notebook 16."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.variants import variant


def stored(k, v, K, V, length):
    stop = length + k.shape[-2]
    K[..., length:stop, :], V[..., length:stop, :] = k, v
    return stop, torch.arange(length, stop)[:, None], torch.arange(stop)[None, :]


@variant("16.cache", "a token does not see itself", r"\bown\b|itself|<=|diagonal")
def not_itself(q, k, v, K, V, length):
    stop, i, j = stored(k, v, K, V, length)
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :], attn_mask=j < i)


@variant("16.cache", "keys are written into V", r"keys|\bV\b|values")
def keys_into_v(q, k, v, K, V, length):
    stop, i, j = stored(k, k, K, V, length)
    return scaled_dot_product_attention(q, K[..., :stop, :], V[..., :stop, :], attn_mask=j <= i)


@variant("16.cache", "new tokens see new tokens alone", r"cached|the cache|old |behind|earlier")
def without_the_cache(q, k, v, K, V, length):
    stored(k, v, K, V, length)
    return scaled_dot_product_attention(q, k, v, is_causal=True)


@variant("16.cache", "the scores are not divided by sqrt(D)", r"sqrt|scale")
def unscaled(q, k, v, K, V, length):
    stop, i, j = stored(k, v, K, V, length)
    S = (q @ K[..., :stop, :].mT).masked_fill(j > i, -float("inf"))
    return torch.softmax(S, -1) @ V[..., :stop, :]


@variant(
    "16.cache", "the caches are sliced along the first dimension", r"last dimension but one|dim=-2|\.\.\., |dimension"
)
def first_dimension(q, k, v, K, V, length):
    stop = length + k.shape[0]
    K[length:stop], V[length:stop] = k, v
    i, j = torch.arange(length, stop)[:, None], torch.arange(stop)[None, :]
    return scaled_dot_product_attention(q, K[:stop], V[:stop], attn_mask=j <= i)


@variant("16.gqa", "head h uses head h % group", r"h // group|neighbou?rs|h // \(|// group|share head")
def remainder(q, k, v):
    group = q.shape[1] // k.shape[1]
    heads = torch.arange(q.shape[1]) % group % k.shape[1]
    return scaled_dot_product_attention(q, k[:, heads], v[:, heads])


@variant(
    "16.gqa", "the tokens are repeated, not the heads", r"dim=1|heads.*not.*tokens|wrong dimension|dimension|shape|size"
)
def tokens_repeated(q, k, v):
    group = q.shape[1] // k.shape[1]
    return scaled_dot_product_attention(q, k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2))


@variant("16.gqa", "query heads are dropped", r"shape|H_q|query heads?|every head of q")
def heads_dropped(q, k, v):
    return scaled_dot_product_attention(q[:, : k.shape[1]], k, v)


@variant("16.gqa", "the groups are taken in reverse", r"revers|order|backwards|share head")
def in_reverse(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = (t.flip(1).repeat_interleave(group, dim=1) for t in (k, v))
    return scaled_dot_product_attention(q, k, v)
