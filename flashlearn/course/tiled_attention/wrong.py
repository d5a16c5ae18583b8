"""Answers to the exercises of tiled_attention that are no edit of the solution: `wrong.toml` names them."""

import math

import torch

from flashlearn.course.one_pass_attention.wrong import in_float32
from flashlearn.course.tiled_attention.solutions import INF


def join_by_lse(m_1, l_1, acc_1, m_2, l_2, acc_2):
    share = torch.sigmoid(m_1 + l_1.log() - m_2 - l_2.log())  # of block 1
    one, two = acc_1 / l_1.clamp(min=1), acc_2 / l_2.clamp(min=1)  # l >= 1, unless no key is visible
    return share * one + (1 - share) * two


def update_row_by_row(m, l, acc, S, V):
    rows = []
    for i in range(len(S)):
        state = m[i], l[i], acc[i]
        for s, v in zip(S[i], V, strict=True):
            new = torch.maximum(state[0], s)
            if new != -INF:
                alpha, p = torch.exp(state[0] - new), torch.exp(s - new)
                state = new, state[1] * alpha + p, state[2] * alpha + p * v
        rows.append(state)
    return [torch.stack(parts) for parts in zip(*rows, strict=True)]


def counted(sees):
    """Every pair of blocks asked whether `sees(last query, first key, offset)`."""

    def visited(N_q, N_k, block_q, block_k):
        last = [min(i + block_q, N_q) - 1 for i in range(0, N_q, block_q)]
        return sum(sees(i, j, N_k - N_q) for i in last for j in range(0, N_k, block_k))

    return visited


def visited_by_the_mask(N_q, N_k, block_q, block_k):
    sees = torch.arange(N_k)[None, :] <= torch.arange(N_q)[:, None] + N_k - N_q
    return sum(bool(b.any()) for rows in sees.split(block_q) for b in rows.split(block_k, 1))


def visited_by_columns(N_q, N_k, block_q, block_k):
    """For each block of keys, the blocks of queries from the one that sees its first key."""
    total = math.ceil(N_q / block_q)
    firsts = (max(0, j - (N_k - N_q)) for j in range(0, N_k, block_k))
    return sum(total - first // block_q for first in firsts if first < N_q)
