"""What wrong answers to the exercises of notebook 17 get wrong."""

from __future__ import annotations

import torch

from flashlearn.exercises.formulas import follows, normals


def _empty(answer) -> bool:
    return answer[0] >= answer[1]


def _queries(answer) -> str:
    return "no query" if _empty(answer) else f"the queries {answer[0]} to {answer[1] - 1}"


def _seen(loop, sizes, want, whose, why):
    """What is wrong with the queries that see some keys, in blocks of one; `why` says it of the answer."""
    got = tuple(loop(*sizes, 1))
    if got == want:
        return ""
    told = why(got)
    return f"{whose} said to be seen by {_queries(got)}, not by {_queries(want)}{told and f': {told}'}"


def one_key(loop):
    """With 3 keys back and 1 ahead key 5 is seen from places 4 to 8."""
    words = {
        (2, 7): "left and right must be turned round: who sees 3 keys back stands up to 3 places after the key",
        (4, 12): "the loop must end: query 9 stands 4 keys after key 5, and sees 3 back",
        (0, 9): "the loop must not begin at 0: query 3 stands 2 keys before key 5, and sees 1 ahead",
        (4, 8): "one too few: `end` is the block after the last, and the key exactly `left` places back is seen",
        (5, 9): "one too few: the query `right` places before the key sees it",
        (4, 10): "one too many: query 9 would see 4 keys back",
        (3, 9): "one too many: query 3 would see 2 keys ahead",
    }
    whose = "12 queries and keys, window (3, 1), blocks of one: key 5 is"
    return _seen(loop, (5, 6, 12, 12, 3, 1), (4, 9), whose, lambda got: words.get(got, ""))


def a_block_of_keys(loop):
    """Keys 4 to 7: the first decides where the loop begins, the last where it ends."""

    def why(got):
        if got[0] != 3:
            return "the first key of the block decides where the loop begins"
        return "the last key of the block, stop - 1, decides where the loop ends"

    return _seen(loop, (4, 8, 16, 16, 2, 1), (3, 10), "window (2, 1): the keys 4 to 7 are", why)


def no_limit(loop):
    def why(got):  # a loop that runs over everything: `if right` is false for 0 as for None
        zero = got == (0, 9) and 0 in window
        return "0 is a limit, the query's own place; None alone is none" if zero else "None is no limit on that side"

    for window, want in (((None, 0), (4, 9)), ((0, None), (0, 6)), ((None, None), (0, 9))):
        told = _seen(loop, (4, 6, 9, 9, *window), want, f"window {window}: the keys 4 and 5 of 9 are", why)
        if told:
            return told
    return ""


def inside(loop):
    """No block before 0, none past the last."""
    for keys, want in (((0, 2), (0, 5)), ((7, 9), (4, 9))):
        whose = f"window (3, 3): the keys {keys[0]} and {keys[1] - 1} of 9 are"
        told = _seen(loop, (*keys, 9, 9, 3, 3), want, whose, lambda got: "there are only the queries 0 to 8")
        if told:
            return told
    return ""


def the_place(loop):
    """Four queries behind eight cached keys: query 0 stands at key 8."""
    for sizes, want in (((8, 9, 4, 12, 1, 0), (0, 2)), ((0, 1, 12, 4, 1, 0), (8, 10))):
        whose = f"{sizes[2]} queries, {sizes[3]} keys, window (1, 0): key {sizes[0]} is"
        told = _seen(loop, sizes, want, whose, lambda got: "query i stands at key i + N_k - N_q")
        if told:
            return told
    got = loop(0, 4, 4, 12, 1, 0, 2)
    if not _empty(got):
        return f"4 queries behind 8 older keys, window (1, 0): nobody sees the keys 0 to 3, and {tuple(got)} is no empty range"
    return ""


def in_blocks(loop):
    """Key 6, seen by the queries 6 to 9, which are in the blocks 1 and 2 of four."""
    got = tuple(loop(6, 7, 16, 16, 3, 0, 4))
    if got == (1, 3):
        return ""
    words = "queries 6 to 9 lie in the blocks 1 and 2: first is rounded down, end up, both by block_q"
    return f"of 16 queries in blocks of 4, {got} come back where (1, 3) is expected: {words}"


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
        return "one number comes back for three heads: every head has a sink and a sum of its own, over batches and queries"
    said = f"the shape is {tuple(got.shape)}, where (3,) is expected, one number for each of three heads"
    sizes = [size for size in got.shape if size > 1]
    if sizes == [3]:
        return f"{said}: a sum leaves no dimension of size 1 behind without keepdim"
    if 3 not in sizes:
        return f"{said}: the heads are summed over, dimension 1, and they must not be"
    left = [name for name, size in (("batches (dimension 0)", 2), ("queries (dimension 2)", 5)) if size in sizes]
    return f"{said}: the sum over the {' and the '.join(left)} is missing" if left else said


