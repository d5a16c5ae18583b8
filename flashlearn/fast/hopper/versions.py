"""Gluon's names in Triton 3.6 to 3.9, which differ; `flashlearn.fast.dispatch` admits those with which tests/gpu ran, 3.6 to 3.8.

    here          3.6                              3.7                              3.8, 3.9
    barrier       gl.thread_barrier                gl.barrier                       gl.barrier
    async_load    tma.async_copy_global_to_shared  tma.async_copy_global_to_shared  tma.async_load
    async_store   tma.async_copy_shared_to_global  tma.async_copy_shared_to_global  tma.async_store
    async_add     an operation without a name      an operation without a name      tma.async_atomic_add
    aggregate     without a constructor            without a constructor            with one of its own

The launcher differs in a field of the descriptors (`flashlearn.fast.hopper.tiles.Tiles`).
"""

from __future__ import annotations

import inspect
from typing import Any, dataclass_transform

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma
from triton.language.core import _aggregate, base_value, constexpr

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""All threads of a warpgroup wait for each other."""

async_load = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
"""TMA loads a tile into shared memory and arrives at a barrier when its bytes have landed."""

async_store = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
"""TMA stores a tile from shared memory to HBM."""

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


@dataclass_transform()
def aggregate(cls: type) -> Any:
    """The class as a struct inside kernels: a field for each annotation, in this order, and its methods.

    A field may hold a tensor, shared memory, a descriptor, a tuple, another aggregate, or a constant, which None is too. Fields with
    a default may be left out.
    """
    names = tuple(inspect.get_annotations(cls))
    defaults = {name: vars(cls)[name] for name in names if name in vars(cls)}

    def init(self, *args, **named):
        given = dict(zip(names, args, strict=False)) | named
        if len(args) > len(names) or given.keys() - set(names):
            raise TypeError(f"expected {cls.__name__} to be made of {names}, got {args} and {named}")
        for name, value in (defaults | given).items():
            setattr(self, name, value if isinstance(value, base_value) else constexpr(value))

    init.__triton_builtin__ = True  # type: ignore[attr-defined]
    for name in defaults:
        delattr(cls, name)
    cls.__init__ = init  # type: ignore[misc]
    cls.__annotations__ = dict.fromkeys(names, base_value)
    made = _aggregate(cls)
    made.__aggregate_fields__, made.__aggregate_defaults__ = names, defaults
    return made
