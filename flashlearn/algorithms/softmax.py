"""Softmax over the last dimension, four ways, each a generator of steps and the function that runs it.

    y_j = exp(x_j) / sum_k exp(x_k)

    naive     two passes over x in HBM; overflows                  2N reads, N writes
    safe      subtracts the row's maximum first: three passes      3N reads, N writes
    online    finds maximum and sum together: two passes           2N reads, N writes
    blocked   the same, a block at a time; blocks merge as (m, l)  2N reads, N writes, N/block_size steps

All take any shape (..., N) with at least one dimension, in float16, bfloat16, float32 or float64, and return that shape
and dtype. `naive_softmax` computes in the dtype of `x`, so that it overflows where the lesson needs it. The others keep
m_i and l_i in float32 for the 16-bit types, as GPU kernels do.

At the edges: an entry of -inf gets weight 0, and an empty row gives an empty row. A row that is -inf throughout, or has
+inf or NaN, is NaN throughout, as in `torch.softmax`. Only naive differs: with +inf a row is NaN there and 0 elsewhere.
Anything but a floating-point tensor is a TypeError.

Sources: online softmax is M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax",
2018 (arXiv:1805.02867), Algorithms 1 to 3 and section 3.1 for the merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flashlearn.algorithms import captions
from flashlearn.core.hbm import HBM, OnChip
from flashlearn.core.inputs import check_block, check_float, check_row
from flashlearn.core.numerics import INF, T, exp_diff, maximum, spans, wide
from flashlearn.core.steps import Step, run

if TYPE_CHECKING:
    from flashlearn.core.shapes import PerRow, Rows


def naive_softmax(x: Rows) -> Rows:
    """Softmax by its definition: y_j = exp(x_j) / sum_k exp(x_k). Overflows for large x_j."""
    return run(naive_softmax_steps(x))


def naive_softmax_steps(x: Tensor) -> Iterator[Step]:
    """One step per element and pass: the sum, then the division (Milakov 2018, Algorithm 1)."""
    hbm = _memory(x, narrow=True)
    l_i = hbm.fill("x", cols=(0, 1))  # line 1
    for j in spans(x.shape[-1], 1):  # line 2
        x_j = hbm.load("x", cols=j)
        term = x_j.exp()
        l_i = l_i + term  # line 3
        yield hbm.step("sum", l_i=l_i, term=term)
    for j in spans(x.shape[-1], 1):  # line 5
        x_j = hbm.load("x", cols=j)
        hbm.store("y", None, x_j.exp() / l_i, j)  # line 6
        yield hbm.step("divide", l_i=l_i)
    yield hbm.done(hbm.output("y"), l_i=l_i)


def safe_softmax(x: Rows) -> Rows:
    """Softmax shifted by the row's maximum m: y_j = exp(x_j - m) / sum_k exp(x_k - m). Cannot overflow."""
    return run(safe_softmax_steps(x))


def safe_softmax_steps(x: Tensor) -> Iterator[Step]:
    """One step per element and pass: maximum, sum, division (Milakov 2018, Algorithm 2)."""
    hbm = _memory(x)
    m_i = hbm.fill("x", cols=(0, 1), value=-INF)  # line 1
    for j in spans(x.shape[-1], 1):  # line 2
        x_j, m_old = hbm.load("x", cols=j), m_i
        m_i = maximum(m_old, x_j)  # line 3
        yield hbm.step("maximum", m_i=m_i, m_old=m_old)
    l_i = hbm.fill("x", cols=(0, 1))  # line 5
    for j in spans(x.shape[-1], 1):  # line 6
        x_j = hbm.load("x", cols=j)
        term = exp_diff(x_j, m_i)
        l_i = l_i + term  # line 7
        yield hbm.step("sum", m_i=m_i, l_i=l_i, term=term)
    yield from _divide(hbm, m_i, l_i, 1)  # lines 9 to 11


def online_softmax(x: Rows) -> Rows:
    """Softmax with maximum and sum found in one pass, the sum rescaled whenever the maximum rises."""
    return run(online_softmax_steps(x))


