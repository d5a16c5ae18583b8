"""Known wrong answers to the exercises of notebook 03."""

import functools

import torch

from flashlearn.course.online_softmax.solutions import running_pair
from flashlearn.exercises.assessment import Mistake
from flashlearn.exercises.ordering import Decoy, Puzzle

INF = float("inf")


def merge_no_rescaling(a, b):
    return torch.maximum(a[0], b[0]), a[1] + b[1]


def merge_one_side_only(a, b):
    m = torch.maximum(a[0], b[0])
    return m, a[1] * torch.exp(a[0] - m) + b[1]


def merge_upside_down(a, b):
    m = torch.maximum(a[0], b[0])
    return m, a[1] * torch.exp(m - a[0]) + b[1] * torch.exp(m - b[0])


def merge_by_quotients(a, b):
    m = torch.maximum(a[0], b[0])
    return m, (a[1] * torch.exp(a[0]) + b[1] * torch.exp(b[0])) / torch.exp(m)


def merge_unguarded(a, b):
    m = torch.maximum(a[0], b[0])
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


def _tree(x, block_size, merge=merge_unguarded):
    if len(x) <= block_size:
        return x.max(), torch.exp(x - x.max()).sum()
    middle = len(x) // 2
    return merge(_tree(x[:middle], block_size, merge), _tree(x[middle:], block_size, merge))


def tree_no_rescaling(x, block_size):
    return _tree(x, block_size, merge_no_rescaling)


def tree_drops_the_tail(x, block_size):
    return _tree(x[: len(x) - len(x) % block_size] if len(x) > block_size else x, block_size)


def tree_unshifted_blocks(x, block_size):
    if len(x) <= block_size:
        return x.max(), torch.exp(x).sum() / torch.exp(x.max())
    middle = len(x) // 2
    return merge_unguarded(tree_unshifted_blocks(x[:middle], block_size), tree_unshifted_blocks(x[middle:], block_size))


def tree_not_at_all(x, block_size):
    return x.max(), torch.exp(x - x.max()).sum()


def tree_one_after_the_other(x, block_size):
    pairs = [tree_not_at_all(block, block_size) for block in x.split(block_size)]
    return functools.reduce(merge_unguarded, pairs)


def tree_unguarded(x, block_size):
    return _tree(x, block_size)


ORDER = Puzzle(
    "03.order",
    running_pair,
    (
        Decoy(
            "alpha = torch.exp(m_new - m)",
            1,
            "the factor is upside down: it is more than 1 where the sum must shrink",
            "the maximum rises",
        ),
        Decoy(
            "l = l + torch.exp(x_i)",
            3,
            "the new term is added as e^(x_i), not measured from the maximum",
            "the maximum rises",
        ),
    ),
)
MISTAKES = {
    "03.merge": (
        Mistake("the sums are added without rescaling", merge_no_rescaling, "right side holds the maximum"),
        Mistake("only the left sum is rescaled", merge_one_side_only, "left side holds the maximum"),
        Mistake(
            "the factors are upside down, e^(m - m_a) for e^(m_a - m)",
            merge_upside_down,
            "right side holds the maximum",
        ),
        Mistake("exp is taken of the maxima themselves, which overflows", merge_by_quotients, "far apart"),
        Mistake("-inf is subtracted from -inf when both sides are empty", merge_unguarded, "two empty sides"),
    ),
    "03.tree": (
        Mistake("the sums of the halves are added without rescaling", tree_no_rescaling, "256 logits in blocks of 4"),
        Mistake("the whole row is reduced at once, without a tree", tree_not_at_all, "a block at a time"),
        Mistake("the blocks are merged one after the other, not in a tree", tree_one_after_the_other, "a tree"),
        Mistake("the last block is dropped when it is shorter", tree_drops_the_tail, "does not divide"),
        Mistake("exp is taken before the maximum is subtracted", tree_unshifted_blocks, "large logits"),
        Mistake(
            "-inf is subtracted from -inf in a block that holds nothing else",
            tree_unguarded,
            "a block of nothing but -inf",
        ),
    ),
    "03.order": ORDER.mistakes(
        (
            "the old sum is never corrected: l is not multiplied by alpha, or m was replaced before alpha compared the two",
            (0, 4, 1, 2, 3),
            "the maximum rises",
        ),
        (
            "the new term is added before the correction, which then shrinks it too",
            (0, 1, 3, 2, 4),
            "the maximum rises",
        ),
    ),
}
