"""Wrong answers to the exercises of notebook 03."""

import functools
import math

import torch

INF = float("inf")


def merge(a, b):
    """The right one, for trees that go wrong elsewhere."""
    m = torch.maximum(a[0], b[0])
    base = m if m > -INF else torch.zeros_like(m)
    return m, a[1] * torch.exp(a[0] - base) + b[1] * torch.exp(b[0] - base)


def merge_in_float32(a, b):
    return tuple(t.double() for t in merge(*((m.float(), l.float()) for m, l in (a, b))))


def merge_with_epsilon(a, b):
    m, l = merge(a, b)
    return m, l + 1e-8


def merge_from_a_finite_start(a, b):
    m = torch.maximum(a[0], b[0])
    base = m.clamp(min=-1e9)
    return m, a[1] * torch.exp(a[0] - base) + b[1] * torch.exp(b[0] - base)


def merge_never_both_empty(a, b):
    """The left side is looked at, the right is taken to hold something."""
    return b if a[0] == -INF else (torch.maximum(a[0], b[0]), merge(a, b)[1] if b[0] > -INF else b[1])


def merge_takes_negative_for_empty(a, b):
    left, right = a[0] > 0, b[0] > 0
    if left and right:
        return merge(a, b)
    if left or right:
        return a if left else b
    return merge(a, (b[0], torch.zeros_like(b[1]))) if a[0] > b[0] else merge((a[0], torch.zeros_like(a[1])), b)


def merge_drops_a_tie(a, b):
    if a[0] > b[0]:
        return a[0], a[1] + b[1] * torch.exp(b[0] - a[0])
    return b[0], b[1] + (a[1] * torch.exp(a[0] - b[0]) if a[0] < b[0] else 0)


def merge_scales_the_larger_side(a, b):
    m = torch.maximum(a[0], b[0])
    factor = torch.exp(-(a[0] - b[0]).abs())
    return m, a[1] * factor + b[1] if a[0] > b[0] else a[1] + b[1] * factor


def merge_returns_the_lse(a, b):
    m, l = merge(a, b)
    return m + l.log(), torch.ones_like(l)


def merge_takes_the_mean_maximum(a, b):
    m = (a[0] + b[0]) / 2
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


def merge_counts_one_for_b(a, b):
    return merge(a, (b[0], torch.ones_like(b[1])))


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


def merge_unguarded(a, b):
    m = torch.maximum(a[0], b[0])
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


