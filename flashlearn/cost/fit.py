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

    ValueError if the formula does not give every count, if the cases do not determine every constant, or if a term or a
    count is not finite.

    >>> fitted(lambda n: (n * n, n), [(1,), (2,), (5,)], lambda n: 3 * n * n - n)
    [3.0, -1.0]
    """
    cases = list(cases)
    if not cases:
        raise ValueError("expected at least one case, got none")
    A = torch.tensor([[float(term) for term in terms(*case)] for case in cases], dtype=torch.float64, device="cpu")
    y = torch.tensor([[float(count(*case))] for case in cases], dtype=torch.float64, device="cpu")
    for case, numbers in zip(cases, torch.cat((A, y), 1), strict=True):
        if not numbers.isfinite().all():
            raise ValueError(f"expected finite terms and a finite count, got {numbers.tolist()} for {case!r:.80}")
    unit = A.abs().amax(0)  # columns of like size keep the fit exact
    unit[unit == 0] = 1
    A = A / unit
    rank = int(torch.linalg.matrix_rank(A))
    if rank < len(unit):
        raise ValueError(f"expected cases that determine all {len(unit)} constants, got terms of rank {rank}")
    c = torch.linalg.lstsq(A, y).solution
    off = (A @ c - y).abs().max().item()
    if off > 1e-9 * y.abs().max().item():
        raise ValueError(f"expected terms that explain every count, got a difference of {off:.4g}")
    return [round(each, 3) + 0.0 for each in (c[:, 0] / unit).tolist()]
