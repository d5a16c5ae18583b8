"""What wrong answers to the exercises of notebook 16 get wrong."""

from __future__ import annotations

import math

import torch

from flashlearn.course.two_pass_attention.causes import all_is_used, softmax_over_keys, weights_of_equal_scores
from flashlearn.course.two_pass_attention.causes import the_scale as the_scale_of_one


def _cached(attend_cached, length: int, n: int, k_new: torch.Tensor, q: torch.Tensor):
    """With one-hot values the output of a token is its weights; K is 0 except in the new rows."""
    stop, D = length + n, 8
    v = torch.eye(D, dtype=torch.float64)[length:stop]
    K, V = torch.zeros(stop, D, dtype=torch.float64), torch.zeros(stop, D, dtype=torch.float64)
    V[:length] = torch.eye(D, dtype=torch.float64)[:length]
    o = attend_cached(q, k_new, v, K, V, length)
    return o[:, :stop], K, V, v


def what_is_kept(attend_cached):
    """The new rows are in the caches afterwards, keys in K and values in V."""
    k = torch.full((2, 8), 0.5, dtype=torch.float64)
    _, K, V, v = _cached(attend_cached, 3, 2, k, torch.zeros(2, 8, dtype=torch.float64))
    for name, cache, new, other in (("K", K, k, v), ("V", V, v, k)):
        if torch.equal(cache[3:], other):
            return f"{name} has the new {'values' if name == 'K' else 'keys'} in its rows from length on: keys belong in K, values in V"
        if not torch.equal(cache[3:], new):
            return f"expected the new rows in {name} from length on, got others: write them into {name}[..., length : length + n, :]"
    return ""


def what_is_seen(attend_cached):
    """Three cached tokens and two new ones, all scores 0: new token i has 3 + i + 1 equal weights."""
    zero = torch.zeros(2, 8, dtype=torch.float64)
    weights = _cached(attend_cached, 3, 2, zero, zero)[0]
    for i, row in enumerate(weights):
        want = torch.where(torch.arange(5) <= 3 + i, 1 / (4 + i), 0.0).double()
        if torch.allclose(row, want, atol=1e-6):
            continue
        told = f"three cached tokens, equal scores: the weights of new token {i} are {', '.join(f'{w:.3g}' for w in row.tolist())}"
        if not row[:3].any():
            return f"{told}: it attends to none of the cached tokens"
        if not row[3 + i]:
            return f"{told}: it does not attend to itself; new token i is token length + i and attends to keys j <= length + i"
        if row[3 + i + 1 :].any():
            return f"{told}: it attends to a token after itself; only keys j <= length + i count"
        return f"{told}: it must attend to every key j <= length + i with the same weight"
    return ""


def the_scale(attend_cached):
    """For two keys with q.k = 1 and 0, the logarithm of the quotient of their weights is the scale."""
    k = torch.full((1, 8), 1 / 8, dtype=torch.float64)
    weights = _cached(attend_cached, 3, 1, k, torch.ones(1, 8, dtype=torch.float64))[0][0]
    factor = math.log(weights[3] / weights[0])
    if abs(factor - 8**-0.5) > 1e-6:
        return f"D = 8: expected a score of q.k / sqrt(D), {8**-0.5:.4g} times q.k, got {factor:.4g} times q.k"
    return ""


def of_one_head(question):
    """A question about attention, asked with one head of each."""

    def asked(grouped_attention):
        return question(lambda q, k, v: grouped_attention(q[None, None], k[None, None], v[None, None])[0, 0])

    return asked


def the_head_of_each(grouped_attention):
    """Head h of v holds the number h everywhere: the output of a query head says which it used."""
    for H_q, H_kv in ((6, 2), (3, 3), (4, 1)):
        q, k = torch.zeros(1, H_q, 2, 4, dtype=torch.float64), torch.zeros(1, H_kv, 3, 4, dtype=torch.float64)
        v = torch.arange(H_kv, dtype=torch.float64)[None, :, None, None].expand(1, H_kv, 3, 4).clone()
        try:
            got = grouped_attention(q, k, v)
        except RuntimeError:
            return f"{H_q} query heads, {H_kv} heads of k and v: the tensors have different numbers of heads. Give each query head a copy of its head of k and v, along dim=1"
        if got.shape[1] != H_q:
            return f"expected outputs of all {H_q} query heads, got {got.shape[1]}"
        used, want = got[0, :, 0, 0], torch.arange(H_q) // (H_q // H_kv)
        if not torch.allclose(used, want.double(), atol=1e-6):
            return (
                f"{H_q} query heads, {H_kv} heads of v: expected them to use heads {', '.join(map(str, want.tolist()))} of v, got "
                f"{', '.join(f'{h:.3g}' for h in used.tolist())}. Neighbours share head h // group, in order"
            )
    return ""


def the_head_of_keys(grouped_attention):
    """The same for k: its head h makes key h of four the only one that counts."""
    H_q, H_kv = 6, 2
    q = torch.full((1, H_q, 1, 4), 4.0, dtype=torch.float64)
    k = 4 * torch.eye(2, dtype=torch.float64)[None, :, :, None].expand(1, 2, 2, 4)
    v = torch.arange(2, dtype=torch.float64)[None, None, :, None].expand(1, H_kv, 2, 4).clone()
    used, want = grouped_attention(q, k.clone(), v)[0, :, 0, 0], torch.arange(H_q) // 3
    if not torch.allclose(used, want.double(), atol=1e-2):
        return f"6 query heads, 2 heads of k: expected them to use heads 0, 0, 0, 1, 1, 1 of k, got {', '.join(f'{h:.3g}' for h in used.tolist())}. Head h uses head h // group"
    return ""


ONE_HEAD = (weights_of_equal_scores, softmax_over_keys, all_is_used, the_scale_of_one)
CAUSES = {
    "cache": (what_is_kept, what_is_seen, the_scale),
    "gqa": (*map(of_one_head, ONE_HEAD), the_head_of_each, the_head_of_keys),
}
