"""Wrong answers to the exercises of notebook 14."""

import math


def _flops(seconds, B, H, N, D, causal, backward, *, half=0.5, again=2.5, pairs=None, extra=0, width=None):
    pairs = N**2 if pairs is None else pairs
    flops = 4 * B * H * pairs * (D if width is None else width) + extra * B * H * N**2
    return flops * (half if causal else 1) * (again if backward else 1) / seconds / 1e12


def flops_half_rounded_down(seconds, B, H, N, D, causal, backward):
    pairs = N**2 // 2 if causal else N**2
    return _flops(seconds, B, H, N, D, False, backward, pairs=pairs)


def flops_factor_rounded_down(seconds, B, H, N, D, causal, backward):
    return 4 * B * H * N**2 * D * (int(2.5) if backward else 1) / (2 if causal else 1) / seconds / 1e12


def flops_with_softmax(*args):
    return _flops(*args, extra=5)


def flops_multiply_add_as_one(*args):
    return _flops(*args) / 2


def flops_binary_prefix(*args):
    return _flops(*args) * 1e12 / 2**40


def flops_backward_not_halved(seconds, B, H, N, D, causal, backward):
    return _flops(seconds, B, H, N, D, causal and not backward, backward)


def flops_forward_and_backward(*args):
    return _flops(*args, again=2)


def flops_below_the_diagonal(seconds, B, H, N, D, causal, backward):
    return _flops(seconds, B, H, N, D, causal, backward, half=(N - 1) / (2 * N))


def flops_without_heads(seconds, B, H, N, D, causal, backward):
    return _flops(seconds, B, 1, N, D, causal, backward)


def flops_rounded(*args):
    return round(_flops(*args), 1)


def flops_milliseconds(seconds, *args):
    return _flops(seconds * 1000, *args)


def _left(block_m, D, itemsize, shared):
    return shared - block_m * D * itemsize


def stages_rounded_to_the_nearest(block_m, block_n, D, itemsize, shared):
    return max(0, round(_left(block_m, D, itemsize, shared) / (2 * block_n * D * itemsize)))


def stages_rounded_up(block_m, block_n, D, itemsize, shared):
    return max(0, math.ceil(_left(block_m, D, itemsize, shared) / (2 * block_n * D * itemsize)))


def stages_towards_zero(block_m, block_n, D, itemsize, shared):
    return int(_left(block_m, D, itemsize, shared) / (2 * block_n * D * itemsize))


def stages_searched_up_to_eight(block_m, block_n, D, itemsize, shared):
    fits = (s for s in range(9) if block_m * D * itemsize + 2 * s * block_n * D * itemsize <= shared)
    return max(fits, default=0)


def stages_absolute(block_m, block_n, D, itemsize, shared):
    return abs(_left(block_m, D, itemsize, shared)) // (2 * block_n * D * itemsize)


def stages_with_o(block_m, block_n, D, itemsize, shared):
    return max(0, (shared - 2 * block_m * D * itemsize) // (2 * block_n * D * itemsize))


def stages_with_scores(block_m, block_n, D, itemsize, shared):
    return max(0, (_left(block_m, D, itemsize, shared) - block_m * block_n * 4) // (2 * block_n * D * itemsize))


def stages_one_to_spare(block_m, block_n, D, itemsize, shared):
    return max(0, _left(block_m, D, itemsize, shared) // (2 * block_n * D * itemsize) - 1)


def stages_negative(block_m, block_n, D, itemsize, shared):
    return _left(block_m, D, itemsize, shared) // (2 * block_n * D * itemsize)


def stages_of_whole_kilobytes(block_m, block_n, D, itemsize, shared):
    return max(0, _left(block_m, D, itemsize, shared // 1024 * 1024) // (2 * block_n * D * itemsize))


def stages_power_of_two(block_m, block_n, D, itemsize, shared):
    stages = _left(block_m, D, itemsize, shared) // (2 * block_n * D * itemsize)
    return 2 ** int(math.log2(stages)) if stages > 0 else 0


WRONG = {
    "14.flops": (
        ("half of an odd number is rounded down", flops_half_rounded_down, "144.5 pairs"),
        ("2.5 is rounded down", flops_factor_rounded_down),
        ("the work of softmax is counted", flops_with_softmax),
        ("a multiplication with its addition counts as one", flops_multiply_add_as_one),
        ("a tera is taken for 2^40", flops_binary_prefix),
        ("only a forward pass is halved", flops_backward_not_halved),
        ("a backward pass counts as two forward passes", flops_forward_and_backward),
        ("the diagonal is left out", flops_below_the_diagonal),
        ("heads are forgotten", flops_without_heads),
        ("the rate is rounded", flops_rounded),
        ("seconds are taken for milliseconds", flops_milliseconds),
    ),
    "14.stages": (
        ("the number is rounded to the nearest", stages_rounded_to_the_nearest, "round down"),
        ("the number is rounded up", stages_rounded_up),
        ("rounding towards zero is trusted to give 0", stages_towards_zero, "what is left is negative"),
        ("no more than eight stages are tried", stages_searched_up_to_eight, "no limit but memory"),
        ("the sign of what is left is lost", stages_absolute, "what is left is negative"),
        ("a tile of O is kept as well", stages_with_o),
        ("the scores are kept in shared memory", stages_with_scores),
        ("one stage is held back", stages_one_to_spare),
        ("less than nothing fits", stages_negative),
        ("shared memory is taken in whole kilobytes", stages_of_whole_kilobytes, "counted in bytes"),
        ("the number of stages must be a power of two", stages_power_of_two),
    ),
}


def stages_counted_up(block_m, block_n, D, itemsize, shared):
    stages = 0
    while (block_m + 2 * (stages + 1) * block_n) * D * itemsize <= shared:
        stages += 1
    return stages


RIGHT = {
    "14.flops": (
        ("a table of factors", lambda s, B, H, N, D, c, b: 1e-12 / s * B * H * N * N * D * (4, 2, 10, 5)[2 * b + c]),
        (
            "products counted",
            lambda s, B, H, N, D, c, b: (5 if b else 2) * B * H * 2 * N * N * D * (1 - c / 2) / s / 1e12,
        ),
    ),
    "14.stages": (
        ("counted up", stages_counted_up),
        ("in elements", lambda m, n, D, size, shared: max(0, (shared // size - m * D) // (2 * n * D))),
        ("a float", lambda m, n, D, size, shared: float(max(0, (shared / D / size - m) / 2 // n))),
    ),
}
