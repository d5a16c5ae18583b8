"""What wrong answers to the exercises of notebook 19 get wrong."""

from __future__ import annotations

import torch


def _owned(s, want, why):
    """A question: whose K and V do the processes have in step s? `why` says what is wrong with another list."""

    def asked(owners):
        got = list(owners(s, len(want)))
        return "" if got == want else f"step {s}, {len(want)} processes: expected {want}, got {got}. {why(got)}"

    return asked


def _one_step(got) -> str:
    words = {
        (1, 2, 3, 0): "K and V go to r + 1, so process 1 has those of process 0, not the other way round",
        (-1, 0, 1, 2): "Below 0 the ring continues at its other end: -1 is process 3",
        (0, 1, 2, 3): "Each process has sent its own to the next",
    }
    if tuple(got) not in words and sorted(got) != [0, 1, 2, 3]:
        return "Every K and V is at one process, and every process has one, so the list is a permutation"
    return words.get(tuple(got), "Process r has what process r - 1 had in the step before")


def _dealt(zigzag, N, P):
    return [list(share) for share in zigzag(N, P)]


def every_token_once(zigzag):
    got = _dealt(zigzag, 12, 2)
    tokens = sorted(token for share in got for token in share)
    if len(got) != 2:
        return f"expected 2 lists for 2 processes, got {len(got)}"
    if tokens == list(range(12)):
        return ""
    missing = sorted(set(range(12)) - set(tokens))
    twice = sorted({token for token in tokens if tokens.count(token) > 1})
    what = f"no process has the tokens {missing}" if missing else f"two processes have the tokens {twice}"
    return f"12 tokens, 2 processes: {what}"


def as_many_for_all(zigzag):
    sizes = [len(share) for share in _dealt(zigzag, 24, 3)]
    return "" if len(set(sizes)) == 1 else f"24 tokens, 3 processes: expected 8 tokens in each share, got {sizes}"


def two_chunks(zigzag):
    """The first process: the first chunk and the last."""
    got = _dealt(zigzag, 24, 3)
    want = [[0, 1, 2, 3, 20, 21, 22, 23], [4, 5, 6, 7, 16, 17, 18, 19], [8, 9, 10, 11, 12, 13, 14, 15]]
    if got == want:
        return ""
    for r, (mine, right) in enumerate(zip(got, want, strict=True)):
        if mine == right:
            continue
        said = f"24 tokens, 3 processes: expected {right} for process {r}, got {mine}"
        if sorted(mine) == right:
            return f"{said}: the tokens are right, but they must ascend"
        if got[::-1] == want:
            return f"{said}: the shares are in reverse order of the processes"
        if len(mine) > 1 and mine[1] - mine[0] != 1:
            return f"{said}: a share has two chunks of neighbouring tokens, not single tokens"
        return f"{said}: take chunk r and chunk 2 P - 1 - r, the first with the last"
    return ""


LSE = torch.tensor([[1.0], [2.0]], dtype=torch.float64)  # of two visits, one query


def the_weights(merge):
    """The outputs of the visits are (1, 0) and (0, 1), so the result shows the two weights."""
    a, b = merge(torch.eye(2, dtype=torch.float64)[:, None], LSE.clone())[0][0].tolist()
    p, q = torch.softmax(LSE[:, 0], 0).tolist()
    if abs(a - p) + abs(b - q) < 1e-6:
        return ""
    said = f"visits with lse 1 and 2: expected the weights {p:.4g} and {q:.4g}, got {a:.4g} and {b:.4g}"
    if abs(a - q) + abs(b - p) < 1e-6:
        return f"{said}: they are exchanged. exp(lse) of a visit is the weight of its own o"
    if a and abs(b / a - q / p) < 1e-4:
        return f"{said}: divide them by their sum"
    if abs(a - b) < 1e-6:
        return f"{said}: a visit with a larger lse has a larger weight, exp(lse)"
    if abs(b / a - 2) < 1e-4:
        return f"{said}: neither lse nor a power of two is the weight; it is exp(lse) over the sum of all exp(lse)"
    return f"{said}: the weight is exp(lse) over the sum of all exp(lse)"


def the_sum(merge):
    got, want = float(merge(torch.zeros(2, 1, 2, dtype=torch.float64), LSE.clone())[1]), float(LSE.logsumexp(0))
    if abs(got - want) < 1e-6:
        return ""
    words = {
        3.0: ": add the sums of exponentials, not their logarithms",
        2.0: ": the largest lse leaves out what the other visits add to the sum",
        1.5: ": add the sums of exponentials; take no mean",
        round(float(LSE.exp().sum()), 6): ": this is the sum, and its logarithm is missing",
        round(want - 2, 6): ": the maximum that was subtracted must be added again",
    }
    return f"visits with lse 1 and 2: expected log(e + e^2) = {want:.4g}, got {got:.4g}{words.get(round(got, 6), '')}"


def far_scores(merge):
    for shift in (1000.0, -1000.0):
        if not all(t.isfinite().all() for t in merge(torch.ones(2, 1, 2, dtype=torch.float64), shift + LSE)):
            return f"expected finite numbers for lse around {shift:.0f}, got NaN or infinity: subtract the largest lse before the exponential"
    return ""


def nobody(merge):
    lse = torch.tensor([[0.0, -torch.inf], [0.0, -torch.inf]], dtype=torch.float64)
    found, total = merge(torch.zeros(2, 2, 2, dtype=torch.float64), lse)
    if found.isnan().any() or total.isnan().any():
        return "expected o = 0 and lse = -inf for a query without a key in any visit, got NaN: -inf minus -inf is NaN"
    if total[1] != -torch.inf:
        return f"expected lse = -inf for a query without a key in any visit, got {float(total[1]):.4g}"
    return ""


CAUSES = {
    "owners": (
        _owned(0, [0, 1, 2, 3], lambda got: "Nothing has been sent yet, so each has its own"),
        _owned(1, [3, 0, 1, 2], _one_step),
        _owned(2, [3, 4, 0, 1, 2], lambda got: "Every step moves all K and V on by one process"),
    ),
    "zigzag": (every_token_once, as_many_for_all, two_chunks),
    "merge": (the_weights, the_sum, far_scores, nobody),
}
