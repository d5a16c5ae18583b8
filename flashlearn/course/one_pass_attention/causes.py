"""What wrong answers to the exercises of notebook 05 get wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from flashlearn.core.steps import hbm_bytes, sram_peak
from flashlearn.course.one_pass_attention.exercises import run_loop

INF = float("inf")


def _double(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).squeeze()


def _step(update, m: float, s: float):
    """(m, l, acc) after a state of maximum m with l = 2 and acc = (9, 5), and a key of score s and value (7, 11)."""
    return update(_double(m), _double(2.0), _double(9.0, 5.0), _double(s), _double(7.0, 11.0))


def the_maximum(update):
    """The larger of the two, whichever that is."""
    for m, s in ((1.0, 3.0), (3.0, 1.0)):
        got = _step(update, m, s)[0].item()
        if abs(got - 3.0) > 1e-9:
            return f"after a maximum of {m:g} and a score of {s:g} the new maximum m_new is {got:.4g}; expected the larger of both, 3"
    return ""


def the_weights(update):
    """Old terms take e^(m - m_new), the new key e^(s - m_new), in l and in acc alike."""
    steps = {(m, s): _step(update, m, s) for m, s in ORDERS}
    for (m, s), (_, l, acc) in steps.items():
        alpha, p = math.exp(m - 3.0), math.exp(s - 3.0)
        want_l, want_acc = 2 * alpha + p, _double(9 * alpha + 7 * p, 5 * alpha + 11 * p)
        if abs(l.item() - want_l) > 1e-6:
            return wrong_factor("l", {at: l.item() for at, (_, l, _) in steps.items()}, (2.0, 1.0))
        if any(torch.allclose(acc, sums / want_l) for sums in (want_acc, want_acc + alpha * _double(9.0, 5.0))):
            return "acc is divided by l in the step: acc is a sum, which is divided once, at the end"
        if not torch.allclose(acc, want_acc):
            return wrong_factor("acc", {at: acc[0].item() for at, (_, _, acc) in steps.items()}, (9.0, 7.0))
    return ""


ORDERS = ((3.0, 1.0), (1.0, 3.0))  # the old maximum and the new score: either may be the larger
FACTORS: dict[str, Callable[[float, float], float]] = {
    "1, that is none": lambda m, s: 1.0,
    "0": lambda m, s: 0.0,
    "e^(m - m_new)": lambda m, s: math.exp(m - max(m, s)),
    "e^(m_new - m)": lambda m, s: math.exp(max(m, s) - m),
    "e^(s - m_new)": lambda m, s: math.exp(s - max(m, s)),
    "e^(m_new - s)": lambda m, s: math.exp(max(m, s) - s),
    "e^(s - m)": lambda m, s: math.exp(s - m),
    "e^s": lambda m, s: math.exp(s),
    "e^m": lambda m, s: math.exp(m),
    "e^m_new": lambda m, s: math.exp(max(m, s)),
}


def wrong_factor(name: str, got: Mapping[tuple[float, float], float], terms: tuple[float, float]) -> str:
    """Which of the two factors, of the old term or of the new, is not what it must be.

    `got` holds the value for each of ORDERS. A factor has a name only if that gives all of them.
    """

    def sums(old: Callable[[float, float], float], new: Callable[[float, float], float]) -> dict:
        return {(m, s): terms[0] * old(m, s) + terms[1] * new(m, s) for m, s in got}

    def fits(sums: Mapping[tuple[float, float], float]) -> bool:
        return all(abs(got[at] - value) < 1e-6 * (1 + abs(value)) for at, value in sums.items())

    alpha, p = FACTORS["e^(m - m_new)"], FACTORS["e^(s - m_new)"]
    want = sums(alpha, p)
    m, s = next((at for at in got if not abs(got[at] - want[at]) < 1e-6), (0.0, 0.0))
    case = f"after a maximum of {m:g} comes a score of {s:g}, and in {name}"
    for other, factor in FACTORS.items():  # one wrong factor is likelier than two
        if fits(sums(factor, p)):
            return f"{case} the old terms take the factor {other}; expected exp(m_old - m_new)"
        if fits(sums(alpha, factor)):
            return f"{case} the new terms take the weight {other}; expected exp(s - m_new)"
    return f"{case} the old terms must take the factor exp(m_old - m_new), the new ones the weight exp(s - m_new)"


def nothing_is_added(update):
    """A key that outweighs all others leaves l at 1."""
    return more_than_one("a key", _step(update, -800.0, 0.0)[1].item())


def more_than_one(what: str, l: float) -> str:
    """What is said of an l that is a little larger than 1, where it must be 1."""
    return (
        f"{what} that outweighs all before it makes l 1 + {l - 1:.1g}: nothing is added to l"
        if 1e-15 < l - 1 < 1e-3
        else ""
    )


def _merged(merge, o_a: float, lse_a: float, o_b: float, lse_b: float) -> tuple[float, float]:
    o, lse = merge(_double(o_a)[None], _double(lse_a), _double(o_b)[None], _double(lse_b))
    return o.item(), lse.item()


def an_empty_sum(merge):
    """Of two halves without keys, lse is -inf, log 0."""
    lse = _merged(merge, 0.0, -INF, 0.0, -INF)[1]
    if math.isfinite(lse) and abs(math.exp(lse)) < 0.01:
        return f"with no key at all lse is {lse:.4g}, the log of {math.exp(lse):.1g}; expected -inf: nothing is added to the sum of the weights"
    return ""


def the_shares(merge):
    """Where both halves give 1, so does the whole; and a half of three times the weight has three quarters of it."""
    (share, both), (rest, _) = (_merged(merge, o_a, math.log(3), 1 - o_a, 0.0) for o_a in (1.0, 0.0))
    nothing = _merged(merge, 0.0, math.log(3), 0.0, 0.0)[0]
    if abs(nothing) > 1e-6:
        return f"when both halves give 0 the whole is {nothing:.4g}, not 0: o is the sum of o_a and o_b, each times its weight, and of nothing else"
    if abs(share - 0.25) < 1e-6 and abs(rest - 0.75) < 1e-6:
        return "the weights are exchanged: o_a gets the share of b, and o_b the share of a"
    if abs(share - 3 * rest) < 1e-6 and abs(share + rest - 1) > 1e-6:
        return f"the two weights add up to {share + rest:.4g}, not to 1: divide by the sum, so that each is the share of its half"
    if abs(share - 0.75) > 1e-6:
        return f"a half with three times the weight of the other (lse log 3 and 0) has the share {share:.4g}, not 3/4: e^(lse_a - lse)"
    if abs(rest - 0.25) > 1e-6:
        return f"a half with a third of the weight of the other (lse 0 and log 3) has the share {rest:.4g}, not 1/4: e^(lse_b - lse)"
    if abs(both - math.log(4)) > 1e-6:
        return f"lse of log 3 and 0 must be log(3 + 1) = {math.log(4):.4g}, the log of the sum of both e^lse; it is {both:.4g}"
    return ""


def what_moves(loop):
    """Q, K and V are read once each, O is written once."""
    hbm, steps = run_loop(loop, 6)
    for name in ("Q", "K", "V", "O"):
        traffic, size = hbm_bytes(steps, name), hbm.output(name).nbytes
        moved, how = (traffic.written, "written") if name == "O" else (traffic.read, "read")
        if moved != size:
            return f"with 6 keys, {moved} bytes of {name} are {how}; expected {size}, each number of {name} once"
    return ""


def what_stays(loop):
    """The most bytes on chip do not depend on the number of keys."""
    few, many = (sram_peak(run_loop(loop, N)[1]) for N in (64, 128))
    if few != many:
        return f"with 64 keys at most {few} bytes are on chip, with 128 keys {many}: yield a step for each key or block, and keep no score for later"
    return ""


CAUSES = {
    "recurrence": (the_maximum, nothing_is_added, the_weights),
    "loop": (what_moves, what_stays),
    "merge_outputs": (an_empty_sum, the_shares),
}
