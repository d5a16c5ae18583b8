"""Attention by tiles: FlashAttention-1 (K/V blocks outside) and FlashAttention-2 (Q blocks outside).

    S_ij = scale * Q_i K_j^T                   one block of scores, (block_q, block_k), never stored in HBM
    m_i, l_i, acc <- the one-pass update       with a block of queries and a block of keys at a time

    version 1    for each K_j, V_j: for each Q_i     O, m, l live in HBM: read, rescaled, written every time
    version 2    for each Q_i: for each K_j, V_j     acc, m, l stay on chip: O is divided and written once

The rung before (`flashlearn.rungs.attention`) gave every query its own pass over K and V. What is new: block_q
queries share each K and V tile, so K and V are read N_q / block_q times instead of N_q times. Version 2
swaps the loops of version 1: a row block is then finished by one program, so that the row blocks can run in
parallel, nothing unfinished goes through HBM, and the division waits until the end.

Shapes, dtypes, `causal`, `scale`, and rows that see no key are as in `flashlearn.rungs.attention`. Blocks of any
size will do, the last of a row or column being shorter. Causal: a block above the diagonal is never visited,
and only the blocks that the diagonal crosses are masked. All batches and heads take each step together.

Sources: FA-1 is T. Dao et al., "FlashAttention", 2022 (arXiv:2205.14135), Algorithm 1 (masks: Algorithm 2);
FA-2 is T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from flashlearn.core.inputs import Sizes, check_block, check_qkv, resolve_scale
from flashlearn.core.steps import Step, Tile, run
from flashlearn.rungs.attention import (
    crosses,
    diagonal_of,
    divide,
    log_sum_exp,
    matrix_shapes,
    online_update,
    per_query_head,
    row_max,
    scores,
    spans,
    start,
    wide,
)
from flashlearn.rungs.softmax import INF, exp_diff


def tiled_attention_v1(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None,
    block_q: int = 64, block_k: int = 64,
) -> Tensor:  # fmt: skip
    """FlashAttention-1: for each block of K and V, update the output of every block of Q."""
    options = {"causal": causal, "scale": scale, "block_q": block_q, "block_k": block_k}
    return run(tiled_attention_v1_steps(q, k, v, **options))


def tiled_attention_v1_steps(q: Tensor, k: Tensor, v: Tensor, *, causal=False, scale=None, block_q=64,
                             block_k=64) -> Iterator[Step]:  # fmt: skip
    """One step per visited pair (K_j, Q_i), j outside, after one that initialises O, m and l in HBM.

    m_new = max(m_i, m~)          with m~ = rowmax(S), P~ = exp(S - m~), l~ = rowsum(P~)
    l_new = l_i exp(m_i - m_new) + l~ exp(m~ - m_new)
    O_i   = (l_i exp(m_i - m_new) O_i + exp(m~ - m_new) P~ V_j) / l_new

    O_i is thus the attention over the keys so far, divided every time. HBM holds it, m and l in the dtype
    that sums are kept in (float32 for the 16-bit types), until its last visit writes it in the dtype of q.
    """
    sizes = check_qkv(q, k, v)
    scale, diagonal = resolve_scale(scale, sizes.D), diagonal_of(sizes, causal)
    q_blocks, k_blocks = _blocks(sizes, block_q, block_k)  # FA-1 Alg. 1, lines 3 and 4
    k_wide, v_wide = wide(per_query_head(k, sizes)), wide(per_query_head(v, sizes))
    inputs, column = {"Q": q, "K": k, "V": v}, (sizes.B, sizes.H_q, sizes.N_q, 1)
    shapes = {**matrix_shapes(sizes), "m_i": column, "l_i": column}
    m, l, O = start(q)  # FA-1 Alg. 1, line 2
    writes, values = _row_tiles((0, sizes.N_q), O=O, l_i=l, m_i=m), {"O": O, "l_i": l, "m_i": m}
    sentence = "Write O = 0, l = 0 and m = -inf to HBM for every row."
    yield Step(sentence, "initialise", shapes, writes=writes, values={**inputs, **values})
    m, l, O = ([t[:, :, i0:i1] for i0, i1 in q_blocks] for t in (m, l, O))
    for j, cols in enumerate(k_blocks):  # FA-1 Alg. 1, line 5
        keys = slice(*cols)
        visited = [i for i, rows in enumerate(q_blocks) if is_visible(rows, cols, diagonal)]
        for i in visited:  # FA-1 Alg. 1, line 7; K_j and V_j come with the first visit (line 6)
            rows = q_blocks[i]
            m_old, l_old, O_old = m[i], l[i], O[i]  # FA-1 Alg. 1, line 8
            q_i = wide(q[:, :, slice(*rows)])  # (B, H_q, rows, D)
            S = scores(q_i, k_wide[:, :, keys], scale, rows, cols, diagonal)  # FA-1 Alg. 1, line 9
            m_block = row_max(S)  # (B, H_q, rows, 1), FA-1 Alg. 1, line 10
            P = exp_diff(S, m_block)
            m[i] = torch.maximum(m_old, m_block)  # FA-1 Alg. 1, line 11
            alpha, beta = exp_diff(m_old, m[i]), exp_diff(m_block, m[i])
            l[i] = l_old * alpha + P.sum(-1, keepdim=True) * beta
            PV = P @ v_wide[:, :, keys]  # (B, H_q, rows, D)
            O[i] = divide(l_old * alpha * O_old + beta * PV, l[i])  # FA-1 Alg. 1, line 12
            final = j + 1 == len(k_blocks) or not is_visible(rows, k_blocks[j + 1], diagonal)
            if final:
                O[i] = O[i].to(q.dtype)
            state = _row_tiles(rows, O=O_old, l_i=l_old, m_i=m_old)
            writes = _row_tiles(rows, O=O[i], l_i=l[i], m_i=m[i])
            loads = "KVQ" if i == visited[0] else "Q"
            values = {"S": S, "P": P, "m_i": m[i], "l_i": l[i], "O": O[i], "m_old": m_old, "l_old": l_old,
                      "alpha": alpha, "beta": beta, "factor": divide(l_old * alpha, l[i])}  # fmt: skip
            yield _visit(loads, inputs, shapes, (i, rows), (j, cols), diagonal, values, reads=state,
                         writes=writes, running=state)  # fmt: skip
    O = torch.cat([block.to(q.dtype) for block in O], dim=2) if O else torch.zeros_like(q)
    sentence = f"Done: {_visits(sizes, block_q, block_k, causal)}."
    yield Step(sentence, "done", shapes, values={**inputs, "O": O}, output=O)  # FA-1 Alg. 1, line 16


def tiled_attention_v2(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None,
    block_q: int = 64, block_k: int = 64, return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """FlashAttention-2: for each block of Q, run over the blocks of K and V; divide once.

    With `return_lse` also lse (B, H_q, N_q) = log sum_j exp(S_ij), natural logarithm, in float32 (float64 for
    float64), -inf for a row that sees no key. HBM gets it in either case: the backward pass needs it.
    """
    options = {"causal": causal, "scale": scale, "block_q": block_q, "block_k": block_k}
    return run(tiled_attention_v2_steps(q, k, v, **options, return_lse=return_lse))


def tiled_attention_v2_steps(q: Tensor, k: Tensor, v: Tensor, *, causal=False, scale=None, block_q=64,
                             block_k=64, return_lse=False) -> Iterator[Step]:  # fmt: skip
    """One step per visited pair (Q_i, K_j), i outside; the last of each row block writes O_i and lse.

    m_new = max(m_i, rowmax(S))    alpha = exp(m_i - m_new)    P~ = exp(S - m_new)
    l_new = l_i alpha + rowsum(P~)           acc = acc alpha + P~ V_j
    O_i   = acc / l_i    lse = m_i + log l_i    after the last block

    A row block that sees no key has one step, which writes O = 0 and lse = -inf (its j is None). In the steps
    lse is a column, (B, H_q, N_q, 1); the output is without that last dimension.
    """
    sizes = check_qkv(q, k, v)
    scale, diagonal = resolve_scale(scale, sizes.D), diagonal_of(sizes, causal)
    q_blocks, k_blocks = _blocks(sizes, block_q, block_k)  # FA-2 Alg. 1, lines 1 and 2
    k_wide, v_wide = wide(per_query_head(k, sizes)), wide(per_query_head(v, sizes))
    inputs = {"Q": q, "K": k, "V": v}
    shapes = {**matrix_shapes(sizes), "lse": (sizes.B, sizes.H_q, sizes.N_q, 1)}
    O, lse = [], []  # the finished row blocks
    for i, rows in enumerate(q_blocks):  # FA-2 Alg. 1, line 3
        q_i = wide(q[:, :, slice(*rows)])  # (B, H_q, rows, D), FA-2 Alg. 1, line 4
        m_i, l_i, acc = start(q_i)  # FA-2 Alg. 1, line 5
        visited = [(j, cols) for j, cols in enumerate(k_blocks) if is_visible(rows, cols, diagonal)]
        for j, cols in visited:  # FA-2 Alg. 1, line 6
            keys, m_old = slice(*cols), m_i  # FA-2 Alg. 1, line 7 loads K_j and V_j
            S = scores(q_i, k_wide[:, :, keys], scale, rows, cols, diagonal)  # FA-2 Alg. 1, line 8
            m_i, l_i, alpha, P = online_update(m_i, l_i, S)  # FA-2 Alg. 1, line 9
            acc = acc * alpha + P @ v_wide[:, :, keys]  # FA-2 Alg. 1, line 10
            values = {"S": S, "P": P, "m_i": m_i, "l_i": l_i, "acc": acc, "m_old": m_old, "alpha": alpha,
                      "factor": alpha}  # fmt: skip
            final = {}
            if j == visited[-1][0]:
                O.append(divide(acc, l_i).to(q.dtype))  # FA-2 Alg. 1, line 12
                lse.append(log_sum_exp(m_i, l_i))  # (B, H_q, rows, 1), FA-2 Alg. 1, line 13
                final = {"O": O[-1], "lse": lse[-1]}  # FA-2 Alg. 1, lines 14 and 15
            yield _visit("QKV" if j == 0 else "KV", inputs, shapes, (i, rows), (j, cols), diagonal,
                         {**values, **final}, writes=_row_tiles(rows, **final),
                         running=_row_tiles(rows, acc=acc, l_i=l_i, m_i=m_i), program=(i,))  # fmt: skip
        if not visited:
            O.append(acc.to(q.dtype))
            lse.append(m_i)
            yield _unseen(inputs, shapes, i, rows, m_i=m_i, l_i=l_i, acc=acc, O=O[-1], lse=lse[-1])
    O = torch.cat(O, dim=2) if O else torch.zeros_like(q)
    lse = torch.cat(lse, dim=2) if lse else wide(q)[..., :1]
    sentence = f"Done: {_visits(sizes, block_q, block_k, causal)}."
    output = (O, lse.squeeze(-1)) if return_lse else O  # FA-2 Alg. 1, line 17
    yield Step(sentence, "done", shapes, values={**inputs, "O": O, "lse": lse}, output=output)


class BlockSizes(NamedTuple):
    """Rows of a Q block (B_r in the papers) and of a K/V block (B_c)."""

    block_q: int
    block_k: int


def sram_elements(block_q: int, block_k: int, D: int) -> int:
    """Elements on chip while one Q block meets one K/V block: Q_i, O_i, K_j, V_j and S_ij (P~ replaces S).

    2 block_q D + 2 block_k D + block_q block_k

    The columns m_i and l_i, 2 block_q elements more, are left out, as in the paper's rule: kernels keep them
    in registers. For N = 5, d = 3 and M = 59: blocks (3, 5) need 18 + 30 + 15 = 63, blocks (3, 4) need 54.
    """
    return 2 * block_q * D + 2 * block_k * D + block_q * block_k


def paper_block_sizes(M: int, D: int) -> BlockSizes:
    """The paper's blocks for an SRAM of M elements: B_c = ceil(M / 4d), B_r = min(B_c, d); they may not fit.

    A quarter of M for each of Q_i, K_j, V_j and O_i leaves nothing for S_ij, and ceil rounds up: M = 59 and
    d = 3 give (3, 5), which needs 63. Rounding down helps there, not always: M = 64, d = 4 give (4, 4), 80.
    Source: FA-1, Algorithm 1, line 1. ValueError if not even 1 x 1 blocks fit.
    """
    _check_budget(M, D)
    block_k = math.ceil(M / (4 * D))
    return BlockSizes(min(block_k, D), block_k)


def fitting_block_sizes(M: int, D: int) -> BlockSizes:
    """The largest blocks of the paper's form, B_r = min(B_c, d), that fit in an SRAM of M elements.

    `sram_elements` is B^2 + 4dB for B = B_r = B_c up to d, and 2d^2 + 3d B_c beyond; solve it for the block.
    ValueError if not even 1 x 1 blocks fit, which need 4d + 1 elements. Version 2 reads K and V once for each
    Q block, as version 1 does Q and O for each K block: there, hand the two sizes over the other way round.
    """
    _check_budget(M, D)
    block = math.isqrt(4 * D * D + M) - 2 * D
    return BlockSizes(block, block) if block < D else BlockSizes(D, (M - 2 * D * D) // (3 * D))


def is_visible(rows: tuple[int, int], cols: tuple[int, int], diagonal: int | None) -> bool:
    """Whether some query of the block sees some key of it: its last query, its first key."""
    return diagonal is None or cols[0] <= rows[1] - 1 + diagonal


def visited_blocks(N_q: int, N_k: int, block_q: int, block_k: int, causal: bool = False) -> int:
    """How many pairs (Q block, K block) are visited: all T_r T_c, or those not wholly masked.

    Q block i ends at query r_i = min((i + 1) block_q, N_q), whose last query sees r_i + N_k - N_q keys, hence
    sum_i ceil(max(0, r_i + N_k - N_q) / block_k) blocks of keys.  For N_q = N_k = T B this is T (T + 1) / 2.
    """
    for size, name in ((block_q, "block_q"), (block_k, "block_k")):
        check_block(size, name)
    if not causal:
        return math.ceil(N_q / block_q) * math.ceil(N_k / block_k)
    return sum(math.ceil(max(0, stop + N_k - N_q) / block_k) for _, stop in spans(N_q, block_q))


def _check_budget(M: int, D: int) -> None:
    check_block(D, "D")
    check_block(M, "M")
    if M < 4 * D + 1:
        raise ValueError(f"expected an SRAM of at least 4 D + 1 = {4 * D + 1} elements for D = {D}, got {M}")


def _blocks(sizes: Sizes, block_q: int, block_k: int) -> tuple[list[tuple[int, int]], ...]:
    """(start, stop) of the T_r = ceil(N_q / block_q) blocks of rows and T_c = ceil(N_k / block_k) of keys."""
    check_block(block_q, "block_q")
    check_block(block_k, "block_k")
    return spans(sizes.N_q, block_q), spans(sizes.N_k, block_k)


def _visit(loads, inputs, shapes, row_block, col_block, diagonal, values, *, reads=(), writes, running, program=()):
    """The step in which Q_i meets K_j: `loads` names what it reads of Q, K and V, `reads` what else.

    Every query head reads the K and V of its group for itself. S is on chip only, and P~ takes its place.
    """
    (i, rows), (j, cols) = row_block, col_block
    tiles = {}
    for name, span in (("Q", rows), ("K", cols), ("V", cols)):
        times = inputs["Q"].shape[1] // inputs[name].shape[1]
        tiles[name] = Tile.of(name, inputs[name], ..., slice(*span), slice(None), times=times)
    B, H, m, n = values["S"].shape
    D = inputs["Q"].shape[-1]
    S = Tile("S", ((0, B), (0, H), rows, cols), values["S"].element_size())
    place = {"i": i, "j": j, "rows": rows, "cols": cols, "masked": crosses(rows, cols, diagonal)}
    reads = (*(tiles[name] for name in loads), *reads)
    return Step(_sentence(place, values), "blocks", shapes, reads, writes, (*tiles.values(), S, *running),
                {**inputs, **place, **values}, ((B * H, m, D, n), (B * H, m, n, D)), program)  # fmt: skip


def _unseen(inputs, shapes, i, rows, **values):
    """The step of a row block that sees no key: nothing is read."""
    place = {"i": i, "j": None, "rows": rows, "cols": (0, 0), "masked": True}
    running = _row_tiles(rows, **{name: values[name] for name in ("acc", "l_i", "m_i")})
    writes = _row_tiles(rows, O=values["O"], lse=values["lse"])
    sentence = f"Block Q{i} sees no key: write O = 0 and lse = -inf."
    return Step(sentence, "blocks", shapes, (), writes, running, {**inputs, **place, **values}, program=(i,))


def _row_tiles(rows: tuple[int, int], **tensors: Tensor) -> tuple[Tile, ...]:
    """The tiles that hold these tensors (B, H_q, rows, width)."""
    return tuple(
        Tile(name, ((0, t.shape[0]), (0, t.shape[1]), rows, (0, t.shape[3])), t.element_size())
        for name, t in tensors.items()
    )


def _visits(sizes: Sizes, block_q: int, block_k: int, causal: bool) -> str:
    visits = visited_blocks(sizes.N_q, sizes.N_k, block_q, block_k, causal)
    pairs = visited_blocks(sizes.N_q, sizes.N_k, block_q, block_k)
    return f"{visits} of {pairs} pairs of blocks were visited, and S was never stored"


def _sentence(place: dict, values: dict[str, Tensor]) -> str:
    """Say where we are and what was rescaled, in the first row of the first head in which it happens."""
    v1 = "acc" not in values
    head = f"Block Q{place['i']} meets block K{place['j']}"
    head += ", part of it masked" if place["masked"] else ""
    tail = " Its last block: O = acc / l and lse = m + log l are written." if "lse" in values else ""
    if not values["m_i"].numel():
        return f"{head}.{tail}"
    columns = (values[name].detach()[0, 0, :, 0].tolist() for name in ("m_old", "m_i", "l_i", "factor"))
    rows = list(enumerate(zip(*columns, strict=True), start=place["rows"][0]))
    risen = [(r, new, by) for r, (old, new, _, by) in rows if new > old > -INF]
    if risen:
        r, new, by = risen[0]
        others = f" (and in {len(risen) - 1} more)" if len(risen) > 1 else ""
        what = "its l and acc are scaled by exp(m_old - m_new)"
        if v1:
            what = "its O is scaled by exp(m_old - m_new) l_old / l_new"
        return f"{head}: new maximum {new:.2f} in row {r}{others}: {what} = {by:.2f}.{tail}"
    r, (_, new, l, by) = rows[0]
    if all(old == -INF for _, (old, *_) in rows):
        return f"{head}, its first: row {r} starts with m = {new:.2f}, l = {l:.2f}.{tail}"
    what = f"yet its O is scaled by l_old / l_new = {by:.2f}" if v1 else f"and has l = {l:.2f} now"
    return f"{head}: no maximum rises; row {r} keeps m = {new:.2f}, {what}.{tail}"
