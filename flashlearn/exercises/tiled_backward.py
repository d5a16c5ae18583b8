"""Exercises of notebook 10: dV for one block of keys, then dS for one pair of blocks."""

from __future__ import annotations

import math

import torch

from flashlearn.exercises.grading import Case, Exercise
from flashlearn.exercises.mistakes.tiled_backward import MISTAKES
from flashlearn.exercises.solutions.tiled_backward import ds_solution, dv_solution
from flashlearn.exercises.watching import WrongWay, shapes, watched


def _problem(N_q, N_k, D, size=1.0):
    """q, k, v, do, P, o, lse of one head in float64, and S with the gradient that autograd finds for it."""
    generator = torch.Generator().manual_seed(N_q)
    q, k, v, do = (torch.randn(n, D, generator=generator, dtype=torch.float64) for n in (N_q, N_k, N_k, N_q))
    S = (size * q @ k.mT / math.sqrt(D)).requires_grad_()
    P = torch.softmax(S, -1)
    dS = torch.autograd.grad(P @ v, S, do)[0]
    return size * q, k, v, do, P.detach(), P.detach() @ v, torch.logsumexp(S.detach(), -1), dS


def _dv(N_q, N_k, D, cols, block_q, size=1.0):
    def compare(function):
        q, k, _, do, P, _, lse, _ = _problem(N_q, N_k, D, size)
        return function(q, k[slice(*cols)], do.clone(), lse, block_q), P[:, slice(*cols)].mT @ do

    return compare


def _ds(N_q, N_k, D, rows, cols, hidden=False):
    def compare(function):
        _, _, v, do, P, o, _, dS = _problem(N_q, N_k, D)
        rows_, cols_ = slice(*rows), slice(*cols)
        p, want = P[rows_, cols_].clone(), dS[rows_, cols_].clone()
        if hidden:  # what a mask does to a block: P = 0 there
            p[0, 1:] = want[0, 1:] = 0
        return function(p, do[rows_], o[rows_], v[cols_]), want

    return compare


def _by_blocks(function):
    """dV_j of five keys from 31 queries, of which seven, and three at the end, may meet the keys at a time."""
    N_q, cols, D, block_q = 31, 5, 3, 7
    q, k, _, do, P, _, lse, _ = _problem(N_q, cols, D)
    got, made = watched(function, q.clone(), k.clone(), do.clone(), lse.clone(), block_q)
    for shape in (one.shape for one in made):
        if math.prod(shape) >= N_q * cols:
            raise WrongWay(
                f"expected blocks of {block_q} queries, got a tensor of shape {shape}: {N_q} queries at once"
            )
    blocks = {math.prod(shape) // cols for shape in shapes(made, "exp", "exp2", "pow")}
    if blocks != {block_q, N_q % block_q}:
        got_them = ", ".join(map(str, sorted(blocks))) or "none"
        raise WrongWay(f"expected e^(S - lse) for {block_q} queries at once, for the last 3, got it for {got_them}")
    return got, P.mT @ do


EXERCISES = (
    Exercise(
        "10.dv",
        "dv(q, k_j, do, lse, block_q): (N_q, D), (cols, D), (N_q, D), (N_q,), int -> dV_j (cols, D)",
        dv_solution,
        (
            Case(
                "one block of queries",
                _dv(4, 4, 3, (0, 4), 4),
                "dV_j = P^T dO with P = exp(S - lse), S = q k_j^T / sqrt(D)",
            ),
            Case("several blocks of queries", _dv(12, 4, 3, (0, 4), 4), "add up over the blocks: dV_j += P^T dO_i"),
            Case(
                "some of the keys",
                _dv(8, 10, 4, (4, 7), 4),
                "rows of P add up to 1 over all keys, not over these: use lse, no softmax here",
            ),
            Case(
                "the last block is shorter",
                _dv(10, 6, 4, (0, 6), 4),
                "range(0, N_q, block_q) with slices keeps the rest",
            ),
            Case(
                "large scores", _dv(8, 6, 4, (0, 6), 3, 3000.0), "subtract lse before the exponential: exp(S) overflows"
            ),
            Case(
                "block by block",
                _by_blocks,
                "inside the loop: q[rows], do[rows] and lse[rows] of block_q queries, and all of k_j",
            ),
            Case(
                "all digits of float64",
                _dv(15, 7, 5, (0, 7), 4),
                "torch.zeros(...) is float32 unless told: zeros_like(k_j), or dtype=q.dtype",
                1e-10,
            ),
        ),
        hints=(
            "dV_j = P^T dO, summed over all queries. What brings back a block of P, when only q, k_j and lse are at hand?",
            "S = q[rows] k_j^T / sqrt(d) and P = e^(S - lse), lse as a column. No softmax: the other keys of the row are not here.",
            "Loop over range(0, N_q, block_q) with rows = slice(i, i + block_q), and add P.mT @ do[rows] to dV_j.",
        ),
        mistakes=MISTAKES["10.dv"],
    ),
    Exercise(
        "10.ds",
        "ds(p, do, o, v_j): (rows, cols), (rows, D), (rows, D), (cols, D) -> dS (rows, cols)",
        ds_solution,
        (
            Case("all keys", _ds(5, 4, 3, (0, 5), (0, 4)), "dS = P o (dP - delta), dP = dO V_j^T"),
            Case(
                "some of the keys",
                _ds(5, 9, 3, (0, 5), (3, 6)),
                "delta is rowsum(dO o O): P o dP here is a part of its sum",
            ),
            Case(
                "as many rows as columns",
                _ds(9, 9, 4, (3, 6), (3, 6)),
                "delta is one number for each row: keepdim=True",
            ),
            Case(
                "part of it masked", _ds(6, 6, 4, (2, 4), (2, 5), True), "P is 0 where the mask hides: then dS is 0 too"
            ),
            Case(
                "all digits of float64",
                _ds(7, 11, 5, (1, 6), (2, 9)),
                "torch.zeros(...) is float32 unless told; keep the dtype of what comes in",
                1e-10,
            ),
        ),
        hints=(
            "dS = P o (dP - delta), as in notebook 09. Which of the three cannot come from this block alone by its definition?",
            "delta sums P o dP over all keys, and here are only some of them. It equals rowsum(dO o O).",
            "dP = do @ v_j.mT, and delta = (do * o).sum(-1, keepdim=True), a column.",
        ),
        mistakes=MISTAKES["10.ds"],
    ),
)
