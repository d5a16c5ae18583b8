"""Exercises of notebook 09: a weight used twice, gradients of a product and of softmax without a Jacobian, and a bug to find."""

from __future__ import annotations

import math

import torch

from flashlearn.algorithms.gradients import attention_backward, matmul_backward, softmax_backward
from flashlearn.course.gradients_by_hand.solutions import (
    bug_solution,
    matmul_solution,
    paths_solution,
    softmax_solution,
)
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.watching import PRODUCTS, WrongWay, shapes, watched


def _random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _product(N, D, M):
    """The gradients of X W for random X, W and dY."""

    def compare(function):
        dy, x, w = _random(N, M, seed=2), _random(N, D), _random(D, M, seed=1)
        return function(dy.clone(), x.clone(), w.clone()), matmul_backward(dy, x, w)

    return compare


def _softmax(*shape, spread=1.0, hidden=False):
    """The gradient of softmax for random logits and dP; a mask may hide the last two of every row."""

    def compare(function):
        s, dp = spread * _random(*shape), _random(*shape, seed=1) + 2
        seen = torch.arange(shape[-1]) < shape[-1] - 2 if hidden else torch.tensor(True)
        p = torch.softmax(s.masked_fill(~seen, -math.inf), -1)
        return function(dp.clone(), p.clone()), softmax_backward(dp, p)

    return compare


def _products_by_hand(function):
    """The gradients of a product whose Y = X W nobody may compute again, as autograd does."""
    x, w, dy = _random(4, 3), _random(3, 5, seed=1), _random(4, 5, seed=2)
    got, made = watched(function, dy.clone(), x.clone(), w.clone())
    if dy.shape in shapes(made, *PRODUCTS):
        raise WrongWay("expected two products that take dY in, got Y = X W computed again: autograd was used")
    return got, (dy @ w.mT, x.mT @ dy)


def _softmax_by_hand(function):
    """The gradient of softmax for two rows of 40, from P alone and by less memory than a Jacobian."""
    N = 40
    p, dp = torch.softmax(_random(2, N), -1), _random(2, N, seed=1)
    got, made = watched(function, dp.clone(), p.clone())
    if any("softmax" in one.operation for one in made):
        raise WrongWay("expected a product and a sum of dP and P, got softmax again: P is given, leave autograd out")
    if any(math.prod(one.shape) >= N * N for one in made):
        raise WrongWay(f"expected nothing larger than P, got a tensor of {N} x {N} entries: do without the Jacobian")
    return got, softmax_solution(dp, p)


def _attention(N_q, N_k, D):
    """The gradients of attention of one head."""

    def compare(function):
        q, k, v, do = (_random(n, D, seed=seed) for seed, n in enumerate((N_q, N_k, N_k, N_q)))
        want = attention_backward(*(t[None, None] for t in (do, q, k, v)))
        return function(do, q, k, v), tuple(gradient[0, 0] for gradient in want)

    return compare


def _attention_by_hand(function):
    """The gradients of attention, in which no operation of autograd's backward takes part."""
    q, k, v, do = (_random(n, 3, seed=seed) for seed, n in enumerate((4, 6, 6, 4)))
    got, made = watched(function, do.clone(), q.clone(), k.clone(), v.clone())
    if any("backward" in one.operation for one in made):
        raise WrongWay("expected the corrected backward pass, got one by autograd: P, dP and delta are all there")
    return got, bug_solution(do, q, k, v)


def _paths(x, w, b):
    return Case(f"x = {x}, w = {w}, b = {b}", lambda function: (function(x, w, b), float(paths_solution(x, w, b))),
                "w reaches z on two paths: multiply along each, then add")  # fmt: skip


PATHS_CASES = (_paths(2, 3, 1), _paths(2, 3, 0), _paths(5, 0, 4), _paths(-1.5, 2.5, -0.5))
MATMUL_BACKWARD_CASES = (
    Case("one row", _product(1, 3, 2), "dX = dY W^T and dW = X^T dY, in this order"),
    Case("all sizes differ", _product(4, 3, 5), "track the shapes: dX is shaped as X, dW as W"),
    Case("all sizes equal", _product(3, 3, 3), "here shapes do not help: transpose W in dX, and X in dW"),
    Case("many rows", _product(50, 2, 3), "every row of X uses the same W: dW adds up over the rows"),
    Case("by hand", _products_by_hand, "dX and dW are one product each, without autograd"),
    Case("all digits of float64", _product(60, 3, 2),
         "torch.zeros(...) is float32 unless you give a dtype: zeros_like(w), or dtype=w.dtype", 1e-10),
)  # fmt: skip

