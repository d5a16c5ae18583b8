"""Attention for (B, H, N, D) tensors, in three ways, each a generator of steps and the function that runs it.

    S = scale * Q K^T          scores          (N_q, N_k)
    P = softmax(S)             probabilities   (N_q, N_k), by rows
    O = P V                    output          (N_q, D)

    standard   one operation after the other; S and P are stored in HBM          reads K once, V once
    two pass   softmax is online: keys first, then values; S stays on chip       reads K once, V once
    one pass   softmax times V is online too: one loop over keys and values      reads K once, V once

The algorithm before (`flashlearn.algorithms.softmax`) normalised one row of scores. What is new: the scores are made
here (q.k), so they need not be stored, and softmax is followed by a product with V, so its division can wait. In
two_pass and one_pass each query is a program of its own, which reads the keys and values for itself. All run in
lock-step, one step for every `block_k` keys. Queries share them from `flashlearn.algorithms.tiled` on.

q is (B, H_q, N_q, D), k and v are (B, H_kv, N_k, D) with H_q a multiple of H_kv. They are float16, bfloat16, float32 or
float64, and the output is shaped and typed as q. With `causal` query i attends to the keys j <= i + N_k - N_q, and the
last query to all. With `window` = (left, right) it attends to those from i + N_k - N_q - left to i + N_k - N_q + right;
None is no limit on a side (see `flashlearn.core.mask`). `scale` is 1 / sqrt(D) unless given. `documents`, `key_range`,
`softcap`, `alibi` and `sinks` are those of `flashlearn.core.options.More`. Computed in float32, float64 for float64.

NaN and inf: a hidden key has weight 0, and 0 times NaN is NaN. A NaN in V reaches all queries that are multiplied with
its block: in standard_attention every query. A NaN in K or V reaches their gradients. Keys outside of `key_range` may
hold anything.

At the edges: a query that attends to no key gets output 0, lse = -inf (the sink of its head, with sinks) and zero gradients, never NaN. Gradients flow
through all of them. Sentences follow the last query of the first head, which attends to every key unless a window hides some.

Sources: the one-pass recurrence is the loop over keys of T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691),
Algorithm 1, with blocks of one query; its normalised form is that of T. Dao et al., "FlashAttention", 2022
(arXiv:2205.14135), Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack

from torch import Tensor

from flashlearn.algorithms import captions
from flashlearn.algorithms.problem import Problem, start
from flashlearn.core.hbm import HBM, OnChip
from flashlearn.core.inputs import check_block, check_bool
from flashlearn.core.mask import Window
from flashlearn.core.numerics import INF, Span, T, divide, exp_diff, log_sum_exp, maximum, row_max, spans
from flashlearn.core.options import AttentionKwargs, More
from flashlearn.core.steps import Step, run

if TYPE_CHECKING:
    from flashlearn.core.shapes import Keys, Queries


def standard_attention(
    q: Queries, k: Keys, v: Keys, *, causal: bool = False, window: Window | None = None, scale: float | None = None,
    **more: Unpack[More],
) -> Queries:  # fmt: skip
    """softmax(scale * Q K^T) V, one operation after the other, S and P stored in HBM. See the module."""
    return run(standard_attention_steps(q, k, v, causal=causal, window=window, scale=scale, **more))


def standard_attention_steps(q: Tensor, k: Tensor, v: Tensor, **more: Unpack[AttentionKwargs]) -> Iterator[Step]:
    """One step per operation, each on whole matrices: scores, softmax, weighted sum (FA-1, Algorithm 0).

    S and P are stored in the dtype of q. `on_chip` is empty: how a library cuts each operation is not modelled.
    """
    p = Problem.of(q, k, v, **more)
    rows, cols = (0, p.sizes.N_q), (0, p.sizes.N_k)
    hbm = p.memory(captions.standard, {name: p.dtype for name in "SPO"}, whole=True, P=(*p.column[:3], p.sizes.N_k))
    product = hbm.load("Q") @ hbm.load("K").mT  # (B, H_q, N_q, N_k), FA-1 Alg. 0, line 1
    p.load_slopes(hbm)
    hbm.store("S", rows, p.score(product, rows, cols))
    yield hbm.step("scores")
    hbm.store("P", rows, softmax_of(*load_scores(p, hbm)))  # line 2
    yield hbm.step("softmax")
    hbm.store("O", rows, hbm.load("P") @ hbm.load("V"))  # line 3
    yield hbm.step("weighted sum")
    yield hbm.done(hbm.output("O"))  # line 4


def two_pass_attention(
    q: Queries, k: Keys, v: Keys, *, causal: bool = False, window: Window | None = None, scale: float | None = None,
    block_k: int = 1, recompute: bool = False, **more: Unpack[More],
) -> Queries:  # fmt: skip
    """Attention in a pass over the keys (maximum and sum) and one over the values (weighted sum).

    The scores are kept on chip, N_k for each query. With `recompute` the second pass reads K again and recomputes them.
    """
    how: dict[str, Any] = {"block_k": block_k, "recompute": recompute, **more}
    return run(two_pass_attention_steps(q, k, v, causal=causal, window=window, scale=scale, **how))


def two_pass_attention_steps(
    q: Tensor, k: Tensor, v: Tensor, *, block_k: int = 1, recompute: bool = False, **more: Unpack[AttentionKwargs]
) -> Iterator[Step]:
    """One step per block of keys and pass, for all queries at once; then one that writes O.

    s_i = scale * q.k_i    m_i = max(m_{i-1}, s_i)    l_i = l_{i-1} exp(m_{i-1} - m_i) + exp(s_i - m_i)
    o_i = o_{i-1} + exp(s_i - m_N) / l_N * v_i

    The lines are those of Milakov 2018, Algorithm 3, for the scores; their products with the values join its second loop.
    """
    p = Problem.of(q, k, v, **more)
    check_block(block_k, "block_k")
    check_bool(recompute, "recompute")
    hbm = p.memory(captions.one_query, {"O": p.dtype})
    m_i, l_i, _ = start(hbm, (0, p.sizes.N_q), p.sizes.N_q)  # lines 1 and 2
    Q = _load_queries(hbm, p)
    kept: dict[Span, OnChip] = {}  # the scores of every block
    for rows, cols in _visits(p, block_k):  # line 3
        S, m_old = _scores(hbm, p, Q, rows, cols), m_i
        m_i, l_i, alpha, _ = online_update(m_old, l_i, S)  # lines 4 and 5
        if not recompute:
            kept[cols] = S
            hbm.keep(S)
        yield hbm.step("maximum and sum", rows=rows, cols=cols, S=S, m_i=m_i, l_i=l_i, m_old=m_old, alpha=alpha)
    hbm.drop("K")
    acc = hbm.fill("Q")
    for rows, cols in _visits(p, block_k):  # line 7
        S = _scores(hbm, p, Q, rows, cols) if recompute else kept[cols]
        P = divide(exp_diff(S, m_i), l_i)  # (B, H_q, N_q, block_k), line 8
        acc = acc.put(rows, acc.rows(rows) + P.rows(rows) @ _load_for_each(hbm, p, "V", rows, cols))
        yield hbm.step("weighted sum", rows=rows, cols=cols, S=S, P=P, m_i=m_i, l_i=l_i, acc=acc)
    hbm.drop(*kept.values())
    hbm.store("O", None, acc)
    yield from _finish(hbm, "write", m_i, l_i, acc)


def one_pass_attention(
    q: Queries, k: Keys, v: Keys, *, causal: bool = False, window: Window | None = None, scale: float | None = None,
    block_k: int = 1, normalised: bool = False, **more: Unpack[More],
) -> Queries:  # fmt: skip
    """Attention in one pass over keys and values, divided by l at the end, or always if `normalised`."""
    how: dict[str, Any] = {"block_k": block_k, "normalised": normalised, **more}
    return run(one_pass_attention_steps(q, k, v, causal=causal, window=window, scale=scale, **how))


def one_pass_attention_steps(
    q: Tensor, k: Tensor, v: Tensor, *, block_k: int = 1, normalised: bool = False, **more: Unpack[AttentionKwargs]
) -> Iterator[Step]:
    """One step per block of keys, for all queries at once; then one that writes O.

    s_i = scale * q.k_i    m_i = max(m_{i-1}, s_i)    l_i = l_{i-1} exp(m_{i-1} - m_i) + exp(s_i - m_i)
    acc_i = acc_{i-1} exp(m_{i-1} - m_i) + exp(s_i - m_i) v_i                        then o = acc_N / l_N
    o'_i  = o'_{i-1} exp(m_{i-1} - m_i) l_{i-1} / l_i + exp(s_i - m_i) / l_i v_i     if `normalised`

    The second form has o', the attention over the keys so far, as `values["o'"]` in place of `values["acc"]`. There
    `values["P"]` has the weights of the new keys, divided by l_i. `values["factor"]` is the factor of the old acc or
    o'. `operations` counts the operations of one query in this step, without matrix products;
    `flashlearn.cost.operations` adds them up. The lines are those of FA-2, Algorithm 1, for all queries at once.
    """
    p = Problem.of(q, k, v, **more)
    check_block(block_k, "block_k")
    check_bool(normalised, "normalised")
    hbm = p.memory(captions.one_query, {"O": p.dtype})
    m_i, l_i, acc = start(hbm, (0, p.sizes.N_q), p.sizes.N_q)  # line 5
    Q = _load_queries(hbm, p)  # line 4
    for rows, cols in _visits(p, block_k):  # line 6
        S, m_old = _scores(hbm, p, Q, rows, cols), m_i  # lines 7 and 8
        m_i = maximum(m_old, row_max(S))  # line 9
        alpha, P = exp_diff(m_old, m_i), exp_diff(S, m_i)
        scaled = l_i * alpha
        l_i = scaled + P.sum(-1, keepdim=True)
        factor, weights = (divide(scaled, l_i), divide(P, l_i)) if normalised else (alpha, P)
        acc = acc * factor
        V_j = _load_for_each(hbm, p, "V", rows, cols)
        acc = acc.put(rows, acc.rows(rows) + weights.rows(rows) @ V_j)  # line 10
        seen: dict[str, Any] = {"S": S, "P": weights, "m_i": m_i, "l_i": l_i, "m_old": m_old}
        seen["o'" if normalised else "acc"] = acc
        yield hbm.step("one pass", rows=rows, cols=cols, normalised=normalised, **seen, alpha=alpha, factor=factor)
    hbm.store("O", None, acc if normalised else divide(acc, l_i))  # line 12
    yield from _finish(hbm, "write" if normalised else "divide", m_i, l_i, acc, normalised=normalised)


def online_update(m_i: T, l_i: T, S: T) -> tuple[T, T, T, T]:
    """Update the running maximum and sum with a block of scores; returns m, l, alpha and P.

    m     = max(m_i, rowmax(S))          alpha = exp(m_i - m)
    P     = exp(S - m)                   l     = l_i alpha + rowsum(P)

    S and P are (..., rows, width), the others (..., rows, 1); tensors or tiles on chip. Sums against the old maximum
    have to be multiplied by alpha. Source: FA-2, Algorithm 1, line 9.
    """
    m = maximum(m_i, row_max(S))
    alpha, P = exp_diff(m_i, m), exp_diff(S, m)
    return m, l_i * alpha + P.sum(-1, keepdim=True), alpha, P  # type: ignore[return-value]


def softmax_of(S: T, sinks: T | None = None) -> T:
    """P = softmax(S) by rows, 0 for a row that is -inf throughout; sinks (1, H_q, 1, 1) take part in the sum."""
    m = row_max(S)
    m = m if sinks is None else maximum(m, sinks)
    weights = exp_diff(S, m)
    l = weights.sum(-1, keepdim=True)
    return divide(weights, l if sinks is None else l + exp_diff(sinks, m))  # type: ignore[return-value]


def load_scores(p: Problem, hbm: HBM) -> tuple[OnChip, OnChip | None]:
    """S as it is stored, and the sinks of the heads if there are any, for `softmax_of`."""
    return hbm.load("S"), hbm.load("sinks", times=p.sizes.B) if "sinks" in p.given else None


def _visits(p: Problem, block_k: int) -> list[tuple[Span, Span]]:
    """(queries, keys) of every block of keys that some query attends to."""
    blocks = ((p.mask.queries(cols), cols) for cols in spans(p.sizes.N_k, block_k))
    return [(rows, cols) for rows, cols in blocks if rows[0] < rows[1]]


def _load_queries(hbm: HBM, p: Problem) -> OnChip:
    """The queries that attend to any key, each by its own program; they stay on chip."""
    rows = p.mask.queries((0, p.sizes.N_k))
    return p.load_queries(hbm, rows, programs=rows[1] - rows[0])


def _load_for_each(hbm: HBM, p: Problem, name: str, rows: Span, cols: Span) -> OnChip:
    """A block of K or V, which each query of `rows`, in every head of the group, reads for itself."""
    return hbm.load(name, cols, times=p.sizes.group * (rows[1] - rows[0]))


def _scores(hbm: HBM, p: Problem, Q: OnChip, rows: Span, cols: Span) -> OnChip:
    """The scores of the queries that attend to a block of keys, -inf for the others: (B, H_q, N_q, block_k)."""
    K_j = _load_for_each(hbm, p, "K", rows, cols)
    return hbm.fill("S", None, cols, -INF).put(rows, p.score(Q.rows(rows) @ K_j.mT, rows, cols))


def _finish(hbm: HBM, phase: str, m_i: OnChip, l_i: OnChip, acc: OnChip, **more: Any) -> Iterator[Step]:
    """The step that writes O, and the last one, which carries it."""
    hbm.drop("Q", "K", "V")
    hbm.keep(acc)  # O was made in its place
    written = hbm.step(phase, m_i=m_i, l_i=l_i, **more)
    yield written
    m, l = written.values["m_i"], written.values["l_i"]
    yield hbm.done(hbm.output("O"), m_i=m, l_i=l, lse=log_sum_exp(m, l))
