"""Constants of a formula, found in counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch


def fitted(
    terms: Callable[..., Sequence[float]], cases: Iterable[Sequence[float]], count: Callable[..., float]
) -> list[float]:
    """The constants c with count(*case) = sum of c * term, by least squares, to three decimals.

    terms   terms(*case): the terms of the formula, e.g. (N d, N^2) for a case (N, d)
    count   count(*case): what was counted, e.g. bytes

    ValueError if the formula leaves a part of some count unexplained.

    >>> fitted(lambda n: (n * n, n), [(1,), (2,), (5,)], lambda n: 3 * n * n - n)
    [3.0, -1.0]
    """
    cases = list(cases)
    A = torch.tensor([terms(*case) for case in cases], dtype=torch.float64)
    y = torch.tensor([[float(count(*case))] for case in cases], dtype=torch.float64)
    unit = A.amax(0)  # columns of like size keep the fit exact
    c = torch.linalg.lstsq(A / unit, y).solution
    off = (A / unit @ c - y).abs().max().item()
    if off > max(1e-3, 1e-9 * y.abs().max().item()):
        raise ValueError(f"expected terms that explain every count, got a difference of {off:.4g}")
    return [round(each, 3) + 0.0 for each in (c[:, 0] / unit).tolist()]
