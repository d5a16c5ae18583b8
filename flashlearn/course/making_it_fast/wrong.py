"""Answers to the exercises of making_it_fast that are no edit of the solution: `wrong.toml` names them."""

import math


def _rate(*problem, products=2, half=0.5, again=2.5, unit=1e12):
    seconds, B, H, N, D, causal, backward = problem
    return 2 * products * B * H * N**2 * D * (half if causal else 1) * (again if backward else 1) / seconds / unit


def flops_one_product(*args):
    return _rate(*args, products=1)


def flops_causal_not_halved(*args):
    return _rate(*args, half=1)


def flops_backward_as_forward(*args):
    return _rate(*args, again=1)


def flops_seven_products(*args):
    return _rate(*args, again=3.5)


def flops_in_gigaflops(*args):
    return _rate(*args, unit=1e9)


def flops_one_head(seconds, B, H, N, D, causal, backward):
    return _rate(seconds, 1, 1, N, D, causal, backward)


def flops_exact_triangle(seconds, B, H, N, D, causal, backward):
    return _rate(seconds, B, H, N, D, causal, backward, half=(N + 1) / (2 * N))


def _stages(block_m, block_n, D, itemsize, shared, *, q=1, pair=2, slack=0):
    return max(0, (shared - slack - q * block_m * D * itemsize) // (pair * block_n * D * itemsize))


def stages_without_q(*args):
    return _stages(*args, q=0)


def stages_k_only(*args):
    return _stages(*args, pair=1)


def stages_in_elements(block_m, block_n, D, itemsize, shared):
    return _stages(block_m, block_n, D, 1, shared)


def stages_in_float16(block_m, block_n, D, itemsize, shared):
    return _stages(block_m, block_n, D, 2, shared)


def stages_q_in_each(block_m, block_n, D, itemsize, shared):
    return shared // ((block_m + 2 * block_n) * D * itemsize)


def stages_not_quite_full(*args):
    return _stages(*args, slack=1)


def stages_blocks_swapped(block_m, block_n, D, itemsize, shared):
    return _stages(block_n, block_m, D, itemsize, shared)


def stages_at_least_one(*args):
    return max(1, _stages(*args))


def flops(B, H, N, D, causal, backward, again=2.5):
    return 4 * B * H * N**2 * D * (0.5 if causal else 1) * (again if backward else 1)


def not_divided_by_the_time(seconds, B, H, N, D, causal, backward):
    return flops(B, H, N, D, causal, backward) / 1e12


def n_once(seconds, B, H, N, D, causal, backward):
    return flops(B, H, N, D, causal, backward) / N / seconds / 1e12


def backward_is_double(seconds, B, H, N, D, causal, backward):
    return flops(B, H, N, D, causal, backward, again=2) / seconds / 1e12


def without_heads(seconds, B, H, N, D, causal, backward):
    return flops(B, 1, N, D, causal, backward) / seconds / 1e12


def rounded_up(block_m, block_n, D, itemsize, shared):
    return max(0, math.ceil((shared - block_m * D * itemsize) / (2 * block_n * D * itemsize)))


def a_fraction(block_m, block_n, D, itemsize, shared):
    return max(0, (shared - block_m * D * itemsize) / (2 * block_n * D * itemsize))


def rows_of_q_for_all(block_m, block_n, D, itemsize, shared):
    return max(0, (shared - block_m * D * itemsize) // (2 * block_m * D * itemsize))


def q_in_elements(block_m, block_n, D, itemsize, shared):
    return max(0, (shared - block_m * D) // (2 * block_n * D * itemsize))


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


def stages_counted_up(block_m, block_n, D, itemsize, shared):
    stages = 0
    while (block_m + 2 * (stages + 1) * block_n) * D * itemsize <= shared:
        stages += 1
    return stages
