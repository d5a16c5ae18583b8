"""Exercises of notebook 05: the loop and the recurrence of one-pass attention, and the merge of two partial outputs."""

from __future__ import annotations

import math

import torch

from flashlearn.course.one_pass_attention.solutions import (
    merge_solution,
    one_query,
    order_solution,
    recurrence_solution,
)
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.ordering import Ordering, puzzle

ORDER = puzzle("one_pass_attention", "order", one_query)

INF = float("inf")
LOW = -(2.0**100)  # some -1e30, and the same number in float32


def _random(*shape, scale=1.0, shift=0.0):
    generator = torch.Generator().manual_seed(sum(shape))
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64) + shift


def _state(s, v):
    """(m, l, acc) after these scores (N,) and values (N, D)."""
    m = s.max() if len(s) else torch.tensor(-INF, dtype=s.dtype)
    p = torch.exp(s - m).nan_to_num(0.0)
    return m, p.sum(), p @ v


def _after(*scores, then, D=3, rounded=False):
    """One step: the state after `scores`, then one key more."""
    s = torch.tensor([*scores, then], dtype=torch.float64)
    v = _random(len(s), D)
    v = (8 * v).round() if rounded else v  # whole numbers have the same value in every dtype
    return lambda function: (function(*_state(s[:-1], v[:-1]), s[-1].clone(), v[-1].clone()), _state(s, v))


def _with_nan(function):
    """l and acc after a score of NaN, the first or a later one."""
    v, new = _random(3), _random(3, shift=1.0)
    states = _state(_random(0), _random(0, 3)), _state(_random(2), _random(2, 3))
    steps = [function(*state, torch.tensor(math.nan, dtype=v.dtype), new) for state in states]
    got = [torch.cat([torch.as_tensor(l)[None], acc]) for _, l, acc in steps]
    return torch.stack(got), torch.full((2, 4), math.nan)


def _merged_nan(function):
    """o of four queries, NaN where lse says so: the first has a NaN in its left half, the second in its right half."""
    S, v = _random(4, 8), _random(4, 8, 3)
    S[0, 1] = S[1, 6] = math.nan
    S[3, :4] = -INF
    o, lse = function(*_partial(S[:, :4], v[:, :4]), *_partial(S[:, 4:], v[:, 4:]))
    want, _ = _partial(S, v)
    return torch.where(lse.isnan()[:, None], lse[:, None], o), want


def _whole_row(s, D=5):
    """Every step from nothing to the end of the row, then the division."""
    v = _random(len(s), D)

    def compare(function):
        state = _state(s[:0], v[:0])
        for s_i, v_i in zip(s, v, strict=True):
            state = function(*state, s_i.clone(), v_i.clone())
        return state[2] / state[1], torch.softmax(s, 0) @ v

    return compare


def _partial(S, v):
    """(o, lse) of scores (..., N) and values (..., N, D); (0, -inf) where there is no key."""
    lse = torch.logsumexp(S, -1) if S.shape[-1] else S.new_full(S.shape[:-1], -INF)
    P = torch.softmax(S, -1).masked_fill((lse == -INF)[..., None], 0.0)
    return (P[..., None, :] @ v).squeeze(-2), lse


