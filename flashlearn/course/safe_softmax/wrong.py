"""Answers to the exercises of safe_softmax that are no edit of the solution: `wrong.toml` names them."""

import torch

from flashlearn.algorithms.softmax import naive_softmax

X = torch.linspace(-3.3, 2.9, 7)


def shift_small_only(softmax):
    return torch.allclose(softmax(X + 1), softmax(X), atol=1e-4)


def shift_up_only(softmax):
    return all(torch.allclose(softmax(X + k), softmax(X), atol=1e-4) for k in (1, 2000))


def shift_exactly_equal(softmax):
    return all(torch.equal(softmax(X + k), softmax(X)) for k in (0.3, -2000, 2000))


def shift_nan_is_equal(softmax):  # a comparison with NaN is never true
    return not any(((softmax(X + k) - softmax(X)).abs() > 1e-4).any() for k in (1, 2000, -2000))


variant_X = torch.linspace(-3.1, 2.7, 7)


def of_a_constant_row(softmax):
    x = torch.ones(5)
    return all(torch.allclose(softmax(x + c), softmax(x), atol=1e-4) for c in (1.0, 2000.0, -2000.0))


def of_shifts_up_to_50(softmax):
    return all(torch.allclose(softmax(variant_X + c), softmax(variant_X), atol=1e-4) for c in (-50.0, 1.0, 50.0))


def of_random_shifts(softmax):
    torch.manual_seed(0)
    return all(torch.allclose(softmax(variant_X + c), softmax(variant_X)) for c in 2000 * torch.randn(8))


def the_opposite(softmax):
    return not all(
        torch.allclose(softmax(variant_X + c), softmax(variant_X), atol=1e-4) for c in (1.0, 2000.0, -2000.0)
    )


def safe_by(shift, epsilon=0.0):
    """Softmax of logits that are shifted by `shift(x)`, of a shape that can be subtracted."""

    def safe(x):
        weights = torch.exp(x - shift(x))
        return weights / (weights.sum(-1, keepdim=True) + epsilon)

    return safe


def safe_maximum_of_the_second_dimension(x):
    dim = min(1, x.ndim - 1)
    weights = torch.exp(x - x.max(dim, keepdim=True).values)
    return weights / weights.sum(dim, keepdim=True)


def safe_repairs_afterwards(x):
    return torch.nan_to_num(naive_softmax(x), nan=1.0)


def lse_by(shift, epsilon=0.0):
    """log-sum-exp of logits that are shifted by `shift(x)`, one number for each row."""

    def lse(x):
        m = shift(x)
        return m + torch.log(torch.exp(x - m[..., None]).sum(-1) + epsilon)

    return lse


ROW = torch.linspace(-3.3, 2.9, 7)

SHIFTS = (1.0, 2000.0, -2000.0)


def shifted(shifts, atol=1e-4, row=ROW):
    """An answer that tries these shifts, of this row, and allows for this error."""
    return lambda softmax: all(torch.allclose(softmax(row + c), softmax(row), atol=atol) for c in shifts)


def shift_is_it_softmax(softmax):
    return all(torch.allclose(softmax(ROW + c), torch.softmax(ROW + c, -1), atol=1e-4) for c in SHIFTS)


def shift_the_sum_is_1(softmax):
    return all(torch.isclose(softmax(ROW + c).sum(), torch.tensor(1.0), atol=1e-4) for c in SHIFTS)


def shift_is_it_finite(softmax):
    return all(softmax(ROW + c).isfinite().all() for c in SHIFTS)


def shift_same_order(softmax):
    return all(torch.equal(softmax(ROW + c).argsort(), softmax(ROW).argsort()) for c in SHIFTS)


def shift_every_entry_by_its_own(softmax):
    return torch.allclose(softmax(ROW + torch.linspace(0, 1, 7)), softmax(ROW), atol=1e-4)


def shift_any_is_enough(softmax):
    return any(torch.allclose(softmax(ROW + c), softmax(ROW), atol=1e-4) for c in SHIFTS)


def shift_compares_small_ones_only(softmax):
    """Of a large shift it is enough that nothing overflows."""
    return shifted((1.0,))(softmax) and shift_is_it_finite(softmax)


def shift_says_variant(softmax):
    return not shifted(SHIFTS)(softmax)


def shift_result_too(softmax):
    """Equivariance: softmax(x + c) against softmax(x) + c."""
    return all(torch.allclose(softmax(ROW + c), softmax(ROW) + c, atol=1e-4) for c in SHIFTS)


def safe_by_a_loop(x):
    if x.ndim > 1:
        return torch.stack([safe_by_a_loop(row) for row in x])
    m = x[0]
    for entry in x:
        m = torch.maximum(m, entry)
    weights = torch.exp(x - m)
    return weights / weights.sum()


def safe_in_place(x):
    x -= x.amax(-1, keepdim=True)
    x.exp_()
    x /= x.sum(-1, keepdim=True)
    return x


def lse_with_log1p_of_the_rest(x):
    largest, others = torch.sort(x, -1, descending=True).values.split([1, x.shape[-1] - 1], -1)
    return (largest + torch.log1p(torch.exp(others - largest).sum(-1, keepdim=True))).squeeze(-1)


def shift_of_random_rows(softmax):
    generator = torch.Generator().manual_seed(5)
    x = 2 * torch.randn(4, 9, generator=generator)
    shifts = (0.0, 1.5, -1.5, 1500.0, -3000.0)
    y = torch.stack([softmax(x + c) for c in shifts])
    return bool((y - y[0]).abs().amax() < 1e-3)
