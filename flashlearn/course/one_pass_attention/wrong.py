"""Answers to the exercises of one_pass_attention that are no edit of the solution: `wrong.toml` names them."""

import torch

from flashlearn.course.one_pass_attention.solutions import INF, merge_solution


def in_float32(function):
    """The function with its inputs rounded to float32."""
    return lambda *args: tuple(t.double() for t in function(*(t.float() for t in args)))


def recurrence_two_factors(m, l, acc, s, v):
    m_new = torch.maximum(m, s)
    if m_new == -INF:
        return [m, l, acc]
    factors = torch.exp(torch.stack([m, s]) - m_new)
    return [m_new, factors @ torch.stack([l, torch.ones_like(l)]), factors @ torch.stack([acc, v])]


def merge_outputs_unshifted(o_a, lse_a, o_b, lse_b):
    weight_a, weight_b = torch.exp(lse_a)[..., None], torch.exp(lse_b)[..., None]
    lse = torch.log(torch.exp(lse_a) + torch.exp(lse_b))
    if (lse == -INF).all():
        return torch.zeros_like(o_a), lse
    return (weight_a * o_a + weight_b * o_b) / (weight_a + weight_b), lse


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


def merge_outputs_by_the_quotient(o_a, lse_a, o_b, lse_b):
    ratio = torch.exp(lse_a - lse_b)
    if (lse_b == -INF).all():
        return merge_solution(o_a, lse_a, o_b, lse_b)
    share = (ratio / (1 + ratio))[..., None]
    return share * o_a + (1 - share) * o_b, lse_b + torch.log1p(ratio)


def merge_outputs_by_where(o_a, lse_a, o_b, lse_b):
    m = torch.maximum(lse_a, lse_b)
    a, b = (torch.where(one == -INF, 0.0, torch.exp(one - m)) for one in (lse_a, lse_b))
    l = a + b
    o = torch.where(l[..., None] > 0, (a[..., None] * o_a + b[..., None] * o_b) / l[..., None], 0.0)
    return [o, m + torch.log(torch.where(l > 0, l, 1.0))]
