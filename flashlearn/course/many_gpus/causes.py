"""What wrong answers to the exercises of notebook 19 get wrong."""

from __future__ import annotations

import torch


def _owned(s, want, why):
    """A question: whose K and V have the processes in step s? `why` says what is wrong with another list."""

    def asked(owners):
        got = list(owners(s, len(want)))
        return (
            "" if got == want else f"in step {s}, with {len(want)} processes, {got} comes back, not {want}: {why(got)}"
        )

    return asked


def _one_step(got) -> str:
    words = {
        (1, 2, 3, 0): "K and V go to r + 1, so process 1 has those of process 0, and not the other way round",
        (-1, 0, 1, 2): "below 0 the ring goes on at its other end: -1 is process 3",
        (0, 1, 2, 3): "each has given its own to the next",
    }
    if tuple(got) not in words and sorted(got) != [0, 1, 2, 3]:
        return "every K and V is at one process, and every process has one: the list is a permutation"
    return words.get(tuple(got), "process r has what process r - 1 had the step before")


def _dealt(zigzag, N, P):
    return [list(share) for share in zigzag(N, P)]


def every_token_once(zigzag):
    got = _dealt(zigzag, 12, 2)
    tokens = sorted(token for share in got for token in share)
    if len(got) != 2:
        return f"{len(got)} lists come back for 2 processes"
    if tokens == list(range(12)):
        return ""
    missing = sorted(set(range(12)) - set(tokens))
    twice = sorted({token for token in tokens if tokens.count(token) > 1})
    what = f"the tokens {missing} are nobody's" if missing else f"the tokens {twice} are dealt out twice"
    return f"of 12 tokens for 2 processes {what}"


def as_many_for_all(zigzag):
    sizes = [len(share) for share in _dealt(zigzag, 24, 3)]
    return "" if len(set(sizes)) == 1 else f"24 tokens, 3 processes: the shares have {sizes} tokens, not 8 each"


def two_chunks(zigzag):
    """The first process: the first chunk and the last."""
    got = _dealt(zigzag, 24, 3)
    want = [[0, 1, 2, 3, 20, 21, 22, 23], [4, 5, 6, 7, 16, 17, 18, 19], [8, 9, 10, 11, 12, 13, 14, 15]]
    if got == want:
        return ""
    for r, (mine, right) in enumerate(zip(got, want, strict=True)):
        if mine == right:
            continue
        said = f"24 tokens, 3 processes: process {r} gets {mine}, not {right}"
        if sorted(mine) == right:
            return f"{said}: the tokens are right, their order is not: a share ascends"
        if got[::-1] == want:
            return f"{said}: the shares come in reverse order of the processes"
        if len(mine) > 1 and mine[1] - mine[0] != 1:
            return f"{said}: a share is made of two chunks of neighbours, not of single tokens"
        return f"{said}: chunk r and chunk 2 P - 1 - r, the first with the last"
    return ""


LSE = torch.tensor([[1.0], [2.0]], dtype=torch.float64)  # of two visits, one query


def the_weights(merge):
    """Outputs of the visits are (1, 0) and (0, 1), so what comes back are the two weights."""
    a, b = merge(torch.eye(2, dtype=torch.float64)[:, None], LSE.clone())[0][0].tolist()
    p, q = torch.softmax(LSE[:, 0], 0).tolist()
    if abs(a - p) + abs(b - q) < 1e-6:
        return ""
    said = f"visits with lse 1 and 2 get the weights {a:.4g} and {b:.4g}, not {p:.4g} and {q:.4g}"
    if abs(a - q) + abs(b - p) < 1e-6:
        return f"{said}: they are exchanged: exp(lse) of a visit weighs its own o"
    if a and abs(b / a - q / p) < 1e-4:
        return f"{said}: they must be divided by their sum"
    if abs(a - b) < 1e-6:
        return f"{said}: visits with a larger lse weigh more, by exp(lse)"
    if abs(b / a - 2) < 1e-4:
        return f"{said}: lse itself is no weight, nor is a power of two; the weight is exp(lse) over the sum of all exp(lse)"
    return f"{said}: the weight is exp(lse) over the sum of all exp(lse)"


def the_sum(merge):
    got, want = float(merge(torch.zeros(2, 1, 2, dtype=torch.float64), LSE.clone())[1]), float(LSE.logsumexp(0))
    if abs(got - want) < 1e-6:
        return ""
    words = {
        3.0: ": sums of exponentials add up, their logarithms do not",
        2.0: ": the largest of them leaves out what the other visits add to the sum",
        1.5: ": no mean: the sums of exponentials add up",
        round(float(LSE.exp().sum()), 6): ": this is the sum, its logarithm is missing",
        round(want - 2, 6): ": the maximum that was subtracted must be added again",
    }
    return f"of lse 1 and 2 the lse {got:.4g} is made, not log(e + e^2) = {want:.4g}{words.get(round(got, 6), '')}"


def far_scores(merge):
    for shift in (1000.0, -1000.0):
        if not all(t.isfinite().all() for t in merge(torch.ones(2, 1, 2, dtype=torch.float64), shift + LSE)):
            return f"with lse around {shift:.0f} NaN or infinities come back: subtract the largest lse before the exponential"
    return ""


def nobody(merge):
    lse = torch.tensor([[0.0, -torch.inf], [0.0, -torch.inf]], dtype=torch.float64)
    found, total = merge(torch.zeros(2, 2, 2, dtype=torch.float64), lse)
    if found.isnan().any() or total.isnan().any():
        return "a query that no visit has a key for gets NaN: -inf minus -inf; it wants o = 0 and lse = -inf"
    if total[1] != -torch.inf:
        return f"a query that no visit has a key for gets lse = {float(total[1]):.4g}, not -inf"
    return ""


CAUSES = {
    "owners": (
        _owned(0, [0, 1, 2, 3], lambda got: "nothing has been sent yet, each has its own"),
        _owned(1, [3, 0, 1, 2], _one_step),
        _owned(2, [3, 4, 0, 1, 2], lambda got: "every step moves all K and V one place on"),
    ),
    "zigzag": (every_token_once, as_many_for_all, two_chunks),
    "merge": (the_weights, the_sum, far_scores, nobody),
}
