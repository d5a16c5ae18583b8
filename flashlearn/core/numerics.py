"""The arithmetic that the algorithms share: wide sums, and exponentials and divisions that handle minus infinity.

All take tensors or tiles on chip (`flashlearn.core.hbm`), and gradients flow through them.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

INF = float("inf")
# Tensors give tensors, tiles give tiles. To a type checker PyTorch's result of either is a tensor, hence
# `type: ignore[return-value]` wherever such a result is returned.
T = TypeVar("T", bound=Tensor)
Span = tuple[int, int]  # (start, stop) of a block of rows or columns


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over `dtype` are kept: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def wide(t: T) -> T:
    """The tensor in the dtype that sums are kept in."""
    return t.to(accumulator(t.dtype))  # type: ignore[return-value]


def exp_diff(a: T, b: T) -> T:
    """exp(a - b), and 0 where a is -inf, even if b = -inf."""
    return torch.exp((a - b).masked_fill(a.eq(-INF), -INF))  # type: ignore[return-value]


def maximum(a: T, b: T) -> T:
    """The larger of two numbers, entry by entry."""
    return torch.maximum(a, b)  # type: ignore[return-value]


def row_max(S: T) -> T:
    """The maximum of every row, (..., N) to (..., 1), and -inf for a row of nothing.

    No gradient flows through it: the result of softmax does not depend on the shift.
    """
    if not S.shape[-1]:
        return S.sum(-1, keepdim=True) - INF  # type: ignore[return-value]
    return S.detach().amax(-1, keepdim=True)  # type: ignore[return-value]


def divide(acc: T, l_i: T) -> T:
    """acc / l, and acc where l = 0: a row that attended to no key has acc = 0 and stays 0, with zero gradient."""
    return acc / l_i.masked_fill(l_i.eq(0), 1)  # type: ignore[return-value]


def log_sum_exp(m_i: T, l_i: T) -> T:
    """lse = m + log l: one number for two, as exp(S - m) / l = exp(S - lse); -inf where l = 0."""
    return m_i + torch.log(l_i.masked_fill(l_i.eq(0), 1))  # type: ignore[return-value]


def spans(N: int, block: int) -> list[Span]:
    """(start, stop) of every block of `block` elements; the last one may be shorter.

    >>> spans(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + block, N)) for start in range(0, N, block)]
