"""Wrong answers to the exercises of notebook 02."""

import torch

from tests.variants import variant

X = torch.linspace(-3.1, 2.7, 7)


@variant("02.safe", "divided by the maximum instead of subtracting it", r"subtract|x - m|difference")
def divides_by_the_maximum(x):
    weights = torch.exp(x / x.max(-1, keepdim=True).values)
    return weights / weights.sum(-1, keepdim=True)


@variant("02.safe", "the mean is subtracted", r"maximum|\bmax\b|largest")
def subtracts_the_mean(x):
    weights = torch.exp(x - x.mean(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


@variant("02.safe", "keepdim is missing", r"keepdim|dimension")
def without_keepdim(x):
    weights = torch.exp(x - x.max(-1).values)
    return weights / weights.sum(-1)


@variant(
    "02.safe",
    "the result of max is a pair, of which the values are needed",
    r"\.values|pair|two things|torch\.return_types|indices",
)
def max_is_a_pair(x):
    weights = torch.exp(x - x.max(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


@variant("02.safe", "the division is missing", r"divi|normali[sz]|add up to 1|sum to 1|sum of exp")
def not_divided(x):
    return torch.exp(x - x.max(-1, keepdim=True).values)


@variant(
    "02.lse",
    "the sum of the logarithms, not the logarithm of the sum",
    r"log.*of the (shifted )?sum|log\(l\)|sum.*(before|then).*log|log.*after",
)
def sum_of_logarithms(x):
    m = x.max(-1).values
    return m + torch.log(torch.exp(x - m[..., None])).sum(-1)


@variant("02.lse", "a logarithm to the base 2", r"\bbase|log2|natural")
def logarithm_to_the_base_2(x):
    m = x.max(-1).values
    return m + torch.log2(torch.exp(x - m[..., None]).sum(-1))


@variant("02.lse", "m is multiplied where it is added", r"add m|m \+|\badd|added|plus|multipl")
def multiplied_by_m(x):
    m = x.max(-1).values
    return m * torch.log(torch.exp(x - m[..., None]).sum(-1))


@variant("02.lse", "one sum over all rows", r"one number per row|every row|each row|last dimension|dim=-1|all rows")
def one_sum_for_all(x):
    m = x.max()
    return m + torch.log(torch.exp(x - m).sum())


@variant("02.shift", "the row is constant", r"\bvar(y|ies)|differ|constant|all the same|equal entries")
def of_a_constant_row(softmax):
    x = torch.ones(5)
    return all(torch.allclose(softmax(x + c), softmax(x), atol=1e-4) for c in (1.0, 2000.0, -2000.0))


@variant("02.shift", "shifts too small to overflow", r"overflow|far enough|large|1000|small shifts")
def of_shifts_up_to_50(softmax):
    return all(torch.allclose(softmax(X + c), softmax(X), atol=1e-4) for c in (-50.0, 1.0, 50.0))


@variant("02.shift", "a tolerance smaller than the rounding of x + c", r"toleran|rounding|too strict", r"exactly")
def of_random_shifts(softmax):
    torch.manual_seed(0)
    return all(torch.allclose(softmax(X + c), softmax(X)) for c in 2000 * torch.randn(8))


@variant(
    "02.shift", "True and False are exchanged", r"negat|other way|opposite|exchanged|reversed|upside|inverted|swapped"
)
def the_opposite(softmax):
    return not all(torch.allclose(softmax(X + c), softmax(X), atol=1e-4) for c in (1.0, 2000.0, -2000.0))
