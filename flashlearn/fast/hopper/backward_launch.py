"""How the backward kernels for Hopper GPUs are launched: `backward` for up to 128 columns, `backward_wide` for up to 256."""

from __future__ import annotations

from torch import Tensor

from flashlearn.core.inputs import check_bool
from flashlearn.core.options import AttentionOptions
from flashlearn.fast.dispatch import hopper_width, why_not_tma
from flashlearn.fast.hopper.backward import attention_backward_hopper_kernel
from flashlearn.fast.hopper.backward_common import KEYS
from flashlearn.fast.hopper.backward_wide import attention_backward_wide_kernel
from flashlearn.fast.hopper.dq_accumulator import Preprocessed, block_of_queries, postprocess, preprocess, tiles_of_dq
from flashlearn.fast.hopper.ranges import Ranges, ranges_of
from flashlearn.fast.hopper.semaphores import make_semaphores
from flashlearn.fast.hopper.softmax import score_scale
from flashlearn.fast.hopper.tile_scheduler import heads_beside, heads_beside_deterministic, heads_with_masks
from flashlearn.fast.hopper.tiles import in_tiles, launch_hopper
from flashlearn.fast.launcher import dependent, uninitialised
from flashlearn.fast.portable.backward import gradient_of_sinks


def hopper_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, dlse: Tensor | None,
    options: AttentionOptions, deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """dq, dk, dv and dsinks, which is None without sinks."""
    do = do.contiguous() if why_not_tma(do) else do  # e.g. all ones, from sum(): a single element, expanded
    ranges, causal = ranges_of(q, k, options, of_keys=True), options.plain and options.causal
    zeroed = heads_zeroed(q, k, ranges, causal=causal, deterministic=deterministic)
    preprocessed = preprocess(o, do, lse, score_scale(options.scale, options.softcap), dlse, zeroed=zeroed)
    grads = attention_backward_hopper(
        do, q, k, v, o, lse, causal=causal, scale=options.scale, ranges=ranges, preprocessed=preprocessed,
        deterministic=deterministic, softcap=options.softcap,
    )  # fmt: skip
    if options.sinks is None:
        return *grads, None
    return *grads, gradient_of_sinks(options.sinks, lse, -preprocessed.stats[:, :, 1, : q.shape[2]])


