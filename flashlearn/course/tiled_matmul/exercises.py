"""Exercises of notebook 06: the shapes of blocks, and a matrix product by blocks."""

from __future__ import annotations

import functools
import itertools

from flashlearn.course.tiled_matmul.solutions import blocks_solution, tiled_solution
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.formulas import normals
from flashlearn.exercises.watching import PRODUCTS, WrongWay, watched

ENTRY_BY_ENTRY = ("mul", "addcmul", "addr")  # products too, if what they make is summed


def _shapes(*sizes):
    return lambda function: (function(*sizes), blocks_solution(*sizes))


def _every_size(function, most=6):
    """Every block of small problems, against the solution; ValueError names the first difference."""
    for N_q, N_k, block_q, block_k in itertools.product(range(1, most + 1), range(1, most + 1), (1, 2, 4), (1, 3)):
        for i, j in itertools.product(range(0, N_q, block_q), range(0, N_k, block_k)):
            sizes = N_q, N_k, 5, block_q, block_k, i // block_q, j // block_k
            got, expected = function(*sizes), blocks_solution(*sizes)
            if tuple(map(tuple, got)) != expected:
                raise ValueError(f"expected block_shapes{sizes} to be {expected}, got {got}")
    return 0, 0


def _matrices(M, K, N):
    return normals((M, K), (K, N), seed=M + K + N)


def _product(M, K, N, block):
    A, B = _matrices(M, K, N)
    return lambda function: (function(A.clone(), B.clone(), block), A @ B)


def _small_products_only(function, block=4):
    """Whatever multiplies two tensors (einsum and broadcasting too) is handed at most (block, block)."""
    A, B = _matrices(6, 8, 10)
    got, made = watched(function, A.clone(), B.clone(), block)
    products = [one for one in made if one.operation in PRODUCTS + ENTRY_BY_ENTRY and len(one.operands) > 1]
    for one in products:
        shapes = [one.shape] if one.operation in ENTRY_BY_ENTRY else [shape for shape, _ in one.operands]
        if any(size > block for shape in shapes for size in shape[-2:]):
            factors = " by ".join(str(shape) for shape, _ in one.operands[-2:])
            raise WrongWay(f"expected products of ({block}, {block}) at most, got {factors}")
    if not products:
        raise WrongWay("expected products of blocks of A and B, got no product of tensors at all")
    inner = [a[1] for (a, _), (b, _) in (one.operands[-2:] for one in products) if len(a) == len(b) == 2]
    if inner and max(inner) == 1:
        raise WrongWay(f"expected ({block}, {block}) by ({block}, {block}), got single columns by single rows")
    return got, A @ B


def _another_block(function):
    """What is multiplied with what must depend on the block."""
    A, B = _matrices(4, 4, 6)
    ways = [[one.operands for one in watched(function, A.clone(), B.clone(), block)[1]] for block in (2, 4)]
    if any(ways) and ways[0] == ways[1]:
        raise WrongWay("expected blocks of 2 and of 4 to make a difference, got the same operations for both")
    return function(A.clone(), B.clone(), 4), A @ B


BLOCKS_CASES = (
    Case("one size for all", _shapes(8, 8, 128, 2, 2, 1, 3), "only rows are cut: Q_i is (2, 128), S_ij is (2, 2)"),
    Case("blocks of two sizes", _shapes(8, 8, 128, 2, 4, 0, 1), "block_q cuts Q and O, block_k cuts K and V"),
    Case("last block of Q", _shapes(7, 8, 16, 3, 4, 2, 0), "the last block has the rows that are left: min(block_q, N_q - i * block_q)"),
    Case("last block of K", _shapes(10, 10, 16, 4, 4, 0, 2), "the last block has the keys that are left: min(block_k, N_k - j * block_k)"),
    Case("one block for all", _shapes(5, 6, 3, 64, 64, 0, 0), "a block larger than the matrix is the whole matrix"),
    Case("both last", _shapes(7, 10, 16, 3, 4, 2, 2),
         "the last block of Q may meet the last block of K: compute the size of each by itself"),
    Case("last blocks, nothing left over", _shapes(12, 20, 16, 3, 5, 3, 3),
         "if block_q divides N_q, the last block has block_q rows"),
    Case("every small size", _every_size, "draw the matrices and their blocks for these sizes"),
)  # fmt: skip

_case = functools.partial(Case, tolerance=1e-9)
TILED_MATMUL_CASES = (
    _case("even blocks", _product(8, 4, 8, 2), "C_ij is the sum over p of A_ip B_pj"),
    _case("one block", _product(3, 3, 3, 4), "slices may go past the edge: A[0:4] of a matrix with three rows has three rows"),
    _case("rows left over", _product(5, 4, 4, 2), "step through range(0, M, block), not range(M // block)"),
    _case("inner dimension left over", _product(4, 7, 4, 2), "the last block of the sum counts, too"),
    _case("nothing square", _product(4, 9, 7, 2), "A is (M, R), B is (R, N): which loop cuts which dimension?"),
    _case("small products only", _small_products_only,
          "multiply only blocks of at most (block, block), by @, by einsum or entry by entry"),
    _case("block decides", _another_block,
          "use the given block for the steps and for the slices, not a number of your own"),
)  # fmt: skip

EXERCISES = (
    Exercise(
        "blocks",
        "block_shapes(N_q, N_k, D, block_q, block_k, i, j) -> shapes of Q_i, K_j^T, S_ij, V_j and O_i",
        blocks_solution,
        BLOCKS_CASES,
        hints=(
            "Draw Q, K^T, S, V and O. Which dimensions does block_q cut, and which does block_k?",
            "block_q cuts the rows of Q, S and O. block_k cuts the rows of K and V, and so the columns of K^T and S. D is never cut.",
            "rows = min(..., N_q - ...), cols = min(..., N_k - ...). Then return five pairs; each has two of rows, cols and D.",
        ),
        core=("blocks of two sizes",),
        values=("Q_i", "K_j^T", "S_ij", "V_j", "O_i"),
    ),
    Exercise(
        "tiled_matmul",
        "tiled(A, B, block): (M, R), (R, N) -> (M, N), by square blocks",
        tiled_solution,
        TILED_MATMUL_CASES,
        hints=(
            "A block of C needs a row of blocks of A and a column of blocks of B. How many loops do you need?",
            "Three loops: over the rows of A, the columns of B, and the inner dimension. The innermost one adds up.",
            "Write three times for ... in range(0, ..., block), then one line: C[..., ...] += A[..., ...] @ B[..., ...]. Slices past the edge are cut short.",
        ),
        core=("small products only",),
        library=("flashlearn",),
    ),
)
