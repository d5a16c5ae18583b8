"""The relation of wrong results to the right ones: a factor, a sign, a transpose, a few rows, NaN.

A finding is a sentence that is true of the result, whatever its cause. It names the cause as far as the result shows
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

INF = float("inf")


def compare(got: Any, expected: Any, names: tuple[str, ...] = (), tolerance: float = 1e-6) -> str:
    """The finding about `got`, empty if there is none. `names` are those of the values, if there are several. A number
    is right up to `tolerance`, that of the case.
    """
    if isinstance(expected, tuple | list):
        return _several(got, expected, names, tolerance)
    if got is None:
        return "None came back: is there a return at the end?"
    if not isinstance(got, Tensor | int | float):
        kind = f"{len(got)} values" if isinstance(got, tuple | list) else f"a {type(got).__name__}"
        return f"{kind} came back where {'a tensor' if isinstance(expected, Tensor) else 'a number'} is expected"
    if isinstance(expected, int) and not isinstance(got, Tensor):
        return _count(got, expected)
    g, e = (torch.as_tensor(t).detach().double().cpu() for t in (got, expected))
    if g.shape == e.shape and torch.allclose(g, e, rtol=0, atol=0, equal_nan=True):
        return ""
    if g.shape != e.shape:
        return next(filter(None, (look(g, e) for look in SHAPES)), "")
    return next(filter(None, (look(g, e) for look in LOOKS)), "") or _some_places(g, e, tolerance)


def _several(got: Any, expected: tuple | list, names: tuple[str, ...], tolerance: float) -> str:
    """For several values: how many came, whether the order is right, and the finding about the first wrong one."""
    count = f"{len(expected)} values" + (f", {' and '.join(names)}," if len(names) == len(expected) else "")
    if not isinstance(got, tuple | list):
        return f"{count} must be returned, in a tuple, and {'None' if got is None else 'only one'} came back"
    if len(got) != len(expected):
        return f"{count} must be returned, and {len(got)} came back"
    if isinstance(expected[0], int):
        ratio = _common_ratio(got, expected)
        if ratio:
            return f"all values are {ratio} what is expected"
    right = [same(g, e, 0, tolerance) for g, e in zip(got, expected, strict=True)]
    if wrong_order(got, expected):
        return "the values are right, but they come back in the wrong order"
    title = names if len(names) == len(expected) else tuple(f"value {n + 1}" for n in range(len(expected)))
    wrong = right.index(False) if False in right else -1
    if wrong < 0:
        return ""
    about = f"it is {got[wrong]}, expected is {expected[wrong]}"
    if not isinstance(expected[wrong], tuple | list):
        about = compare(got[wrong], expected[wrong], (), tolerance)
    others = [name for name, good in zip(title, right, strict=True) if good]
    bad = [name for name, good in zip(title, right, strict=True) if not good]
    told = f"{_and(others)} {'is' if len(others) == 1 else 'are'} right, {_and(bad)} {'is' if len(bad) == 1 else 'are'} not"
    return "; ".join(filter(None, (told if others else "", f"{title[wrong]}: {about}" if about else "")))


def of_another_form(got: Any, expected: Any) -> bool:
    """Whether there are too few or too many values, or all of them in the wrong order."""
    if isinstance(expected, tuple | list):
        return not isinstance(got, tuple | list) or len(got) != len(expected) or wrong_order(got, expected)
    return not isinstance(got, Tensor | int | float)


def wrong_order(got: Any, expected: Any) -> bool:
    """Whether all values are right, but come back last first."""
    if not all(isinstance(values, tuple | list) and len(values) > 1 for values in (got, expected)):
        return False
    return len(got) == len(expected) and not same(got, expected) and all(map(same, got[::-1], expected))


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def same(got: Any, expected: Any, relative: float = 1e-6, absolute: float = 1e-7) -> bool:
    """Whether all numbers are equal up to these errors, NaN and infinities included."""
    if isinstance(expected, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(expected):
            return False
        return all(same(g, e, relative, absolute) for g, e in zip(got, expected, strict=True))
    if not isinstance(got, Tensor | int | float):
        return False
    g, e = (torch.as_tensor(t).detach().double().cpu() for t in (got, expected))
    return g.shape == e.shape and torch.allclose(g, e, relative, absolute, equal_nan=True)


def _common_ratio(got: Any, expected: Any) -> str:
    """ "1/2 of" or "3 times", if every number is; empty if not."""
    if not all(isinstance(g, int | float) and e for g, e in zip(got, expected, strict=True)):
        return ""
    ratios = {g / e for g, e in zip(got, expected, strict=True)}
    ratio = ratios.pop()
    return _times(ratio) if not ratios and ratio not in (0, 1) else ""


def _times(ratio: float) -> str:
    if ratio > 0 and abs(ratio - 1) > 1e-9:
        for word, number in ((f"{ratio:.0f} times", ratio), (f"1/{1 / ratio:.0f} of", 1 / ratio)):
            if number > 1.5 and abs(number - round(number)) < 1e-6 * number:
                return word
    return f"{ratio:.4g} times"


def _count(got: int | float, expected: int) -> str:
    if got != got // 1:
        return f"a whole number is expected, and {got:.4g} came back: round it"
    if abs(got - expected) == 1:
        return f"one too {'many' if got > expected else 'few'}: {got:.0f} came back, {expected} is expected"
    return ""


def _transposed_shape(g: Tensor, e: Tensor) -> str:
    if g.ndim >= 2 and g.mT.shape == e.shape:
        return "the result is right, but transposed" if same(g.mT, e) else f"the shape is transposed: {_shapes(g, e)}"
    return ""


def _lost_or_kept(g: Tensor, e: Tensor) -> str:
    if g.numel() == e.numel() and same(g.reshape(e.shape), e):
        more = "too many" if g.ndim > e.ndim else "too few" if g.ndim < e.ndim else "in another place"
        return f"the numbers are right, but there are dimensions {more}: {_shapes(g, e)} (keepdim)"
    return ""


def _broadcast(g: Tensor, e: Tensor) -> str:
    if e.numel() > 1 and g.ndim == e.ndim and all(a == b or b == 1 for a, b in zip(g.shape, e.shape, strict=True)):
        return f"a row met a column, and both were widened: {_shapes(g, e)}. keepdim=True keeps a column a column"
    return ""


def _shapes(g: Tensor, e: Tensor) -> str:
    return f"its shape is {tuple(g.shape)}, expected is {tuple(e.shape)}"


def _wrong_shape(g: Tensor, e: Tensor) -> str:
    return _shapes(g, e).replace("its shape", "the shape", 1)


def _not_a_number(g: Tensor, e: Tensor) -> str:
    nan, lost = g.isnan() & ~e.isnan(), e.isnan() & ~g.isnan()
    if lost.any() and not nan.any():
        came = ", ".join(f"{value:.4g}" for value in g[lost][:3].tolist()) + (", ..." if lost.sum() > 3 else "")
        return f"{came} came back where NaN is expected"
    if not nan.any():
        return ""
    rest = "" if nan.all() else ", and all others are right" if same(g[~nan], e[~nan]) else ""
    where = "all entries" if nan.all() else _where(nan)
    return f"NaN in {where}{rest}; NaN comes from inf - inf, inf / inf, 0 / 0 and 0 * inf, and in a kernel from elements that were never written"


def _infinite(g: Tensor, e: Tensor) -> str:
    hidden, lost = (e == -INF) & (g != -INF), g.isinf() & e.isfinite()
    if (hidden.any() or lost.any()) and (e == -INF).any():
        rest = g[hidden]
        if not lost.any() and rest.unique().numel() == 1 and hidden.equal(e == -INF):
            return f"{rest[0].item():.4g} is in every place where -inf is expected"
        parts = (
            f"-inf is missing in {_where(hidden)}" if hidden.any() else "",
            f"-inf is in {_where(lost)}, where a number is expected" if lost.any() else "",
        )
        return "; ".join(filter(None, parts))
    if lost.any():
        place = "all entries" if lost.all() else _where(lost)
        if (g[lost] == -INF).any():
            return f"-inf is in {place}, where a number is expected"
        return f"infinities in {place}: something overflows, as exp does"
    return ""


def _sign_or_factor(g: Tensor, e: Tensor) -> str:
    if e.numel() < 2 or not e.isfinite().all() or not g.isfinite().all() or not (g * e).any():
        return ""
    ratio = ((g * e).sum() / (e * e).sum()).item()
    rounding = 1e-5 * abs(ratio) * e.abs().max().item()
    if not ratio or abs(ratio - 1) <= 1e-4 or not torch.allclose(g, ratio * e, rtol=1e-4, atol=rounding):
        return ""
    wrong_sign = abs(ratio + 1) < 1e-4
    return "every entry has the wrong sign" if wrong_sign else f"every entry is {_times(ratio)} what is expected"


def _offset(g: Tensor, e: Tensor) -> str:
    off = g - e
    if e.numel() > 1 and off.isfinite().all() and off.abs().min() > 1e-6 and torch.allclose(off, off.mean(), rtol=1e-5):
        return f"every entry is too {'large' if off.mean() > 0 else 'small'} by {abs(off.mean().item()):.4g}"
    return ""


def _elsewhere(g: Tensor, e: Tensor) -> str:
    """The right numbers in other places."""
    if g.ndim >= 2 and g.shape[-1] == g.shape[-2] and same(g.mT, e):
        return "the result is right, but transposed"
    for dim in range(g.ndim):
        if g.shape[dim] > 1 and same(g.flip(dim), e):
            return f"the numbers are right, but in reverse along dimension {dim}"
        for by in range(1, g.shape[dim]):
            if same(g.roll(by, dim), e):
                return f"the numbers are right, but moved along dimension {dim}"
    if g.numel() > 3 and not same(g, e) and same(g.flatten().sort().values, e.flatten().sort().values):
        return "the right numbers are in the wrong places"
    return ""


def _factor_a_row(g: Tensor, e: Tensor) -> str:
    """Each row is a multiple of the right one: a factor of each row is wrong."""
    if g.ndim < 2 or g.shape[-1] < 2 or not g.isfinite().all() or not (e != 0).any(-1).all():
        return ""
    ratio = (g * e).sum(-1, keepdim=True) / (e * e).sum(-1, keepdim=True)
    if (ratio - 1).abs().max() < 1e-3:  # no factor at all: something else is wrong
        return ""
    if (ratio.abs() > 1e-6).all() and torch.allclose(g, ratio * e, rtol=1e-4, atol=1e-6):
        return f"every row is right up to a factor of its own ({ratio.min().item():.3g} to {ratio.max().item():.3g})"
    return ""


def _some_places(g: Tensor, e: Tensor, tolerance: float) -> str:
    """Whole rows or columns that are wrong, or places that are 0, where all others are right."""
    wrong = ~torch.isclose(g, e, rtol=1e-5, atol=max(tolerance, 1e-6), equal_nan=True)
    if g.ndim == 0 or not wrong.any() or wrong.all():
        return ""
    place, zeros = _where(wrong), not g[wrong].any()
    if place.endswith("entries") and not zeros:
        return ""
    return f"all is right but {place}" + (" (0 there)" if zeros else "")


def _where(wrong: Tensor) -> str:
    """The places in words: rows 4 to 7, or so many entries."""
    for dim in range(wrong.ndim):
        parts = wrong.unbind(dim)
        at = [n for n, part in enumerate(parts) if part.any()]
        if len(at) < len(parts) and all(parts[n].all() for n in at):
            return _listed(at, wrong.ndim - dim if wrong.ndim > 1 else 0)
    return f"{int(wrong.sum())} of {wrong.numel()} entries"


def _listed(at: list[int], dim: int) -> str:
    """Numbers of rows (dimension 2 from the end), columns (1), the entries of a vector (0), or the outer dimensions."""
    one, many = {0: ("entry", "entries"), 1: ("column", "columns"), 2: ("row", "rows")}.get(
        dim, (f"place (in dimension -{dim})", f"places (in dimension -{dim})")
    )
    if len(at) == 1:
        return f"{one} {at[0]}"
    if at == list(range(at[0], at[-1] + 1)):
        return f"{many} {at[0]} to {at[-1]}"
    return f"{many} {', '.join(map(str, at[:6]))}{', ...' if len(at) > 6 else ''}"


Look = Callable[[Tensor, Tensor], str]
SHAPES: tuple[Look, ...] = (_transposed_shape, _lost_or_kept, _broadcast, _wrong_shape)
LOOKS: tuple[Look, ...] = (_not_a_number, _infinite, _sign_or_factor, _offset, _elsewhere, _factor_a_row)
