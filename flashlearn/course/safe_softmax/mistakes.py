"""Known wrong answers to the exercises of notebook 02."""

import torch

from flashlearn.exercises.assessment import Mistake


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


def safe_with_epsilon(x):
    weights = torch.exp(x - x.max(-1, keepdim=True).values)
    return weights / (weights.sum(-1, keepdim=True) + 1e-6)


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


def shift_nan_is_equal(softmax):  # a comparison with NaN is never true
    return not any(((softmax(X + k) - softmax(X)).abs() > 1e-4).any() for k in (1, 2000, -2000))


MISTAKES = {
    "02.safe": (
        Mistake("the maximum is subtracted after the exponential, from e^x", safe_subtracts_after_exp, "one row"),
        Mistake("the maximum starts at -1000 instead of -inf", safe_starts_at_minus_1000, "very negative logits"),
        Mistake("one maximum is taken over all rows together", safe_one_maximum, "several rows"),
        Mistake("a small number is added to l", safe_with_epsilon, "one entry outweighs the rest"),
        Mistake("nothing is subtracted before the exponential", safe_naive, "large logits"),
    ),
    "02.lse": (
        Mistake("exp is taken of the logits as they are", lse_direct, "large logits"),
        Mistake("m is not added back", lse_forgets_m, "one row"),
        Mistake("the last dimension is kept, with size 1", lse_keeps_the_dimension, "several rows"),
        Mistake("m is subtracted at the end where it must be added", lse_subtracts_m, "very negative logits"),
    ),
    "02.shift": (
        Mistake("only small shifts are tried", shift_small_only, "naive_softmax is not"),
        Mistake("only shifts upwards are tried", shift_up_only, "a maximum started at -1000 is not"),
        Mistake("the rounding of x + c counts as a difference", shift_exactly_equal, "safe_softmax is"),
        Mistake("the answer is always True", shift_always_true, "naive_softmax is not"),
        Mistake("NaN counts as equal", shift_nan_is_equal, "naive_softmax is not"),
    ),
}
