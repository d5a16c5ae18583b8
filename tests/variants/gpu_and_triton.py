"""Wrong answers to the exercises of notebook 11; the kernels are in gpu_and_triton_kernels.py, for Linux only."""

import torch

from tests.variants import variant


def of_kernels(name, *args, **options):
    from tests.variants import gpu_and_triton_kernels

    return getattr(gpu_and_triton_kernels, name)(*args, **options)


@variant("11.scale", "the factor is not used", r"factor|times|multipl")
def without_factor(x, factor):
    return of_kernels("scale", x, 1.0)


@variant("11.scale", "the result is stored in x, not in y", r"\by\b|returned|never written|no such write|not written")
def stored_in_x(x, factor):
    return of_kernels("scale", x, factor, into_x=True)


@variant(
    "11.scale",
    "blocks overlap: pid is not multiplied by BLOCK",
    r"pid \* BLOCK|overlap|two programs|another program|block of its own|writes what program|same element",
)
def overlapping(x, factor):
    return of_kernels("scale", x, factor, overlapping=True)


@variant("11.scale", "no kernel: PyTorch does it", r"kernel\b.*(run|launch)|no kernel|launch")
def by_pytorch(x, factor):
    return x * factor


@variant("11.scale", "the kernel is called without a grid", r"\[grid\]|\bgrid\b")
def without_grid(x, factor):
    return of_kernels("scale_without_grid", x, factor)


@variant("11.row_lse", "m is not added back", r"add m|m back|m \+|without m|maximum")
def m_not_added(x):
    return of_kernels("row_lse", x, add_m=False)


@variant("11.row_lse", "a logarithm to the base 2", r"\bbase|log2|natural")
def logarithm_to_the_base_2(x):
    return of_kernels("row_lse", x, base_2=True)


@variant("11.row_lse", "tl.arange of N, no power of two", r"power of (two|2)|next_power")
def no_power_of_two(x):
    return of_kernels("row_lse", x, block=x.shape[1])


@variant("11.row_lse", "only one stride of x is used", r"stride")
def one_stride(x):
    return of_kernels("row_lse", x, strides=(x.stride(0), 1))


@variant("11.row_lse", "the maximum is stored", r"\blog\b|logarithm|sum")
def only_the_maximum(x):
    return of_kernels("row_lse", x, only_m=True)


@variant("11.transpose", "y has the shape of x", r"shape|\(N, M\)")
def shaped_as_x(x):
    return of_kernels("transpose", x, y=torch.empty(x.shape))


@variant("11.transpose", "n is not masked in the load", r"\bmask|n < N")
def n_not_masked(x):
    return of_kernels("transpose", x, mask_n=False)


@variant("11.transpose", "the axes of the grid are exchanged", r"\bgrid\b|axis|axes|programs|program_id|never written")
def grid_exchanged(x):
    return of_kernels("transpose", x, grid_exchanged=True)


@variant(
    "11.transpose",
    "the tile is turned as well, so that elements land in place of others",
    r"as it is|turned|twice|tl\.trans|transpos|same block",
)
def turned_as_well(x):
    return of_kernels("transpose", x, turned=True)
