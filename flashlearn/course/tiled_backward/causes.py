"""What wrong answers to the exercises of notebook 10 get wrong."""

from __future__ import annotations

import math

import torch

from flashlearn.course.tiled_backward.exercises import pairs
from flashlearn.exercises.formulas import follows, linear, normal


def the_tiles(met):
    """Which tiles are listed for block 1 of two by three, and of three by two, blocks."""
    lists = {(T_r, T_c): set(pairs(met(1, T_r, T_c), T_r, T_c)) for T_r, T_c in ((2, 3), (3, 2))}
    if not all(lists.values()):
        return "the list is empty"
    for text, rule in TILES.items():
        if all(found == set(rule(*sizes)) for sizes, found in lists.items()):
            return text
    return ""


TILES = {
    "every tile is listed, but V_j is only multiplied by the tiles of column j": lambda T_r, T_c: [
        (i, k) for i in range(T_r) for k in range(T_c)
    ],
    "the last block of queries is left out": lambda T_r, T_c: [(i, 1) for i in range(T_r - 1)],
    "the first block of queries is left out": lambda T_r, T_c: [(i, 1) for i in range(1, T_r)],
    "the numbers of each pair are swapped: the first is that of the queries": lambda T_r, T_c: [(1, i) for i in range(T_r)],
}  # fmt: skip


def the_weights(dv):
    """One block of four queries and four keys: which P is it that dO is multiplied with?"""
    q, k, do, more = normal(4, 3), normal(4, 3), normal(4, 3), normal(4)
    S = q @ k.mT / math.sqrt(3)
    lse = torch.logsumexp(S, -1) + more.abs()  # there are other keys
    column = lse[:, None]
    weights = {
        "P = e^S | lse must be subtracted": torch.exp(S),
        "P = e^(S - lse along the keys) | each query has its own lse, so it must be a column, lse[:, None]": torch.exp(
            S - lse
        ),
        "P = e^(S + lse) | lse must be subtracted": torch.exp(S + column),
        "P = e^(q.k - lse) | the scale 1 / sqrt(d) is missing": torch.exp(S * math.sqrt(3) - column),
        "P = e^(q.k / d - lse) | the scale is 1 / sqrt(d)": torch.exp(S / math.sqrt(3) - column),
        "P = e^(q.k sqrt(d) - lse) | the scale is 1 / sqrt(d)": torch.exp(S * 3 - column),
        "P = softmax of this block | rows add up to 1 over all keys: use lse": torch.softmax(S, -1),
        "P = S - lse | the exponential is missing": S - column,
        "P = e^S / lse | lse is subtracted in the exponent": torch.exp(S) / column,
    }
    right = torch.exp(S - column)
    candidates = {f"P^T dO with {name}": P.mT @ do for name, P in weights.items()}
    candidates["P dO | P must be transposed"] = right @ do
    return follows(
        dv(q.clone(), k.clone(), do.clone(), lse.clone(), 4), candidates, "P^T dO with P = e^(S - lse)", right.mT @ do
    )


def the_scale(dv):
    """Of one query and keys with q.k = x and 0, lse = 0 and dO = 1, dV is e^(scale x) and 1."""
    for D, cols in ((4, 1), (10, 1), (10, 3)):

        def score(x, D=D, cols=cols):
            q, k = torch.ones(1, D, dtype=torch.float64), torch.zeros(cols, D, dtype=torch.float64)
            k[0] = x / D
            do, lse = torch.ones(1, D, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
            return dv(q, k, do, lse, 1)[0, 0].log().item()

        got = score(1.0)
        if not linear(got, score):
            return ""  # no e^(a number times q.k): it is not the scale that is wrong
        if abs(got - D**-0.5) > 1e-6:
            return f"with D = {D} and {cols} keys a score is {got:.4g} times q.k: the scale is 1 / sqrt(d), {D**-0.5:.4g} here"
    return ""


def the_formula(ds):
    """A square block: dS = P o (dP - delta), with P no softmax of its own."""
    p, do, o, v = normal(3, 3).abs() / 4, normal(3, 3), normal(3, 3), normal(3, 3)
    dp, delta = do @ v.mT, (do * o).sum(-1, keepdim=True)
    mean, own = delta / 3, (p * dp).sum(-1, keepdim=True)
    candidates = {
        "P o dP | delta is missing": p * dp,
        "dP - delta | the factor P is missing": dp - delta,
        "P o (dP + delta) | delta must be subtracted": p * (dp + delta),
        "P o (dP - mean of dO o O) | delta is the sum of each row": p * (dp - mean),
        "P o (dP^T - delta) | dP = dO V_j^T, not transposed": p * (dp.mT - delta),
        "P o (dP - delta along the keys) | delta must be a column, keepdim=True": p * (dp - delta.mT),
        "P o (dP - sum of P o dP) | a tile has only some of the keys: delta is rowsum(dO o O)": p * (dp - own),
        "P o dP - delta | the difference must be multiplied by P, brackets are missing": p * dp - delta,
        "P o (dP - sum of all dO o O) | each row has a delta of its own": p * (dp - delta.sum()),
        "P o (dO V_j - delta) | V_j must be transposed": p * (do @ v - delta),
    }
    return follows(ds(p.clone(), do.clone(), o.clone(), v.clone()), candidates, "P o (dP - delta)", p * (dp - delta))


def the_sum_over_keys(dq):
    """One block of square matrices: which dS is it, and what is it multiplied with?"""
    q, k, v, do, o = (normal(3, 3) for _ in range(5))
    scale = 1 / math.sqrt(3)
    S = scale * q @ k.mT
    lse = torch.logsumexp(S, -1) + normal(3).abs()  # there are other keys
    P, dp, delta = torch.exp(S - lse[:, None]), do @ v.mT, (do * o).sum(-1, keepdim=True)
    dS = P * (dp - delta)
    other = {
        "delta added | delta must be subtracted": P * (dp + delta),
        "delta left out": P * dp,
        "delta along the keys | delta must be a column, keepdim=True": P * (dp - delta.mT),
        "the factor P left out": dp - delta,
        "delta a mean over d": P * (dp - delta / 3),
        "P in place of dS": P,
        "dP in place of dS": dp,
        "P = e^S | lse must be subtracted": torch.exp(S) * (dp - delta),
        "lse along the keys | each query has its own lse: lse_i[:, None]": torch.exp(S - lse) * (dp - delta),
    }
    candidates = {f"scale dS K with {name}": scale * each @ k for name, each in other.items()}
    candidates |= {
        "scale dS^T K | dS is not transposed for dQ": scale * dS.mT @ k,
        "scale dS V | dQ is a product with K": scale * dS @ v,
        "scale dS Q | dQ is a product with K": scale * dS @ q,
    }
    got = dq(q.clone(), k.clone(), v.clone(), do.clone(), o.clone(), lse.clone(), 3)
    return follows(got, candidates, "scale dS K", scale * dS @ k)


CAUSES = {
    "met": (the_tiles,),
    "dv": (the_weights, the_scale),
    "ds": (the_formula,),
    "dq": (the_sum_over_keys,),
}
