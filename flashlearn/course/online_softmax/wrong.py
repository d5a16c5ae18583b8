"""Answers to the exercises of online_softmax that are no edit of the solution: `wrong.toml` names them."""

import functools
import math

import torch


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


INF = float("inf")


def merge(a, b):
    m = torch.maximum(a[0], b[0])
    if m == -INF:
        return m, torch.zeros_like(a[1])
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


def the_smaller_one(a, b):
    m = torch.minimum(a[0], b[0])
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


def wrong_order(a, b):
    return merge(a, b)[::-1]


def one_empty_side_is_enough(a, b):
    if a[0] == -INF or b[0] == -INF:
        return torch.maximum(a[0], b[0]), torch.zeros_like(a[1])
    return merge(a, b)


def factors_exchanged(a, b):
    m = torch.maximum(a[0], b[0])
    return m, a[1] * torch.exp(b[0] - m) + b[1] * torch.exp(a[0] - m)


def returns_the_left_maximum(a, b):
    m = torch.maximum(a[0], b[0])
    return a[0], a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


def leaves_without_exp(x, block_size):
    if len(x) <= block_size:
        return x.max(), x.sum()
    middle = len(x) // 2
    return merge(leaves_without_exp(x[:middle], block_size), leaves_without_exp(x[middle:], block_size))


def endless(x, block_size):
    if len(x) < block_size:
        return x.max(), torch.exp(x - x.max()).sum()
    middle = len(x) // 2
    return merge(endless(x[:middle], block_size), endless(x[middle:], block_size))


def loses_the_middle(x, block_size):
    if len(x) <= block_size:
        return x.max() if len(x) else torch.tensor(-INF, dtype=x.dtype), torch.exp(x - x.max()).sum() if len(
            x
        ) else x.sum()
    middle = len(x) // 2
    return merge(loses_the_middle(x[:middle], block_size), loses_the_middle(x[middle + 1 :], block_size))


def leaves_unshifted(x, block_size):
    if len(x) <= block_size:
        return x.max(), torch.exp(x).sum()
    middle = len(x) // 2
    return merge(leaves_unshifted(x[:middle], block_size), leaves_unshifted(x[middle:], block_size))


def other_merge(a, b):
    """The right one, for trees that go wrong elsewhere."""
    m = torch.maximum(a[0], b[0])
    base = m if m > -INF else torch.zeros_like(m)
    return m, a[1] * torch.exp(a[0] - base) + b[1] * torch.exp(b[0] - base)


def merge_in_float32(a, b):
    return tuple(t.double() for t in other_merge(*((m.float(), l.float()) for m, l in (a, b))))


def merge_with_epsilon(a, b):
    m, l = other_merge(a, b)
    return m, l + 1e-8


def merge_from_a_finite_start(a, b):
    m = torch.maximum(a[0], b[0])
    base = m.clamp(min=-1e9)
    return m, a[1] * torch.exp(a[0] - base) + b[1] * torch.exp(b[0] - base)


def merge_never_both_empty(a, b):
    """The left side is looked at, the right is taken to hold something."""
    return b if a[0] == -INF else (torch.maximum(a[0], b[0]), other_merge(a, b)[1] if b[0] > -INF else b[1])


def merge_takes_negative_for_empty(a, b):
    left, right = a[0] > 0, b[0] > 0
    if left and right:
        return other_merge(a, b)
    if left or right:
        return a if left else b
    return (
        other_merge(a, (b[0], torch.zeros_like(b[1])))
        if a[0] > b[0]
        else other_merge((a[0], torch.zeros_like(a[1])), b)
    )


def merge_drops_a_tie(a, b):
    if a[0] > b[0]:
        return a[0], a[1] + b[1] * torch.exp(b[0] - a[0])
    return b[0], b[1] + (a[1] * torch.exp(a[0] - b[0]) if a[0] < b[0] else 0)


def merge_scales_the_larger_side(a, b):
    m = torch.maximum(a[0], b[0])
    factor = torch.exp(-(a[0] - b[0]).abs())
    return m, a[1] * factor + b[1] if a[0] > b[0] else a[1] + b[1] * factor


def merge_returns_the_lse(a, b):
    m, l = other_merge(a, b)
    return m + l.log(), torch.ones_like(l)


def merge_takes_the_mean_maximum(a, b):
    m = (a[0] + b[0]) / 2
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


def merge_counts_one_for_b(a, b):
    return other_merge(a, (b[0], torch.ones_like(b[1])))


def merge_says_nan_is_0(a, b):
    """Every empty side empties the pair."""
    m = torch.maximum(a[0], b[0])
    l = a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)
    return m, torch.zeros_like(l) if torch.isinf(a[0]) or torch.isinf(b[0]) else l


def leaf(x):
    m = x.max()
    return m, torch.exp(x - m).nan_to_num(0.0).sum()


def leaf_unguarded(x):
    m = x.max()
    return m, torch.exp(x - m).sum()