def online_softmax_steps(x: Tensor) -> Iterator[Step]:
    """One step per element and pass (Milakov 2018, Algorithm 3).

    m_i = max(m_{i-1}, x_i)
    l_i = l_{i-1} exp(m_{i-1} - m_i) + exp(x_i - m_i)
    """
    hbm = _memory(x)
    m_i, l_i = no_elements(hbm)  # lines 1 and 2
    for j in spans(x.shape[-1], 1):  # line 3
        x_j, m_old, l_old = hbm.load("x", cols=j), m_i, l_i
        m_i = maximum(m_old, x_j)  # line 4
        alpha, term = exp_diff(m_old, m_i), exp_diff(x_j, m_i)
        l_i = l_old * alpha + term  # line 5
        yield hbm.step("maximum and sum", m_i=m_i, l_i=l_i, m_old=m_old, l_old=l_old, alpha=alpha, term=term)
    yield from _divide(hbm, m_i, l_i, 1)  # lines 7 to 9


def blocked_softmax(x: Rows, block_size: int) -> Rows:
    """Online softmax that reads `block_size` elements at a time; the last block may be shorter."""
    return run(blocked_softmax_steps(x, block_size))


def blocked_softmax_steps(x: Tensor, block_size: int) -> Iterator[Step]:
    """One step per block and pass: reduce a block to (m, l), merge it in; then divide block by block."""
    check_block(block_size)
    hbm = _memory(x)
    m_i, l_i = no_elements(hbm)  # Milakov 2018, Algorithm 3, lines 1 and 2
    for j in spans(x.shape[-1], block_size):  # line 3
        x_j, m_old, l_old = hbm.load("x", cols=j), m_i, l_i
        m_i, l_i, alpha, term = _merge(m_old, l_old, *reduce_block(x_j))  # lines 4 and 5
        yield hbm.step("maximum and sum", m_i=m_i, l_i=l_i, m_old=m_old, l_old=l_old, alpha=alpha, term=term)
    yield from _divide(hbm, m_i, l_i, block_size)  # lines 7 to 9


def uncorrected_sum_steps(x: Tensor) -> Iterator[Step]:
    """The first pass of online softmax without its correction: wrong on purpose, for a picture.

    The old terms keep the shift by the maximum of their step: l_i = l_{i-1} + exp(x_i - m_i).
    """
    hbm = _memory(x)
    m_i, l_i = no_elements(hbm)
    for j in spans(x.shape[-1], 1):
        x_j, m_old, l_old = hbm.load("x", cols=j), m_i, l_i
        m_i = maximum(m_old, x_j)
        term = exp_diff(x_j, m_i)
        l_i = l_old + term
        yield hbm.step("maximum and sum, uncorrected", m_i=m_i, l_i=l_i, m_old=m_old, l_old=l_old, term=term)
    yield hbm.done((m_i, l_i), m_i=m_i, l_i=l_i)


