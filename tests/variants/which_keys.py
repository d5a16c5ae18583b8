"""Wrong answers to the exercises of notebook 17."""

import torch

from tests.variants import variant


def edges(start, stop, N_q, N_k, left, right):
    diagonal = N_k - N_q
    first = 0 if right is None else max(0, start - right - diagonal)
    return first, N_q if left is None else min(N_q, stop + left - diagonal)


@variant("17.bounds", "the loop begins at query 0", r"begins?\b|begin at 0|first key")
def from_the_start(start, stop, N_q, N_k, left, right, block_q):
    first, end = edges(start, stop, N_q, N_k, left, right)
    return (0, -(-end // block_q)) if first < end else (0, 0)


@variant("17.bounds", "first is rounded up", r"rounded down|round(ed)? |blocks 1 and 2")
def first_rounded_up(start, stop, N_q, N_k, left, right, block_q):
    first, end = edges(start, stop, N_q, N_k, left, right)
    return (-(-first // block_q), -(-end // block_q)) if first < end else (0, 0)


@variant("17.bounds", "one key more is seen back", r"one too many|exactly `left`|4 keys back")
def one_more_back(start, stop, N_q, N_k, left, right, block_q):
    first, end = edges(start, stop, N_q, N_k, None if left is None else left + 1, right)
    return (first // block_q, -(-end // block_q)) if first < end else (0, 0)


@variant("17.bounds", "None counts as 0", r"None is no limit|no limit")
def none_is_zero(start, stop, N_q, N_k, left, right, block_q):
    first, end = edges(start, stop, N_q, N_k, left or 0, right or 0)
    return (first // block_q, -(-end // block_q)) if first < end else (0, 0)


@variant("17.sink", "the exponent is lse - sink", r"wrong sign|sink - lse")
def turned_round(do, o, lse, sinks):
    return -(torch.exp(lse - sinks[:, None]) * (do * o).sum(-1)).sum((0, 2))


@variant("17.sink", "δ is left out", r"δ|dO times o")
def without_delta(do, o, lse, sinks):
    return -torch.exp(sinks[:, None] - lse).sum((0, 2))


@variant("17.sink", "heads are summed up too", r"own|each of three heads|for three heads")
def all_heads(do, o, lse, sinks):
    return -(torch.exp(sinks[:, None] - lse) * (do * o).sum(-1)).sum()


@variant("17.sink", "the queries are not summed over", r"queries \(dimension 2\) is missing", r"batches")
def a_number_for_every_query(do, o, lse, sinks):
    return -(torch.exp(sinks[:, None] - lse) * (do * o).sum(-1)).sum(0)


@variant("17.sink", "heads and batches are exchanged in the sum", r"heads are summed over", r"is missing")
def summed_over_heads(do, o, lse, sinks):
    return -(torch.exp(sinks[:, None] - lse) * (do * o).sum(-1)).sum((1, 2))


@variant("17.sink", "the sum keeps its dimensions", r"keepdim", r"is missing")
def kept_dimensions(do, o, lse, sinks):
    return -(torch.exp(sinks[:, None] - lse) * (do * o).sum(-1)).sum((0, 2), keepdim=True)


@variant("17.sink", "two exponentials are divided", r"sink - lse|subtract lse|exp\(lse\)")
def divided(do, o, lse, sinks):
    return -(torch.exp(sinks)[:, None] / torch.exp(lse) * (do * o).sum(-1)).sum((0, 2))


def rows_needed(lengths, room):
    rows, free = 0, 0
    for length in lengths:
        rows, free = (rows, free) if length <= free else (rows + 1, room)
        free -= length
    return rows


@variant("17.padding", "the tokens come back for padding", r"number of tokens|tokens")
def tokens(lengths, room):
    return sum(lengths), rows_needed(lengths, room) * room - sum(lengths)


@variant("17.padding", "every sequence begins a row", r"as long as the next one fits|fill a row|two rows|5 and 3")
def a_row_each(lengths, room):
    return len(lengths) * max(lengths) - sum(lengths), len(lengths) * room - sum(lengths)


@variant("17.padding", "packing wastes nothing", r"a row has 8 places|last one too|however few")
def nothing_wasted(lengths, room):
    return len(lengths) * max(lengths) - sum(lengths), 0
