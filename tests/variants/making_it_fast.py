"""Wrong answers to the exercises of notebook 14."""

import math

from tests.variants import variant


def flops(B, H, N, D, causal, backward, again=2.5):
    return 4 * B * H * N**2 * D * (0.5 if causal else 1) * (again if backward else 1)


@variant("14.flops", "not divided by the time", r"second|\btime\b|rate|divi")
def not_divided_by_the_time(seconds, B, H, N, D, causal, backward):
    return flops(B, H, N, D, causal, backward) / 1e12


@variant("14.flops", "N once, not squared", r"N N|N\^2|N \*\* 2|N\*\*2|square")
def n_once(seconds, B, H, N, D, causal, backward):
    return flops(B, H, N, D, causal, backward) / N / seconds / 1e12


@variant("14.flops", "backward counts twice as much as forward", r"2\.5|five|5 products")
def backward_is_double(seconds, B, H, N, D, causal, backward):
    return flops(B, H, N, D, causal, backward, again=2) / seconds / 1e12


@variant("14.flops", "heads are not counted", r"heads?\b|\bH\b")
def without_heads(seconds, B, H, N, D, causal, backward):
    return flops(B, 1, N, D, causal, backward) / seconds / 1e12


@variant("14.stages", "rounded up", r"round.*down|rounded up|floor|does not fit|too many|//")
def rounded_up(block_m, block_n, D, itemsize, shared):
    return max(0, math.ceil((shared - block_m * D * itemsize) / (2 * block_n * D * itemsize)))


@variant("14.stages", "a fraction is returned", r"whole|integer|round|//|fraction")
def a_fraction(block_m, block_n, D, itemsize, shared):
    return max(0, (shared - block_m * D * itemsize) / (2 * block_n * D * itemsize))


@variant("14.stages", "the tiles of K and V are taken to have block_m rows", r"block_n|K and V|K and of V|one of V")
def rows_of_q_for_all(block_m, block_n, D, itemsize, shared):
    return max(0, (shared - block_m * D * itemsize) // (2 * block_m * D * itemsize))


@variant("14.stages", "Q is counted in elements", r"itemsize|bytes|\bQ\b")
def q_in_elements(block_m, block_n, D, itemsize, shared):
    return max(0, (shared - block_m * D) // (2 * block_n * D * itemsize))
