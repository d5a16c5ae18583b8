"""Answers to the exercises of why_it_is_fast that are no edit of the solution: `wrong.toml` names them."""

import math

import torch

from flashlearn.cost import A100_40GB, placement, v2_cost
from flashlearn.course.why_it_is_fast.solutions import bytes_solution


def _bytes(q_times, kv_times, N_q, N_k, D, itemsize, lse=4):
    return itemsize * D * (q_times * N_q + kv_times * 2 * N_k), N_q * (itemsize * D + lse)


def bytes_q_once(N_q, N_k, D, block_q, block_k, itemsize):
    return _bytes(1, math.ceil(N_q / block_q), N_q, N_k, D, itemsize)


def bytes_kv_once(N_q, N_k, D, block_q, block_k, itemsize):
    return _bytes(math.ceil(N_k / block_k), 1, N_q, N_k, D, itemsize)


def bytes_blocks_swapped(N_q, N_k, D, block_q, block_k, itemsize):
    return _bytes(math.ceil(N_q / block_q), math.ceil(N_k / block_k), N_q, N_k, D, itemsize)


def bytes_floor(N_q, N_k, D, block_q, block_k, itemsize):
    return _bytes(N_k // block_k, N_q // block_q, N_q, N_k, D, itemsize)


def bytes_padded(N_q, N_k, D, block_q, block_k, itemsize):
    rows, columns = math.ceil(N_q / block_q), math.ceil(N_k / block_k)
    padded = _bytes(columns, rows, rows * block_q, columns * block_k, D, itemsize)
    return padded[0], N_q * (itemsize * D + 4)


def bytes_without_lse(N_q, N_k, D, block_q, block_k, itemsize):
    return _bytes(math.ceil(N_k / block_k), math.ceil(N_q / block_q), N_q, N_k, D, itemsize, lse=0)


def bytes_lse_in_16_bits(N_q, N_k, D, block_q, block_k, itemsize):
    return _bytes(math.ceil(N_k / block_k), math.ceil(N_q / block_q), N_q, N_k, D, itemsize, lse=itemsize)


def bytes_lse_of_two_elements(N_q, N_k, D, block_q, block_k, itemsize):
    return _bytes(math.ceil(N_k / block_k), math.ceil(N_q / block_q), N_q, N_k, D, itemsize, lse=2 * itemsize)


def bytes_lse_as_wide_as_o(N_q, N_k, D, block_q, block_k, itemsize):
    return _bytes(math.ceil(N_k / block_k), math.ceil(N_q / block_q), N_q, N_k, D, itemsize, lse=D)


def block_is_the_ridge(N, D, hardware):
    return math.ceil(hardware.ridge())


def block_on_an_a100(N, D, hardware):
    return _search(N, D, A100_40GB, range(1, N + 1))


def block_powers_of_two(N, D, hardware):
    return _search(N, D, hardware, (2**n for n in range(N.bit_length())))


def block_all_rows_if_none(N, D, hardware):
    return _search(N, D, hardware, range(1, N + 1)) or N


def block_that_divides(N, D, hardware):
    return _search(N, D, hardware, (b for b in range(1, N + 1) if N % b == 0))


def block_too_large(N, D, hardware):
    return _search(N, D, hardware, range(N, 0, -1))


def block_never_all_rows(N, D, hardware):
    return _search(N, D, hardware, range(1, N))


def _search(N, D, hardware, blocks):
    bound = (b for b in blocks if placement(v2_cost(1, 1, N, N, D, block_q=b), hardware).bound == "compute-bound")
    return next(bound, 0)


def counted(N_q, N_k, D, block_q, block_k, itemsize, kv=2, writes=1):
    rows, columns = math.ceil(N_q / block_q), math.ceil(N_k / block_k)
    return itemsize * D * (columns * N_q + rows * kv * N_k), writes * (itemsize * N_q * D + 4 * N_q)


def without_v(*problem):
    return counted(*problem, kv=1)


def written_at_every_visit(N_q, N_k, D, block_q, block_k, itemsize):
    return counted(N_q, N_k, D, block_q, block_k, itemsize, writes=math.ceil(N_k / block_k))


def one_number(*problem):
    return sum(counted(*problem))


def elements(N_q, N_k, D, block_q, block_k, itemsize):
    return tuple(n // itemsize for n in counted(N_q, N_k, D, block_q, block_k, itemsize))


def exchanged(*problem):
    return counted(*problem)[::-1]


def bound(N, D, hardware, b):
    return placement(v2_cost(1, 1, N, N, D, block_q=b), hardware).bound


def memory_bound(N, D, hardware):
    return next((b for b in range(1, N + 1) if bound(N, D, hardware, b) == "memory-bound"), 0)


def none(N, D, hardware):
    for b in range(1, N + 1):
        if bound(N, D, hardware, b) == "compute-bound":
            return b


def one_less(N, D, hardware):
    return max(0, next((b for b in range(1, N + 1) if bound(N, D, hardware, b) == "compute-bound"), 1) - 1)


def multiples_of_16(N, D, hardware):
    return next((b for b in range(16, N + 1, 16) if bound(N, D, hardware, b) == "compute-bound"), 0)


def bytes_by(read, written=lambda N_q, D, itemsize: N_q * (itemsize * D + 4)):
    """(read, written) of which either may be wrong; `read` gets the numbers of blocks first."""

    def bytes_moved(N_q, N_k, D, block_q, block_k, itemsize):
        rows, columns = math.ceil(N_q / block_q), math.ceil(N_k / block_k)
        return read(rows, columns, N_q, N_k, D, itemsize), written(N_q, D, itemsize)

    return bytes_moved


def read_right(rows, columns, N_q, N_k, D, itemsize):
    return itemsize * D * (columns * N_q + 2 * rows * N_k)


def bytes_swapped(*args):
    return bytes_solution(*args)[::-1]


def bytes_one_block_too_many(N_q, N_k, D, block_q, block_k, itemsize):
    rows, columns = N_q // block_q + 1, N_k // block_k + 1
    return read_right(rows, columns, N_q, N_k, D, itemsize), bytes_solution(N_q, N_k, D, 1, 1, itemsize)[1]


def bytes_blocks_of_one_size(N_q, N_k, D, block_q, block_k, itemsize):
    return bytes_solution(N_q, N_k, D, block_q, block_q, itemsize)


def search(N, D, hardware, blocks=None, cost=v2_cost, dtype=torch.float16, **options):
    """The first of these blocks with which this cost is compute-bound."""
    for block in blocks or range(1, N + 1):
        if placement(cost(1, 1, N, N, D, dtype=dtype, block_q=block, **options), hardware, dtype).bound[0] == "c":
            return block
    return 0


def block_by_the_intensity(N, D, hardware):
    """Of reading K and V alone: FLOPs 4 N^2 D over 4 N D N / b bytes is b."""
    block = math.ceil(hardware.ridge())
    return block if block <= N else 0


def block_from_a_number_of_blocks(N, D, hardware):
    """N over the number of blocks, rounded down."""
    block = search(N, D, hardware)
    return N // math.ceil(N / block) if block else 0


def block_by_bisection(N, D, hardware):
    """More queries in a block are never worse."""
    low, high = 0, N + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if search(N, D, hardware, [middle]) else (middle, high)
    return high if high <= N else 0


def block_by_arithmetic(N, D, hardware):
    """From the bytes that N queries may cost, the number of blocks, and from that the smallest block."""
    allowed = 4 * N * N * D / hardware.ridge() - 4 * N * D - 4 * N
    blocks = min(N, int(allowed // (4 * N * D)))
    return math.ceil(N / blocks) if blocks else 0


def bytes_block_by_block(N_q, N_k, D, block_q, block_k, itemsize):
    read = written = 0
    for i in range(0, N_q, block_q):
        rows = min(block_q, N_q - i)
        for j in range(0, N_k, block_k):
            read += (rows + 2 * min(block_k, N_k - j)) * D * itemsize
        written += rows * (D * itemsize + 4)
    return [read, written]
