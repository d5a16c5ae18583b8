"""What wrong answers to the exercises of notebook 19 get wrong."""

from __future__ import annotations

import torch


def the_start(owners):
    got = list(owners(0, 4))
    if got == [0, 1, 2, 3]:
        return ""
    return (
        f"in step 0, with 4 processes, {got} comes back, not [0, 1, 2, 3]: nothing has been sent yet, each has its own"
    )


def one_step(owners):
    got = list(owners(1, 4))
    if got == [3, 0, 1, 2]:
        return ""
    words = {
        (1, 2, 3, 0): "K and V go to r + 1, so process 1 has those of process 0, and not the other way round",
        (-1, 0, 1, 2): "below 0 the ring goes on at its other end: -1 is process 3",
        (0, 1, 2, 3): "each has given its own to the next",
    }
    said = f"in step 1, with 4 processes, {got} comes back, not [3, 0, 1, 2]"
    why = words.get(tuple(got), "process r has what process r - 1 had the step before")
    if sorted(got) != [0, 1, 2, 3] and tuple(got) not in words:
        why = "every K and V is at one process, and every process has one: the list is a permutation"
    return f"{said}: {why}"


def two_steps(owners):
    got = list(owners(2, 5))
    if got == [3, 4, 0, 1, 2]:
        return ""
    return (
        f"in step 2, with 5 processes, {got} comes back, not [3, 4, 0, 1, 2]: every step moves all K and V one place on"
    )


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


def the_weights(merge):
    """Two visits, one query: o of the visits are (1, 0) and (0, 1), so what comes back are the two weights."""
    o = torch.eye(2, dtype=torch.float64)[:, None]
    lse = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    a, b = merge(o, lse)[0][0].tolist()
    p, q = torch.softmax(lse[:, 0], 0).tolist()
    if abs(a - p) + abs(b - q) < 1e-6:
        return ""
    said = f"visits with lse 1 and 2 get the weights {a:.4g} and {b:.4g}, not {p:.4g} and {q:.4g}"
    if abs(a - q) + abs(b - p) < 1e-6:
        return f"{said}: they are exchanged: exp(lse) of a visit weighs its own o"
    if abs(b / a - q / p) < 1e-4 if a else False:
        return f"{said}: they must be divided by their sum"
    if abs(a - b) < 1e-6:
        return f"{said}: visits with a larger lse weigh more, by exp(lse)"
    if abs(b / a - 2) < 1e-4:
        return f"{said}: lse itself is no weight, nor is a power of two; the weight is exp(lse) over the sum of all exp(lse)"
    return f"{said}: the weight is exp(lse) over the sum of all exp(lse)"


def the_sum(merge):
    """lse of two visits."""
    o = torch.zeros(2, 1, 2, dtype=torch.float64)
    lse = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    got, want = float(merge(o, lse)[1]), float(torch.logsumexp(lse, 0))
    if abs(got - want) < 1e-6:
        return ""
    words = {
        3.0: "sums of exponentials add up, their logarithms do not",
        2.0: "the largest of them leaves out what the other visits add to the sum",
        1.5: "no mean: the sums of exponentials add up",
        round(float(torch.exp(lse).sum()), 6): "this is the sum, its logarithm is missing",
        round(want - 2, 6): "the maximum that was subtracted must be added again",
    }
    said = f"of lse 1 and 2 the lse {got:.4g} is made, not log(e + e^2) = {want:.4g}"
    why = words.get(round(got, 6))
    return f"{said}: {why}" if why else said


def far_scores(merge):
    for shift in (1000.0, -1000.0):
        o = torch.ones(2, 1, 2, dtype=torch.float64)
        lse = shift + torch.tensor([[1.0], [2.0]], dtype=torch.float64)
        if not all(torch.isfinite(t).all() for t in merge(o, lse)):
            return f"with lse around {shift:.0f} NaN or infinities come back: subtract the largest lse before the exponential"
    return ""


def nobody(merge):
    o = torch.zeros(2, 2, 2, dtype=torch.float64)
    lse = torch.tensor([[0.0, -torch.inf], [0.0, -torch.inf]], dtype=torch.float64)
    found, total = merge(o, lse)
    if torch.isnan(found).any() or torch.isnan(total).any():
        return "a query that no visit has a key for gets NaN: -inf minus -inf; it wants o = 0 and lse = -inf"
    return (
        ""
        if total[1] == -torch.inf
        else f"a query that no visit has a key for gets lse = {float(total[1]):.4g}, not -inf"
    )


CAUSES = {
    "owners": (the_start, one_step, two_steps),
    "zigzag": (every_token_once, as_many_for_all, two_chunks),
    "merge": (the_weights, the_sum, far_scores, nobody),
}
