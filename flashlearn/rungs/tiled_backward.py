"""The backward pass of attention by tiles: S and P are made again, block by block, and never stored.

    S_ij  = scale Q_i K_j^T                P_ij  = exp(S_ij - lse_i)           then 0 where the mask hides
    dP_ij = dO_i V_j^T                     dS_ij = P_ij o (dP_ij - delta_i)    delta = rowsum(dO o O)
    dV_j += P_ij^T dO_i                    dK_j += scale dS_ij^T Q_i           dQ_i += scale dS_ij K_j

    two sweeps   dK and dV: K_j, V_j stay, Q_i comes by; dQ: Q_i stays, K_j, V_j come by   4 + 3 products
    fused        K_j, V_j stay, Q_i comes by; dQ_i is read, added to, written every time   5 products

The rung before (`flashlearn.rungs.gradients`) stored four N_q x N_k matrices. What is new: the forward pass left
one number per row, lse = log sum exp S, from which P comes back exactly, and delta, another number per row,
stands for the whole row of P o dP that softmax needs. Extra memory falls from O(N^2) to O(N).

dK_j and dV_j add up over i, dQ_i over j. On a GPU the blocks of the outer loop run at the same time: in the
fused form several programs add to one dQ_i, which takes atomic additions; in two sweeps each result has one
owner, for two products more. All batches and heads take each step together; a K/V head has one program for
dK_j and dV_j, which goes through all query heads of its group.

Shapes, dtypes, `causal`, `scale` and queries that see no key are as in `flashlearn.rungs.attention`; blocks of any
size will do, and a block that the mask hides wholly is never visited.

Sources: FA-2 is T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 2, which is the fused form;
FA-1 is T. Dao et al., "FlashAttention", 2022 (arXiv:2205.14135), Algorithm 4, for the mask and the scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from flashlearn.core.inputs import Sizes, check_block, check_qkv, resolve_scale
from flashlearn.core.steps import Step, Tile, run
from flashlearn.rungs.attention import crosses, diagonal_of, per_query_head, spans, wide
from flashlearn.rungs.gradients import backward_shapes, check_like, per_kv_head
from flashlearn.rungs.tiled import is_visible, visited_blocks

Span = tuple[int, int]  # (start, stop) of a block of rows or keys


def tiled_attention_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *, block_q: int, block_k: int,
    causal: bool = False, scale: float | None = None, fused: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK and dV from dO and what the forward pass took and gave, in two sweeps, or in one if `fused`.

    do, q and o are (B, H_q, N_q, D), k and v (B, H_kv, N_k, D), lse is (B, H_q, N_q) in float32 (float64 for
    float64), as `tiled_attention_v2(..., return_lse=True)` gives them. Returns dq, dk, dv, shaped and typed
    as q, k, v. ValueError or TypeError if do, o or lse do not belong to q, and as in `flashlearn.rungs.attention`.
    """
    options = {"block_q": block_q, "block_k": block_k, "causal": causal, "scale": scale, "fused": fused}
    return run(tiled_attention_backward_steps(do, q, k, v, o, lse, **options))


def tiled_attention_backward_steps(do, q, k, v, o, lse, *, block_q, block_k, causal=False, scale=None,
                                   fused=False) -> Iterator[Step]:  # fmt: skip
    """One step per block of delta, then one per visited pair of blocks and sweep.

    Phases: "delta"; then "dK and dV" and "dQ"; or, fused, "initialise" and "dQ, dK and dV". The products of
    a step are also in `values["products"]`, as formulas. A block of queries that sees no key has one step,
    which writes dQ = 0 (its j is None); so has a block of keys without queries.
    """
    p = _problem(do, q, k, v, o, lse, block_q, block_k, causal, scale)
    delta = yield from _delta_steps(p)
    if fused:
        dq = torch.zeros_like(wide(q))  # FA-2 Alg. 2, line 3
        yield Step("Write dQ = 0 to HBM for every row.", "initialise", p.shapes, values={**p.given, "dQ": dq},
                   writes=(p.tile("dQ", (0, p.sizes.N_q), unfinished=True),))  # fmt: skip
        dq_blocks = [dq[:, :, i0:i1] for i0, i1 in p.q_blocks]
        dk, dv = yield from _dkdv_steps(p, delta, dq_blocks)
        dq = torch.cat([block.to(q.dtype) for block in dq_blocks], dim=2) if dq_blocks else torch.zeros_like(q)
    else:
        dk, dv = yield from _dkdv_steps(p, delta)
        dq = yield from _dq_steps(p, delta)
    visits, pairs = (visited_blocks(p.sizes.N_q, p.sizes.N_k, block_q, block_k, c) for c in (causal, False))
    twice = "" if fused else ", twice"
    sentence = f"Done: {visits} of {pairs} pairs of blocks were visited{twice}; nothing N × N was stored."
    values = {**p.given, "delta": delta, "dQ": dq, "dK": dk, "dV": dv}
    yield Step(sentence, "done", p.shapes, values=values, output=(dq, dk, dv))  # FA-2 Alg. 2, line 20


