"""The online softmax of a consumer's 64 queries, in registers, and P as the left factor of P V.

    m_i    (64,)            the running maximum of the scores, times qk_scale = scale * log2(e)
    l_i    (64, 4)          the running sum; four threads share a query, and each adds up what it has
    acc    (64, D)          the sum of P V, a tuple with one matrix for each chunk of the head dimension
    p      (64, BLOCK_N/2)  P in 16 bits, two numbers in each register

Teaching and portable kernels keep m in the scores' own unit and multiply by log2(e) before exp2. Here the scale is positive, so
that max(s) * qk_scale is the maximum of s * qk_scale, and s * qk_scale - m is one fused multiply-add for each score.
Source: FlashAttention-2 (arXiv:2307.08691), Algorithm 1, lines 9 and 10.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashlearn.fast.hopper.mask import ROWS
from flashlearn.fast.hopper.versions import aggregate
from flashlearn.fast.online_softmax import LOG2_E, LOG2E


@aggregate
class Softmax:
    """The running maximum and the running sum of 64 queries."""

    m_i: Any
    l_i: Any

    @gluon.jit
    def update(self, s, qk_scale):
        """With the scores S (64, BLOCK_N): the new maximum, P, whose sums l still lacks, and the factor for what was summed so far."""
        m_new = gl.maximum(self.m_i, gl.max(s, 1) * qk_scale)  # the scale is positive: max and scale may swap
        m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)  # a query that has seen no key yet, or keys of -inf only
        alpha = gl.exp2(self.m_i - m_safe)
        p = gl.exp2(s * qk_scale - m_safe[:, None])  # one fused multiply-add, one exponential
        l_i = self.l_i * gl.convert_layout(alpha, gl.SliceLayout(1, self.l_i.type.layout))[:, None]
        return Softmax(m_new, l_i), p, alpha

    @gluon.jit
    def plus(self, sums):
        """With the sums (64, 4) of a block."""
        return Softmax(self.m_i, self.l_i + sums)

    @gluon.jit
    def total(self):
        """l (64,), summed over the four threads that share a query; 1 where a query saw no key, so that o = 0 / 1 and lse = -inf."""
        l_i = gl.convert_layout(gl.sum(self.l_i, 1), self.m_i.type.layout)
        return gl.where(l_i == 0.0, 1.0, l_i)


@gluon.jit
def initial_softmax(sinks_ptr, head, BLOCK_N: gl.constexpr, S_LAYOUT: gl.constexpr, SINKS: gl.constexpr):
    """Before any key; a sink is one more score of every query, without a value."""
    m_i = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, S_LAYOUT))
    l_i = thread_sums(gl.zeros([ROWS, BLOCK_N], gl.float32, S_LAYOUT))
    if SINKS:  # exp(sink - m) = 1 is in the sum from the start, a quarter with each thread
        m_i = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, S_LAYOUT)) + gl.load(sinks_ptr + head) * LOG2E
        l_i += 0.25
    return Softmax(m_i, l_i)


@gluon.jit
def thread_sums(p):
    """The sum of what each of the four threads that share a query has of P: (64, 4)."""
    pieces = p.reshape([p.shape[0], p.shape[1] // 8, 4, 2])  # a thread has two neighbours of every eight
    return gl.sum(gl.sum(pieces, 3), 1)


@gluon.jit
def rescaled(acc, alpha):
    """acc (64, D), its rows times alpha (64,)."""
    alpha = gl.convert_layout(alpha, gl.SliceLayout(1, acc[0].type.layout))[:, None]
    out: gl.tuple = ()
    for c in gl.static_range(len(acc)):
        out = out + (acc[c] * alpha,)
    return out


@gluon.jit
def in_pairs(p, dtype: gl.constexpr):
    """P (64, BLOCK_N) rounded to 16 bits, neighbours in one register: (64, BLOCK_N / 2) int32.

    As 16-bit numbers, carried from iteration to iteration, they would take a register each.
    """
    low, high = p.reshape([p.shape[0], p.shape[1] // 2, 2]).split()
    name: gl.constexpr = "f16x2" if dtype == gl.float16 else "bf16x2"
    asm: gl.constexpr = "cvt.rn." + name + ".f32 $0, $2, $1;"
    return gl.inline_asm_elementwise(asm, "=r,f,f", [low, high], dtype=gl.int32, is_pure=True, pack=1)


@gluon.jit
def from_pairs(pairs, acc, dtype: gl.constexpr):
    """P (64, BLOCK_N) as the left factor of a product that is added to acc."""
    asm: gl.constexpr = "mov.b32 {$0, $1}, $2;"
    if dtype == gl.float16:
        low, high = gl.inline_asm_elementwise(
            asm, "=h,=h,r", [pairs], dtype=(gl.float16, gl.float16), is_pure=True, pack=1
        )
    else:
        low, high = gl.inline_asm_elementwise(
            asm, "=h,=h,r", [pairs], dtype=(gl.bfloat16, gl.bfloat16), is_pure=True, pack=1
        )
    p = gl.join(low, high).reshape([pairs.shape[0], 2 * pairs.shape[1]])
    return gl.convert_layout(p, gl.DotOperandLayout(0, acc[0].type.layout, 2))


# Softcaps: tanh(x) is 1 - 2 / (1 + e^(2 x)), one more exponential and a division for each score, with an absolute error of about
# 2^-23. A score is then off by c 2^-23, which for c up to 256 is small compared with the rounding of P to 16 bits. Softcaps in use
# are 20 to 50. Larger and tiny ones go to the portable kernels, whose tanh has a small relative error.


def with_softcap(scale: float, softcap: float | None) -> tuple[float, float | None]:
    """The factor that makes an exponent of 2 of what `capped` returns, and the factor inside tanh, or None."""
    if softcap is None:
        return scale * LOG2_E, None
    return softcap * LOG2_E, 2 * LOG2_E * scale / softcap


def score_scale(scale: float, softcap: float | None) -> float:
    """The factor that makes the score of what `capped` returns."""
    return scale if softcap is None else softcap


@gluon.jit
def capped(s, inner):
    """tanh(x), for products s of queries and keys, of which inner s = 2 log2(e) x; without a softcap s itself."""
    if inner is not None:
        s = 1.0 - 2.0 / (1.0 + gl.exp2(s * inner))
    return s
