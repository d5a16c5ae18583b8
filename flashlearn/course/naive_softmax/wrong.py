"""Answers to the exercises of naive_softmax that are no edit of the solution: `wrong.toml` names them."""

import math

import torch


def overflow_a_vector(dtype):
    x = torch.linspace(1, 1000, 5).to(dtype)
    return x[torch.exp(x).isinf()]


def overflow_in_steps_of_a_half(dtype):
    x = torch.tensor(1.0, dtype=dtype)
    while torch.exp(x).isfinite():
        x = x + 0.5
    return x.item()


def overflow_in_hundredths(dtype):
    x = math.floor(log_of_max(dtype) * 100) / 100
    while not torch.exp(torch.tensor(x, dtype=dtype)).isinf():
        x += 0.01
    return torch.tensor(x, dtype=dtype).item()


def overflow_by_neighbours(dtype):
    x = torch.tensor(log_of_max(dtype) * (1 - 9 * torch.finfo(dtype).eps), dtype=dtype)
    while torch.exp(x).isfinite():
        x = torch.nextafter(x, x.new_tensor(math.inf))
    return x


def log_of_max(dtype):
    return math.log(torch.finfo(dtype).max)


def overflow_next_after_the_log(dtype):
    edge = torch.tensor(log_of_max(dtype), dtype=dtype)
    return torch.nextafter(edge, edge.new_tensor(math.inf)).item()


def softmax_row_by_row(x):
    return torch.exp(x) / sum(torch.exp(x)) if x.ndim == 1 else torch.stack([softmax_row_by_row(row) for row in x])


def softmax_with_math_exp(x):
    return math.exp(x) / sum(math.exp(value) for value in x)
