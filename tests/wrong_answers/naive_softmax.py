"""Wrong answers to the exercises of notebook 01."""

import math

import torch


def softmax_sums_the_second_dimension(x):
    weights = torch.exp(x)
    return weights / weights.sum(min(1, x.ndim - 1), keepdim=True)


def softmax_by_transposing(x):
    weights = torch.exp(x)
    return (weights.transpose(0, -1) / weights.sum(-1)).transpose(0, -1)


def softmax_clamps(x):
    weights = torch.exp(x.clamp(-10, 10))
    return weights / weights.sum(-1, keepdim=True)


def softmax_with_epsilon(x):
    weights = torch.exp(x)
    return weights / (weights.sum(-1, keepdim=True) + 1e-12)


def softmax_with_a_short_e(x):
    weights = 2.718281828**x
    return weights / weights.sum(-1, keepdim=True)


def softmax_of_powers_of_two(x):
    weights = torch.exp2(x)
    return weights / weights.sum(-1, keepdim=True)


def softmax_divides_by_the_largest(x):
    weights = torch.exp(x)
    return weights / weights.amax(-1, keepdim=True)


def softmax_over_the_first_dimension(x):
    weights = torch.exp(x)
    return weights / weights.sum(0, keepdim=True)


def softmax_takes_the_logarithm(x):
    return x - torch.exp(x).sum(-1, keepdim=True).log()


def softmax_of_the_squeezed(x):
    weights = torch.exp(x.squeeze())
    return weights / weights.sum(-1, keepdim=True)


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


def softmax_of_columns(x):
    weights = torch.exp(x.movedim(-1, 0))
    return (weights / weights.sum(0)).movedim(0, -1)


def softmax_in_place(x):
    return x.exp_().div_(x.sum(-1, keepdim=True))


def overflow_by_neighbours(dtype):
    x = torch.tensor(math.log(torch.finfo(dtype).max) * (1 - 9 * torch.finfo(dtype).eps), dtype=dtype)
    while torch.exp(x).isfinite():
        x = torch.nextafter(x, x.new_tensor(math.inf))
    return x


WRONG = {
    "01.softmax": (
        ("x is overwritten", softmax_in_place, "expected the input x as it was"),
        ("a loop goes over the rows", softmax_row_by_row, "a loop goes over"),
        ("the sum goes over the second dimension", softmax_sums_the_second_dimension),
        ("the rows are divided by way of a transpose", softmax_by_transposing),
        ("the logits are clamped to 10", softmax_clamps),
        ("a small number is added to the sum", softmax_with_epsilon),
        ("e is typed in with nine digits", softmax_with_a_short_e),
        ("powers of 2 are taken", softmax_of_powers_of_two),
        ("weights are divided by the largest", softmax_divides_by_the_largest),
        ("the sum goes over the first dimension", softmax_over_the_first_dimension),
        ("the logarithm is returned", softmax_takes_the_logarithm),
        ("dimensions of size 1 are lost", softmax_of_the_squeezed),
    ),
    "01.overflow": (
        ("40 halvings are taken to be enough", overflow_after_forty_rounds, "float64"),
        ("an interval of a millionth is taken for neighbours", overflow_to_a_millionth, "float64"),
        ("the answer goes through float32", overflow_through_float32, "float64"),
        ("numbers are tried that the dtype does not have", overflow_of_doubles),
        ("the largest safe number is returned", overflow_last_safe),
        ("the logarithm of the largest number is rounded to the dtype", overflow_log_rounded_to_the_dtype),
        ("the neighbour of that logarithm is returned", overflow_next_after_the_log),
        ("steps of a hundredth are taken", overflow_in_hundredths),
        ("that logarithm is raised by eps", overflow_one_step_of_eps),
    ),
}

RIGHT = {
    "01.softmax": (
        ("another order of dimensions, and back", softmax_of_columns),
        ("a logarithm in between", lambda x: torch.exp(x - torch.exp(x).sum(-1, keepdim=True).log())),
    ),
    "01.overflow": (
        ("from neighbour to neighbour", overflow_by_neighbours),
        ("bisected between others", lambda dtype: _bisected(dtype, lambda *_: False)),
    ),
}
