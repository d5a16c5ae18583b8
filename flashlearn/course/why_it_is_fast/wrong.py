"""Answers to the exercises of why_it_is_fast that are no edit of the solution: `wrong.toml` names them."""

import bisect
import functools
import math

import torch

from flashlearn.cost import A100_40GB, placement, v1_cost, v2_cost


def bytes_block_by_block(N_q, N_k, D, block_q, block_k, itemsize):
    read = written = 0
    for i in range(0, N_q, block_q):
        rows = min(block_q, N_q - i)
        for j in range(0, N_k, block_k):
            read += (rows + 2 * min(block_k, N_k - j)) * D * itemsize
        written += rows * (D * itemsize + 4)
    return [read, written]


def time_in_a_loop(kernels, peak, bandwidth):
    total = 0.0
    for flops, moved in kernels:
        compute, memory = flops / peak, moved / bandwidth
        if compute > memory:
            total += compute
        else:
            total += memory
    return total


def compute_bound(N, D, hardware, block_q, cost=v2_cost, dtype=torch.float16, **options):
    return placement(cost(1, 1, N, N, D, dtype=dtype, block_q=block_q, **options), hardware, dtype).bound[0] == "c"


def search(N, D, hardware, **options):
    """The first block with which this cost is compute-bound."""
    return next((b for b in range(1, N + 1) if compute_bound(N, D, hardware, b, **options)), 0)


def block_by_bisection(N, D, hardware):
    """More queries in a block are never worse."""
    block = 1 + bisect.bisect_left(range(1, N + 1), True, key=lambda b: compute_bound(N, D, hardware, b))
    return block if block <= N else 0


def block_by_arithmetic(N, D, hardware):
    """From the bytes that N queries may cost, the number of blocks, and from that the smallest block."""
    allowed = 4 * N * N * D / hardware.ridge() - 4 * N * D - 4 * N
    blocks = min(N, int(allowed // (4 * N * D)))
    return math.ceil(N / blocks) if blocks else 0