SOFTMAX_BACKWARD_CASES = (
    Case("one row", _softmax(5), "dS = P o (dP - delta): the entries of a row depend on each other"),
    Case("uneven weights", _softmax(5, spread=4.0), "delta is the sum of P o dP, weighted by P, not the mean"),
    Case("several rows", _softmax(4, 6), "one delta for each row: sum over dim=-1 with keepdim=True"),
    Case("two batches", _softmax(2, 3, 4), "only the last dimension is summed, however many are before it"),
    Case("batches and heads", _softmax(2, 3, 4, 5),
         "any number of dimensions: dim=-1 is always the last"),
    Case("two weights of 0", _softmax(3, 6, hidden=True),
         "a mask makes weights 0, and dS is 0 there: neither divide by P nor take its logarithm"),
    Case("by hand", _softmax_by_hand, "one number for each row is enough: no Jacobian, and no autograd"),
    Case("all digits of float64", _softmax(3, 20),
         "keep the dtype of dP and P: float32 knows seven digits, float64 sixteen", 1e-10),
)  # fmt: skip

BUG_CASES = (
    Case("as many keys as queries", _attention(4, 4, 3),
         "check line by line: rows of P add up to 1, rows of dS to 0, the scale is in S, dQ and dK"),
    Case("more keys than queries", _attention(3, 5, 2), "delta has one number for each query, not for each key"),
    Case("more queries than keys", _attention(6, 2, 4), "dQ is shaped as q, dK and dV as k and v"),
    Case("by hand", _attention_by_hand, "correct the wrong line; do not use autograd"),
    Case("all digits of float64", _attention(20, 30, 5), "keep the dtype of the inputs, also in zeros",
         1e-10),
)  # fmt: skip

EXERCISES = (
    Exercise(
        "paths",
        "dw(x, w, b): three numbers -> the derivative of z = w y by w, where y = w x + b",
        paths_solution,
        PATHS_CASES,
        hints=(
            "Give the two uses different names: z = w_1 y and y = w_2 x + b. What is the rate of z by w_1, and by w_2?",
            "By w_1 it is y. By w_2 it is a chain: the rate of z by y, times the rate of y by w_2.",
            "Both w are the same number, so both grow together: the two rates add up.",
        ),
    ),
    Exercise(
        "matmul_backward",
        "matmul_backward(dy, x, w): (N, M), (N, D), (D, M) -> dx (N, D), dw (D, M), for Y = X W",
        matmul_solution,
        MATMUL_BACKWARD_CASES,
        hints=(
            "dX has the shape of X, dW that of W. Which products of dY (N, M), X (N, D) and W (D, M) have these shapes?",
            "Y_nj uses row n of X and column j of W. So dX_nc sums dY_nj W_cj over j. What does dW_cj sum, and over which index?",
            "dX is a product with dY on the left, dW is a product with dY on the right. In each the other factor is transposed.",
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
            "One score changes all weights of its row, because they share a sum. One number for each row describes this.",
            "The number is delta, the sum of P o dP (o: entry by entry) over the row. It is subtracted from every entry of dP.",
            "Two lines: a sum of products over the last dimension, kept as a column (..., 1), then P times a difference.",
        ),
        library=("the backward pass of torch.softmax", "flashlearn"),
    ),
    Exercise(
        "bug",
        "attention_backward(do, q, k, v): (N_q, d), (N_q, d), (N_k, d), (N_k, d) -> dq, dk, dv, scale 1 / sqrt(d)",
        bug_solution,
        BUG_CASES,
        hints=(
            "One of the three gradients is right. Which lines does it need? Which lines do only the other two need?",
            "Look at dS: each of its rows must add up to 0. Then look at the shape of every tensor in that line.",
            "One argument is missing. With N_q = N_k both a row and a column of numbers can be subtracted, but only one is right.",
        ),
        library=("flashlearn",),
        values=("dQ", "dK", "dV"),
    ),
)
