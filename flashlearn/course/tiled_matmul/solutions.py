"""Solutions of the exercises of notebook 06."""

from __future__ import annotations

import torch


# 06.blocks
def blocks_solution(N_q, N_k, D, block_q, block_k, i, j):
    rows = min(block_q, N_q - i * block_q)
    cols = min(block_k, N_k - j * block_k)
    return (rows, D), (D, cols), (rows, cols), (cols, D), (rows, D)


# 06.tiled_matmul
def tiled_solution(A, B, block):
    (M, K), N = A.shape, B.shape[1]
    C = torch.zeros(M, N, dtype=A.dtype)
    for i in range(0, M, block):
        for j in range(0, N, block):
            for p in range(0, K, block):
                C[i : i + block, j : j + block] += A[i : i + block, p : p + block] @ B[p : p + block, j : j + block]
    return C
