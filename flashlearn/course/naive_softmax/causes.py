"""What wrong answers to the exercises of notebook 01 get wrong."""

from __future__ import annotations

import math

import torch

LOGS = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64).log()  # e^x is 1, 2, 5


def the_weights(softmax):
    """Of log 1, log 2 and log 5 the weights are 1/8, 2/8, 5/8."""
    p = softmax(LOGS.clone()).double()
    if torch.allclose(p, torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64) / 8, atol=1e-6):
        return ""
    total, ratio = p.sum().item(), p / p[0]
    if torch.allclose(ratio, LOGS.exp(), atol=1e-6):
        return f"the weights are in the right proportion, but add up to {total:.4g}, not to 1: divide by the sum of all exp(x)"
    if (ratio > 0).all():
        powers = ratio.log()[1:] / LOGS[1:]
        if torch.allclose(powers, powers[0], rtol=1e-6):
            if abs(powers[0]) < 1e-6:
                return "all logits get the same weight, where e^x is expected"
            if powers[0] < 0:
                return f"the larger a logit, the smaller its weight: the weights fall as {math.exp(-powers[0]):.4g}^-x, where e^x is expected"
            return f"the weights grow as {math.exp(powers[0]):.4g}^x, where e^x is expected: the base is e, torch.exp"
    if abs(p.exp().sum().item() - 1) < 1e-6:
        return "the result is the logarithm of the weights"
    if abs(total - 1) > 1e-6:
        return f"the weights add up to {total:.4g}, not to 1: divide exp(x) by the sum of exp(x)"
    return ""


def rows_are_apart(softmax):
    """A row gives the same alone and with another."""
    x = torch.stack([LOGS, 2 * LOGS.flip(0)])
    p, alone = softmax(x.clone()), torch.stack([softmax(row.clone()) for row in x])
    if p.shape != x.shape or torch.allclose(p, alone, atol=1e-6, equal_nan=True):
        return ""
    if torch.allclose(p.sum(0), torch.ones_like(p[0]), atol=1e-6):
        return "the columns add up to 1, not the rows: sum over the last dimension, dim=-1"
    return (
        "the result for a row depends on the other rows: each row has its own sum, and its own maximum "
        "where one is taken, over dim=-1 with keepdim=True"
    )


def the_edge(smallest_overflow):
    """The answer is a number of the dtype, its exp is inf, and that of the next smaller number is not."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        got = float(smallest_overflow(dtype))
        x, name = torch.tensor(got, dtype=dtype), str(dtype).removeprefix("torch.")
        if x.double().item() != got:
            said = f"{got!r} is not a number of {name}, which rounds it to {x.item()!r}"
            return f"{said}: bisect in tensors of that dtype"
        if torch.exp(x).isfinite():
            near = torch.exp(_neighbour(x, 1)).isinf()
            said = "the answer is the next number" if near else "it is too small"
            return f"in {name} exp({got!r}) is still finite: {said}"
        if torch.exp(_neighbour(x, -1)).isinf():
            return f"in {name} exp of {got!r} is inf, but so is that of the next smaller number: it is too large"
    return ""


def _neighbour(x: torch.Tensor, by: int) -> torch.Tensor:
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize]
    return (x.view(bits) + by).view(x.dtype)


CAUSES = {"softmax": (the_weights, rows_are_apart), "overflow": (the_edge,)}
