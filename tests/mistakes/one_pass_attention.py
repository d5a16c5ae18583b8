"""Planted mistakes for the exercises of notebook 05: what is wrong, the function, the case to catch it."""

import torch

from flashlearn.exercises.one_pass_attention import INF, recurrence_solution


def _update(m, l, acc, s, v, l_factor=None, acc_factor=None):
    m_new = torch.maximum(m, s)
    if m_new == -INF:
        return m, l, acc
    alpha, p = torch.exp(m - m_new), torch.exp(s - m_new)
    l_factor = alpha if l_factor is None else l_factor
    acc_factor = alpha if acc_factor is None else acc_factor
    return m_new, l * l_factor + p, acc * acc_factor + p * v


def update_forgets_acc(m, l, acc, s, v):
    return _update(m, l, acc, s, v, acc_factor=1)


def update_forgets_l(m, l, acc, s, v):
    return _update(m, l, acc, s, v, l_factor=1)


def update_upside_down(m, l, acc, s, v):
    alpha = torch.exp(torch.maximum(m, s) - m) if m > -INF else 0
    return _update(m, l, acc, s, v, l_factor=alpha, acc_factor=alpha)


def update_measures_from_the_old_maximum(m, l, acc, s, v):
    m_new = torch.maximum(m, s)
    if m == -INF:
        return recurrence_solution(m, l, acc, s, v)
    alpha, p = torch.exp(m - m_new), torch.exp(s - m)
    return m_new, l * alpha + p, acc * alpha + p * v


def update_shifts_after_exp(m, l, acc, s, v):
    m_new = torch.maximum(m, s)
    if m_new == -INF:
        return m, l, acc
    alpha, p = torch.exp(m) / torch.exp(m_new), torch.exp(s) / torch.exp(m_new)
    return m_new, l * alpha + p, acc * alpha + p * v


def update_follows_every_score(m, l, acc, s, v):
    """The newest score instead of the largest."""
    alpha = torch.exp(m - s)
    return s, l * alpha + 1, acc * alpha + v


def update_unguarded(m, l, acc, s, v):
    m_new = torch.maximum(m, s)
    alpha, p = torch.exp(m - m_new), torch.exp(s - m_new)
    return m_new, l * alpha + p, acc * alpha + p * v


def update_starts_at_minus_100(m, l, acc, s, v):
    return _update(m.clamp(min=-100.0), l, acc, s, v)


def update_scales_the_new_value(m, l, acc, s, v):
    m_new = torch.maximum(m, s)
    if m_new == -INF:
        return m, l, acc
    alpha, p = torch.exp(m - m_new), torch.exp(s - m_new)
    return m_new, l * alpha + p, (acc + p * v) * alpha


def merge_average(o_a, lse_a, o_b, lse_b):
    return (o_a + o_b) / 2, torch.logaddexp(lse_a, lse_b)


def merge_weighs_by_lse(o_a, lse_a, o_b, lse_b):
    both = lse_a + lse_b
    return (lse_a[..., None] * o_a + lse_b[..., None] * o_b) / both[..., None], torch.logaddexp(lse_a, lse_b)


def merge_unshifted(o_a, lse_a, o_b, lse_b):
    weight_a, weight_b = torch.exp(lse_a)[..., None], torch.exp(lse_b)[..., None]
    lse = torch.log(torch.exp(lse_a) + torch.exp(lse_b))
    if (lse == -INF).all():
        return torch.zeros_like(o_a), lse
    return (weight_a * o_a + weight_b * o_b) / (weight_a + weight_b), lse


def merge_adds(o_a, lse_a, o_b, lse_b):
    return o_a + o_b, torch.logaddexp(lse_a, lse_b)


def merge_one_query_only(o_a, lse_a, o_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    return torch.exp(lse_a - lse) * o_a + torch.exp(lse_b - lse) * o_b, lse


def merge_unguarded(o_a, lse_a, o_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    return torch.exp(lse_a - lse)[..., None] * o_a + torch.exp(lse_b - lse)[..., None] * o_b, lse


def merge_subtracts_its_own_maximum(o_a, lse_a, o_b, lse_b):
    m = torch.maximum(lse_a, lse_b)
    weight_a, weight_b = torch.exp(lse_a - m), torch.exp(lse_b - m)  # NaN for 0 keys, and the sum is not lse
    o = (weight_a[..., None] * o_a + weight_b[..., None] * o_b) / (weight_a + weight_b)[..., None]
    return o, weight_a + weight_b


MISTAKES = {
    "05.recurrence": [
        ("only l rescaled", update_forgets_acc, "a new maximum"),
        ("only acc rescaled", update_forgets_l, "a new maximum"),
        ("factor upside down", update_upside_down, "a new maximum"),
        (
            "the new weight measured from the old maximum",
            update_measures_from_the_old_maximum,
            "a new maximum",
        ),
        ("the new value rescaled too", update_scales_the_new_value, "a new maximum"),
        ("exp of the scores themselves", update_shifts_after_exp, "1000 after -1000"),
        ("the newest score taken for the maximum", update_follows_every_score, "no new maximum"),
        ("a hidden key undoes everything", update_follows_every_score, "a hidden key"),
        ("-inf minus -inf", update_unguarded, "a hidden key comes first"),
        ("maximum started at -100", update_starts_at_minus_100, "a hidden key comes first"),
    ],
    "05.merge_outputs": [
        ("average of the halves", merge_average, "3 keys and 13"),
        ("lse itself as weight", merge_weighs_by_lse, "two equal halves"),
        ("exp(lse) unshifted", merge_unshifted, "large scores"),
        ("halves added", merge_adds, "two equal halves"),
        ("weights without their dimension", merge_one_query_only, "several queries"),
        ("-inf minus -inf", merge_unguarded, "two empty halves"),
        ("the sum of weights for lse", merge_subtracts_its_own_maximum, "two equal halves"),
    ],
}
