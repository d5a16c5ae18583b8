"""What wrong answers to the exercises of notebook 17 get wrong."""

from __future__ import annotations

import torch

from flashlearn.exercises.formulas import follows, normals


def _empty(answer) -> bool:
    return answer[0] >= answer[1]


def _queries(answer) -> str:
    return "no query" if _empty(answer) else f"the queries {answer[0]} to {answer[1] - 1}"


def _seen(loop, sizes, want, whose, why):
    """What is wrong with the queries that attend to some keys, in blocks of one; `why` explains the answer."""
    got = tuple(loop(*sizes, 1))
    if got == want:
        return ""
    told = why(got)
    return f"{whose}: expected {_queries(want)}, got {_queries(got)}{told and f'. {told}'}"


def one_key(loop):
    """With 3 keys back and 1 ahead, the queries at the positions 4 to 8 attend to key 5."""
    words = {
        (2, 7): "Exchange left and right: a query that attends 3 keys back is up to 3 positions after the key",
        (4, 12): "The loop must end: query 9 is 4 positions after key 5 and attends to 3 keys back",
        (0, 9): "The loop must not begin at 0: query 3 is 2 positions before key 5 and attends to 1 key ahead",
        (4, 8): "One too few: `end` is the block after the last, and a key exactly `left` positions back counts",
        (5, 9): "One too few: the query `right` positions before the key attends to it",
        (4, 10): "One too many: query 9 would attend to 4 keys back",
        (3, 9): "One too many: query 3 would attend to 2 keys ahead",
    }
    whose = "12 queries and keys, window (3, 1), blocks of one query: which attend to key 5"
    return _seen(loop, (5, 6, 12, 12, 3, 1), (4, 9), whose, lambda got: words.get(got, ""))


def a_block_of_keys(loop):
    """Keys 4 to 7: the first decides where the loop begins, the last decides where it ends."""

    def why(got):
        if got[0] != 3:
            return "The first key of the block decides where the loop begins"
        return "The last key of the block, stop - 1, decides where the loop ends"

    return _seen(loop, (4, 8, 16, 16, 2, 1), (3, 10), "window (2, 1), keys 4 to 7", why)


def no_limit(loop):
    def why(got):  # a loop that runs over everything: `if right` is false for 0 as for None
        zero = got == (0, 9) and 0 in window
        return (
            "0 is a limit, the query's own position; None means no limit" if zero else "None is no limit on that side"
        )

    for window, want in (((None, 0), (4, 9)), ((0, None), (0, 6)), ((None, None), (0, 9))):
        told = _seen(loop, (4, 6, 9, 9, *window), want, f"window {window}, keys 4 and 5 of 9", why)
        if told:
            return told
    return ""


def inside(loop):
    """No block before 0, none past the last."""
    for keys, want in (((0, 2), (0, 5)), ((7, 9), (4, 9))):
        whose = f"window (3, 3), keys {keys[0]} and {keys[1] - 1} of 9"
        told = _seen(loop, (*keys, 9, 9, 3, 3), want, whose, lambda got: "There are only the queries 0 to 8")
        if told:
            return told
    return ""


def the_place(loop):
    """Four queries after eight cached keys: query 0 is at key 8."""
    for sizes, want in (((8, 9, 4, 12, 1, 0), (0, 2)), ((0, 1, 12, 4, 1, 0), (8, 10))):
        whose = f"{sizes[2]} queries, {sizes[3]} keys, window (1, 0), key {sizes[0]}"
        told = _seen(loop, sizes, want, whose, lambda got: "Query i is at key i + N_k - N_q")
        if told:
            return told
    got = loop(0, 4, 4, 12, 1, 0, 2)
    if not _empty(got):
        return f"4 queries after 8 older keys, window (1, 0): no query attends to keys 0 to 3; expected an empty range, got {tuple(got)}"
    return ""


def in_blocks(loop):
    """The queries 6 to 9 attend to key 6; in blocks of four they are in the blocks 1 and 2."""
    got = tuple(loop(6, 7, 16, 16, 3, 0, 4))
    if got == (1, 3):
        return ""
    words = "The queries 6 to 9 are in the blocks 1 and 2: divide by block_q, round first down and end up"
    return f"16 queries in blocks of 4: expected (1, 3), got {got}. {words}"


def _problem(B: int, H: int, shift: float = 0.0):
    S, v, do, sinks = normals((B, H, 5, 6), (B, H, 6, 4), (B, H, 5, 4), (H,), seed=7)
    S, sinks = S + shift, sinks + shift
    lse = torch.logsumexp(torch.cat([S, sinks[:, None, None].expand(B, H, 5, 1)], -1), -1)
    return do, torch.exp(S - lse[..., None]) @ v, lse, sinks


def one_sum_a_head(sink_gradient):
    given = _problem(2, 3)
    got = sink_gradient(*(t.clone() for t in given))
    if got.shape == (3,):
        return ""
    if got.numel() == 1:
        return "expected three numbers, one a head, got one: every head has its own sink and its own sum over batches and queries"
    said = f"expected the shape (3,), one number for each of three heads, got {tuple(got.shape)}"
    sizes = [size for size in got.shape if size > 1]
    if sizes == [3]:
        return f"{said}: sum without keepdim, so that no dimension of size 1 is left"
    if 3 not in sizes:
        return f"{said}: the heads, dimension 1, must not be summed over"
    left = [name for name, size in (("batches (dimension 0)", 2), ("queries (dimension 2)", 5)) if size in sizes]
    return f"{said}: the sum over the {' and the '.join(left)} is missing" if left else said


