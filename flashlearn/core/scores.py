"""Scores from q.k: scaled, capped, lowered with distance; and the additional term of the sum.

    x = scale q.k                          scaled
    a = c tanh(x / c)                      capped: at most c to either side, x itself where |x| is far below c (softcap)
    s = a - slope |i + N_k - N_q - j|      the farther the key, the lower its score; a slope for every head (alibi)
    mask (`flashlearn.core.mask`)          after all of these: a hidden key has score -inf, capped or not
    l = e^sink + sum_j e^s_j               one more term in the sum of every row, with a value of 0 (sinks)

In this order. Backward, with dS the gradient of s:

    da = dS       dx = da (1 - (a / c)^2)       dslope = -sum over i, j of dS |i + N_k - N_q - j|
    dsink = -sum over i of e^(sink - lse_i) delta_i           as for any key: P (dP - delta), where dP = 0

Sources: softcap is that of Gemma 2 (arXiv:2408.00118, section 2); slopes are those of O. Press et al., "Train short, test
long", 2021 (arXiv:2108.12409); a learned sink for every head is that of gpt-oss (arXiv:2508.10925).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from flashlearn.core.inputs import MAX_FLOAT64
from flashlearn.core.numerics import T


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of products, before slopes and mask."""

    scale: float
    softcap: float | None = None

    def cap(self, product: T) -> T:
        """a = c tanh(scale q.k / c), or scale q.k without a cap."""
        x = product * self.scale
        return x if self.softcap is None else torch.tanh(x / self.softcap) * self.softcap  # type: ignore[return-value]

    def uncap(self, dS: T, capped: T) -> T:
        """The gradient of scale q.k from that of a: dS (1 - (a / c)^2)."""
        if self.softcap is None:
            return dS
        ratio = capped / self.softcap
        return dS * (1 - ratio * ratio)  # type: ignore[return-value]


def check_softcap(softcap: float | None) -> float | None:
    """The cap as a float, None for none. TypeError for no number, ValueError unless it is positive and finite."""
    if softcap is None:
        return None
    if type(softcap) in (float, int) and 0 < softcap <= MAX_FLOAT64:  # torch.compile can trace this test
        return float(softcap)
    if not isinstance(softcap, (float, Real)) or isinstance(softcap, bool):
        raise TypeError(f"expected softcap to be a number or None, got {type(softcap).__name__}")
    try:
        cap = float(softcap)
    except OverflowError:
        raise ValueError("expected softcap to be finite, got a number past float64") from None
    if not (math.isfinite(cap) and cap > 0):
        none = ", or None for no cap" if cap == 0 else ""
        raise ValueError(f"expected softcap to be positive and finite{none}, got {softcap}")
    return cap


def per_head(t: Tensor | None, name: str, H_q: int, q: Tensor) -> Tensor | None:
    """One number a head as kernels take it, in float32; None for None. 16 bits are converted, the rest is `check_per_head`'s."""
    if t is None:
        return None
    if isinstance(t, Tensor) and t.dtype in (torch.float16, torch.bfloat16):
        t = t.float()
    check_per_head(t, name, H_q, q)
    return t


def check_per_head(t: Tensor, name: str, H_q: int, q: Tensor) -> None:
    """Accept only (H_q,) in float32, on the device of q; where q is float64, float64 is taken too."""
    if not isinstance(t, Tensor):
        raise TypeError(f"expected {name} to be a torch.Tensor, got {type(t).__name__}")
    if t.dtype != torch.float32 and not t.dtype == q.dtype == torch.float64:
        raise TypeError(f"expected {name} in float32, got {t.dtype}")
    if t.shape != (H_q,):
        raise ValueError(f"expected {name} of shape (H_q,) = ({H_q},), got {tuple(t.shape)}")
    if t.device != q.device:
        raise ValueError(f"expected {name} on the device of q, {q.device}, got {t.device}")
