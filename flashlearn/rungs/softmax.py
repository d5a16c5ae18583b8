"""Softmax over the last dimension, four ways, each a generator of steps and the function that runs it.

    y_j = exp(x_j) / sum_k exp(x_k)

    naive     two passes over x in HBM; overflows                  2N reads, N writes
    safe      subtracts the row's maximum first: three passes      3N reads, N writes
    online    finds maximum and sum together: two passes           2N reads, N writes
    blocked   the same, a block at a time; blocks merge as (m, l)  2N reads, N writes, N/block_size steps

All take any shape (..., N) with at least one dimension, in float16, bfloat16, float32 or float64, and
return that shape and dtype. `naive_softmax` computes in the dtype of `x`, because where it breaks is its
lesson; the others keep m_i and l_i in float32 for the 16-bit types, as GPU kernels do.

At the edges: an entry of -inf gets weight 0; a row that is -inf throughout, or holds +inf or NaN, is NaN
throughout, as in `torch.softmax` (only naive differs: a row with +inf is NaN there and 0 elsewhere); an
empty row gives an empty row. Anything but a floating-point tensor is a TypeError.

Sources: online softmax is M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax",
2018 (arXiv:1805.02867), Algorithms 1 to 3 and section 3.1 for the merge.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from flashlearn.core.inputs import check_block, check_row
from flashlearn.core.steps import Step, Tile, run

INF = float("inf")


def naive_softmax(x: Tensor) -> Tensor:
    """Softmax by its definition: y_j = exp(x_j) / sum_k exp(x_k). Overflows for large x_j."""
    return run(naive_softmax_steps(x))


def naive_softmax_steps(x: Tensor) -> Iterator[Step]:
    """One step per element and pass: the sum, then the division (Milakov 2018, Algorithm 1)."""
    check_row(x)
    zero = torch.zeros_like(x[..., :1].sum(-1, keepdim=True))  # (..., 1)
    l_i = zero
    for j in range(x.shape[-1]):
        term = torch.exp(x[..., j : j + 1])
        l_i = l_i + term
        sentence = f"{_of(x, j)}: its exponential, {_show(term)}, joins the sum: l = {_show(l_i)}."
        yield _row_step(sentence, "sum", x, j, 1, l_i=l_i, term=term)
    yield from _divide_steps(x, zero, l_i, 1)


def safe_softmax(x: Tensor) -> Tensor:
    """Softmax shifted by the row's maximum m: y_j = exp(x_j - m) / sum_k exp(x_k - m). Cannot overflow."""
    return run(safe_softmax_steps(x))


def safe_softmax_steps(x: Tensor) -> Iterator[Step]:
    """One step per element and pass: maximum, sum, division (Milakov 2018, Algorithm 2)."""
    check_row(x)
    m_i, l_i = empty_row(x)
    for j in range(x.shape[-1]):
        m_old, m_i = m_i, torch.maximum(m_i, x[..., j : j + 1])
        verdict = f"raises the maximum to m = {_show(m_i)}" if _differ(m_old, m_i) else f"leaves m = {_show(m_i)}"
        yield _row_step(f"{_of(x, j)} {verdict}.", "maximum", x, j, 1, m_i=m_i)
    for j in range(x.shape[-1]):
        term = exp_diff(x[..., j : j + 1], m_i)
        l_i = l_i + term
        sentence = f"{_of(x, j)}: exp(x[{j}] − m) = {_show(term)} joins the sum: l = {_show(l_i)}."
        yield _row_step(sentence, "sum", x, j, 1, m_i=m_i, l_i=l_i, term=term)
    yield from _divide_steps(x, m_i, l_i, 1)


def online_softmax(x: Tensor) -> Tensor:
    """Softmax with maximum and sum found in one pass, the sum rescaled whenever the maximum rises."""
    return run(online_softmax_steps(x))


def online_softmax_steps(x: Tensor) -> Iterator[Step]:
    """One step per element and pass (Milakov 2018, Algorithm 3).

    m_i = max(m_{i-1}, x_i)
    l_i = l_{i-1} exp(m_{i-1} - m_i) + exp(x_i - m_i)
    """
    return blocked_softmax_steps(x, 1)


