"""Gradients by hand: of a matrix product, of softmax, and of attention with its N x N matrices stored.

A gradient is written as a d before the name. dX has the shape of X: the rate at which the loss, one number, changes
with each entry of X. A backward function takes the gradient of a result and returns the gradients of the inputs,
without a Jacobian:

    Y = X W              dX = dY W^T                      dW = X^T dY
    P = softmax(S)       dS = P o (dP - delta)            delta = rowsum(P o dP), one number a row
    O = P V              dP = dO V^T                      dV = P^T dO
    S = scale Q K^T      dQ = scale dS K                  dK = scale dS^T Q

The gradients of softcap and slopes, which come between the product and softmax, and of sinks are in
`flashlearn.core.scores`. `o` is the product entry by entry. `contract_steps` computes with the Jacobian, for the
picture.

Inputs are in float16, bfloat16, float32 or float64 and gradients come back in that dtype; products and sums
are computed in float32, float64 for float64. Attention takes what `flashlearn.algorithms.attention` takes: grouped heads
(dK and dV add up over the query heads that share them), any lengths, queries that attend to no key (gradient 0).

Sources: the formulas are derived in T. Dao et al., "FlashAttention", 2022 (arXiv:2205.14135), appendix B.2;
`attention_backward` is its Algorithm 3, which takes P as stored. Without it P is recomputed first, by Algorithm 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack, overload

from torch import Tensor

from flashlearn.algorithms import captions
from flashlearn.algorithms.attention import load_scores, softmax_of
from flashlearn.algorithms.problem import PER_HEAD, Problem, backward_shapes, matrix_shapes
from flashlearn.core.hbm import HBM, OnChip
from flashlearn.core.inputs import check_float, check_like, check_together
from flashlearn.core.mask import Window
from flashlearn.core.numerics import accumulator
from flashlearn.core.options import AttentionKwargs, Fixed, More
from flashlearn.core.steps import Step, run

if TYPE_CHECKING:
    from flashlearn.core.shapes import (
        Inputs,
        Jacobian,
        Keys,
        OfInputs,
        OfOutputs,
        Outputs,
        Pairs,
        PerHead,
        Queries,
        Rows,
        Weights,
    )


def matmul_backward(dy: Outputs, x: Inputs, w: Weights) -> tuple[Inputs, Weights]:
    """The gradients dX = dY W^T and dW = X^T dY of Y = X W.

    x is (..., N, D), w is (D, M), dy is (..., N, M); returns dx as x and dw as w, which adds up over `...`.
    ValueError if the shapes or devices do not belong together, TypeError for other dtypes or two of them.
    """
    return run(matmul_backward_steps(dy, x, w))


def matmul_backward_steps(dy: Tensor, x: Tensor, w: Tensor) -> Iterator[Step]:
    """One step per product, each on whole matrices."""
    _check_matmul(dy, x, w)
    shapes = {"X": x.shape, "W": w.shape, "dY": dy.shape, "dX": x.shape, "dW": w.shape}
    made = {"dX": x.dtype, "dW": w.dtype}
    hbm = HBM({"X": x, "W": w, "dY": dy}, made, shapes, captions.matmul_gradients, whole=True)
    hbm.store("dX", None, hbm.load("dY") @ hbm.load("W").mT)  # (..., N, D)
    yield hbm.step("dX")
    hbm.store("dW", None, hbm.load("X").flat().mT @ hbm.load("dY").flat())  # (D, M), adds up over the rows
    yield hbm.step("dW")
    yield hbm.done((hbm.output("dX"), hbm.output("dW")))


def softmax_backward(dp: Rows, p: Rows) -> Rows:
    """The gradient dS = P o (dP - delta) of P = softmax(S), with delta = rowsum(P o dP).

    dp and p are (..., N), rows in the last dimension; returns that shape and dtype. Only P is needed, not S.
    Source: FA-1, appendix B.2 (the Jacobian of softmax is diag(p) - p p^T).
    """
    return run(softmax_backward_steps(dp, p))


def softmax_backward_steps(dp: Tensor, p: Tensor) -> Iterator[Step]:
    """One step for the sums, one for the entries; both read P and dP."""
    for name, t in (("p", p), ("dp", dp)):
        check_float(t, name)
    if p.ndim == 0:
        raise ValueError("expected p with at least one dimension, (..., N), got a scalar")
    check_like("dp", dp, "p", p)
    column = (*p.shape[:-1], 1)
    shapes = {"P": p.shape, "dP": p.shape, "dS": p.shape, "delta": column}
    made = {"delta": accumulator(p.dtype), "dS": p.dtype}
    hbm = HBM({"P": p, "dP": dp}, made, shapes, captions.softmax_gradient, whole=True)
    P, dP = hbm.load("P"), hbm.load("dP")
    hbm.store("delta", None, (P * dP).sum(-1, keepdim=True))  # (..., 1)
    yield hbm.step("delta")
    P, dP, delta = (hbm.load(name) for name in ("P", "dP", "delta"))
    hbm.store("dS", None, P * (dP - delta))
    yield hbm.step("dS")
    yield hbm.done(hbm.output("dS"))


def contract(dy: OfOutputs, jacobian: Jacobian) -> OfInputs:
    """dx_i = sum_j dy_j J_ji: the gradient dy (m,) carried through a Jacobian J_ji = dy_j/dx_i, (m, n)."""
    return run(contract_steps(dy, jacobian))


def contract_steps(dy: Tensor, jacobian: Tensor, names: tuple[str, str] = ("dy", "dx")) -> Iterator[Step]:
    """One step per input x_i: column i of the Jacobian times dy, added up, is one number.

    names   of the vector that goes in and of the one that comes out, for the picture and its caption

    ValueError for names that are not two, are the same, or are the name of the Jacobian, J.
    """
    check_together({"jacobian": jacobian, "dy": dy}, "jacobian and dy")
    if jacobian.ndim != 2 or dy.shape != jacobian.shape[:1]:
        raise ValueError(f"expected jacobian (m, n) and dy (m,), got {tuple(jacobian.shape)} and {tuple(dy.shape)}")
    if len(names) != 2 or len({"J", *names}) != 3:
        raise ValueError(f"expected two different names, neither of them J, got {names}")
    (given, made), (m, n) = names, jacobian.shape
    shapes = {"J": (m, n), given: (m,), made: (n,)}  # in this order: captions and pictures take the names from it
    hbm = HBM({"J": jacobian, given: dy}, {made: dy.dtype}, shapes, captions.contraction, whole=True)
    for i in range(n):
        J_i = hbm.load("J", cols=(i, i + 1))  # (m, 1)
        hbm.store(made, None, (J_i.mT * hbm.load(given)).sum(-1), (i, i + 1))
        yield hbm.step("contract", i=i)
    yield hbm.done(hbm.output(made))


@overload
def attention_backward(
    do: Queries, q: Queries, k: Keys, v: Keys, *, stored: Pairs | None = None, **options: Unpack[Fixed]
) -> tuple[Queries, Keys, Keys]: ...
@overload
def attention_backward(
    do: Queries, q: Queries, k: Keys, v: Keys, *, stored: Pairs | None = None, **options: Unpack[AttentionKwargs]
) -> tuple[Tensor, ...]: ...
def attention_backward(
    do: Queries, q: Queries, k: Keys, v: Keys, *, causal: bool = False, window: Window | None = None,
    scale: float | None = None, stored: Pairs | None = None, **more: Unpack[More],
) -> tuple[Queries, Keys, Keys] | tuple[Queries, Keys, Keys, PerHead] | tuple[Queries, Keys, Keys, PerHead, PerHead]:  # fmt: skip
    """dQ, dK and dV of attention from dO, one operation after the other, with S, P, dP and dS stored in HBM.

    do and q are (B, H_q, N_q, D), k and v (B, H_kv, N_k, D). Returns dq, dk, dv shaped and typed as q, k, v, then the
    gradients of `sinks` and of `alibi`, each (H_q,), if these were given. `stored` is P of the forward pass, (B, H_q,
    N_q, N_k). As in autograd, P is then not recomputed, and S only if `softcap` needs it. ValueError or TypeError as in
    `flashlearn.algorithms.attention`, and if do is not shaped and typed as q, or stored as S.
    """
    steps = attention_backward_steps(do, q, k, v, causal=causal, window=window, scale=scale, stored=stored, **more)
    return run(steps)


def attention_backward_steps(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, *, stored: Tensor | None = None, **more: Unpack[AttentionKwargs]
) -> Iterator[Step]:
    """One step per operation, on whole matrices: seven, 5 of them matrix products; with P `stored` five, 4 products.

    S, P, dP and dS are stored in the dtype of q. `on_chip` is empty: how a library cuts each operation is its affair.
    Sinks and slopes get their gradients in the step "dS"; a cap needs S there, recomputed even if P is stored.
    """
    p = Problem.of(q, k, v, {"dO": do, **({} if stored is None else {"P": stored})}, **more)
    check_like("do", do, "q", q)
    if stored is not None:
        check_like("stored", stored, "S", q.new_empty(()).expand(matrix_shapes(p.sizes)["S"]))
    rows, cols, heads = (0, p.sizes.N_q), (0, p.sizes.N_k), p.sizes.H_kv
    hbm = p.memory(captions.gradients, _made(p), whole=True, **backward_shapes(p.sizes))
    yield from _probabilities_again(p, hbm)
    hbm.store("dV", cols, (hbm.load("P").mT @ hbm.load("dO")).sum_groups(heads))  # FA-1 Alg. 3, line 1
    yield hbm.step("dV")
    hbm.store("dP", rows, hbm.load("dO") @ hbm.load("V").mT)  # FA-1 Alg. 3, line 2
    yield hbm.step("dP")
    P, dP = hbm.load("P"), hbm.load("dP")
    delta = (P * dP).sum(-1, keepdim=True)
    dS = P * (dP - delta)  # FA-1 Alg. 3, line 3
    hbm.store("dS", rows, _through_the_cap(p, hbm, dS))
    _store_per_head(p, hbm, P, dS, delta)
    yield hbm.step("dS", delta=delta)
    hbm.store("dQ", rows, p.scale * (hbm.load("dS") @ hbm.load("K")))  # FA-1 Alg. 3, line 4; the scale: Alg. 4, line 21
    yield hbm.step("dQ")
    dK = (hbm.load("dS").mT @ hbm.load("Q")).sum_groups(heads)  # FA-1 Alg. 3, line 5; the scale: Alg. 4, line 22
    hbm.store("dK", cols, p.scale * dK)
    yield hbm.step("dK")
    yield hbm.done(p.gradients(hbm))


def _made(p: Problem) -> dict[str, Any]:
    """What the unfused backward pass stores, and the dtype of each."""
    again = [name for name in "SP" if "P" not in p.given or (name == "S" and p.scores.softcap is not None)]
    per_head = {PER_HEAD[name]: p.given[name].dtype for name in p.learned}
    return {**dict.fromkeys((*again, "dV", "dP", "dS", "dQ", "dK"), p.dtype), **per_head}


def _probabilities_again(p: Problem, hbm: HBM) -> Iterator[Step]:
    """The forward pass again, up to P, or up to what is needed of it."""
    rows, cols = (0, p.sizes.N_q), (0, p.sizes.N_k)
    if "S" in hbm.made:
        product = hbm.load("Q") @ hbm.load("K").mT  # FA-1 Alg. 0, line 1
        p.load_slopes(hbm)
        hbm.store("S", rows, p.score(product, rows, cols))
        yield hbm.step("scores")
    if "P" in hbm.made:
        hbm.store("P", rows, softmax_of(*load_scores(p, hbm)))  # FA-1 Alg. 0, line 2
        yield hbm.step("softmax")


def _through_the_cap(p: Problem, hbm: HBM, dS: OnChip) -> OnChip:
    """The gradient of scale Q K^T from that of S; hidden entries have none."""
    if p.scores.softcap is None:
        return dS
    S = hbm.load("S")
    p.load_slopes(hbm)
    capped = S + S.distance(p.mask.diagonal) * hbm.loaded("alibi") if "alibi" in p.given else S
    return p.scores.uncap(dS, p.mask.hide(capped, (0, p.sizes.N_q), (0, p.sizes.N_k), 0.0))


def _store_per_head(p: Problem, hbm: HBM, P: OnChip, dS: OnChip, delta: OnChip) -> None:
    """The gradients of sinks, whose weight is 1 minus the sum of a row of P, and of slopes."""
    if "sinks" in p.given:
        hbm.store("dsinks", None, -((1 - P.sum(-1, keepdim=True)) * delta).sum_rows())
    if "alibi" in p.given:
        hbm.store("dslopes", None, -(dS * dS.distance(p.mask.diagonal)).sum(-1, keepdim=True).sum_rows())


def _check_matmul(dy: Tensor, x: Tensor, w: Tensor) -> None:
    check_together({"x": x, "dy": dy, "w": w}, "dy, x and w")
    if x.ndim < 2 or w.ndim != 2 or x.shape[-1] != w.shape[0]:
        raise ValueError(f"expected x (..., N, D) and w (D, M), got {tuple(x.shape)} and {tuple(w.shape)}")
    y = (*x.shape[:-1], w.shape[1])
    if dy.shape != y:
        raise ValueError(f"expected dy of the shape of x w, {y}, got {tuple(dy.shape)}")
