"""The ladder of notebook 14: the forward kernel, one change at a time, in plain Triton.

    attend(VERSIONS["exp2"], q, k, v, causal=True)      (o, lse), by that version

Every version is the one before with one change; `VERSIONS` lists them in order. So that each change is alone in the
source, these kernels are more limited than `flashlearn.kernels`: q, k and v are contiguous, of one shape (B, H, N, D),
N a multiple of the blocks, D a power of two. The last version of the course, in Gluon, is
`flashlearn.fast.hopper.forward`; `flashlearn.fast.dispatch` chooses the one that `flash_attention` runs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from flashlearn.kernels.forward import LOG2_E, Launch, forward_launch  # isort: skip (chooses the backend)

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flashlearn.core.inputs import check_bool, check_qkv
from flashlearn.core.target import (
    check_grid,
    check_head_dim,
    check_launch,
    check_power_of_two,
    check_runnable,
    resolve_scale,
)

LN_2 = tl.constexpr(math.log(2))


@triton.jit(do_not_specialize=["N"])
def ladder_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, N, scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
    EXP2: tl.constexpr, SKIP: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """O and lse for one block of queries of one head; q, k, v and o (heads, N, D)."""
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    at = head * N * HEAD_DIM + offs_m[:, None] * HEAD_DIM + offs_d[None, :]  # (BLOCK_M, HEAD_DIM)
    q = tl.load(q_ptr + at)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)

    end = N
    if CAUSAL and SKIP:
        end = tl.minimum(start_m + BLOCK_M, N)  # no query of this block attends to a key from here on
    masked_from = end  # keys before this one need no mask
    if CAUSAL:
        masked_from = start_m // BLOCK_N * BLOCK_N if SPLIT else 0
    if SPLIT or not CAUSAL:
        for start_n in range(0, masked_from, BLOCK_N):
            m_i, l_i, acc = update_block(m_i, l_i, acc, q, k_ptr, v_ptr, head * N * HEAD_DIM, start_n, offs_m, scale,
                                         HEAD_DIM, BLOCK_N, EXP2, MASKED=False)  # fmt: skip
    if CAUSAL:
        for start_n in range(masked_from, end, BLOCK_N):
            m_i, l_i, acc = update_block(m_i, l_i, acc, q, k_ptr, v_ptr, head * N * HEAD_DIM, start_n, offs_m, scale,
                                         HEAD_DIM, BLOCK_N, EXP2, MASKED=True)  # fmt: skip

    lse = (m_i + tl.log2(l_i)) * LN_2 if EXP2 else m_i + tl.log(l_i)
    tl.store(o_ptr + at, (acc / l_i[:, None]).to(o_ptr.dtype.element_ty))
    tl.store(lse_ptr + head * N + offs_m, lse)


@triton.jit
def update_block(
    m_i, l_i, acc, q, k_ptr, v_ptr, base, start_n, offs_m, scale,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, EXP2: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """(m, l, acc) updated with the keys and values from start_n on."""
    offs_n = start_n + tl.arange(0, BLOCK_N)
    at = base + offs_n[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]  # (BLOCK_N, HEAD_DIM)
    k = tl.load(k_ptr + at)
    v = tl.load(v_ptr + at)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # (BLOCK_M, BLOCK_N); with EXP2 in units of log2
    if MASKED:
        s = tl.where(offs_m[:, None] >= offs_n[None, :], s, float("-inf"))
    return update(m_i, l_i, acc, s, v, EXP2)


@triton.jit
def update(m_i, l_i, acc, s, v, EXP2: tl.constexpr):
    """The online softmax; key 0 comes first, and every query attends to it, so that m is finite from then on."""
    m_new = tl.maximum(m_i, tl.max(s, 1))
    if EXP2:
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
    else:
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m_i - m_new)
    l_i = l_i * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return m_new, l_i, acc


@triton.jit(do_not_specialize=["N"])
def descriptors_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, N, scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The same with tensor descriptors: TMA copies a tile, by row and column.

    The descriptors are of (heads N, D): row r of head h is row h N + r.
    """
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = q_desc.load([head * N + start_m, 0])
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    masked_from = start_m // BLOCK_N * BLOCK_N if CAUSAL else N
    end = tl.minimum(start_m + BLOCK_M, N) if CAUSAL else N
    for start_n in range(0, masked_from, BLOCK_N):
        k = k_desc.load([head * N + start_n, 0])
        v = v_desc.load([head * N + start_n, 0])
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        m_i, l_i, acc = update(m_i, l_i, acc, s, v, EXP2=True)
    if CAUSAL:
        for start_n in range(masked_from, end, BLOCK_N):
            k = k_desc.load([head * N + start_n, 0])
            v = v_desc.load([head * N + start_n, 0])
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            s = tl.where(offs_m[:, None] >= start_n + tl.arange(0, BLOCK_N)[None, :], s, float("-inf"))
            m_i, l_i, acc = update(m_i, l_i, acc, s, v, EXP2=True)
    o_desc.store([head * N + start_m, 0], (acc / l_i[:, None]).to(q.dtype))
    tl.store(lse_ptr + head.to(tl.int64) * N + offs_m, (m_i + tl.log2(l_i)) * LN_2)