def the_formula(sink_gradient):
    do, o, lse, sinks = _problem(1, 3)
    p, delta = torch.exp(sinks[:, None] - lse), (do * o).sum(-1)
    e = torch.exp(sinks)[:, None]
    candidates = {
        "-Σ exp(sink) δ | the weight of the sink is exp(sink - lse): it is divided by the sum of its row": -e * delta,
        "-Σ exp(lse - sink) δ | the exponent has the wrong sign: take exp(sink - lse)": -delta / p,
        "-Σ δ | multiply each query by the weight of its sink, exp(sink - lse)": -delta,
        "-Σ exp(sink - lse) | the factor δ is missing, the sum of dO times o": -p,
        "-Σ p (1 - p) δ | the sink's own dP is 0, so only -p δ is left": -p * (1 - p) * delta,
        "Σ p (1 - p) | that is the derivative of p by its own score; the gradient of the output needs δ": p * (1 - p),
        "0 | dP of the sink is 0, but dS = p (dP - δ) is not": 0 * p,
        "Σ p (1 - δ) | dP of the sink is dO times its value, which is 0, not 1": p * (1 - delta),
        "-Σ exp(sink - lse) rowsum(dO) | δ is the sum of dO times o, not of dO": -p * do.sum(-1),
        "-Σ exp(sink - lse) rowsum(o) | δ is the sum of dO times o, not of o": -p * o.sum(-1),
        "-Σ sigmoid(sink - lse) δ | lse contains the sink already": -torch.sigmoid(sinks[:, None] - lse) * delta,
    }
    candidates = {name: t.sum((0, 2)) for name, t in candidates.items()}
    return follows(sink_gradient(do, o, lse, sinks), candidates, "-Σ exp(sink - lse) δ", (-p * delta).sum((0, 2)))


def the_batches(sink_gradient):
    do, o, lse, sinks = _problem(2, 3)
    each = -(torch.exp(sinks[:, None] - lse) * (do * o).sum(-1)).sum(-1)  # (B, H)
    candidates = {
        "that of the first batch | the batches share the sinks, so sum over them": each[0],
        "that of the last batch | the batches share the sinks, so sum over them": each[1],
    }
    return follows(sink_gradient(do, o, lse, sinks), candidates, "the sum over batches and queries", each.sum(0))


def far_scores(sink_gradient):
    for shift in (1000.0, -1000.0):
        got = sink_gradient(*_problem(1, 2, shift))
        if not got.isfinite().all():
            return f"expected finite numbers for scores around {shift:.0f}, got NaN or infinity: exp(sink) and exp(lse) overflow or underflow; exp(sink - lse) does not"
    return ""


def what_padding_wastes(wasted):
    """Padding: the lengths (4, 1, 1) take 3 times 4 places."""
    for lengths, want in (((4, 4), 0), ((4, 1, 1), 6), ((1, 5), 4)):
        got = wasted(list(lengths), 40)[0]
        if got == want:
            continue
        said = f"lengths {lengths}, padded: expected {want} wasted places, got {got}"
        places, tokens = len(lengths) * max(lengths), sum(lengths)
        words = {
            places: f"{places} counts all places; the {tokens} that hold a token are not wasted",
            len(lengths) * 40 - tokens: "they are padded to the longest sequence, not to `room`",
            tokens: f"{tokens} is the number of tokens",
            -want: "take places minus tokens, not tokens minus places",
        }
        return f"{said}: {words[got]}" if got in words else said
    return ""


def what_a_row_holds(wasted):
    """Rows of 8: one sequence, two that fit exactly, two that do not."""
    for lengths, want, why in (
        ((6,), 2, "every row has 8 places, also the last one, however few hold tokens"),
        ((5, 3), 0, "5 and 3 fill a row of 8 exactly"),
        ((5, 5), 6, "two rows of 8: a sequence that does not fit begins the next row and is not cut"),
        ((5, 5, 3), 3, "the rows are 5, then 5 and 3: a row is filled as long as the next sequence fits"),
        ((5, 6, 3), 10, "the rows are 5, then 6, then 3: no earlier row is used again"),
        ((5, 6, 3, 5), 5, "the rows are 5, then 6, then 3 and 5: every new row starts with 8 free places"),
    ):
        got = wasted(list(lengths), 8)[1]
        if got == want:
            continue
        said = f"lengths {lengths}, packed into rows of 8: expected {want} wasted places, got {got}"
        if len(lengths) == 1 and got == want + sum(lengths):
            return f"{said}: {got} counts all places; those that hold a token are not wasted"
        return f"{said}: {why}"
    return ""


CAUSES = {
    "bounds": (one_key, a_block_of_keys, no_limit, inside, the_place, in_blocks),
    "sink": (one_sum_a_head, the_formula, the_batches, far_scores),
    "padding": (what_padding_wastes, what_a_row_holds),
}
