"""What wrong answers to the exercises of notebook 03 get wrong."""

from __future__ import annotations

import math

import torch

INF = float("inf")


def _merge(merge, *sides: float) -> tuple[float, float]:
    m_a, l_a, m_b, l_b = torch.tensor(sides, dtype=torch.float64)
    m, l = merge((m_a, l_a), (m_b, l_b))
    return float(m), float(l)


def _mend(mend, m: float, l: float, x: float) -> tuple[float, float]:
    new_m, new_l = mend(*torch.tensor((m, l, x), dtype=torch.float64))
    return float(new_m), float(new_l)


def _tree(tree, logits, block_size: int) -> tuple[float, float]:
    m, l = tree(torch.tensor(logits, dtype=torch.float64), block_size)
    return float(m), float(l)


def the_new_maximum(mend):
    """The larger of m and x."""
    for x in (5.0, 2.0):
        m, _ = _mend(mend, 3.0, 2.0, x)
        if abs(m - max(3.0, x)) > 1e-9:
            if x == 5 and m == 3:
                return "m stays 3 when x = 5 arrives: m must become the larger of the two, or e^(x - m) can overflow"
            return f"for m = 3, l = 2 and x = {x:g} the new m is {m:.4g}: the maximum is the larger of the two, {max(3.0, x):g}"
    return ""


def the_mended_sum(mend):
    """l e^(m - m_new) + e^(x - m_new)"""
    for x in (5.0, 2.0):
        old, new = math.exp(3 - max(3.0, x)), math.exp(x - max(3.0, x))
        l = _mend(mend, 3.0, 2.0, x)[1]
        if abs(l - (2 * old + new)) < 1e-6:
            continue
        said = f"for m = 3, l = 2 and x = {x:g} the new l is {l:.4g}, not {2 * old + new:.4g}"
        for value, why in (
            (2 + new, "the old sum is not rescaled: it takes the factor e^(m - m_new)"),
            (2 / old + new, "the factor is upside down: the old sum shrinks by e^(m - m_new)"),
            ((2 + new) * old, "the new term is rescaled, too: only the old sum takes the factor e^(m - m_new)"),
            (2 * old + math.exp(x - 3), "the new term is measured from the old maximum: it is e^(x - m_new)"),
            (2 * old + math.exp(x), "the new term is not shifted: it is e^(x - m_new)"),
            (2 * old, "the new term is missing: add e^(x - m_new)"),
            (2 * old + 1, "the new term is e^(x - m_new), which is 1 only where x is the maximum"),
        ):
            if abs(l - value) < 1e-6:
                return f"{said}: {why}"
        return f"{said}: it is l e^(m - m_new) + e^(x - m_new)"
    return ""


def nothing_more(mend):
    """A new logit that outweighs all others leaves l = 1."""
    l = _mend(mend, 0.0, 1.0, 800.0)[1]
    return (
        f"a logit that outweighs all others makes l = 1, not 1 + {l - 1:.1g}: nothing is added to l"
        if 1e-15 < l - 1 < 1e-3
        else ""
    )


def the_maximum(merge):
    """The larger of the two, on either side."""
    for m_a, m_b in ((3.0, 1.0), (1.0, 3.0)):
        m, _ = _merge(merge, m_a, 2.0, m_b, 4.0)
        if abs(m - 3) > 1e-9:
            return f"for m_a = {m_a:g} and m_b = {m_b:g} the merged m is {m:.4g}: it is the larger of the two, 3"
    return ""


def the_factors(merge):
    """Each sum takes e^(its own maximum - m)."""
    for m_a, m_b in ((3.0, 1.0), (1.0, 3.0)):
        a, b = math.exp(m_a - 3), math.exp(m_b - 3)
        l = _merge(merge, m_a, 2.0, m_b, 4.0)[1]
        said = f"with m_a = {m_a:g}, m_b = {m_b:g} the sums 2 and 4 become {l:.4g}, not {2 * a + 4 * b:.4g}"
        if abs(l - (2 * a + 4 * b)) < 1e-6:
            continue
        if abs(l - (2 * b + 4 * a)) < 1e-6:
            factors = "l_a takes e^(m_a - m), from its own maximum, and l_b takes e^(m_b - m)"
            return f"{said}: the factors are exchanged; {factors}"
        side, old, factor, rest = ("b", 4, b, 2) if a == 1 else ("a", 2, a, 4)  # the side that must be rescaled
        for wrong, words in ((1 / factor, f"e^(m - m_{side})"), (1, "nothing")):
            if abs(l - (old * wrong + rest)) < 1e-6:
                return f"{said}: l_{side} was multiplied by {words}, but its factor is exp(m_{side} - m)"
        return f"{said}: rescale l_a by exp(m_a - m) and l_b by exp(m_b - m)"
    return ""


