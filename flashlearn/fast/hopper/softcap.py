"""Scores bounded by a softcap, c tanh(score / c), inside the Hopper kernels.

tanh(x) is 1 - 2 / (1 + e^(2 x)): one more exponential and a division for each score, with an absolute error of about 2^-23. A score
is then off by c 2^-23, which for c up to 256 is small compared with the rounding of P to 16 bits. Softcaps in use are 20 to 50.
Larger and tiny ones go to the portable kernels, whose tanh has a small relative error. Without a softcap no instruction is added.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashlearn.fast.online_softmax import LOG2_E


def with_softcap(scale: float, softcap: float | None) -> tuple[float, float | None]:
    """The factor that makes an exponent of 2 of what `capped` returns, and the factor inside tanh, or None."""
    if softcap is None:
        return scale * LOG2_E, None
    return softcap * LOG2_E, 2 * LOG2_E * scale / softcap


def factor_of(scale: float, softcap: float | None) -> float:
    """The factor that makes the score of what `capped` returns."""
    return scale if softcap is None else softcap


@gluon.jit
def capped(s, inner):
    """tanh(x), for products s of queries and keys, of which inner s = 2 log2(e) x; without a softcap s itself."""
    if inner is not None:
        s = 1.0 - 2.0 / (1.0 + gl.exp2(s * inner))
    return s