def _far_apart(n):
    """In the first row the left half has the large scores, in the second the right half; they differ by 2000."""
    S = _random(2, n)
    S[0, : n // 2] += 2000
    S[1, n // 2 :] += 2000
    return S


def _some_hidden(n):
    """Four rows: all keys, none, those of the right half, those of the left half."""
    S = _random(4, n)
    S[1], S[2, : n // 2], S[3, n // 2 :] = -INF, -INF, -INF
    return S


def _merged(S, cut, rounded=False):
    """Attention over the keys before `cut` and after it must merge into attention over all."""
    v = _random(*S.shape, 3)
    v = (8 * v).round() if rounded else v
    return lambda function: (
        function(*_partial(S[..., :cut], v[..., :cut, :]), *_partial(S[..., cut:], v[..., cut:, :])),
        _partial(S, v),
    )


def _with_scores(*scores):
    """q, K and V of one query that has these scores, with values of three numbers."""
    s = torch.tensor(scores, dtype=torch.float64)
    return torch.ones(1, dtype=torch.float64), s[:, None], _random(len(s), 3)


ORDER_CASES = (
    ORDER.case("the maximum stays", _with_scores(5.0, 3.0, 2.0),
         "every key adds a term to l, and its value with the same weight to acc"),
    ORDER.case("the maximum rises", _with_scores(3.0, 2.0, 5.0, 1.0),
         "when m rises, the old l and the old acc shrink, the new terms do not"),
    ORDER.case("it rises at every key", _with_scores(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), "one factor for every rise"),
    ORDER.case("large scores", _with_scores(999.0, 1000.0, 998.0), "only ever take exp of what is 0 or less"),
)  # fmt: skip

RECURRENCE_CASES = (
    Case("no new maximum", _after(3.0, 5.0, then=2.0), "measure the new weight from the maximum: exp(s - m)"),
    Case("a new maximum", _after(3.0, 2.0, then=5.0), "multiply the old l and the old acc by exp(m_old - m_new)"),
    Case("the first key", _after(then=4.0), "exp(-inf - m) is 0, so the first key needs no special case"),
    Case("1000 after -1000", _after(-1000.0, then=1000.0), "only ever take exp of m_old - m_new and s - m_new"),
    Case("a hidden key", _after(1.0, 2.0, then=-INF), "a score of -inf has weight 0 and changes nothing"),
    Case("a hidden key comes first", _after(then=-INF),
         "while the maximum is -inf return the state as it came: exp(-inf - -inf) is NaN"),
    Case("a row of 100 keys", _whole_row(_random(100, scale=4.0)), "run your steps, then acc / l: follow one by hand"),
    Case("a score equal to the maximum", _after(3.0, 5.0, then=5.0),
         "a key whose score is equal to the maximum counts as well: its weight is 1, and alpha is 1"),
    Case("negative scores", _after(-2.0, -1.0, then=-0.5),
         "a maximum may have either sign: only -inf says that nothing was seen"),
    Case("very low scores", _after(3 * LOW, 2 * LOW, then=LOW),
         "-inf alone stands for no key: any finite number may be a score"),
    Case("one key outweighs the rest", _after(-1000.0, then=1000.0, rounded=True),
         "l is exactly 1 and acc the new value: nothing is added to them", 1e-15),
    Case("float64", _after(0.3, 1.7, then=0.9), "stay in the dtype of acc: do not convert to float32 on the way",
         1e-10),
    Case("a NaN comes through", _with_nan,
         "a score of NaN is an error that must show in l and acc: guard -inf minus -inf before the exponential, "
         "and repair nothing after it, as nan_to_num does"),
)  # fmt: skip

MERGE_OUTPUTS_CASES = (
    Case("two equal halves", _merged(_random(8), 4), "weigh o_a by exp(lse_a - lse), with lse that of both"),
    Case("3 keys and 13", _merged(_random(16), 3), "a half with more keys weighs more: its lse says so"),
    Case("large scores", _merged(_random(10, scale=3.0, shift=1000.0), 5),
         "never take exp(lse_a) itself: subtract the larger of the two first"),
    Case("several queries", _merged(_random(2, 3, 12), 7), "lse is (...), o is (..., D): lse[..., None]"),
    Case("one empty half", _merged(_random(6), 0), "(0, -inf) is attention over no keys: exp(-inf) = 0"),
    Case("two empty halves", _merged(_random(4, 0), 0), "with no key at all: o = 0 and lse = -inf, not NaN"),
    Case("an empty right half", _merged(_random(6), 6), "either half may be the one without keys"),
    Case("negative lse", _merged(_random(7, shift=-9.0), 4),
         "lse may have either sign: only -inf says that a half has no keys"),
    Case("one half far above the other", _merged(_far_apart(8), 4),
         "subtract the larger of the two lse, row by row: exp of the difference to any other may overflow"),
    Case("some rows without a key", _merged(_some_hidden(8), 4),
         "ask every row by itself whether lse is -inf: its neighbours may have keys"),
    Case("one half outweighs the other", _merged(torch.tensor([2000.0, 0.0], dtype=torch.float64), 1, rounded=True),
         "o is exactly that half's, and so is lse: nothing is added to the sum of the weights", 1e-15),
    Case("float64", _merged(_random(7), 3), "stay in the dtype of o: do not convert to float32", 1e-10),
    Case("a NaN comes through", _merged_nan,
         "a NaN in a half is an error that must show in o or lse: guard -inf minus -inf before the exponential, "
         "and repair nothing after it, as nan_to_num does"),
)  # fmt: skip

EXERCISES = (
    Ordering(
        "order",
        "order(): the letters of the lines of the loop, from top to bottom",
        order_solution,
        ORDER_CASES,
        hints=(
            "Say what one round does for its key: a score, a new maximum, both old sums moved to it, the new terms.",
            "Every line reads names: each must have its value by then, and m must still be the old one for alpha.",
            "Six letters: one line hands m_new on, three make a factor, a score and a maximum, two change l and acc. What does each of them read?",
        ),
        core=("the maximum rises",),
        values=("m", "l", "o"),
        puzzle=ORDER,
    ),
    Exercise(
        "recurrence",
        "update(m, l, acc, s, v): scalars m, l, acc (D,), the new score s and value v (D,) -> (m, l, acc)",
        recurrence_solution,
        RECURRENCE_CASES,
        hints=(
            "l and acc hold sums of terms that were measured from the old maximum. What must happen to them when s is larger?",
            "m_new = max(m, s). The old terms, in l and in acc, take the factor e^(m - m_new); the new key has the weight e^(s - m_new).",
            "m_new = ...; if it is still -inf, return ...; alpha = exp(... - ...), p = exp(... - ...); return m_new, ... + p, ... + ... * v",
        ),
        core=("a new maximum",),
        library=("flashlearn",),
        values=("m", "l", "acc"),
    ),
    Exercise(
        "merge_outputs",
        "merge_outputs(o_a, lse_a, o_b, lse_b): o (..., D), lse (...) of two halves of the keys -> (o, lse)",
        merge_solution,
        MERGE_OUTPUTS_CASES,
        hints=(
            "Each half is an average with weights of its own. What share of all the weight, the sum of e^score, does each half hold?",
            "Half a holds e^(lse_a), both hold e^lse = e^(lse_a) + e^(lse_b). The share of a is the quotient of the two.",
            "lse = torch.logaddexp(...); o = exp(... - ...)[..., None] * o_a + ...; where lse is -inf the difference is NaN: subtract what there?",
        ),
        library=("flashlearn",),
        values=("o", "lse"),
    ),
)
