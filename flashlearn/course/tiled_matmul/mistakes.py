"""Known wrong answers to the exercises of notebook 06."""

import torch

from flashlearn.exercises.assessment import Mistake


def blocks_columns_cut_too(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = min(block_q, N_q - i * block_q), min(block_k, N_k - j * block_k)
    return (rows, block_k), (block_k, cols), (rows, cols), (cols, block_k), (rows, block_k)


def blocks_one_size(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = min(block_q, N_q - i * block_q), min(block_q, N_k - j * block_q)
    return (rows, D), (D, cols), (rows, cols), (cols, D), (rows, D)


def blocks_never_shorter(N_q, N_k, D, block_q, block_k, i, j):
    return (block_q, D), (D, block_k), (block_q, block_k), (block_k, D), (block_q, D)


def blocks_shorter_rows_only(N_q, N_k, D, block_q, block_k, i, j):
    rows = min(block_q, N_q - i * block_q)
    return (rows, D), (D, block_k), (rows, block_k), (block_k, D), (rows, D)


def blocks_remainder_everywhere(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = N_q % block_q or block_q, N_k % block_k or block_k
    return (rows, D), (D, cols), (rows, cols), (cols, D), (rows, D)


def _by_blocks(A, B, block, rows, inner, accumulate=True):
    N = B.shape[1]
    C = torch.zeros(A.shape[0], N, dtype=A.dtype)
    for i in rows:
        for j in range(0, N, block):
            for p in inner:
                product = A[i : i + block, p : p + block] @ B[p : p + block, j : j + block]
                at = slice(i, i + block), slice(j, j + block)
                C[at] = C[at] + product if accumulate else product
    return C


def tiled_overwrites(A, B, block):
    return _by_blocks(A, B, block, range(0, A.shape[0], block), range(0, A.shape[1], block), accumulate=False)


def tiled_drops_rows(A, B, block):
    rows = [i * block for i in range(A.shape[0] // block)] or [0]
    return _by_blocks(A, B, block, rows, range(0, A.shape[1], block))


def tiled_drops_the_end_of_the_sum(A, B, block):
    inner = [p * block for p in range(A.shape[1] // block)] or [0]
    return _by_blocks(A, B, block, range(0, A.shape[0], block), inner)


def tiled_sums_over_rows_of_A(A, B, block):
    return _by_blocks(A, B, block, range(0, A.shape[0], block), range(0, A.shape[0], block))


def tiled_not_at_all(A, B, block):
    return A @ B


MISTAKES = {
    "06.blocks": (
        Mistake("the head dimension D is cut as well", blocks_columns_cut_too, "one size for all"),
        Mistake("block_q is used for the keys too", blocks_one_size, "blocks of two sizes"),
        Mistake("the last block is taken to be as large as the others", blocks_never_shorter, "last block of Q"),
        Mistake(
            "only the last block of queries is made shorter, not that of keys",
            blocks_shorter_rows_only,
            "last block of K",
        ),
        Mistake("every block is made as short as the last", blocks_remainder_everywhere, "last block of K"),
    ),
    "06.tiled_matmul": (
        Mistake("each product overwrites the block of C instead of being added to it", tiled_overwrites, "even blocks"),
        Mistake("the rows past the last whole block are dropped", tiled_drops_rows, "rows left over"),
        Mistake(
            "the end of the sum, past the last whole block, is dropped",
            tiled_drops_the_end_of_the_sum,
            "inner dimension left over",
        ),
        Mistake("the sum runs over the rows of A instead of its columns", tiled_sums_over_rows_of_A, "nothing square"),
        Mistake(
            "nothing is cut into blocks and whole matrices are multiplied", tiled_not_at_all, "small products only"
        ),
    ),
}
