"""A kernel around an answer of notebook 15, in the simulator of barriers and buffers, and in the compiler.

The functions below are written in Gluon, without its decorator. Only `simulate` runs them and gives the names their
meaning.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from flashlearn.exercises.altered import altered
from flashlearn.exercises.watching import with_the_answer
from flashlearn.simulator.barriers import Race
from flashlearn.simulator.scheduler import Deadlock
from flashlearn.simulator.simulated import simulate, tiles

gl: Any = None  # these names are the simulator's when it runs the functions below
mbarrier: Any = None
async_load: Any = None
async_store: Any = None
fence_async_shared: Any = None
tma: Any = None
multiply: Any = None


def load(k_desc, v_desc, smem, full, free, blocks):
    """K_t, then V_t, each as soon as its own buffer is free."""
    (k_smem, v_smem), (k_full, v_full), (k_free, v_free) = smem, full, free
    stages = k_free.shape[0]
    for t in range(blocks):
        stage, phase = t % stages, t // stages & 1
        mbarrier.wait(k_free.index(stage), phase ^ 1)
        mbarrier.expect(k_full.index(stage), k_desc.block_type.nbytes)
        async_load(k_desc, [t * 64, 0], k_full.index(stage), k_smem.index(stage))
        mbarrier.wait(v_free.index(stage), phase ^ 1)
        mbarrier.expect(v_full.index(stage), v_desc.block_type.nbytes)
        async_load(v_desc, [t * 64, 0], v_full.index(stage), v_smem.index(stage))


def consume(index, q_smem, o_desc, smem, full, free, blocks):
    """64 queries against every block of keys, by the answer."""
    acc = gl.zeros([64, 64], gl.float32)
    for t in range(blocks):
        acc = multiply(t, q_smem.index(index), acc, smem, full, free)
    q_smem.index(index).store(acc)
    fence_async_shared()
    async_store(o_desc, [64 * index, 0], q_smem.index(index))
    tma.store_wait(0)


def separate_kernel(q_desc, k_desc, v_desc, o_desc, blocks, STAGES):
    """O = (Q K^T) V for 128 queries; K and V have barriers of their own."""
    q_smem = gl.allocate_shared_memory(gl.float16, [2, 64, 64], q_desc.layout)
    k_smem = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], k_desc.layout)
    v_smem = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full.index(0), count=1)
    for i in range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)
        mbarrier.init(v_free.index(i), count=2)
    mbarrier.expect(q_full.index(0), 2 * q_desc.block_type.nbytes)
    for i in range(2):
        async_load(q_desc, [64 * i, 0], q_full.index(0), q_smem.index(i))
    mbarrier.wait(q_full.index(0), 0)
    shared = ((k_smem, v_smem), (k_full, v_full), (k_free, v_free), blocks)
    groups = [(consume, (i, q_smem, o_desc, *shared)) for i in range(2)]
    gl.warp_specialize([*groups, (load, (k_desc, v_desc, *shared))], [4, 1], [240, 24])


@with_the_answer
def simulated(function: Any, blocks: int, stages: int) -> tuple[torch.Tensor, int]:
    """O and the slots it took, with the answer as `multiply`; RuntimeError after a deadlock or a race."""
    q, k, v = problem(blocks)
    o = torch.full_like(q, float("nan"))
    given = [tiles(name, t, (64, 64)) for name, t in zip("QKVO", (q, k, v, o), strict=True)]
    try:
        ran = simulate(separate_kernel, *given, blocks, STAGES=stages, replaced={"multiply": function})
    except (Race, Deadlock) as error:
        raise RuntimeError(f"{type(error).__name__.lower()}, {error}") from None
    return o.float(), ran.slots


def problem(blocks: int) -> list[torch.Tensor]:
    """Q, K and V of whole numbers: sums in any order are exact."""
    generator = torch.Generator().manual_seed(blocks)
    return [torch.randint(-1, 2, (n, 64), generator=generator).half() for n in (128, 64 * blocks, 64 * blocks)]


# 15.wide: `attend` of the lesson for 128 columns


def wide(function: Any, blocks: int, scale: float) -> tuple[Any, list, dict[str, Any]]:
    """The lesson's kernel with buffers of 128 columns, its arguments, and the answer as its `consume`."""
    from flashlearn.kernels import lesson

    columns = (("[2, 64, 64]", "[2, 64, 128]"), *((f"64], {name}_desc", f"128], {name}_desc") for name in "kv"))
    q, k, v = heads(blocks)
    given = [tiles(name, t, (64, 128)) for name, t in zip("QKVO", (q, k, v, torch.full_like(q, math.nan)), strict=True)]
    replaced = {"consume": function, "softmax_step": lesson.softmax_step, "write": lesson.write}
    return altered(lesson.shared_kernel.fn, *columns), [*given, blocks, scale], replaced


def heads(blocks: int) -> list[torch.Tensor]:
    """Q, K and V with 128 columns."""
    generator = torch.Generator().manual_seed(blocks)
    return [torch.randn(n, 128, generator=generator).half() for n in (128, 64 * blocks, 64 * blocks)]


@with_the_answer
def attended(function: Any, blocks: int, stages: int, scale: float) -> torch.Tensor:
    """O; RuntimeError after a deadlock or a race."""
    kernel, given, replaced = wide(function, blocks, scale)
    try:
        simulate(kernel, *given, STAGES=stages, replaced=replaced)
    except (Race, Deadlock) as error:
        raise RuntimeError(f"{type(error).__name__.lower()}, {error}") from None
    return given[3].tensor.float()


@with_the_answer
@functools.cache  # known mistakes are compiled once
def rejected_by_compiler(function: Any) -> tuple[str, ...]:
    """(line, what the compiler for Hopper says), nothing if it compiles."""
    from flashlearn.compiler.compiled_source import Call, compiled_for_hopper
    from flashlearn.compiler.rejected import explained

    kernel, given, replaced = wide(function, 5, 0.1)
    try:
        compiled_for_hopper(Call(kernel, tuple(given), {"STAGES": 2}, replaced))
    except RuntimeError as error:
        return tuple(explained(str(error)))[:2]
    return ()
