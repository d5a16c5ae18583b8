"""Bands of keys: windows, documents, packed and padded sequences, as dense masks made from their definition."""

from __future__ import annotations

import torch

INF = float("inf")


def offsets(*lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def dense(N_q, N_k, left, right, packed=None, key_range=None):
    """(B or 1, N_q, N_k) booleans, from the definition."""
    own, other = packed or (torch.tensor([0, N_q]), torch.tensor([0, N_k]))
    i, j = torch.arange(N_q)[:, None], torch.arange(N_k)
    mine, its = (torch.searchsorted(ends, row, right=True) - 1 for ends, row in ((own, i), (other, j)))
    at = i - own[mine + 1] + other[mine + 1]
    seen = mine == its
    seen &= True if left is None else j >= at - left
    seen &= True if right is None else j <= at + right
    start, stop = (t[:, None, None] for t in key_range or (torch.tensor([0]), torch.tensor([N_k])))
    return seen & (j >= start) & (j < stop)


RAGGED = offsets(1, 70, 0, 129, 1, 99)
KEYS = offsets(60, 3, 5, 100, 0, 42)
RANGES = torch.tensor([0, 70, 299, 300], dtype=torch.int32), torch.tensor([300, 211, 300, 300], dtype=torch.int32)
CASES = {
    "window": ((300, 300), dict(left=70, right=0)),
    "two sides, more queries": ((300, 210), dict(left=40, right=9)),
    "two sides, more keys": ((130, 300), dict(left=0, right=64)),
    "left alone": ((200, 200), dict(left=33, right=None)),
    "wide": ((100, 200), dict(left=1000, right=1000)),
    "documents": ((300, 300), dict(left=None, right=None, offsets=(RAGGED, RAGGED))),
    "causal documents": ((300, 300), dict(left=None, right=0, offsets=(RAGGED, RAGGED))),
    "packed": ((300, 210), dict(left=50, right=0, offsets=(RAGGED, KEYS))),
    "padded": ((300, 300), dict(left=90, right=0, key_range=RANGES)),
}


def attend(q, k, v, seen, sinks=None, softcap=None):
    """o and lse in float32, 0 and -inf, or the sink, where nothing is seen."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    s = q @ k.mT * q.shape[-1] ** -0.5
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    s = s.masked_fill(~seen[:, None], -INF)
    lse = s.logsumexp(-1)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks[:, None])
    return (s - lse.masked_fill(lse == -INF, 0.0)[..., None]).exp() @ v, lse
