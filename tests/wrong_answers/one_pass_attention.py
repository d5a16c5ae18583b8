"""Wrong answers to the exercises of notebook 05."""

import functools

import torch

INF = float("inf")


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


WRONG = {
    "05.recurrence": (
        ("acc is overwritten", update_in_place, "expected the input (m|l|acc) as it was"),
        ("NaN is repaired in the factors", update_repairs_nan, "repair nothing after it, as nan_to_num"),
        ("a score equal to the maximum is left out", update_forgets_a_tie, "equal"),
        ("-1e9 is taken for lower than any score", update_by(base=lambda m: m.clamp(min=-1e9)), "-inf"),
        ("a negative maximum is taken for none", update_takes_negative_for_nothing, "either sign"),
        ("the work is done in float32", update_in_float32, "dtype|float32"),
        ("1e-9 is added to l", update_with_epsilon, "nothing is added"),
        ("1e-6 is added to l", functools.partial(update_with_epsilon, epsilon=1e-6), "nothing is added"),
        ("scores below the maximum are left out", update_only_looks_up),
        ("values are added without their weight", update_adds_plain_values),
        ("acc is divided by l at every step", update_keeps_acc_normalised),
        ("a new maximum starts over", update_starts_over),
        ("a hidden first key counts as one", update_counts_a_hidden_first_key),
        ("the mean of old maximum and score is the new one", update_takes_the_mean),
    ),
    "05.order": (
        ("the old maximum is never replaced", lambda: "CHFDB", "5 were given"),
        ("nothing joins l", lambda: "CHFBG", "5 were given"),
        ("the score is missing", lambda: "HFDBG", "s is used before"),
        ("alpha is computed before m_new", lambda: "CFHDBG", "m_new is used before"),
        ("acc takes the new value twice", lambda: "CHFDBEG", "line E"),
        ("both factors are taken", lambda: "CHFADBG", "line A"),
        ("acc is divided before l is", lambda: "CHFIDG", "line I"),
        ("no lines at all", lambda: "", "0 were given"),
        ("a line that is not there", lambda: "CHFDBGX", "A to I"),
        ("a line twice", lambda: "CHFDBGG", "once at most"),
        ("numbers for letters", lambda: [3, 8, 6, 4, 2, 7], "letters of lines"),
    ),
    "05.merge_outputs": (
        ("NaN is repaired in o and lse", merge_repairs_all, "repair nothing after it, as nan_to_num"),
        ("the shift is lse_a", merge_by(lambda a, b: torch.where(a > -INF, a, b)), "larger of the two"),
        ("the shift is lse_b", merge_by(lambda a, b: torch.where(b > -INF, b, a)), "larger of the two"),
        (
            "the shift is the mean of both",
            merge_by(lambda a, b: torch.where((a - b).isfinite(), (a + b) / 2, torch.maximum(a, b))),
            "larger of the two",
        ),
        ("the weights go by the quotient e^(lse_a - lse_b)", merge_by_sigmoid_of_the_quotient, "larger of the two"),
        ("one row with a key lets the others be NaN", merge_guards_all_or_nothing, "every row"),
        ("one row without a key empties the left half", merge_empty_left_is_the_right, "every row"),
        ("a small number is added to the sum of the weights", merge_by(torch.maximum, 1e-6), "nothing is added"),
        ("a negative lse is taken for no keys", merge_takes_negative_for_empty, "either sign"),
        ("the work is done in float32", merge_in_float32, "dtype|float32"),
        ("each half gets the weight of the other", merge_swaps_the_weights),
        ("the two lse are added", merge_adds_the_lse),
        ("the larger lse is returned", merge_takes_the_larger_lse),
        ("a half that weighs much less is left out", merge_takes_the_better_half),
        ("the weights do not add up to 1", merge_does_not_divide),
    ),
}

RIGHT = {
    "05.recurrence": (("two factors in one tensor", update_by_softmax_of_two),),
    "05.order": (
        ("acc before l", lambda: "CHFBDG"),
        ("the old maximum goes as soon as alpha is known", lambda: "CHFGDB"),
        ("a list of small letters", lambda: ["c", "h", "f", "d", "b", "g"]),
        ("commas between", lambda: "C, H, F, D, B, G"),
    ),
    "05.merge_outputs": (
        ("logsumexp of both", merge_by_logarithms),
        ("the sigmoid of the difference", merge_by_sigmoid),
        ("torch.where", merge_by_where),
        ("weights that are divided by their sum", right_merge),
    ),
}