def nothing_is_added(merge):
    l = _merge(merge, 0.0, 1.0, -800.0, 1.0)[1]
    if 1e-15 < l - 1 < 1e-3:
        return f"when one side outweighs the other, l stays 1; here it becomes 1 + {l - 1:.1g}: nothing is added to l"
    return ""


def an_empty_side(merge):
    """(-inf, 0) merged with (2, 3) changes nothing."""
    for sides in ((-INF, 0.0, 2.0, 3.0), (2.0, 3.0, -INF, 0.0)):
        m, l = _merge(merge, *sides)
        if m != 2 or abs(l - 3) > 1e-6:
            return f"an empty side, (-inf, 0), merged with (2, 3) gives ({m:.4g}, {l:.4g}): the result must be the other side, unchanged"
    return ""


def a_leaf(tree):
    """Three logits in one block: m, and l = sum of exp(x - m)."""
    m, l = _tree(tree, (1.0, 2.0, 3.0), 4)
    if abs(m - 3) > 1e-9:
        return f"for the block 1, 2, 3 m is {m:.4g}: the maximum is 3"
    right = sum(math.exp(x - 3) for x in (1, 2, 3))
    if abs(l - 6) < 1e-6:
        return "the logits of a block are added without an exponential: l is the sum of exp(x - m)"
    if abs(l - right * math.exp(3)) < 1e-6:
        return "l of a block is the sum of exp(x): subtract its own maximum first, exp(x - m)"
    return f"for the block 1, 2, 3 l is {l:.4g}: the sum of exp(x - m) is {right:.4g}" if abs(l - right) > 1e-6 else ""


def all_elements(tree):
    """Of n equal logits l is n."""
    for n, block in ((8, 2), (7, 2), (5, 4), (4, 1)):
        try:
            l = _tree(tree, [0.0] * n, block)[1]
        except (RecursionError, RuntimeError, IndexError) as error:
            if not isinstance(error, RecursionError) and "numel() == 0" not in str(error):
                return ""  # another error, which the report shows with its line
            return f"{n} logits in blocks of {block} end in an error: stop at len(x) <= block_size. Otherwise a piece becomes empty, or the function calls itself without end"
        if abs(l - n) > 1e-6:
            what = "lost" if l < n else "counted twice"
            return f"for {n} equal logits in blocks of {block} l is {l:.4g}, not {n}: elements are {what}"
    return ""


def two_blocks(tree):
    """Two blocks of one logit each merge as (m, l) pairs do."""
    for x in ((0.0, 1.0), (1.0, 0.0)):
        l = _tree(tree, x, 1)[1]
        if abs(l - 1 - math.exp(-1)) > 1e-6:
            return f"for two blocks, {x[0]:g} and {x[1]:g}, l is {l:.4g}, not 1 + e^-1 = {1 + math.exp(-1):.4g}: rescale both sums to the larger maximum"
    return ""


def nothing_but_hidden(tree):
    """A block of -inf alone is the pair of no entries, and so are two of them."""
    for n, what in ((2, "a block of nothing but -inf becomes"), (4, "two blocks of nothing but -inf become")):
        m, l = _tree(tree, [-INF] * n, 2)
        if m != -INF or l != 0:
            return f"{what} ({m:.4g}, {l:.4g}), not (-inf, 0): -inf - -inf is nan, so subtract 0 where m is -inf"
    return ""


CAUSES = {
    "mend": (the_new_maximum, the_mended_sum, nothing_more),
    "merge": (the_maximum, nothing_is_added, the_factors, an_empty_side),
    "tree": (a_leaf, all_elements, two_blocks, nothing_but_hidden),
}
