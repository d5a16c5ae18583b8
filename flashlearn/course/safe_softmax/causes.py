"""What wrong answers to the exercises of notebook 02 get wrong."""

from __future__ import annotations

import math

import torch

from flashlearn.course.naive_softmax.causes import LOGS, rows_are_apart, the_weights

ROWS = ((0.0, 1000.0), (1000.0, 0.0), (0.0, 0.0, 0.0, 1000.0))


def a_shift_changes_nothing(safe):
    """What is done with the maximum must be to subtract it: then 5 more for all logits changes nothing."""
    if not torch.allclose(safe(LOGS + 5), safe(LOGS.clone()), atol=1e-6):
        return "the result changes when 5 is added to all logits: the maximum must be subtracted, x - m, from every one of them"
    return ""


def every_logit_counts(safe):
    """Of two logits that differ by 1 the larger has e times the weight, wherever they lie."""
    for low in (200.0, 1000.0, -200.0, -2000.0):
        x = torch.tensor([low, low + 1], dtype=torch.float64)
        small, large = safe(x.clone()).tolist()
        weights = f"{small:.4g} and {large:.4g}, not 0.2689 and 0.7311"
        said = f"for the logits {low:g} and {low + 1:g} the weights are {weights}"
        if abs(small - large) < 1e-3:
            return f"{said}: both became the same number. Do not clamp logits to a range: subtract the maximum, and exp cannot overflow"
        if abs(small - math.e * large) < 1e-3:
            return f"{said}: the larger logit has the smaller weight. A logit keeps its sign: do not take abs"
        if math.isnan(large) and low > 0:
            return ""  # an exponential overflows
        if math.isnan(large):
            return f"{said}: all exponentials are 0, because a number above the maximum was subtracted: m is the maximum itself, with its sign"
    return ""


def the_maximum_is_subtracted(safe):
    """Next to zeros the weight of 1000 is 1: with any other shift an exponential overflows."""
    for row in ROWS:
        x = torch.tensor(row)
        p = safe(x.clone())
        if p.isnan().any() or p.isinf().any():
            return f"for the logits {row} the result is {p.tolist()}: an exponential overflows; subtract the maximum"
    return ""


def the_sum_alone(safe):
    """One entry that outweighs all others has the weight 1, to the last digit."""
    p = safe(torch.tensor([0.0, -900.0], dtype=torch.float64))[0].item()
    if 1e-15 < 1 - p < 1e-3:
        return f"an entry that outweighs all others has the weight 1 - {1 - p:.1g} instead of 1: nothing is added to l, which is never below 1"
    return ""


def _equal(lse, value: float) -> float:
    """lse of eight equal logits: value + log 8."""
    return lse(torch.full((8,), value, dtype=torch.float64)).item()


def m_is_added(lse):
    """One more in all logits is one more in lse."""
    one, two = _equal(lse, 1.0), _equal(lse, 2.0)
    if abs(two - one) < 1e-6:
        return "lse stays the same when all logits grow by 1: add m back, m + log(l)"
    if abs(two - 2 * one) < 1e-6 and abs(one - 1) > 1e-6:
        return "if all logits double, lse doubles, too: instead it must grow by 1 when all logits grow by 1, m + log(l)"
    if abs(two - one + 1) < 1e-6:
        return "lse falls when all logits grow: m must be added, not subtracted"
    return ""


def the_logarithm(lse):
    """Of eight logits of 1 it is 1 + log 8."""
    said = f"for eight logits of 1 lse is {_equal(lse, 1.0):.4g}, not 1 + log 8 = {1 + math.log(8):.4g}"
    over = _equal(lse, 1.0) - 1
    for size, words in (
        (3.0, "that is a logarithm to the base 2: torch.log is the natural one"),
        (math.log10(8), "that is a logarithm to the base 10: torch.log is the natural one"),
        (0.0, "take the log of the sum, not the sum of the logs, and no mean"),
        (8.0, "the log is missing"),
        (-math.log(8), "log(l) is subtracted, where it must be added"),
    ):
        if abs(over - size) < 1e-6:
            return f"{said}: {words}"
    return said if abs(over - math.log(8)) > 1e-6 else ""


