"""The cost of a decoded token: bytes of its cache, bytes and FLOPs of attention in one layer and one step.

With few queries nearly all bytes are keys and values. So the arithmetic intensity is that of a key: only the queries
that share its head use each of its bytes. In 16 bits that is one FLOP a byte for each of them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch

from flashlearn.core.inputs import check_bool, check_count
from flashlearn.core.mask import Mask, Window, check_window
from flashlearn.core.numerics import accumulator
from flashlearn.cost.formulas import Cost, check_dtype, check_float_dtype, check_heads, check_sizes, exact, fp16


@exact
def cache_bytes(layers: int, H_kv: int, D: int, *, dtype: torch.dtype = fp16) -> int:
    """Bytes of a token in the cache: a key and a value for each key head of each layer, 2 layers H_kv D e."""
    check_sizes(layers=layers, H_kv=H_kv, D=D)
    check_dtype(dtype)
    return 2 * layers * H_kv * D * dtype.itemsize


@exact
def latent_cache_bytes(layers: int, rank: int, rotated: int, *, dtype: torch.dtype = fp16) -> int:
    """The same where a token stores a latent vector for all heads, and one rotated key: layers (rank + rotated) e.

    Source: DeepSeek-AI, "DeepSeek-V2", 2024 (arXiv:2405.04434), section 2.1: multi-head latent attention.
    """
    check_sizes(layers=layers, rank=rank, rotated=rotated)
    check_dtype(dtype)
    return layers * (rank + rotated) * dtype.itemsize


@exact
def decode_cost(
    lengths: Sequence[int], H_q: int, H_kv: int, D: int, *, N_q: int = 1, dtype: torch.dtype = fp16
) -> Cost:
    """Attention of one layer in one step of decoding: N_q queries of every request, which all attend to all of its keys.

    read    e D (B N_q H_q + 2 H_kv sum N)      each key and value once, for the whole group of query heads
    written e D B N_q H_q
    flops   4 D N_q H_q sum N                   N keys of each of B requests
    """
    lengths = _each("lengths", lengths)
    check_heads(H_q, H_kv)
    check_sizes(D=D, N_q=N_q)
    check_dtype(dtype)
    e, rows, keys = dtype.itemsize, len(lengths) * N_q * H_q, sum(lengths)
    return Cost(e * D * (rows + 2 * H_kv * keys), e * D * rows, 4 * D * N_q * H_q * keys)


@exact
def paged_cost(
    lengths: Sequence[int],
    queries: Sequence[int],
    heads: tuple[int, int],
    D: int,
    *,
    causal: bool = True,
    window: Window | None = None,
    dtype: torch.dtype = fp16,
) -> Cost:
    """`paged_attention` of sequences of N_b keys and n_b queries, causal unless `causal=False`; heads = (H_q, H_kv).

    The last query of a sequence is at its last key.

    read    e D sum_b (n_b H_q + 2 H_kv keys_b)     0 for a sequence that attends to no key; the page table is not counted
    written (e D + a) H_q sum_b n_b                 O and lse;   extra a H_q sum_b n_b
    flops   4 D H_q sum_b n_b keys_b

    keys_b are the keys that any of its queries attends to: N_b when causal, min(N_b, n_b + left) behind a window.
    """
    lengths = _each("lengths", lengths)
    queries = _each("queries", queries)
    if len(lengths) != len(queries):
        raise ValueError(f"expected as many lengths as queries, got {len(lengths)} and {len(queries)}")
    if not isinstance(heads, tuple) or len(heads) != 2:
        raise TypeError(f"expected heads to be (H_q, H_kv), got {heads!r}")
    check_heads(*heads)
    check_sizes(D=D)
    check_bool(causal, "causal")
    check_float_dtype(dtype)
    left, right = check_window(window)
    right, e, a = 0 if causal else right, dtype.itemsize, accumulator(dtype).itemsize
    H_q, H_kv = map(operator.index, heads)
    read = written = flops = extra = 0
    for N, n in zip(lengths, queries, strict=True):
        start, stop = Mask(n, N, left, right).keys((0, n))
        keys = stop - start
        read += e * D * (n * H_q + 2 * H_kv * keys) * bool(keys)
        written += (e * D + a) * H_q * n
        flops += 4 * D * H_q * n * keys
        extra += a * H_q * n
    return Cost(read, written, flops, extra)


@exact
def latent_decode_cost(
    lengths: Sequence[int], H: int, rank: int, rotated: int, *, N_q: int = 1, dtype: torch.dtype = fp16
) -> Cost:
    """The same where the latent vectors are keys and values of all heads at once (their weights are folded into q and o).

    read    e (rank + rotated) (B N_q H + sum N)     each latent vector once: it is key and value
    written e rank B N_q H
    flops   2 (2 rank + rotated) N_q H sum N
    """
    lengths = _each("lengths", lengths)
    check_sizes(H=H, rank=rank, rotated=rotated, N_q=N_q)
    check_dtype(dtype)
    e, rows, keys = dtype.itemsize, len(lengths) * N_q * H, sum(lengths)
    return Cost(e * (rank + rotated) * (rows + keys), e * rank * rows, 2 * (2 * rank + rotated) * N_q * H * keys)


def _each(name: str, sizes: Sequence[int]) -> list[int]:
    """Sizes as Python's integers. TypeError, ValueError for anything else."""
    if not isinstance(sizes, Sequence):
        raise TypeError(f"expected {name} to be a sequence of ints, got {type(sizes).__name__}")
    for size in sizes:
        if type(size) is not int or size < 0:
            check_count(size, f"each of {name}")
    return list(map(operator.index, sizes))
