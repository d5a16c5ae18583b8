"""Answers to the exercises of gpu_and_triton that are no edit of the solution: `wrong.toml` names them."""

import numpy as np
import torch


def _wrong(name, **flags):
    """The answer `name` with these mistakes switched on."""

    def function(*args):
        from flashlearn.course.gpu_and_triton import known_kernels as gpu_and_triton_kernels

        with np.errstate(all="ignore"):  # the interpreter computes with NumPy, which would warn of overflow
            return getattr(gpu_and_triton_kernels, name)(*args, **flags)

    return function


def of_kernels(name, *args, **options):
    from flashlearn.course.gpu_and_triton import variant_kernels as gpu_and_triton_kernels

    return getattr(gpu_and_triton_kernels, name)(*args, **options)


def without_factor(x, factor):
    return of_kernels("scale", x, 1.0)


def stored_in_x(x, factor):
    return of_kernels("scale", x, factor, into_x=True)


def overlapping(x, factor):
    return of_kernels("scale", x, factor, overlapping=True)


def without_grid(x, factor):
    return of_kernels("scale_without_grid", x, factor)


def m_not_added(x):
    return of_kernels("row_lse", x, add_m=False)


def logarithm_to_the_base_2(x):
    return of_kernels("row_lse", x, base_2=True)


def no_power_of_two(x):
    return of_kernels("row_lse", x, block=x.shape[1])


def one_stride(x):
    return of_kernels("row_lse", x, strides=(x.stride(0), 1))


def only_the_maximum(x):
    return of_kernels("row_lse", x, only_m=True)


def shaped_as_x(x):
    return of_kernels("transpose", x, y=torch.empty(x.shape))


def n_not_masked(x):
    return of_kernels("transpose", x, mask_n=False)


def grid_exchanged(x):
    return of_kernels("transpose", x, grid_exchanged=True)


def turned_as_well(x):
    return of_kernels("transpose", x, turned=True)


def _by(name, before=None, after=None, **options):
    """The launcher `name`, with options; `before` is done to x, `after` to what comes back."""

    def function(x, *factor):
        from flashlearn.course.gpu_and_triton import wrong_kernels

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
