"""Answers to the exercises of which_keys that are no edit of the solution: `wrong.toml` names them."""

import torch


def attends(i, j, N_q, N_k, left, right):
    place = i + N_k - N_q
    return (left is None or j >= place - left) and (right is None or j <= place + right)


def bounds_by_pairs(start, stop, N_q, N_k, left, right, block_q):
    found = [i for i in range(N_q) if any(attends(i, j, N_q, N_k, left, right) for j in range(start, stop))]
    return (found[0] // block_q, found[-1] // block_q + 1) if found else (0, 0)


def bounds_by_a_walk(start, stop, N_q, N_k, left, right, block_q):
    def meets(block):
        queries = range(block * block_q, min((block + 1) * block_q, N_q))
        return any(attends(i, j, N_q, N_k, left, right) for i in queries for j in range(start, stop))

    blocks = [block for block in range(-(-N_q // block_q)) if meets(block)]
    return (blocks[0], blocks[-1] + 1) if blocks else (7, 3)


def sink_head_by_head(do, o, lse, sinks):
    heads = [-(torch.exp(s - lse[:, h]) * (do[:, h] * o[:, h]).sum(-1)).sum() for h, s in enumerate(sinks)]
    return torch.stack(heads)


def padding_looks_back(lengths, room):
    rows: list[int] = []
    for length in lengths:
        at = next((n for n, free in enumerate(rows) if length <= free), len(rows))
        rows += [room] * (at == len(rows))
        rows[at] -= length
    return len(lengths) * max(lengths) - sum(lengths), sum(rows)


def padding_by_lists(lengths, room):
    rows = [[]]
    for length in lengths:
        if sum(rows[-1]) + length > room:
            rows.append([])
        rows[-1].append(length)
    return len(lengths) * max(lengths) - sum(lengths), sum(room - sum(row) for row in rows)
