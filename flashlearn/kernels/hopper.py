"""How the Hopper kernels are launched: with descriptors for the copy engine.

Written for Gluon as of Triton 3.6; `flashlearn.kernels.rungs` says where it is used.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flashlearn.kernels.launch import launch


def launch_hopper(kernel, grid: tuple[int, int, int], arguments: tuple, constants: dict) -> None:
    """kernel[grid](*arguments, **constants), as `launch` does it; the first argument is a descriptor.

    All descriptors are of its dtype and their tiles follow from the constants, so that only dtype, device and the
    alignment of pointers are left to tell kernels apart.
    """
    first = arguments[0].base
    aligned = [a.data_ptr() % 16 == 0 for a in arguments if isinstance(a, Tensor)]
    launch(kernel, grid, arguments, constants, key=(first.dtype, first.device, *aligned), num_warps=4)


def descriptor(t: Tensor, tile: tuple[int, ...]) -> TensorDescriptor:
    """What the copy engine needs to know: shape, strides, tile, and how a tile lies in shared memory."""
    strides = [s if n > 1 else 8 for s, n in zip(t.stride()[:3], t.shape[:3], strict=True)]
    return TensorDescriptor(t, list(t.shape), [*strides, 1], list(tile), tile_layout(tile, t.dtype))


@cache
def tile_layout(tile: tuple[int, ...], dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """How a tile lies in shared memory: swizzled, so that rows and columns are read without bank conflicts."""
    return gl.NVMMASharedLayout.get_default_for(list(tile), gl.float32 if dtype == torch.float32 else gl.float16)


def hopper_width(D: int) -> int:
    """Columns of a tile: D, of at most 128, rounded up to 64 or 128; the copy engine fills up with zeros."""
    return 64 if D <= 64 else 128
