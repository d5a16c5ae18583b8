"""The formula that a result follows: the right one up to a factor, or one of several that are close to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor


def follows(got: Tensor, candidates: Mapping[str, Tensor], right: str, value: Tensor) -> str:
    """A sentence on `got`, if it is one of the candidates or a multiple of one; `value` is that of the formula `right`.
    The name of a candidate is its formula, and after a | a remark.
    """
    for name, candidate in {right: value, **candidates}.items():
        factor = multiple(got, candidate)
        if factor is None:
            continue
        if name != right:
            times = "" if abs(factor - 1) < 1e-3 else "minus " if abs(factor + 1) < 1e-3 else f"{factor:.3g} times "
            formula, _, remark = name.partition(" | ")
            told = f"the result is {times}{formula}, where {right} is expected"
            return f"{told}: {remark}" if remark else told
        if abs(factor + 1) < 1e-3:
            return f"the result is {right} with the sign turned: minus what is expected"
        if abs(factor - 1) > 1e-3:
            return f"the result is {factor:.3g} times {right}: there is a factor too many, or one is missing"
    return ""


def slips_of(got: Sequence[Tensor], simulated: Callable[..., Sequence[Tensor]], told: Mapping[str, str]) -> str:
    """Which slips, one or two of those `told`, give what came back; nothing if none do, or if it is right.

    `simulated(slips)` computes in float64, with these slips.
    """

    def close(a, b):
        return all(torch.allclose(x.double(), y, rtol=1e-3, atol=1e-3) for x, y in zip(a, b, strict=True))

    right = simulated(())
    for count in (1, 2):
        for slips in itertools.combinations(told, count):
            want = simulated(slips)
            if close(got, want) and not close(right, want):
                return "; and ".join(told[slip] for slip in slips)
    return ""


def normal(*shape: int, seed: int | None = None) -> Tensor:
    """Random numbers in float64, always the same ones with a seed."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def normals(*shapes: tuple[int, ...], seed: int) -> list[Tensor]:
    """Tensors of random numbers in float64, one after another from one generator."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def multiple(got: Tensor, candidate: Tensor) -> float | None:
    """The number c with got = c candidate, if there is one."""
    g, e = got.detach().double(), candidate.detach().double()
    if g.shape != e.shape or not (g.isfinite().all() and e.isfinite().all() and e.any() and g.any()):
        return None
    c = ((g * e).sum() / (e * e).sum()).item()
    rounding = 1e-5 if got.dtype == torch.float64 else 1e-3  # results of a kernel are coarser
    return c if torch.allclose(g, c * e, rtol=rounding, atol=rounding * g.abs().max().item()) else None


def linear(one: float, function: Callable[[float], float]) -> bool:
    """Whether the function is `one` times its argument; not if it gives infinities or NaN."""
    return all(abs(function(x) - x * one) < 1e-6 * (1 + abs(x * one)) for x in (0.0, 2.0, -1.5))


def _power(name: str, power: float) -> str:
    return {1: f"{name}", 2: f"{name} {name}, its square", -1: f"1 over {name}"}[int(power)]


def growth(function, arguments: tuple, names: tuple[str, ...], powers: Mapping[str, float]) -> str:
    """Whether the result grows with each argument as it should: by 2^power where that is doubled."""
    start = function(*arguments)
    for at, name in enumerate(names):
        if name in powers:
            doubled = (*arguments[:at], 2 * arguments[at], *arguments[at + 1 :])
            factor, want = function(*doubled) / start, 2.0 ** powers[name]
            if abs(factor - want) > 1e-6 * want:
                return f"if {name} is doubled, the result is {factor:.4g} times as large, where {want:.4g} times is expected: it goes with {_power(name, powers[name])}"
    return ""
