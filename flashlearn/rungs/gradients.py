"""Gradients by hand: of a matrix product, of softmax, and of attention with its N x N matrices stored.

A gradient is written as a d before the name: dX has the shape of X and holds, for every entry of X, how fast
the loss (one number) changes with that entry. A backward function gets the gradient of a result and returns
the gradients of what went in, without ever building a Jacobian:

    Y = X W              dX = dY W^T                      dW = X^T dY
    P = softmax(S)       dS = P o (dP - delta)            delta = rowsum(P o dP), one number a row
    O = P V              dP = dO V^T                      dV = P^T dO
    S = scale Q K^T      dQ = scale dS K                  dK = scale dS^T Q

`o` is the product entry by entry. `contract_steps` is the long way, with the Jacobian, for the picture.

Inputs are in float16, bfloat16, float32 or float64 and gradients come back in that dtype; products and sums
are computed in float32, float64 for float64. Attention takes what `flashlearn.rungs.attention` takes: grouped heads
(dK and dV add up over the query heads that share them), any lengths, queries that see no key (gradient 0).

Sources: the formulas are derived in T. Dao et al., "FlashAttention", 2022 (arXiv:2205.14135), appendix B.2;
`attention_backward` is its Algorithm 3, which takes P as stored, with P made again first by its Algorithm 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from flashlearn.core.inputs import Sizes, causal_mask, check_float, check_qkv, resolve_scale
from flashlearn.core.steps import Step, Tile, run
from flashlearn.rungs.attention import divide, matrix_shapes, per_query_head, row_max, wide
from flashlearn.rungs.softmax import INF, exp_diff


def matmul_backward(dy: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients dX = dY W^T and dW = X^T dY of Y = X W.

    x is (..., N, D), w is (D, M), dy is (..., N, M); returns dx as x and dw as w, which adds up over `...`.
    ValueError if the shapes do not belong together, TypeError for other dtypes or two of them.
    """
    return run(matmul_backward_steps(dy, x, w))


def matmul_backward_steps(dy: Tensor, x: Tensor, w: Tensor) -> Iterator[Step]:
    """One step per product, each on whole matrices."""
    _check_matmul(dy, x, w)
    X, W, dY = Tile.of("X", x), Tile.of("W", w), Tile.of("dY", dy)
    shapes = {"X": tuple(x.shape), "W": tuple(w.shape), "dY": tuple(dy.shape), "dX": tuple(x.shape),
              "dW": tuple(w.shape)}  # fmt: skip
    (D, M), rows = w.shape, x.shape[:-1].numel()
    values = {"X": x, "W": w, "dY": dy}
    dx = (wide(dy) @ wide(w).mT).to(x.dtype)  # (..., N, D)
    values = {**values, "dX": dx}
    sentence = "dX = dY W^T: every row of dY times W transposed."
    yield Step(sentence, "dX", shapes, (dY, W), (Tile.of("dX", dx),), values=values,
               matmuls=((1, rows, M, D),))  # fmt: skip
    dw = (wide(x).reshape(rows, D).mT @ wide(dy).reshape(rows, M)).to(w.dtype)  # (D, M)
    values = {**values, "dW": dw}
    sentence = "dW = X^T dY: X transposed times dY, which adds up over the rows."
    yield Step(sentence, "dW", shapes, (X, dY), (Tile.of("dW", dw),), values=values,
               matmuls=((1, D, rows, M),))  # fmt: skip
    sentence = "Done: two products of ordinary size, no Jacobian."
    yield Step(sentence, "done", shapes, values=values, output=(dx, dw))


def softmax_backward(dp: Tensor, p: Tensor) -> Tensor:
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
    P, dP = Tile.of("P", p), Tile.of("dP", dp)
    shapes = {"P": tuple(p.shape), "dP": tuple(p.shape), "dS": tuple(p.shape), "delta": (*p.shape[:-1], 1)}
    delta = (wide(p) * wide(dp)).sum(-1, keepdim=True)  # (..., 1)
    values = {"P": p, "dP": dp, "delta": delta}
    yield Step(f"delta = P . dP, one number a row; the first is {_first(delta)}.", "delta", shapes, (P, dP),
               (Tile.of("delta", delta),), values=values)  # fmt: skip
    ds = (wide(p) * (wide(dp) - delta)).to(p.dtype)
    values = {**values, "dS": ds}
    yield Step(f"dS = P o (dP - delta); the first entry is {_first(ds)}.", "dS", shapes,
               (P, dP, Tile.of("delta", delta)), (Tile.of("dS", ds),), values=values)  # fmt: skip
    yield Step("Done: every row of dS adds up to 0.", "done", shapes, values=values, output=ds)


