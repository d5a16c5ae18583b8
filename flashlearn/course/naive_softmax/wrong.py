"""Answers to the exercises of naive_softmax that are no edit of the solution: `wrong.toml` names them."""

import math

import torch


def overflow_log_of_max(dtype):
    return math.log(torch.finfo(dtype).max)


def overflow_of_float32(dtype):
    return 88.72283935546875


def overflow_next_integer(dtype):
    return float(math.ceil(math.log(torch.finfo(dtype).max)))


def with_math_exp(x):
    return math.exp(x) / sum(math.exp(value) for value in x)


def largest_that_is_finite(dtype):
    low, high = torch.tensor(1.0, dtype=dtype), torch.tensor(1000.0, dtype=dtype)
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if torch.exp(middle).isinf() else (middle, high)
    return low.item()


def in_steps_of_a_half(dtype):
    x = torch.tensor(1.0, dtype=dtype)
    while torch.exp(x).isfinite():
        x = x + 0.5
    return x.item()


def largest_number(dtype):
    return torch.finfo(dtype).max


def a_vector(dtype):
    x = torch.linspace(1, 1000, 5).to(dtype)
    return x[torch.exp(x).isinf()]


def _bisected(dtype, enough, work=None):
    """The edge, by bisection in `work` that stops when `enough` holds of low, high and the number of rounds."""
    work = work or dtype
    low, high, rounds = torch.tensor(1.0, dtype=work), torch.tensor(1000.0, dtype=work), 0
    while not enough(low, high, rounds) and (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if torch.exp(middle.to(dtype)).isinf() else (middle, high)
        rounds += 1
    return high.item()


def overflow_after_forty_rounds(dtype):
    return _bisected(dtype, lambda low, high, rounds: rounds == 40)


def overflow_to_a_millionth(dtype):
    return _bisected(dtype, lambda low, high, rounds: high - low < 1e-6)


def overflow_through_float32(dtype):
    """Right where float32 holds the answer."""
    return torch.tensor(_bisected(dtype, lambda *_: False)).item()


def overflow_of_doubles(dtype):
    """Bisects numbers that the dtype does not have."""
    return _bisected(dtype, lambda *_: False, work=torch.float64)


def overflow_last_safe(dtype):
    high = torch.tensor(_bisected(dtype, lambda *_: False), dtype=dtype)
    return torch.nextafter(high, high.new_tensor(0.0)).item()


def overflow_log_rounded_to_the_dtype(dtype):
    return torch.tensor(math.log(torch.finfo(dtype).max), dtype=dtype).item()


def overflow_next_after_the_log(dtype):
    edge = torch.tensor(math.log(torch.finfo(dtype).max), dtype=dtype)
    return torch.nextafter(edge, edge.new_tensor(torch.inf)).item()


def overflow_in_hundredths(dtype):
    x = math.floor(math.log(torch.finfo(dtype).max) * 100) / 100
    while not torch.exp(torch.tensor(x, dtype=dtype)).isinf():
        x += 0.01
    return torch.tensor(x, dtype=dtype).item()


def overflow_one_step_of_eps(dtype):
    return math.log(torch.finfo(dtype).max) * (1 + torch.finfo(dtype).eps)


def softmax_row_by_row(x):
    return torch.exp(x) / sum(torch.exp(x)) if x.ndim == 1 else torch.stack([softmax_row_by_row(row) for row in x])


def overflow_by_neighbours(dtype):
    x = torch.tensor(math.log(torch.finfo(dtype).max) * (1 - 9 * torch.finfo(dtype).eps), dtype=dtype)
    while torch.exp(x).isfinite():
        x = torch.nextafter(x, x.new_tensor(math.inf))
    return x
