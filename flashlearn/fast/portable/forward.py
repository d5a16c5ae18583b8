"""FlashAttention-2's forward pass for every GPU: the teaching kernel, and what makes it fast in plain Triton.

What changed from the teaching kernel, and why:

1. The maximum is taken of Q K^T itself, and scale goes into the exponent. exp2(S c - m c) with c = scale log2(e) is one
   fused multiply-add and one exponential for a score; S c alone would cost a multiplication. That asks for c > 0: for a
   negative scale the kernel takes -S and -c.
2. Blocks that every query of a tile attends to are a loop of their own, whose loads need no mask either.
3. A tile's offsets are computed once, in 32 bits; the loop adds a 64-bit distance to one pointer.
4. Where D is a power of two, no column needs a mask.
5. Causal: the last blocks of queries, which attend to most keys, start first; what is left to start last is short.
6. The masked blocks come first: otherwise the assembler lets every product wait for the one before.
7. A launch for each GPU: larger blocks and deeper pipelines, as far as its shared memory goes.
8. Masks (`masks`), and scores that are more than products (`scores`), are arguments. They are None for plain attention,
   so that Triton compiles the same code as without them.

Source: T. Dao, "FlashAttention-2", 2023 (arXiv:2307.08691), Algorithm 1.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashlearn.core.inputs import check_bool, check_qkv
from flashlearn.core.options import AttentionOptions, plain_options
from flashlearn.core.target import check_grid, check_head_dim, check_launch, check_runnable, padded, resolve_scale
from flashlearn.fast.launcher import launch as launch_kept
from flashlearn.fast.launcher import uninitialised
from flashlearn.fast.online_softmax import (
    LN_2,
    LOG2_E,
    NOTHING,
    online_softmax_update_of_products,
    scored,
    slope_of,
    with_sink,
)
from flashlearn.fast.portable.launches import FORWARD, PortableLaunch, is_wide, portable_launch
from flashlearn.fast.portable.masks import (
    Scores,
    check_options,
    compiled_for,
    end_of_keys,
    is_visible,
    keys_seen,
    keys_seen_by_all,
    mask_arguments,
    named,
    start_of_keys,
    tile_coordinates,
    tiles_of,
)

# Of a scale. A smaller one stands for 0, by which nothing infinite may be multiplied: what it makes of a score rounds to 0
MIN_SCALE = 1e-30


@triton.jit
def head_of(ptr, stride, batch, head, first):
    """Where row `first` of a head is; None: the first row. In 64 bits: offsets may pass 2^31."""
    ptr += batch * stride.b + tl.cast(head, tl.int64) * stride.h
    if first is not None:
        ptr += tl.cast(first, tl.int64) * stride.n
    return ptr


@triton.jit
def tile_offsets(stride, SIZE: tl.constexpr, BLOCK_D: tl.constexpr, WIDE: tl.constexpr):
    """Where the elements of a tile (SIZE, BLOCK_D) are, from its first on; WIDE: in 64 bits."""
    rows = tl.arange(0, SIZE)[:, None]
    columns = tl.arange(0, BLOCK_D)[None, :]
    if WIDE:
        offsets = rows.to(tl.int64) * stride.n + columns.to(tl.int64) * stride.d
    else:  # one return: two of different types do not compile
        offsets = rows * stride.n + columns * stride.d
    return offsets


@triton.jit
def load_tile(
    ptr, start, length, stride, offsets,
    SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, CHECKED: tl.constexpr, first=None,
):  # fmt: skip
    """Rows start .. start + SIZE of a matrix of `length` rows at ptr, zeros past its edges: (SIZE, BLOCK_D).

    Not CHECKED: all of these rows are there. first: those before it are not.
    """
    ptrs = ptr + tl.cast(start, tl.int64) * stride.n + offsets
    columns = (tl.arange(0, BLOCK_D) < HEAD_DIM)[None, :]
    rows = (tl.arange(0, SIZE) < length - start)[:, None]
    if first is not None:
        rows = rows & (tl.arange(0, SIZE) >= first - start)[:, None]
    if CHECKED and HEAD_DIM < BLOCK_D:
        return tl.load(ptrs, mask=rows & columns, other=0.0)
    if CHECKED:
        return tl.load(ptrs, mask=rows, other=0.0)
    if HEAD_DIM < BLOCK_D:
        return tl.load(ptrs, mask=columns, other=0.0)
    return tl.load(ptrs)


@triton.jit
def store_tile(
    ptr, start, length, stride, offsets, tile,
    SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write a tile (SIZE, BLOCK_D) where `load_tile` reads it, as far as there is a matrix, in its dtype."""
    ptrs = ptr + tl.cast(start, tl.int64) * stride.n + offsets
    mask = (tl.arange(0, SIZE) < length - start)[:, None] & (tl.arange(0, BLOCK_D) < HEAD_DIM)[None, :]
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["N_q", "N_k", "group", "left", "right"])  # one compilation for all lengths
def attention_forward_portable_kernel(
    # pointers
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, sinks_ptr,
    # `Strides` of q and o (B, H_q, N_q, D), of k and v (B, H_kv, N_k, D); lse (B, H_q, N_q) is contiguous
    stride_q, stride_k, stride_v, stride_o,
    # sizes; what hides keys and changes scores: `Keys`, the window, `Scores`
    N_q, N_k, group, keys, left, right, scores,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr, NEGATIVE: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O = softmax(Q K^T scale) V and lse for one block of queries of one head of one sequence."""
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block
        right = 0
    start_m = block * BLOCK_M
    head = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    kv_head = head // group  # a group of query heads shares a key head
    lse_ptr += (batch * tl.num_programs(1) + head) * N_q
    q_first = None
    k_first = None
    if keys.tiles_ptr is not None:  # from here on there is this sequence alone
        start_m, q_first, N_q, k_first, N_k = tile_coordinates(keys.tiles_ptr, block)
        lse_ptr += q_first
    q_ptr = head_of(q_ptr, stride_q, batch, head, q_first)
    k_ptr = head_of(k_ptr, stride_k, batch, kv_head, k_first)
    v_ptr = head_of(v_ptr, stride_v, batch, kv_head, k_first)
    o_ptr = head_of(o_ptr, stride_o, batch, head, q_first)
    diagonal = N_k - N_q
    end_key = end_of_keys(keys, batch, k_first, N_k)
    first_key = start_of_keys(keys, batch, k_first, end_key)
    slope = slope_of(scores.alibi_ptr, head)

    start, end = keys_seen(start_m, diagonal, first_key, end_key, left, right, BLOCK_M, BLOCK_N)
    full, full_end = keys_seen_by_all(start_m, end, diagonal, first_key, end_key, left, right, BLOCK_M, BLOCK_N)
    q_offs = tile_offsets(stride_q, BLOCK_M, BLOCK_D, WIDE)
    k_offs = tile_offsets(stride_k, BLOCK_N, BLOCK_D, WIDE)
    v_offs = tile_offsets(stride_v, BLOCK_N, BLOCK_D, WIDE)
    # no key, no read: nobody may own that memory
    rows_read = tl.where(end > 0, N_q, 0)
    q = load_tile(q_ptr, start_m, rows_read, stride_q, q_offs, BLOCK_M, HEAD_DIM, BLOCK_D, True)
    m_i = tl.full((BLOCK_M,), NOTHING, dtype=tl.float32)  # of S, not of S scale
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    rows = start_m + tl.arange(0, BLOCK_M)[:, None]

    for at in range(full_end - (full - start), end, BLOCK_N):  # what not all see: before `full`, and from full_end on
        start_n = at
        if left is not None or first_key is not None:
            start_n = tl.where(at < full_end, at - (full_end - full), at)
        k = load_tile(k_ptr, start_n, end_key, stride_k, k_offs, BLOCK_N, HEAD_DIM, BLOCK_D, True, first_key)
        v = load_tile(v_ptr, start_n, end_key, stride_v, v_offs, BLOCK_N, HEAD_DIM, BLOCK_D, True, first_key)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        cols = start_n + tl.arange(0, BLOCK_N)[None, :]
        if scores.scale is not None:
            s, _ = scored(s, rows, cols, diagonal, scores.scale, scores.softcap, slope)
        elif NEGATIVE:
            s = -s
        visible = is_visible(rows, cols, diagonal, first_key, end_key, left, right)
        s = tl.where(visible, s, NOTHING)  # a hidden score must not raise m
        m_i, l_i, acc = online_softmax_update_of_products(m_i, l_i, acc, s, v, scores.qk_scale, PRECISION)

    for start_n in range(full, full_end, BLOCK_N):
        k = load_tile(k_ptr, start_n, N_k, stride_k, k_offs, BLOCK_N, HEAD_DIM, BLOCK_D, False)
        v = load_tile(v_ptr, start_n, N_k, stride_v, v_offs, BLOCK_N, HEAD_DIM, BLOCK_D, False)
        s = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # (BLOCK_M, BLOCK_N)
        if scores.scale is not None:
            cols = start_n + tl.arange(0, BLOCK_N)[None, :]
            s, _ = scored(s, rows, cols, diagonal, scores.scale, scores.softcap, slope)
        elif NEGATIVE:
            s = -s
        m_i, l_i, acc = online_softmax_update_of_products(m_i, l_i, acc, s, v, scores.qk_scale, PRECISION)

    m_i = m_i * (scores.qk_scale * LN_2)  # scaled, as lse is
    if sinks_ptr is not None:
        m_i, l_i, acc = with_sink(m_i, l_i, acc, tl.load(sinks_ptr + head))
    # A query that attends to no key has l = 0, m = -inf: dividing by 1 gives o = 0, and lse = -inf + log(1) stays -inf
    l_i = tl.where(l_i == 0.0, 1.0, l_i)
    lse = m_i + tl.log2(l_i) * LN_2  # (BLOCK_M,)
    o_offs = tile_offsets(stride_o, BLOCK_M, BLOCK_D, WIDE)
    store_tile(o_ptr, start_m, N_q, stride_o, o_offs, acc / l_i[:, None], BLOCK_M, HEAD_DIM, BLOCK_D)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    tl.store(lse_ptr + offs_m, lse, mask=offs_m < N_q)


def attention_forward_portable(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None,
    launch: PortableLaunch | None = None, allow_tf32: bool = False, options: AttentionOptions | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """O = softmax(Q K^T scale) V and lse, as `attention_forward` takes and gives them, on any GPU.

    options: these in place of `causal` and `scale`.
    HBM: Q, O and lse once; a K and V block for every Q block that may attend to it. Documents: and what `find_tiles` does.
    """
    check_runnable(q=q, k=k, v=v)
    size = check_qkv(q, k, v)
    check_head_dim(size.D)
    check_bool(causal, "causal")
    check_bool(allow_tf32, "allow_tf32")
    options = options or plain_options(size.D, resolve_scale(scale, size.D), causal)
    check_options(options, q)
    if launch is None:
        launch = portable_launch(FORWARD, size.D, q.element_size(), q.device)
    else:
        check_launch(launch, PortableLaunch)
    o, lse = uninitialised(q), uninitialised(q, (size.B, size.H_q, size.N_q), torch.float32)
    if not lse.numel():
        return o, lse
    count, tiles = tiles_of(options, size.N_q, size.N_k, launch.block_m)
    scores = Scores(max(abs(options.scale), MIN_SCALE) * LOG2_E, None, None, None)
    if options.changes_scores:
        scores = Scores(LOG2_E, options.scale, options.softcap, options.alibi)
    launch_portable(
        attention_forward_portable_kernel, (count, size.H_q, size.B), (q, k, v, o, lse, options.sinks), (q, k, v, o),
        options, scores, tiles, launch, allow_tf32, NEGATIVE=options.scale < 0,
    )  # fmt: skip
    return o, lse


def launch_portable(
    kernel, grid: tuple[int, ...], pointers: tuple, strided: tuple[Tensor, ...], options: AttentionOptions,
    scores: Scores, tiles: Tensor | None, by: PortableLaunch, allow_tf32: bool, **constants: bool,
) -> None:  # fmt: skip
    """Launch a kernel, of which these are pointers, and of which it takes the strides: q, k, then others.

    constants: those of this kernel alone.
    """
    q, k = strided[:2]
    strides = tuple(named(t.stride()) for t in strided)
    sizes = (q.shape[2], k.shape[2], q.shape[1] // k.shape[1])
    aligned = tuple(t.data_ptr() % 16 for t in strided)
    launch_kept(
        kernel, check_grid(grid), (*pointers, *strides, *sizes, *mask_arguments(options, tiles), scores),
        dict(
            HEAD_DIM=q.shape[-1], BLOCK_M=by.block_m, BLOCK_N=by.block_n, BLOCK_D=padded(q.shape[-1]),
            CAUSAL=options.causal, **constants, WIDE=is_wide(by, *strides), PRECISION="tf32" if allow_tf32 else "ieee",
        ),
        key=(q.dtype, q.device, strides, aligned, tuple(t is None for t in pointers), by, compiled_for(options)),
        num_warps=by.num_warps, num_stages=by.num_stages, maxnreg=by.registers,
    )  # fmt: skip
