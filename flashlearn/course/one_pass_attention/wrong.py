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


def merge_outputs_divided_by_zero(o_a, lse_a, o_b, lse_b):
    m = torch.maximum(lse_a, lse_b)
    m = m.masked_fill(m == -INF, 0.0)
    a, b = torch.exp(lse_a - m)[..., None], torch.exp(lse_b - m)[..., None]
    return (a * o_a + b * o_b) / (a + b), m + torch.log(a + b).squeeze(-1)


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


def loop_all_keys_at_once(hbm, N, scale):
    q = hbm.load("Q")
    s = q @ hbm.load("K").mT * scale
    m = s.amax(-1, keepdim=True)
    p = torch.exp(s - m)
    l = p.sum(-1, keepdim=True)
    hbm.store("O", None, p @ hbm.load("V") / l)
    yield hbm.step("all keys", cols=(0, N), S=s, m_i=m, l_i=l)


def loop_in_one_step(hbm, N, scale):
    q = hbm.load("Q")
    m, l, acc = hbm.fill("Q", cols=(0, 1), value=-INF), hbm.fill("Q", cols=(0, 1)), hbm.fill("Q")
    for j in range(N):
        m, l, acc, _ = _one_key(hbm, q, (j, j + 1), scale, m, l, acc)
    hbm.store("O", None, acc / l)
    yield hbm.step("all keys", m_i=m, l_i=l, acc=acc)


def loop_in_two_passes(hbm, N, scale):
    q, kept = hbm.load("Q"), []
    m, l, acc = hbm.fill("Q", cols=(0, 1), value=-INF), hbm.fill("Q", cols=(0, 1)), hbm.fill("Q")
    for j in range(N):
        s = q @ hbm.load("K", (j, j + 1)).mT * scale
        m_new = torch.maximum(m, s)
        l = l * torch.exp(m - m_new) + torch.exp(s - m_new)
        m = m_new
        kept.append(s)
        hbm.keep(s)
        yield hbm.step("keys", cols=(j, j + 1), S=s, m_i=m, l_i=l, acc=acc)
    for j, s in enumerate(kept):
        acc = acc + torch.exp(s - m) / l @ hbm.load("V", (j, j + 1))
        yield hbm.step("values", cols=(j, j + 1), m_i=m, l_i=l, acc=acc)
    hbm.store("O", None, acc)
    yield hbm.step("write")


def loop_in_blocks(hbm, N, scale):
    q = hbm.load("Q")
    m, l, acc = hbm.fill("Q", cols=(0, 1), value=-INF), hbm.fill("Q", cols=(0, 1)), hbm.fill("Q")
    for start in range(0, N, 4):
        cols = (start, min(start + 4, N))
        m, l, acc, s = _one_key(hbm, q, cols, scale, m, l, acc)
        yield hbm.step("a block", cols=cols, S=s, m_i=m, l_i=l, acc=acc)
    hbm.store("O", None, acc / l)
    yield hbm.step("divide")


def loop_normalised(hbm, N, scale):
    """o' in place of acc."""
    q = hbm.load("Q")
    m, l, o = hbm.fill("Q", cols=(0, 1), value=-INF), hbm.fill("Q", cols=(0, 1)), hbm.fill("Q")
    for j in range(N):
        s = q @ hbm.load("K", (j, j + 1)).mT * scale
        m_new = torch.maximum(m, s)
        scaled, p = l * torch.exp(m - m_new), torch.exp(s - m_new)
        l, m = scaled + p, m_new
        o = o * (scaled / l) + p / l @ hbm.load("V", (j, j + 1))
        yield hbm.step("one key", cols=(j, j + 1), m_i=m, l_i=l, acc=o)
    hbm.store("O", None, o)
    yield hbm.step("write")


def loop_from_the_first_score(hbm, N, scale):
    """m and l start with the first key."""
    q = hbm.load("Q")
    for j in range(N):
        s = q @ hbm.load("K", (j, j + 1)).mT * scale
        if j == 0:
            m, l = s, torch.exp(s - s)
            acc = l @ hbm.load("V", (0, 1))
        else:
            m_new = torch.maximum(m, s)
            alpha, p = torch.exp(m - m_new), torch.exp(s - m_new)
            l, m = l * alpha + p, m_new
            acc = acc * alpha + p @ hbm.load("V", (j, j + 1))
        yield hbm.step("one key", cols=(j, j + 1), m_i=m, l_i=l, acc=acc)
    hbm.store("O", None, acc / l)
    yield hbm.step("divide")


def _one_key(hbm, q, cols, scale, m, l, acc):
    """(m, l, acc) after these keys, and their scores."""
    s = q @ hbm.load("K", cols).mT * scale
    m_new = torch.maximum(m, s.amax(-1, keepdim=True))
    alpha, p = torch.exp(m - m_new), torch.exp(s - m_new)
    return m_new, l * alpha + p.sum(-1, keepdim=True), acc * alpha + p @ hbm.load("V", cols), s
