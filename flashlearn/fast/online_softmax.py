"""From products of queries and keys to softmax inside a kernel: changed scores, and the online update in two forms.

exp(x) is computed as exp2(x log2(e)), the one exponential of the hardware. The two forms differ in where the scale goes:

    online_softmax_update              takes scores. The scale is applied to each score before, log2(e) to the difference
                                       from the maximum: for scores that are capped or sloped, and where time is that of
                                       reading (decoding, pages). The teaching kernels do the same.
    online_softmax_update_of_products  takes products q.k. The maximum is that of the products, and c = |scale| log2(e)
                                       goes into the exponent: exp2(s c - m c) is one fused multiply-add and one
                                       exponential for each score (portable and Hopper forward kernels).

Before it, a product of a query and a key becomes a score, and a sink is one more term e^sink in every row's sum, whose value is 0:

    x = q.k scale        capped = c tanh(x / c)        score = capped - slope |i + N_k - N_q - j|
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

LOG2_E = math.log2(math.e)  # for launchers
LOG2E = tl.constexpr(LOG2_E)  # the same for kernels
LN_2 = tl.constexpr(math.log(2))
NOTHING = tl.constexpr(float("-inf"))  # the score of a hidden key


@triton.jit
def online_softmax_update(m_i, l_i, acc, s, v, PRECISION: tl.constexpr):
    """Scores s (BLOCK_M, BLOCK_N) and values v (BLOCK_N, BLOCK_D) into (m, l, acc)."""
    m_new = tl.maximum(m_i, tl.max(s, 1))  # (BLOCK_M,)
    # a query that has attended to no key has m = -inf, and -inf + inf would be NaN: subtract 0 there
    m_safe = tl.where(m_new == NOTHING, 0.0, m_new)
    p = tl.exp2((s - m_safe[:, None]) * LOG2E)  # (BLOCK_M, BLOCK_N)
    alpha = tl.exp2((m_i - m_safe) * LOG2E)  # (BLOCK_M,), 0 on the first block
    l_i = l_i * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)
    return m_new, l_i, acc


@triton.jit
def online_softmax_update_of_products(m_i, l_i, acc, s, v, qk_scale, PRECISION: tl.constexpr):
    """Products s (BLOCK_M, BLOCK_N), not yet scaled, and values v (BLOCK_N, BLOCK_D) into (m, l, acc)."""
    m_new = tl.maximum(m_i, tl.max(s, 1))  # (BLOCK_M,)
    m_safe = tl.where(m_new == NOTHING, 0.0, m_new)
    if v.dtype == tl.float32:  # fused, the rounding of the shift stays in: 2^-24 of it, too much for scores beyond 2^24
        p = tl.exp2((s - m_safe[:, None]) * qk_scale)  # (BLOCK_M, BLOCK_N)
        alpha = tl.exp2((m_i - m_safe) * qk_scale)  # (BLOCK_M,), 0 on the first block
    else:
        shift = m_safe * qk_scale
        p = tl.exp2(tl.fma(s, qk_scale, -shift[:, None]))
        alpha = tl.exp2(tl.fma(m_i, qk_scale, -shift))
    l_i = l_i * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)
    return m_new, l_i, acc


@triton.jit
def with_sink(m, l, acc, sink):
    """The sink into (m, l, acc), as a last score whose value is 0."""
    m_new = tl.maximum(m, sink)
    m_safe = tl.where(m_new == NOTHING, 0.0, m_new)
    alpha = tl.exp2((m - m_safe) * LOG2E)
    return m_new, l * alpha + tl.exp2((sink - m_safe) * LOG2E), acc * alpha[:, None]


@triton.jit
def merge_splits(
    m, l, acc, o_splits_ptr, lse_splits_ptr, splits, mask, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, CACHE: tl.constexpr
):  # fmt: skip
    """The results of splits (BLOCK_R, BLOCK_S) into (m, l, acc): their lse are scores, their o values. CACHE: where they are read."""
    offs_d = tl.arange(0, BLOCK_D)[None, None, :]
    lse_s = tl.load(lse_splits_ptr + splits, mask=mask, other=NOTHING, cache_modifier=CACHE)
    o_s = tl.load(o_splits_ptr + splits[:, :, None] * HEAD_DIM + offs_d, mask=mask[:, :, None] & (offs_d < HEAD_DIM),
                  other=0.0, cache_modifier=CACHE)  # (BLOCK_R, BLOCK_S, BLOCK_D)  # fmt: skip
    m_new = tl.maximum(m, tl.max(lse_s, 1))
    m_safe = tl.where(m_new == NOTHING, 0.0, m_new)  # no split so far attended to a key
    p = tl.exp(lse_s - m_safe[:, None])
    alpha = tl.exp(m - m_safe)
    return m_new, l * alpha + tl.sum(p, 1), acc * alpha[:, None] + tl.sum(p[:, :, None] * o_s, 1)


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