def _asked(is_invariant, softmax):
    """The verdict on a function, and the rows that it was called with."""
    rows: list[torch.Tensor] = []

    def noted(x):
        rows.append(x.detach().double())
        return softmax(x)

    return bool(is_invariant(noted)), rows


def true_is_true(is_invariant):
    """A function that gives the same for all x is invariant; x itself, and the sine, are not."""
    same, itself, sine = (_asked(is_invariant, function)[0] for function in (torch.zeros_like, lambda x: x, torch.sin))
    if not same and itself:
        why = (
            "True and False are exchanged"
            if sine
            else "softmax(x + c) must be equal to softmax(x), not to softmax(x) + c"
        )
        return (
            f"for a function that returns 0 for any x the answer is False, and for one that returns x it is True: {why}"
        )
    if not (same or itself or sine or _asked(is_invariant, lambda x: torch.softmax(x, -1))[0]):
        return "the answer is False for every function, even for one that returns 0 for any x: compare softmax(x + c) with softmax(x)"
    if same and itself and sine:
        return "for functions that return x or its sine, which every shift changes, the answer is True: compare all entries of softmax(x + c) and softmax(x)"
    return ""


def one_number(is_invariant):
    """A copy is shifted by one number; rows of several families may be tried."""
    _, rows = _asked(is_invariant, torch.zeros_like)
    pairs = [(x, y) for place, y in enumerate(rows) for x in rows[:place] if x.shape == y.shape]
    if pairs and not any(_shifted(x, y) for x, y in pairs):
        return "softmax is called with other rows, not with shifted copies of one row: make x once, then compare softmax(x + c) with softmax(x), with one number c for all entries"
    return ""


def _shifted(x, y):
    """Whether y is x plus one number, up to rounding."""
    shift = y - x
    return (shift - shift.mean()).abs().max() <= 2e-6 * (1 + shift.abs().max())


def every_shift_counts(is_invariant):
    """A function that one large shift changes, and no small one."""
    verdict, rows = _asked(is_invariant, lambda x: (x > 500).to(x.dtype))
    if verdict and max((x.max().item() for x in rows), default=0.0) > 500:
        return "one of the shifts changes the result, but the answer is True: compare the results of every shift; it is not enough that they are finite"
    return ""


def what_is_called(is_invariant):
    """The rows that it calls softmax with."""
    _, rows = _asked(is_invariant, torch.zeros_like)
    if not rows:
        return "softmax is never called: call it with a row of your own, and with shifted copies"
    if all((x.max() - x.min()).item() < 1e-6 for x in rows):
        said = "so x / sum(x), and much else, returns the same for every shift"
        return f"the row is constant: {said}; let its entries differ"
    return ""


def what_is_tried(is_invariant):
    """The shifts that it tries: exp overflows far up, and a maximum may start too high."""
    verdict, rows = _asked(is_invariant, torch.zeros_like)
    high, low = max(x.max().item() for x in rows), min(x.min().item() for x in rows)
    if verdict and high < 710:
        return f"the largest logit tried is {high:.4g}: shift farther up, to 1000 and more, where exp overflows"
    if verdict and low > -1000:
        return f"the lowest logit tried is {low:.4g}: shift farther down, below -1000"
    return ""


def rounding(is_invariant):
    """x + c is rounded, and softmax with it: that must not count."""
    if _asked(is_invariant, torch.zeros_like)[0] and not _asked(is_invariant, lambda x: torch.softmax(x, -1))[0]:
        return "x + c is rounded, so softmax differs by about 1e-4 if c is 2000: the tolerance is too small for this rounding"
    return ""


CAUSES = {
    "safe": (
        a_shift_changes_nothing,
        the_weights,
        every_logit_counts,
        the_maximum_is_subtracted,
        the_sum_alone,
        rows_are_apart,
    ),
    "lse": (m_is_added, the_logarithm),
    "shift": (what_is_called, one_number, true_is_true, rounding, what_is_tried, every_shift_counts),
}
