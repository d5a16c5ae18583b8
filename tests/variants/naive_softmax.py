"""Wrong answers to the exercises of notebook 01."""

import math

import torch

from tests.variants import variant


@variant("01.softmax", "the sum runs over the first dimension", r"dim=-1|last dimension|own sum|each row|every row")
def sum_over_columns(x):
    return torch.exp(x) / torch.exp(x).sum(0)


@variant(
    "01.softmax",
    "divided by the sum of x, not of exp(x)",
    r"sum of (the |all )?(exp|weights|e\^)|add up to 1|by the sum of them",
)
def divided_by_the_sum_of_x(x):
    return torch.exp(x) / x.sum(-1, keepdim=True)


@variant("01.softmax", "the division is missing", r"divi|normali[sz]|add up to 1|sum to 1")
def never_divided(x):
    return torch.exp(x)


@variant("01.softmax", "2 is the base, not e", r"\bbase|2\^|2 \*\* |torch\.exp\b|e\^x|temperature|exp2")
def powers_of_two(x):
    return 2**x / (2**x).sum(-1, keepdim=True)


@variant("01.softmax", "math.exp of a tensor", r"math\.exp|one number|single number|torch\.exp")
def with_math_exp(x):
    return math.exp(x) / sum(math.exp(value) for value in x)


@variant(
    "01.overflow",
    "the largest number whose exp is finite",
    r"one (step|number|place)|largest .*finite|next|neighbou?r|just below",
)
def largest_that_is_finite(dtype):
    low, high = torch.tensor(1.0, dtype=dtype), torch.tensor(1000.0, dtype=dtype)
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if torch.exp(middle).isinf() else (middle, high)
    return low.item()


@variant("01.overflow", "steps of one half", r"step|between|smaller|neighbou?r|not the smallest|too large")
def in_steps_of_a_half(dtype):
    x = torch.tensor(1.0, dtype=dtype)
    while torch.exp(x).isfinite():
        x = x + 0.5
    return x.item()


@variant(
    "01.overflow",
    "the largest number of the dtype, not of its logarithm",
    r"\bexp\b.*(inf|overflow)|logarithm|too large|not the smallest|smaller",
)
def largest_number(dtype):
    return torch.finfo(dtype).max


@variant("01.overflow", "a dtype is returned as a tensor of the wrong shape", r"shape|one number|single number|float")
def a_vector(dtype):
    x = torch.linspace(1, 1000, 5).to(dtype)
    return x[torch.exp(x).isinf()]
