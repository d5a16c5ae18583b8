"""What wrong answers to the exercises of notebook 07 get wrong."""

from __future__ import annotations

import functools
import math

import torch

from flashlearn.course.one_pass_attention.causes import ORDERS, more_than_one, wrong_factor

INF = float("inf")


def _outputs(join, *maxima: tuple[float, float]) -> torch.Tensor:
    """What `join` gives for queries with these maxima of block 1 and block 2; l is 2 and 1, acc is 8 and 7."""
    m_1, m_2 = torch.tensor(maxima, dtype=torch.float64).mT[..., None]
    sums = [torch.full_like(m_1, number) for number in (2.0, 8.0, 1.0, 7.0)]
    return join(m_1, *sums[:2], m_2, *sums[2:])


JOINED = {  # what an output may be instead, with the factors a and b of blocks 1 and 2
    "block 2 is left out: its keys count, too": lambda a, b: 8 / 2,
    "block 1 is left out: its keys count, too": lambda a, b: 7 / 1,
    "only the block with the larger maximum counts: the other has a smaller weight, not none": lambda a, b: 4 if a > b else 7,
    "each output is weighted by its maximum alone: the weight of a block is its whole sum, a_1 l_1": lambda a, b: (4 * a + 7 * b) / (a + b),
    "acc is multiplied by l: it is divided by l": lambda a, b: (8 * a + 7 * b) * (2 * a + b),
    "one factor is applied twice": lambda a, b: (8 * a * a + 7 * b * b) / (2 * a * a + b * b),
}  # fmt: skip


def the_shares(join):
    """The output of one query, block 1 with the smaller and with the larger maximum."""
    orders = ((1.0, 3.0), (3.0, 1.0))
    got = [_outputs(join, maxima).flatten()[0].item() for maxima in orders]
    factors = [(math.exp(m_1 - 3), math.exp(m_2 - 3)) for m_1, m_2 in orders]
    for text, output in JOINED.items():
        if all(abs(g - output(*f)) < 1e-6 for g, f in zip(got, factors, strict=True)):
            return text
    return ""


def one_query_alone(join):
    """A query far below the others must not change."""
    low, both = (1.0, 3.0), _outputs(join, (1.0, 3.0), (5000.0, 5000.0))
    if torch.allclose(both[:1], _outputs(join, low), equal_nan=True):
        return ""
    return (
        "the output of a query changes with the maxima of another: each query has its own maximum and its own factors"
    )


def _step(update, m: tuple[float, ...], s: tuple[float, ...]):
    """After maxima m, with l = 2 and acc = 9 in each row, a block of one key: scores s, value 7."""
    m_old, S = (torch.tensor(numbers, dtype=torch.float64)[:, None] for numbers in (m, s))
    return update(m_old, torch.full_like(m_old, 2.0), torch.full_like(m_old, 9.0), S, S.new_full((1, 1), 7.0))


def the_maximum(update):
    """The larger of the old maximum and that of the block, row by row."""
    m_old, s = (1.0, 4.0), (2.0, 0.0)
    m = _step(update, m_old, s)[0]
    if m.shape != (2, 1):
        return f"for two queries m is returned with the shape {tuple(m.shape)}: it is a column, (2, 1), as are l and alpha; keepdim=True"
    m = m.flatten().tolist()
    said = f"after maxima 1 and 4 come scores 2 and 0, and m is {m[0]:.4g} and {m[-1]:.4g}"
    if m == [2.0, 0.0]:
        return f"{said}: that is the maximum of the block alone; m is the larger of the old maximum and that, and never falls"
    if m == [4.0, 4.0] or _step(update, m_old, (2.0, 5.0))[0].flatten().tolist() == [5.0, 5.0]:
        return "one maximum is taken for all rows together, where each row has its own"
    if m != [2.0, 4.0]:
        return f"{said}: the larger of both, for each row, is 2 and 4"
    S = torch.tensor([[2.0, 5.0]], dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    m = update(one.clone(), one.clone(), one.clone(), S, S.mT.clone())[0].item()
    return f"after a maximum of 1 come scores 2 and 5, and m is {m:.4g}: the largest of all is 5" if m != 5 else ""


def the_weights(update):
    """Old terms take e^(m - m_new), those of the block e^(S - m_new), in l and in acc alike."""
    steps = {(m, s): tuple(t.flatten() for t in _step(update, (m, m), (s, s))) for m, s in ORDERS}
    for (m, s), (_, l, acc) in steps.items():
        alpha, p = math.exp(m - 3.0), math.exp(s - 3.0)
        want = 2 * alpha + p
        if abs(l[0].item() - want) > 1e-6:
            return wrong_factor("l", {at: l[0].item() for at, (_, l, _) in steps.items()}, (2.0, 1.0))
        if torch.allclose(acc, torch.full_like(acc, (9 * alpha + 7 * p) / want)):
            return "acc is divided by l already: it is a sum, and divided once, after the last block"
        if abs(acc[0].item() - (9 * alpha + 7 * p)) > 1e-6:
            return wrong_factor("acc", {at: acc[0].item() for at, (_, _, acc) in steps.items()}, (9.0, 7.0))
    return ""


def nothing_is_added(update):
    """A block that outweighs all before it leaves l at 1."""
    return more_than_one("a block", _step(update, (-800.0,), (0.0,))[1].item())


ALIGNED = "the last query attends to all keys, query i to those up to i + N_k - N_q, and to none if that is negative"
# Sizes, how many pairs of blocks are right, and what is said of other counts; None: of any other
COUNTS: dict[tuple[int, ...], tuple[int, dict[int | None, str]]] = {
    (1, 1, 1, 1): (1, {0: "the one query attends to its own key: i + 1 keys, not i"}),
    (4, 4, 4, 4): (
        1,
        dict.fromkeys((4, 10, 16), "pairs of blocks count, not keys, and not pairs of a query and a key"),
    ),
    (1, 1, 1, 5): (1, {0: "a block of keys that is not full counts as well: round up (ceil)"}),
    (1, 1, 5, 1): (1, {0: "a block of queries that is not full counts as well, and ends with the last query"}),
    (4, 4, 1, 1): (
        10,
        {6: "a query attends to its own key: i + 1 keys, not i", 16: "query i does not attend to the keys after it"},
    ),
    (4, 4, 2, 3): (3, {None: "the blocks need 2 and 4 keys, which is 2/3 and 4/3 of a block, rounded up 1 and 2"}),
    (1, 4, 1, 1): (4, {None: ALIGNED}),
    (4, 1, 1, 1): (1, {None: ALIGNED}),
}


def a_count(sizes: tuple[int, ...], visited) -> str:
    want, words = COUNTS[sizes]
    if (got := visited(*sizes)) == want:
        return ""
    N_q, N_k, block_q, block_k = sizes
    why = words.get(got, words.get(None, ""))
    said = f"of {N_q} queries and {N_k} keys in blocks of {block_q} and {block_k} it counts {got}, not {want}"
    return f"{said}: {why}" if why else said


CAUSES = {
    "join": (the_shares, one_query_alone),
    "update": (the_maximum, nothing_is_added, the_weights),
    "visited": tuple(functools.partial(a_count, sizes) for sizes in COUNTS),
}
