"""Wrong answers to the exercises of notebook 05."""

import torch

from tests.variants import variant

INF = float("inf")


def step(m, s):
    m_new = torch.maximum(m, s)
    return m_new, torch.exp(m - m_new), torch.exp(s - m_new)


@variant("05.recurrence", "the old maximum is returned", r"m_new|new maximum|larger|returned m|m is|update m")
def old_maximum_returned(m, l, acc, s, v):
    m_new, alpha, p = step(m, s)
    if m_new == -INF:
        return m, l, acc
    return m, l * alpha + p, acc * alpha + p * v


@variant("05.recurrence", "acc is divided by l in every step", r"divi|normali[sz]|average")
def divided_every_step(m, l, acc, s, v):
    m_new, alpha, p = step(m, s)
    if m_new == -INF:
        return m, l, acc
    l_new = l * alpha + p
    return m_new, l_new, (acc * alpha + p * v) / l_new


@variant("05.recurrence", "the new value is added without its weight", r"weight|p \* v|exp\(s - m|e\^\(s")
def value_without_weight(m, l, acc, s, v):
    m_new, alpha, p = step(m, s)
    if m_new == -INF:
        return m, l, acc
    return m_new, l * alpha + p, acc * alpha + v


@variant("05.recurrence", "the new key counts 1 in l", r"weight|exp\(s - m|e\^\(s|counts")
def key_counts_one(m, l, acc, s, v):
    m_new, alpha, p = step(m, s)
    if m_new == -INF:
        return m, l, acc
    return m_new, l * alpha + 1, acc * alpha + p * v


@variant(
    "05.merge_outputs",
    "the weights do not add up to 1",
    r"add up to 1|sum to 1|normali[sz]|divi|share|lse of both|that of both",
)
def weights_not_normalised(o_a, lse_a, o_b, lse_b):
    m = torch.maximum(lse_a, lse_b)
    base = m.masked_fill(m == -INF, 0)
    o = torch.exp(lse_a - base)[..., None] * o_a + torch.exp(lse_b - base)[..., None] * o_b
    return o, torch.logaddexp(lse_a, lse_b)


def shares(lse_a, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    base = lse.masked_fill(lse == -INF, 0)
    return lse, torch.exp(lse_a - base)[..., None], torch.exp(lse_b - base)[..., None]


@variant("05.merge_outputs", "the larger lse is returned for that of both", r"\blse\b|logaddexp")
def larger_lse(o_a, lse_a, o_b, lse_b):
    _, a, b = shares(lse_a, lse_b)
    return a * o_a + b * o_b, torch.maximum(lse_a, lse_b)


@variant("05.merge_outputs", "the two weights are exchanged", r"exchang|swap|other half|other's|weigh o_a")
def weights_exchanged(o_a, lse_a, o_b, lse_b):
    lse, a, b = shares(lse_a, lse_b)
    return b * o_a + a * o_b, lse


@variant("05.merge_outputs", "lse is the sum of the two", r"lse.*(sum|add)|logaddexp|lse is wrong")
def lse_added(o_a, lse_a, o_b, lse_b):
    _, a, b = shares(lse_a, lse_b)
    return a * o_a + b * o_b, lse_a + lse_b


@variant("05.order", "the factor is upside down, and acc comes first", r"upside down|must shrink")
def factor_upside_down():
    return ["C", "H", "A", "B", "D", "G"]


@variant("05.order", "acc keeps its old scale", r"acc is not moved|not rescaled")
def acc_keeps_its_scale():
    return ["C", "H", "F", "E", "D", "G"]


@variant("05.order", "the old maximum is lost before alpha", r"m was replaced before|never rescaled")
def replaced_too_early():
    return ["C", "H", "G", "F", "B", "D"]
