"""What wrong answers to the exercises of notebook 09 get wrong."""

from __future__ import annotations

import torch

from flashlearn.exercises.causes.formulas import follows


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


def the_products(matmul_backward):
    """Square matrices, for which every product exists: which one is it?"""
    dy, x, w = _random(3, 3), _random(3, 3), _random(3, 3)
    dx, dw = matmul_backward(dy.clone(), x.clone(), w.clone())
    named = {"dY": dy, "X": x, "W": w, "Y": x @ w, "dY^T": dy.mT, "X^T": x.mT, "W^T": w.mT}
    products = {f"{a} {b}": left @ right for a, left in named.items() for b, right in named.items()}
    for name, got, right in (("dX", dx, "dY W^T"), ("dW", dw, "X^T dY")):
        said = follows(got, products, right, products[right])
        if said:
            return f"{name}: {said}"
    return ""


def the_sum_over_rows(matmul_backward):
    """Every row of X pulls at W alike: twice the rows, twice the sum."""
    dy, x, w = _random(5, 2), _random(5, 3), _random(3, 2)
    dw = matmul_backward(dy, x, w)[1]
    twice = matmul_backward(torch.cat([dy, dy]), torch.cat([x, x]), w)[1]
    if not torch.allclose(twice, 2 * dw, atol=1e-6):
        return "with every row twice dW is not twice as large: it adds up over the rows of X"
    return follows(dw, {}, "X^T dY", x.mT @ dy)


def the_formula(softmax_backward):
    """One row: dS = P o (dP - delta), delta = sum of P o dP."""
    p, dp = torch.softmax(_random(1, 5), -1), _random(1, 5) + 2
    delta, total, mean = ((t).sum(-1, keepdim=True) for t in (p * dp, dp, dp / 5))
    candidates = {
        "dP - delta | the factor P is missing": dp - delta,
        "P o dP | delta is missing": p * dp,
        "P o (dP - sum of dP) | delta must be weighted by P, the sum of P o dP": p * (dp - total),
        "P o (dP - mean of dP) | delta must be weighted by P, the sum of P o dP": p * (dp - mean),
        "P o dP - delta | the difference must be weighed by P, brackets are missing": p * dp - delta,
        "P o (dP + delta)": p * (dp + delta),
        "P o (1 - P) o dP": p * (1 - p) * dp,
        "P o dP - sum of dP": p * dp - total,
        "P o P o (dP - delta)": p * p * (dp - delta),
    }
    return follows(softmax_backward(dp.clone(), p.clone()), candidates, "P o (dP - delta)", p * (dp - delta))


def rows_are_apart(softmax_backward):
    p, dp = torch.softmax(_random(3, 4), -1), _random(3, 4)
    alone = torch.cat([softmax_backward(dp[i : i + 1], p[i : i + 1]) for i in range(3)])
    if not torch.allclose(softmax_backward(dp, p), alone, atol=1e-6):
        return "a row comes out differently when others stand beside it: one delta for each row, over dim=-1 with keepdim=True"
    return ""


CAUSES = {
    "09.matmul_backward": (the_products, the_sum_over_rows),
    "09.softmax_backward": (the_formula, rows_are_apart),
}
