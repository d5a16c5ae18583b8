"""Exercises of notebook 03: a sum to mend, the loop in lines, the merge of two (m, l) pairs, a row by divide and conquer."""

from __future__ import annotations

import math

import torch

from flashlearn.course.online_softmax.solutions import (
    mend_solution,
    merge_solution,
    order_solution,
    running_pair,
    tree_solution,
)
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.formulas import normal
from flashlearn.exercises.ordering import Ordering, puzzle
from flashlearn.exercises.watching import WrongWay, watched

ORDER = puzzle("online_softmax", "order", running_pair)

INF = float("inf")
LOW = -(2.0**100)  # some -1e30, and the same number in float32
PICKING = ("index", "index_select", "gather", "take", "masked_select", "any", "all", "copy")  # these reduce nothing
NAN = (
    "a NaN {} is an error that must show in m or l: guard -inf minus -inf before the exponential, "
    "and repair nothing after it, as nan_to_num does"
)


def _numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def _pair(*logits):
    """(m, l) of these logits, in float64."""
    x = _numbers(*logits)
    m = x.max() if len(x) else torch.tensor(-INF, dtype=torch.float64)
    return m, torch.exp(x - (0 if m == -INF else m)).sum()


def _mended(x, *before):
    """The pair of the logits `before` and the next one, x."""
    return lambda mend: (mend(*_pair(*before), _numbers(x)[0]), _pair(*before, x))


def _whole_row(*row):
    """`mend` once for every entry of a row but the first, which is the pair (x, 1)."""

    def compare(mend):
        m, l = _pair(row[0])
        for x in row[1:]:
            m, l = (torch.as_tensor(each, dtype=torch.float64) for each in mend(m, l, _numbers(x)[0]))
        return (m, l), _pair(*row)

    return compare


def _merged(left, right=()):
    return lambda merge: (merge(_pair(*left), _pair(*right)), _pair(*left, *right))


def _all_nan(pairs):
    """m + l of pairs of which m or l must be NaN."""
    return torch.stack([torch.as_tensor(m + l) for m, l in pairs]), torch.full((len(pairs),), math.nan)


def _merge_with_nan(merge):
    """m or l of either side is NaN."""
    bad = (math.nan, math.nan), (math.nan, 2), (3, math.nan)
    sides = [sides for m, l in bad for sides in ((_numbers(m, l), _pair(1, 2)), (_pair(1, 2), _numbers(m, l)))]
    return _all_nan([merge(tuple(a), tuple(b)) for a, b in sides])


def _tree_with_nan(tree):
    """A NaN is in the first block or in the last."""
    return _all_nan([tree(_numbers(*row), 2) for row in ((math.nan, 1, 2, 3, 4), (1, 2, 3, -INF, math.nan))])


def _row(n, scale=1.0, shift=0.0):
    return scale * normal(n, seed=n) + shift


def _reduced(x, block_size):
    return lambda tree: (tree(x.clone(), block_size), _pair(*x.tolist()))


def _no_more_than_a_block(function, n=32, block_size=2):
    """An operation that reduces more than a block at once is no node of a tree."""
    x = _row(n)
    got, made = watched(function, x.clone(), block_size)
    for one in made:
        entries = max((math.prod(shape) for shape, _ in one.operands), default=0)
        picks = one.operation in PICKING or one.operation.startswith("new_")
        if not picks and entries > block_size * math.prod(one.shape):
            what = f"{one.operation} of {'the whole row of ' if entries == n else ''}{entries}"
            raise WrongWay(f"expected at most {block_size} entries at once, got {what}")
    return got, _pair(*x.tolist())


def _not_one_after_the_other(function, n=128, block_size=2, most=60):
    """Six rounds of merges, of nine operations each, are fewer than 63 merges in a row."""
    x = _row(n)
    got, made = watched(function, x.clone(), block_size)
    depth = max((one.depth for one in made), default=0)
    if depth > most:
        raise WrongWay(f"expected a tree of {n // block_size} blocks, got {depth} operations one after the other")
    return got, _pair(*x.tolist())


