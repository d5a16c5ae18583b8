"""The FLOPs and bytes of each algorithm, in closed form.

The algorithms count their bytes step by step (`flashlearn.core.steps.hbm_bytes`). Here the same numbers are formulas of
the sizes, equal to those counts to the byte. So they are available for N = 1 000 000 too, and can be compared with a
GPU's limits (`flashlearn.cost.roofline`).

A (m, n) by (n, p) product is 2 m n p FLOPs. Bytes are those of all programs: a tile that two programs load counts
twice. So a forward pass depends on H_q alone, with grouped-query heads too; a backward pass depends on `H_kv` as well.
A GPU's L2 cache may serve the second read. `ideal_cost` is the other extreme, with every matrix moved once.

A mask removes whole blocks. Row block i attends to the keys start_i:stop_i and visits the blocks of keys that contain
any of them,

    full      T_c blocks                            causal    ceil((last_i + 1) / B_c)            last_i = (i + 1) B_r - 1 + N_k - N_q
    window    start_i = max(0, first_i - left)      stop_i = min(N_k, last_i + right + 1)         first_i = i B_r + N_k - N_q
    documents start_i, stop_i = where the first one's text starts, where the last one's stops, cut by the others

that is ceil(stop_i / B_c) - floor(start_i / B_c) of them. No mask is ever stored; its offsets are. Sinks and slopes, a
number for each head, are left out.

Source: FA-1, Theorem 2 and section 3.2.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor

from flashlearn.core.inputs import DTYPES, Sizes, check_block, check_blocks, check_bool, check_count
from flashlearn.core.mask import KeyRange, Mask, Window
from flashlearn.core.numerics import Span, accumulator, spans
from flashlearn.core.options import AttentionOptions
from flashlearn.core.steps import Step, each_step, hbm_bytes, matmul_flops, record

fp16, fp32 = torch.float16, torch.float32
INT32 = 4  # bytes
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Cost:
    """What an algorithm costs.

    read, written   bytes moved from and to HBM
    flops           of its matrix products; for softmax, which has none, its elementwise operations
    extra           bytes of HBM that it needs in addition to its inputs and its output
    """

    read: int
    written: int
    flops: int
    extra: int = 0

    @property
    def bytes(self) -> int:
        return self.read + self.written

    @property
    def intensity(self) -> float:
        """FLOP per byte of HBM traffic."""
        return self.flops / self.bytes if self.bytes else math.inf


class CostOptions(TypedDict, total=False):
    """Options that the cost of attention depends on, each with its default.

    A cost takes those that its algorithm has; TypeError for another.

    dtype             float16
    causal, window    False, None: as the algorithms take them
    documents         None: as the algorithms take them
    key_range         None: as the algorithms take it; sequences take their steps together, so that each pays for all
    H_kv              heads of K and V, for the backward passes: H
    block_q, block_k  64; 1 key at a time in two-pass and one-pass attention
    recompute         False: two-pass attention keeps its scores
    """

    dtype: torch.dtype
    causal: bool
    window: Window | None
    documents: Tensor | None
    key_range: KeyRange | None
    H_kv: int
    block_q: int
    block_k: int
    recompute: bool


def exact(cost: Callable[P, R]) -> Callable[P, R]:
    """The same cost in Python's integers, as those of NumPy overflow."""

    @functools.wraps(cost)
    def in_ints(*args: P.args, **options: P.kwargs) -> R:
        plain = {name: _plain(option) for name, option in options.items()}
        return cost(*map(_plain, args), **plain)

    return in_ints


def _plain(value: Any) -> Any:
    """An integer as Python's; anything else, and a bool, as it is."""
    if type(value) is int or isinstance(value, bool) or not isinstance(value, Integral):
        return value
    return operator.index(value)


def check_sizes(**sizes: int) -> None:
    """Accept only integers of at least 0."""
    for name, size in sizes.items():
        if type(size) is not int or size < 0:  # first, as a plot computes many costs, and check_count is slow
            check_count(size, name)


def check_heads(H_q: int, H_kv: int) -> None:
    """Reject query heads that are no multiple of the heads of K and V."""
    check_sizes(H_q=H_q)
    check_block(H_kv, "H_kv")
    if H_q % H_kv:
        raise ValueError(f"expected the heads of q to be a multiple of those of k and v, got {H_q} and {H_kv}")


