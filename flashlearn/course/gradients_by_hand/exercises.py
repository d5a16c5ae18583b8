"""Exercises of notebook 09: gradients of a product and of softmax without a Jacobian, one row of dV, and a bug to find."""

from __future__ import annotations

import math

import torch

from flashlearn.course.gradients_by_hand.solutions import bug_solution, dv_solution, matmul_solution, softmax_solution
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.watching import PRODUCTS, WrongWay, shapes, watched


def _random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _product(N, D, M):
    """The gradients of X W for random X, W and dY, by autograd."""

    def compare(function):
        dy, x, w = _random(N, M, seed=2), _random(N, D).requires_grad_(), _random(D, M, seed=1).requires_grad_()
        return function(dy.clone(), x.detach().clone(), w.detach().clone()), torch.autograd.grad(x @ w, (x, w), dy)

    return compare


def _softmax(*shape, spread=1.0, hidden=False):
    """The gradient of softmax for random logits and dP, by autograd; a mask may hide the last two of every row."""

    def compare(function):
        s, dp = (spread * _random(*shape)).requires_grad_(), _random(*shape, seed=1) + 2
        seen = torch.arange(shape[-1]) < shape[-1] - 2 if hidden else torch.tensor(True)
        p = torch.softmax(s.masked_fill(~seen, -math.inf), -1)
        return function(dp.clone(), p.detach().clone()), torch.autograd.grad(p, s, dp)[0]

    return compare


def _products_by_hand(function):
    """The gradients of a product whose Y = X W nobody may compute again, as autograd does."""
    x, w, dy = _random(4, 3), _random(3, 5, seed=1), _random(4, 5, seed=2)
    got, made = watched(function, dy.clone(), x.clone(), w.clone())
    if dy.shape in shapes(made, *PRODUCTS):
        raise WrongWay("expected two products that take dY in, got Y = X W computed once more: autograd was at work")
    return got, (dy @ w.mT, x.mT @ dy)


def _softmax_by_hand(function):
    """The gradient of softmax for two rows of 40, from P alone and by less memory than a Jacobian."""
    N = 40
    p, dp = torch.softmax(_random(2, N), -1), _random(2, N, seed=1)
    got, made = watched(function, dp.clone(), p.clone())
    if any("softmax" in one.operation for one in made):
        raise WrongWay("expected a product and a sum of dP and P, got softmax once more: P is here, leave autograd out")
    if any(math.prod(one.shape) >= N * N for one in made):
        raise WrongWay(f"expected nothing larger than P, got a tensor of {N} x {N} entries: do without the Jacobian")
    return got, softmax_solution(dp, p)


def _dv(N_q, N_k, D, j):
    """Row j of dV = P^T dO for random P and dO."""
    p, do = torch.softmax(_random(N_q, N_k), -1), _random(N_q, D, seed=1)
    return lambda function: (function(p.clone(), do.clone(), j), (p.mT @ do)[j])


def _one_key(function):
    """dV of one key of eleven, for which none of the others is needed."""
    p, do = torch.softmax(_random(5, 11), -1), _random(5, 3, seed=1)
    got, made = watched(function, p.clone(), do.clone(), 4)
    large = [one.shape for one in made if math.prod(one.shape) >= 11 * 3]
    if large:
        raise WrongWay(
            f"expected the sum for one key, got a tensor of shape {large[0]}: the other keys are not asked for"
        )
    return got, (p.mT @ do)[4]


def _attention(N_q, N_k, D):
    """The gradients of attention of one head, by autograd."""

    def compare(function):
        q, k, v, do = (_random(n, D, seed=seed) for seed, n in enumerate((N_q, N_k, N_k, N_q)))
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        o = torch.softmax(leaves[0] @ leaves[1].mT / math.sqrt(D), -1) @ leaves[2]
        return function(do, q, k, v), torch.autograd.grad(o, leaves, do)

    return compare


def _attention_by_hand(function):
    """The gradients of attention, in which no operation of autograd's backward takes part."""
    q, k, v, do = (_random(n, 3, seed=seed) for seed, n in enumerate((4, 6, 6, 4)))
    got, made = watched(function, do.clone(), q.clone(), k.clone(), v.clone())
    if any("backward" in one.operation for one in made):
        raise WrongWay("expected the backward mended, got one by autograd: P, dP and delta are all there")
    return got, bug_solution(do, q, k, v)


MATMUL_BACKWARD_CASES = (
    Case("one row", _product(1, 3, 2), "dX = dY W^T and dW = X^T dY, in this order"),
    Case("all sizes differ", _product(4, 3, 5), "track the shapes: dX is shaped as X, dW as W"),
    Case("all sizes equal", _product(3, 3, 3), "here shapes do not help: transpose W in dX, and X in dW"),
    Case("many rows", _product(50, 2, 3), "every row of X pulls at the same W: dW adds up over rows"),
    Case("by hand", _products_by_hand, "dX and dW are one product each; autograd is not asked here"),
    Case("all digits of float64", _product(60, 3, 2),
         "torch.zeros(...) is float32 unless told: zeros_like(w), or dtype=w.dtype", 1e-10),
)  # fmt: skip

