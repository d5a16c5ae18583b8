"""Wrong answers to the exercises of notebook 04."""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.variants import variant


def weights(q, k):
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)


@variant(
    "04.attention",
    "the division by sqrt(D) comes after softmax",
    r"before (the )?softmax|after (the )?softmax|scores|add up to 1|sum to 1",
)
def scaled_after_softmax(q, k, v):
    return torch.softmax(q @ k.mT, dim=-1) / math.sqrt(q.shape[-1]) @ v


@variant("04.attention", "the weights are returned, without the product with v", r"values|with v\b|@ v|weighted sum")
def weights_only(q, k, v):
    return weights(q, k)


@variant("04.attention", "multiplied by sqrt(D) where it must be divided", r"sqrt\(D\)|square root|scale|multipl")
def times_root_of_d(q, k, v):
    return torch.softmax(q @ k.mT * math.sqrt(q.shape[-1]), dim=-1) @ v


@variant("04.attention", "divided by the root of the number of keys", r"sqrt\(D\)|square root|scale|last size")
def root_of_the_number_of_keys(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(k.shape[-2]), dim=-1) @ v


@variant("04.attention", "no softmax", r"softmax|add up to 1|sum to 1|exponential")
def without_softmax(q, k, v):
    return q @ k.mT / math.sqrt(q.shape[-1]) @ v


@variant(
    "04.decode",
    "a causal mask aligned to the top left: the new token sees the first key alone",
    r"mask|first key|all cached|every cached|see",
)
def with_a_mask(q, k, v, K_cache, V_cache):
    K_cache, V_cache = torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, v], dim=-2)
    return scaled_dot_product_attention(q, K_cache, V_cache, is_causal=True), K_cache, V_cache


@variant("04.decode", "the query sees the new key alone, not the cache", r"cache|cached|old keys|older")
def only_the_new_key(q, k, v, K_cache, V_cache):
    return weights(q, k) @ v, torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, v], dim=-2)


@variant("04.decode", "the scores are not divided by sqrt(D)", r"sqrt\(D\)|scale|square root")
def unscaled(q, k, v, K_cache, V_cache):
    K_cache, V_cache = torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, v], dim=-2)
    return torch.softmax(q @ K_cache.mT, -1) @ V_cache, K_cache, V_cache


@variant("04.decode", "only o is returned", r"3 values|three|return .*cache|both caches")
def only_o(q, k, v, K_cache, V_cache):
    return weights(q, torch.cat([K_cache, k], dim=-2)) @ torch.cat([V_cache, v], dim=-2)


@variant("04.decode", "joined along the last dimension", r"dim=-2|last dimension but one|dimension")
def joined_along_the_last(q, k, v, K_cache, V_cache):
    K_cache, V_cache = torch.cat([K_cache, k], dim=-1), torch.cat([V_cache, v], dim=-1)
    return weights(q, K_cache) @ V_cache, K_cache, V_cache