def contract(dy: Tensor, jacobian: Tensor) -> Tensor:
    """dx_i = sum_j dy_j J_ji: the gradient dy (m,) carried through a Jacobian J_ji = dy_j/dx_i, (m, n)."""
    return run(contract_steps(dy, jacobian))


def contract_steps(dy: Tensor, jacobian: Tensor) -> Iterator[Step]:
    """One step per input x_i: column i of the Jacobian times dy, added up, is one number."""
    check_float(dy, "dy")
    check_float(jacobian, "jacobian")
    if jacobian.ndim != 2 or dy.shape != jacobian.shape[:1]:
        raise ValueError(f"expected jacobian (m, n) and dy (m,), got {tuple(jacobian.shape)} and {tuple(dy.shape)}")
    m, n = jacobian.shape
    shapes = {"J": (m, n), "dy": (m,), "dx": (n,)}
    dx = []
    for i in range(n):
        dx.append((wide(dy) * wide(jacobian[:, i])).sum().to(dy.dtype))
        value = dx[-1].reshape(1)
        here = Tile.of("dx", dy.new_empty(n), slice(i, i + 1))
        values = {"J": jacobian, "dy": dy, "i": i, "dx": value}
        sentence = f"Column {i} of J times dy, {m} products, adds up to one number: dx[{i}] = {_first(value)}."
        reads = (Tile.of("dy", dy), Tile.of("J", jacobian, ..., slice(i, i + 1)))
        yield Step(sentence, "contract", shapes, reads, (here,), values=values)
    output = torch.stack(dx) if dx else dy.new_empty(0)
    sentence = f"Done: the {m} × {n} = {m * n} numbers of J are used up, and {n} are left."
    yield Step(sentence, "done", shapes, values={"J": jacobian, "dy": dy}, output=output)


def attention_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV of attention from dO, one operation after the other, with S, P, dP and dS stored in HBM.

    do and q are (B, H_q, N_q, D), k and v (B, H_kv, N_k, D); returns dq, dk, dv shaped and typed as q, k, v.
    ValueError or TypeError as in `flashlearn.rungs.attention`, and if do is not shaped and typed as q.
    """
    return run(attention_backward_steps(do, q, k, v, causal=causal, scale=scale))


def attention_backward_steps(do: Tensor, q: Tensor, k: Tensor, v: Tensor, *, causal=False,
                             scale=None) -> Iterator[Step]:  # fmt: skip
    """One step per operation, seven in all, on whole matrices; 5 of them are matrix products.

    S, P, dP and dS are stored in the dtype of q. `on_chip` is empty: how a library cuts each operation is its
    affair.
    """
    sizes = check_qkv(q, k, v)
    check_like("do", do, "q", q)
    scale = resolve_scale(scale, sizes.D)
    given = {"Q": q, "K": k, "V": v, "dO": do}
    k_wide, v_wide = wide(per_query_head(k, sizes)), wide(per_query_head(v, sizes))
    values, step = dict(given), _dense_step(given, sizes)

    S = wide(q) @ k_wide.mT * scale  # (B, H_q, N_q, N_k), FA-1 Alg. 0, line 1
    if causal:
        S = S.masked_fill(~causal_mask(sizes.N_q, sizes.N_k, q.device), -INF)
    values["S"] = S = S.to(q.dtype)
    yield step("scores", "Make S = scale Q K^T again", "QK", "S", values, "NDN")
    weights = exp_diff(wide(S), row_max(wide(S)))  # FA-1 Alg. 0, line 2
    values["P"] = P = divide(weights, weights.sum(-1, keepdim=True)).to(q.dtype)
    yield step("softmax", "Make P = softmax(S) again", "S", "P", values)
    values["dV"] = dv = per_kv_head(wide(P).mT @ wide(do), sizes).to(v.dtype)  # FA-1 Alg. 3, line 1
    yield step("dV", "dV = P^T dO", ("P", "dO"), "dV", values, "NND")
    values["dP"] = dP = (wide(do) @ v_wide.mT).to(q.dtype)  # FA-1 Alg. 3, line 2
    yield step("dP", "dP = dO V^T", ("dO", "V"), "dP", values, "NDN")
    delta = (wide(P) * wide(dP)).sum(-1, keepdim=True)  # (B, H_q, N_q, 1)
    values["dS"] = dS = (wide(P) * (wide(dP) - delta)).to(q.dtype)  # FA-1 Alg. 3, line 3
    yield step("dS", "dS = P o (dP - rowsum(P o dP))", ("P", "dP"), "dS", values)
    dq = scale * (wide(dS) @ k_wide)  # FA-1 Alg. 3, line 4; the scale: Alg. 4, line 21
    values["dQ"] = dq = dq.to(q.dtype)
    yield step("dQ", "dQ = scale dS K", ("dS", "K"), "dQ", values, "NND")
    dk = scale * per_kv_head(wide(dS).mT @ wide(q), sizes)  # FA-1 Alg. 3, line 5; the scale: Alg. 4, line 22
    values["dK"] = dk = dk.to(k.dtype)
    yield step("dK", "dK = scale dS^T Q", ("dS", "Q"), "dK", values, "NND")
    sentence = f"Done: three gradients, at the price of four {sizes.N_q} × {sizes.N_k} matrices in HBM."
    yield Step(sentence, "done", backward_shapes(sizes), values=values, output=(dq, dk, dv))


def per_kv_head(t: Tensor, sizes: Sizes) -> Tensor:
    """(B, H_q, N_k, D) to (B, H_kv, N_k, D): what the query heads of a group give to their head adds up."""
    return t if sizes.group == 1 else t.unflatten(1, (sizes.H_kv, sizes.group)).sum(2)


def backward_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices of a backward picture; lse and delta are columns."""
    forward = matrix_shapes(sizes)
    column, pairs = (*forward["Q"][:3], 1), forward["S"]
    return {**forward, "P": pairs, "dP": pairs, "dS": pairs, "dO": forward["O"], "dQ": forward["Q"],
            "dK": forward["K"], "dV": forward["V"], "lse": column, "delta": column}  # fmt: skip


