"""Attention by tiles: FlashAttention-1 (K/V blocks outside) and FlashAttention-2 (Q blocks outside).

    S_ij = scale * Q_i K_j^T                   one block of scores, (block_q, block_k), never stored in HBM
    m_i, l_i, acc <- the one-pass update       with a block of queries and a block of keys at a time

    version 1    for each K_j, V_j: for each Q_i     O, m, l live in HBM: read, rescaled, written every time
    version 2    for each Q_i: for each K_j, V_j     acc, m, l stay on chip: O is divided and written once

The algorithm before (`flashlearn.algorithms.attention`) gave every query its own pass over K and V. What is new:
block_q queries share each K and V tile. So version 2 reads K and V ceil(N_q / block_q) times instead of N_q times.
Version 1 reads them once, but Q, O, m and l ceil(N_k / block_k) times. Version 2 swaps the loops of version 1. One
program then finishes a row block: row blocks can run in parallel, nothing unfinished goes through HBM, and the division
comes at the end. (Its Algorithm 1, line 10, prints diag(.)^-1 where the old acc is scaled: a misprint.)

Shapes, dtypes, options, and rows that attend to no key are as in `flashlearn.algorithms.attention`. A sink is the first
term of every row, before any key: m starts at it, l at 1, O and acc at 0, as its value is 0. Blocks have any size, and
the last of a row or column may be shorter. A block that the mask hides wholly is never visited, and only the blocks
that its edge crosses are masked. All batches and heads take each step together.

Sources: FA-1 is T. Dao et al., "FlashAttention", 2022 (arXiv:2205.14135), Algorithm 1 (masks: Algorithm 2);
FA-2 is T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, overload

from torch import Tensor

from flashlearn.algorithms import captions
from flashlearn.algorithms.attention import online_update
from flashlearn.algorithms.problem import Problem, start
from flashlearn.core.hbm import HBM, OnChip
from flashlearn.core.inputs import Sizes, check_block, check_blocks, check_bool, check_count
from flashlearn.core.mask import Mask, Window
from flashlearn.core.numerics import Span, divide, exp_diff, log_sum_exp, maximum, row_max, spans
from flashlearn.core.options import AttentionKwargs, More
from flashlearn.core.steps import Step, run

if TYPE_CHECKING:
    from flashlearn.core.shapes import Keys, PerQuery, Queries


class TiledOptions(AttentionKwargs, total=False):
    """All options of attention by tiles."""

    block_q: int
    block_k: int


def tiled_attention_v1(
    q: Queries, k: Keys, v: Keys, *, causal: bool = False, window: Window | None = None, scale: float | None = None,
    block_q: int = 64, block_k: int = 64, **more: Unpack[More],
) -> Queries:  # fmt: skip
    """FlashAttention-1: for each block of K and V, update the output of every block of Q."""
    how: dict[str, Any] = {"block_q": block_q, "block_k": block_k, **more}
    return run(tiled_attention_v1_steps(q, k, v, causal=causal, window=window, scale=scale, **how))


def tiled_attention_v1_steps(
    q: Tensor, k: Tensor, v: Tensor, *, block_q: int = 64, block_k: int = 64, **more: Unpack[AttentionKwargs]
) -> Iterator[Step]:
    """One step per visited pair (K_j, Q_i), j outside, after one that initialises O, m and l in HBM.

    m_new = max(m_i, m~)          with m~ = rowmax(S), P~ = exp(S - m~), l~ = rowsum(P~)
    l_new = l_i exp(m_i - m_new) + l~ exp(m~ - m_new)
    O_i   = (l_i exp(m_i - m_new) O_i + exp(m~ - m_new) P~ V_j) / l_new

    So O_i is the attention over the keys so far, divided every time. HBM keeps it, m and l in the dtype of sums
    (float32 for the 16-bit types). The last visit writes O_i in the dtype of q.
    """
    p = Problem.of(q, k, v, **more)
    yield from _version_1(p, block_q, block_k, line_by_line=False)


def tiled_attention_v1_lines(
    q: Tensor, k: Tensor, v: Tensor, *, block_q: int = 64, block_k: int = 64, **more: Unpack[AttentionKwargs]
) -> Iterator[Step]:
    """The run of `tiled_attention_v1_steps` line by line: a step for each of lines 8 to 13 of the paper's Algorithm 1.

    The phases are "line 8" (with line 6, where a K block comes) to "line 13". Every step has the values that are known
    by then; reads, writes and products of the six together are those of the visit.
    """
    p = Problem.of(q, k, v, **more)
    yield from _version_1(p, block_q, block_k, line_by_line=True)


def _version_1(p: Problem, block_q: int, block_k: int, *, line_by_line: bool) -> Iterator[Step]:
    """FA-1 Alg. 1, a step for every visited pair of blocks, or for every line of the inner loop."""
    check_blocks(block_q, block_k)
    hbm = p.memory(captions.tiled, {"O": p.dtype, "l_i": p.wide, "m_i": p.wide}, m_i=p.column, l_i=p.column)
    _store_state(hbm, (0, p.sizes.N_q), *start(hbm, (0, p.sizes.N_q)))  # line 2
    yield hbm.step("initialise")
    blocks = [(j, cols, p.mask.query_blocks(cols, block_q)) for j, cols in enumerate(spans(p.sizes.N_k, block_k))]
    visited = [block for block in blocks if block[2]]
    if visited:
        p.load_slopes(hbm)
    for j, cols, visits in visited:  # line 5
        hbm.load("K", cols), hbm.load("V", cols)  # line 6
        for i, rows in visits:  # line 7
            where = p.coordinates(i, rows, j, cols)
            last = p.mask.key_blocks(rows, block_k)[-1][0] == j
            for line, values in _visit(hbm, p, rows, cols, unfinished=not last):
                if line_by_line:
                    yield hbm.step(f"line {line}", **where, **values)
                elif line == 13:
                    yield hbm.step("blocks", **where, **values)
    yield hbm.done(hbm.output("O"), **count_visits(p.mask, block_q, block_k))  # line 16


def _visit(hbm: HBM, p: Problem, rows: Span, cols: Span, *, unfinished: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """FA-1 Alg. 1, lines 8 to 13: after each its number and the values that a step shows by then."""
    K_j, V_j = hbm.loaded("K"), hbm.loaded("V")
    Q_i, O_i, l_i, m_i = (hbm.load(name, rows) for name in ("Q", "O", "l_i", "m_i"))  # line 8
    seen: dict[str, Any] = {"m_old": m_i, "l_old": l_i}
    yield 8, seen
    S = p.score(Q_i @ K_j.mT, rows, cols)  # line 9
    seen |= {"S": S}
    yield 9, seen
    m_block = row_max(S)  # (B, H_q, rows, 1), line 10
    P = exp_diff(S, m_block)
    l_block = P.sum(-1, keepdim=True)
    seen |= {"P": P, "m_block": m_block, "l_block": l_block}
    yield 10, seen
    m_new = maximum(m_i, m_block)  # line 11
    alpha, beta = exp_diff(m_i, m_new), exp_diff(m_block, m_new)
    l_new = l_i * alpha + l_block * beta
    seen |= {"m_i": m_new, "l_i": l_new, "alpha": alpha, "beta": beta}
    yield 11, seen
    factor = l_i * alpha
    O_new = divide(factor * O_i + beta * (P @ V_j), l_new)  # line 12
    hbm.store("O", rows, O_new, unfinished=unfinished)
    hbm.drop(m_block, l_block)
    seen |= {"O": O_new, "factor": divide(factor.tensor, l_new.tensor)}  # for the reader: no line makes this quotient
    yield 12, seen
    hbm.store("l_i", rows, l_new)  # line 13
    hbm.store("m_i", rows, m_new)
    yield 13, seen


@overload
def tiled_attention_v2(
    q: Queries, k: Keys, v: Keys, *, return_lse: Literal[False] = False, **options: Unpack[TiledOptions]
) -> Queries: ...
@overload
def tiled_attention_v2(
    q: Queries, k: Keys, v: Keys, *, return_lse: Literal[True], **options: Unpack[TiledOptions]
) -> tuple[Queries, PerQuery]: ...
def tiled_attention_v2(
    q: Queries, k: Keys, v: Keys, *, causal: bool = False, window: Window | None = None, scale: float | None = None,
    block_q: int = 64, block_k: int = 64, return_lse: bool = False, **more: Unpack[More],
) -> Queries | tuple[Queries, PerQuery]:  # fmt: skip
    """FlashAttention-2: for each block of Q, run over the blocks of K and V; divide once.

    With `return_lse` also lse (B, H_q, N_q) = log sum_j exp(S_ij), natural logarithm, in float32 (float64 for
    float64), -inf for a row that attends to no key. HBM gets it in either case: the backward pass needs it.
    """
    how: dict[str, Any] = {"block_q": block_q, "block_k": block_k, "return_lse": return_lse, **more}
    return run(tiled_attention_v2_steps(q, k, v, causal=causal, window=window, scale=scale, **how))


def tiled_attention_v2_steps(
    q: Tensor, k: Tensor, v: Tensor, *,
    block_q: int = 64, block_k: int = 64, return_lse: bool = False, **more: Unpack[AttentionKwargs],
) -> Iterator[Step]:  # fmt: skip
    """One step per visited pair (Q_i, K_j), i outside; the last of each row block writes O_i and lse.

    m_new = max(m_i, rowmax(S))    alpha = exp(m_i - m_new)    P~ = exp(S - m_new)
    l_new = l_i alpha + rowsum(P~)           acc = acc alpha + P~ V_j
    O_i   = acc / l_i    lse = m_i + log l_i    after the last block

    A row block that attends to no key has one step, which writes O = 0 and lse = -inf (its j is None). In the steps
    lse is a column, (B, H_q, N_q, 1); the output is without that last dimension.
    """
    p = Problem.of(q, k, v, **more)
    check_blocks(block_q, block_k)
    check_bool(return_lse, "return_lse")
    hbm = p.memory(captions.tiled, {"O": p.dtype, "lse": p.wide}, lse=p.column)
    for i, rows in enumerate(spans(p.sizes.N_q, block_q)):  # FA-2 Alg. 1, line 3
        visits = p.mask.key_blocks(rows, block_k)
        if visits:
            Q_i = p.load_queries(hbm, rows)  # line 4
        m_i, l_i, acc = start(hbm, rows)  # line 5
        for j, cols in visits:  # line 6
            K_j, V_j, m_old = hbm.load("K", cols), hbm.load("V", cols), m_i  # line 7
            S = p.score(Q_i @ K_j.mT, rows, cols)  # line 8
            m_i, l_i, alpha, P = online_update(m_old, l_i, S)  # line 9
            acc = acc * alpha + P @ V_j  # line 10
            if (j, cols) == visits[-1]:
                store_result(hbm, rows, m_i, l_i, acc)  # lines 12 to 15
            seen = {"S": S, "P": P, "m_i": m_i, "l_i": l_i, "acc": acc, "m_old": m_old, "alpha": alpha, "factor": alpha}
            yield hbm.step("blocks", program=(i,), **p.coordinates(i, rows, j, cols), **seen)
        if not visits:
            store_result(hbm, rows, m_i, l_i, acc)
            yield hbm.step("blocks", program=(i,), **p.coordinates(i, rows), m_i=m_i, l_i=l_i, acc=acc)
    output = (hbm.output("O"), hbm.output("lse").squeeze(-1)) if return_lse else hbm.output("O")
    yield hbm.done(output, **count_visits(p.mask, block_q, block_k))  # line 17


class BlockSizes(NamedTuple):
    """Rows of a Q block (B_r in the papers) and of a K/V block (B_c)."""

    block_q: int
    block_k: int


def sram_elements(block_q: int, block_k: int, D: int) -> int:
    """Elements on chip for one Q block and one K/V block: Q_i, O_i, K_j, V_j and S_ij (P~ replaces S).

    2 block_q D + 2 block_k D + block_q block_k

    The columns m_i and l_i, 2 block_q elements more and few compared with the tiles, are left out, as in the paper's
    rule; `sram_peak` counts them. For N = 5, d = 3 and M = 59: blocks (3, 5) need 18 + 30 + 15 = 63, blocks (3, 4)
    need 54.
    """
    check_blocks(block_q, block_k)
    check_block(D, "D")
    block_q, block_k, D = int(block_q), int(block_k), int(D)  # those of NumPy overflow
    return 2 * block_q * D + 2 * block_k * D + block_q * block_k


def paper_block_sizes(M: int, D: int) -> BlockSizes:
    """The paper's blocks for an SRAM of M elements: B_c = ceil(M / 4d), B_r = min(B_c, d); they may not fit.

    While B_r = B_c, each of Q_i, K_j, V_j and O_i takes a quarter of M, rounded up, and nothing is left for S_ij. Where
    B_r = d < B_c, S_ij takes about a quarter and Q_i and O_i less. From M = 8 d^2 + 12 d - 3 on the blocks fit (d = 64
    and M = 98,304: 81,920). Below that they may not. M = 59 and d = 3 give (3, 5), which needs 63; rounding down helps
    there, not always: M = 64, d = 4 give (4, 4), 80. Source: FA-1, Algorithm 1, line 1. ValueError if not even 1 x 1
    blocks fit.
    """
    _check_budget(M, D)
    block_k = math.ceil(M / (4 * D))
    return BlockSizes(min(block_k, D), block_k)


def fitting_block_sizes(M: int, D: int) -> BlockSizes:
    """The largest blocks of the paper's form, B_r = min(B_c, d), that fit in an SRAM of M elements.

    `sram_elements` is B^2 + 4dB for B = B_r = B_c up to d, and 2d^2 + 3d B_c beyond; solve it for the block. ValueError
    if not even 1 x 1 blocks fit, which need 4d + 1 elements. Version 2 reads K and V once for each Q block, as version
    1 does Q and O for each K block. So swap the two sizes for version 1.
    """
    _check_budget(M, D)
    block = math.isqrt(4 * D * D + M) - 2 * D
    return BlockSizes(block, block) if block < D else BlockSizes(D, (M - 2 * D * D) // (3 * D))


def visited_blocks(
    N_q: int, N_k: int, block_q: int, block_k: int, causal: bool = False, window: Window | None = None,
    documents: Tensor | None = None,
) -> int:  # fmt: skip
    """The number of visited pairs (Q block, K block): all T_r T_c, or those not wholly masked.

    Q block i attends to a range of keys, start_i:stop_i, hence sum_i ceil(stop_i / block_k) - floor(start_i / block_k)
    blocks. For N_q = N_k = T B, causal, this is T (T + 1) / 2; for documents of whole blocks, T_n each, the sum of
    T_n^2. ValueError for negative lengths.
    """
    check_blocks(block_q, block_k)
    for size, name in ((N_q, "N_q"), (N_k, "N_k")):
        check_count(size, name)
    mask = Mask.of(Sizes(1, 1, 1, N_q, N_k, 1), causal, window, documents)
    return count_visits(mask, block_q, block_k)["visits"]


def _check_budget(M: int, D: int) -> None:
    check_block(D, "D")
    check_block(M, "M")
    if M < 4 * D + 1:
        raise ValueError(f"expected an SRAM of at least 4 D + 1 = {4 * D + 1} elements for D = {D}, got {M}")


def _store_state(hbm: HBM, rows: Span, m_i: OnChip, l_i: OnChip, O_i: OnChip) -> None:
    """Version 1 stores unfinished results in HBM."""
    hbm.store("O", rows, O_i, unfinished=True)
    hbm.store("l_i", rows, l_i)
    hbm.store("m_i", rows, m_i)


def store_result(hbm: HBM, rows: Span, m_i: OnChip, l_i: OnChip, acc: OnChip) -> None:
    """FA-2 Alg. 1, lines 12 to 15: divide once, and write O_i and lse."""
    hbm.store("O", rows, divide(acc, l_i))
    hbm.store("lse", rows, log_sum_exp(m_i, l_i))


def count_visits(mask: Mask, block_q: int, block_k: int) -> dict[str, int]:
    """The number of visited pairs of blocks, and of all pairs."""
    pairs = len(spans(mask.N_q, block_q)) * len(spans(mask.N_k, block_k))
    visits = sum(len(mask.key_blocks(rows, block_k)) for rows in spans(mask.N_q, block_q))
    return {"visits": visits, "pairs": pairs}