def tree_by(join=merge, reduce=leaf, split=lambda x, block_size: len(x) // 2):
    """A tree whose merge, leaf or split may be a wrong one."""

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
    return functools.reduce(merge, (leaf(block) for block in reversed(x.split(block_size))))


def tree_entry_by_entry(x, block_size):
    return functools.reduce(merge, ((entry, torch.ones_like(entry)) for entry in x))


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
    return merge(
        tree_loses_the_middle(x[: len(x) // 2], block_size), tree_loses_the_middle(x[-(len(x) // 2) :], block_size)
    )


def tree_merges_pairs_only(x, block_size):
    """Rounds of neighbours, in which an odd one out is forgotten."""
    pairs = [leaf(block) for block in x.split(block_size)]
    while len(pairs) > 1:
        pairs = [merge(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=False)]
    return pairs[0]


def tree_shares_the_middle(x, block_size):
    if len(x) <= block_size:
        return leaf(x)
    half = math.ceil(len(x) / 2)
    return merge(tree_shares_the_middle(x[:half], block_size), tree_shares_the_middle(x[-half:], block_size))


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
    return merge(tree_repairs_the_row(x[:middle], block_size), tree_repairs_the_row(x[middle:], block_size))


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
        pairs = [merge(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=False)] + odd
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
        m[i], l[i] = merge((m[2 * i], l[2 * i]), (m[2 * i + 1], l[2 * i + 1]))
    return m[1], l[1]


def online_leaf(x):
    return functools.reduce(merge, ((entry, torch.ones_like(entry)) for entry in x))


def tree_of_thirds(x, block_size):
    if len(x) <= block_size:
        return leaf(x)
    third = math.ceil(len(x) / 3)
    parts = [tree_of_thirds(part, block_size) for part in x.split(third)]
    return functools.reduce(merge, parts)


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


WRONG = {
    "03.merge": (
        ("the work is done in float32", merge_in_float32, "dtype|float32"),
        ("1e-8 is added to l", merge_with_epsilon, "nothing is added"),
        ("-1e9 is taken for lower than any logit", merge_from_a_finite_start, "-inf"),
        ("a negative maximum is taken for no maximum", merge_takes_negative_for_empty, "either sign"),
        ("a tie counts one side only", merge_drops_a_tie),
        ("the side with the larger maximum is scaled down", merge_scales_the_larger_side),
        ("lse is returned for m", merge_returns_the_lse),
        ("the maximum is the mean of both", merge_takes_the_mean_maximum),
        ("the right side counts as one element", merge_counts_one_for_b),
        ("an empty side empties the pair", merge_says_nan_is_0),
        ("an empty right side is returned for both", merge_never_both_empty),
        ("NaN is repaired in the sum", merge_repairs_the_sum, "repair nothing after it, as nan_to_num"),
        ("sums above 0 alone count, and NaN is none", merge_by_where_above_0, "must show in m or l"),
    ),
    "03.tree": (
        ("NaN becomes 0 at the start", tree_repairs_the_row, "must show in m or l"),
        ("logsumexp of the whole row is taken", tree_by_logsumexp, "whole row"),
        ("the maximum of the whole row is taken first", tree_of_one_maximum, "whole row"),
        ("all blocks are merged at once", tree_two_levels, "at once"),
        ("blocks are merged one after the other, from the end", tree_from_the_end, "one after the other"),
        ("entries are merged one after the other", tree_entry_by_entry, "one after the other"),
        ("one block is cut off at a time", tree_by(split=lambda x, n: n), "one after the other"),
        ("block_size is not used", tree_to_single_entries, "block"),
        ("the maximum of a block is at least 0", tree_by(reduce=tree_starts_at_0), "-inf"),
        ("the maximum of a block is at least -1e9", tree_by(reduce=tree_starts_at_minus_1e9), "-inf"),
        ("blocks are reduced in float32", tree_by(reduce=tree_leaves_in_float32), "dtype|float32"),
        ("l is returned larger by 1e-8", lambda x, n: [t + 1e-8 * i for i, t in enumerate(tree_by()(x, n))]),
        ("the entry in the middle is lost", tree_loses_the_middle),
        ("the entry in the middle counts twice", tree_shares_the_middle),
        ("the odd block out is forgotten", tree_merges_pairs_only),
        ("a block of -inf is not guarded", tree_by(reduce=leaf_unguarded), "subtract 0"),
        ("a merge of two blocks of -inf is not guarded", tree_by(join=merge_unguarded), "subtract 0"),
        ("the merge takes negative maxima for none", tree_by(join=merge_takes_negative_for_empty)),
        ("the merge looks at one side", tree_by(join=merge_counts_one_for_b)),
    ),
    "03.order": (
        ("the old maximum is never replaced", lambda: "CGBE", "4 were given"),
        ("the sum is never corrected", lambda: "CGEA", "never corrected"),
        ("no term is added", lambda: "CGBA", "4 were given"),
        ("alpha is missing", lambda: "CBEA", "alpha is used before"),
        ("alpha is computed before m_new", lambda: "GCBEA", "m_new is used before"),
        ("both new terms are added", lambda: "CGBEFA", "line F"),
        ("both factors are taken", lambda: "CGDBEA", "line D"),
        ("a line more, which changes nothing", lambda: "CGBEAD", "line D"),
        ("no lines at all", lambda: "", "0 were given"),
        ("a line that is not there", lambda: "CGBEAX", "A to G"),
        ("a line twice", lambda: "CGBEAA", "once at most"),
        ("numbers for letters", lambda: [3, 7, 2, 5, 1], "letters of lines"),
    ),
}

RIGHT = {
    "03.merge": (
        ("the larger first", merge_by_sorting),
        ("NaN is repaired in the factors, where it cannot hide another", merge_repairs_the_factors),
        ("torch.where", merge_by_where),
        ("both in one tensor", merge_by_stacking),
        ("Python floats", merge_in_floats),
        ("in many words", merge_of_many_words),
    ),
    "03.tree": (
        ("rounds of neighbours", tree_in_rounds),
        ("rounds of whole tensors", tree_of_whole_rounds),
        ("a heap in two buffers", tree_in_two_buffers),
        ("blocks reduced entry by entry", tree_by(reduce=online_leaf)),
        ("thirds", tree_of_thirds),
        ("whole blocks to the left", tree_by(split=lambda x, n: n * (-(-len(x) // n) // 2))),
        ("a merge in many words", tree_by(join=merge_of_many_words)),
        ("a merge by stacking", tree_by(join=merge_by_stacking)),
        ("Python floats", tree_in_floats),
    ),
    "03.order": (
        ("the old maximum goes as soon as alpha is known", lambda: "CGABE"),
        ("and in the middle", lambda: "CGBAE"),
        ("a list of small letters", lambda: ["c", "g", "b", "e", "a"]),
        ("commas between", lambda: "C, G, B, E, A"),
    ),
}
