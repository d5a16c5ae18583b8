"""What each rung costs, in closed form, and how fast a GPU could do it: FLOPs, HBM bytes, the roofline.

The rungs before count their bytes step by step (`flashlearn.core.steps.hbm_bytes`). Here the same numbers are
formulas of the sizes, equal to those counts to the byte, so that they can be had for N = 1 000 000 too, and
put beside what a GPU can do:

    intensity = FLOPs / bytes of HBM traffic                          FLOP/B
    ridge     = peak FLOP/s / HBM bytes/s                             FLOP/B, 201 on an A100
    attainable FLOP/s = min(peak, intensity * HBM bytes/s)            compute-bound from the ridge on

A (m, n) by (n, p) product is 2 m n p FLOPs. Bytes are those of all B H_q programs, each reading what it needs
for itself: with grouped-query heads too the count depends on H_q alone, and a tile loaded by two programs
counts twice. A GPU's L2 cache may serve the second; `ideal_cost` is the other extreme, every matrix moved
once.

Sources: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009; FA-1, Theorem 2 and section
3.2.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from flashlearn.core.steps import Step
from flashlearn.rungs.attention import spans
from flashlearn.rungs.softmax import accumulator

fp16, fp32 = torch.float16, torch.float32


@dataclass(frozen=True)
class Cost:
    """What an algorithm costs.

    read, written   bytes moved from and to HBM
    flops           of its matrix products; for softmax, which has none, its elementwise operations
    extra           bytes of HBM that it needs besides its inputs and its output
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


def softmax_cost(name: str, rows: int, N: int, *, dtype: torch.dtype = fp32, block_size: int = 1) -> Cost:
    """Softmax of `rows` rows of N, by "naive", "safe", "online" or "blocked": passes * N reads, N writes.

    Operations of a row, with exp counted as one: naive 2N, then 2N (exp, add; exp, divide); safe N, 3N, 3N;
    blocked 4N (max, subtract, exp, add) and 8 for each block merged, then 3N; online is blocks of 1.
    """
    blocks = math.ceil(N / block_size) if name == "blocked" else N
    operations = {"naive": 4 * N, "safe": 7 * N, "online": 7 * N + 8 * blocks, "blocked": 7 * N + 8 * blocks}
    passes = {"naive": 2, "safe": 3, "online": 2, "blocked": 2}
    if name not in passes:
        raise ValueError(f"expected one of {sorted(passes)}, got {name!r}")
    size = rows * N * dtype.itemsize
    return Cost(passes[name] * size, size, rows * operations[name])


def standard_cost(B: int, H: int, N_q: int, N_k: int, D: int, *, dtype=fp16, causal: bool = False) -> Cost:
    """Unfused attention: Theta(N d + N^2) bytes, and S and P in HBM.

    read    e (N_q D + 2 N_k D + 2 N_q N_k)    Q, K; S; P, V             e = bytes of an element
    written e (N_q D + 2 N_q N_k)              S; P; O
    flops   4 N_q N_k D                        Q K^T and P V, masked or not
    """
    e, S = dtype.itemsize, N_q * N_k
    read, written = e * (N_q * D + 2 * N_k * D + 2 * S), e * (N_q * D + 2 * S)
    return _per_head(B * H, read, written, 4 * S * D, 2 * e * S)


def two_pass_cost(B: int, H: int, N_q: int, N_k: int, D: int, *, dtype=fp16, causal: bool = False,
                  block_k: int = 1, recompute: bool = False) -> Cost:  # fmt: skip
    """Each query reads the keys that it sees, then their values: e D (1 + 2 keys) bytes and e D written.

    `recompute` reads the keys, and multiplies by them, a second time. Blocks are read whole.
    """
    e, work = dtype.itemsize, _work(N_q, N_k, 1, block_k, causal)
    again = 1 if recompute else 0
    read = e * D * (work.rows_seen + (2 + again) * work.keys)
    return _per_head(B * H, read, e * D * N_q, (4 + 2 * again) * D * work.pairs, 0)


def one_pass_cost(B: int, H: int, N_q: int, N_k: int, D: int, *, dtype=fp16, causal: bool = False,
                  block_k: int = 1) -> Cost:  # fmt: skip
    """Each query reads the keys and values that it sees, in one pass: as many bytes as in two passes."""
    return two_pass_cost(B, H, N_q, N_k, D, dtype=dtype, causal=causal, block_k=block_k)