class _Problem(NamedTuple):
    """What every sweep needs: the inputs by name, sizes, and blocks. lse is a column, (B, H_q, N_q, 1)."""

    given: dict[str, Tensor]
    sizes: Sizes
    scale: float
    diagonal: int | None
    q_blocks: list[Span]
    k_blocks: list[Span]
    shapes: dict[str, tuple[int, ...]]

    def rows(self, name: str, span: Span) -> Tensor:
        """A block of rows of an input, in the dtype that sums are kept in."""
        return wide(self.given[name][:, :, slice(*span)])

    def heads(self, name: str, cols: Span) -> Tensor:
        """K_j or V_j for every query head, (B, H_q, cols, D)."""
        return per_query_head(self.rows(name, cols), self.sizes)

    def tile(self, name: str, span: Span, times: int = 1, unfinished: bool = False) -> Tile:
        """A block of rows as it lies in HBM; lse, delta and what is `unfinished` are kept wide."""
        B, H, _, width = self.shapes[name]
        q = self.given["Q"]
        size = wide(q[:0]).element_size() if unfinished or name in ("lse", "delta") else q.element_size()
        return Tile(name, ((0, B), (0, H), span, (0, width)), size, times)

    def of_rows(self, rows: Span) -> tuple[Tile, ...]:
        return tuple(self.tile(name, rows) for name in ("Q", "dO", "lse", "delta"))

    def of_keys(self, cols: Span, times: int = 1) -> tuple[Tile, ...]:
        return tuple(self.tile(name, cols, times) for name in ("K", "V"))


def _problem(do, q, k, v, o, lse, block_q, block_k, causal, scale) -> _Problem:
    sizes = check_qkv(q, k, v)
    check_like("do", do, "q", q)
    check_like("o", o, "q", q)
    check_like("lse", lse, "a column of q", wide(q[..., 0]))
    check_block(block_q, "block_q")
    check_block(block_k, "block_k")
    given = {"Q": q, "K": k, "V": v, "O": o, "dO": do, "lse": lse[..., None]}
    blocks = spans(sizes.N_q, block_q), spans(sizes.N_k, block_k)  # FA-2 Alg. 2, lines 1 and 2
    return _Problem(given, sizes, resolve_scale(scale, sizes.D), diagonal_of(sizes, causal), *blocks,
                    backward_shapes(sizes))  # fmt: skip


def _delta_steps(p: _Problem):
    """delta = rowsum(dO o O), (B, H_q, N_q, 1), a block of rows at a time: FA-2 Alg. 2, line 4."""
    blocks = []
    for i, rows in enumerate(p.q_blocks):
        blocks.append((p.rows("dO", rows) * p.rows("O", rows)).sum(-1, keepdim=True))
        reads, write = (p.tile("dO", rows), p.tile("O", rows)), p.tile("delta", rows)
        sentence = f"delta{i} = rowsum(dO{i} o O{i}): one number for each of {rows[1] - rows[0]} rows."
        values = {**p.given, **_place(i, rows), "delta": blocks[-1]}
        yield Step(sentence, "delta", p.shapes, reads, (write,), (*reads, write), values, program=(i,))
    return torch.cat(blocks, dim=2) if blocks else wide(p.given["Q"])[..., :1]


