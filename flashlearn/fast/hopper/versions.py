"""Gluon's names in Triton 3.6 to 3.9, which differ; `flashlearn.fast.dispatch` lists the versions that are admitted.

    here          3.6                              3.7                              3.8, 3.9
    barrier       gl.thread_barrier                gl.barrier                       gl.barrier
    async_load    tma.async_copy_global_to_shared  tma.async_copy_global_to_shared  tma.async_load
    async_store   tma.async_copy_shared_to_global  tma.async_copy_shared_to_global  tma.async_store
    async_add     an operation without a name      an operation without a name      tma.async_atomic_add

The launcher differs in a field of the descriptors (`flashlearn.fast.hopper.tiles.Tiles`).
"""

from __future__ import annotations

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""All threads of a warpgroup wait for each other."""

async_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
"""TMA fetches a tile, and tells a barrier when it has landed."""

async_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
"""TMA takes a tile from shared memory to HBM."""

if hasattr(tma, "async_atomic_add"):
    async_add = tma.async_atomic_add
else:
    from triton._C.libtriton import ir
    from triton.experimental.gluon.language._core import builtin

    @builtin
    def async_add(tensor_desc, coord, src, _semantic=None):
        """desc[coord] += src, by TMA, as `async_store`."""
        coord = _semantic._convert_to_ir_values(coord, require_i64=False)
        _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, tensor_desc.handle, coord, src.handle)
