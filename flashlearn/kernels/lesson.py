"""The kernels of notebook 15, from one copy to FlashAttention, each with one addition; 64 columns, whole tiles.

    double_kernel   one tile by TMA, in and out: a descriptor, a barrier, the async fence
    alone_kernel    O = (Q K^T) V in blocks: STAGES buffers, products that are issued and waited for
    shared_kernel   the same, by one producer warp and two consumer warpgroups: `free` next to `full`, registers moved
    attend          in the place of `consume`: the online softmax between the two products

They run in the simulator (`flashlearn.simulator.simulated`), and compile for Hopper. Not for use: the keys are a multiple of
64, nothing is masked, D is 64; `flashlearn.fast.hopper.forward` has what it takes.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flashlearn.fast.hopper.versions import async_load, async_store, barrier


@gluon.jit
def write(values, at, smem, desc):
    """Values from registers to HBM, by way of shared memory."""
    smem.store(values.to(smem.dtype))
    fence_async_shared()  # TMA must see what the threads stored
    barrier()  # all four warps have stored
    async_store(desc, at, smem)
    tma.store_wait(0)


@gluon.jit
def double_kernel(x_desc, y_desc):
    """y = 2 x, one tile of 64 by 64."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    x_smem = gl.allocate_shared_memory(x_desc.dtype, [64, 64], x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(full.index(0), count=1)
    at = [gl.program_id(0) * 64, 0]
    mbarrier.expect(full.index(0), x_desc.block_type.nbytes)
    async_load(x_desc, at, full.index(0), x_smem)
    mbarrier.wait(full.index(0), 0)
    x = x_smem.load(LAYOUT)
    write(x + x, at, x_smem, y_desc)


@gluon.jit
def issue_loads(t, k_desc, v_desc, k_smem, v_smem, full):
    """Issue the copies of K_t and V_t into the buffers of their stage."""
    stage = t % full.shape[0]
    mbarrier.expect(full.index(stage), 2 * k_desc.block_type.nbytes)
    async_load(k_desc, [t * 64, 0], full.index(stage), k_smem.index(stage))
    async_load(v_desc, [t * 64, 0], full.index(stage), v_smem.index(stage))


