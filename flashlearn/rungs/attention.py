"""Attention for (B, H, N, D) tensors, in three ways, each a generator of steps and the function that runs it.

    S = scale * Q K^T          scores          (N_q, N_k)
    P = softmax(S)             probabilities   (N_q, N_k), by rows
    O = P V                    output          (N_q, D)

    standard   one operation after the other; S and P are stored in HBM          reads K once, V once
    two pass   softmax is online: keys first, then values; S stays on chip       reads K once, V once
    one pass   softmax times V is online too: one loop over keys and values      reads K once, V once

The rung before (`flashlearn.rungs.softmax`) normalised one row of scores. What is new: the scores are made here
(q.k), so they need not be stored, and softmax is followed by a product with V, so its division can wait.
In two_pass and one_pass each query is a program of its own: all run in lock-step, a step for every
`block_k` keys, and each reads the keys and values for itself. Queries share them from `flashlearn.rungs.tiled` on.

q is (B, H_q, N_q, D), k and v are (B, H_kv, N_k, D) with H_q a multiple of H_kv, in float16, bfloat16,
float32 or float64; the output is shaped and typed as q. `causal` lets query i see the keys j <= i + N_k - N_q
(the last query sees all); `scale` is 1 / sqrt(D) unless given. Computed in float32, float64 for float64.

At the edges: a query that sees no key gets output 0, lse = -inf and zero gradients, never NaN. Gradients flow
through all of them. Sentences follow the last query of the first head, which sees every key.

Sources: the one-pass recurrence is the loop over keys of T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691),
Algorithm 1, with blocks of one query; its normalised form is that of T. Dao et al., "FlashAttention", 2022
(arXiv:2205.14135), Algorithm 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from flashlearn.core.inputs import Sizes, causal_mask, check_block, check_qkv, resolve_scale
from flashlearn.core.steps import Step, Tile, run
from flashlearn.rungs.softmax import INF, accumulator, exp_diff


def standard_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None) -> Tensor:
    """softmax(scale * Q K^T) V, one operation after the other, S and P stored in HBM. See the module."""
    return run(standard_attention_steps(q, k, v, causal=causal, scale=scale))


def standard_attention_steps(q: Tensor, k: Tensor, v: Tensor, *, causal=False, scale=None) -> Iterator[Step]:
    """One step per operation, each on whole matrices: scores, softmax, weighted sum (FA-1, Algorithm 0).

    S and P are stored in the dtype of q. `on_chip` is empty: how a library cuts each operation is its affair.
    """
    sizes = check_qkv(q, k, v)
    scale = resolve_scale(scale, sizes.D)
    B, H, N_q, N_k, D = sizes.B, sizes.H_q, sizes.N_q, sizes.N_k, sizes.D
    Q, K, V = (whole_tile(name, t, q) for name, t in (("Q", q), ("K", k), ("V", v)))
    S_tile, P_tile = (Tile(name, ((0, B), (0, H), (0, N_q), (0, N_k)), q.element_size()) for name in "SP")
    shapes = {**matrix_shapes(sizes), "P": (B, H, N_q, N_k)}
    values = {"Q": q, "K": k, "V": v}

    S = wide(q) @ wide(per_query_head(k, sizes)).mT * scale  # (B, H_q, N_q, N_k)
    if causal:
        S = S.masked_fill(~causal_mask(N_q, N_k, q.device), -INF)
    S = S.to(q.dtype)
    values = {**values, "S": S}
    sentence = f"Multiply Q by K^T, write all {N_q} × {N_k} scores S of a head to HBM; the last is {show(S)}."
    yield Step(sentence, "scores", shapes, (Q, K), (S_tile,), values=values, matmuls=((B * H, N_q, D, N_k),))

    weights = exp_diff(wide(S), row_max(wide(S)))
    P = divide(weights, weights.sum(-1, keepdim=True)).to(q.dtype)
    values = {**values, "P": P}
    sentence = f"Read S back, take the softmax of each row and write P to HBM; the last weight is {show(P)}."
    yield Step(sentence, "softmax", shapes, (S_tile,), (P_tile,), values=values)

    O = (wide(P) @ wide(per_query_head(v, sizes))).to(q.dtype)
    values = {**values, "O": O}
    sentence = f"Read P back, multiply it by V and write O to HBM; its last entry is {show(O)}."
    yield Step(sentence, "weighted sum", shapes, (P_tile, V), (Tile.of("O", O),), values=values,
               matmuls=((B * H, N_q, N_k, D),))  # fmt: skip
    yield Step(f"Done: O is complete, at the price of two {N_q} × {N_k} matrices in HBM.", "done", shapes,
               values=values, output=O)  # fmt: skip


def two_pass_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None,
    block_k: int = 1, recompute: bool = False,
) -> Tensor:  # fmt: skip
    """Attention in a pass over the keys (maximum and sum) and one over the values (weighted sum).

    The scores are kept on chip, N_k for each query; with `recompute` the second pass makes them again from K,
    which it then reads a second time.
    """
    options = {"causal": causal, "scale": scale, "block_k": block_k, "recompute": recompute}
    return run(two_pass_attention_steps(q, k, v, **options))


def two_pass_attention_steps(q: Tensor, k: Tensor, v: Tensor, *, causal=False, scale=None, block_k=1,
                             recompute=False) -> Iterator[Step]:  # fmt: skip
    """One step per block of keys and pass, for all queries at once; then one that writes O.

    s_i = scale * q.k_i    m_i = max(m_{i-1}, s_i)    l_i = l_{i-1} exp(m_{i-1} - m_i) + exp(s_i - m_i)
    o_i = o_{i-1} + exp(s_i - m_N) / l_N * v_i
    """
    sizes = check_qkv(q, k, v)
    scale, diagonal, rows = resolve_scale(scale, sizes.D), diagonal_of(sizes, causal), (0, sizes.N_q)
    check_block(block_k, "block_k")
    q_wide, k_wide, v_wide = wide(q), wide(per_query_head(k, sizes)), wide(per_query_head(v, sizes))
    m_i, l_i, acc = start(q)
    kept: dict[int, Tensor] = {}  # first key of a block -> its scores (B, H_q, N_q, width)
    for j0, j1 in spans(sizes.N_k, block_k):
        S = scores(q_wide, k_wide[:, :, j0:j1], scale, rows, (j0, j1), diagonal)
        if not recompute:
            kept[j0] = S
        m_old = m_i
        m_i, l_i, alpha, _ = online_update(m_i, l_i, S)
        sentence = _score_sentence(j0, j1, S, m_old, m_i, l_i, alpha)
        w = j1 - j0
        ops = Counter(multiply=w + 1, max=w, exp=w + 1, add=2 * w + 1)
        yield _lockstep("maximum and sum", sentence, q, k, v, sizes, (j0, j1), "K", diagonal, load_q=j0 == 0,
                        kept=0 if recompute else j1, operations=ops, S=S, m_i=m_i, l_i=l_i, m_old=m_old,
                        alpha=alpha)  # fmt: skip
    for j0, j1 in spans(sizes.N_k, block_k):
        again = recompute and scores(q_wide, k_wide[:, :, j0:j1], scale, rows, (j0, j1), diagonal)
        S = again if recompute else kept[j0]
        P = divide(exp_diff(S, m_i), l_i)  # (B, H_q, N_q, width)
        acc = acc + P @ v_wide[:, :, j0:j1]
        w, weight = j1 - j0, show(P.sum(-1, keepdim=True))
        gets = "gets" if w == 1 else "get"
        sentence = f"{_name('Value', j0, j1)} {gets} weight {weight}: o = {_vector(acc)}."
        ops = Counter(multiply=w * recompute, exp=w, add=w, divide=w)
        reads = "KV" if recompute else "V"
        yield _lockstep("weighted sum", sentence, q, k, v, sizes, (j0, j1), reads, diagonal,
                        kept=0 if recompute else sizes.N_k, operations=ops, S=S, P=P, m_i=m_i, l_i=l_i,
                        acc=acc)  # fmt: skip
    what = "Write o, whose weights are already divided by l, to HBM"
    yield from _finish(q, k, v, sizes, acc, m_i, l_i, "write", what, Counter())


def one_pass_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None,
    block_k: int = 1, normalised: bool = False,
) -> Tensor:  # fmt: skip
    """Attention in one pass over keys and values, divided by l at the end, or always if `normalised`."""
    options = {"causal": causal, "scale": scale, "block_k": block_k, "normalised": normalised}
    return run(one_pass_attention_steps(q, k, v, **options))


def one_pass_attention_steps(q: Tensor, k: Tensor, v: Tensor, *, causal=False, scale=None, block_k=1,
                             normalised=False) -> Iterator[Step]:  # fmt: skip
    """One step per block of keys, for all queries at once; then one that writes O.

    s_i = scale * q.k_i    m_i = max(m_{i-1}, s_i)    l_i = l_{i-1} exp(m_{i-1} - m_i) + exp(s_i - m_i)
    acc_i = acc_{i-1} exp(m_{i-1} - m_i) + exp(s_i - m_i) v_i                        then o = acc_N / l_N
    o'_i  = o'_{i-1} exp(m_{i-1} - m_i) l_{i-1} / l_i + exp(s_i - m_i) / l_i v_i     if `normalised`

    In the second form `values["acc"]` holds o', the attention over the keys so far; `values["factor"]` is
    what the old acc or o' was multiplied by. `values["operations"]` counts what one query did in this step
    besides matrix products; `flashlearn.cost.operations` adds them up.
    """
    sizes = check_qkv(q, k, v)
    scale, diagonal, rows = resolve_scale(scale, sizes.D), diagonal_of(sizes, causal), (0, sizes.N_q)
    check_block(block_k, "block_k")
    q_wide, k_wide, v_wide = wide(q), wide(per_query_head(k, sizes)), wide(per_query_head(v, sizes))
    m_i, l_i, acc = start(q)
    for j0, j1 in spans(sizes.N_k, block_k):
        S = scores(q_wide, k_wide[:, :, j0:j1], scale, rows, (j0, j1), diagonal)
        m_old, l_old, w = m_i, l_i, j1 - j0
        m_i, l_i, alpha, P = online_update(m_i, l_i, S)
        ops = Counter(multiply=w + 1 + sizes.D, max=w, exp=w + 1, add=2 * w + 1)
        if normalised:
            factor = divide(l_old * alpha, l_i)
            acc = acc * factor + divide(P, l_i) @ v_wide[:, :, j0:j1]
            ops += Counter(divide=w + 1)
        else:
            factor = alpha
            acc = acc * factor + P @ v_wide[:, :, j0:j1]
        sentence = _one_pass_sentence(j0, j1, m_old, m_i, l_i, alpha, acc, "o'" if normalised else "acc")
        yield _lockstep("one pass", sentence, q, k, v, sizes, (j0, j1), "KV", diagonal, load_q=j0 == 0,
                        operations=ops, S=S, P=P, m_i=m_i, l_i=l_i, acc=acc, m_old=m_old,
                        alpha=alpha, factor=factor)  # fmt: skip
    if normalised:
        what = "Write o', which needs no division any more, to HBM"
        yield from _finish(q, k, v, sizes, acc, m_i, l_i, "write", what, Counter())
    else:
        what, o = f"Divide acc by l = {show(l_i)}, once, and write O to HBM", divide(acc, l_i)
        yield from _finish(q, k, v, sizes, o, m_i, l_i, "divide", what, Counter(divide=sizes.D))


def online_update(m_i: Tensor, l_i: Tensor, S: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Take a block of scores into the running maximum and sum; returns m, l, alpha and P.

    m     = max(m_i, rowmax(S))          alpha = exp(m_i - m)
    P     = exp(S - m)                   l     = l_i alpha + rowsum(P)

    S and P are (..., rows, width), the others (..., rows, 1). Whatever was summed against the old maximum has
    to be multiplied by alpha. Source: FA-2, Algorithm 1, line 9.
    """
    m = torch.maximum(m_i, row_max(S))
    alpha, P = exp_diff(m_i, m), exp_diff(S, m)
    return m, l_i * alpha + P.sum(-1, keepdim=True), alpha, P


