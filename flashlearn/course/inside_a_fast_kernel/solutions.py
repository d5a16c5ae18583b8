"""Solutions of the exercises of notebook 15."""

from __future__ import annotations

from typing import Any

gl: Any = None  # Gluon's names are the simulator's when it runs a kernel
mbarrier: Any = None
warpgroup_mma: Any = None
warpgroup_mma_wait: Any = None


# 15.deadlock
def deadlock_solution(t, stages):
    phase = t // stages & 1  # of the round in which tile t uses its buffer
    return phase ^ 1, phase  # the buffer is free once the round *before* is over: a fresh barrier lets the first pass


# 15.arrive
def arrive_solution(t, q, acc, smem, full, free):
    (k_smem, v_smem), (k_full, v_full), (k_free, v_free) = smem, full, free
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    stage, phase = t % k_free.shape[0], t // k_free.shape[0] & 1
    zero = gl.zeros([64, 64], gl.float32, LAYOUT)
    mbarrier.wait(k_full.index(stage), phase)
    s = warpgroup_mma(q, k_smem.index(stage).permute((1, 0)), zero, is_async=True)
    s = warpgroup_mma_wait(0, deps=[s])
    mbarrier.arrive(k_free.index(stage), count=1)
    p = gl.convert_layout(s.to(gl.float16), gl.DotOperandLayout(0, LAYOUT, 2))
    mbarrier.wait(v_full.index(stage), phase)
    acc = warpgroup_mma(p, v_smem.index(stage), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(v_free.index(stage), count=1)
    return acc


# 15.stages
def stages_solution(blocks, stages, land, work):
    done: list[int] = []  # when each tile has been multiplied
    for t in range(blocks):
        asked = done[t - stages] if t >= stages else 0  # its buffer is free once the tile before in it is done
        before = done[-1] if done else 0
        done.append(max(asked + land, before) + work)
    return done[-1]