def v1_cost(B: int, H: int, N_q: int, N_k: int, D: int, *, dtype=fp16, causal: bool = False,
            block_q: int = 64, block_k: int = 64) -> Cost:  # fmt: skip
    """FlashAttention-1: K and V once; Q, O, m and l once for every K block that the row block meets.

    read    2 e N_k D + R (e D + a (D + 2))            R = rows summed over all visits, T_c N_q if not causal
    written a (D + 2) (N_q + R) - (a - e) D N_seen     a = bytes of an element of unfinished O, of m and l
    extra   2 a N_q + (a - e) D N_q                    for m and l, and for O held wide
    flops   4 D for each pair (query, key) of a visited block

    N_seen is the rows of all visited row blocks: their last visit writes O in e bytes. Theta(N^2 d^2 / M)
    bytes with block_k = Theta(M / d), M the elements of SRAM.
    """
    e, a = dtype.itemsize, accumulator(dtype).itemsize
    work = _work(N_q, N_k, block_q, block_k, causal)
    read = (2 * e * N_k * D if N_q else 0) + work.visited_rows * (e * D + a * (D + 2))
    written = a * (D + 2) * (N_q + work.visited_rows) - (a - e) * D * work.rows_seen
    return _per_head(B * H, read, written, 4 * D * work.pairs, N_q * (2 * a + (a - e) * D))


def v2_cost(B: int, H: int, N_q: int, N_k: int, D: int, *, dtype=fp16, causal: bool = False,
            block_q: int = 64, block_k: int = 64) -> Cost:  # fmt: skip
    """FlashAttention-2: Q and O once; K and V once for every row block, as far as it sees.

    read    e D (N_seen + 2 sum_i keys_i)      keys_i = N_k if not causal, so T_r N_k for the sum
    written e D N_q + a N_q                    O and lse, a bytes each;  extra a N_q
    flops   4 D for each pair (query, key) of a visited block

    Theta(N^2 d^2 / M) bytes with block_q = Theta(M / d): here the block of queries has to be the large one.
    """
    e, a = dtype.itemsize, accumulator(dtype).itemsize
    work = _work(N_q, N_k, block_q, block_k, causal)
    read, written = e * D * (work.rows_seen + 2 * work.keys), N_q * (e * D + a)
    return _per_head(B * H, read, written, 4 * D * work.pairs, a * N_q)


def ideal_cost(B: int, H: int, N_q: int, N_k: int, D: int, *, dtype=fp16, causal: bool = False) -> Cost:
    """What a perfect cache would leave: Q, K, V read once, O written once, only what is seen multiplied."""
    e, work = dtype.itemsize, _work(N_q, N_k, 1, 1, causal)
    return _per_head(B * H, e * D * (N_q + 2 * N_k), e * D * N_q, 4 * D * work.pairs, 0)


# name of the rung -> its cost as a function of (B, H, N_q, N_k, D, *, dtype, causal, and its block sizes)
ATTENTION_COSTS: Mapping[str, Callable[..., Cost]] = {
    "standard_attention": standard_cost,
    "two_pass_attention": two_pass_cost,
    "one_pass_attention": one_pass_cost,
    "tiled_attention_v1": v1_cost,
    "tiled_attention_v2": v2_cost,
}


def matmul_cost(m: int, n: int, p: int, *, dtype: torch.dtype = fp16) -> Cost:
    """(m, n) times (n, p): 2 m n p FLOPs; each matrix moved once."""
    e = dtype.itemsize
    return Cost(e * (m * n + n * p), e * m * p, 2 * m * n * p)


def operations(steps: Iterable[Step]) -> Counter:
    """What one query did besides matrix products, by kind: the sum of `values["operations"]`."""
    return sum((step.values.get("operations", Counter()) for step in steps), Counter())


@dataclass(frozen=True)
class _Work:
    """Sums over row blocks i, each of which visits what its last query sees, in whole blocks of keys."""

    rows_seen: int  # rows of the row blocks that visit any key
    visited_rows: int  # sum_i rows_i * K blocks visited
    keys: int  # sum_i keys visited
    pairs: int  # sum_i rows_i * keys visited


def _work(N_q: int, N_k: int, block_q: int, block_k: int, causal: bool) -> _Work:
    rows_seen = visited_rows = keys = pairs = 0
    for start, stop in spans(N_q, block_q):
        rows = stop - start
        seen = min(N_k, max(0, stop + N_k - N_q)) if causal else N_k  # keys that its last query sees
        blocks = math.ceil(seen / block_k)
        visited = min(N_k, blocks * block_k)
        rows_seen += rows if blocks else 0
        visited_rows += rows * blocks
        keys += visited
        pairs += rows * visited
    return _Work(rows_seen, visited_rows, keys, pairs)


