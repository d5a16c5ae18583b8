"""The merge of attention over different keys: (o, lse) of each part become (o, lse) of all keys.

    lse = log sum_s exp(lse_s)          o = sum_s exp(lse_s - lse) o_s

Each lse_s is a score and each o_s a value: this is softmax attention over the parts. What is new compared with `merge`
of `flashlearn.algorithms.softmax`: a part is kept as its result o and one number, in place of m, l and an undivided
sum. So keys may be cut in any way, and each part may be computed by any kernel on any machine. Examples are a shared
prefix, a long cache in pieces, a ring of GPUs.

Source: the name and the convention are those of `merge_attentions` in xformers: lists of parts, and the natural logarithm.
FlashInfer's `merge_state` takes logarithms to base 2, vLLM's `merge_attn_states` writes two parts into a third tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flashlearn.core.inputs import check_float, check_like
from flashlearn.core.numerics import accumulator, divide, exp_diff, log_sum_exp, wide


def merge_attentions(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(o, lse) of attention over all keys, from those over disjoint parts of the keys; differentiable in both.

    outputs   o of every part, all (B, H, N, D), or packed, all (T, H, D), in one dtype
    lses      lse of every part, (B, H, N), or packed (H, T): as `flash_attention`, `flash_attention_paged` and
              `flash_attention_varlen` return them with return_lse=True; natural logarithm, float32 (float64 for float64)

    Returns o in the dtype of the outputs, summed in that of lse, and lse. A part in which a query attends to no key (o
    = 0, lse = -inf) has weight 0. The order of the parts changes only the last digits.

    Give sinks to one part only: a sink of two parts is counted twice, and the result is wrong. Or give it to none, and
    add it as a separate part: o = 0, lse = sink.

    ValueError, TypeError for parts of several shapes, dtypes or devices, or for none.
    """
    if isinstance(outputs, Tensor) or isinstance(lses, Tensor):
        raise TypeError("expected outputs and lses to be lists of tensors, one for each part, got a tensor")
    outputs, lses = list(outputs), list(lses)
    if not outputs or len(outputs) != len(lses):
        raise ValueError(f"expected an output and an lse of every part, got {len(outputs)} and {len(lses)}")
    shape = _check_output(outputs[0])
    like = outputs[0].new_empty(shape, dtype=accumulator(outputs[0].dtype))
    for s, (o, lse) in enumerate(zip(outputs, lses, strict=True)):
        check_like(f"outputs[{s}]", o, "outputs[0]", outputs[0])
        check_like(f"lses[{s}]", lse, "the queries of outputs[0]", like)
    columns = torch.stack([_column(lse) for lse in lses])  # (parts, ..., 1)
    m = columns.detach().amax(0)  # as in any softmax: no gradient flows through it
    weights = exp_diff(columns, m)
    l = weights.sum(0)
    o = divide((weights * wide(torch.stack(outputs))).sum(0), l).to(outputs[0].dtype)
    lse = log_sum_exp(m, l).squeeze(-1)
    return o, lse if o.ndim == 4 else lse.transpose(0, 1)


def _check_output(o: Tensor) -> tuple[int, ...]:
    """The shape of its lse; ValueError unless o is (B, H, N, D) or (T, H, D)."""
    check_float(o, "outputs[0]")
    if o.ndim == 4:
        return tuple(o.shape[:3])
    if o.ndim == 3:
        return o.shape[1], o.shape[0]
    raise ValueError(f"expected outputs of shape (B, H, N, D), or packed (T, H, D), got {tuple(o.shape)}")


def _column(lse: Tensor) -> Tensor:
    """lse as a column, which is multiplied with outputs of its part."""
    return (lse if lse.ndim == 3 else lse.transpose(0, 1))[..., None]
