"""Exercises of notebook 10: dV for one block of keys, dS for one pair, the loop of sweep 1 in order, and sweep 2."""

from __future__ import annotations

import math

import torch

from flashlearn.course.tiled_backward.solutions import (
    dq_solution,
    ds_solution,
    dv_solution,
    one_block_of_keys,
    order_solution,
)
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.ordering import Ordering, puzzle
from flashlearn.exercises.watching import WrongWay, shapes, watched

ORDER = puzzle("tiled_backward", "order", one_block_of_keys, given=(1, 0))


def _problem(N_q, N_k, D, size=1.0):
    """q, k, v, do, P, o, lse of one head in float64, and S with the gradient that autograd finds for it."""
    generator = torch.Generator().manual_seed(N_q)
    q, k, v, do = (torch.randn(n, D, generator=generator, dtype=torch.float64) for n in (N_q, N_k, N_k, N_q))
    S = (size * q @ k.mT / math.sqrt(D)).requires_grad_()
    P = torch.softmax(S, -1)
    dS = torch.autograd.grad((P @ v * do).sum(), S)[0]  # of a number: with `do` as an argument torch imports SymPy
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


def _dq(N_q, N_k, D, rows, block_k, size=1.0):
    """dQ of some of the queries, for all keys, by autograd."""

    def compare(function):
        q, k, v, do, _, o, lse, dS = _problem(N_q, N_k, D, size)
        here = slice(*rows)
        want = (dS @ k / math.sqrt(D))[here]
        return function(q[here], k, v, do[here].clone(), o[here], lse[here], block_k), want

    return compare


def _by_blocks_of_keys(function):
    """dQ_i of four queries from 31 keys, of which seven, and three at the end, may meet them at a time."""
    N_q, N_k, D, block_k = 4, 31, 3, 7
    q, k, v, do, _, o, lse, dS = _problem(N_q, N_k, D)
    given = (q.clone(), k.clone(), v.clone(), do.clone(), o.clone(), lse.clone())
    got, made = watched(function, *given, block_k)
    large = [one.shape for one in made if math.prod(one.shape) >= N_q * N_k]
    if large:
        raise WrongWay(f"expected blocks of {block_k} keys, got a tensor of shape {large[0]}: {N_k} keys at once")
    blocks = {math.prod(shape) // N_q for shape in shapes(made, "exp", "exp2", "pow")}
    if blocks != {block_k, N_k % block_k}:
        got_them = ", ".join(map(str, sorted(blocks))) or "none"
        raise WrongWay(f"expected e^(S - lse) for {block_k} keys at once, for the last 3, got it for {got_them}")
    return got, dS @ k / math.sqrt(D)


def _queries_and_keys(N_q, N_k, D, cols, block_q):
    """What the loop of sweep 1 takes for one block of keys."""
    q, k, v, do, _, o, lse, _ = _problem(N_q, N_k, D)
    keys = slice(*cols)
    return q, k[keys], v[keys], do, lse, (do * o).sum(-1), block_q


EXERCISES = (
    Ordering(
        "order",
        "order(): the letters of the lines of the loop, from top to bottom",
        order_solution,
        (
            ORDER.case("one block of queries", _queries_and_keys(3, 4, 2, (0, 4), 3), "dV takes P, dK takes dS"),
            ORDER.case(
                "two blocks of queries", _queries_and_keys(6, 4, 2, (0, 4), 3), "both gradients add up over the queries"
            ),
            ORDER.case(
                "some of the keys",
                _queries_and_keys(5, 7, 3, (2, 4), 5),
                "over these keys alone weights add up to less",
            ),
        ),
        hints=(
            "Cover the letters and say what one visit does: P again, its share of dV, dS, its share of dK.",
            "`tile` is one piece of room on chip: what does each line need to find in it?",
            "Two lines make what is in the tile, two add it to a gradient; a line that makes is followed by one that adds.",
        ),
        core=("two blocks of queries",),
        values=("dK", "dV"),
        puzzle=ORDER,
    ),
    Exercise(
        "dv",
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
            "Zeros (cols, d); a loop over starts of blocks; in it a slice, scores, weights, and (cols, block)(block, d) is added.",
        ),
        core=("some of the keys",),
    ),
    Exercise(
        "ds",
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
            "Three lines: delta, a column (rows, 1) from do and o; dP (rows, cols), one product; P times a difference.",
        ),
    ),
    Exercise(
        "dq",
        "dq(q_i, k, v, do_i, o_i, lse_i, block_k): (rows, D), (N_k, D) twice, (rows, D) twice, (rows,), int -> dQ_i",
        dq_solution,
        (
            Case(
                "one block of keys",
                _dq(4, 5, 3, (0, 4), 5),
                "dQ_i = scale dS K, dS = P o (dP - delta), P = e^(S - lse)",
            ),
            Case("several blocks of keys", _dq(4, 12, 3, (0, 4), 4), "add up over the blocks: dQ_i += scale dS K_j"),
            Case(
                "some of the queries",
                _dq(9, 8, 4, (3, 5), 4),
                "lse_i and delta have one number for each of these queries",
            ),
            Case(
                "the last block is shorter",
                _dq(6, 10, 4, (0, 6), 4),
                "range(0, N_k, block_k) with slices keeps the rest",
            ),
            Case(
                "large scores", _dq(8, 6, 4, (0, 8), 3, 3000.0), "subtract lse before the exponential: exp(S) overflows"
            ),
            Case("block by block", _by_blocks_of_keys, "inside the loop: block_k rows of k and of v, and all of q_i"),
            Case(
                "all digits of float64",
                _dq(7, 15, 5, (0, 7), 4),
                "torch.zeros(...) is float32 unless told: zeros_like(q_i), or dtype=q_i.dtype",
                1e-10,
            ),
        ),
        hints=(
            "Sweep 2: queries stay, keys come by. What does one visit add to dQ_i, and what can be made before the loop?",
            "delta comes from do_i and o_i, once. In the loop P comes back by lse_i, then dP, then dS, as in 10.ds.",
            "One line before the loop for delta and one for zeros; in it a slice, P, dS, and (rows, block)(block, d) is added.",
        ),
        core=("several blocks of keys",),
        library=("flashlearn",),
    ),
)
