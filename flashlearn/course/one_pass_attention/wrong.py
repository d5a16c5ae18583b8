"""Answers to the exercises of one_pass_attention that are no edit of the solution: `wrong.toml` names them."""

import torch

from flashlearn.course.one_pass_attention.solutions import INF, recurrence_solution


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


def step(m, s):
    m_new = torch.maximum(m, s)
    return m_new, torch.exp(m - m_new), torch.exp(s - m_new)


def old_maximum_returned(m, l, acc, s, v):
    m_new, alpha, p = step(m, s)
    if m_new == -INF:
        return m, l, acc
    return m, l * alpha + p, acc * alpha + p * v


def divided_every_step(m, l, acc, s, v):
    m_new, alpha, p = step(m, s)
    if m_new == -INF:
        return m, l, acc
    l_new = l * alpha + p
    return m_new, l_new, (acc * alpha + p * v) / l_new


def value_without_weight(m, l, acc, s, v):
    m_new, alpha, p = step(m, s)
    if m_new == -INF:
        return m, l, acc
    return m_new, l * alpha + p, acc * alpha + v


def key_counts_one(m, l, acc, s, v):
    m_new, alpha, p = step(m, s)
    if m_new == -INF:
        return m, l, acc
    return m_new, l * alpha + 1, acc * alpha + p * v


def weights_not_normalised(o_a, lse_a, o_b, lse_b):
    m = torch.maximum(lse_a, lse_b)
    base = m.masked_fill(m == -INF, 0)
    o = torch.exp(lse_a - base)[..., None] * o_a + torch.exp(lse_b - base)[..., None] * o_b
    return o, torch.logaddexp(lse_a, lse_b)


