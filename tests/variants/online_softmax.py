"""Wrong answers to the exercises of notebook 03."""

import torch

from tests.variants import variant

INF = float("inf")


def merge(a, b):
    m = torch.maximum(a[0], b[0])
    if m == -INF:
        return m, torch.zeros_like(a[1])
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


@variant("03.merge", "the smaller maximum is taken", r"larger|maximum of|the maximum|torch\.maximum|smaller")
def the_smaller_one(a, b):
    m = torch.minimum(a[0], b[0])
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


@variant("03.merge", "l and m are returned in the wrong order", r"order|swap|exchang|\(m, l\)")
def wrong_order(a, b):
    return merge(a, b)[::-1]


@variant("03.merge", "one empty side empties the whole", r"empty|no elements|other side|\(-inf, 0\)")
def one_empty_side_is_enough(a, b):
    if a[0] == -INF or b[0] == -INF:
        return torch.maximum(a[0], b[0]), torch.zeros_like(a[1])
    return merge(a, b)


@variant("03.merge", "the two factors are exchanged", r"exchang|swap|exp\(m_[ab] - m\)|own maximum|each sum")
def factors_exchanged(a, b):
    m = torch.maximum(a[0], b[0])
    return m, a[1] * torch.exp(b[0] - m) + b[1] * torch.exp(a[0] - m)


@variant(
    "03.merge", "the new maximum is forgotten in the result", r"larger|the maximum|torch\.maximum|m is|right side|new m"
)
def returns_the_left_maximum(a, b):
    m = torch.maximum(a[0], b[0])
    return a[0], a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


@variant("03.tree", "a leaf sums x, not e^x", r"\bexp\b|e\^|exponential")
def leaves_without_exp(x, block_size):
    if len(x) <= block_size:
        return x.max(), x.sum()
    middle = len(x) // 2
    return merge(leaves_without_exp(x[:middle], block_size), leaves_without_exp(x[middle:], block_size))


@variant(
    "03.tree",
    "the recursion never ends for blocks of one",
    r"recursion|never ends|calls itself|<= block_size|at most block_size",
)
def endless(x, block_size):
    if len(x) < block_size:
        return x.max(), torch.exp(x - x.max()).sum()
    middle = len(x) // 2
    return merge(endless(x[:middle], block_size), endless(x[middle:], block_size))


@variant("03.tree", "the element in the middle is lost", r"\blost|lose|missing|left out|too few|no element may")
def loses_the_middle(x, block_size):
    if len(x) <= block_size:
        return x.max() if len(x) else torch.tensor(-INF, dtype=x.dtype), torch.exp(x - x.max()).sum() if len(
            x
        ) else x.sum()
    middle = len(x) // 2
    return merge(loses_the_middle(x[:middle], block_size), loses_the_middle(x[middle + 1 :], block_size))


@variant("03.tree", "a leaf does not subtract its maximum", r"subtract|x - m|measured from|own maximum")
def leaves_unshifted(x, block_size):
    if len(x) <= block_size:
        return x.max(), torch.exp(x).sum()
    middle = len(x) // 2
    return merge(leaves_unshifted(x[:middle], block_size), leaves_unshifted(x[middle:], block_size))


@variant("03.order", "the correction comes after the new term", r"before the correction|shrinks it too")
def corrected_too_late():
    return ["C", "G", "E", "B", "A"]


@variant("03.order", "the old maximum is lost before alpha", r"m was replaced before")
def replaced_too_early():
    return ["C", "A", "G", "B", "E"]


@variant("03.order", "the sum is left uncorrected", r"never corrected")
def left_uncorrected():
    return ["C", "G", "E", "A"]
