"""Wrong answers to the exercise of notebook 00."""

import math

import torch

WRONG = {
    "00.scores": (
        ("k is multiplied with itself", lambda q, k: (k[: len(q)] @ k.T) / math.sqrt(q.shape[-1])),
        ("D is the number of keys", lambda q, k: q @ k.T / math.sqrt(k.shape[0])),
        ("a softmax is taken as well", lambda q, k: torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1)),
        ("products are taken entry by entry", lambda q, k: q[:, None] * k / math.sqrt(q.shape[-1])),
        ("the scores are rounded", lambda q, k: (q @ k.T / math.sqrt(q.shape[-1])).round(decimals=3)),
        ("sqrt(D) multiplies", lambda q, k: q @ k.T * math.sqrt(q.shape[-1])),
    ),
}
