"""What Gluon calls things in Triton 3.6 to 3.9: the Hopper kernels are written with the names below.

Gluon is experimental, and changes from version to version. What differs stands here and nowhere else:

    here          3.6                              3.7                              3.8, 3.9
    barrier       gl.thread_barrier                gl.barrier                       gl.barrier
    async_load    tma.async_copy_global_to_shared  tma.async_copy_global_to_shared  tma.async_load
    async_store   tma.async_copy_shared_to_global  tma.async_copy_shared_to_global  tma.async_store
    async_add     an operation without a name      an operation without a name      tma.async_atomic_add

The launcher differs in one more thing, a field of the descriptors (`flashlearn.fast.hopper.tiles.Tiles`).
`a * b + c` becomes one fused instruction by itself up to 3.9, and from 3.10 on only where the launch asks for it
(`enable_fp_fusion`), as `flashlearn.fast.launcher` does. Admitted are those that
`flashlearn.fast.dispatch` lists. With 3.8 the kernels reach 0.87 to 0.92 of their speed with 3.7.1 forward at D = 64, where three
groups spill 80 bytes a thread, 0.96 to 0.98 at D = 128, and backward 0.94 to 1.01 (H200, "Triton 3.8" in
measurements/gpu_trials_h200.json). 3.9 is not admitted: it compiles all of this, and spills 112 bytes a thread forward with three
groups, and up to 152 backward, where 3.7 spills none, and 8 to 48.
"""

from __future__ import annotations

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""All threads of a group of warps wait for each other."""

async_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
"""The copy engine fetches a tile, and tells a barrier when it has landed."""

async_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
"""The copy engine takes a tile from shared memory to HBM."""

if hasattr(tma, "async_atomic_add"):
    async_add = tma.async_atomic_add
else:
    from triton._C.libtriton import ir
    from triton.experimental.gluon.language._core import builtin

    @builtin
    def async_add(tensor_desc, coord, src, _semantic=None):
        """desc[coord] += src, by the copy engine, as `async_store`."""
        coord = _semantic._convert_to_ir_values(coord, require_i64=False)
        _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, tensor_desc.handle, coord, src.handle)