def _per_head(heads: int, read: int, written: int, flops: int, extra: int) -> Cost:
    return Cost(heads * read, heads * written, heads * flops, heads * extra)


# The backward passes (`flashlearn.rungs.gradients`, `flashlearn.rungs.tiled_backward`)


def standard_backward_cost(B: int, H: int, N_q: int, N_k: int, D: int, *, dtype=fp16, causal: bool = False,
                           H_kv: int | None = None) -> Cost:  # fmt: skip
    """Unfused backward, S and P made again first: four N_q x N_k matrices in HBM.

    read    e (4 N_q D + 3 N_k D + 6 N_q N_k)       Q, dO twice; K twice, V; S, dP, and P and dS twice
    written e (N_q D + 2 N_k D + 4 N_q N_k)         dQ; dK, dV once for each K/V head; S, P, dP, dS
    flops   10 N_q N_k D                            five products, masked or not
    """
    e, S, groups = dtype.itemsize, N_q * N_k, H if H_kv is None else H_kv
    read, written = e * (4 * N_q * D + 3 * N_k * D + 6 * S), e * (N_q * D + 4 * S)
    heads = _per_head(B * H, read, written, 10 * S * D, 4 * e * S)
    return replace(heads, written=heads.written + B * groups * 2 * e * N_k * D)


def two_sweep_cost(B: int, H: int, N_q: int, N_k: int, D: int, *, dtype=fp16, causal: bool = False,
                   H_kv: int | None = None, block_q: int = 64, block_k: int = 64) -> Cost:  # fmt: skip
    """The tiled backward in two sweeps: each result is written once, by its one owner.

    delta     reads 2 e N_q D                                     writes a N_q
    dK and dV reads R (2 e D + 2 a), and K, V once a K/V head     writes 2 e N_k D a K/V head
    dQ        reads N_seen (2 e D + 2 a) + 2 e D sum_i keys_i     writes e N_q D
    flops     14 D for each pair of a visited block: 4 products and 3;   extra a N_q for delta

    R, N_seen, keys_i, e and a as in `v1_cost` and `v2_cost`.
    """
    e, a = dtype.itemsize, accumulator(dtype).itemsize
    work, groups = _work(N_q, N_k, block_q, block_k, causal), H if H_kv is None else H_kv
    row = 2 * e * D + 2 * a  # Q, dO, lse and delta
    read = 2 * e * N_q * D + (work.visited_rows + work.rows_seen) * row + 2 * e * D * work.keys
    heads = _per_head(B * H, read, N_q * (a + e * D), 14 * D * work.pairs, a * N_q)
    return _and_keys(heads, B * groups, 2 * e * N_k * D, N_q)


def fused_backward_cost(B: int, H: int, N_q: int, N_k: int, D: int, *, dtype=fp16, causal: bool = False,
                        H_kv: int | None = None, block_q: int = 64, block_k: int = 64) -> Cost:  # fmt: skip
    """The tiled backward in one sweep, in which dQ goes through HBM at every visit.

    read    2 e N_q D + R (2 e D + 2 a + a D), and K, V once a K/V head
    written a N_q + a D (N_q + R) - (a - e) D N_seen, and dK, dV once a K/V head
    flops   10 D for each pair of a visited block: 5 products;   extra a N_q, and (a - e) D N_q for wide dQ
    """
    e, a = dtype.itemsize, accumulator(dtype).itemsize
    work, groups = _work(N_q, N_k, block_q, block_k, causal), H if H_kv is None else H_kv
    read = 2 * e * N_q * D + work.visited_rows * (2 * e * D + 2 * a + a * D)
    written = a * N_q + a * D * (N_q + work.visited_rows) - (a - e) * D * work.rows_seen
    heads = _per_head(B * H, read, written, 10 * D * work.pairs, N_q * (a + (a - e) * D))
    return _and_keys(heads, B * groups, 2 * e * N_k * D, N_q)


def _and_keys(cost: Cost, heads: int, size: int, N_q: int) -> Cost:
    """Add what is read (K and V, if there are queries) and written (dK and dV) once for each K/V head."""
    return replace(cost, read=cost.read + heads * size * (N_q > 0), written=cost.written + heads * size)
