"""Matrix products by blocks: C = A B, and (Q K^T) V, which is attention with its softmax left out.

    C_ij = sum_p A_ip B_pj             one worker per block of C; nothing else is written
    O_i  = sum_j (Q_i K_j^T) V_j       two products in one loop; the block in the middle is never stored

Blocks may be of any size; the last of a row or a column is shorter. Sums are kept in float32 (float64 for float64).
What is new compared with the attention of one query (`flashlearn.algorithms.attention`): queries come in blocks too, so
many queries share a tile of K or V. Softmax is still missing: see `flashlearn.algorithms.tiled`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from flashlearn.algorithms import captions
from flashlearn.core.hbm import HBM
from flashlearn.core.inputs import check_block, check_float, check_like
from flashlearn.core.numerics import spans
from flashlearn.core.steps import Step, run

if TYPE_CHECKING:
    from flashlearn.core.shapes import Left, OneHeadKeys, OneHeadQueries, Product, Right


def tiled_matmul(a: Left, b: Right, *, block_m: int, block_n: int, block_k: int) -> Product:
    """C = A B for a (M, K) and b (K, N), a (block_m, block_n) block of C at a time."""
    return run(tiled_matmul_steps(a, b, block_m=block_m, block_n=block_n, block_k=block_k))


def tiled_matmul_steps(a: Tensor, b: Tensor, *, block_m: int, block_n: int, block_k: int) -> Iterator[Step]:
    """One step per block of C and block of the inner dimension; the last of each block of C writes it.

    C_ij = sum_p A_ip B_pj. Elements read: M K ceil(N / block_n) of A and K N ceil(M / block_m) of B; M N are
    written. `program` is (i, j): in a kernel, each block of C has a program, or worker, of its own.
    """
    M, K, N = _check_product(a, b)
    for size, name in ((block_m, "block_m"), (block_n, "block_n"), (block_k, "block_k")):
        check_block(size, name)
    hbm = HBM({"A": a, "B": b}, {"C": a.dtype}, {"A": (M, K), "B": (K, N), "C": (M, N)}, captions.matmul)
    for i, rows in enumerate(spans(M, block_m)):
        for j, cols in enumerate(spans(N, block_n)):
            acc = hbm.fill("C", rows, cols)  # (block_m, block_n), stays on chip
            for p, inner in enumerate(spans(K, block_k)):
                A_ip, B_pj = hbm.load("A", rows, inner), hbm.load("B", inner, cols)
                acc = acc + A_ip @ B_pj
                if inner[1] == K:
                    hbm.store("C", rows, acc, cols)
                yield hbm.step("blocks", program=(i, j), acc=acc, i=i, j=j, p=p)
    yield hbm.done(hbm.output("C"), blocks=math.ceil(M / block_m) * math.ceil(N / block_n))


def tiled_qkv(q: OneHeadQueries, k: OneHeadKeys, v: OneHeadKeys, *, block_q: int, block_k: int) -> OneHeadQueries:
    """(Q K^T) V for q (N_q, D), k and v (N_k, D), by blocks, without softmax and without a scale."""
    return run(tiled_qkv_steps(q, k, v, block_q=block_q, block_k=block_k))


def tiled_qkv_steps(q: Tensor, k: Tensor, v: Tensor, *, block_q: int, block_k: int) -> Iterator[Step]:
    """One step per pair (Q_i, K_j), i outside; the last of each row block writes O_i.

    S = Q_i K_j^T    acc = acc + S V_j    O_i = acc after the last block
    """
    N_q, D, N_k = _check_product(q, k.mT if isinstance(k, Tensor) and k.ndim == 2 else k, "q", "k^T")
    check_like("v", v, "k", k)
    check_block(block_q, "block_q")
    check_block(block_k, "block_k")
    shapes = {"Q": (N_q, D), "K": (N_k, D), "V": (N_k, D), "S": (N_q, N_k), "O": (N_q, D)}
    hbm = HBM({"Q": q, "K": k, "V": v}, {"O": q.dtype}, shapes, captions.qkv)
    for i, rows in enumerate(spans(N_q, block_q)):
        acc, Q_i = hbm.fill("O", rows), hbm.load("Q", rows)  # acc: (block_q, D), stays on chip
        for j, cols in enumerate(spans(N_k, block_k)):
            K_j, V_j = hbm.load("K", cols), hbm.load("V", cols)
            S = Q_i @ K_j.mT  # (block_q, block_k), never stored
            acc = acc + S @ V_j
            if cols[1] == N_k:
                hbm.store("O", rows, acc)
            yield hbm.step("blocks", program=(i,), S=S, acc=acc, i=i, j=j, rows=rows, cols=cols)
    yield hbm.done(hbm.output("O"))


def _check_product(a: Tensor, b: Tensor, left: str = "a", right: str = "b") -> tuple[int, int, int]:
    """Reject what cannot be multiplied; returns M, K, N of (M, K) times (K, N)."""
    for name, t in ((left, a), (right, b)):
        check_float(t, name)
        if t.ndim != 2:
            raise ValueError(f"expected {name} with two dimensions, got shape {tuple(t.shape)}")
    if a.shape[1] != b.shape[0] or 0 in (*a.shape, *b.shape):
        raise ValueError(
            f"expected {left} (M, K) and {right} (K, N) with one K and no empty dimension, "
            f"got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    if a.dtype != b.dtype or a.device != b.device:
        raise TypeError(
            f"expected {left} and {right} in one dtype on one device, "
            f"got {a.dtype} on {a.device} and {b.dtype} on {b.device}"
        )
    return a.shape[0], a.shape[1], b.shape[1]