def blocked_softmax(x: Tensor, block_size: int) -> Tensor:
    """Online softmax that reads `block_size` elements at a time; the last block may be shorter."""
    return run(blocked_softmax_steps(x, block_size))


def blocked_softmax_steps(x: Tensor, block_size: int) -> Iterator[Step]:
    """One step per block and pass: reduce a block to (m, l), merge it in; then divide block by block."""
    check_row(x)
    check_block(block_size)
    m_i, l_i = empty_row(x)
    for j in range(0, x.shape[-1], block_size):
        m_old, l_old = m_i, l_i
        m_block, l_block = reduce_block(x[..., j : j + block_size])
        m_i, l_i = merge((m_old, l_old), (m_block, l_block))
        alpha, term = exp_diff(m_old, m_i), l_block * exp_diff(m_block, m_i)
        sentence = _merge_sentence(x, j, block_size, m_old, m_i, l_old, l_i, alpha, term)
        yield _row_step(sentence, "maximum and sum", x, j, block_size, m_i=m_i, l_i=l_i, alpha=alpha, term=term)
    yield from _divide_steps(x, m_i, l_i, block_size)


def merge(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Join the (m, l) of two blocks into the (m, l) of both together.

    m = max(m_a, m_b)
    l = l_a exp(m_a - m) + l_b exp(m_b - m)

    Associative and commutative; (-inf, 0), the pair of no elements, changes nothing. Tensors of any one
    shape, or floats. Source: Milakov 2018, equation 4.
    """
    (m_a, l_a), (m_b, l_b) = ((torch.as_tensor(m), torch.as_tensor(l)) for m, l in (a, b))
    m = torch.maximum(m_a, m_b)
    return m, l_a * exp_diff(m_a, m) + l_b * exp_diff(m_b, m)


def merge_tree(x: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """(m, l) of every row, by divide and conquer: blocks first, then neighbours merge, level by level.

    `x` is (..., N); m and l are (..., 1). Then `exp(x - m) / l` is softmax.
    """
    return run(merge_tree_steps(x, block_size))


def merge_tree_steps(x: Tensor, block_size: int) -> Iterator[Step]:
    """One step per block, then one per merge; `values["parts"]` are the spans of x that were joined."""
    check_row(x)
    check_block(block_size)
    level = []  # [((start, stop), (m, l)), ...] from left to right
    for j in range(0, x.shape[-1], block_size):
        span, pair = (j, min(j + block_size, x.shape[-1])), reduce_block(x[..., j : j + block_size])
        level.append((span, pair))
        yield _tree_step(f"Reduce x[{j}:{span[1]}] to m = {_show(pair[0])}, l = {_show(pair[1])}.", x, level, span)
    while len(level) > 1:
        rest = level
        level = []
        while len(rest) > 1:
            ((start, middle), a), ((_, stop), b) = rest[:2]
            rest = rest[2:]
            level.append(((start, stop), merge(a, b)))
            m, l = level[-1][1]
            sentence = f"Merge {start}:{middle} with {middle}:{stop}: m = {_show(m)}, l = {_show(l)}."
            yield _tree_step(sentence, x, level + rest, (start, stop), ((start, middle), (middle, stop)))
        level += rest  # an odd one out moves up unchanged
    pair = level[0][1] if level else empty_row(x)
    yield Step(f"One pair is left for the whole row: m = {_show(pair[0])}, l = {_show(pair[1])}.", "done",
               _shapes(x), values={"x": x, "m_i": pair[0], "l_i": pair[1]}, output=pair)  # fmt: skip


def exp_diff(a: Tensor, b: Tensor) -> Tensor:
    """exp(a - b), and 0 where a is -inf: what is not there weighs nothing, even against b = -inf."""
    return torch.exp((a - b).masked_fill(a == -INF, -INF))


def reduce_block(x: Tensor) -> tuple[Tensor, Tensor]:
    """(m, l) of one block: its maximum, and the sum of exp(x - m); (..., N) to (..., 1) each."""
    x = x.to(accumulator(x.dtype))
    m = x.amax(-1, keepdim=True)
    return m, exp_diff(x, m).sum(-1, keepdim=True)


def empty_row(x: Tensor) -> tuple[Tensor, Tensor]:
    """(m, l) = (-inf, 0), the pair of no elements, for every row of x: (..., 1) each."""
    l = torch.zeros(*x.shape[:-1], 1, dtype=accumulator(x.dtype), device=x.device)
    return torch.full_like(l, -INF), l


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over `dtype` are kept: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def _divide_steps(x: Tensor, m_i: Tensor, l_i: Tensor, width: int) -> Iterator[Step]:
    """The last pass, shared by all: read x again, write y_j = exp(x_j - m) / l."""
    blocks = []
    for j in range(0, x.shape[-1], width):
        y = (exp_diff(x[..., j : j + width].to(l_i.dtype), m_i) / l_i).to(x.dtype)
        blocks.append(y)
        sentence = f"Read {_of(x, j, width)} again and write {_of(y, 0, width, name='y', start=j)}."
        yield _row_step(sentence, "divide", x, j, width, m_i=m_i, l_i=l_i, y=y)
    y = torch.cat(blocks, -1) if blocks else torch.empty_like(x)
    sentence = f"Done: the {x.shape[-1]} weights of a row sum to {_show(y.sum(-1, keepdim=True))}."
    yield Step(sentence, "done", _shapes(x), values={"x": x, "m_i": m_i, "l_i": l_i}, output=y)


def _row_step(sentence: str, phase: str, x: Tensor, j: int, width: int, **values: Tensor) -> Step:
    """A step that reads x[..., j : j + width], and writes y there if `values` has it."""
    here = (..., slice(j, j + width))
    running = [Tile.of(name, values[name]) for name in ("m_i", "l_i") if name in values]
    writes = (Tile.of("y", x, *here),) if "y" in values else ()
    on_chip = (Tile.of("x", x, *here), *writes, *running)
    return Step(sentence, phase, _shapes(x), (Tile.of("x", x, *here),), writes, on_chip, {"x": x, **values})


def _tree_step(sentence: str, x: Tensor, level: list, span: tuple[int, int], parts: tuple = ()) -> Step:
    """A step that made the pair of `span`: from x in HBM if `parts` is empty, else from two pairs on chip."""
    m_i, l_i = next(pair for at, pair in level if at == span)
    reads = () if parts else (Tile.of("x", x, ..., slice(*span)),)
    pairs = tuple(Tile.of(name, part) for _, pair in level for name, part in zip(("m_i", "l_i"), pair, strict=True))
    values = {"x": x, "m_i": m_i, "l_i": l_i, "span": span, "parts": parts}
    return Step(sentence, "merge" if parts else "reduce", _shapes(x), reads, (), reads + pairs, values)


def _shapes(x: Tensor) -> dict[str, tuple[int, ...]]:
    return {"x": tuple(x.shape), "y": tuple(x.shape)}


def _first(t: Tensor) -> float:
    """The number of the first row: sentences and pictures follow that row."""
    return t.detach().flatten()[0].item() if t.numel() else float("nan")


def _show(t: Tensor) -> str:
    return f"{_first(t):.4f}"


def _of(x: Tensor, j: int, width: int = 1, name: str = "x", start: int | None = None) -> str:
    """How a sentence names x[..., j : j + width]; `start` if it stands elsewhere in the whole row."""
    at = j if start is None else start
    stop = at + min(width, x.shape[-1] - j)
    return f"{name}[{at}:{stop}]" if stop - at > 1 else f"{name}[{at}] = {_first(x[..., j : j + 1]):.4g}"


def _differ(a: Tensor, b: Tensor) -> bool:
    return _first(a) != _first(b)


def _merge_sentence(x, j, width, m_old, m_i, l_old, l_i, alpha, term) -> str:
    """Tell the reader whether the sum so far had to be rescaled."""
    what = _of(x, j, width)
    if j == 0:
        return f"{what} comes first: m = {_show(m_i)}, l = {_show(l_i)}."
    if not _differ(m_old, m_i):
        return f"{what} leaves m = {_show(m_i)}: l = {_show(l_old)} + {_show(term)} = {_show(l_i)}."
    return (
        f"{what} raises m from {_show(m_old)} to {_show(m_i)}: the old sum is rescaled, "
        f"l = {_show(l_old)} × {_show(alpha)} + {_show(term)} = {_show(l_i)}."
    )
