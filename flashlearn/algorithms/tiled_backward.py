"""The backward pass of attention by tiles: S and P are recomputed, block by block, and never stored.

    S_ij  = scale Q_i K_j^T                P_ij  = exp(S_ij - lse_i)           then 0 where the mask hides
    dP_ij = dO_i V_j^T                     dS_ij = P_ij o (dP_ij - delta_i)    delta = rowsum(dO o O)
    dV_j += P_ij^T dO_i                    dK_j += scale dS_ij^T Q_i           dQ_i += scale dS_ij K_j

    two passes   dK and dV: K_j, V_j stay on chip, Q_i is loaded; dQ: Q_i stays, K_j, V_j are loaded   4 + 3 products
    fused        K_j, V_j stay, Q_i comes by; dQ_i is read, added to, written every time   5 products

The algorithm before (`flashlearn.algorithms.gradients`) stored four N_q x N_k matrices. What is new: the forward pass
stored one number per row, lse = log sum exp S. P is recomputed from it, up to rounding. Another number per row, delta,
replaces the row of P o dP that softmax needs. Extra memory falls from O(N^2) to O(N).

dK_j and dV_j add up over i, dQ_i over j. On a GPU the blocks of the outer loop run at the same time. In the fused form
several programs add to one dQ_i, with atomic additions. In two passes each result has one owner, for two products more.
All batches and heads take each step together. A K/V head has one program for dK_j and dV_j, which loops over all query
heads of its group.

Shapes, dtypes, options and queries that attend to no key are as in `flashlearn.algorithms.attention`. Blocks have any
size, and a block that the mask hides wholly is never visited.

Sources: FA-2 is T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 2, which is the fused form;
FA-1 is T. Dao et al., "FlashAttention", 2022 (arXiv:2205.14135), Algorithm 4, for the mask and the scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack, overload

from flashlearn.algorithms import captions
from flashlearn.algorithms.problem import PER_HEAD, Problem, backward_shapes
from flashlearn.algorithms.tiled import count_visits
from flashlearn.core.hbm import HBM, OnChip
from flashlearn.core.inputs import check_blocks, check_bool, check_like
from flashlearn.core.mask import Window
from flashlearn.core.numerics import Span, exp_diff, spans, wide
from flashlearn.core.options import AttentionKwargs, Fixed, More
from flashlearn.core.steps import Step, run

if TYPE_CHECKING:
    from torch import Tensor

    from flashlearn.core.shapes import Keys, PerHead, PerQuery, Queries

OF_QUERIES = ("Q", "dO", "lse", "delta")  # the matrices that have a row for every query


@overload
def tiled_attention_backward(
    do: Queries, q: Queries, k: Keys, v: Keys, o: Queries, lse: PerQuery, *,
    block_q: int, block_k: int, fused: bool = False, **options: Unpack[Fixed],
) -> tuple[Queries, Keys, Keys]: ...  # fmt: skip
@overload
def tiled_attention_backward(
    do: Queries, q: Queries, k: Keys, v: Keys, o: Queries, lse: PerQuery, *,
    block_q: int, block_k: int, fused: bool = False, **options: Unpack[AttentionKwargs],
) -> tuple[Tensor, ...]: ...  # fmt: skip
def tiled_attention_backward(
    do: Queries, q: Queries, k: Keys, v: Keys, o: Queries, lse: PerQuery, *, block_q: int, block_k: int,
    causal: bool = False, window: Window | None = None, scale: float | None = None, fused: bool = False,
    **more: Unpack[More],
) -> tuple[Queries, Keys, Keys] | tuple[Queries, Keys, Keys, PerHead] | tuple[Queries, Keys, Keys, PerHead, PerHead]:  # fmt: skip
    """dQ, dK and dV from dO and the forward pass's inputs and results, in two passes, or in one if `fused`.

    do, q and o are (B, H_q, N_q, D), k and v (B, H_kv, N_k, D), lse is (B, H_q, N_q) in float32 (float64 for
    float64), as `tiled_attention_v2(..., return_lse=True)` gives them. Returns dq, dk, dv, shaped and typed
    as q, k, v, then the gradient of `sinks`, then that of `alibi`, (H_q,), if these were given.
    ValueError or TypeError if do, o or lse do not belong to q, and as in `flashlearn.algorithms.attention`.
    """
    how: dict[str, Any] = {"block_q": block_q, "block_k": block_k, "fused": fused, **more}
    return run(tiled_attention_backward_steps(do, q, k, v, o, lse, causal=causal, window=window, scale=scale, **how))


def tiled_attention_backward_steps(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *,
    block_q: int, block_k: int, fused: bool = False, **more: Unpack[AttentionKwargs],
) -> Iterator[Step]:  # fmt: skip
    """One step per block of delta, then one per visited pair of blocks and pass.

    Phases: "delta"; then "dK and dV" and "dQ"; or, fused, "initialise" and "dQ, dK and dV". The products of a step are
    also in `values["products"]`, as formulas. A block of queries that attends to no key has one step, which writes dQ =
    0 (its j is None); so has a block of keys without queries. The gradients of sinks and slopes start at 0 in HBM, in a
    step of their own. Every step that contributes adds to them there.
    """
    p = Problem.of(q, k, v, {"O": o, "dO": do, "lse": lse}, **more)
    check_like("do", do, "q", q)
    check_like("o", o, "q", q)
    check_like("lse", lse, "a column of q", wide(q[..., 0]))
    check_blocks(block_q, block_k)
    check_bool(fused, "fused")
    p.given["lse"] = lse[..., None]
    made = {"delta": p.wide, "dQ": p.dtype, "dK": p.dtype, "dV": p.dtype}
    made |= {PER_HEAD[name]: p.given[name].dtype for name in p.learned}
    hbm = p.memory(captions.tiled_gradients, made, whole=False, **backward_shapes(p.sizes))
    for name in p.learned:
        hbm.store(PER_HEAD[name], None, hbm.fill(name))
    if p.learned:
        yield hbm.step("initialise")
    yield from _delta_pass(p, hbm, block_q)
    if fused:
        hbm.store("dQ", None, hbm.fill("dQ"), unfinished=True)  # FA-2 Alg. 2, line 3
        yield hbm.step("initialise")
    yield from _dkdv_pass(p, hbm, block_q, block_k, fused)
    if not fused:
        yield from _dq_pass(p, hbm, block_q, block_k)
    visits = count_visits(p.mask, block_q, block_k)
    yield hbm.done(p.gradients(hbm), fused=fused, **visits)  # FA-2 Alg. 2, line 20


def _delta_pass(p: Problem, hbm: HBM, block_q: int) -> Iterator[Step]:
    """delta = rowsum(dO o O), (B, H_q, N_q, 1), a block of rows at a time: FA-2 Alg. 2, line 4."""
    for i, rows in enumerate(spans(p.sizes.N_q, block_q)):
        dO_i, O_i = hbm.load("dO", rows), hbm.load("O", rows)
        delta = (dO_i * O_i).sum(-1, keepdim=True)
        hbm.store("delta", rows, delta)
        if "sinks" in p.given:
            sinks, lse_i = hbm.load("sinks", times=p.sizes.B), hbm.load("lse", rows)
            p.add_per_head(hbm, "dsinks", -(exp_diff(sinks, lse_i) * delta))  # P (dP - delta), dP = 0
            hbm.drop(lse_i)
        yield hbm.step("delta", program=(i,), **{**p.coordinates(i, rows), "masked": False}, products=(), delta=delta)


def _dkdv_pass(p: Problem, hbm: HBM, block_q: int, block_k: int, fused: bool) -> Iterator[Step]:
    """K_j and V_j stay on chip while every Q_i that attends to them is loaded: dK_j and dV_j; fused, dQ_i too, in HBM."""
    heads, phase = p.sizes.H_kv, "dQ, dK and dV" if fused else "dK and dV"
    products = ("S = Q Kᵀ", "dV += Pᵀ dO", "dP = dO Vᵀ", *(("dQ += dS K",) if fused else ()), "dK += dSᵀ Q")
    hbm.clear()
    for j, cols in enumerate(spans(p.sizes.N_k, block_k)):  # FA-2 Alg. 2, line 5
        visits = p.mask.query_blocks(cols, block_q)
        if visits:
            K_j, V_j = (hbm.load(name, cols, times=1) for name in "KV")  # line 6
            p.load_slopes(hbm)
        dK, dV = hbm.fill("dK", cols), hbm.fill("dV", cols)  # line 7
        for i, rows in visits:  # line 8
            Q_i, dO_i, lse_i, delta_i = (hbm.load(name, rows) for name in OF_QUERIES)  # line 9
            S, P, capped = _probabilities(p, Q_i @ K_j.mT, lse_i, rows, cols)  # lines 10 and 11
            dV = dV + (P.mT @ dO_i).sum_groups(heads)  # line 12
            dP = dO_i @ V_j.mT  # line 13
            dS = _of_products(p, hbm, (dP - delta_i) * P, capped, adds=fused)  # line 14
            dQ = {"dQ": _add_to_dq(p, hbm, dS @ K_j, rows, j, block_k)} if fused else {}  # line 15
            dK = dK + p.scale * (dS.mT @ Q_i).sum_groups(heads)  # line 16
            if (i, rows) == visits[-1]:
                hbm.store("dK", cols, dK)  # line 18
                hbm.store("dV", cols, dV)
            seen = {"delta": delta_i, "P": P, "dS": dS, "S": S, "dP": dP, "dK": dK, "dV": dV, **dQ}
            yield hbm.step(phase, program=(j,), **p.coordinates(i, rows, j, cols), products=products, **seen)
        if not visits:
            hbm.store("dK", cols, dK)
            hbm.store("dV", cols, dV)
            yield hbm.step(phase, program=(j,), **p.coordinates(None, (0, 0), j, cols), products=(), dK=dK, dV=dV)


def _add_to_dq(p: Problem, hbm: HBM, product: OnChip, rows: Span, j: int, block_k: int) -> OnChip:
    """dQ_i += scale dS K_j in HBM: read, add, write, in wide sums; the last visit writes it in the dtype of q."""
    last = p.mask.key_blocks(rows, block_k)[-1][0] == j
    dQ_i = hbm.load("dQ", rows) + p.scale * product
    hbm.store("dQ", rows, dQ_i, unfinished=not last)
    return dQ_i


def _dq_pass(p: Problem, hbm: HBM, block_q: int, block_k: int) -> Iterator[Step]:
    """Q_i and dO_i stay on chip while every K_j that they attend to is loaded: dQ_i."""
    products = ("S = Q Kᵀ", "dP = dO Vᵀ", "dQ += dS K")
    hbm.clear()
    for i, rows in enumerate(spans(p.sizes.N_q, block_q)):
        visits, dQ = p.mask.key_blocks(rows, block_k), hbm.fill("dQ", rows)
        if visits:
            Q_i, dO_i, lse_i, delta_i = (hbm.load(name, rows) for name in OF_QUERIES)
            p.load_slopes(hbm)
        for j, cols in visits:
            K_j, V_j = hbm.load("K", cols), hbm.load("V", cols)
            S, P, capped = _probabilities(p, Q_i @ K_j.mT, lse_i, rows, cols)  # FA-2 Alg. 2, lines 10 and 11
            dP = dO_i @ V_j.mT  # line 13
            dS = _of_products(p, hbm, (dP - delta_i) * P, capped, adds=True)  # line 14
            dQ = dQ + p.scale * (dS @ K_j)  # line 15
            if (j, cols) == visits[-1]:
                hbm.store("dQ", rows, dQ)
            seen = {"delta": delta_i, "P": P, "dS": dS, "S": S, "dP": dP, "dQ": dQ}
            yield hbm.step("dQ", program=(i,), **p.coordinates(i, rows, j, cols), products=products, **seen)
        if not visits:
            hbm.store("dQ", rows, dQ)
            yield hbm.step("dQ", program=(i,), **p.coordinates(i, rows), products=(), dQ=dQ)


def _probabilities(p: Problem, product: OnChip, lse_i: OnChip, rows: Span, cols: Span) -> tuple[OnChip, OnChip, OnChip]:
    """S, P and the capped scores of one pair of blocks, (B, H_q, rows, cols) each; P takes the place of S.

    The mask may come after the exponential, as no maximum is taken here. It also clears queries that attend to no key:
    their lse is -inf, so that P = exp(S + inf) = inf. The gradient of a cap needs its result, which stays on chip in
    addition to P.
    """
    capped = p.scores.cap(product)  # FA-1 Alg. 4, line 11
    kept = capped if p.scores.softcap is None else capped.copy("capped")
    S = p.lower(capped)
    P = exp_diff(S, lse_i)
    return S, p.mask.hide(P, rows, cols, 0.0), kept  # FA-1 Alg. 4, line 12, there before the exponential


def _of_products(p: Problem, hbm: HBM, dS: OnChip, capped: OnChip, *, adds: bool) -> OnChip:
    """The gradient of scale Q_i K_j^T from that of S_ij; the pass that `adds` adds to those of slopes in HBM."""
    if adds and "alibi" in p.given:
        p.add_per_head(hbm, "dslopes", -(dS * dS.distance(p.mask.diagonal)).sum(-1, keepdim=True))
    return p.scores.uncap(dS, capped)
