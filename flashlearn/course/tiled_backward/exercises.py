"""Exercises of notebook 10: the tiles of a gradient, dV for one block of keys, dS for one tile, the dK/dV pass in order, and dQ."""

from __future__ import annotations

import math

import torch

from flashlearn.algorithms.gradients import softmax_backward
from flashlearn.course.tiled_backward.solutions import (
    dq_solution,
    ds_solution,
    dv_solution,
    met_solution,
    one_block_of_keys,
    order_solution,
)
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.formulas import normals
from flashlearn.exercises.ordering import Ordering, puzzle
from flashlearn.exercises.watching import WrongWay, shapes, watched

ORDER = puzzle("tiled_backward", "order", one_block_of_keys, given=(1, 0))


def _problem(N_q, N_k, D, size=1.0):
    """q, k, v, do, P, o, lse of one head in float64, and the gradient of S."""
    q, k, v, do = normals(*((n, D) for n in (N_q, N_k, N_k, N_q)), seed=N_q)
    S = size * q @ k.mT / math.sqrt(D)
    P = torch.softmax(S, -1)
    return size * q, k, v, do, P, P @ v, torch.logsumexp(S, -1), softmax_backward(do @ v.mT, P)


def pairs(tiles, T_r, T_c):
    """The tiles that an answer lists, each of which must exist, and be there once."""
    try:
        found = [(int(i), int(j)) for i, j in tiles]
    except (TypeError, ValueError):
        raise ValueError(f"expected a list of pairs of numbers (i, j), got {tiles!r}") from None
    for i, j in found:
        if not (0 <= i < T_r and 0 <= j < T_c):
            raise ValueError(f"there is no tile ({i}, {j}): i goes from 0 to {T_r - 1}, j from 0 to {T_c - 1}")
    if len(set(found)) < len(found):
        raise ValueError(f"expected each tile once, got one more than once: {found}")
    return found


def _met(name, hint, T_r, T_c, j):
    """dV of block j, by the tiles that an answer lists and whole; a block has two rows."""

    def compare(function):
        P, dO = normals((2 * T_r, 2 * T_c), (2 * T_r, 3), seed=10 * T_r + T_c)
        want = (P.mT @ dO).split(2)[j]
        tiles = [part.split(2, 1) for part in P.split(2)]
        terms = [tiles[i][column].mT @ dO.split(2)[i] for i, column in pairs(function(j, T_r, T_c), T_r, T_c)]
        return sum(terms, torch.zeros_like(want)), want

    return Case(name, compare, hint)


def _order(name, hint, N_q, N_k, D, cols, block_q):
    """The loop of the dK/dV pass over one block of keys."""
    q, k, v, do, _, o, lse, _ = _problem(N_q, N_k, D)
    keys = slice(*cols)
    return ORDER.case(name, (q, k[keys], v[keys], do, lse, (do * o).sum(-1), block_q), hint)


def _dv(name, hint, N_q, N_k, D, cols, block_q, size=1.0, tolerance=1e-5):
    def compare(function):
        q, k, _, do, P, _, lse, _ = _problem(N_q, N_k, D, size)
        return function(q, k[slice(*cols)], do.clone(), lse, block_q), P[:, slice(*cols)].mT @ do

    return Case(name, compare, hint, tolerance)


def _ds(name, hint, N_q, N_k, D, rows, cols, hidden=False, tolerance=1e-5):
    def compare(function):
        _, _, v, do, P, o, _, dS = _problem(N_q, N_k, D)
        rows_, cols_ = slice(*rows), slice(*cols)
        p, want = P[rows_, cols_].clone(), dS[rows_, cols_].clone()
        if hidden:  # what a mask does to a block: P = 0 there
            p[0, 1:] = want[0, 1:] = 0
        return function(p, do[rows_], o[rows_], v[cols_]), want

    return Case(name, compare, hint, tolerance)


def _dq(name, hint, N_q, N_k, D, rows, block_k, size=1.0, tolerance=1e-5):
    """dQ of some of the queries, for all keys."""

    def compare(function):
        q, k, v, do, _, o, lse, dS = _problem(N_q, N_k, D, size)
        here = slice(*rows)
        want = (dS @ k / math.sqrt(D))[here]
        return function(q[here], k, v, do[here].clone(), o[here], lse[here], block_k), want

    return Case(name, compare, hint, tolerance)


