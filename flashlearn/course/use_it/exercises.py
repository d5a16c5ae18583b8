"""Exercises of notebook 16: attention behind a KV cache with room, and grouped-query attention."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlearn.course.use_it.solutions import cache_solution, gqa_solution
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.formulas import normal
from flashlearn.exercises.watching import without_the_flag


def _behind(name, hint, length, new, spare=0, batch=(), size=1.0):
    """`new` tokens after `length` cached ones: the last rows of causal attention over all of them.

    What is not in use is NaN, as memory may be by chance: an answer that reads it, with or without a mask, gets NaN.
    """
    N, D = length + new, 6
    q, k, v = (normal(*batch, N, D, seed=seed) for seed in range(3))
    q, unused = size * q, torch.full((*batch, new + spare, D), math.nan, dtype=torch.float64)

    def compare(function):
        pair = torch.stack([torch.cat([t[..., :length, :], unused], dim=-2) for t in (k, v)], dim=len(batch) // 2)
        K, V = pair.unbind(len(batch) // 2)  # one cache for both, before the heads: K and V are views of it
        last = (t[..., length:, :].clone() for t in (q, k, v))
        o = function(*last, K, V, length)
        want = [torch.cat([t, unused[..., :spare, :]], dim=-2) for t in (k, v)]
        whole = scaled_dot_product_attention(q, k, v, is_causal=True)
        return (o, K, V), (whole[..., length:, :], *want)

    return Case(name, compare, hint)


def _grouped(name, hint, H_q, H_kv, N_q=3, N_k=5, size=1.0, asked=lambda function, *inputs: function(*inputs)):
    sizes = ((H_q, N_q), (H_kv, N_k), (H_kv, N_k))
    q, k, v = (normal(2, H, N, 6, seed=seed) for seed, (H, N) in enumerate(sizes))
    want = scaled_dot_product_attention(size * q, k, v, enable_gqa=True)
    return Case(name, lambda function: (asked(function, size * q, k.clone(), v.clone()), want), hint)


MAXIMUM = "if you write softmax yourself, it subtracts the maximum of the row, or exp overflows"
CACHE_CASES = (
    _behind("the first chunk", "a new token does not attend to those after it: a causal mask", 0, 4),
    _behind("one token more", "the new rows go to K[..., length : length + n, :]", 5, 1),
    _behind(
        "a chunk behind the cache",
        "new token i is token length + i of the text: it attends to keys j <= length + i",
        5,
        3,
    ),
    _behind(
        "room to spare",
        "rows from length + n on are NaN here, which no mask undoes: cut them off. The new rows must be in K and V",
        length=4,
        new=2,
        spare=3,
    ),
    _behind(
        "batches and heads",
        "the rows are the last dimension but one; K and V are views, and reshape may copy them",
        length=3,
        new=4,
        spare=2,
        batch=(2, 3),
    ),
    _behind("large scores", MAXIMUM, 4, 3, size=2000.0),
)
GQA_CASES = (
    _grouped("one head for all", "every query head uses the one head of k and v", 4, 1),
    _grouped("two groups of three", "query heads 0, 1, 2 share head 0; heads 3, 4, 5 share head 1", 6, 2),
    _grouped("no sharing", "if k and v have as many heads as q, head h uses head h", 3, 3),
    _grouped("one query", "N_q and N_k may differ", 4, 2, N_q=1, N_k=7),
    _grouped("large scores", MAXIMUM, 4, 2, size=2000.0),
    _grouped(
        "without enable_gqa",
        "share the heads yourself: PyTorch's flag would solve the task for you",
        H_q=5,  # heads of one group, shared by the answer and not by PyTorch
        H_kv=1,
        asked=without_the_flag,
    ),
)

EXERCISES = (
    Exercise(
        "cache",
        "attend_cached(q, k, v, K, V, length): rows of n new tokens (..., n, D), caches (..., room, D) -> o (..., n, D). "
        "The first `length` rows of the caches are in use; k and v are written behind them",
        cache_solution,
        CACHE_CASES,
        hints=(
            "Three things in order: store, cut off what is not in use, attend. Which tokens does the first new one attend to?",
            "Write into K[..., length:stop, :], with stop = length + n. The mask is (n, stop): row i belongs to token length + i.",
            "mask = torch.arange(stop)[None, :] <= torch.arange(length, stop)[:, None]. Pass it as attn_mask, with K[..., :stop, :].",
        ),
        core=("room to spare",),
        writes=("K", "V"),
        values=("o", "K", "V"),
    ),
    Exercise(
        "gqa",
        "grouped_attention(q, k, v): (B, H_q, N_q, D), twice (B, H_kv, N_k, D), H_q a multiple of H_kv -> "
        "(B, H_q, N_q, D)",
        gqa_solution,
        GQA_CASES,
        hints=(
            "Query heads come in groups of H_q / H_kv neighbours. Which head of k does query head h use?",
            "Head h uses head h // group of k and v. Give every query head its own copy, then attend as usual.",
            "k.repeat_interleave(group, dim=1) turns heads 0, 1 into 0, 0, 0, 1, 1, 1; .repeat would give 0, 1, 0, 1, 0, 1.",
        ),
        core=("two groups of three",),
        library=("flashlearn",),
    ),
)
