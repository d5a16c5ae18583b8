"""What wrong answers to the exercises of notebook 09 get wrong."""

from __future__ import annotations

import math

import torch

from flashlearn.exercises.formulas import follows, normal

PATHS = {
    "the result is z itself: its derivative by w is expected": lambda x, w, b: w * (w * x + b),
    "the path through y lacks a factor: the rate of y by w is x": lambda x, w, b: w * x + b + w,
    "the path through y lacks the factor w, the rate of z by y": lambda x, w, b: w * x + b + x,
}


def the_paths(dw):
    """Two sets of numbers: which derivative is it?"""
    for text, other in PATHS.items():
        if all(abs(dw(*numbers) - other(*numbers)) < 1e-9 for numbers in ((2.0, 3.0, 1.0), (-1.0, 0.5, 4.0))):
            return text
    return ""


def the_products(matmul_backward):
    """Square matrices, for which every product exists: which one is it?"""
    dy, x, w = normal(3, 3), normal(3, 3), normal(3, 3)
    dx, dw = matmul_backward(dy.clone(), x.clone(), w.clone())
    named = {"dY": dy, "X": x, "W": w, "Y": x @ w, "dY^T": dy.mT, "X^T": x.mT, "W^T": w.mT}
    products = {f"{a} {b}": left @ right for a, left in named.items() for b, right in named.items()}
    for name, got, right in (("dX", dx, "dY W^T"), ("dW", dw, "X^T dY")):
        if said := follows(got, products, right, products[right]):
            return f"{name}: {said}"
    return ""


def the_sum_over_rows(matmul_backward):
    """Every row of X pulls at W alike: twice the rows, twice the sum."""
    dy, x, w = normal(5, 2), normal(5, 3), normal(3, 2)
    dw = matmul_backward(dy, x, w)[1]
    twice = matmul_backward(torch.cat([dy, dy]), torch.cat([x, x]), w)[1]
    if not torch.allclose(twice, 2 * dw, atol=1e-6):
        return "if every row is there twice, dW must be twice as large: it adds up over the rows of X"
    return follows(dw, {}, "X^T dY", x.mT @ dy)


def the_formula(softmax_backward):
    """One row: dS = P o (dP - delta), delta = sum of P o dP."""
    p, dp = torch.softmax(normal(1, 5), -1), normal(1, 5) + 2
    delta, total, mean = (t.sum(-1, keepdim=True) for t in (p * dp, dp, dp / 5))
    candidates = {
        "dP - delta | the factor P is missing": dp - delta,
        "P o dP | delta is missing": p * dp,
        "P o (dP - sum of dP) | delta must be weighted by P, the sum of P o dP": p * (dp - total),
        "P o (dP - mean of dP) | delta must be weighted by P, the sum of P o dP": p * (dp - mean),
        "P o dP - delta | the difference must be multiplied by P, brackets are missing": p * dp - delta,
        "P o (dP + delta)": p * (dp + delta),
        "P o (1 - P) o dP": p * (1 - p) * dp,
        "P o dP - sum of dP": p * dp - total,
        "P o P o (dP - delta)": p * p * (dp - delta),
    }
    return follows(softmax_backward(dp.clone(), p.clone()), candidates, "P o (dP - delta)", p * (dp - delta))


def the_dimension(softmax_backward):
    """As many rows as keys, on which a sum over the wrong dimension still runs."""
    p, dp = torch.softmax(normal(3, 3), -1), normal(3, 3) + 2
    ds = softmax_backward(dp.clone(), p.clone())
    if torch.allclose(ds, p * (dp - (p * dp).sum(0))):
        return "delta is summed over the rows, dim=0: each row has a delta of its own, the sum over its keys, dim=-1"
    return ""


def rows_are_apart(softmax_backward):
    p, dp = torch.softmax(normal(3, 4), -1), normal(3, 4)
    alone = torch.cat([softmax_backward(dp[i : i + 1], p[i : i + 1]) for i in range(3)])
    if not torch.allclose(softmax_backward(dp, p), alone, atol=1e-6):
        return "a row gives another result when there are other rows: compute one delta for each row, over dim=-1 with keepdim=True"
    return ""


def the_three_gradients(attention_backward):
    """Square matrices, on which every transpose that is missing still runs."""
    do, q, k, v = (normal(3, 3) for _ in range(4))
    scale = 1 / math.sqrt(3)
    p, dp = torch.softmax(scale * q @ k.mT, -1), do @ v.mT
    delta = (p * dp).sum(-1, keepdim=True)

    def dv_with(scale, dim=-1):
        return torch.softmax(scale * q @ k.mT, dim).mT @ do

    wrong = {
        "delta left out": p * dp,
        "delta as a row over the keys, as it is without keepdim=True": p * (dp - delta.mT),
        "delta summed over the queries": p * (dp - (p * dp).sum(-2, keepdim=True)),
        "delta added": p * (dp + delta),
        "delta the plain mean of dP": p * (dp - dp.mean(-1, keepdim=True)),
        "the factor P left out": dp - delta,
        "dP in place of dS": dp,
    }
    ds = p * (dp - delta)
    dq, dk, dv = attention_backward(do.clone(), q.clone(), k.clone(), v.clone())
    values = {
        "P dO | P must be transposed": p @ do,
        "P^T V | dV is a product with dO": p.mT @ v,
        "P^T dO with P of scores that are not scaled | scores are q.k / sqrt(d)": dv_with(1),
        "P^T dO with P of scores divided by d | scores are q.k / sqrt(d)": dv_with(1 / 3),
        "P^T dO with P of scores times sqrt(d) | scores are q.k / sqrt(d)": dv_with(3 * scale),
        "P^T dO with softmax over the queries | the weights of a query add up to 1, over the keys, dim=-1": dv_with(
            scale, dim=-2
        ),
    }
    keys = {
        "scale dS Q | dS must be transposed": scale * ds @ q,
        **{f"scale dS^T Q with {name}": scale * s.mT @ q for name, s in wrong.items()},
    }
    queries = {
        "scale dS^T K | dS is not transposed here": scale * ds.mT @ k,
        **{f"scale dS K with {name}": scale * s @ k for name, s in wrong.items()},
    }
    for name, got, candidates, formula, right in (
        ("dV", dv, values, "P^T dO", p.mT @ do),
        ("dQ", dq, queries, "scale dS K", scale * ds @ k),
        ("dK", dk, keys, "scale dS^T Q", scale * ds.mT @ q),
    ):
        if said := follows(got, candidates, formula, right):
            return f"{name}: {said}"
    return ""


CAUSES = {
    "paths": (the_paths,),
    "matmul_backward": (the_products, the_sum_over_rows),
    "softmax_backward": (the_dimension, the_formula, rows_are_apart),
    "bug": (the_three_gradients,),
}
