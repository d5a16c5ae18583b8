"""Answers to the exercises of online_softmax that are no edit of the solution: `wrong.toml` names them."""

import functools
import math

import torch

from flashlearn.course.online_softmax.solutions import INF, merge_solution, tree_solution


def mend_with_a_branch(m, l, x):
    if x > m:
        return x, l * torch.exp(m - x) + 1
    return m, l + torch.exp(x - m)


def mend_in_floats(m, l, x):
    m, l, x = float(m), float(l), float(x)
    return max(m, x), l * math.exp(m - max(m, x)) + math.exp(x - max(m, x))


def mend_through_lse(m, l, x):
    lse = torch.logaddexp(m + l.log(), x)
    return torch.maximum(m, x), torch.exp(lse - torch.maximum(m, x))


def unguarded(a, b):
    m = torch.maximum(a[0], b[0])
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


def negative_is_empty(a, b):
    if a[0] > 0 and b[0] > 0:
        return merge_solution(a, b)
    return a if a[0] > 0 or a[0] > b[0] else b


def merge_in_floats(a, b):
    (m_a, l_a), (m_b, l_b) = ((float(m), float(l)) for m, l in (a, b))
    m = max(m_a, m_b)
    return m, sum(l * math.exp(n - m) for n, l in ((m_a, l_a), (m_b, l_b)) if l)


def merge_by_stacking(a, b):
    m, l = torch.stack([a[0], b[0]]), torch.stack([a[1], b[1]])
    return m.amax(), (l * torch.exp(m - m.amax()).masked_fill(m == -INF, 0.0)).sum()


def merge_of_many_words(a, b):
    """As long as a beginner may write it."""
    (m_a, l_a), (m_b, l_b) = a, b
    m = torch.stack([m_a, m_b]).max()
    zero = torch.zeros_like(m)
    alpha_a = torch.where(torch.isinf(m_a), zero, torch.exp(m_a - m))
    alpha_b = torch.where(torch.isinf(m_b), zero, torch.exp(m_b - m))
    new_l_a = torch.where(l_a == 0, zero, l_a * alpha_a)
    new_l_b = torch.where(l_b == 0, zero, l_b * alpha_b)
    return m.clone(), torch.stack([new_l_a, new_l_b]).sum()


def leaf(x):
    return tree_solution(x, len(x))


def unguarded_leaf(x, m=None):
    m = x.max() if m is None else m
    return m, torch.exp(x - m).sum()


def tree_by(join=merge_solution, reduce=leaf, split=lambda x, block_size: len(x) // 2):
    """A tree whose merge, leaf or split may be a wrong one."""

    def tree(x, block_size):
        if len(x) <= block_size:
            return reduce(x)
        middle = split(x, block_size)
        return join(tree(x[:middle], block_size), tree(x[middle:], block_size))

    return tree


def chain(blocks, join=merge_solution, reduce=leaf):
    """Blocks that are merged one after the other."""
    return functools.reduce(join, map(reduce, blocks))


def tree_two_levels(x, block_size):
    pairs = [leaf(block) for block in x.split(block_size)]
    m, l = torch.stack([m for m, _ in pairs]), torch.stack([l for _, l in pairs])
    return m.max(), (l * torch.exp(m - m.max())).sum()


def tree_in_rounds(x, block_size, odd_one_waits=True):
    """Neighbours, then neighbours of neighbours; an odd one out waits, or is forgotten."""
    pairs = [leaf(block) for block in x.split(block_size)]
    while len(pairs) > 1:
        odd = pairs[-1:] if odd_one_waits and len(pairs) % 2 else []
        pairs = [merge_solution(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=False)] + odd
    return pairs[0]


def tree_of_whole_rounds(x, block_size):
    """All merges of a round at once, in tensors that are filled up with -inf."""
    blocks = 2 ** math.ceil(math.log2(math.ceil(len(x) / block_size)))
    padded = torch.cat([x, x.new_full((blocks * block_size - len(x),), -INF)]).reshape(blocks, block_size)
    m = padded.amax(-1)
    l = torch.exp(padded - m[:, None]).masked_fill(padded == -INF, 0.0).sum(-1)
    while len(m) > 1:
        m_new = torch.maximum(m[::2], m[1::2])
        base = m_new.masked_fill(m_new == -INF, 0.0)
        l = l[::2] * torch.exp(m[::2] - base) + l[1::2] * torch.exp(m[1::2] - base)
        m = m_new
    return m[0], l[0]


def tree_in_two_buffers(x, block_size):
    """A heap of (m, l): node i is made of the nodes 2 i and 2 i + 1."""
    blocks = x.split(block_size)
    T = len(blocks)
    m, l = x.new_full((2 * T,), -INF), x.new_zeros(2 * T)
    for i, block in enumerate(blocks):
        m[T + i], l[T + i] = leaf(block)
    for i in range(T - 1, 0, -1):
        m[i], l[i] = merge_solution((m[2 * i], l[2 * i]), (m[2 * i + 1], l[2 * i + 1]))
    return m[1], l[1]


def tree_of_thirds(x, block_size):
    if len(x) <= block_size:
        return leaf(x)
    thirds = x.split(math.ceil(len(x) / 3))
    return functools.reduce(merge_solution, [tree_of_thirds(third, block_size) for third in thirds])
