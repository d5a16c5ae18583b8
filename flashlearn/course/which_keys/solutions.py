"""Solutions of the exercises of notebook 17."""

from __future__ import annotations

import torch


# 17.bounds
def bounds_solution(start, stop, N_q, N_k, left, right, block_q):
    diagonal = N_k - N_q
    first = 0 if right is None else max(0, start - right - diagonal)
    end = N_q if left is None else min(N_q, stop + left - diagonal)
    return (first // block_q, -(-end // block_q)) if first < end else (0, 0)


# 17.sink
def sink_solution(do, o, lse, sinks):
    delta = (do * o).sum(-1)
    return -(torch.exp(sinks[:, None] - lse) * delta).sum((0, 2))


# 17.padding
def padding_solution(lengths, room):
    tokens, rows, free = sum(lengths), 0, 0
    for length in lengths:
        if length > free:
            rows, free = rows + 1, room
        free -= length
    return len(lengths) * max(lengths) - tokens, rows * room - tokens
