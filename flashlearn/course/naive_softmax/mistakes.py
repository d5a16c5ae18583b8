"""Known wrong answers to the exercises of notebook 01."""

import math

import torch

from flashlearn.exercises.assessment import Mistake


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
    "01.softmax": (
        Mistake("one sum is taken over all rows together", softmax_one_sum_for_all_rows, "several rows"),
        Mistake("the logits lose their sign", softmax_of_magnitudes, "negative logits"),
        Mistake("the logits are divided by their sum, without an exponential", softmax_without_exp, "one row"),
        Mistake("the work is done in float32, whatever the dtype of x", softmax_in_float32, "float64"),
    ),
    "01.overflow": (
        Mistake(
            "the logarithm of the largest number is returned: in float64 its exponential is still a number, and no other dtype has it",
            overflow_log_of_max,
            "float16",
        ),
        Mistake("the answer for float32 is given for every dtype", overflow_of_float32, "bfloat16"),
        Mistake("the edge is rounded up to an integer", overflow_next_integer, "float32"),
    ),
}
