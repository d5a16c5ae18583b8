"""What wrong answers to the exercises of notebook 03 get wrong."""

from __future__ import annotations

import math

import torch

INF = float("inf")


def _merge(merge, *sides: float) -> tuple[float, float]:
    m_a, l_a, m_b, l_b = torch.tensor(sides, dtype=torch.float64)
    m, l = merge((m_a, l_a), (m_b, l_b))
    return float(m), float(l)


def _tree(tree, logits, block_size: int) -> tuple[float, float]:
    m, l = tree(torch.tensor(logits, dtype=torch.float64), block_size)
    return float(m), float(l)


def the_maximum(merge):
    """The larger of the two, wherever it stands."""
    for m_a, m_b in ((3.0, 1.0), (1.0, 3.0)):
        m, _ = _merge(merge, m_a, 2.0, m_b, 4.0)
        if abs(m - 3) > 1e-9:
            return f"of m_a = {m_a:g} and m_b = {m_b:g} m is {m:.4g}: the maximum of both is the larger, 3"
    return ""


def the_factors(merge):
    """Each sum takes e^(its own maximum - m)."""
    for m_a, m_b in ((3.0, 1.0), (1.0, 3.0)):
        a, b = math.exp(m_a - 3), math.exp(m_b - 3)
        l = _merge(merge, m_a, 2.0, m_b, 4.0)[1]
        told = f"with m_a = {m_a:g}, m_b = {m_b:g} the sums 2 and 4 become {l:.4g}, not {2 * a + 4 * b:.4g}"
        if abs(l - (2 * a + 4 * b)) < 1e-6:
            continue
        if abs(l - (2 * b + 4 * a)) < 1e-6:
            where = "l_a takes e^(m_a - m), from its own maximum, and l_b e^(m_b - m)"
            return f"{told}: the factors are exchanged; {where}"
        side, old, factor, rest = ("b", 4, b, 2) if a == 1 else ("a", 2, a, 4)  # the side that must be rescaled
        for wrong, words in ((1 / factor, f"e^(m - m_{side})"), (1, "1, none,")):
            if abs(l - (old * wrong + rest)) < 1e-6:
                return f"{told}: l_{side} takes the factor {words} where it must be exp(m_{side} - m)"
        return f"{told}: rescale l_a by exp(m_a - m) and l_b by exp(m_b - m)"
    return ""


def nothing_is_added(merge):
    l = _merge(merge, 0.0, 1.0, -800.0, 1.0)[1]
    if 1e-15 < l - 1 < 1e-3:
        return f"a side that outweighs the other keeps its l of 1; it becomes 1 + {l - 1:.1g}: nothing is added to l"
    return ""


def an_empty_side(merge):
    """(-inf, 0) beside (2, 3) changes nothing."""
    for sides in ((-INF, 0.0, 2.0, 3.0), (2.0, 3.0, -INF, 0.0)):
        m, l = _merge(merge, *sides)
        if m != 2 or abs(l - 3) > 1e-6:
            return f"an empty side, (-inf, 0), beside (2, 3) gives ({m:.4g}, {l:.4g}): the other side must come back as it is"
    return ""


def a_leaf(tree):
    """Three logits in one block: m, and l = sum of exp(x - m)."""
    m, l = _tree(tree, (1.0, 2.0, 3.0), 4)
    if abs(m - 3) > 1e-9:
        return f"of the block 1, 2, 3 m is {m:.4g}: the maximum is 3"
    right = sum(math.exp(x - 3) for x in (1, 2, 3))
    if abs(l - 6) < 1e-6:
        return "a block of logits is summed as it is: l is the sum of exp(x - m)"
    if abs(l - right * math.exp(3)) < 1e-6:
        return "in a block l is the sum of exp(x): subtract its own maximum first, exp(x - m)"
    return f"of the block 1, 2, 3 l is {l:.4g}: the sum of exp(x - m) is {right:.4g}" if abs(l - right) > 1e-6 else ""


def all_elements(tree):
    """Of n equal logits l is n."""
    for n, block in ((8, 2), (7, 2), (5, 4), (4, 1)):
        try:
            l = _tree(tree, [0.0] * n, block)[1]
        except (RecursionError, RuntimeError, IndexError) as error:
            if not isinstance(error, RecursionError) and "numel() == 0" not in str(error):
                return ""  # an error of another kind, which is told with its line
            return f"{n} logits in blocks of {block} end in an error: stop as soon as at most block_size elements are left, len(x) <= block_size, or a piece gets empty or the function calls itself for ever"
        if abs(l - n) > 1e-6:
            what = "lost" if l < n else "counted twice"
            return f"of {n} equal logits in blocks of {block} l is {l:.4g}, not {n}: elements are {what}"
    return ""


def two_blocks(tree):
    """Two blocks of one logit each merge as (m, l) pairs do."""
    for x in ((0.0, 1.0), (1.0, 0.0)):
        l = _tree(tree, x, 1)[1]
        if abs(l - 1 - math.exp(-1)) > 1e-6:
            return f"of two blocks {x[0]:g} and {x[1]:g} l is {l:.4g}, not 1 + e^-1 = {1 + math.exp(-1):.4g}: rescale both sums to the larger maximum"
    return ""


def nothing_but_hidden(tree):
    """A block of -inf alone is the pair of no entries, and so are two of them."""
    for n, what in ((2, "a block of nothing but -inf becomes"), (4, "two blocks of nothing but -inf become")):
        m, l = _tree(tree, [-INF] * n, 2)
        if m != -INF or l != 0:
            return f"{what} ({m:.4g}, {l:.4g}), not (-inf, 0): -inf - -inf is nan, so subtract 0 where m is -inf"
    return ""


CAUSES = {
    "merge": (the_maximum, nothing_is_added, the_factors, an_empty_side),
    "tree": (a_leaf, all_elements, two_blocks, nothing_but_hidden),
}
