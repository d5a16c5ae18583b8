"""Wrong answers to the exercises of notebook 08."""

import math

from flashlearn.cost import placement, v2_cost
from tests.variants import variant


def counted(N_q, N_k, D, block_q, block_k, itemsize, kv=2, writes=1):
    rows, columns = math.ceil(N_q / block_q), math.ceil(N_k / block_k)
    return itemsize * D * (columns * N_q + rows * kv * N_k), writes * (itemsize * N_q * D + 4 * N_q)


@variant("08.bytes", "K is read and V is not", r"K and V|\bV\b.*(not|left|forgot)|both")
def without_v(*problem):
    return counted(*problem, kv=1)


@variant(
    "08.bytes", "O and lse are written at every visit", r"once|at the end|after the last|every visit|each visit|written"
)
def written_at_every_visit(N_q, N_k, D, block_q, block_k, itemsize):
    return counted(N_q, N_k, D, block_q, block_k, itemsize, writes=math.ceil(N_k / block_k))


@variant("08.bytes", "one number is returned, the sum of both", r"2 values|two|\(read, written\)|pair|both")
def one_number(*problem):
    return sum(counted(*problem))


@variant("08.bytes", "elements are counted, not bytes", r"itemsize|bytes each|elements")
def elements(N_q, N_k, D, block_q, block_k, itemsize):
    return tuple(n // itemsize for n in counted(N_q, N_k, D, block_q, block_k, itemsize))


@variant("08.bytes", "read and written are exchanged", r"order|exchang|swap|\(read, written\)")
def exchanged(*problem):
    return counted(*problem)[::-1]


def bound(N, D, hardware, b):
    return placement(v2_cost(1, 1, N, N, D, block_q=b), hardware).bound


@variant("08.block", "the first memory-bound block", r"compute-bound|memory-bound")
def memory_bound(N, D, hardware):
    return next((b for b in range(1, N + 1) if bound(N, D, hardware, b) == "memory-bound"), 0)


@variant("08.block", "None where no block is large enough", r"return 0|\bNone\b|0 if")
def none(N, D, hardware):
    for b in range(1, N + 1):
        if bound(N, D, hardware, b) == "compute-bound":
            return b


@variant(
    "08.block",
    "one less than the smallest",
    r"one (too|less)|too small|off by one|still memory-bound|not compute-bound|1 too",
)
def one_less(N, D, hardware):
    return max(0, next((b for b in range(1, N + 1) if bound(N, D, hardware, b) == "compute-bound"), 1) - 1)


@variant(
    "08.block",
    "only multiples of 16 are tried",
    r"multiples|smaller .*(do|works|is)|every b|1, 2, 3|too large|not the smallest",
)
def multiples_of_16(N, D, hardware):
    return next((b for b in range(16, N + 1, 16) if bound(N, D, hardware, b) == "compute-bound"), 0)