def check_like(name: str, t: Tensor, other_name: str, other: Tensor) -> None:
    """Refuse a tensor that is not shaped and typed as another, or lies elsewhere."""
    check_float(t, name)
    if t.shape != other.shape:
        expected = f"{name} shaped as {other_name}, {tuple(other.shape)}"
        raise ValueError(f"expected {expected}, got {tuple(t.shape)}")
    if t.dtype != other.dtype:
        raise TypeError(f"expected {name} in the dtype of {other_name}, {other.dtype}, got {t.dtype}")
    if t.device != other.device:
        raise ValueError(f"expected {name} on the device of {other_name}, {other.device}, got {t.device}")


def _check_matmul(dy: Tensor, x: Tensor, w: Tensor) -> None:
    for name, t in (("dy", dy), ("x", x), ("w", w)):
        check_float(t, name)
        if t.dtype != x.dtype:
            raise TypeError(f"expected dy, x and w in one dtype, got x {x.dtype} and {name} {t.dtype}")
    if x.ndim < 2 or w.ndim != 2 or x.shape[-1] != w.shape[0]:
        raise ValueError(f"expected x (..., N, D) and w (D, M), got {tuple(x.shape)} and {tuple(w.shape)}")
    y = (*x.shape[:-1], w.shape[1])
    if dy.shape != y:
        raise ValueError(f"expected dy of the shape of x w, {y}, got {tuple(dy.shape)}")


def _dense_step(given: dict[str, Tensor], sizes: Sizes):
    """A function that makes the step of one dense operation: what it reads, what it writes, its product.

    `product` is "NDN" for (N_q, D) times (D, N_k), "NND" for a product with an N_q x N_k matrix on the left,
    transposed or not: both cost the same. K and V are read by every query head of their group.
    """
    shapes, group = backward_shapes(sizes), sizes.group
    B, H, N_q, N_k, D = sizes.B, sizes.H_q, sizes.N_q, sizes.N_k, sizes.D
    products = {"": (), "NDN": ((B * H, N_q, D, N_k),), "NND": ((B * H, N_q, N_k, D),)}

    def tile(name: str, values: dict) -> Tile:
        return Tile.of(name, values[name], times=group if name in ("K", "V") else 1)

    def step(phase, what, reads, write, values, product="") -> Step:
        last, read = _last(values[write]), tuple(tile(name, values) for name in reads)
        sentence = f"{what}: read {', '.join(reads)}, write {write}; its last entry is {last}."
        return Step(sentence, phase, shapes, read, (tile(write, values),), values=dict(values),
                    matmuls=products[product])  # fmt: skip

    return step


def _first(t: Tensor) -> str:
    return f"{t.detach().flatten()[0].item():.4f}" if t.numel() else "nothing"


def _last(t: Tensor) -> str:
    return f"{t.detach()[0, 0].flatten()[-1].item():.4f}" if t.numel() else "nothing"
