"""How the forward kernel for Hopper GPUs is launched; `flashlearn.fast.hopper.forward_kernel` is the kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from flashlearn.core.inputs import check_bool
from flashlearn.core.options import AttentionOptions
from flashlearn.fast.dispatch import hopper_width
from flashlearn.fast.hopper.forward_kernel import attention_forward_hopper_kernel
from flashlearn.fast.hopper.mask import ROWS
from flashlearn.fast.hopper.ranges import Ranges, ranges_of
from flashlearn.fast.hopper.softmax import with_softcap
from flashlearn.fast.hopper.tile_scheduler import heads_of_a_wave, heads_with_masks, tile_counter
from flashlearn.fast.hopper.tiles import in_tiles, launch_hopper
from flashlearn.fast.launcher import sm_count, uninitialised


def hopper_forward(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions, **launch: Any) -> tuple[Tensor, Tensor]:
    """o and lse, as `attention_forward_portable` returns them. launch: what `choose` says."""
    return attention_forward_hopper(
        q, k, v, causal=options.plain and options.causal, scale=options.scale, ranges=ranges_of(q, k, options, of_keys=False),
        sinks=options.sinks, softcap=options.softcap, **launch,
    )  # fmt: skip


class Schedule(NamedTuple):
    """What the host decides."""

    ctas: int
    counter: Tensor | None  # None: a static schedule
    heads_at_once: int


def schedule_for(
    q: Tensor, k: Tensor, height: int, width: int, resident: int, mask: str, ranges: Ranges | None
) -> Schedule:
    """For tiles of so many queries and columns, of which `resident` are computed at a time.

    The schedule is dynamic under a mask, where tiles take different times and CTAs compute more than one. Three consumers have
    no registers for a static schedule under a mask.
    """
    heads, tiles = q.shape[0] * q.shape[1], -(-q.shape[2] // height)  # rounded up; triton.cdiv would take microseconds
    dynamic = mask != "none" and (heads * tiles > resident or height == 3 * ROWS.value)
    side = heads_of_a_wave(tiles, resident)
    if ranges is not None:
        side = heads_with_masks(heads, ranges.seen * width * 2 * k.element_size())
    counter = tile_counter(q.device) if dynamic else None
    return Schedule(min(heads * tiles, resident), counter, min(heads, side))


def attention_forward_hopper(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float, block_n: int = 128, stages: int = 2,
    consumers: int = 2, ctas_per_sm: int = 1, ranges: Ranges | None = None, sinks: Tensor | None = None, softcap: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """o and lse, as `attention_forward` returns them, for inputs that `why_not_hopper` accepts.

    block_n     keys in a tile of K or V
    stages      buffers for K, and for V
    consumers   consumer warpgroups of 64 queries, 2 or 3
    ctas_per_sm 1 or 2; 2 for 64 columns, blocks of 64 keys and two consumers: there are registers for no more
    ranges      the keys that each query attends to, as `attention_ranges` returns them, in place of `causal`
    sinks       (H_q,) float32, contiguous: one more score of every query, without a value
    softcap     c: scores become c tanh(score / c)
    """
    check_bool(causal, "causal")
    (B, H, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    o, lse = uninitialised(q), uninitialised(q, (B, H, N_q), torch.float32)
    width = 192 if 128 < D <= 192 else hopper_width(D)
    columns = 64 if width == 192 else width  # of a chunk
    q_tile, kv_tile = (1, 1, ROWS.value, columns), (1, 1, block_n, columns)
    mask = "ranges" if ranges is not None else "causal" if causal else "none"
    resident = ctas_per_sm * sm_count(q.device)
    schedule = schedule_for(q, k, consumers * ROWS.value, width, resident, mask, ranges)
    launch_hopper(
        attention_forward_hopper_kernel, (schedule.ctas, 1, 1),
        (
            in_tiles(q, q_tile), in_tiles(k, kv_tile), in_tiles(v, kv_tile), in_tiles(o, q_tile), lse,
            lse if ranges is None else ranges.ends, 2 * N_q if ranges is not None and len(ranges.ends) > 1 else 0,
            schedule.counter, schedule.heads_at_once, lse if sinks is None else sinks,
            B, H, N_q, N_k, H // H_kv, *with_softcap(scale, softcap),
        ),
        dict(
            HEAD_DIM=width, BLOCK_N=block_n, STAGES=stages, CONSUMERS=consumers, MASK=mask, SINKS=sinks is not None,
            CTAS_PER_SM=ctas_per_sm,
        ),
        maxnreg=None if ctas_per_sm == 1 else 80,
    )  # fmt: skip
    return o, lse
