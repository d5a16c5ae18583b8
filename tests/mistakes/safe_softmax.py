"""Planted mistakes for the exercises of notebook 02: what is wrong, the function, the case that must catch it."""

import torch


def safe_subtracts_after_exp(x):
    weights = torch.exp(x) - x.max(-1, keepdim=True).values
    return weights / weights.sum(-1, keepdim=True)


def safe_starts_at_minus_1000(x):
    weights = torch.exp(x - x.max(-1, keepdim=True).values.clamp(min=-1000))
    return weights / weights.sum(-1, keepdim=True)


def safe_one_maximum(x):
    weights = torch.exp(x - x.max())
    return weights / weights.sum(-1, keepdim=True)


def safe_naive(x):
    return torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)


def lse_direct(x):
    return torch.log(torch.exp(x).sum(-1))


def lse_forgets_m(x):
    return torch.log(torch.exp(x - x.max(-1, keepdim=True).values).sum(-1))


def lse_keeps_the_dimension(x):
    return torch.logsumexp(x, -1, keepdim=True)


def lse_subtracts_m(x):
    m = x.max(-1).values
    return torch.log(torch.exp(x - m[..., None]).sum(-1)) - m


X = torch.linspace(-3.3, 2.9, 7)


def shift_small_only(softmax):
    return torch.allclose(softmax(X + 1), softmax(X), atol=1e-4)


def shift_up_only(softmax):
    return all(torch.allclose(softmax(X + k), softmax(X), atol=1e-4) for k in (1, 2000))


def shift_exactly_equal(softmax):
    return all(torch.equal(softmax(X + k), softmax(X)) for k in (0.3, -2000, 2000))


def shift_always_true(softmax):
    return True


def shift_nan_is_equal(softmax):
    return all(torch.allclose(softmax(X + k).nan_to_num(), softmax(X).nan_to_num(), atol=2) for k in (1, 2000, -2000))


MISTAKES = {
    "02.safe": [
        ("e^x - max", safe_subtracts_after_exp, "one row"),
        ("maximum started at -1000", safe_starts_at_minus_1000, "very negative logits"),
        ("one maximum for all rows", safe_one_maximum, "several rows"),
        ("not shifted at all", safe_naive, "large logits"),
    ],
    "02.lse": [
        ("not shifted", lse_direct, "large logits"),
        ("m not added back", lse_forgets_m, "one row"),
        ("dimension kept", lse_keeps_the_dimension, "several rows"),
        ("m subtracted", lse_subtracts_m, "very negative logits"),
    ],
    "02.shift": [
        ("only a small shift", shift_small_only, "naive_softmax is not"),
        ("only shifts upwards", shift_up_only, "a maximum started at -1000 is not"),
        ("compared with ==", shift_exactly_equal, "safe_softmax is"),
        ("always true", shift_always_true, "naive_softmax is not"),
        ("NaN counts as equal", shift_nan_is_equal, "x / sum of x is not"),
    ],
}