def merge(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Join the (m, l) of two blocks into the (m, l) of both together.

    m = max(m_a, m_b)
    l = l_a exp(m_a - m) + l_b exp(m_b - m)

    Commutative, and associative up to rounding: the order of merges changes the last digits of l. (-inf, 0), the pair
    of no elements, changes nothing. Tensors of any one shape, or numbers. ValueError for tensors of different shapes or
    on different devices, TypeError for what is no pair of real numbers. Source: Milakov 2018, equation 4.
    """
    (m_a, l_a), (m_b, l_b) = _pair(a, "a"), _pair(b, "b")
    shapes = [tuple(t.shape) for t in (m_a, l_a, m_b, l_b)]
    if len(set(shapes)) > 1:
        raise ValueError(f"expected m and l of one shape on both sides, got {', '.join(map(str, shapes))}")
    devices = [str(t.device) for t in (m_a, l_a, m_b, l_b) if t.ndim]  # a number goes with any shape
    if len(set(devices)) > 1:
        raise ValueError(f"expected m and l on one device on both sides, got {', '.join(devices)}")
    return _merge(m_a, l_a, m_b, l_b)[:2]


def merge_tree(x: Rows, block_size: int) -> tuple[PerRow, PerRow]:
    """(m, l) of every row, by divide and conquer: blocks first, then neighbours merge, level by level.

    `x` is (..., N); m and l are (..., 1). Then `exp(x - m) / l` is softmax.
    """
    return run(merge_tree_steps(x, block_size))


def merge_tree_steps(x: Tensor, block_size: int) -> Iterator[Step]:
    """One step per block, then one per merge; `values["parts"]` are the ranges of x that were joined."""
    check_block(block_size)
    hbm = _memory(x)
    level = []  # (span, m, l) of every part, from left to right
    for span in spans(x.shape[-1], block_size):
        m_i, l_i = reduce_block(hbm.load("x", cols=span))
        hbm.keep(m_i, l_i)  # until it is merged
        level.append((span, m_i, l_i))
        yield hbm.step("reduce", m_i=m_i, l_i=l_i, span=span, parts=())
    hbm.drop("x")
    while len(level) > 1:
        merged = []
        for (left, m_a, l_a), (right, m_b, l_b) in zip(level[::2], level[1::2], strict=False):
            span, (m_i, l_i, *_) = (left[0], right[1]), _merge(m_a, l_a, m_b, l_b)  # in the place of m_a and l_a
            hbm.drop(m_b, l_b)
            merged.append((span, m_i, l_i))
            pairs = (m_a, l_a), (m_b, l_b)  # no longer on chip: for the caption
            yield hbm.step("merge", m_i=m_i, l_i=l_i, span=span, parts=(left, right), merged=pairs)
        level = merged + level[2 * len(merged) :]  # an odd one out moves up unchanged
    m_i, l_i = level[0][1:] if level else no_elements(hbm)
    yield hbm.done((m_i, l_i), m_i=m_i, l_i=l_i)


def reduce_block(x: T) -> tuple[T, T]:
    """(m, l) of one block: its maximum, and the sum of exp(x - m); (..., N) to (..., 1) each."""
    x = wide(x)
    m = x.amax(-1, keepdim=True)
    return m, exp_diff(x, m).sum(-1, keepdim=True)  # type: ignore[return-value]


def no_elements(hbm: HBM) -> tuple[OnChip, OnChip]:
    """(m, l) = (-inf, 0), the pair of no elements, for every row of x: (..., 1) each."""
    return hbm.fill("x", cols=(0, 1), value=-INF), hbm.fill("x", cols=(0, 1))


def _merge(m_a: T, l_a: T, m_b: T, l_b: T) -> tuple[T, T, T, T]:
    """Milakov 2018, equation 4: m, l, what l_a was scaled by, and what l_b became."""
    m = maximum(m_a, m_b)
    alpha, term = exp_diff(m_a, m), l_b * exp_diff(m_b, m)
    return m, l_a * alpha + term, alpha, term  # type: ignore[return-value]


def _divide(hbm: HBM, m_i: OnChip, l_i: OnChip, width: int) -> Iterator[Step]:
    """The last pass, shared by all that found a maximum: read x again, write y_j = exp(x_j - m) / l."""
    for j in spans(hbm.shapes["x"][-1], width):
        x_j = hbm.load("x", cols=j)
        hbm.store("y", None, exp_diff(x_j, m_i) / l_i, j)
        yield hbm.step("divide", m_i=m_i, l_i=l_i)
    yield hbm.done(hbm.output("y"), m_i=m_i, l_i=l_i)


def _memory(x: Tensor, narrow: bool = False) -> HBM:
    check_row(x)
    return HBM({"x": x}, {"y": x.dtype}, {"x": x.shape, "y": x.shape}, captions.softmax, narrow=narrow)


def _pair(pair: Any, name: str) -> tuple[Tensor, Tensor]:
    """m and l of one side of a merge."""
    try:
        m, l = pair
    except (TypeError, ValueError):
        length = f" of length {len(pair)}" if isinstance(pair, tuple | list) else ""
        raise TypeError(f"expected {name} to be a pair (m, l), got {type(pair).__name__}{length}") from None
    return _floating(m, f"m of {name}"), _floating(l, f"l of {name}")


def _floating(t: Any, name: str) -> Tensor:
    """A real number or a tensor of real numbers as a tensor in one of the four dtypes of the course."""
    try:
        tensor: Tensor = torch.as_tensor(t)
    except (TypeError, ValueError, RuntimeError):  # any error of PyTorch for what is no number
        raise TypeError(f"expected {name} to be a tensor or a number, got {type(t).__name__}") from None
    if tensor.is_complex():
        raise TypeError(f"expected {name} in real numbers, got {tensor.dtype}")
    tensor = tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())
    check_float(tensor, name)
    return tensor