def tree_by(join=other_merge, reduce=leaf, split=lambda x, block_size: len(x) // 2):
    """A tree whose other_merge, leaf or split may be a wrong one."""

    def tree(x, block_size):
        if len(x) <= block_size:
            return reduce(x)
        middle = split(x, block_size)
        return join(tree(x[:middle], block_size), tree(x[middle:], block_size))

    return tree


def tree_by_logsumexp(x, block_size):
    return x.max(), torch.exp(torch.logsumexp(x, 0) - x.max())


def tree_of_one_maximum(x, block_size):
    m = x.max()
    return m, sum(torch.exp(block - m).sum() for block in x.split(block_size))


def tree_two_levels(x, block_size):
    pairs = [leaf(block) for block in x.split(block_size)]
    m = torch.stack([m for m, _ in pairs])
    return m.max(), (torch.stack([l for _, l in pairs]) * torch.exp(m - m.max())).sum()


def tree_from_the_end(x, block_size):
    return functools.reduce(other_merge, (leaf(block) for block in reversed(x.split(block_size))))


def tree_entry_by_entry(x, block_size):
    return functools.reduce(other_merge, ((entry, torch.ones_like(entry)) for entry in x))


def tree_to_single_entries(x, block_size):
    return tree_by()(x, 1)


def tree_starts_at_0(x):
    m = x.max().clamp(min=0.0)
    return m, torch.exp(x - m).sum()


def tree_starts_at_minus_1e9(x):
    m = x.max().clamp(min=-1e9)
    return m, torch.exp(x - m).sum()


def tree_leaves_in_float32(x):
    return tuple(t.double() for t in leaf(x.float()))


def tree_loses_the_middle(x, block_size):
    if len(x) <= block_size:
        return leaf(x)
    return other_merge(
        tree_loses_the_middle(x[: len(x) // 2], block_size), tree_loses_the_middle(x[-(len(x) // 2) :], block_size)
    )


def tree_merges_pairs_only(x, block_size):
    """Rounds of neighbours, in which an odd one out is forgotten."""
    pairs = [leaf(block) for block in x.split(block_size)]
    while len(pairs) > 1:
        pairs = [other_merge(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=False)]
    return pairs[0]


def tree_shares_the_middle(x, block_size):
    if len(x) <= block_size:
        return leaf(x)
    half = math.ceil(len(x) / 2)
    return other_merge(tree_shares_the_middle(x[:half], block_size), tree_shares_the_middle(x[-half:], block_size))


def merge_by_sorting(a, b):
    (m, l), (m_low, l_low) = (a, b) if a[0] >= b[0] else (b, a)
    return m, l + l_low * torch.exp(m_low - m) if l_low != 0 else l


def merge_by_where(a, b):
    m = torch.maximum(a[0], b[0])
    l = sum(torch.where(l_side != 0, l_side * torch.exp(m_side - m), 0.0) for m_side, l_side in (a, b))
    return [m, l]


def merge_by_where_above_0(a, b):
    m = torch.maximum(a[0], b[0])
    return m, sum(torch.where(l_side > 0, l_side * torch.exp(m_side - m), 0.0) for m_side, l_side in (a, b))


def merge_by_stacking(a, b):
    m, l = torch.stack([a[0], b[0]]), torch.stack([a[1], b[1]])
    return m.amax(), (l * torch.exp(m - m.amax()).masked_fill(m == -INF, 0.0)).sum()


def tree_repairs_the_row(x, block_size):
    x = x.nan_to_num(0.0, neginf=-INF)
    if len(x) <= block_size:
        return leaf(x)
    middle = len(x) // 2
    return other_merge(tree_repairs_the_row(x[:middle], block_size), tree_repairs_the_row(x[middle:], block_size))


def merge_repairs_the_sum(a, b):
    m, l = torch.stack([a[0], b[0]]), torch.stack([a[1], b[1]])
    return m.amax(), (l * torch.exp(m - m.amax())).nan_to_num(0.0).sum()


def merge_repairs_the_factors(a, b):
    m = torch.maximum(a[0], b[0])
    alpha, beta = (torch.nan_to_num(torch.exp(side[0] - m)) for side in (a, b))
    return m, a[1] * alpha + b[1] * beta


def merge_in_floats(a, b):
    (m_a, l_a), (m_b, l_b) = ((m.item(), l.item()) for m, l in (a, b))
    m = max(m_a, m_b)
    return m, sum(l * math.exp(n - m) for n, l in ((m_a, l_a), (m_b, l_b)) if l)


def tree_in_rounds(x, block_size):
    """Neighbours, then neighbours of neighbours; an odd one out waits."""
    pairs = [leaf(block) for block in torch.split(x, block_size)]
    while len(pairs) > 1:
        odd = pairs[-1:] if len(pairs) % 2 else []
        pairs = [other_merge(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=False)] + odd
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
        m[i], l[i] = other_merge((m[2 * i], l[2 * i]), (m[2 * i + 1], l[2 * i + 1]))
    return m[1], l[1]


def online_leaf(x):
    return functools.reduce(other_merge, ((entry, torch.ones_like(entry)) for entry in x))


def tree_of_thirds(x, block_size):
    if len(x) <= block_size:
        return leaf(x)
    third = math.ceil(len(x) / 3)
    parts = [tree_of_thirds(part, block_size) for part in x.split(third)]
    return functools.reduce(other_merge, parts)


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


def tree_in_floats(x, block_size):
    if len(x) <= block_size:
        m = x.max()
        return m.item(), torch.exp(x - (0 if m == -INF else m)).sum().item()
    (m_a, l_a), (m_b, l_b) = (tree_in_floats(half, block_size) for half in torch.tensor_split(x, 2))
    m = max(m_a, m_b)
    return m, sum(l * math.exp(n - m) for n, l in ((m_a, l_a), (m_b, l_b)) if l)
