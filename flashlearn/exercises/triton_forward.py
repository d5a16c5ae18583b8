"""Exercises of notebook 12: the causal mask, and the body of the kernel's loop with three bugs in it.

The answers are functions of tiles that were already loaded, so that no answer can read or write memory that is
not its own: the kernels around them are below. They run on a GPU, or in Triton's interpreter.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from flashlearn.core.mask import causal_mask
from flashlearn.exercises.grading import Case, Exercise
from flashlearn.exercises.launching import launch
from flashlearn.exercises.mistakes.triton_forward import MISTAKES
from flashlearn.exercises.solutions.triton_forward import bugs_solution, causal_solution

if TYPE_CHECKING:
    import triton.language as tl
else:
    tl = None  # triton.language once a check runs: this module must import where Triton is missing
INF = float("inf")


def mask_kernel(
    s_ptr, out_ptr, start_m, start_n, N_q, N_k,
    HIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Hand one block of scores (BLOCK_M, BLOCK_N) to HIDE and store what comes back."""
    at = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    s = tl.load(s_ptr + at)
    hidden = HIDE(s, start_m, start_n, N_q, N_k)
    tl.store(out_ptr + at, tl.broadcast_to(hidden, (BLOCK_M, BLOCK_N)))


def visit_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, start_m, N_q, N_k, qk_scale,
    VISIT: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One block of queries against all keys, VISIT doing the work; tensors are (N, D), contiguous."""
    rows = start_m + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + rows[:, None] * D + d, mask=(rows < N_q)[:, None], other=0.0)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for start_n in range(0, N_k, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        mask = (keys < N_k)[:, None]
        k = tl.load(k_ptr + keys[:, None] * D + d, mask=mask, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * D + d, mask=mask, other=0.0)
        m_i, l_i, acc = VISIT(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale)
    l_i = tl.where(l_i == 0.0, 1.0, l_i)
    at = tl.arange(0, BLOCK_M)
    tl.store(o_ptr + at[:, None] * D + d, tl.broadcast_to(acc / l_i[:, None], (BLOCK_M, D)))
    tl.store(lse_ptr + at, tl.broadcast_to((m_i + tl.log2(l_i)) * 0.6931471805599453, (BLOCK_M,)))


def _causal(N_q, N_k, start_m, start_n, shape=(16, 32)):
    """A block of scores, and the same with -inf where the mask hides; rows past the last query do not count."""

    def compare(function):
        s = torch.randn(shape, generator=torch.Generator().manual_seed(N_q + N_k))
        got = torch.full(shape, torch.nan)
        launch(mask_kernel, s, got, start_m, start_n, N_q, N_k, HIDE=function, BLOCK_M=shape[0], BLOCK_N=shape[1])
        visible = torch.zeros(start_m + shape[0], start_n + shape[1], dtype=torch.bool)
        visible[:N_q, :N_k] = causal_mask(N_q, N_k)[: len(visible), : visible.shape[1]]
        want = s.masked_fill(~visible[start_m:, start_n:], -INF)
        real = max(0, min(shape[0], N_q - start_m))
        return got[:real], want[:real]

    return compare


def _visits(N_q, N_k, start_m=0, hidden_key=None, scale=0.25, size=1.0, signs=False, mean=0.0, dtype=torch.float32):
    """o and lse of the 32 queries from start_m on, over blocks of 16 keys; one key may be huge.

    `size` is that of q; with `signs` the scores of a row have one sign, by turns. With a `mean` the values lie
    around it, and o is compared in units of it.
    """

    def compare(function):
        generator = torch.Generator().manual_seed(N_q + N_k)
        q, k, v = (torch.randn(n, 16, generator=generator) for n in (N_q, N_k, N_k))
        if hidden_key is not None:
            q, k[hidden_key] = q.abs(), 100.0
        if signs:
            q, k = q.abs() * torch.tensor([1.0, -1.0]).repeat(N_q)[:N_q, None], k.abs()
        q, k, v = (size * q).to(dtype), k.to(dtype), (v + mean + mean * v / 4).to(dtype)
        o, lse = torch.full((32, 16), torch.nan), torch.full((32,), torch.nan)
        launch(
            visit_kernel,
            q,
            k,
            v,
            o,
            lse,
            start_m,
            N_q,
            N_k,
            scale * math.log2(math.e),
            VISIT=function,
            D=16,
            BLOCK_M=32,
            BLOCK_N=16,
        )
        s = (q.double() @ k.double().mT * scale).masked_fill(~causal_mask(N_q, N_k), -INF)
        real = slice(start_m, min(N_q, start_m + 32))
        want = torch.softmax(s, -1).nan_to_num(0.0) @ v.double(), torch.logsumexp(s, -1)
        count, unit = real.stop - real.start, max(mean, 1.0)
        return (o[:count] / unit, lse[:count]), (want[0][real] / unit, want[1][real])

    return compare


EXERCISES = (
    Exercise(
        "12.causal",
        "hide(s, start_m, start_n, N_q, N_k): scores (BLOCK_M, BLOCK_N) -> the same, -inf where the mask hides",
        causal_solution,
        (
            Case("on the diagonal", _causal(64, 64, 0, 0), "query i sees keys j <= i: >= on the other side, not >"),
            Case("left of the diagonal", _causal(64, 64, 48, 0), "all visible: rows start at start_m, not at 0"),
            Case("right of the diagonal", _causal(64, 64, 0, 32), "all hidden: keys start at start_n, not at 0"),
            Case(
                "more keys than queries",
                _causal(16, 40, 0, 0),
                "aligned to the bottom right: query i sees keys j <= i + N_k - N_q",
            ),
            Case(
                "more queries than keys",
                _causal(48, 24, 16, 0),
                "the first N_q - N_k queries see no key: all of their scores are -inf",
            ),
            Case("a tall block", _causal(40, 40, 32, 32, (32, 16)), "take both lengths from s.shape"),
            Case(
                "left, but all hidden",
                _causal(96, 24, 48, 0),
                "which side of the diagonal a block is on depends on N_k - N_q too: compare entry by entry",
            ),
            Case(
                "right, but all visible",
                _causal(16, 80, 0, 32),
                "which side of the diagonal a block is on depends on N_k - N_q too: compare entry by entry",
            ),
        ),
        hints=(
            "First number the rows and columns of the block: start_m + tl.arange(0, rows), and the same for the keys. Who sees whom?",
            "Query i sees key j if j <= i + N_k - N_q. Lay the queries along one axis, the keys along the other: rows[:, None], keys[None, :].",
            "visible = keys[None, :] <= rows[:, None] + N_k - N_q, then tl.where(visible, s, ...). Both lengths are in s.shape.",
        ),
        mistakes=MISTAKES["12.causal"],
    ),
    Exercise(
        "12.bugs",
        "visit(m_i, l_i, acc, q, k, v, rows, keys, N_q, N_k, qk_scale) -> (m_i, l_i, acc), causal",
        bugs_solution,
        (
            Case("the first block of queries", _visits(32, 32), "compare with lines 8 to 10 of the algorithm", 1e-2),
            Case(
                "several blocks of keys",
                _visits(64, 64, 32),
                "alpha moves what was collected so far to the new maximum, l_i and acc; new terms are there already",
                1e-2,
            ),
            Case(
                "large scores",
                _visits(48, 48, size=80.0, signs=True),
                "the running maximum, of this block and all before it, may have any size and either sign: subtract it",
                1e-2,
            ),
            Case(
                "a hidden key of large score",
                _visits(32, 32, hidden_key=31),
                "a hidden score must not reach the maximum: every other exponential then rounds to 0",
                1e-2,
            ),
            Case(
                "more keys than queries",
                _visits(20, 50),
                "aligned to the bottom right: query i sees keys j <= i + N_k - N_q",
                1e-2,
            ),
            Case(
                "queries that see no key", _visits(40, 24), "m stays -inf there: subtract 0 instead, or get NaN", 1e-2
            ),
            Case(
                "another scale", _visits(32, 32, scale=0.75), "qk_scale is handed over, log2(e) included: use it", 1e-2
            ),
            Case(
                "float16",
                _visits(32, 32, size=40.0, dtype=torch.float16),
                "both factors of tl.dot in one dtype, p.to(v.dtype), and nothing else rounded: scores stay float32",
                1e-2,
            ),
            Case(
                "float16, large values",
                _visits(48, 48, 16, size=0.2, mean=20000.0, dtype=torch.float16),
                "what tl.dot gives is float32, and acc is: keep both. Sums in float16 end at 65,504",
                1e-2,
            ),
        ),
        hints=(
            "Read it beside lines 8 to 10 of the algorithm. One bug is about order, one about a factor, one about an alignment.",
            "Which scores may raise the maximum? What does alpha move to the new maximum? What does the last query see if N_k > N_q?",
            "Mask before the maximum. alpha rescales what was there before, l_i and acc alike, and no new term. The mask needs N_k - N_q.",
        ),
        mistakes=MISTAKES["12.bugs"],
        values=("o", "lse"),
    ),
)
