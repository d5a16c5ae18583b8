"""Known wrong answers to the exercises of notebook 19."""

import torch

from flashlearn.exercises.assessment import Mistake


def owners_the_other_way(s, P):
    return [(r + s) % P for r in range(P)]


def owners_counted_from_one(s, P):
    return [(r - s - 1) % P for r in range(P)]


def owners_below_zero(s, P):
    return [r - s for r in range(P)]


def owners_by_broadcast(s, P):
    return [s] * P


def _chunks(N, parts):
    n = N // parts
    return [list(range(c * n, (c + 1) * n)) for c in range(parts)]


def zigzag_plain(N, P):
    return _chunks(N, P)


def zigzag_without_turning(N, P):
    chunks = _chunks(N, 2 * P)
    return [chunks[r] + chunks[P + r] for r in range(P)]


def zigzag_striped(N, P):
    return [list(range(r, N, P)) for r in range(P)]


def zigzag_late_chunk_first(N, P):
    chunks = _chunks(N, 2 * P)
    return [chunks[2 * P - 1 - r] + chunks[r] for r in range(P)]


def zigzag_tokens_backwards(N, P):
    chunks = _chunks(N, 2 * P)
    return [chunks[r] + chunks[2 * P - 1 - r][::-1] for r in range(P)]


def merge_mean(o, lse):
    return o.mean(0), torch.logsumexp(lse, 0)


def merge_by_lse_itself(o, lse):
    weight = lse / lse.sum(0)
    return (weight[..., None] * o).sum(0), torch.logsumexp(lse, 0)


def merge_without_weights(o, lse):
    return o.sum(0), torch.logsumexp(lse, 0)


def merge_not_divided(o, lse):
    return (torch.exp(lse)[..., None] * o).sum(0), torch.logsumexp(lse, 0)


def merge_adds_lse(o, lse):
    weight = torch.exp(lse - torch.logsumexp(lse, 0))
    return (weight[..., None] * o).sum(0), lse.sum(0)


def merge_keeps_the_largest_lse(o, lse):
    weight = torch.exp(lse - torch.logsumexp(lse, 0))
    return (weight[..., None] * o).sum(0), lse.amax(0)


def merge_nan_for_nobody(o, lse):
    weight = torch.softmax(lse, 0)
    return (weight[..., None] * o).sum(0), torch.logsumexp(lse, 0)


MISTAKES = {
    "19.owners": (
        Mistake("K and V travel the other way, from r + 1 to r", owners_the_other_way, "one step"),
        Mistake("the ring has turned once before step 0", owners_counted_from_one, "the start"),
        Mistake("numbers below 0 do not come round to the end of the ring", owners_below_zero, "one step"),
        Mistake("in step s all have the K and V of process s", owners_by_broadcast, "one step"),
    ),
    "19.zigzag": (
        Mistake("every process gets one piece of neighbours, the plain order", zigzag_plain, "two processes"),
        Mistake("the late chunks are not turned round: chunks r and P + r", zigzag_without_turning, "two processes"),
        Mistake("tokens are dealt out one by one, like cards", zigzag_striped, "two processes"),
        Mistake("the late chunk stands before the early one", zigzag_late_chunk_first, "two processes"),
        Mistake("the tokens of the late chunk are turned round too", zigzag_tokens_backwards, "two processes"),
    ),
    "19.merge": (
        Mistake("the outputs are averaged with equal weights", merge_mean, "two visits"),
        Mistake("lse itself is taken as the weight", merge_by_lse_itself, "two visits"),
        Mistake("the outputs are added without weights", merge_without_weights, "two visits"),
        Mistake("the weights exp(lse) are not divided by their sum", merge_not_divided, "two visits"),
        Mistake("the lse of the visits are added", merge_adds_lse, "two visits"),
        Mistake("the largest lse is returned for all of them", merge_keeps_the_largest_lse, "two visits"),
        Mistake("a query without any key gets NaN", merge_nan_for_nobody, "a query that sees nothing"),
    ),
}
