"""Wrong answers to the exercises of notebook 19."""

import torch

from tests.variants import variant


@variant("19.owners", "the list tells who has the K of process r", r"other way|process 1 has those of process 0")
def turned_round(s, P):
    return [(s + r) % P for r in range(P)]


@variant("19.owners", "every step moves K and V two places", r"process r - 1|one place|r - 1")
def two_places(s, P):
    return [(r - 2 * s) % P for r in range(P)]


@variant("19.owners", "nothing is sent", r"given its own to the next|to the next")
def stays(s, P):
    return list(range(P))


@variant("19.zigzag", "chunks 2r and 2r + 1", r"neighbours, the plain order|first with the last")
def neighbours(N, P):
    n = N // P
    return [[*range(r * n, r * n + n)] for r in range(P)]


@variant("19.zigzag", "tokens dealt like cards, there and back", r"two chunks of neighbours|single tokens|one by one")
def dealt(N, P):
    return [sorted([*range(r, N, 2 * P), *range(2 * P - 1 - r, N, 2 * P)]) for r in range(P)]


@variant("19.zigzag", "the shares are in reverse order", r"revers")
def in_reverse(N, P):
    n = N // (2 * P)
    pairs = [(P - 1 - r, P + r) for r in range(P)]
    return [[i for c in pair for i in range(c * n, c * n + n)] for pair in pairs]


@variant("19.merge", "the weights are exchanged", r"exchanged")
def exchanged(o, lse):
    weight = torch.softmax(-lse, 0)
    return (weight[..., None] * o).sum(0), torch.logsumexp(lse, 0)


@variant("19.merge", "lse is the mean", r"no mean|mean")
def mean_lse(o, lse):
    weight = torch.softmax(lse, 0)
    return (weight[..., None] * o).sum(0), lse.mean(0)


@variant("19.merge", "exp without the maximum", r"subtract the largest|overflow|maximum")
def unsafe(o, lse):
    weight = lse.exp()
    return (weight[..., None] * o).sum(0) / weight.sum(0)[..., None], weight.sum(0).log()


@variant("19.merge", "the maximum is not added again", r"added again|maximum|too small by")
def without_m(o, lse):
    m = lse.amax(0)
    weight = (lse - m).exp()
    return (weight[..., None] * o).sum(0) / weight.sum(0)[..., None], weight.sum(0).log()