def the_formula(sink_gradient):
    do, o, lse, sinks = _problem(1, 3)
    p, delta = torch.exp(sinks[:, None] - lse), (do * o).sum(-1)
    e = torch.exp(sinks)[:, None]
    candidates = {
        "-Σ exp(sink) δ | the weight of the sink is exp(sink - lse), divided by the sum of its row": -e * delta,
        "-Σ exp(lse - sink) δ | the exponent has the wrong sign: exp(sink - lse)": -delta / p,
        "-Σ δ | each query counts by the weight of its sink, exp(sink - lse)": -delta,
        "-Σ exp(sink - lse) | what is missing is δ, the sum of dO times o": -p,
        "-Σ p (1 - p) δ | the sink's own dP is 0, so only -p δ is left": -p * (1 - p) * delta,
        "Σ p (1 - p) | that is how p grows with its own score; what is asked for is the gradient of O": p * (1 - p),
        "0 | dP of the sink is 0, but dS = p (dP - δ) is not": 0 * p,
        "Σ p (1 - δ) | dP of the sink is dO times its value, which is 0, not 1": p * (1 - delta),
        "-Σ exp(sink - lse) rowsum(dO) | δ is the sum of dO times o, not of dO": -p * do.sum(-1),
        "-Σ exp(sink - lse) rowsum(o) | δ is the sum of dO times o, not of o": -p * o.sum(-1),
        "-Σ sigmoid(sink - lse) δ | lse has the sink in it already": -torch.sigmoid(sinks[:, None] - lse) * delta,
    }
    candidates = {name: t.sum((0, 2)) for name, t in candidates.items()}
    return follows(sink_gradient(do, o, lse, sinks), candidates, "-Σ exp(sink - lse) δ", (-p * delta).sum((0, 2)))


def the_batches(sink_gradient):
    do, o, lse, sinks = _problem(2, 3)
    each = -(torch.exp(sinks[:, None] - lse) * (do * o).sum(-1)).sum(-1)  # (B, H)
    candidates = {
        "that of the first batch | the batches share the sinks: sum over them": each[0],
        "that of the last batch | the batches share the sinks: sum over them": each[1],
    }
    return follows(sink_gradient(do, o, lse, sinks), candidates, "the sum over batches and queries", each.sum(0))


def far_scores(sink_gradient):
    for shift in (1000.0, -1000.0):
        got = sink_gradient(*_problem(1, 2, shift))
        if not got.isfinite().all():
            return f"with scores around {shift:.0f} NaN or infinities come back: exp(sink) and exp(lse) leave what floats hold; exp(sink - lse) does not"
    return ""


def what_padding_wastes(wasted):
    """Padding, from sequences that leave no question about rows: (4, 1, 1) take 3 times 4 places."""
    for lengths, want in (((4, 4), 0), ((4, 1, 1), 6), ((1, 5), 4)):
        got = wasted(list(lengths), 40)[0]
        if got == want:
            continue
        said = f"of lengths {lengths} padding is said to waste {got} places, not {want}"
        places, tokens = len(lengths) * max(lengths), sum(lengths)
        words = {
            places: f"{places} is all places; those that hold one of the {tokens} tokens are not wasted",
            len(lengths) * 40 - tokens: "they are padded to the longest of them, not to `room`",
            tokens: f"{tokens} is the number of tokens",
            -want: "places minus tokens, not the other way round",
        }
        return f"{said}: {words[got]}" if got in words else said
    return ""


def what_a_row_holds(wasted):
    """Rows of 8: one sequence, two that fit exactly, two that do not."""
    for lengths, want, why in (
        ((6,), 2, "a row has 8 places, the last one too, however few are taken"),
        ((5, 3), 0, "5 and 3 fill a row of 8 exactly"),
        ((5, 5), 6, "two rows of 8; a sequence that does not fit begins the next, whole"),
        ((5, 5, 3), 3, "5, then 5 and 3: a row is filled as long as the next one fits"),
        ((5, 6, 3), 10, "5, then 6, then 3: in order, and no row that was left is opened again"),
        ((5, 6, 3, 5), 5, "5, then 6, then 3 and 5: what is free is counted anew in every row"),
    ):
        got = wasted(list(lengths), 8)[1]
        if got == want:
            continue
        said = f"rows of 8 places, lengths {lengths}: {got} places are said to be wasted, not {want}"
        if len(lengths) == 1 and got == want + sum(lengths):
            return f"{said}: {got} is all places; those that hold a token are not wasted"
        return f"{said}: {why}"
    return ""


CAUSES = {
    "bounds": (one_key, a_block_of_keys, no_limit, inside, the_place, in_blocks),
    "sink": (one_sum_a_head, the_formula, the_batches, far_scores),
    "padding": (what_padding_wastes, what_a_row_holds),
}
