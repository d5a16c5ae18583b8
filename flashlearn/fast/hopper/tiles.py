"""How the Hopper kernels are launched: with descriptors for TMA."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flashlearn.fast.launcher import launch


class Tiles(NamedTuple):
    """What TMA needs to know of a tensor: a TensorDescriptor without its checks, which cost time on every call."""

    base: Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    layout: gl.NVMMASharedLayout
    padding: str = "zero"
    round_f32_to_tf32: bool = False  # read by the launcher of Triton 3.7 and newer


def in_tiles(t: Tensor, tile: tuple[int, ...]) -> Tiles:
    """t (B, H, N, D) in tiles of this shape. Where a dimension has size 1, TMA accepts any stride that is a multiple of 8."""
    B, H, N, _ = t.shape
    b, h, n, _ = t.stride()
    strides = (b if B > 1 else 8, h if H > 1 else 8, n if N > 1 else 8, 1)
    return Tiles(t, t.shape, strides, tile, tile_layout(tile, t.dtype))


def launch_hopper(
    kernel, grid: tuple[int, int, int], arguments: tuple, constants: dict, *, dependent: bool = False, maxnreg: int | None = None,
) -> None:  # fmt: skip
    """kernel[grid](*arguments, **constants), as `launch` does it; the first argument is `Tiles`.

    All `Tiles` have its dtype, and their layouts follow from the constants. A compiled kernel therefore depends on dtype, device, the
    alignment of pointers and which arguments are None. maxnreg: the maximum of registers that a thread begins with.
    """
    q = arguments[0].base
    aligned = [a.data_ptr() % 16 == 0 for a in arguments if isinstance(a, Tensor)]
    key = (q.dtype, q.device, *aligned, *(a is None for a in arguments))
    launch(
        kernel, grid, arguments, constants, key=key, first=with_descriptors, dependent=dependent, num_warps=4, maxnreg=maxnreg,
    )  # fmt: skip


def with_descriptors(arguments: tuple) -> tuple:
    """The arguments for the first launch, which compiles: checked descriptors in place of `Tiles`."""
    return tuple(
        TensorDescriptor(a.base, list(a.shape), list(a.strides), list(a.block_shape), a.layout)
        if isinstance(a, Tiles) else a
        for a in arguments
    )  # fmt: skip


@cache
def tile_layout(tile: tuple[int, ...], dtype: torch.dtype) -> gl.NVMMASharedLayout:
    """The layout of a tile in shared memory: swizzled against bank conflicts, but for tiles of two rows."""
    if tile[-2] == 2:
        return gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=8 * dtype.itemsize, rank=len(tile))
    return gl.NVMMASharedLayout.get_default_for(list(tile), gl.float32 if dtype == torch.float32 else gl.float16)
