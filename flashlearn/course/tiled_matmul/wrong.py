"""Answers to the exercises of tiled_matmul that are no edit of the solution: `wrong.toml` names them."""

import torch


def blocks_by_slicing(N_q, N_k, D, block_q, block_k, i, j):
    """The shapes of slices."""
    q, k = torch.empty(N_q, D), torch.empty(N_k, D)
    Q_i, K_j = q[i * block_q : (i + 1) * block_q], k[j * block_k : (j + 1) * block_k]
    return [Q_i.shape, K_j.T.shape, (Q_i @ K_j.T).shape, K_j.shape, Q_i.shape]


def tiled_by(product):
    """Three loops over blocks, whose product may be a wrong one."""

    def tiled(A, B, block):
        C = A.new_zeros(len(A), B.shape[1])
        for i in range(0, len(A), block):
            for j in range(0, B.shape[1], block):
                for p in range(0, len(B), block):
                    a, b = A[i : i + block, p : p + block], B[p : p + block, j : j + block]
                    C[i : i + block, j : j + block] += product(a, b)
        return C

    return tiled


def _padded(A, B, block):
    """A and B as (blocks of rows, block, blocks of columns, block), with zeros at the end, and how to cut C."""
    (M, K), N = A.shape, B.shape[1]
    rows, inner, columns = (-(-n // block) for n in (M, K, N))
    A = torch.nn.functional.pad(A, (0, inner * block - K, 0, rows * block - M)).reshape(rows, block, inner, block)
    B = torch.nn.functional.pad(B, (0, columns * block - N, 0, inner * block - K)).reshape(inner, block, columns, block)
    return A, B, lambda C: C.reshape(rows * block, columns * block)[:M, :N]


def tiled_matmul_blocks_at_once(A, B, block):
    """Blocks in the shape, and one einsum that multiplies them all."""
    A, B, cut = _padded(A, B, block)
    return cut(torch.einsum("rapb,pbcd->racd", A, B))


def tiled_matmul_by_padding(A, B, block):
    """Whole blocks only, stacked: the products of a step are one bmm of blocks."""
    A, B, cut = _padded(A, B, block)
    A, B = A.transpose(1, 2), B.transpose(1, 2)
    return cut(sum(A[:, None, p] @ B[None, p] for p in range(len(B))).transpose(1, 2))


def tiled_matmul_by_splitting(A, B, block):
    def product(a, b):
        return sum(x @ y for x, y in zip(a.split(block, 1), b.split(block), strict=True))

    return torch.cat([torch.cat([product(a, b) for b in B.split(block, 1)], 1) for a in A.split(block)])
