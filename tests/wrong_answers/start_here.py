"""Wrong answers to the exercise of notebook 00."""

import math

import torch


def _divided(products, D):
    return products / math.sqrt(D)


def entry_by_entry(q, k):
    return torch.stack([torch.stack([(a * b).sum() / len(a) ** 0.5 for b in k]) for a in q])


WRONG = {
    "00.scores": (
        (
            "q is overwritten",
            lambda q, k: q.div_(math.sqrt(q.shape[-1])) @ k.mT,
            "expected the input q as it was",
        ),
        ("the root is rounded to an integer", lambda q, k: q @ k.T / math.isqrt(q.shape[-1]), "no square number"),
        ("the root is the logarithm to base 2, as at D = 4", lambda q, k: q @ k.T / math.log2(q.shape[-1]) * 1.0),
        ("D is the largest size of q", lambda q, k: _divided(q @ k.T, max(q.shape))),
        ("D is the number of keys", lambda q, k: _divided(q @ k.T, len(k))),
        ("k is multiplied with k", lambda q, k: _divided(k[: len(q)] @ k.T, q.shape[-1]), "row i belongs to query i"),
        ("the scores go through a softmax", lambda q, k: torch.softmax(_divided(q @ k.T, q.shape[-1]), -1)),
        ("later keys are hidden", lambda q, k: _divided(q @ k.T, q.shape[-1]).tril()),
        ("products are not added up", lambda q, k: _divided((q[:, None] * k).amax(-1), q.shape[-1])),
        ("sqrt(D) multiplies", lambda q, k: q @ k.T * math.sqrt(q.shape[-1])),
        ("the scores are kept in 16 bits", lambda q, k: _divided(q @ k.T, q.shape[-1]).half().float()),
    ),
}

RIGHT = {
    "00.scores": (
        ("an einsum", lambda q, k: torch.einsum("id,jd->ij", q, k) * q.shape[-1] ** -0.5),
        ("two loops", entry_by_entry),
    ),
}
