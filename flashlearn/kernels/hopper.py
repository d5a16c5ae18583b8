"""How the Hopper kernels are launched: descriptors for the copy engine, and a launch that costs little.

Written for Gluon as of Triton 3.6; `flashlearn.kernels.rungs` says where it is used.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

_compiled = {}


def launch(kernel, grid: tuple[int, int, int], arguments: tuple, constants: dict) -> None:
    """kernel[grid](*arguments, **constants), without looking at every argument each time.

    Triton's launcher asks all arguments for their types on every call, to see whether it has compiled for such.
    Here only what may differ is asked: dtype, device and alignment. On an H200's host that takes 30 µs in place
    of 50, where the kernel itself may take 100. The constants follow the order of the kernel's parameters.
    """
    first = arguments[0].base
    aligned = tuple(a.data_ptr() % 16 == 0 for a in arguments if isinstance(a, Tensor))
    key = (kernel.__name__, first.dtype, first.device, aligned, *constants.values())
    if key in _compiled:
        _compiled[key][grid](*arguments, *constants.values())
    else:
        _compiled[key] = kernel[grid](*arguments, **constants, num_warps=4)


def descriptor(t: Tensor, tile: tuple[int, ...]) -> TensorDescriptor:
    """What the copy engine needs to know: shape, strides, tile, and how a tile lies in shared memory."""
    strides = [s if n > 1 else 8 for s, n in zip(t.stride()[:3], t.shape[:3], strict=True)]
    return TensorDescriptor(t, list(t.shape), [*strides, 1], list(tile), tile_layout(tile, t.dtype))


@cache
def tile_layout(tile: tuple[int, ...], dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """How a tile lies in shared memory: swizzled, so that rows and columns are read without bank conflicts."""
    return gl.NVMMASharedLayout.get_default_for(list(tile), gl.float32 if dtype == torch.float32 else gl.float16)


@cache
def multiprocessors(device: torch.device) -> int:
    """How many the GPU has."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def hopper_width(D: int) -> int:
    """Columns of a tile: D rounded up to 64, 128 or 256; the copy engine fills up with zeros."""
    return 64 if D <= 64 else 128 if D <= 128 else 256
