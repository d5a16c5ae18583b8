"""Exercises of notebook 06: the shapes of blocks, and a matrix product by blocks."""

from __future__ import annotations

import torch

from flashlearn.exercises.grading import Case, Exercise
from flashlearn.exercises.mistakes.tiled_matmul import MISTAKES
from flashlearn.exercises.solutions.tiled_matmul import blocks_solution, tiled_solution


def _shapes(*sizes):
    return lambda function: (function(*sizes), blocks_solution(*sizes))


def _product(M, K, N, block):
    generator = torch.Generator().manual_seed(M + K + N)
    A, B = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((M, K), (K, N)))
    return lambda function: (function(A.clone(), B.clone(), block), A @ B)


class _SmallProductsOnly(torch.Tensor):
    """A matrix that refuses to be multiplied in pieces larger than 4 by 4."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        products = {
            torch.matmul,
            torch.mm,
            torch.Tensor.matmul,
            torch.Tensor.__matmul__,
            torch.Tensor.mm,
            torch.Tensor.__rmatmul__,
        }
        if function in products and any(size > 4 for t in args for size in t.shape):
            raise ValueError(f"multiplied {tuple(args[0].shape)} by {tuple(args[1].shape)}, blocks are (4, 4)")
        return super().__torch_function__(function, types, args, kwargs or {})


def _watched(function):
    A, B = torch.arange(48.0).reshape(6, 8), torch.arange(80.0).reshape(8, 10)
    got = function(A.as_subclass(_SmallProductsOnly), B.as_subclass(_SmallProductsOnly), 4)
    return got.as_subclass(torch.Tensor) if isinstance(got, torch.Tensor) else got, A @ B


EXERCISES = (
    Exercise(
        "06.blocks",
        "block_shapes(N_q, N_k, D, block_q, block_k, i, j) -> shapes of Q_i, K_j^T, S_ij, V_j and O_i",
        blocks_solution,
        (
            Case(
                "one size for all", _shapes(8, 8, 128, 2, 2, 1, 3), "only rows are cut: Q_i is (2, 128), S_ij is (2, 2)"
            ),
            Case("blocks of two sizes", _shapes(8, 8, 128, 2, 4, 0, 1), "block_q cuts Q and O, block_k cuts K and V"),
            Case("last block of Q", _shapes(7, 8, 16, 3, 4, 2, 0), "rows left over: min(block_q, N_q - i * block_q)"),
            Case("last block of K", _shapes(10, 10, 16, 4, 4, 0, 2), "keys left over: min(block_k, N_k - j * block_k)"),
            Case(
                "one block for all",
                _shapes(5, 6, 3, 64, 64, 0, 0),
                "a block larger than the matrix is the whole matrix",
            ),
        ),
        hints=(
            "Draw Q, K^T, S, V and O as in the picture. Which sides does block_q cut, and which does block_k?",
            "block_q cuts the rows of Q, S and O, block_k the rows of K and V, which are columns of K^T and S. D is never cut.",
            "rows = min(block_q, N_q - i * block_q), and cols likewise. Q_i is (rows, D), S_ij is (rows, cols); three are left.",
        ),
        mistakes=MISTAKES["06.blocks"],
    ),
    Exercise(
        "06.tiled_matmul",
        "tiled(A, B, block): (M, K), (K, N) -> (M, N), by square blocks",
        tiled_solution,
        (
            Case("even blocks", _product(8, 4, 8, 2), "C_ij is the sum over p of A_ip B_pj", 1e-9),
            Case(
                "one block",
                _product(3, 3, 3, 4),
                "slices may run past the edge: A[0:4] of three rows is three rows",
                1e-9,
            ),
            Case(
                "rows left over", _product(5, 4, 4, 2), "step through range(0, M, block), not range(M // block)", 1e-9
            ),
            Case("inner dimension left over", _product(4, 7, 4, 2), "the last block of the sum counts too", 1e-9),
            Case("nothing square", _product(6, 9, 4, 3), "A is (M, K), B is (K, N): which loop cuts which side?", 1e-9),
            Case("small products only", _watched, "multiply blocks of at most (block, block)", 1e-3),
        ),
        hints=(
            "A block of C needs a whole row of blocks of A and a whole column of blocks of B. How many loops is that?",
            "Three: over the rows of A, the columns of B, and the inner dimension. The innermost adds up.",
            "range(0, M, block) gives the starts; slices past the edge are cut short. C[i:i+block, j:j+block] += A[i:i+block, p:p+block] @ ...",
        ),
        mistakes=MISTAKES["06.tiled_matmul"],
    ),
)