def _in_sevens(function, tensors, others, what):
    """What the answer returns, which may meet seven of 31 queries or keys at a time, and the last three."""
    got, made = watched(function, *(t.clone() for t in tensors), 7)
    large = [one.shape for one in made if math.prod(one.shape) >= 31 * others]
    if large:
        raise WrongWay(f"expected blocks of 7 {what}, got a tensor of shape {large[0]}: 31 {what} at once")
    blocks = {math.prod(shape) // others for shape in shapes(made, "exp", "exp2", "pow", "softmax", "_softmax")}
    if blocks != {7, 3}:
        got_them = ", ".join(map(str, sorted(blocks))) or "none"
        raise WrongWay(f"expected e^(S - lse) for 7 {what} at once, for the last 3, got it for {got_them}")
    return got


def _by_blocks(function):
    """dV_j of five keys from 31 queries."""
    q, k, _, do, P, _, lse, _ = _problem(31, 5, 3)
    return _in_sevens(function, (q, k, do, lse), 5, "queries"), P.mT @ do


def _by_blocks_of_keys(function):
    """dQ_i of four queries from 31 keys."""
    q, k, v, do, _, o, lse, dS = _problem(4, 31, 3)
    return _in_sevens(function, (q, k, v, do, o, lse), 4, "keys"), dS @ k / math.sqrt(3)


ZEROS = "torch.zeros(...) is float32 unless you give a dtype"
MET_CASES = (
    _met("one tile", "V_0 is multiplied by P_00 alone", 1, 1, 0),
    _met("four by four, block 1", "in which lines O_0, O_1, ... does V_1 appear, and behind which tile?", 4, 4, 1),
    _met("five by two", "one term for each of the T_r blocks of queries", 5, 2, 1),
    _met("two by five", "the number of blocks of keys does not matter for one of them", 2, 5, 3),
)
ORDER_CASES = (
    _order("one block of queries", "dV takes P, dK takes dS", 3, 4, 2, (0, 4), 3),
    _order("two blocks of queries", "both gradients add up over the queries", 6, 4, 2, (0, 4), 3),
    _order("some of the keys", "over these keys alone the weights add up to less than 1", 5, 7, 3, (2, 4), 5),
)
DV_CASES = (
    _dv("one block of queries", "dV_j = P^T dO with P = exp(S - lse), S = q k_j^T / sqrt(D)", 4, 4, 3, (0, 4), 4),
    _dv("several blocks of queries", "add up over the blocks: dV_j += P^T dO_i", 12, 4, 3, (0, 4), 4),
    _dv("some of the keys", "rows of P add up to 1 over all keys, not over these: use lse", 8, 10, 4, (4, 7), 4),
    _dv("the last block is shorter", "range(0, N_q, block_q) with slices keeps the rest", 10, 6, 4, (0, 6), 4),
    _dv("large scores", "subtract lse before the exponential: exp(S) overflows", 8, 6, 4, (0, 6), 3, 3000.0),
    Case(
        "block by block",
        _by_blocks,
        "inside the loop: q[rows], do[rows] and lse[rows] of block_q queries, and all of k_j",
    ),
    _dv("all digits of float64", f"{ZEROS}: zeros_like(k_j), or dtype=q.dtype", 15, 7, 5, (0, 7), 4, tolerance=1e-10),
)
DS_CASES = (
    _ds("all keys", "dS = P o (dP - delta), dP = dO V_j^T", 5, 4, 3, (0, 5), (0, 4)),
    _ds("some of the keys", "delta is rowsum(dO o O), not a sum over the keys of this tile", 5, 9, 3, (0, 5), (3, 6)),
    _ds("as many rows as columns", "delta is one number for each row: keepdim=True", 9, 9, 4, (3, 6), (3, 6)),
    _ds("part of it masked", "P is 0 where the mask hides: then dS is 0 too", 6, 6, 4, (2, 4), (2, 5), hidden=True),
    _ds("all digits of float64", f"{ZEROS}; keep the dtype of the inputs", 7, 11, 5, (1, 6), (2, 9), tolerance=1e-10),
)
DQ_CASES = (
    _dq("one block of keys", "dQ_i = scale dS K, dS = P o (dP - delta), P = e^(S - lse)", 4, 5, 3, (0, 4), 5),
    _dq("several blocks of keys", "add up over the blocks: dQ_i += scale dS K_j", 4, 12, 3, (0, 4), 4),
    _dq("some of the queries", "lse_i and delta have one number for each of these queries", 9, 8, 4, (3, 5), 4),
    _dq("the last block is shorter", "range(0, N_k, block_k) with slices keeps the rest", 6, 10, 4, (0, 6), 4),
    _dq("large scores", "subtract lse before the exponential: exp(S) overflows", 8, 6, 4, (0, 8), 3, 3000.0),
    Case("block by block", _by_blocks_of_keys, "inside the loop: block_k rows of k and of v, and all of q_i"),
    _dq("all digits of float64", f"{ZEROS}: zeros_like(q_i), or dtype=q_i.dtype", 7, 15, 5, (0, 7), 4, tolerance=1e-10),
)

EXERCISES = (
    Exercise(
        "met",
        "met(j, T_r, T_c) -> the tiles of P that contribute to dV_j, a list of pairs (i, j)",
        met_solution,
        MET_CASES,
        hints=(
            "Write the lines of O_0, O_1 and O_2 for two blocks of keys, and underline V_j wherever it appears.",
            "V_j is multiplied by one tile in every line. What is the number of its row, what is that of its column?",
            "The tiles are P_0j, P_1j, ..., one for each block of queries: a column. Let i run over range(T_r).",
        ),
        core=("four by four, block 1",),
    ),
    Ordering(
        "order",
        "order(): the letters of the lines of the loop, from top to bottom",
        order_solution,
        ORDER_CASES,
        hints=(
            "Say what one visit does before you look at the letters: P again, its part of dV, dS, its part of dK.",
            "`tile` is one piece of room on chip. What must it hold when a line uses it?",
            "Two lines compute what is in the tile, and two add a product with it to a gradient. They alternate.",
        ),
        core=("two blocks of queries",),
        values=("dK", "dV"),
        puzzle=ORDER,
    ),
    Exercise(
        "dv",
        "dv(q, k_j, do, lse, block_q): (N_q, D), (cols, D), (N_q, D), (N_q,), int -> dV_j (cols, D)",
        dv_solution,
        DV_CASES,
        hints=(
            "dV_j = P^T dO, summed over all queries. How do you get a block of P from q, k_j and lse alone?",
            "S = q[rows] k_j^T / sqrt(d) and P = e^(S - lse), with lse as a column. No softmax here: the other keys are missing.",
            "In the loop: a slice of block_q queries, their scores, their weights. Add the product of shapes (cols, block) and (block, d).",
        ),
        core=("some of the keys",),
    ),
    Exercise(
        "ds",
        "ds(p, do, o, v_j): (rows, cols), (rows, D), (rows, D), (cols, D) -> dS (rows, cols)",
        ds_solution,
        DS_CASES,
        hints=(
            "dS = P o (dP - delta), as in notebook 09. Which of the three cannot be computed from this tile by its definition?",
            "delta sums P o dP over all keys, and a tile has only some of them. But it equals rowsum(dO o O).",
            "Three lines: delta, a column (rows, 1) from do and o; dP (rows, cols), one product; P times a difference.",
        ),
    ),
    Exercise(
        "dq",
        "dq(q_i, k, v, do_i, o_i, lse_i, block_k): (rows, D), (N_k, D) twice, (rows, D) twice, (rows,), int -> dQ_i",
        dq_solution,
        DQ_CASES,
        hints=(
            "In the dQ pass queries stay and keys come by. What does one visit add to dQ_i? What can be computed before the loop?",
            "Compute delta once, from do_i and o_i. In the loop compute P with lse_i, then dP, then dS as in 10.ds.",
            "Before the loop: delta and zeros. In the loop: a slice, P, dS. Add the product of shapes (rows, block) and (block, d), scaled.",
        ),
        core=("several blocks of keys",),
        library=("flashlearn",),
    ),
)