def _dkdv_steps(p: _Problem, delta: Tensor, dq: list[Tensor] | None = None):
    """K_j and V_j stay on chip, every Q_i that sees them comes by; returns dK and dV.

    With `dq`, the row blocks of dQ in HBM, it is the fused form: each visit adds to one of them, there. They
    are held in the dtype that sums are kept in until the last visit.
    """
    dtype, done = p.given["K"].dtype, []
    phase = "dK and dV" if dq is None else "dQ, dK and dV"
    for j, cols in enumerate(p.k_blocks):  # FA-2 Alg. 2, line 5
        dk = dv = torch.zeros_like(p.rows("K", cols))  # line 7
        unfinished = tuple(p.tile(name, cols, unfinished=True) for name in ("dK", "dV"))
        seen = [i for i, rows in enumerate(p.q_blocks) if is_visible(rows, cols, p.diagonal)]
        for i in seen:  # line 8
            rows, stay, come, writes = p.q_blocks[i], p.of_keys(cols), p.of_rows(p.q_blocks[i]), ()
            block = _block(p, delta, rows, cols)
            dv = dv + per_kv_head(block["P"].mT @ p.rows("dO", rows), p.sizes)  # line 12
            dk = dk + p.scale * per_kv_head(block["dS"].mT @ p.rows("Q", rows), p.sizes)  # line 16
            products = ["S = Q Kᵀ", "dV += Pᵀ dO", "dP = dO Vᵀ", "dK += dSᵀ Q"]
            what = f"K{j} stays, Q{i} comes: dV{j} += Pᵀ dO{i}, dK{j} += dSᵀ Q{i}"
            values = {**block, "dK": dk, "dV": dv}
            if dq is not None:
                come = (*come, p.tile("dQ", rows, unfinished=True))  # line 9
                dq[i] = dq[i] + p.scale * (block["dS"] @ p.heads("K", cols))  # line 15
                last = j + 1 == len(p.k_blocks) or not is_visible(rows, p.k_blocks[j + 1], p.diagonal)
                dq[i] = dq[i].to(dtype) if last else dq[i]
                values["dQ"], writes = dq[i], (p.tile("dQ", rows, unfinished=not last),)
                products.insert(3, "dQ += dS K")
                what += f", dQ{i} += dS K{j} in HBM"
            if i == seen[-1]:
                values |= {"dK": dk.to(dtype), "dV": dv.to(dtype)}
                writes = (*writes, p.tile("dK", cols), p.tile("dV", cols))  # line 18
                what += "; dK, dV written"
            reads = (*stay, *come) if i == seen[0] else come  # lines 6 and 9
            yield _visit(p, phase, what, (i, rows), (j, cols), values, products, reads, writes,
                         on_chip=(*stay, *unfinished, *come), program=(j,))  # fmt: skip
        done.append((dk.to(dtype), dv.to(dtype)))
        if not seen:
            zeros = {"dK": done[-1][0], "dV": done[-1][1]}
            yield _nothing(p, phase, f"Block K{j} is seen by no query: write dK{j} = dV{j} = 0.", cols, zeros)
    if not done:
        return torch.zeros_like(p.given["K"]), torch.zeros_like(p.given["V"])
    return tuple(torch.cat(blocks, dim=2) for blocks in zip(*done, strict=True))


def _dq_steps(p: _Problem, delta: Tensor):
    """The second of two sweeps: Q_i and dO_i stay on chip, every K_j that they see comes by; returns dQ."""
    dtype, done = p.given["Q"].dtype, []
    for i, rows in enumerate(p.q_blocks):
        dq = torch.zeros_like(p.rows("Q", rows))
        stay, unfinished = p.of_rows(rows), p.tile("dQ", rows, unfinished=True)
        seen = [j for j, cols in enumerate(p.k_blocks) if is_visible(rows, cols, p.diagonal)]
        for j in seen:
            cols, come = p.k_blocks[j], p.of_keys(p.k_blocks[j], times=p.sizes.group)
            block = _block(p, delta, rows, cols)
            dq = dq + p.scale * (block["dS"] @ p.heads("K", cols))  # FA-2 Alg. 2, line 15
            products = ["S = Q Kᵀ", "dP = dO Vᵀ", "dQ += dS K"]
            what = f"Q{i} stays, K{j} comes: dQ{i} += dS K{j}"
            values, writes = {**block, "dQ": dq}, ()
            if j == seen[-1]:
                values["dQ"], writes = dq.to(dtype), (p.tile("dQ", rows),)
                what += "; dQ written"
            reads = (*stay, *come) if j == seen[0] else come
            yield _visit(p, "dQ", what, (i, rows), (j, cols), values, products, reads, writes,
                         on_chip=(*stay, unfinished, *come), program=(i,))  # fmt: skip
        done.append(dq.to(dtype))
        if not seen:
            yield _nothing(p, "dQ", f"Block Q{i} sees no key: write dQ{i} = 0.", rows, {"dQ": done[-1]})
    return torch.cat(done, dim=2) if done else torch.zeros_like(p.given["Q"])


