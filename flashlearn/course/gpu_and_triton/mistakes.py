"""Known wrong answers to the exercises of notebook 11; their kernels are in gpu_and_triton_kernels.py."""

import numpy as np

from flashlearn.exercises.assessment import Mistake


def _wrong(name, **flags):
    """The answer `name` with these mistakes switched on."""

    def function(*args):
        from flashlearn.course.gpu_and_triton import mistake_kernels as gpu_and_triton_kernels

        with np.errstate(all="ignore"):  # the interpreter computes with NumPy, which would warn of overflow
            return getattr(gpu_and_triton_kernels, name)(*args, **flags)

    return function


MISTAKES = {
    "11.scale": (
        Mistake("the lanes past the end are not masked", _wrong("scale", masked=False), "1000 elements"),
        Mistake("the number of programs is rounded down", _wrong("scale", rounded_down=True), "1000 elements"),
        Mistake("the offsets do not depend on the program", _wrong("scale", pid=0), "1024 elements"),
        Mistake("the stride of x is taken to be 1", _wrong("scale", stride=1), "every second element"),
        Mistake("one program does everything", _wrong("scale", block=2**15), "many programs"),
    ),
    "11.row_lse": (
        Mistake("masked lanes hold 0 and join the sum", _wrong("row_lse", other=0.0), "negative logits"),
        Mistake("lanes past N hold a low number, not -inf", _wrong("row_lse", other=-1000.0), "very negative logits"),
        Mistake("the lanes past N are not masked", _wrong("row_lse", masked=False), "rows of 50"),
        Mistake("the maximum is not subtracted", _wrong("row_lse", safe=0), "large logits"),
        Mistake("x is taken to be contiguous", _wrong("row_lse", contiguous=True), "transposed x"),
        Mistake("the row is loaded twice", _wrong("row_lse", twice=True), "x is read once"),
    ),
    "11.transpose": (
        Mistake("elements are copied to the place they came from", _wrong("transpose", swap=False), "whole blocks"),
        Mistake("M and N are swapped in the mask of the store", _wrong("transpose", swap_mask=True), "whole blocks"),
        Mistake("the store is not masked", _wrong("transpose", mask=False), "50 by 37"),
        Mistake("the grid has one axis only", _wrong("transpose", rows_only=True), "one row"),
        Mistake("x is taken to be contiguous", _wrong("transpose", contiguous=True), "x is a view"),
        Mistake("a view of a plain copy is returned", _wrong("copy_and_view"), "contiguous result"),
    ),
}
