"""Exercises of notebook 04: attention by its definition, and one step of decoding with a KV cache."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlearn.course.two_pass_attention.solutions import attention_solution, decode_solution
from flashlearn.exercises.assessment import Case, Exercise
from flashlearn.exercises.formulas import normals


def _attention_of(N_q, N_k, D, *batch, size=1.0, rounded=False):
    q, k, v = normals((*batch, N_q, D), (*batch, N_k, D), (*batch, N_k, D), seed=0)
    q, k = size * q, size * k
    if rounded:  # to whole numbers, which have the same value in every dtype
        q, k, v = q.round(), k.round(), (8 * v).round()
    return lambda function: (function(q.clone(), k.clone(), v.clone()), scaled_dot_product_attention(q, k, v))


def _decoded(tokens, cached=0, batch=(), size=1.0):
    """Feed tokens one at a time; the rows must be those of causal attention over all of them."""
    N = cached + tokens
    q, k, v = normals(*[(*batch, N, 6)] * 3, seed=0)
    q = size * q

    def compare(function):
        K, V, rows = k[..., :cached, :].clone(), v[..., :cached, :].clone(), []
        for t in range(cached, N):
            new = (x[..., t : t + 1, :].clone() for x in (q, k, v))
            o, K, V = function(*new, K, V)
            rows.append(o)
        whole = scaled_dot_product_attention(q, k, v, is_causal=True)
        return (torch.cat(rows, dim=-2), K, V), (whole[..., cached:, :], k, v)

    return compare


ATTENTION_CASES = (
    Case(
        "one query",
        _attention_of(1, 10, 4),
        "compute the scores q.k / sqrt(D), then softmax, then the weighted sum of the values",
    ),
    Case("D = 64", _attention_of(3, 5, 64), "divide the scores by the square root of D, not by D"),
    Case(
        "as many queries as keys",
        _attention_of(6, 6, 4),
        "each row of the scores belongs to a query: take softmax over the last dimension, dim=-1",
    ),
    Case(
        "batches and heads",
        _attention_of(3, 7, 4, 2, 3),
        "count dimensions from the end: k.mT transposes the last two of k, D is q.shape[-1], softmax has dim=-1",
    ),
    Case(
        "batches, without heads",
        _attention_of(3, 7, 4, 5),
        "there may be any number of dimensions in front, also one: k.mT transposes the last two of any tensor",
    ),
    Case("large scores", _attention_of(2, 9, 4, size=40.0), "use a softmax that cannot overflow: torch.softmax"),
    Case("D = 10", _attention_of(3, 5, 10), "divide by the square root of D itself, 3.16, not by an integer"),
    Case(
        "one key outweighs the rest",
        _attention_of(3, 6, 4, size=60.0, rounded=True),
        "its weight is exactly 1, and o is its value: add nothing to the sum of the weights",
        1e-12,
    ),
    Case("float64", _attention_of(9, 6, 8), "stay in the dtype of q: do not convert to float32", 1e-10),
)
DECODE_CASES = (
    Case(
        "first token",
        _decoded(1),
        "both caches are empty, and a token attends to itself, so o is v: append before you attend",
    ),
    Case("one token more", _decoded(1, cached=5), "the query attends to the new key and value, too"),
    Case("six tokens in a row", _decoded(6), "return the longer caches: the next call gets them as its inputs"),
    Case(
        "order kept",
        _decoded(2, cached=2),
        "append the new rows at the end of the caches, keys to keys and values to values",
    ),
    Case("batches and heads", _decoded(3, 2, (2, 3)), "append along the second dimension from the end: dim=-2"),
    Case("large scores", _decoded(1, cached=9, size=3000.0), "use a softmax that cannot overflow: torch.softmax"),
    Case(
        "200 tokens before",
        _decoded(2, 200),
        "keep every row: the query attends to all keys, however long the caches grow",
    ),
    Case("float64", _decoded(2, 3), "stay in the dtype of q, k and v, also in the caches: do not convert", 1e-10),
)
EXERCISES = (
    Exercise(
        "attention",
        "attention(q, k, v): (..., N_q, D), (..., N_k, D), (..., N_k, D) -> (..., N_q, D)",
        attention_solution,
        ATTENTION_CASES,
        hints=(
            "There are three steps: a score for each pair of query and key, weights that add up to 1 for each query, a weighted sum of values.",
            "S = Q K^T / sqrt(D) has the shape (..., N_q, N_k). Transpose only the last two dimensions of k. Softmax goes over the keys.",
            "Write three lines: S = ... @ ... / math.sqrt(...), then P = torch.softmax(S, dim=...), then return P @ ...",
        ),
        library=("torch.nn.functional.scaled_dot_product_attention", "flashlearn"),
    ),
    Exercise(
        "decode",
        "decode(q, k, v, K_cache, V_cache): the new token's rows (..., 1, D), the caches (..., N, D) -> "
        "o (..., 1, D), and both caches with the new rows at their end (..., N + 1, D)",
        decode_solution,
        DECODE_CASES,
        hints=(
            "The new query attends to all cached keys, and to one more. Where does that one come from?",
            "Make the longer caches first, then attend to them. torch.cat joins tensors along the dimension that you name.",
            "K = torch.cat([..., ...], dim=...), and V in the same way. Then o = attention(...): of which q, K and V? Return o, K and V.",
        ),
        values=("o", "K_cache", "V_cache"),
    ),
)
