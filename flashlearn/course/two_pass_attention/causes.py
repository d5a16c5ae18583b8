"""What wrong answers to the exercises of notebook 04 get wrong."""

from __future__ import annotations

import math

import torch

from flashlearn.exercises.formulas import linear, normal


def _rows(N: int, D: int) -> torch.Tensor:
    """N unit vectors of size D."""
    return torch.eye(D, dtype=torch.float64)[:N]


def values_are_used(attention):
    """Scores or weights in place of the output have a column for each key."""
    q, k, v = torch.zeros(1, 4, dtype=torch.float64), torch.zeros(3, 4, dtype=torch.float64), _rows(3, 4)
    if attention(q, k, v).shape == (1, 3):
        return "the result has a column for each key, (N_q, N_k): the product with v, the weighted sum of values, is missing"
    return ""


def weights_of_equal_scores(attention):
    """Where all scores are 0, four keys have a weight of 1/4 each."""
    zero = torch.zeros(1, 4, dtype=torch.float64)
    o = attention(zero, zero.expand(4, 4).clone(), _rows(4, 4))
    weights = o[0]
    if o.shape != (1, 4) or not weights.isfinite().all():
        return ""  # no weighted sum of values
    if not weights.any():
        return (
            "when all scores are 0 the output is 0: softmax is missing, its weights would be 1/4 each and add up to 1"
        )
    if abs(weights.sum().item() - 1) > 1e-6:
        return f"when all scores are 0 the weights add up to {weights.sum().item():.4g}, not to 1: take softmax over the keys, and scale the scores before it"
    if not torch.allclose(weights, weights[0], atol=1e-6):
        return f"when all scores are 0 four keys have the weights {_list(weights)}, not 1/4 each: the query does not treat all keys alike"
    return ""


def softmax_over_keys(attention):
    """With v = 1 everywhere the output is 1, whatever the scores."""
    q, k = normal(3, 2, seed=0), normal(4, 2, seed=1)
    o = attention(q, k, torch.ones_like(k))
    if torch.allclose(o, torch.ones_like(o), atol=1e-6):
        return ""
    return "with v = 1 everywhere the output is not 1: the weights of a query must add up to 1 over the keys, dim=-1"


def the_scale(attention):
    """The logarithm of the quotient of two weights is the difference of the scores."""
    for D, N_q, N_k in ((4, 1, 2), (16, 1, 2), (16, 3, 2), (16, 1, 5), (10, 1, 2)):

        def score(x, D=D, N_q=N_q, N_k=N_k):
            q, k = torch.full((N_q, D), 1.0, dtype=torch.float64), torch.zeros(N_k, D, dtype=torch.float64)
            k[0] = x / D  # q.k is x for the first key, 0 for the others
            weights = attention(q, k, _rows(N_k, D))[0]
            return math.log(weights[0] / weights[1])

        factor = score(1.0)
        if not linear(factor, score):
            return ""  # the scores are no multiple of q.k: it is not the scale that is wrong
        if abs(factor - D**-0.5) > 1e-6:
            return f"with D = {D} and {N_k} keys a score is {factor:.4g} times q.k; divide by sqrt(D), so that it is {D**-0.5:.4g} times q.k"
    return ""


def all_is_used(attention):
    """Another q, k or v gives another output."""
    q, k, v = (normal(n, 4) for n in (1, 3, 3))
    before = attention(q.clone(), k.clone(), v.clone())
    for name, others in (("q", (-q, k, v)), ("k", (q, -k, v)), ("v", (q, k, -v))):
        if torch.allclose(attention(*(t.clone() for t in others)), before):
            return f"the output does not depend on {name}: the scores come from q and k, and the weights multiply v"
    return ""


def _list(weights: torch.Tensor) -> str:
    return ", ".join(f"{weight:.3g}" for weight in weights.tolist())


def what_is_seen(decode):
    """Three cached keys and the new one, all scores 0: each has a weight of 1/4."""
    zero = torch.zeros(1, 4, dtype=torch.float64)
    o, _, _ = decode(zero, zero, _rows(4, 4)[3:], zero.expand(3, 4).clone(), _rows(3, 4))
    weights = o[0]
    told = f"with three cached keys and equal scores the weights are {_list(weights)}"
    if abs(weights.sum().item() - 1) > 1e-6:
        return f"{told}: they must add up to 1"
    if weights[3] == 0 and torch.allclose(weights[:3], weights[0]):
        return f"{told}: the new token must attend to itself, so append before you attend"
    if not weights[:3].any():
        return f"{told}: the new token attends only to itself, and not to the cache"
    if not torch.allclose(weights, torch.full_like(weights, 0.25), atol=1e-6):
        return f"{told}: the new token must attend to every cached key and to itself: it is the last token, so no mask is needed"
    return ""


def of_decode(question):
    """A question about attention, asked of a step of decoding: the last key is the new one."""

    def asked(decode):
        return question(lambda q, k, v: decode(q, k[-1:], v[-1:], k[:-1], v[:-1])[0])

    return asked


def what_is_kept(decode):
    """The caches come back longer, keys in one and values in the other, the new row last."""
    k, v, K, V = (
        torch.full((n, 4), value, dtype=torch.float64) for n, value in ((1, 1.0), (1, 2.0), (2, 3.0), (2, 4.0))
    )
    _, K_new, V_new = decode(torch.full_like(k, 5.0), k.clone(), v.clone(), K.clone(), V.clone())
    for name, got, old, new in (("K_cache", K_new, K, k), ("V_cache", V_new, V, v)):
        if got.shape != (3, 4):
            return f"{name} has the shape {tuple(got.shape)}; expected (3, 4), two cached rows and the new one"
        if not torch.equal(got, torch.cat([old, new])):
            return f"{name} holds {_list(got[:, 0])}; expected {_list(torch.cat([old, new])[:, 0])} (k is 1, v is 2, old keys are 3, old values are 4, q is 5)"
    return ""


CAUSES = {
    "attention": (values_are_used, weights_of_equal_scores, softmax_over_keys, all_is_used, the_scale),
    "decode": (what_is_kept, what_is_seen, of_decode(all_is_used), of_decode(the_scale)),
}
