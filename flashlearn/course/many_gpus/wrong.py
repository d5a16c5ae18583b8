"""Answers to the exercises of many_gpus that are no edit of the solution: `wrong.toml` names them."""

import torch


def _chunks(N, parts):
    n = N // parts
    return [list(range(c * n, (c + 1) * n)) for c in range(parts)]


def zigzag_plain(N, P):
    return _chunks(N, P)


def zigzag_without_turning(N, P):
    chunks = _chunks(N, 2 * P)
    return [chunks[r] + chunks[P + r] for r in range(P)]


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


def in_reverse(N, P):
    n = N // (2 * P)
    pairs = [(P - 1 - r, P + r) for r in range(P)]
    return [[i for c in pair for i in range(c * n, c * n + n)] for pair in pairs]


def exchanged(o, lse):
    weight = torch.softmax(-lse, 0)
    return (weight[..., None] * o).sum(0), torch.logsumexp(lse, 0)


def mean_lse(o, lse):
    weight = torch.softmax(lse, 0)
    return (weight[..., None] * o).sum(0), lse.mean(0)


def unsafe(o, lse):
    weight = lse.exp()
    return (weight[..., None] * o).sum(0) / weight.sum(0)[..., None], weight.sum(0).log()


def without_m(o, lse):
    m = lse.amax(0)
    weight = (lse - m).exp()
    return (weight[..., None] * o).sum(0) / weight.sum(0)[..., None], weight.sum(0).log()


def owners_by_hand(s, P):
    held = list(range(P))
    for _ in range(s):
        held = held[-1:] + held[:-1]
    return held


def cut(N, P):
    n = N // (2 * P)
    return [list(range(c * n, c * n + n)) for c in range(2 * P)]


def zigzag_off_by_one(N, P):
    chunks = cut(N, P)
    return [chunks[r] + chunks[-r] for r in range(P)]


def zigzag_in_reverse(N, P):
    chunks = cut(N, P)
    return [chunks[P - 1 - r] + chunks[P + r] for r in range(P)]


def zigzag_by_pairs_of_neighbours(N, P):
    chunks = cut(N, P)
    return [chunks[2 * r] + chunks[2 * r + 1] for r in range(P)]


def zigzag_two_lists_each(N, P):
    chunks = cut(N, P)
    return [[chunks[r], chunks[2 * P - 1 - r]] for r in range(P)]


def zigzag_one_flat_list(N, P):
    chunks = cut(N, P)
    return [token for r in range(P) for token in chunks[r] + chunks[2 * P - 1 - r]]


def zigzag_by_folding(N, P):
    chunks = cut(N, P)
    return [early + late for early, late in zip(chunks[:P], chunks[: -P - 1 : -1], strict=True)]


def weighed(weight, o, lse):
    return (weight[..., None] * o).sum(0), lse


def merge_unsafe(o, lse):
    weight = torch.exp(lse)
    return weighed(weight / weight.sum(0), o, torch.log(weight.sum(0)))


def merge_exchanged(o, lse):
    return weighed(torch.softmax(-lse, 0), o, torch.logsumexp(lse, 0))


def merge_in_powers_of_two(o, lse):
    weight = torch.exp2(lse - lse.amax(0))
    return weighed(weight / weight.sum(0), o, torch.logsumexp(lse, 0))


def merge_one_maximum(o, lse):
    m = lse.max()
    weight = torch.exp(lse - m)
    total = weight.sum(0)
    return weighed(weight / total.masked_fill(total == 0, 1), o, m + torch.log(total))


def merge_over_the_queries(o, lse):
    return weighed(torch.softmax(lse, 1), o, torch.logsumexp(lse, 0))


def merge_first_two_alone(o, lse):
    return weighed(torch.softmax(lse[:2], 0), o[:2], torch.logsumexp(lse[:2], 0))


def merge_mean_of_lse(o, lse):
    return weighed(torch.softmax(lse, 0), o, lse.mean(0))


def merge_lse_without_maximum(o, lse):
    weight = torch.exp(lse - lse.amax(0))
    return weighed(weight / weight.sum(0), o, torch.log(weight.sum(0)))


def merge_epsilon(o, lse):
    m = lse.amax(0).nan_to_num(neginf=0)
    weight = torch.exp(lse - m)
    total = weight.sum(0) + 1e-3
    return weighed(weight / total, o, m + torch.log(total))


def merge_zero_lse_for_nobody(o, lse):
    weight = torch.softmax(lse, 0).nan_to_num()
    return weighed(weight, o, torch.logsumexp(lse, 0).nan_to_num(neginf=0))


def merge_one_after_the_other(o, lse):
    total, found = lse[0], o[0]
    for o_s, lse_s in zip(o[1:], lse[1:], strict=True):
        both = torch.logaddexp(total, lse_s)
        safe = both.masked_fill(both == -torch.inf, 0)
        found = torch.exp(total - safe)[..., None] * found + torch.exp(lse_s - safe)[..., None] * o_s
        total = both
    return found, total


def merge_by_softmax(o, lse):
    return weighed(torch.softmax(lse, 0).nan_to_num(), o, torch.logsumexp(lse, 0))
