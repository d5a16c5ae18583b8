"""What wrong answers to the exercises of notebook 11 get wrong; every answer runs under the recorder."""

from __future__ import annotations

import math

import torch

from flashlearn.course.safe_softmax import causes as safe_softmax


def _run(function, x, *args):
    """The result, and the steps of the kernels that ran, on a copy of x with its strides."""
    from flashlearn.core.steps import record
    from flashlearn.kernels.recorder import kernel_steps

    own = torch.empty_strided(x.shape, x.stride()).copy_(x)  # the answer may write into it
    *steps, done = record(kernel_steps(function, own, *args))
    return done.output, steps


def the_factor(scale):
    """Twice the factor, twice the result."""
    x = torch.arange(1.0, 9.0)
    (one, steps), (two, _) = (_run(scale, x, factor) for factor in (3.0, 6.0))
    written = {tile.name for step in steps for tile in step.writes}
    if not written:
        return "for 8 elements the kernel writes nothing: if the grid is N // BLOCK, it has no program. Round it up: triton.cdiv(N, BLOCK)"
    if written <= {"x", "X"}:
        return "the kernel writes into x, and the returned tensor is never written: store to y, which you return"
    if torch.equal(one, two) and torch.equal(one, x):
        return "the result is x for every factor: multiply by the factor"
    if torch.allclose(two, 2 * one):
        factor = (one[0] / x[0]).item()
        return (
            f"with a factor of 3 x is multiplied by {factor:.4g}"
            if torch.allclose(one, factor * x) and abs(factor - 3) > 1e-4
            else ""
        )
    return f"with a factor of 3 and of 6 the first element, 1, becomes {one[0].item():.4g} and {two[0].item():.4g}"


def every_element(scale):
    """More elements than a block has."""
    x = torch.arange(1.0, 5001.0)
    y, _ = _run(scale, x, 2.0)
    wrong = (~torch.isclose(y.float(), 2 * x, rtol=1e-2)).nonzero().flatten()
    if wrong.numel():
        first = wrong[0].item()
        return f"of 5000 elements, number {first} is the first wrong one: are there cdiv(N, BLOCK) programs, and is pid * BLOCK in the offsets?"
    return ""


def as_log_sum_exp(question):
    """A question about lse, asked of a function of rows."""

    def asked(row_lse):
        return question(lambda x: _run(row_lse, x.float()[None].repeat(2, 1))[0][0].double())

    return asked


def as_it_is(row_lse):
    """The maximum alone, or the sum."""
    x = torch.tensor([[1.0, 2.0, 3.0, 3.0]])
    got = _run(row_lse, x)[0].item()
    for value, words in (
        (3.0, "the maximum: log(sum) is missing"),
        (math.exp(3) * 2, "a sum: the logarithm is missing"),
    ):
        if abs(got - value) < 1e-5:
            return f"for the row 1, 2, 3, 3 the result is {got:.4g}, {words}"
    return ""


def the_strides(row_lse):
    """Rows and columns far apart, each by a stride of its own."""
    from flashlearn.kernels.recorder import StrayAccess, Unrecordable

    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    for view, words in ((x.T, "x is a transposed view"), (x[:, ::2], "x holds every second column")):
        try:
            got = _run(row_lse, view)[0]
        except (StrayAccess, Unrecordable):
            got = None
        if got is None or not torch.allclose(got, torch.logsumexp(view, -1), atol=1e-4):
            return f"if {words}, with strides {view.stride()}, wrong elements are read: use both strides of x in its addresses, x.stride(0) and x.stride(1)"
    return ""


def the_shape(transpose):
    """One row becomes one column."""
    y, _ = _run(transpose, torch.arange(16.0)[None])
    return (
        f"for x of shape (1, 16) the result has the shape {tuple(y.shape)}: y is (N, M)" if y.shape != (16, 1) else ""
    )


def one_block(transpose):
    """16 by 16 elements are one block."""
    x = torch.arange(256.0).reshape(16, 16)
    y, _ = _run(transpose, x)
    if torch.equal(y, x):
        return (
            "y equals x, not x.T. Element (m, n) of x belongs in row n, column m of y, at n * y.stride(0) + m * y.stride(1): "
            "are the strides of y passed or used in the other order? Or is the tile transposed twice, by tl.trans and by its addresses?"
        )
    return ""


def the_grid(transpose):
    """Three blocks of rows and one of columns."""
    x = torch.randn(48, 16)
    y, steps = _run(transpose, x)
    if torch.equal(y, x.T):
        return ""
    tiles = {tile.rows[1] - tile.rows[0]: tile.cols[1] - tile.cols[0] for step in steps for tile in step.reads}
    programs = {step.program for step in steps}
    if len(tiles) == 1 and all(len(program) >= 2 for program in programs):
        ((rows, cols),) = tiles.items()
        need, got = (48 // rows, 16 // cols), tuple(max(p[d] for p in programs) + 1 for d in (0, 1))
        if got[0] < need[0] or got[1] < need[1]:
            return f"for a (48, 16) tensor in blocks of {rows} by {cols}, expected {need} programs that work, got {got}, so part of y is never written: the grid is cdiv(M) by cdiv(N), in the order of program_id(0), program_id(1)"
    return ""


def the_mask(transpose):
    """What lies past the last column must be masked; whole blocks show that the addresses are right."""
    from flashlearn.kernels.recorder import StrayAccess, Unrecordable

    x = torch.randn(16, 20, generator=torch.Generator().manual_seed(0))
    for whole in (torch.randn(16, 32), torch.randn(32, 16)):
        if not torch.equal(_run(transpose, whole)[0], whole.T):
            return ""
    for view, size in ((x, "n < N"), (x.T.contiguous(), "m < M")):
        try:
            _run(transpose, view)
        except (StrayAccess, Unrecordable):
            return f"for a {tuple(view.shape)} tensor, elements are touched that do not exist: also mask with {size}, in the load and in the store"
    return ""


LSE = (as_log_sum_exp(safe_softmax.m_is_added), as_it_is, as_log_sum_exp(safe_softmax.the_logarithm), the_strides)
CAUSES = {
    "scale": (the_factor, every_element),
    "row_lse": LSE,
    "transpose": (the_shape, one_block, the_mask, the_grid),
}