def _another_block_size(function, n=16):
    """What is computed from what must depend on the size of the blocks."""
    x = _row(n)
    ways = [[(one.operation, one.operands) for one in watched(function, x.clone(), size)[1]] for size in (1, n)]
    if not any(ways):
        raise WrongWay("expected operations on x and its pieces, got none: a list of numbers cannot be watched")
    if ways[0] == ways[1]:
        raise WrongWay(f"expected blocks of 1 and of {n} to make a difference, got the same operations for both")
    return function(x.clone(), n), _pair(*x.tolist())


MEND_CASES = (
    Case("the maximum rises", _mended(5, 3, 2), "the old terms are measured from m, the new one from a larger maximum"),
    Case("the maximum stays", _mended(2, 5, 3), "the old sum is right as it is: only the new term joins it"),
    Case("a tie", _mended(5, 5, 3), "x = m: the old sum keeps its value, and the new term is e^0 = 1"),
    Case("a whole row", _whole_row(3, 2, 5, 1), "the result of one call is the input of the next"),
    Case("large logits", _mended(1000, 999, -1000), "take exp only of differences that are 0 or less"),
    Case("very low logits", _mended(-2000, -2001, -2003), "m and x may have any sign and any size"),
    Case("the new logit outweighs the rest", _mended(1000, 1, 2), "l is exactly 1: nothing is added to it", 1e-15),
    Case("float64", _mended(0.3, -2.1, 0.9), "stay in the dtype of m and l: do not convert to float32", 1e-10),
)
ORDER_CASES = (
    ORDER.case("the maximum stays", (_numbers(5, 3, 2),), "every entry adds its term, also where the maximum stays"),
    ORDER.case(
        "the maximum rises", (_numbers(3, 2, 5, 1),), "when m rises, the old sum must shrink, but not the new term"
    ),
    ORDER.case(
        "it rises at every entry", (_numbers(1, 2, 3, 4, 5, 6),), "the old sum needs one correction for every rise"
    ),
    ORDER.case("large logits", (_numbers(999, 1000, 998),), "take exp only of differences that are 0 or less"),
)
MERGE_CASES = (
    Case("right side holds the maximum", _merged((3, 2), (5, 1)), "rescale l_a by exp(m_a - m)"),
    Case("left side holds the maximum", _merged((5, 1), (3, 2)), "rescale l_b by exp(m_b - m)"),
    Case("equal maxima", _merged((2, 2), (2,)), "both factors are 1: the sums add up"),
    Case("far apart", _merged((1000,), (-1000, 999)), "take exp only of m_a - m and m_b - m: both are at most 0"),
    Case("an empty side", _merged((), (1, 2)), "(-inf, 0) is the pair of no elements: exp(-inf) = 0"),
    Case("two empty sides", _merged((), ()), "exp(-inf - -inf) is NaN: when m is -inf, l is 0"),
    Case("an empty right side", _merged((1, 2)), "either side may be the empty one"),
    Case(
        "negative maxima",
        _merged((-1, -2), (-0.5, -3)),
        "a maximum may have either sign: only -inf says that a side is empty",
    ),
    Case(
        "very low logits",
        _merged((LOW, 2 * LOW), (3 * LOW,)),
        "-inf alone stands for no elements: any finite number may be a logit",
    ),
    Case("one side outweighs the other", _merged((1000,), (-1000,)), "l is exactly 1: nothing is added to it", 1e-15),
    Case(
        "float64",
        _merged((0.3, 1.7), (0.9, -2.1)),
        "stay in the dtype of m and l: do not convert to float32",
        1e-10,
    ),
    Case("a NaN comes through", _merge_with_nan, NAN.format("among the logits")),
)
TREE_CASES = (
    Case("256 logits in blocks of 4", _reduced(_row(256), 4), "split the row, reduce both halves, merge the two pairs"),
    Case("one block", _reduced(_row(3), 4), "a piece of at most block_size entries is not split: return its m and l"),
    Case("does not divide", _reduced(_row(111), 4), "the halves need not be equal, but no element may be lost"),
    Case("blocks of one", _reduced(_row(16, 10.0), 1), "the pair of one entry is (x, 1)"),
    Case("large logits", _reduced(_row(64, 1.0, 1000.0), 8), "subtract the block's own maximum"),
    Case(
        "negative logits",
        _reduced(_row(40) - 9, 8),
        "a maximum may have either sign: nothing starts at 0, and only -inf says that a side is empty",
    ),
    Case(
        "very negative logits",
        _reduced(LOW * (8 * _row(50)).abs().ceil(), 8),
        "a maximum starts at -inf: any finite number may be a logit",
    ),
    Case(
        "a block of nothing but -inf",
        _reduced(_numbers(-INF, -INF, 1, 2, -INF, 3, -INF, -INF), 2),
        "its pair is (-inf, 0): where m is -inf, subtract 0, in the block and in the merge",
    ),
    Case(
        "a row filled up with -inf",
        _reduced(_numbers(1, 2, 3, 4, 5, 6, -INF, -INF), 1),
        "two blocks of -inf merge to (-inf, 0), the pair of no entries",
    ),
    Case("float64", _reduced(_row(40), 8), "stay in the dtype of x, and add nothing to l", 1e-10),
    Case("a NaN comes through", _tree_with_nan, NAN.format("in the row")),
    Case(
        "a block at a time",
        _no_more_than_a_block,
        "never reduce the whole row, nor the results of all blocks at once: "
        "reduce pieces of at most block_size entries, then merge two pairs at a time",
    ),
    Case(
        "a tree",
        _not_one_after_the_other,
        "split into halves, or merge neighbours round by round: 64 blocks merged one after the other "
        "make 63 rounds, in a tree they make 6",
    ),
    Case(
        "block_size decides",
        _another_block_size,
        "stop splitting at block_size entries: use the argument, not a number of your own",
    ),
)
EXERCISES = (
    Exercise(
        "mend",
        "mend(m, l, x): the pair (m, l) of the entries so far and the next entry x -> the new pair (m, l)",
        mend_solution,
        MEND_CASES,
        hints=(
            "Every term in l is e^(x_k - m) for some old entry x_k. Which term must it become when the maximum is m_new?",
            "Divide the term that you need by the term that you have. The old entry x_k cancels: what is left is the same for all terms.",
            "Three steps: m_new = ...; multiply l by the exponential of ...; then add the exponential of ....",
        ),
        core=("a whole row",),
        library=("flashlearn",),
        values=("m", "l"),
    ),
    Ordering(
        "order",
        "order(): the letters of the lines of the loop, from top to bottom",
        order_solution,
        ORDER_CASES,
        hints=(
            "Say what one iteration does: find the new maximum, rescale the old sum to it, add the new term.",
            "alpha needs the old maximum and the new one. When it is computed, m must still be the old one.",
            "Five letters: one line makes m_new, one alpha, two change l, one replaces m. For each line, ask which result it uses.",
        ),
        core=("the maximum rises",),
        values=("m", "l"),
        puzzle=ORDER,
    ),
    Exercise(
        "merge",
        "merge(a, b): two pairs (m, l) of scalar tensors -> the pair (m, l) of both together",
        merge_solution,
        MERGE_CASES,
        hints=(
            "l_a and l_b are measured from two different maxima. From which maximum must both be measured in the result?",
            "m is the larger of the two. One factor moves a sum from m_a to m: what is e^(x - m) divided by e^(x - m_a)?",
            "m = ...; if m is -inf, return m and ...; otherwise return m and l_a * ... + l_b * ..., each sum with its own factor.",
        ),
        core=("left side holds the maximum",),
        library=("flashlearn",),
        values=("m", "l"),
    ),
    Exercise(
        "tree",
        "tree(x, block_size): (N,) -> (m, l): reduce blocks of at most block_size, then merge them pairwise",
        tree_solution,
        TREE_CASES,
        hints=(
            "A piece of at most block_size entries has a known pair: its maximum and its sum. How do you get from a long row to such pieces?",
            "The function calls itself on both halves and merges the two pairs that it gets. For which pieces does it not call itself?",
            "if len(x) <= ...: return the pair of one block, (-inf, 0) if its m is -inf; middle = ...; return merge(tree(..., block_size), tree(..., block_size)).",
        ),
        core=("large logits",),
        library=("flashlearn",),
        values=("m", "l"),
    ),
)
