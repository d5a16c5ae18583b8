"""Wrong answers to the exercises of notebook 11; their kernels are in tests/wrong_kernels.py."""

import numpy as np
import torch


def _by(name, before=None, after=None, **options):
    """The launcher `name`, with options; `before` is done to x, `after` to what comes back."""

    def function(x, *factor):
        from tests import wrong_kernels

        with np.errstate(all="ignore"):  # the interpreter computes with NumPy, which would warn of overflow
            y = getattr(wrong_kernels, name)(before(x, *factor) if before else x, *factor, **options)
        return after(y) if after else y

    return function


def scale_in_torch(x, factor):
    return _by("scale")(factor * x, 1.0)


def scale_in_place(x, factor):
    return _by("scale", y=x)(x, factor)


def scale_typed_in(x, factor):
    return _by("scale")(x, -2.5)


def scale_by_an_integer(x, factor):
    return _by("scale")(x, int(factor))


def row_lse_in_torch(x):
    return _by("scale")(torch.logsumexp(x, -1), 1.0)


def row_lse_from_exp(x):
    return _by("row_lse")(x - x.amax(-1, keepdim=True)) + x.amax(-1)


WRONG = {
    "11.scale": (
        ("x is made contiguous before the kernel", _by("scale", before=lambda x, _: x.contiguous()), "reads x itself"),
        ("PyTorch multiplies, the kernel copies", scale_in_torch, "one that never sees x"),
        ("the kernel copies, PyTorch multiplies", _by("scale_after"), "PyTorch changed them"),
        ("what comes back is not what the kernel wrote", _by("scale_beside"), "one that PyTorch made"),
        ("x is overwritten", scale_in_place, "expected the input x as it was"),
        ("the factor is typed in", scale_typed_in),
        ("the factor becomes an integer", scale_by_an_integer),
        ("a program has one element", _by("scale", block=1), "a program has a block of elements"),
        ("y is float64", _by("scale", dtype=torch.float64), "expected torch.float32, as x"),
        ("y is float16", _by("scale", dtype=torch.float16)),
        ("the mask lets one lane too many through", _by("scale_loose")),
        ("one program goes round", _by("scale_loop", programs=1)),
    ),
    "11.row_lse": (
        ("x is made contiguous before the kernel", _by("row_lse", before=lambda x: x.contiguous()), "reads x itself"),
        ("one program does all rows", _by("row_lse", rows=64), "7 programs for 7 rows, got 1"),
        ("two rows a program", _by("row_lse", rows=2), "7 programs for 7 rows, got 4"),
        ("the block is typed in", _by("row_lse", block=128), "a number typed in cuts it off"),
        ("the maximum starts at 0", _by("row_lse", how="floor"), "must not raise the maximum"),
        ("a constant is subtracted in place of the maximum", _by("row_lse", how="shift")),
        ("what comes back is not what the kernel wrote", _by("row_lse_beside"), "one that PyTorch made"),
        ("PyTorch sums, the kernel copies", row_lse_in_torch),
        ("PyTorch takes the maximum off before and adds it after", row_lse_from_exp, "one that never sees x"),
        ("x is overwritten", _by("row_lse", how="spoil"), "expected the input x as it was"),
        ("the logarithm is that to the base 2", _by("row_lse", how="log2")),
        ("exp2 and log2 are taken for exp and log", _by("row_lse", how="exp2")),
        ("the maximum is not added again", _by("row_lse", how="no maximum")),
        ("the result is float64", _by("row_lse", dtype=torch.float64), "expected torch.float32, as x"),
    ),
    "11.transpose": (
        ("PyTorch transposes, the kernel copies", _by("transpose_plain_copy"), "reads x itself"),
        ("the kernel copies, PyTorch transposes", _by("transpose_afterwards"), "one that PyTorch made"),
        ("what comes back is not what the kernel wrote", _by("transpose_beside"), "one that PyTorch made"),
        ("x is made contiguous before the kernel", _by("transpose", before=lambda x: x.contiguous()), "reads x itself"),
        ("the grid has one axis, split by hand", _by("transpose", one_axis=True), "a grid with two axes, got "),
        (
            "the grid has a row for each row of x",
            _by("transpose", row_grid=True),
            "6 programs, one for each block, got 96",
        ),
        ("blocks are 32 by 32", _by("transpose", block=(32, 32)), "reads of 16 by 16"),
        ("a program has a row", _by("transpose_rows"), "reads of 16 by 16"),
        ("one program goes round", _by("transpose_one_program"), "6 programs, one for each block, got 1"),
        ("reshape is taken for a transpose", _by("transpose_reshaped")),
        ("the mask lets one lane too many through", _by("transpose", slack=1)),
        ("the result is float64", _by("transpose", dtype=torch.float64), "expected torch.float32, as x"),
    ),
}

RIGHT = {
    "11.scale": (
        ("blocks of 1024", _by("scale", block=1024)),
        ("blocks of 64", _by("scale", block=64)),
        ("eight programs go round", _by("scale_loop")),
        ("a grid that asks for the block", _by("scale_grid_by_a_function")),
    ),
    "11.row_lse": (
        ("a longer block", _by("row_lse", block=512)),
        ("block by block, online", _by("row_lse_online")),
    ),
    "11.transpose": (
        ("turned on chip", _by("transpose_on_chip")),
        ("a copy into the transpose of the result", _by("transpose")),
    ),
}
