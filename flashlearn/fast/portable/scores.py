"""What becomes of a product of a query and a key before the softmax, inside a kernel, and its derivative.

    x = q.k scale        capped = c tanh(x / c)        score = capped - slope |i + N_k - N_q - j|

and a sink, one more term e^sink in every row's sum, whose value is 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flashlearn.fast.online_softmax import LOG2E


@triton.jit
def tanh(x):
    """tanh(x) to about two roundings of itself: near 0 by its series, elsewhere as 1 - 2 / (1 + e^(2 |x|))."""
    size = tl.abs(x)
    square = tl.minimum(x * x, 1.0)
    series = 21844.0 / 6081075.0
    series = series * square - 1382.0 / 155925.0
    series = series * square + 62.0 / 2835.0
    series = series * square - 17.0 / 315.0
    series = series * square + 2.0 / 15.0
    series = series * square - 1.0 / 3.0
    decay = tl.exp2(size * (-2.0 * LOG2E))
    far = 1.0 - 2.0 * decay / (1.0 + decay)
    near = size + size * square * series
    size = tl.where(size < 0.4, near, far)
    return tl.where(x < 0.0, -size, size)


@triton.jit
def scored(s, rows, cols, diagonal, scale, softcap, slope):
    """Scores of products s, and d capped / d x, which is 1 without a softcap; softcap, slope: None if there is none."""
    s = s * scale
    damp = 1.0
    if softcap is not None:
        t = tanh(s / softcap)
        s = softcap * t
        damp = 1.0 - t * t
    if slope is not None:
        s = s - slope * tl.abs(rows + diagonal - cols).to(tl.float32)
    return s, damp


@triton.jit
def slope_of(alibi_ptr, head):
    """A head's slope; None if there are none."""
    slope = None
    if alibi_ptr is not None:
        slope = tl.load(alibi_ptr + head)
    return slope