def attention_backward_hopper(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *, causal: bool, scale: float,
    preprocessed: Preprocessed | None = None, ranges: Ranges | None = None, deterministic: bool = False, softcap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk and dv, as `attention_backward` gives them, of inputs that `why_not_hopper` accepts.

    ranges: the queries that attend to keys, as `attention_ranges(..., of_keys=True)` gives them. `causal` is then ignored.
    preprocessed: the result of `preprocess` for o, do, lse and the gradient of lse, with `zeroed` from `heads_zeroed` or
    None. Its sums are used up. None: without a gradient of lse. `preprocess` must be launched after everything that
    writes do, q, k, v and ranges, which are read while it runs (`flashlearn.fast.launcher`).
    softcap: c, scores are c tanh(score / c).
    deterministic: dq has the same bits every time.

    Extra memory: lse, delta and the accumulator of dq in float32, for whole blocks of queries and 64, 128, 192 or 256
    columns. Deterministic, 8 bytes for a block of 64 (D > 64) or 128 queries. With ranges also 4 bytes for every pair of
    such a block and one of 128 keys (D > 128: 64).
    """
    check_bool(causal, "causal")
    check_bool(deterministic, "deterministic")
    (_, H, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    block_m, block_n, wide = block_of_queries(D), keys_of_cta(D), D > 128
    if preprocessed is None:
        zeroed = heads_zeroed(q, k, ranges, causal=causal, deterministic=deterministic)
        preprocessed = preprocess(o, do, lse, score_scale(scale, softcap), zeroed=zeroed)
    if wide and preprocessed.zeroed is not None:
        raise ValueError(f"expected preprocessed with all sums zero, got those of {preprocessed.zeroed} heads")
    heads_at_once = heads_side_by_side(q, k, ranges, causal=causal, deterministic=deterministic)
    semaphores = make_semaphores(q, k, ranges, block_m, block_n) if deterministic else None
    ends, range_stride = (None, 0) if ranges is None else (ranges.ends, 2 * N_k if len(ranges.ends) > 1 else 0)
    dq, dk, dv = uninitialised(q), uninitialised(k), uninitialised(v)
    columns = 64 if wide else hopper_width(D)  # of a tile
    q_tile, kv_tile = (1, 1, block_m, columns), (1, 1, KEYS.value, columns)
    descriptors = (
        in_tiles(q, q_tile), in_tiles(do, q_tile), in_tiles(k, kv_tile), in_tiles(v, kv_tile),
        in_tiles(preprocessed.stats, (1, 1, 2, block_m)), in_tiles(preprocessed.accumulator, (1, 1, 128, 32)),
        in_tiles(dk, kv_tile), in_tiles(dv, kv_tile),
    )  # fmt: skip
    arguments = (semaphores, ends, range_stride, N_q, N_k, H_kv, H // H_kv, scale, softcap, heads_at_once or 0)
    mask = "ranges" if ranges is not None else "causal" if causal else "none"
    constants = dict(DETERMINISTIC=deterministic, MASK=mask, SIDE_BY_SIDE=heads_at_once is not None)
    key_blocks = -(-N_k // block_n)
    grid = (key_blocks, H_kv, q.shape[0]) if heads_at_once is None else (key_blocks * q.shape[0] * H_kv, 1, 1)
    early = (
        dependent(q.device) and not deterministic
    )  # PyTorch's kernels write the semaphores, which are read at the beginning
    if wide:
        constants = dict(CHUNKS=tiles_of_dq(D)) | constants
        launch_hopper(attention_backward_wide_kernel, grid, (*descriptors, *arguments), constants, dependent=early)
    else:
        constants = (
            dict(HEAD_DIM=columns, BLOCK_M=block_m, STAGES=2) | constants | dict(ZEROED=preprocessed.zeroed is None)
        )
        given = (*descriptors, preprocessed.counters, *arguments)
        launch_hopper(attention_backward_hopper_kernel, grid, given, constants, dependent=early)
    # where nothing is counted (deterministic, with ranges, at D other than 128) all heads wait for the pass
    postprocess(preprocessed, scale, dq, H // H_kv, -1 if wide else 2 * key_blocks)
    return dq, dk, dv


def keys_of_cta(D: int) -> int:
    return KEYS.value if D > 128 else 2 * KEYS.value


def heads_side_by_side(
    q: Tensor, k: Tensor, ranges: Ranges | None, *, causal: bool, deterministic: bool
) -> int | None:  # fmt: skip
    """The number of key heads that run in parallel; None: one after another."""
    (B, _, _, D), H_kv = q.shape, k.shape[1]
    block_m, block_n = block_of_queries(D), keys_of_cta(D)
    if deterministic:
        return heads_beside_deterministic(q, k, ranges, causal=causal, block_m=block_m, block_n=block_n)
    if ranges is not None:
        columns = 64 * tiles_of_dq(D) if D > 64 else 64
        return heads_with_masks(
            B * H_kv, 2 * ranges.seen * columns * 2 * q.element_size()
        )  # Q and dO; dQ takes as much
    return heads_beside(q, k, causal=causal, block_n=block_n)


def heads_zeroed(q: Tensor, k: Tensor, ranges: Ranges | None, *, causal: bool, deterministic: bool) -> int | None:
    """How many query heads' accumulators of dQ are zero before the pass begins; None: all, which is faster for long heads.

    For short heads CTAs of the pass zero-initialise those of later heads, which stay in the L2 cache. Deterministic it is 0: the
    first block of keys stores its part. That needs a query that attends to it, and pays for heads as short as without a mask.
    """
    (_, H, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    longest = 4096 if causal and not deterministic else 32 * hopper_width(D)
    if ranges is not None or D > 128 or N_q > longest or (deterministic and causal and N_q > N_k):
        return None
    return 0 if deterministic else H // H_kv * (heads_beside(q, k, causal=causal, block_n=keys_of_cta(D)) or 1)