def check_dtype(dtype: torch.dtype) -> None:
    """Accept only a dtype."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"expected dtype to be a torch.dtype, got {dtype!r}")


def check_float_dtype(dtype: torch.dtype) -> None:
    """Accept only the four dtypes of the course, as only their sums have a defined dtype."""
    if dtype not in DTYPES:
        raise TypeError(f"expected dtype to be one of {', '.join(map(str, DTYPES))}, got {dtype!r}")


MASKED = ("dtype", "causal", "window", "documents", "key_range")
BY_QUERY = (*MASKED, "block_k")
BLOCKS = (*BY_QUERY, "block_q")


def check_known(options: CostOptions, known: tuple[str, ...]) -> None:
    """Reject options that a cost does not have."""
    if strange := [name for name in options if name not in known]:
        raise TypeError(f"expected options of {', '.join(known)}, got {', '.join(strange)}")


@exact
def softmax_cost(name: str, rows: int, N: int, *, dtype: torch.dtype = fp32, block_size: int | None = None) -> Cost:
    """Softmax of `rows` rows of N, by "naive", "safe", "online" or "blocked": passes * N reads, N writes.

    `block_size` is of "blocked" alone, 1 if not given; TypeError for another that gets one.

    Operations of a row, with exp counted as one: naive 2N, then 2N (exp, add; exp, divide); safe N, 3N, 3N; online 7N
    (max; subtract and exp, of the correction and of the new term; multiply, add), 3N; blocked 4N - 2 a block (max and
    add take w - 1 of w; subtract, exp), 8 for each block merged, then 3N.
    """
    passes = {"naive": 2, "safe": 3, "online": 2, "blocked": 2}
    if name not in passes:
        raise ValueError(f"expected one of {sorted(passes)}, got {name!r}")
    if block_size is not None and name != "blocked":
        raise TypeError(f"expected block_size for blocked softmax alone, got {block_size!r:.80} for {name} softmax")
    block_size = 1 if block_size is None else block_size
    check_sizes(rows=rows, N=N)
    check_block(block_size)
    check_dtype(dtype)
    blocks = -(-N // block_size)
    operations = {"naive": 4 * N, "safe": 7 * N, "online": 10 * N, "blocked": 7 * N + 6 * blocks}
    size = rows * N * dtype.itemsize
    return Cost(passes[name] * size, size, rows * operations[name])


@exact
def standard_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """Unfused attention: Theta(N d + N^2) bytes, and S and P in HBM.

    read    e (N_q D + 2 N_k D + 2 N_q N_k)    Q, K; S; P, V             e = bytes of an element
    written e (N_q D + 2 N_q N_k)              S; P; O
    flops   4 N_q N_k D                        Q K^T and P V, masked or not
    """
    at = _Setting.of((B, H, N_q, N_k, D), options, MASKED)
    e, S = at.e, N_q * N_k
    read, written = e * (N_q * D + 2 * N_k * D + 2 * S), e * (N_q * D + 2 * S)
    return at.cost(read, written, 4 * S * D, 2 * e * S)


@exact
def standard_kernels(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> dict[str, Cost]:
    """The three kernels of unfused attention: bytes as in `standard_cost`, of which they are the parts.

    S = Q K^T   read e (N_q D + N_k D), written e N_q N_k, 2 N_q N_k D FLOPs
    softmax     read e N_q N_k, written e N_q N_k; its operations one by one: max, subtract, exp, add, divide
    P V         read e (N_q N_k + N_k D), written e N_q D, 2 N_q N_k D FLOPs
    """
    at = _Setting.of((B, H, N_q, N_k, D), options, MASKED)
    e, S = at.e, N_q * N_k
    return {
        "S = Q Kᵀ": at.cost(e * (N_q + N_k) * D, e * S, 2 * S * D, e * S),
        "softmax": at.cost(e * S, e * S, 5 * S - 2 * N_q, e * S),
        "O = P V": at.cost(e * (S + N_k * D), e * N_q * D, 2 * S * D, 0),
    }


@exact
def two_pass_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """Each query reads the keys that it attends to, then their values: e D (1 + 2 keys) bytes and e D written.

    `recompute` reads the keys, and multiplies by them, a second time. Blocks are read whole.
    """
    at = _Setting.of((B, H, N_q, N_k, D), options, (*BY_QUERY, "recompute"), block_q=1, block_k=1)
    again = options.get("recompute", False)
    check_bool(again, "recompute")
    start, stop = at.mask.queries((0, N_k))
    keys = _keys_of_queries(at.mask, at.block_k)
    read = at.e * D * (stop - start + (2 + again) * keys)
    return at.cost(read, at.e * D * N_q, (4 + 2 * again) * D * keys, 0)


@exact
def one_pass_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """Each query reads the keys and values that it attends to, in one pass: as many bytes as in two passes."""
    check_known(options, BY_QUERY)
    return two_pass_cost(B, H, N_q, N_k, D, **options)


@exact
def v1_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """FlashAttention-1: K and V once, as far as they are attended to; Q, O, m and l once for every K block that the row block meets.

    read    2 e K_seen D + R (e D + a (D + 2))            R = rows summed over all visits, T_c N_q if not causal
    written a (D + 2) (N_q + R) - (a - e) D N_seen     a = bytes of an element of unfinished O, of m and l
    extra   2 a N_q + (a - e) D N_q                    for m and l, and for O held wide
    flops   4 D for each pair (query, key) of a visited block

    N_seen is the number of rows of all row blocks that visit a block of keys, K_seen the number of keys of all visited
    blocks. They are N_q and N_k if nothing is masked. The last visit writes O in e bytes. Theta(N^2 d^2 / M) bytes with
    block_k = Theta(M / d), M the elements of SRAM.
    """
    at = _Setting.of((B, H, N_q, N_k, D), options, BLOCKS)
    e, a, work = at.e, at.a, at.work
    read = 2 * e * work.keys_seen * D + work.visited_rows * (e * D + a * (D + 2))
    written = a * (D + 2) * (N_q + work.visited_rows) - (a - e) * D * work.rows_seen
    return at.cost(read, written, 4 * D * work.pairs, N_q * (2 * a + (a - e) * D))


@exact
def v2_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """FlashAttention-2: Q and O once; K and V once for every row block that attends to them.

    read    e D (N_seen + 2 sum_i keys_i)      keys_i = N_k if not causal, so T_r N_k for the sum
    written e D N_q + a N_q                    O and lse, a bytes each;  extra a N_q
    flops   4 D for each pair (query, key) of a visited block

    Theta(N^2 d^2 / M) bytes with block_q = Theta(M / d): here the block of queries must be large.
    """
    at = _Setting.of((B, H, N_q, N_k, D), options, BLOCKS)
    read, written = at.e * D * (at.work.rows_seen + 2 * at.work.keys), N_q * (at.e * D + at.a)
    return at.cost(read, written, 4 * D * at.work.pairs, at.a * N_q)


@exact
def ideal_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """The cost with a perfect cache: Q, K, V read once, O written once, only visible pairs multiplied."""
    at = _Setting.of((B, H, N_q, N_k, D), options, MASKED, block_q=1, block_k=1)
    return at.cost(at.e * D * (N_q + 2 * N_k), at.e * D * N_q, 4 * D * at.work.pairs, 0)


# name of the algorithm -> its cost as a function of (B, H, N_q, N_k, D, *, dtype, causal, window, and its block sizes)
ATTENTION_COSTS: Mapping[str, Callable[..., Cost]] = {
    "standard_attention": standard_cost,
    "two_pass_attention": two_pass_cost,
    "one_pass_attention": one_pass_cost,
    "tiled_attention_v1": v1_cost,
    "tiled_attention_v2": v2_cost,
}


@exact
def matmul_cost(m: int, n: int, p: int, *, dtype: torch.dtype = fp16) -> Cost:
    """(m, n) times (n, p): 2 m n p FLOPs; each matrix moved once."""
    check_sizes(m=m, n=n, p=p)
    check_dtype(dtype)
    e = dtype.itemsize
    return Cost(e * (m * n + n * p), e * m * p, 2 * m * n * p)


def operations(steps: Iterable[Step]) -> Counter[str]:
    """Operations of one row by kind, without matrix products: the sum of the steps' `operations`."""
    return sum((step.operations for step in each_step(steps)), Counter[str]())