def scores(
    q_i: Tensor, k_j: Tensor, scale: float, rows: tuple[int, int], cols: tuple[int, int], diagonal: int | None
) -> Tensor:
    """The block scale * Q_i K_j^T of scores, -inf where a query may not see a key.

    q_i (..., rows, D) and k_j (..., cols, D) stand at `rows` and `cols` of the whole problem, in which query
    i sees the keys j <= i + diagonal, or all if that is None. A block that is wholly visible gets no mask.
    """
    S = q_i @ k_j.mT * scale
    if crosses(rows, cols, diagonal):
        i = torch.arange(*rows, device=S.device)[:, None]
        j = torch.arange(*cols, device=S.device)
        S = S.masked_fill(j > i + diagonal, -INF)
    return S


def crosses(rows: tuple[int, int], cols: tuple[int, int], diagonal: int | None) -> bool:
    """Whether some query of the block may not see some key of it: its first query, its last key."""
    return diagonal is not None and cols[1] - 1 > rows[0] + diagonal


def diagonal_of(sizes: Sizes, causal: bool) -> int | None:
    """Query i sees the keys j <= i + diagonal, so that the last query sees every key; None if all see all."""
    return sizes.N_k - sizes.N_q if causal else None


def row_max(S: Tensor) -> Tensor:
    """The maximum of every row, (..., N) to (..., 1), and -inf for a row of nothing.

    No gradient flows through it: the result of softmax does not depend on what is subtracted.
    """
    nothing = S.new_full((*S.shape[:-1], 1), -INF)
    return S.detach().amax(-1, keepdim=True) if S.shape[-1] else nothing