@gluon.jit
def multiply(t, q, acc, k_smem, v_smem, full):
    """acc + (Q K_t^T) V_t, as soon as both have landed."""
    STAGES: gl.constexpr = full.shape[0]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    stage = t % STAGES
    mbarrier.wait(full.index(stage), t // STAGES & 1)
    zero = gl.zeros([64, 64], gl.float32, LAYOUT)
    s = warpgroup_mma(q, k_smem.index(stage).permute((1, 0)), zero, is_async=True)  # issue
    s = warpgroup_mma_wait(0, deps=[s])  # wait
    s = gl.convert_layout(s.to(gl.float16), gl.DotOperandLayout(0, LAYOUT, 2))
    acc = warpgroup_mma(s, v_smem.index(stage), acc, is_async=True)
    return warpgroup_mma_wait(0, deps=[acc])


@gluon.jit
def alone_kernel(q_desc, k_desc, v_desc, o_desc, blocks, STAGES: gl.constexpr):
    """O = (Q K^T) V for 64 queries; one warpgroup loads and multiplies."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    q_smem = gl.allocate_shared_memory(gl.float16, [64, 64], q_desc.layout)
    k_smem = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], k_desc.layout)
    v_smem = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full.index(0), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    at = [gl.program_id(0) * 64, 0]
    mbarrier.expect(q_full.index(0), q_desc.block_type.nbytes)
    async_load(q_desc, at, q_full.index(0), q_smem)
    for t in range(gl.minimum(STAGES, blocks)):
        issue_loads(t, k_desc, v_desc, k_smem, v_smem, full)
    mbarrier.wait(q_full.index(0), 0)
    acc = gl.zeros([64, 64], gl.float32, LAYOUT)
    for t in range(blocks):
        acc = multiply(t, q_smem, acc, k_smem, v_smem, full)
        if t + STAGES < blocks:
            issue_loads(t + STAGES, k_desc, v_desc, k_smem, v_smem, full)
    write(acc, at, q_smem, o_desc)


@gluon.jit
def load(descs, smem, barriers, blocks):
    """The warp that loads: Q of both groups, then K_t and V_t as soon as their stage is free."""
    q_desc, k_desc, v_desc, o_desc = descs
    q_smem, k_smem, v_smem = smem
    q_full, full, free = barriers
    STAGES: gl.constexpr = free.shape[0]
    mbarrier.expect(q_full.index(0), 2 * q_desc.block_type.nbytes)
    for i in gl.static_range(2):
        async_load(q_desc, [gl.program_id(0) * 128 + i * 64, 0], q_full.index(0), q_smem.index(i))
    for t in range(blocks):
        mbarrier.wait(free.index(t % STAGES), t // STAGES & 1 ^ 1)  # a fresh barrier lets the first round pass
        issue_loads(t, k_desc, v_desc, k_smem, v_smem, full)


@gluon.jit
def consume(index: gl.constexpr, descs, smem, barriers, blocks, qk_scale):
    """A group that multiplies: its 64 queries against every block of keys."""
    q_desc, k_desc, v_desc, o_desc = descs
    q_smem, k_smem, v_smem = smem
    q_full, full, free = barriers
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    acc = gl.zeros([64, 64], gl.float32, LAYOUT)
    mbarrier.wait(q_full.index(0), 0)
    for t in range(blocks):
        acc = multiply(t, q_smem.index(index), acc, k_smem, v_smem, full)
        mbarrier.arrive(free.index(t % free.shape[0]), count=1)
    write(acc, [gl.program_id(0) * 128 + index * 64, 0], q_smem.index(index), o_desc)


@gluon.jit
def shared_kernel(q_desc, k_desc, v_desc, o_desc, blocks, qk_scale, STAGES: gl.constexpr):
    """128 queries: one warp loads, two groups of four warps multiply."""
    q_smem = gl.allocate_shared_memory(gl.float16, [2, 64, 64], q_desc.layout)
    k_smem = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], k_desc.layout)
    v_smem = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full.index(0), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)  # the loader announces bytes: once
        mbarrier.init(free.index(i), count=2)  # both groups are done
    descs, smem, barriers = (q_desc, k_desc, v_desc, o_desc), (q_smem, k_smem, v_smem), (q_full, full, free)
    gl.warp_specialize(
        [
            (consume, (0, descs, smem, barriers, blocks, qk_scale)),
            (consume, (1, descs, smem, barriers, blocks, qk_scale)),
            (load, (descs, smem, barriers, blocks)),
        ],
        [4, 1],  # warps of the second and third
        [240, 24],  # and registers of each of their threads
    )


@gluon.jit
def softmax_step(m_i, l_i, s):
    """The online softmax of a tile: new m and l, P (64, 64), and the factor for what was summed so far."""
    m_new = gl.maximum(m_i, gl.max(s, 1))
    p = gl.exp2(s - m_new[:, None])
    alpha = gl.exp2(m_i - m_new)
    return m_new, l_i * alpha + gl.sum(p, 1), p, alpha


@gluon.jit
def attend(index: gl.constexpr, descs, smem, barriers, blocks, qk_scale):
    """`consume` with the online softmax between its two products: FlashAttention."""
    q_desc, k_desc, v_desc, o_desc = descs
    q_smem, k_smem, v_smem = smem
    q_full, full, free = barriers
    STAGES: gl.constexpr = free.shape[0]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    ROWS: gl.constexpr = gl.SliceLayout(1, LAYOUT)
    m_i = gl.full([64], float("-inf"), gl.float32, ROWS)
    l_i = gl.full([64], 0.0, gl.float32, ROWS)
    acc = gl.zeros([64, 64], gl.float32, LAYOUT)
    zero = gl.zeros([64, 64], gl.float32, LAYOUT)
    mbarrier.wait(q_full.index(0), 0)
    for t in range(blocks):
        stage = t % STAGES
        mbarrier.wait(full.index(stage), t // STAGES & 1)
        s = warpgroup_mma(q_smem.index(index), k_smem.index(stage).permute((1, 0)), zero, is_async=True)
        m_i, l_i, p, alpha = softmax_step(m_i, l_i, warpgroup_mma_wait(0, deps=[s]) * qk_scale)
        p = gl.convert_layout(p.to(gl.float16), gl.DotOperandLayout(0, LAYOUT, 2))
        acc = warpgroup_mma(p, v_smem.index(stage), acc * alpha[:, None], is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(free.index(stage), count=1)
    write(acc / l_i[:, None], [gl.program_id(0) * 128 + index * 64, 0], q_smem.index(index), o_desc)
