"""Wrong answers to the exercises of notebook 08."""

import math

import torch

from flashlearn.cost import placement, v1_cost, v2_cost
from flashlearn.course.why_it_is_fast.solutions import bytes_solution


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


WRONG = {
    "08.bytes": (
        (
            "numbers of blocks are rounded to the nearest",
            lambda N_q, N_k, D, bq, bk, size: (
                read_right(round(N_q / bq), round(N_k / bk), N_q, N_k, D, size),
                bytes_solution(N_q, N_k, D, bq, bk, size)[1],
            ),
            "not to the nearest",
        ),
        ("V is not counted", bytes_by(lambda r, c, N_q, N_k, D, size: size * D * (c * N_q + r * N_k))),
        (
            "Q is read once for each of its own blocks, too",
            bytes_by(lambda r, c, N_q, N_k, D, size: size * D * (r * c * N_q + 2 * r * N_k)),
        ),
        (
            "O is read back for each block of keys",
            bytes_by(lambda r, c, N_q, N_k, D, size: size * D * (2 * c * N_q + 2 * r * N_k)),
        ),
        (
            "the first reading of Q is not counted",
            bytes_by(lambda r, c, N_q, N_k, D, size: size * D * ((c - 1) * N_q + 2 * r * N_k)),
        ),
        (
            "Q is counted once more, as if it had been kept first",
            bytes_by(lambda r, c, N_q, N_k, D, size: size * D * ((c + 1) * N_q + 2 * r * N_k)),
        ),
        ("O is written for each block of keys", bytes_by(read_right, lambda N_q, D, size: 2 * N_q * (size * D + 4))),
        ("two statistics are written a row", bytes_by(read_right, lambda N_q, D, size: N_q * (size * D + 8))),
        (
            "elements are counted, not bytes",
            bytes_by(lambda *a: read_right(*a[:-1], 1), lambda N_q, D, size: N_q * (D + 1)),
        ),
        (
            "every element has two bytes",
            bytes_by(lambda *a: read_right(*a[:-1], 2), lambda N_q, D, size: N_q * (2 * D + 4)),
        ),
        ("read and written change places", bytes_swapped),
        ("the number of blocks is N // block + 1", bytes_one_block_too_many),
        ("block_q cuts the keys as well", bytes_blocks_of_one_size),
    ),
    "08.block": (
        ("the search ends at half of N", lambda N, D, hw: search(N, D, hw, range(1, N // 2 + 1)), "block of all N"),
        ("D is always 64", lambda N, D, hw: search(N, 64, hw), "D"),
        ("D is N", lambda N, D, hw: search(N, N, hw), "Pass D on"),
        ("one query in a block is not tried", lambda N, D, hw: search(N, D, hw, range(2, N + 1)), "start at 1"),
        ("N is always 4096", lambda N, D, hw: min(search(4096, D, hw), N)),
        ("blocks go by 8", lambda N, D, hw: search(N, D, hw, range(8, N + 1, 8))),
        ("float32 is meant", lambda N, D, hw: search(N, D, hw, dtype=torch.float32)),
        ("version 1 is asked", lambda N, D, hw: search(N, D, hw, cost=v1_cost, block_k=64)),
        ("the causal cost is asked", lambda N, D, hw: search(N, D, hw, causal=True)),
        ("the intensity is taken for the block size", block_by_the_intensity),
        ("the first block that is too small is returned", lambda N, D, hw: max(search(N, D, hw) - 1, 0)),
        ("N over the number of blocks is rounded down", block_from_a_number_of_blocks),
        ("blocks end at 1024", lambda N, D, hw: search(N, D, hw, range(1, min(N, 1024) + 1)), "at no number of yours"),
        ("blocks end at 512", lambda N, D, hw: search(N, D, hw, range(1, min(N, 512) + 1))),
        ("None stands for no block", lambda N, D, hw: search(N, D, hw) or None),
    ),
}

RIGHT = {
    "08.bytes": (
        ("block by block", bytes_block_by_block),
        ("as floats", lambda *sizes: tuple(map(float, bytes_solution(*sizes)))),
    ),
    "08.block": (
        ("bisection", block_by_bisection),
        ("closed form", block_by_arithmetic),
    ),
}
