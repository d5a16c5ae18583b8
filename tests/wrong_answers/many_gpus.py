"""Wrong answers to the exercises of notebook 19."""

import torch


def owners_one_too_far(s, P):
    return [(r - s + 1) % P for r in range(P)]


def owners_of_the_step(s, P):
    return [(s - r) % P for r in range(P)]


def owners_modulo_too_late(s, P):
    return [r - s % P for r in range(P)]


def owners_clamped(s, P):
    return [max(r - s, 0) for r in range(P)]


def owners_of_five(s, P):
    return [(r - s) % 4 for r in range(P)]


def owners_set(s, P):
    return sorted((r - s) % P for r in range(P))


def owners_doubled(s, P):
    return [(r - s * s) % P for r in range(P)]


def owners_one_number(s, P):
    return -s % P


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


def zigzag_numbers_of_chunks(N, P):
    return [[r, 2 * P - 1 - r] for r in range(P)]


def zigzag_two_lists_each(N, P):
    chunks = cut(N, P)
    return [[chunks[r], chunks[2 * P - 1 - r]] for r in range(P)]


def zigzag_dealt_there_and_back(N, P):
    return [sorted([*range(r, N, 2 * P), *range(2 * P - 1 - r, N, 2 * P)]) for r in range(P)]


def zigzag_one_flat_list(N, P):
    chunks = cut(N, P)
    return [token for r in range(P) for token in chunks[r] + chunks[2 * P - 1 - r]]


def zigzag_last_token_lost(N, P):
    n = N // (2 * P)
    return [[*range(r * n, r * n + n), *range((2 * P - 1 - r) * n, (2 * P - r) * n - 1)] for r in range(P)]


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


WRONG = {
    "19.owners": (
        ("one place too far", owners_one_too_far),
        ("s - r in place of r - s", owners_of_the_step),
        ("the remainder of s alone is taken", owners_modulo_too_late),
        ("what is below 0 becomes 0", owners_clamped),
        ("four processes, whatever P is", owners_of_five),
        ("the list is sorted", owners_set),
        ("the step is squared", owners_doubled),
        ("the owner of process 0 alone", owners_one_number),
    ),
    "19.zigzag": (
        ("the late chunk is one off", zigzag_off_by_one),
        ("the processes are in reverse order", zigzag_in_reverse),
        ("pairs of neighbouring chunks", zigzag_by_pairs_of_neighbours),
        ("the numbers of the chunks, not of tokens", zigzag_numbers_of_chunks),
        ("two lists for each process", zigzag_two_lists_each),
        ("single tokens there and back", zigzag_dealt_there_and_back),
        ("one list for all", zigzag_one_flat_list),
        ("the last token of every late chunk is lost", zigzag_last_token_lost),
    ),
    "19.merge": (
        ("exp(lse) without the maximum", merge_unsafe),
        ("large lse weigh little", merge_exchanged),
        ("powers of two", merge_in_powers_of_two),
        ("one maximum for all queries", merge_one_maximum),
        ("the weights run over the queries", merge_over_the_queries),
        ("two visits alone", merge_first_two_alone),
        ("lse is the mean", merge_mean_of_lse),
        ("lse without the maximum", merge_lse_without_maximum),
        ("an epsilon in the sum", merge_epsilon),
        ("lse is 0 where there is no key", merge_zero_lse_for_nobody),
    ),
}
RIGHT = {
    "19.owners": (("handed on step by step", owners_by_hand),),
    "19.zigzag": (("a row folded in the middle", zigzag_by_folding),),
    "19.merge": (
        ("one visit after the other", merge_one_after_the_other),
        ("softmax, NaN made 0", merge_by_softmax),
    ),
}
