"""Planted mistakes for the exercises of notebook 04: what is wrong, the function, the case to catch it."""

import math

import torch

from flashlearn.exercises.two_pass_attention import attention_solution


def attention_unscaled(q, k, v):
    return torch.softmax(q @ k.mT, dim=-1) @ v


def attention_divides_by_d(q, k, v):
    return torch.softmax(q @ k.mT / q.shape[-1], dim=-1) @ v


def attention_softmax_over_queries(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-2) @ v


def attention_flat_transpose(q, k, v):
    return torch.softmax(q @ k.transpose(0, -1) / math.sqrt(q.shape[-1]), dim=-1) @ v


def attention_naive_softmax(q, k, v):
    weights = torch.exp(q @ k.mT / math.sqrt(q.shape[-1]))
    return weights / weights.sum(-1, keepdim=True) @ v


def decode_attends_before_it_appends(q, k, v, K_cache, V_cache):
    o = attention_solution(q, K_cache, V_cache)
    return o, torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, v], dim=-2)


def decode_forgets_to_return_them(q, k, v, K_cache, V_cache):
    o = attention_solution(q, torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, v], dim=-2))
    return o, K_cache, V_cache


def decode_appends_in_front(q, k, v, K_cache, V_cache):
    K_cache, V_cache = torch.cat([k, K_cache], dim=-2), torch.cat([v, V_cache], dim=-2)
    return attention_solution(q, K_cache, V_cache), K_cache, V_cache


def decode_caches_keys_twice(q, k, v, K_cache, V_cache):
    K_cache, V_cache = torch.cat([K_cache, k], dim=-2), torch.cat([V_cache, k], dim=-2)
    return attention_solution(q, K_cache, V_cache), K_cache, V_cache


def decode_appends_to_the_first_dimension(q, k, v, K_cache, V_cache):
    K_cache, V_cache = torch.cat([K_cache, k], dim=0), torch.cat([V_cache, v], dim=0)
    return attention_solution(q, K_cache, V_cache), K_cache, V_cache


MISTAKES = {
    "04.attention": [
        ("scores not scaled", attention_unscaled, "one query"),
        ("divided by D", attention_divides_by_d, "D = 64"),
        ("softmax over the queries", attention_softmax_over_queries, "as many queries as keys"),
        ("the wrong dimensions transposed", attention_flat_transpose, "batches and heads"),
        ("softmax that overflows", attention_naive_softmax, "large scores"),
    ],
    "04.decode": [
        ("attends before it appends", decode_attends_before_it_appends, "one token more"),
        ("returns the old caches", decode_forgets_to_return_them, "six tokens in a row"),
        ("new rows in front", decode_appends_in_front, "order kept"),
        ("keys in the value cache", decode_caches_keys_twice, "first token"),
        ("appended along the first dimension", decode_appends_to_the_first_dimension, "batches and heads"),
    ],
}