# The backward passes (`flashlearn.algorithms.gradients`, `flashlearn.algorithms.tiled_backward`)


def counted(steps: Iterable[Step]) -> Cost:
    """The cost of a run, counted from its steps; `extra` is stored in addition to its output, one tensor or several.

    ValueError for steps without the last one, which has the output, or whose output is no tensor.
    """
    run = record(steps)
    traffic, shapes = hbm_bytes(run), run[0].shapes
    rows = math.prod(shapes["x"][:-1]) if "x" in shapes else 0  # of softmax, which has no products
    flops = matmul_flops(run) + rows * operations(run).total()
    return Cost(traffic.read, traffic.written, flops, _stored_besides_output(run))


def _stored_besides_output(run: list[Step]) -> int:
    """Bytes of all matrices that were written, each at its widest, less those of the results among them."""
    output = run[-1].output
    results: tuple[Tensor, ...] = output if isinstance(output, tuple) else (output,)
    for result in results:
        if not isinstance(result, Tensor):
            kind = type(result).__name__
            raise ValueError(f"expected all steps of a run, the last with its output in tensors, got {kind} there")
    stored, numels = dict[str, int](), dict[str, int]()
    for step in run:
        for tile in step.writes:
            numels[tile.name] = math.prod(step.shapes[tile.name])
            stored[tile.name] = max(numels[tile.name] * tile.itemsize, stored.get(tile.name, 0))
    # A result may have lost dimensions of 1, as lse; those of `merge_tree_steps` were never written.
    written = [result for result in results if result.numel() in numels.values()]
    return sum(stored.values()) - sum(result.nbytes for result in written)


