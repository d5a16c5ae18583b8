"""Known wrong answers to the exercises of notebook 08."""

import math

from flashlearn.cost import A100_40GB, placement, v2_cost
from flashlearn.exercises.assessment import Mistake


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


MISTAKES = {
    "08.bytes": (
        Mistake("Q is read only once", bytes_q_once, "four blocks of keys"),
        Mistake("K and V are read only once", bytes_kv_once, "four blocks of queries"),
        Mistake(
            "the numbers of blocks of queries and of keys are swapped", bytes_blocks_swapped, "four blocks of keys"
        ),
        Mistake("the numbers of blocks are rounded down", bytes_floor, "ragged"),
        Mistake("the last blocks are counted as whole ones", bytes_padded, "ragged"),
        Mistake("lse is not counted", bytes_without_lse, "one block"),
        Mistake("lse is counted with itemsize bytes a row, not 4", bytes_lse_in_16_bits, "one block"),
        Mistake("lse is counted as two elements a row", bytes_lse_of_two_elements, "float32"),
        Mistake("lse is counted with D bytes a row", bytes_lse_as_wide_as_o, "large head"),
    ),
    "08.block": (
        Mistake("the ridge point is taken for the block size", block_is_the_ridge, "A100, N = 4096"),
        Mistake("every hardware is taken for an A100", block_on_an_a100, "H100, N = 4096"),
        Mistake("only powers of two are tried", block_powers_of_two, "H100, N = 4096"),
        Mistake("N is returned where no block is large enough", block_all_rows_if_none, "short text"),
        Mistake(
            "range(1, N) leaves out the block of all N queries", block_never_all_rows, "one block of all N queries"
        ),
        Mistake("only blocks that divide N are tried", block_that_divides, "laptop, N = 1000"),
        Mistake("the largest block is returned, not the smallest", block_too_large, "A100, N = 4096"),
    ),
}