class Version(NamedTuple):
    """A kernel of the ladder: its change from the version before, and the options of its launch."""

    change: str
    exp2: bool = True
    skip: bool = True
    split: bool = True
    tuned: bool = True  # block sizes, warps and stages of `TUNED`; otherwise those of the teaching kernel
    descriptors: bool = False


VERSIONS = {
    "fused": Version("one kernel, S and P stay on chip", exp2=False, skip=False, split=False, tuned=False),
    "exp2": Version("2^x instead of e^x, both factors folded into one", skip=False, split=False, tuned=False),
    "skip": Version("causal: hidden blocks are not visited", split=False, tuned=False),
    "split": Version("causal: only the blocks on the diagonal are masked", tuned=False),
    "blocks": Version("block sizes, warps and stages for this GPU"),
    "descriptors": Version("TMA loads the tiles", descriptors=True),
}

CANDIDATES = [  # tried by benchmarks/gpu_ladder.py, which measures them all
    Launch(128, 64, 4, 2), Launch(128, 64, 4, 3), Launch(128, 64, 8, 3), Launch(128, 128, 4, 2),
    Launch(128, 128, 8, 2), Launch(128, 128, 8, 3), Launch(64, 64, 4, 3), Launch(64, 128, 4, 3),
]  # fmt: skip
TUNED = {64: Launch(64, 64, 4, 3), 128: Launch(64, 64, 4, 3)}  # D -> what "blocks" takes by default


def attend(
    version: Version, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o, shaped as q, and lse (B, H, N) in float32; q, k and v contiguous (B, H, N, D), all of one shape."""
    if not isinstance(version, Version):
        raise TypeError(f"expected version to be a Version, one of the values of VERSIONS, got {version!r}")
    check_runnable(q=q, k=k, v=v)
    size = check_qkv(q, k, v)
    check_head_dim(size.D)
    check_power_of_two(16, D=size.D)
    check_bool(causal, "causal")
    if launch is None:
        launch = (TUNED.get(size.D) if version.tuned else None) or forward_launch(size.D, q.element_size())
    else:
        check_launch(launch, Launch)
    if not q.shape == k.shape == v.shape or not all(t.is_contiguous() for t in (q, k, v)):
        raise ValueError(f"expected contiguous q, k and v of one shape, got {[tuple(t.shape) for t in (q, k, v)]}")
    if size.N_q % launch.block_m or size.N_q % launch.block_n:
        raise ValueError(f"expected N a multiple of {launch.block_m} and {launch.block_n}, got {size.N_q}")
    B, H, N, D = q.shape
    scale = resolve_scale(scale, D) * (LOG2_E if version.exp2 else 1)
    o, lse = torch.empty_like(q), torch.empty((B, H, N), dtype=torch.float32, device=q.device)
    grid = check_grid((N // launch.block_m, B * H))
    sizes = dict(HEAD_DIM=D, BLOCK_M=launch.block_m, BLOCK_N=launch.block_n, CAUSAL=causal,
                 num_warps=launch.num_warps, num_stages=launch.num_stages)  # fmt: skip
    if version.descriptors:
        q_desc, o_desc = (TensorDescriptor.from_tensor(t.view(-1, D), [launch.block_m, D]) for t in (q, o))
        k_desc, v_desc = (TensorDescriptor.from_tensor(t.view(-1, D), [launch.block_n, D]) for t in (k, v))
        descriptors_kernel[grid](q_desc, k_desc, v_desc, o_desc, lse, N, scale, **sizes)
    else:
        ladder_kernel[grid](
            q, k, v, o, lse, N, scale, EXP2=version.exp2, SKIP=version.skip, SPLIT=version.split, **sizes
        )
    return o, lse