@exact
def standard_backward_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """Unfused backward without stored results, which recomputes S and P first: four N_q x N_k matrices in HBM.

    read    e (4 N_q D + 3 N_k D + 6 N_q N_k)       Q, dO twice; K twice, V; S, dP, and P and dS twice
    written e (N_q D + 2 N_k D + 4 N_q N_k)         dQ; dK, dV once for each K/V head; S, P, dP, dS
    flops   10 N_q N_k D                            five products, masked or not
    """
    at = _Setting.of((B, H, N_q, N_k, D), options, (*MASKED, "H_kv"))
    e, S = at.e, N_q * N_k
    read, written = e * (4 * N_q * D + 3 * N_k * D + 6 * S), e * (N_q * D + 4 * S)
    return at.cost(read, written, 10 * S * D, 4 * e * S, kv_written=2 * e * N_k * D)


@exact
def stored_backward_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """Unfused backward from the P that the forward pass stored, as autograd does it.

    read    e (3 N_q D + 2 N_k D + 5 N_q N_k)       Q, dO twice; K, V; dP, and P and dS twice
    written e (N_q D + 2 N_k D + 2 N_q N_k)         dQ; dK, dV once for each K/V head; dP, dS
    flops   8 N_q N_k D                             four products, masked or not
    extra   2 e N_q N_k                             dP and dS; P, as many bytes again as one of them, is an input
    """
    at = _Setting.of((B, H, N_q, N_k, D), options, (*MASKED, "H_kv"))
    e, S = at.e, N_q * N_k
    read, written = e * (3 * N_q * D + 2 * N_k * D + 5 * S), e * (N_q * D + 2 * S)
    return at.cost(read, written, 8 * S * D, 2 * e * S, kv_written=2 * e * N_k * D)


@exact
def two_pass_backward_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """The tiled backward in two passes: each result is written once, by its one owner.

    delta     reads 2 e N_q D                                     writes a N_q
    dK and dV reads R (2 e D + 2 a), and K, V once a K/V head     writes 2 e N_k D a K/V head
    dQ        reads N_seen (2 e D + 2 a) + 2 e D sum_i keys_i     writes e N_q D
    flops     14 D for each pair of a visited block: 4 products and 3;   extra a N_q for delta

    R, N_seen, keys_i, e and a as in `v1_cost` and `v2_cost`.
    """
    at = _Setting.of((B, H, N_q, N_k, D), options, (*BLOCKS, "H_kv"))
    e, a, work = at.e, at.a, at.work
    row = 2 * e * D + 2 * a  # Q, dO, lse and delta
    read = 2 * e * N_q * D + (work.visited_rows + work.rows_seen) * row + 2 * e * D * work.keys
    keys = {"kv_read": 2 * e * work.keys_seen * D, "kv_written": 2 * e * N_k * D}
    return at.cost(read, N_q * (a + e * D), 14 * D * work.pairs, a * N_q, **keys)


@exact
def fused_backward_cost(B: int, H: int, N_q: int, N_k: int, D: int, **options: Unpack[CostOptions]) -> Cost:
    """The tiled backward in one pass, in which dQ goes through HBM at every visit.

    read    2 e N_q D + R (2 e D + 2 a + a D), and K, V once a K/V head
    written a N_q + a D (N_q + R) - (a - e) D N_seen, and dK, dV once a K/V head
    flops   10 D for each pair of a visited block: 5 products;   extra a N_q, and (a - e) D N_q for wide dQ
    """
    at = _Setting.of((B, H, N_q, N_k, D), options, (*BLOCKS, "H_kv"))
    e, a, work = at.e, at.a, at.work
    read = 2 * e * N_q * D + work.visited_rows * (2 * e * D + 2 * a + a * D)
    written = a * N_q + a * D * (N_q + work.visited_rows) - (a - e) * D * work.rows_seen
    keys = {"kv_read": 2 * e * work.keys_seen * D, "kv_written": 2 * e * N_k * D}
    return at.cost(read, written, 10 * D * work.pairs, N_q * (a + (a - e) * D), **keys)