def divide(acc: Tensor, l_i: Tensor) -> Tensor:
    """acc / l, and acc where l = 0: a row that saw no key has acc = 0 and stays 0, with zero gradient."""
    return acc / l_i.masked_fill(l_i == 0, 1)


def log_sum_exp(m_i: Tensor, l_i: Tensor) -> Tensor:
    """lse = m + log l: one number for two, as exp(S - m) / l = exp(S - lse); -inf where l = 0."""
    return m_i + torch.log(l_i.masked_fill(l_i == 0, 1))


def start(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(m, l, acc) = (-inf, 0, 0), of shapes (..., 1), (..., 1) and (..., D), before any key."""
    acc = torch.zeros(q.shape, dtype=accumulator(q.dtype), device=q.device)
    return acc.new_full((*q.shape[:-1], 1), -INF), acc.new_zeros((*q.shape[:-1], 1)), acc


def wide(t: Tensor) -> Tensor:
    """The tensor in the dtype that sums are kept in."""
    return t.to(accumulator(t.dtype))


def per_query_head(t: Tensor, sizes: Sizes) -> Tensor:
    """(B, H_kv, N_k, D) to (B, H_q, N_k, D): the query heads h*group ... h*group + group - 1 share head h."""
    return t if sizes.group == 1 else t.repeat_interleave(sizes.group, dim=1)


def spans(N: int, block: int) -> list[tuple[int, int]]:
    """(start, stop) of every block of `block` elements; the last one may be shorter."""
    return [(start, min(start + block, N)) for start in range(0, N, block)]


def matrix_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices of an attention picture; S is a place, stored only by standard_attention."""
    B, H_q, H_kv, N_q, N_k, D = sizes
    q, kv = (B, H_q, N_q, D), (B, H_kv, N_k, D)
    return {"Q": q, "K": kv, "V": kv, "S": (B, H_q, N_q, N_k), "O": q}


def whole_tile(name: str, t: Tensor, q: Tensor) -> Tile:
    """All of Q, K or V; every query head reads the K and V of its group for itself."""
    return Tile.of(name, t, times=q.shape[1] // t.shape[1])


def number(t: Tensor) -> float:
    """The number that sentences follow: the last one of the first head."""
    return t.detach()[0, 0, -1, -1].item() if t.numel() else float("nan")


def show(t: Tensor) -> str:
    return f"{number(t):.4f}"


def _name(what: str, j0: int, j1: int) -> str:
    return f"{what} {j0}" if j1 - j0 == 1 else f"{what}s {j0}:{j1} together"


def _vector(t: Tensor) -> str:
    """At most four entries of the row that sentences follow."""
    if not t.numel():
        return "()"
    row = t.detach()[0, 0, -1, :4].tolist()
    return f"({', '.join(f'{x:.4f}' for x in row)}{', ...' if t.shape[-1] > 4 else ''})"


def _score_sentence(j0, j1, S, m_old, m_i, l_i, alpha) -> str:
    """Tell the reader the score, and whether the sum so far had to be rescaled."""
    best = show(row_max(S))
    what = f"Key {j0} scores {best}" if j1 - j0 == 1 else f"Keys {j0}:{j1} score {best} at most"
    if number(m_old) == number(m_i):
        return f"{what}, m stays {show(m_i)}: l = {show(l_i)}."
    if number(m_old) == -INF:
        return f"{what}, the first: m = {show(m_i)}, l = {show(l_i)}."
    scaled = f"the old sum is scaled by exp(m_old - m_new) = {show(alpha)}"
    return f"{what}, a new maximum: {scaled}, l = {show(l_i)}."


def _one_pass_sentence(j0, j1, m_old, m_i, l_i, alpha, acc, name) -> str:
    """Tell the reader whether l and the accumulator had to be rescaled."""
    what = f"Key and value {j0}" if j1 - j0 == 1 else f"Keys and values {j0}:{j1}"
    result = f"m = {show(m_i)}, l = {show(l_i)}, {name} = {_vector(acc)}."
    if number(m_old) == number(m_i):
        return f"{what}: no new maximum, nothing is rescaled; {result}"
    if number(m_old) == -INF:
        return f"{what}, the first: {result}"
    scaled = f"the old l and {name} are scaled by exp(m_old - m_new) = {show(alpha)}"
    if name == "o'":
        scaled = f"the old l is scaled by exp(m_old - m_new) = {show(alpha)}, o' by that times l_old / l_new"
    return f"{what}: new maximum, {scaled}; {result}"


def _lockstep(phase, sentence, q, k, v, sizes, cols, reads, diagonal, *, load_q=False, kept=0, **values):
    """A step in which every query that sees any key of cols = (j0, j1) reads K or V or both there.

    The queries' own rows come with the first keys (`load_q`) and stay on chip; `kept` scores stay there too.
    """
    B, H, N_q, D, width = sizes.B, sizes.H_q, sizes.N_q, sizes.D, cols[1] - cols[0]
    i0 = 0 if diagonal is None else min(max(0, cols[0] - diagonal), N_q)  # first query to see one of them
    inputs = {"Q": q, "K": k, "V": v}
    times = sizes.group * (N_q - i0)
    tiles = tuple(Tile.of(name, inputs[name], ..., slice(*cols), slice(None), times=times) for name in reads)
    rows_of_q = (Tile.of("Q", q, ..., slice(i0, N_q), slice(None)),) if load_q else ()
    S = Tile("S", ((0, B), (0, H), (0, N_q), (0, kept) if kept else cols), accumulator(q.dtype).itemsize)
    running = tuple(Tile.of(name, values[name]) for name in ("m_i", "l_i", "acc") if name in values)
    products = {"K": (B * H, N_q - i0, D, width), "V": (B * H, N_q - i0, width, D)}
    return Step(sentence, phase, matrix_shapes(sizes), rows_of_q + tiles, (),
                (Tile.of("Q", q), *tiles, S, *running), {**inputs, "rows": (i0, N_q), "cols": cols, **values},
                tuple(products[name] for name in reads))  # fmt: skip


def _finish(q, k, v, sizes, o, m_i, l_i, phase, what, operations) -> Iterator[Step]:
    """The step that writes O, and the last one, which carries it."""
    O = o.to(q.dtype)
    lse = log_sum_exp(m_i, l_i)
    values = {"Q": q, "K": k, "V": v, "m_i": m_i, "l_i": l_i, "lse": lse, "O": O, "operations": operations}
    tile = Tile.of("O", O)
    shapes = matrix_shapes(sizes)
    yield Step(f"{what}: {_vector(O)}.", phase, shapes, (), (tile,), (tile,), values)
    sentence = f"Done: lse = m + log l = {show(lse)} says in one number what m and l say in two."
    yield Step(sentence, "done", shapes, values={**values, "operations": Counter()}, output=O)
