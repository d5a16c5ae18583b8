"""Solutions of the exercises of notebook 08."""

from __future__ import annotations

import math

from flashlearn.cost import placement, v2_cost


# 08.bytes
def bytes_solution(N_q, N_k, D, block_q, block_k, itemsize):
    rows, columns = math.ceil(N_q / block_q), math.ceil(N_k / block_k)
    read = itemsize * D * (columns * N_q + rows * 2 * N_k)
    written = itemsize * N_q * D + 4 * N_q
    return read, written


# 08.time
def time_solution(kernels, peak, bandwidth):
    return sum(max(flops / peak, moved / bandwidth) for flops, moved in kernels)


# 08.block
def block_solution(N, D, hardware):
    for block_q in range(1, N + 1):
        if placement(v2_cost(1, 1, N, N, D, block_q=block_q), hardware).bound == "compute-bound":
            return block_q
    return 0