@dataclass(frozen=True)
class _Setting:
    """One attention problem and its blocks: e and a are the bytes of an element and of a sum."""

    heads: int
    key_heads: int
    mask: Mask
    dtype: torch.dtype
    block_q: int
    block_k: int

    @classmethod
    def of(
        cls, sizes: tuple[int, ...], options: CostOptions, known: tuple[str, ...], *, block_q: int = 64, block_k: int = 64
    ) -> _Setting:  # fmt: skip
        """TypeError for an option that this cost does not have; ValueError for invalid sizes and blocks.

        block_q and block_k are those of `options`, or else these.
        """
        check_known(options, known)
        (B, H, N_q, N_k, D), H_kv = sizes, options.get("H_kv", None)
        check_sizes(B=B, H=H, N_q=N_q, N_k=N_k, D=D)
        key_heads = H if H_kv is None else H_kv
        if H_kv is not None:
            check_heads(H, H_kv)
        dtype = options.get("dtype", fp16)
        check_float_dtype(dtype)
        problem = Sizes(B, H, key_heads, N_q, N_k, D)
        mask = AttentionOptions.of(
            problem, causal=options.get("causal", False), window=options.get("window"),
            documents=options.get("documents"), key_range=options.get("key_range"),
        ).mask(problem)  # fmt: skip
        blocks = options.get("block_q", block_q), options.get("block_k", block_k)
        check_blocks(*blocks)
        return cls(B * H, B * key_heads, mask, dtype, *blocks)

    @property
    def e(self) -> int:
        return self.dtype.itemsize

    @property
    def a(self) -> int:
        return accumulator(self.dtype).itemsize

    @property
    def work(self) -> _Work:
        return _work(self.mask, self.block_q, self.block_k)

    def cost(self, read: int, written: int, flops: int, extra: int, *, kv_read: int = 0, kv_written: int = 0) -> Cost:
        """The cost of all heads from that of one, and the bytes that each K/V head reads and writes once."""
        read = self.heads * read + self.key_heads * kv_read
        written = self.heads * written + self.key_heads * kv_written
        offsets = len(self.mask.documents or ()) + 2 * len(self.mask.key_range or ())
        return Cost(read, written, self.heads * flops, self.heads * extra + INT32 * offsets)


@dataclass(frozen=True)
class _Work:
    """Sums over row blocks i, each of which visits whole blocks of the keys of its queries."""

    rows_seen: int  # rows of the row blocks that visit any key
    keys_seen: int  # keys of the blocks that any row block visits
    visited_rows: int  # sum_i rows_i * K blocks visited
    keys: int  # sum_i keys visited
    pairs: int  # sum_i rows_i * keys visited


@functools.lru_cache(maxsize=4096)  # called several times a cost, and again for every block that is tried
def _work(mask: Mask, block_q: int, block_k: int) -> _Work:
    rows_seen = visited_rows = keys = pairs = 0
    for rows in spans(mask.N_q, block_q):
        blocks, visited = _visited(mask, rows, block_k)
        count = rows[1] - rows[0]
        rows_seen += count if blocks else 0
        visited_rows += count * blocks
        keys += visited
        pairs += count * visited
    return _Work(rows_seen, _visited(mask, (0, mask.N_q), block_k)[1], visited_rows, keys, pairs)


@functools.lru_cache(maxsize=4096)
def _keys_of_queries(mask: Mask, block_k: int) -> int:
    """The keys that all queries read, each for itself: over blocks of keys j, keys_j * queries that attend to any of them."""
    seen = ((mask.queries(cols), cols) for cols in spans(mask.N_k, block_k))
    return sum((rows[1] - rows[0]) * (cols[1] - cols[0]) for rows, cols in seen)


def _visited(mask: Mask, rows: Span, block_k: int) -> tuple[int, int]:
    """(blocks, keys in them) that a block of queries visits: one range, unless keys of several sequences leave gaps."""
    if mask.key_range is not None:
        blocks = mask.key_blocks(rows, block_k)
        return len(blocks), sum(stop - start for _, (start, stop) in blocks)
    start, stop = mask.keys(rows)
    first, last = start // block_k, math.ceil(stop / block_k)
    return last - first, min(mask.N_k, last * block_k) - first * block_k
