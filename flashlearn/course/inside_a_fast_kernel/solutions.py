"""Solutions of the exercises of notebook 15."""

from __future__ import annotations

from typing import Any

gl: Any = None  # Gluon's names are the simulator's when it runs a kernel
mbarrier: Any = None
warpgroup_mma: Any = None
warpgroup_mma_wait: Any = None
softmax_step: Any = None  # of the lesson
write: Any = None


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


# 15.wide
def wide_solution(index: gl.constexpr, descs, smem, barriers, blocks, qk_scale):
    o_desc = descs[3]
    q_smem, k_smem, v_smem = smem
    q_full, full, free = barriers
    STAGES: gl.constexpr = free.shape[0]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    m_i = gl.full([64], float("-inf"), gl.float32, S_ROWS)
    l_i = gl.full([64], 0.0, gl.float32, S_ROWS)
    acc = gl.zeros([64, 128], gl.float32, O_LAYOUT)
    zero = gl.zeros([64, 64], gl.float32, S_LAYOUT)
    mbarrier.wait(q_full.index(0), 0)
    for t in range(blocks):
        stage = t % STAGES
        mbarrier.wait(full.index(stage), t // STAGES & 1)
        s = warpgroup_mma(q_smem.index(index), k_smem.index(stage).permute((1, 0)), zero, is_async=True)
        m_i, l_i, p, alpha = softmax_step(m_i, l_i, warpgroup_mma_wait(0, deps=[s]) * qk_scale)
        alpha = gl.convert_layout(alpha, O_ROWS)  # from the rows of S to those of acc
        p = gl.convert_layout(p.to(gl.float16), gl.DotOperandLayout(0, O_LAYOUT, 2))
        acc = warpgroup_mma(p, v_smem.index(stage), acc * alpha[:, None], is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(free.index(stage), count=1)
    l_i = gl.convert_layout(l_i, O_ROWS)
    write(acc / l_i[:, None], [gl.program_id(0) * 128 + index * 64, 0], q_smem.index(index), o_desc)
