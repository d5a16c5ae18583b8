"""Known wrong answers to the exercises of notebook 04."""

import math

import torch

from flashlearn.course.two_pass_attention.solutions import attention_solution
from flashlearn.exercises.assessment import Mistake


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


def attention_of_keys_with_keys(q, k, v):
    return torch.softmax(k @ k.mT / math.sqrt(q.shape[-1]), dim=-1) @ v


def attention_averages_keys(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1) @ k


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
    "04.attention": (
        Mistake("the scores are not divided by sqrt(D)", attention_unscaled, "one query"),
        Mistake("the scores are divided by D, not by its square root", attention_divides_by_d, "D = 64"),
        Mistake(
            "K is multiplied by itself, in place of Q by K", attention_of_keys_with_keys, "as many queries as keys"
        ),
        Mistake("the weights are multiplied by K, in place of V", attention_averages_keys, "as many queries as keys"),
        Mistake(
            "softmax goes over the queries instead of the keys",
            attention_softmax_over_queries,
            "as many queries as keys",
        ),
        Mistake(
            "the first dimension of k is transposed with the last, instead of the last two",
            attention_flat_transpose,
            "batches and heads",
        ),
        Mistake(
            "softmax takes exp of the scores as they are, which overflows", attention_naive_softmax, "large scores"
        ),
    ),
    "04.decode": (
        Mistake(
            "the query attends before its own key and value are appended",
            decode_attends_before_it_appends,
            "one token more",
        ),
        Mistake(
            "the old caches are returned, without the new rows", decode_forgets_to_return_them, "six tokens in a row"
        ),
        Mistake("the new rows are put in front of the old ones", decode_appends_in_front, "order kept"),
        Mistake("keys are stored in the cache of values", decode_caches_keys_twice, "first token"),
        Mistake(
            "the new rows are joined along the first dimension",
            decode_appends_to_the_first_dimension,
            "batches and heads",
        ),
    ),
}