def _block(p: _Problem, delta: Tensor, rows: Span, cols: Span) -> dict[str, Tensor]:
    """S, P, dP and dS of one pair of blocks, (B, H_q, rows, cols) each.

    The mask may come after the exponential: no maximum is taken here that a hidden score could spoil. It also
    clears queries that see nothing, whose lse of -inf has made P = exp(S + inf) = inf.
    """
    S = p.rows("Q", rows) @ p.heads("K", cols).mT * p.scale  # FA-2 Alg. 2, line 10; FA-1 Alg. 4, line 11
    P = torch.exp(S - p.given["lse"][:, :, slice(*rows)])  # FA-2 Alg. 2, line 11
    if crosses(rows, cols, p.diagonal):  # FA-1 Alg. 4, line 12, there before the exponential
        i = torch.arange(*rows, device=S.device)[:, None]
        j = torch.arange(*cols, device=S.device)
        P = P.masked_fill(j > i + p.diagonal, 0)
    dP = p.rows("dO", rows) @ p.heads("V", cols).mT  # FA-2 Alg. 2, line 13
    dS = P * (dP - delta[:, :, slice(*rows)])  # FA-2 Alg. 2, line 14
    return {"S": S, "P": P, "dP": dP, "dS": dS}


def _place(i: int, rows: Span) -> dict:
    """Where a step stands that has rows only."""
    return {"i": i, "j": None, "rows": rows, "cols": (0, 0), "masked": False, "products": ()}


def _visit(
    p: _Problem,
    phase: str,
    what: str,
    row_block,
    col_block,
    values,
    products,
    reads,
    writes,
    on_chip,
    program,
) -> Step:
    """The step in which Q_i meets K_j. P takes the place of S on chip, dS that of dP."""
    (i, rows), (j, cols) = row_block, col_block
    B, H, m, n = values["S"].shape
    D, size, masked = p.sizes.D, values["S"].element_size(), crosses(rows, cols, p.diagonal)
    squares = tuple(Tile(name, ((0, B), (0, H), rows, cols), size) for name in ("P", "dS"))
    sizes = {
        "Kᵀ": (m, D, n),
        "Vᵀ": (m, D, n),
        "dO": (n, m, D),
        "Q": (n, m, D),
        "K": (m, n, D),
    }  # by last factor
    matmuls = tuple((B * H, *sizes[product.split()[-1]]) for product in products)
    place = {"i": i, "j": j, "rows": rows, "cols": cols, "masked": masked, "products": tuple(products)}
    sentence = f"{what}{'; part is masked' if masked else ''}."
    return Step(sentence, phase, p.shapes, reads, writes, (*on_chip, *squares),
                {**p.given, **place, **values}, matmuls, program)  # fmt: skip


def _nothing(p: _Problem, phase: str, sentence: str, span: Span, zeros: dict[str, Tensor]) -> Step:
    """The step of a block that meets nothing: nothing is read, zeros are written."""
    of_queries = "dQ" in zeros
    blocks = p.q_blocks if of_queries else p.k_blocks
    place = {"i": None, "j": None, "rows": (0, 0), "cols": (0, 0), "masked": True, "products": ()}
    place |= {"i": blocks.index(span), "rows": span} if of_queries else {"j": blocks.index(span), "cols": span}
    writes = tuple(p.tile(name, span) for name in zeros)
    return Step(sentence, phase, p.shapes, (), writes, writes, {**p.given, **place, **zeros},
                program=(blocks.index(span),))  # fmt: skip
