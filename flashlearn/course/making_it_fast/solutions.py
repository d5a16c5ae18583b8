"""Solutions of the exercises of notebook 14."""

from __future__ import annotations


# 14.flops
def flops_solution(seconds, B, H, N, D, causal, backward):
    flops = 4 * B * H * N**2 * D
    if causal:
        flops /= 2
    if backward:
        flops *= 2.5
    return flops / seconds / 1e12


# 14.stages
def stages_solution(block_m, block_n, D, itemsize, shared):
    left = shared - block_m * D * itemsize  # Q is loaded once
    return max(0, left // (2 * block_n * D * itemsize))
