"""Wrong answers to the exercises of notebook 06."""

import torch

from tests.variants import variant


def sizes(N_q, N_k, block_q, block_k, i, j):
    return min(block_q, N_q - i * block_q), min(block_k, N_k - j * block_k)


@variant("06.blocks", "K_j is not transposed", r"transpos|K_j\^T|\(D, ")
def keys_not_transposed(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = sizes(N_q, N_k, block_q, block_k, i, j)
    return (rows, D), (cols, D), (rows, cols), (cols, D), (rows, D)


@variant("06.blocks", "O_i has the shape of S_ij", r"\bO_i|\bO is|Q and O|rows of O")
def o_as_s(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = sizes(N_q, N_k, block_q, block_k, i, j)
    return (rows, D), (D, cols), (rows, cols), (cols, D), (rows, cols)


@variant("06.blocks", "i and j are exchanged", r"exchang|swap|\bi counts|i \*|\bi and j")
def i_and_j_exchanged(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = sizes(N_q, N_k, block_q, block_k, j, i)
    return (rows, D), (D, cols), (rows, cols), (cols, D), (rows, D)


@variant(
    "06.blocks",
    "all that is left is taken, not at most a block",
    r"min\(|at most|larger than|no more than|all that is left|too large",
)
def all_that_is_left(N_q, N_k, D, block_q, block_k, i, j):
    rows, cols = N_q - i * block_q, N_k - j * block_k
    return (rows, D), (D, cols), (rows, cols), (cols, D), (rows, D)


def by_blocks(A, B, C, block, ends=0):
    for i in range(0, A.shape[0] - ends, block):
        for j in range(0, B.shape[1] - ends, block):
            for p in range(0, A.shape[1], block):
                C[i : i + block, j : j + block] += A[i : i + block, p : p + block] @ B[p : p + block, j : j + block]
    return C


@variant("06.tiled_matmul", "C has the shape of A", r"\(M, N\)|shape")
def shaped_as_a(A, B, block):
    return by_blocks(A, B, torch.zeros_like(A), block)


@variant("06.tiled_matmul", "C is in float32", r"float32|dtype|precision|rounded")
def in_float32(A, B, block):
    return by_blocks(A.float(), B.float(), torch.zeros(A.shape[0], B.shape[1]), block)


@variant(
    "06.tiled_matmul",
    "the loops end one block early",
    r"last block|last rows|past the|never written|stop early|end(s)? .*early|left over|missing|are 0",
)
def one_block_short(A, B, block):
    return by_blocks(A, B, torch.zeros(A.shape[0], B.shape[1], dtype=A.dtype), block, ends=block)


@variant(
    "06.tiled_matmul",
    "the indices of the block of B are exchanged",
    r"B_pj|B is \(K, N\)|block of B|rows of B|transpos|B\[p|exchanged",
)
def b_exchanged(A, B, block):
    C = torch.zeros(A.shape[0], B.shape[1], dtype=A.dtype)
    for i in range(0, A.shape[0], block):
        for j in range(0, B.shape[1], block):
            for p in range(0, A.shape[1], block):
                C[i : i + block, j : j + block] += A[i : i + block, p : p + block] @ B[j : j + block, p : p + block]
    return C
