"""The Hopper kernels for `AttentionOptions`: plain and causal, windows, documents, packed sequences, padding, sinks, softcaps.

All but causal masks, sinks and softcaps are key ranges (`flashlearn.fast.hopper.ranges`), which one launch computes for every call.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from flashlearn.core.options import AttentionOptions
from flashlearn.fast.dispatch import why_not_tma
from flashlearn.fast.hopper.backward import attention_backward_hopper, heads_zeroed
from flashlearn.fast.hopper.backward_wide import attention_backward_wide
from flashlearn.fast.hopper.dq_accumulator import preprocess
from flashlearn.fast.hopper.forward import attention_forward_hopper
from flashlearn.fast.hopper.ranges import Ranges, attention_ranges
from flashlearn.fast.hopper.softmax import factor_of
from flashlearn.fast.portable.backward import gradient_of_sinks


def hopper_forward(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions, **launch: Any) -> tuple[Tensor, Tensor]:
    """o and lse, as `attention_forward_portable` returns them. launch: what `choose` says."""
    ranges = ranges_of(q, k, options, of_keys=False)
    return attention_forward_hopper(
        q, k, v, causal=ranges is None and options.causal, scale=options.scale, ranges=ranges, sinks=options.sinks,
        softcap=options.softcap, **launch,
    )  # fmt: skip


def hopper_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, dlse: Tensor | None,
    options: AttentionOptions, deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """dq, dk, dv and dsinks, which is None without sinks."""
    do = do.contiguous() if why_not_tma(do) else do  # e.g. all ones, from sum(): a single element, expanded
    ranges = ranges_of(q, k, options, of_keys=True)
    wide, zeroed = q.shape[-1] > 128, None
    if not wide and ranges is None:
        zeroed = heads_zeroed(q, k, causal=options.causal, deterministic=deterministic)
    preprocessed = preprocess(o, do, lse, factor_of(options.scale, options.softcap), dlse, zeroed=zeroed)
    backward = attention_backward_wide if wide else attention_backward_hopper
    grads = backward(
        do, q, k, v, o, lse, causal=ranges is None and options.causal, scale=options.scale, ranges=ranges,
        preprocessed=preprocessed, deterministic=deterministic, softcap=options.softcap,
    )  # fmt: skip
    if options.sinks is None:
        return *grads, None
    return *grads, gradient_of_sinks(options.sinks, lse, -preprocessed.stats[:, :, 1, : q.shape[2]])


def ranges_of(q: Tensor, k: Tensor, options: AttentionOptions, *, of_keys: bool) -> Ranges | None:
    """The ranges of these options: of keys for each query, or of queries for each key; None of a mask that is causal or none."""
    if options.plain:
        return None
    return attention_ranges(
        q.shape[2], k.shape[2], q.device, left=options.left, right=options.right, offsets=options.sequences,
        key_range=options.key_range, of_keys=of_keys,
    )  # fmt: skip
