"""Exercises of notebook 05: the recurrence of one-pass attention, its loop against HBM, and the merge of two outputs."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlearn.algorithms.problem import Problem
from flashlearn.core.hbm import HBM
from flashlearn.core.steps import Step, hbm_bytes, record, sram_peak
from flashlearn.course.one_pass_attention.solutions import loop_solution, merge_solution, recurrence_solution
from flashlearn.exercises.assessment import Case, Exercise

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


def run_loop(loop, N, *, batch=(1, 1), scale=0.5, size=1.0, low=False) -> tuple[HBM, list[Step]]:
    """The memory with Q, K, V and O of four columns after a loop over N keys, and its steps; `low`: all scores are."""
    q, k, v = size * _random(*batch, 1, 4), _random(*batch, N, 4), _random(*batch, N, 4, shift=1.0)
    q, k = (-q.abs() - size, k.abs()) if low else (q, k)
    hbm = Problem.of(q, k, v).memory(lambda step: step.phase, {"O": q.dtype})
    steps = loop(hbm, N, scale)
    if steps is None:
        raise TypeError("expected steps, got None: end each iteration with `yield hbm.step(...)`")
    return hbm, record(steps)


def _loop_output(N, **how):
    def compare(loop):
        hbm, _ = run_loop(loop, N, **how)
        q, k, v = (hbm.given[name] for name in "QKV")
        return hbm.output("O"), scaled_dot_product_attention(q, k, v, scale=how.get("scale", 0.5))

    return compare


def _loop_bytes(N):
    """Bytes of Q, K and V that are read, and of O that are written: each matrix once."""

    def compare(loop):
        hbm, steps = run_loop(loop, N)
        return tuple(hbm_bytes(steps, name).total for name in "QKVO"), tuple(hbm.output(name).nbytes for name in "QKVO")

    return compare


def _loop_on_chip(loop):
    """The most bytes on chip with 128 keys, and with 64."""
    many, few = (sram_peak(run_loop(loop, N)[1]) for N in (128, 64))
    return many, few


LOOP_CASES = (
    Case("ten keys", _loop_output(10), "take one step of the recurrence for each key, and divide by l after the last"),
    Case("every matrix once", _loop_bytes(10),
         "load Q once, before the loop; load each key and each value once; store O once, after the loop"),
    Case("nothing on chip grows with N", _loop_on_chip,
         "yield a step for each key, or for each block of keys, and keep no score for later"),
    Case("one key", _loop_output(1), "with one key o is its value"),
    Case("13 keys", _loop_output(13), "N need not be a multiple of your block: the last block may be shorter"),
    Case("large scores", _loop_output(9, size=2000.0), "only ever take exp of m - m_new and s - m_new"),
    Case("very low scores", _loop_output(9, size=2000.0, low=True),
         "start the maximum at -inf: all scores may be below any other number"),
    Case("texts and heads", _loop_output(7, batch=(2, 3)),
         "tiles have four dimensions: k.mT transposes the last two, and nothing else needs to change"),
    Case("another scale", _loop_output(8, scale=0.1), "multiply q.k by the scale that you are given"),
)  # fmt: skip

RECURRENCE_CASES = (
    Case("no new maximum", _after(3.0, 5.0, then=2.0), "measure the new weight from the maximum: exp(s - m)"),
    Case("a new maximum", _after(3.0, 2.0, then=5.0), "multiply the old l and the old acc by exp(m_old - m_new)"),
    Case("the first key", _after(then=4.0), "exp(-inf - m) is 0, so the first key needs no special case"),
    Case("1000 after -1000", _after(-1000.0, then=1000.0), "only ever take exp of m_old - m_new and s - m_new"),
    Case("a hidden key", _after(1.0, 2.0, then=-INF), "a score of -inf has weight 0 and changes nothing"),
    Case("a hidden key comes first", _after(then=-INF),
         "while the maximum is -inf, return the state unchanged: exp(-inf - -inf) is NaN"),
    Case("a row of 100 keys", _whole_row(_random(100, scale=4.0)), "we call your step for each key, then divide acc by l: compute two steps by hand"),
    Case("a score equal to the maximum", _after(3.0, 5.0, then=5.0),
         "a key whose score equals the maximum counts, too: its weight is 1, and alpha is 1"),
    Case("negative scores", _after(-2.0, -1.0, then=-0.5),
         "a maximum may have either sign: only -inf means that no key has come yet"),
    Case("very low scores", _after(3 * LOW, 2 * LOW, then=LOW),
         "only -inf means that no key has come yet: any finite number may be a score"),
    Case("one key outweighs the rest", _after(-1000.0, then=1000.0, rounded=True),
         "l is exactly 1 and acc is the new value: nothing is added to them", 1e-15),
    Case("float64", _after(0.3, 1.7, then=0.9), "stay in the dtype of acc: do not convert to float32 on the way",
         1e-10),
    Case("a NaN comes through", _with_nan,
         "a NaN in the score is an error that must show in l and acc: guard -inf minus -inf before the exponential, "
         "and repair nothing after it, as nan_to_num does"),
)  # fmt: skip

MERGE_OUTPUTS_CASES = (
    Case("two equal halves", _merged(_random(8), 4), "weigh o_a by exp(lse_a - lse), where lse is that of both halves"),
    Case("3 keys and 13", _merged(_random(16), 3), "a half with more keys usually weighs more: use its lse"),
    Case("large scores", _merged(_random(10, scale=3.0, shift=1000.0), 5),
         "never take exp(lse_a) itself: subtract the larger of the two first"),
    Case("several queries", _merged(_random(2, 3, 12), 7), "lse is (...), o is (..., D): lse[..., None]"),
    Case("one empty half", _merged(_random(6), 0), "(0, -inf) is attention over no keys: exp(-inf) = 0"),
    Case("two empty halves", _merged(_random(4, 0), 0), "with no key at all: o = 0 and lse = -inf, not NaN"),
    Case("an empty right half", _merged(_random(6), 6), "either half may have no keys"),
    Case("negative lse", _merged(_random(7, shift=-9.0), 4),
         "lse may have either sign: only -inf means that a half has no keys"),
    Case("one half far above the other", _merged(_far_apart(8), 4),
         "subtract the larger of the two lse, row by row: exp of the difference to any other may overflow"),
    Case("some rows without a key", _merged(_some_hidden(8), 4),
         "test lse == -inf for every row by itself: other rows may have keys"),
    Case("one half outweighs the other", _merged(torch.tensor([2000.0, 0.0], dtype=torch.float64), 1, rounded=True),
         "o is exactly that of the larger half, and so is lse: nothing is added to the sum of the weights", 1e-15),
    Case("float64", _merged(_random(7), 3), "stay in the dtype of o: do not convert to float32", 1e-10),
    Case("a NaN comes through", _merged_nan,
         "a NaN in a half is an error that must show in o or lse: guard -inf minus -inf before the exponential, "
         "and repair nothing after it, as nan_to_num does"),
)  # fmt: skip

EXERCISES = (
    Exercise(
        "recurrence",
        "update(m, l, acc, s, v): scalars m, l, acc (D,), the new score s and value v (D,) -> (m, l, acc)",
        recurrence_solution,
        RECURRENCE_CASES,
        hints=(
            "l and acc are sums of terms that were measured from the old maximum. What must happen to them when s is larger?",
            "m_new = max(m, s). The old terms, in l and in acc, take the factor e^(m - m_new); the new key has the weight e^(s - m_new).",
            "m_new = ...; if it is still -inf, return ...; alpha = exp(... - ...); p = exp(... - ...); return m_new, ... + p, ... + ... * v",
        ),
        core=("a new maximum",),
        library=("flashlearn",),
        values=("m", "l", "acc"),
    ),
    Exercise(
        "loop",
        "loop(hbm, N, scale) yields steps: attention of one query over N keys, from HBM's Q, K and V to its O, "
        "every matrix moved once, nothing on chip that grows with N",
        loop_solution,
        LOOP_CASES,
        hints=(
            "In each iteration load one key and one value. Between the two loads are the lines of one_pass, with tiles in place of numbers.",
            'The score is q @ hbm.load("K", (j, j + 1)).mT * scale. The weighted value is p @ hbm.load("V", (j, j + 1)). torch.maximum and torch.exp take tiles.',
            "m_new = torch.maximum(...); alpha, p = torch.exp(...), torch.exp(...); l = ... + p; "
            'acc = ... + p @ hbm.load("V", ...); m = m_new; then the yield.',
        ),
        writes=("hbm",),
        core=("every matrix once", "nothing on chip grows with N"),
    ),
    Exercise(
        "merge_outputs",
        "merge_outputs(o_a, lse_a, o_b, lse_b): o (..., D), lse (...) of two halves of the keys -> (o, lse)",
        merge_solution,
        MERGE_OUTPUTS_CASES,
        hints=(
            "Each half is an average with weights of its own. Which share of the whole sum of e^score does each half hold?",
            "Half a holds e^(lse_a), both hold e^lse = e^(lse_a) + e^(lse_b). The share of a is the quotient of the two.",
            "lse = torch.logaddexp(...); o = exp(... - ...)[..., None] * o_a + ... Where lse is -inf the difference is NaN: what can you subtract there?",
        ),
        library=("flashlearn",),
        values=("o", "lse"),
    ),
)
