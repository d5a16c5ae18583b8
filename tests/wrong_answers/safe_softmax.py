"""Wrong answers to the exercises of notebook 02."""

import torch

from flashlearn.algorithms.softmax import naive_softmax


def safe_by(shift, epsilon=0.0):
    """Softmax of logits that are shifted by `shift(x)`, of a shape that can be subtracted."""

    def safe(x):
        weights = torch.exp(x - shift(x))
        return weights / (weights.sum(-1, keepdim=True) + epsilon)

    return safe


def safe_clamps_the_exponent(x):
    weights = torch.exp((x - x.max(-1, keepdim=True).values).clamp(min=-20))
    return weights / weights.sum(-1, keepdim=True)


def safe_in_float32(x):
    return torch.softmax(x.float(), -1).to(x.dtype)


def safe_maximum_of_the_second_dimension(x):
    dim = min(1, x.ndim - 1)
    weights = torch.exp(x - x.max(dim, keepdim=True).values)
    return weights / weights.sum(dim, keepdim=True)


def safe_repairs_afterwards(x):
    return torch.nan_to_num(naive_softmax(x), nan=1.0)


def safe_divides_by_the_maximum(x):
    weights = torch.exp(x / x.abs().max(-1, keepdim=True).values)
    return weights / weights.sum(-1, keepdim=True)


def safe_without_hidden_entries(x):
    return torch.softmax(torch.where(x.isinf(), 0.0, x), -1)


def lse_by(shift, epsilon=0.0):
    """log-sum-exp of logits that are shifted by `shift(x)`, one number for each row."""

    def lse(x):
        m = shift(x)
        return m + torch.log(torch.exp(x - m[..., None]).sum(-1) + epsilon)

    return lse


def lse_through_naive(x):
    """The direct form where it is finite, the maximum where it is not."""
    direct = torch.exp(x).sum(-1).log()
    return torch.where(direct.isfinite(), direct, x.max(-1).values)


def lse_in_float32(x):
    return torch.logsumexp(x.float(), -1).to(x.dtype)


def lse_with_log1p(x):
    m = x.max(-1).values
    return m + torch.log1p(torch.exp(x - m[..., None]).sum(-1))


def lse_of_the_mean(x):
    m = x.max(-1).values
    return m + torch.log(torch.exp(x - m[..., None]).mean(-1))


def lse_to_base_2(x):
    m = x.max(-1).values
    return m + torch.log2(torch.exp(x - m[..., None]).sum(-1))


def lse_of_all_rows(x):
    m = x.max(-1).values
    return m + torch.log(torch.exp(x - m[..., None]).sum())


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


WRONG = {
    "02.safe": (
        ("x is overwritten", safe_in_place, "expected the input x as it was"),
        ("loops go over rows and entries", safe_by_a_loop, "a loop goes over"),
        ("the shift is the first entry", safe_by(lambda x: x[..., :1]), "the maximum"),
        ("the shift is the last entry", safe_by(lambda x: x[..., -1:]), "the maximum"),
        ("the shift is the mean", safe_by(lambda x: x.mean(-1, keepdim=True)), "the maximum"),
        ("the shift is the median", safe_by(lambda x: x.median(-1, keepdim=True).values), "the maximum"),
        ("the shift is the minimum", safe_by(lambda x: x.min(-1, keepdim=True).values), "the maximum"),
        ("the shift is the largest magnitude", safe_by(lambda x: x.abs().amax(-1, keepdim=True))),
        ("the maximum starts at -1e9", safe_by(lambda x: x.amax(-1, keepdim=True).clamp(min=-1e9)), "-inf"),
        ("1e-9 is added to l", safe_by(lambda x: x.amax(-1, keepdim=True), 1e-9), "nothing is added"),
        ("1e-12 is added to l", safe_by(lambda x: x.amax(-1, keepdim=True), 1e-12), "nothing is added"),
        ("small weights are held up", safe_clamps_the_exponent),
        ("the dtype of x is lost", safe_in_float32, "dtype|float32"),
        ("the second dimension is taken for the last", safe_maximum_of_the_second_dimension),
        ("NaN is replaced when it is too late", safe_repairs_afterwards),
        ("the logits are divided by the maximum", safe_divides_by_the_maximum),
        ("-inf becomes 0", safe_without_hidden_entries),
    ),
    "02.lse": (
        ("the shift is the first entry", lse_by(lambda x: x[..., 0]), "the maximum"),
        ("the shift is the mean", lse_by(lambda x: x.mean(-1)), "the maximum"),
        ("one maximum serves all rows", lse_by(lambda x: x.max().expand(x.shape[:-1])), "own maximum"),
        ("the maximum starts at -1e9", lse_by(lambda x: x.amax(-1).clamp(min=-1e9)), "-inf"),
        ("1e-6 is added to l", lse_by(lambda x: x.amax(-1), 1e-6), "nothing is added"),
        ("the maximum stands in for what overflows", lse_through_naive),
        ("the dtype of x is lost", lse_in_float32, "dtype|float32"),
        ("1 is added under the logarithm", lse_with_log1p),
        ("the mean is taken instead of the sum", lse_of_the_mean),
        ("the logarithm has base 2", lse_to_base_2),
        ("all rows are summed", lse_of_all_rows),
    ),
    "02.shift": (
        ("the function is compared with torch.softmax", shift_is_it_softmax, "of the same function"),
        ("only shifts downwards are tried", shifted((-1.0, -2000.0)), "capped"),
        ("only large shifts upwards are tried", shifted((2000.0, 3000.0))),
        ("a tenth counts as equal", shifted(SHIFTS, atol=0.1)),
        ("the row is constant", shifted((1.0,), row=torch.ones(5))),
        ("only the sum is looked at", shift_the_sum_is_1),
        ("only NaN and inf are looked for", shift_is_it_finite),
        ("of large shifts only NaN is looked for", shift_compares_small_ones_only, "finite is not enough"),
        ("only the order is compared", shift_same_order),
        ("every entry is shifted by a number of its own", shift_every_entry_by_its_own),
        ("one shift without effect is enough", shift_any_is_enough),
        ("the verdict is upside down", shift_says_variant),
        ("the result is shifted as well", shift_result_too),
    ),
}

RIGHT = {
    "02.safe": (
        ("softmax of PyTorch", lambda x: torch.softmax(x, -1)),
        ("through lse", lambda x: torch.exp(x - torch.logsumexp(x, -1, keepdim=True))),
        ("the shift is one more than the maximum", safe_by(lambda x: x.amax(-1, keepdim=True) + 1)),
    ),
    "02.lse": (
        ("torch.logsumexp", lambda x: torch.logsumexp(x, -1)),
        ("the maximum with its dimension", lambda x: (x - torch.log_softmax(x, -1))[..., 0]),
        ("log1p of the others", lse_with_log1p_of_the_rest),
    ),
    "02.shift": (
        ("several random rows", shift_of_random_rows),
        ("a tolerance of a thousandth", shifted((3.0, 5000.0, -5000.0), atol=1e-3)),
        ("in float64", shifted((0.25, -0.5, 3000.0, -3000.0), atol=1e-8, row=ROW.double())),
    ),
}
