"""The error of shifting every block of scores by its own maximum, next to the right way.

    wrong    acc = sum over j of P~_j V_j      l = sum over j of rowsum(P~_j)      with P~_j = exp(S_j - m~_j)
    right    the same, but acc and l are multiplied by exp(m_old - m) whenever the maximum so far rises

`flashlearn.algorithms.matmul` adds blocks of products, which need no common scale. Blocks of exponentials need one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from flashlearn.algorithms import captions
from flashlearn.algorithms.attention import online_update
from flashlearn.core.hbm import HBM
from flashlearn.core.inputs import check_block
from flashlearn.core.numerics import INF, divide, exp_diff, row_max, spans
from flashlearn.core.steps import Step


def own_scales_steps(s: Tensor, v: Tensor, block_size: int) -> Iterator[Step]:
    """One step per block of the row s (1, N) with values v (N, D), then one that divides; carries the right o (1, D).

    `m_own`, `P_own`, `l_own` and `acc_own` are those of the wrong way, `m_i`, `l_i` and `acc` those of the right one.
    """
    check_block(block_size, "block_size")
    if s.ndim != 2 or len(s) != 1 or v.ndim != 2 or s.shape[1] != len(v):
        raise ValueError(f"expected s (1, N) and v (N, D), got {tuple(s.shape)} and {tuple(v.shape)}")
    shapes = {"S": tuple(s.shape), "V": tuple(v.shape), "O": (1, v.shape[1])}
    hbm = HBM({"S": s, "V": v}, {"O": v.dtype}, shapes, captions.own_scales)
    m_i, l_i, l_own = (hbm.fill("S", None, (0, 1), value) for value in (-INF, 0.0, 0.0))
    acc, acc_own = hbm.fill("O"), hbm.fill("O")
    for cols in spans(s.shape[1], block_size):
        S_j, V_j = hbm.load("S", None, cols), hbm.load("V", cols)
        m_own = row_max(S_j)
        P_own = exp_diff(S_j, m_own)
        l_own, acc_own = l_own + P_own.sum(-1, keepdim=True), acc_own + P_own @ V_j
        m_i, l_i, alpha, P = online_update(m_i, l_i, S_j)
        acc = acc * alpha + P @ V_j
        own: dict[str, Any] = {"m_own": m_own, "P_own": P_own, "l_own": l_own, "acc_own": acc_own}
        yield hbm.step("add a block", cols=cols, m_i=m_i, l_i=l_i, acc=acc, alpha=alpha, **own)
    hbm.store("O", None, divide(acc, l_i))
    last: dict[str, Any] = {"m_i": m_i, "l_i": l_i, "l_own": l_own, "acc_own": acc_own}
    hbm.drop("S", "V")
    hbm.keep(acc)  # O is made in its place
    yield hbm.step("divide", **last)
    yield hbm.done(hbm.output("O"), **last)
