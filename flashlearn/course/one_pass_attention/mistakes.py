"""Known wrong answers to the exercises of notebook 05."""

import torch

from flashlearn.course.one_pass_attention.solutions import INF, one_query, recurrence_solution
from flashlearn.exercises.assessment import Mistake
from flashlearn.exercises.ordering import Decoy, Puzzle


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


def update_hidden_is_zero(m, l, acc, s, v):
    return _update(m, l, acc, s if s > -INF else torch.zeros_like(s), v)


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


ORDER = Puzzle(
    "05.order",
    one_query,
    (
        Decoy(
            "alpha = torch.exp(m_new - m)",
            2,
            "the factor is upside down: it is more than 1 where the old sums must shrink",
            "the maximum rises",
        ),
        Decoy(
            "acc = acc + torch.exp(s - m_new) * v_i",
            4,
            "acc is not moved to the new maximum, as l is",
            "the maximum rises",
        ),
        Decoy(
            "acc = acc * alpha + torch.exp(s - m_new) / l * v_i",
            4,
            "every term is divided by the l of its time, and the sum by l again at the end",
            "the maximum stays",
        ),
    ),
)
MISTAKES = {
    "05.recurrence": (
        Mistake("l is rescaled, but acc is not", update_forgets_acc, "a new maximum"),
        Mistake("acc is rescaled, but l is not", update_forgets_l, "a new maximum"),
        Mistake("the factor is upside down, e^(m_new - m) for e^(m - m_new)", update_upside_down, "a new maximum"),
        Mistake(
            "the new weight is measured from the old maximum", update_measures_from_the_old_maximum, "a new maximum"
        ),
        Mistake("the new value is rescaled together with the old ones", update_scales_the_new_value, "a new maximum"),
        Mistake("exp is taken of the scores themselves, which overflows", update_shifts_after_exp, "1000 after -1000"),
        Mistake("the newest score is taken for the maximum", update_follows_every_score, "no new maximum"),
        Mistake("a hidden key counts as one with the score 0", update_hidden_is_zero, "a hidden key"),
        Mistake("-inf is subtracted from -inf", update_unguarded, "a hidden key comes first"),
        Mistake("the maximum starts at -100 instead of -inf", update_starts_at_minus_100, "a hidden key comes first"),
    ),
    "05.merge_outputs": (
        Mistake("the halves are averaged with equal weights", merge_average, "3 keys and 13"),
        Mistake("lse itself is taken as the weight, not e^lse", merge_weighs_by_lse, "two equal halves"),
        Mistake("exp is taken of lse without a shift, which overflows", merge_unshifted, "large scores"),
        Mistake("the two outputs are added without weights", merge_adds, "two equal halves"),
        Mistake("the weights lack a last dimension, lse[..., None]", merge_one_query_only, "several queries"),
        Mistake("-inf is subtracted from -inf where neither half has a key", merge_unguarded, "two empty halves"),
        Mistake("the sum of the weights is returned for lse", merge_subtracts_its_own_maximum, "two equal halves"),
    ),
    "05.order": ORDER.mistakes(
        (
            "the old sums are never rescaled: m was replaced before alpha compared the two",
            (0, 1, 5, 2, 3, 4),
            "the maximum rises",
        ),
    ),
}