def shares(lse_a, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    base = lse.masked_fill(lse == -INF, 0)
    return lse, torch.exp(lse_a - base)[..., None], torch.exp(lse_b - base)[..., None]


def larger_lse(o_a, lse_a, o_b, lse_b):
    _, a, b = shares(lse_a, lse_b)
    return a * o_a + b * o_b, torch.maximum(lse_a, lse_b)


def weights_exchanged(o_a, lse_a, o_b, lse_b):
    lse, a, b = shares(lse_a, lse_b)
    return b * o_a + a * o_b, lse


def lse_added(o_a, lse_a, o_b, lse_b):
    _, a, b = shares(lse_a, lse_b)
    return a * o_a + b * o_b, lse_a + lse_b


def update_by(base=lambda m: m if m > -INF else torch.zeros_like(m), new=torch.maximum):
    """The recurrence, measured from `base(m_new)`, which may be a wrong one."""

    def update(m, l, acc, s, v):
        m_new = new(m, s)
        alpha, p = torch.exp(m - base(m_new)), torch.exp(s - base(m_new))
        return m_new, l * alpha + p, acc * alpha + p * v

    return update


right = update_by()


def update_forgets_a_tie(m, l, acc, s, v):
    if s > m:
        return right(m, l, acc, s, v)
    return right(m, l, acc, s, v) if s < m else (m, l, acc)


def update_only_looks_up(m, l, acc, s, v):
    """A new maximum is taken in, a smaller score is not."""
    return right(m, l, acc, s, v) if s > m else (m, l, acc)


def update_takes_negative_for_nothing(m, l, acc, s, v):
    """Where the old maximum is below 0, l and acc are taken for zeros that need no factor."""
    return right(m, l if m > 0 else 0 * l, acc if m > 0 else 0 * acc, s, v) if s > m else right(m, l, acc, s, v)


def update_in_float32(m, l, acc, s, v):
    return tuple(t.double() for t in right(m.float(), l.float(), acc.float(), s.float(), v.float()))


def update_with_epsilon(m, l, acc, s, v, epsilon=1e-9):
    m, l, acc = right(m, l, acc, s, v)
    return m, l + epsilon, acc


def update_adds_plain_values(m, l, acc, s, v):
    m_new, l_new, acc_new = right(m, l, acc, s, v)
    p = torch.exp(s - m_new) if m_new > -INF else 0.0
    return m_new, l_new, acc_new - p * v + v


def update_keeps_acc_normalised(m, l, acc, s, v):
    m_new, l_new, acc_new = right(m, l, acc, s, v)
    return m_new, l_new, acc_new / l_new


def update_starts_over(m, l, acc, s, v):
    """A new maximum forgets what came before."""
    return (s, torch.ones_like(l), v) if s > m else right(m, l, acc, s, v)


def update_counts_a_hidden_first_key(m, l, acc, s, v):
    return (s, torch.ones_like(l), v) if m == -INF else right(m, l, acc, s, v)


def update_takes_the_mean(m, l, acc, s, v):
    return update_by(new=lambda m, s: s if m == -INF else (m if s == -INF else (m + s) / 2))(m, l, acc, s, v)


def merge_by(shift, epsilon=0.0):
    """Both halves weighed by exp(lse - shift), then divided by the sum of the weights."""

    def merge(o_a, lse_a, o_b, lse_b):
        m = shift(lse_a, lse_b)
        m = m.masked_fill(m == -INF, 0.0)
        weight_a, weight_b = torch.exp(lse_a - m), torch.exp(lse_b - m)
        total = weight_a + weight_b + epsilon
        o = (weight_a[..., None] * o_a + weight_b[..., None] * o_b) / total[..., None]
        return o.nan_to_num(0.0), m + torch.log(total)

    return merge


right_merge = merge_by(torch.maximum)


def merge_by_sigmoid_of_the_quotient(o_a, lse_a, o_b, lse_b):
    ratio = torch.exp(lse_a - lse_b)
    if (lse_b == -INF).all():
        return right_merge(o_a, lse_a, o_b, lse_b)
    share = (ratio / (1 + ratio))[..., None]
    return share * o_a + (1 - share) * o_b, lse_b + torch.log1p(ratio)


def merge_guards_all_or_nothing(o_a, lse_a, o_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    if (lse == -INF).all():
        return torch.zeros_like(o_a), lse
    return torch.exp(lse_a - lse)[..., None] * o_a + torch.exp(lse_b - lse)[..., None] * o_b, lse


def merge_empty_left_is_the_right(o_a, lse_a, o_b, lse_b):
    """Where one query of the left half sees nothing, all are taken from the right."""
    return (o_b, lse_b) if (lse_a == -INF).any() else right_merge(o_a, lse_a, o_b, lse_b)


def merge_takes_negative_for_empty(o_a, lse_a, o_b, lse_b):
    lse_a, lse_b = (torch.where(one >= 0, one, -INF) for one in (lse_a, lse_b))
    return right_merge(o_a, lse_a, o_b, lse_b)


def merge_in_float32(o_a, lse_a, o_b, lse_b):
    return tuple(t.double() for t in right_merge(o_a.float(), lse_a.float(), o_b.float(), lse_b.float()))


def merge_swaps_the_weights(o_a, lse_a, o_b, lse_b):
    return right_merge(o_b, lse_a, o_a, lse_b)


def merge_adds_the_lse(o_a, lse_a, o_b, lse_b):
    return right_merge(o_a, lse_a, o_b, lse_b)[0], lse_a + lse_b


def merge_takes_the_larger_lse(o_a, lse_a, o_b, lse_b):
    return right_merge(o_a, lse_a, o_b, lse_b)[0], torch.maximum(lse_a, lse_b)


def merge_takes_the_better_half(o_a, lse_a, o_b, lse_b):
    o, lse = right_merge(o_a, lse_a, o_b, lse_b)
    far = ((lse_a - lse_b).abs() > 2)[..., None]
    return torch.where(far, torch.where((lse_a > lse_b)[..., None], o_a, o_b), o), lse


def merge_does_not_divide(o_a, lse_a, o_b, lse_b):
    m = torch.maximum(lse_a, lse_b)
    m = m.masked_fill(m == -INF, 0.0)
    o = torch.exp(lse_a - m)[..., None] * o_a + torch.exp(lse_b - m)[..., None] * o_b
    return o, torch.logaddexp(lse_a, lse_b)


def update_in_place(m, l, acc, s, v):
    if s > m:
        alpha = torch.exp(m - s)
        l.mul_(alpha).add_(1)
        return s, l, acc.mul_(alpha).add_(v)
    if s == -INF:
        return m, l, acc
    p = torch.exp(s - m)
    return m, l.add_(p), acc.add_(p * v)


def update_repairs_nan(m, l, acc, s, v):
    m_new = torch.maximum(m, s)
    alpha, p = torch.exp(m - m_new).nan_to_num(), torch.exp(s - m_new).nan_to_num()
    return m_new, l * alpha + p, acc * alpha + p * v


def merge_repairs_all(o_a, lse_a, o_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    o = torch.exp(lse_a - lse)[..., None] * o_a + torch.exp(lse_b - lse)[..., None] * o_b
    return o.nan_to_num(), lse.nan_to_num(0.0, neginf=-INF)


def update_by_softmax_of_two(m, l, acc, s, v):
    """Weights of old and new by logarithms."""
    m_new = torch.maximum(m, s)
    if m_new == -INF:
        return [m, l, acc]
    factors = torch.exp(torch.stack([m, s]) - m_new)
    return [m_new, factors @ torch.stack([l, torch.ones_like(l)]), factors @ torch.stack([acc, v])]


def merge_by_logarithms(o_a, lse_a, o_b, lse_b):
    lse = torch.logsumexp(torch.stack([lse_a, lse_b]), 0)
    share_a, share_b = (torch.exp(one - lse).nan_to_num(0.0).unsqueeze(-1) for one in (lse_a, lse_b))
    return o_a * share_a + o_b * share_b, lse


def merge_by_sigmoid(o_a, lse_a, o_b, lse_b):
    share = torch.sigmoid(lse_a - lse_b).nan_to_num(0.0)[..., None]
    return share * o_a + (1 - share) * o_b, torch.logaddexp(lse_a, lse_b)


def merge_by_where(o_a, lse_a, o_b, lse_b):
    m = torch.maximum(lse_a, lse_b)
    a, b = (torch.where(one == -INF, 0.0, torch.exp(one - m)) for one in (lse_a, lse_b))
    l = a + b
    o = torch.where(l[..., None] > 0, (a[..., None] * o_a + b[..., None] * o_b) / l[..., None], 0.0)
    return [o, m + torch.log(torch.where(l > 0, l, 1.0))]
