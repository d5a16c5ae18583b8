"""Planted mistakes for the exercises of notebook 01: what is wrong, the function, the case that must catch it."""

import math

import torch


def softmax_one_sum_for_all_rows(x):
    return torch.exp(x) / torch.exp(x).sum()


def softmax_of_magnitudes(x):
    return torch.exp(x.abs()) / torch.exp(x.abs()).sum(-1, keepdim=True)


def softmax_without_exp(x):
    return x / x.sum(-1, keepdim=True)


def softmax_in_float32(x):
    return torch.softmax(x.float(), -1).to(x.dtype)


def overflow_log_of_max(dtype):
    return math.log(torch.finfo(dtype).max)


def overflow_of_float32(dtype):
    return 88.72283935546875


def overflow_next_integer(dtype):
    return float(math.ceil(math.log(torch.finfo(dtype).max)))


MISTAKES = {
    "01.softmax": [
        ("one sum for all rows", softmax_one_sum_for_all_rows, "several rows"),
        ("absolute values", softmax_of_magnitudes, "negative logits"),
        ("no exponential", softmax_without_exp, "one row"),
        ("computed in float32", softmax_in_float32, "float64"),
    ],
    "01.overflow": [
        ("the logarithm, not a number of the dtype", overflow_log_of_max, "float16"),
        ("one answer for all dtypes", overflow_of_float32, "bfloat16"),
        ("rounded up to an integer", overflow_next_integer, "float32"),
    ],
}
