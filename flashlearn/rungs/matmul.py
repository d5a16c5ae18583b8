"""Matrix products by blocks: C = A B, and (Q K^T) V, which is attention with its softmax left out.

    C_ij = sum_p A_ip B_pj             one worker per block of C; nothing else is written
    O_i  = sum_j (Q_i K_j^T) V_j       two products in one loop; the block in the middle is never stored

Blocks may be of any size; the last of a row or a column is shorter. Sums are kept in float32 (float64 for
float64). What changed from the attention of one query (`flashlearn.rungs.attention`): rows come in blocks too, so a
tile of K or V that was read once serves many rows. What is still missing is softmax: see `flashlearn.rungs.tiled`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from flashlearn.core.inputs import check_block, check_float
from flashlearn.core.steps import Step, Tile, run
from flashlearn.rungs.attention import spans, wide


def tiled_matmul(a: Tensor, b: Tensor, *, block_m: int, block_n: int, block_k: int) -> Tensor:
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
    a_wide, b_wide = wide(a), wide(b)
    shapes = {"A": (M, K), "B": (K, N), "C": (M, N)}
    C = torch.empty(M, N, dtype=a.dtype, device=a.device)
    for i, rows in enumerate(spans(M, block_m)):
        for j, cols in enumerate(spans(N, block_n)):
            acc = a_wide.new_zeros(rows[1] - rows[0], cols[1] - cols[0])  # (block_m, block_n), stays on chip
            for p, inner in enumerate(spans(K, block_k)):
                A_ip, B_pj = a_wide[slice(*rows), slice(*inner)], b_wide[slice(*inner), slice(*cols)]
                acc = acc + A_ip @ B_pj
                A_tile = Tile("A", (rows, inner), a.element_size())
                B_tile = Tile("B", (inner, cols), b.element_size())
                last = inner[1] == K
                if last:
                    C[slice(*rows), slice(*cols)] = acc
                writes = (Tile("C", (rows, cols), a.element_size()),) if last else ()
                values = {"A": a, "B": b, "acc": acc, "i": i, "j": j, "p": p}
                values |= {"C": C[slice(*rows), slice(*cols)]} if last else {}
                running = Tile("acc", (rows, cols), acc.element_size())
                size = (1, rows[1] - rows[0], inner[1] - inner[0], cols[1] - cols[0])
                yield Step(_sentence(i, j, p, last), "blocks", shapes, (A_tile, B_tile), writes,
                           (A_tile, B_tile, running), values, (size,), (i, j))  # fmt: skip
    blocks = math.ceil(M / block_m) * math.ceil(N / block_n)
    sentence = f"Done: each of the {blocks} blocks of C was written once."
    yield Step(sentence, "done", shapes, values={"A": a, "B": b, "C": C}, output=C)


def tiled_qkv(q: Tensor, k: Tensor, v: Tensor, *, block_q: int, block_k: int) -> Tensor:
    """(Q K^T) V for q (N_q, D), k and v (N_k, D), by blocks, without softmax and without a scale."""
    return run(tiled_qkv_steps(q, k, v, block_q=block_q, block_k=block_k))


def tiled_qkv_steps(q: Tensor, k: Tensor, v: Tensor, *, block_q: int, block_k: int) -> Iterator[Step]:
    """One step per pair (Q_i, K_j), i outside; the last of each row block writes O_i.

    S = Q_i K_j^T    acc = acc + S V_j    O_i = acc after the last block
    """
    N_q, D, N_k = _check_product(q, k.mT if isinstance(k, Tensor) and k.ndim == 2 else k, "q", "k^T")
    if not isinstance(v, Tensor) or v.shape != k.shape or v.dtype != k.dtype:
        got = f"{v.dtype} {tuple(v.shape)}" if isinstance(v, Tensor) else type(v).__name__
        raise ValueError(f"expected v like k, {k.dtype} {tuple(k.shape)}, got {got}")
    check_block(block_q, "block_q")
    check_block(block_k, "block_k")
    q_wide, k_wide, v_wide = wide(q), wide(k), wide(v)
    shapes = {"Q": (N_q, D), "K": (N_k, D), "V": (N_k, D), "S": (N_q, N_k), "O": (N_q, D)}
    O = torch.empty_like(q)
    for i, rows in enumerate(spans(N_q, block_q)):
        acc = q_wide.new_zeros(rows[1] - rows[0], D)  # (block_q, D), stays on chip
        for j, cols in enumerate(spans(N_k, block_k)):
            S = q_wide[slice(*rows)] @ k_wide[slice(*cols)].mT  # (block_q, block_k), never stored
            acc = acc + S @ v_wide[slice(*cols)]
            Q_i, K_j, V_j = (Tile.of(name, t, slice(*at)) for name, t, at in
                             (("Q", q, rows), ("K", k, cols), ("V", v, cols)))  # fmt: skip
            last = cols[1] == N_k
            if last:
                O[slice(*rows)] = acc
            S_ij = Tile("S", (rows, cols), S.element_size())
            running = Tile("acc", (rows, (0, D)), acc.element_size())
            values = {"Q": q, "K": k, "V": v, "S": S, "acc": acc, "i": i, "j": j, "rows": rows, "cols": cols}
            values |= {"O": O[slice(*rows)]} if last else {}
            what = f" That was the last block: O{i} = acc is written." if last else ""
            sentence = f"Block Q{i} meets block K{j}: their scores times V{j} join acc.{what}"
            m, n = S.shape
            yield Step(sentence, "blocks", shapes, (Q_i, K_j, V_j) if j == 0 else (K_j, V_j),
                       (Tile("O", (rows, (0, D)), q.element_size()),) if last else (),
                       (Q_i, K_j, S_ij, V_j, running), values,
                       ((1, m, D, n), (1, m, n, D)), (i,))  # fmt: skip
    yield Step("Done: no block of scores was ever stored.", "done", shapes,
               values={"Q": q, "K": k, "V": v, "O": O}, output=O)  # fmt: skip


def _check_product(a: Tensor, b: Tensor, left: str = "a", right: str = "b") -> tuple[int, int, int]:
    """Refuse what cannot be multiplied; returns M, K, N of (M, K) times (K, N)."""
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


def _sentence(i: int, j: int, p: int, last: bool) -> str:
    what = f": the sum is complete and C{i}{j} is written" if last else ""
    product = f"A{i}{p} times B{p}{j}"
    return f"Worker ({i}, {j}) {'starts its sum with' if p == 0 else 'adds'} {product}{what}."
