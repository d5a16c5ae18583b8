"""The arithmetic that the rungs share: sums kept wide, and exponentials and divisions that know minus infinity.

All take tensors or tiles on chip (`flashlearn.core.hbm`), and gradients flow through them.
"""

from __future__ import annotations

import torch
from torch import Tensor

INF = float("inf")
Span = tuple[int, int]  # (start, stop) of a block of rows or columns


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over `dtype` are kept: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def wide(t: Tensor) -> Tensor:
    """The tensor in the dtype that sums are kept in."""
    return t.to(accumulator(t.dtype))


def exp_diff(a: Tensor, b: Tensor) -> Tensor:
    """exp(a - b), and 0 where a is -inf: what is not there weighs nothing, even against b = -inf."""
    return torch.exp((a - b).masked_fill(a == -INF, -INF))


def row_max(S: Tensor) -> Tensor:
    """The maximum of every row, (..., N) to (..., 1), and -inf for a row of nothing.

    No gradient flows through it: the result of softmax does not depend on what is subtracted.
    """
    if not S.shape[-1]:
        return S.sum(-1, keepdim=True) - INF
    return S.detach().amax(-1, keepdim=True)


def divide(acc: Tensor, l_i: Tensor) -> Tensor:
    """acc / l, and acc where l = 0: a row that saw no key has acc = 0 and stays 0, with zero gradient."""
    return acc / l_i.masked_fill(l_i == 0, 1)


def log_sum_exp(m_i: Tensor, l_i: Tensor) -> Tensor:
    """lse = m + log l: one number for two, as exp(S - m) / l = exp(S - lse); -inf where l = 0."""
    return m_i + torch.log(l_i.masked_fill(l_i == 0, 1))


def spans(N: int, block: int) -> list[Span]:
    """(start, stop) of every block of `block` elements; the last one may be shorter.

    >>> spans(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + block, N)) for start in range(0, N, block)]