SOFTMAX_BACKWARD_CASES = (
    Case("one row", _softmax(5), "dS = P o (dP - delta): the entries of a row depend on each other"),
    Case("uneven weights", _softmax(5, spread=4.0), "delta is the sum of P o dP, weighted by P, not the mean"),
    Case("several rows", _softmax(4, 6), "one delta for each row: sum over dim=-1 with keepdim=True"),
    Case("two batches", _softmax(2, 3, 4), "only the last dimension is summed, whatever stands before it"),
    Case("batches and heads", _softmax(2, 3, 4, 5),
         "four dimensions are as good as three: dim=-1 is the last of any number"),
    Case("two weights of 0", _softmax(3, 6, hidden=True),
         "a mask makes weights 0, and dS is 0 there: neither divide by P nor take its logarithm"),
    Case("by hand", _softmax_by_hand, "one number for each row is enough: no Jacobian, and no autograd"),
    Case("all digits of float64", _softmax(3, 20),
         "keep the dtype of dP and P: float32 knows seven digits, float64 sixteen", 1e-10),
)  # fmt: skip

DV_CASES = (
    Case("two queries, two keys", _dv(2, 2, 2, 0), "dV_0 = P_00 dO_0 + P_10 dO_1: one term for each query"),
    Case("another key", _dv(3, 3, 2, 2), "j says which key: its weights stand in column j of P"),
    Case("more queries than keys", _dv(7, 3, 4, 1), "as many terms as there are queries, not keys"),
    Case("more keys than queries", _dv(2, 6, 3, 5), "as many terms as there are queries, whatever j is"),
    Case("one query", _dv(1, 3, 2, 1), "one query is enough: a sum of one term, and nothing of a second one"),
    Case("one key alone", _one_key, "the sum for key j takes column j of P and dO, and nothing of other keys"),
    Case("all digits of float64", _dv(40, 5, 3, 3), "torch.zeros(...) is float32 unless told: keep the dtype of dO",
         1e-10),
)  # fmt: skip

BUG_CASES = (
    Case("as many keys as queries", _attention(4, 4, 3),
         "check line by line: rows of P add up to 1, rows of dS to 0, the scale is in S, dQ and dK"),
    Case("more keys than queries", _attention(3, 5, 2), "delta has one number for each query, not for each key"),
    Case("more queries than keys", _attention(6, 2, 4), "dQ is shaped as q, dK and dV as k and v"),
    Case("by hand", _attention_by_hand, "mend the line that is wrong; autograd is not asked here"),
    Case("all digits of float64", _attention(20, 30, 5), "keep the dtype of what comes in, also where zeros start",
         1e-10),
)  # fmt: skip

EXERCISES = (
    Exercise(
        "matmul_backward",
        "matmul_backward(dy, x, w): (N, M), (N, D), (D, M) -> dx (N, D), dw (D, M), for Y = X W",
        matmul_solution,
        MATMUL_BACKWARD_CASES,
        hints=(
            "dX has the shape of X, dW that of W. Which products of dY (N, M), X (N, D) and W (D, M) have these shapes?",
            "Y_nm takes in row n of X and column m of W. So dX_nd collects dY_nm W_dm over m. What does dW_dm collect, and over which index?",
            "dX is one product with dY on the left, dW is one with dY on the right; in each the other factor is turned over.",
        ),
        library=("flashlearn",),
        values=("dX", "dW"),
    ),
    Exercise(
        "softmax_backward",
        "softmax_backward(dp, p): (..., N), (..., N) -> ds (..., N), for P = softmax(S) over the last dimension",
        softmax_solution,
        SOFTMAX_BACKWARD_CASES,
        hints=(
            "One logit changes all weights of its row, because they share a sum. One number for each row carries all of that.",
            "The number is delta, the sum of P o dP (o: entry by entry) over the row. Every entry of dP is compared with it.",
            "Two lines: a sum of products over the last dimension, kept as a column (..., 1), then P times a difference.",
        ),
        library=("the backward pass of torch.softmax", "flashlearn"),
    ),
    Exercise(
        "dv",
        "dv(p, do, j): (N_q, N_k), (N_q, d), int -> dV_j (d,), the gradient of one value",
        dv_solution,
        DV_CASES,
        hints=(
            "Which outputs did V_j help to make, and how strongly each?",
            "O_i holds the term P_ij V_j. So dO_i comes back to V_j times that number, and j is the same in all terms.",
            "A vector of d numbers: one term for each query, each a number of P times a row of dO.",
        ),
    ),
    Exercise(
        "bug",
        "attention_backward(do, q, k, v): (N_q, d), (N_q, d), (N_k, d), (N_k, d) -> dq, dk, dv, scale 1 / sqrt(d)",
        bug_solution,
        BUG_CASES,
        hints=(
            "One of the three gradients is right. Which lines did it need, and which did only the other two need?",
            "Look at dS: each of its rows must add up to 0. Then at the shape of every tensor that goes into it.",
            "One word is missing. With N_q = N_k a row of numbers and a column of them both fit, and only one of them is right.",
        ),
        library=("flashlearn",),
        values=("dQ", "dK", "dV"),
    ),
)
