"""`flash_attention_varlen`: sequences of different lengths, packed one after the other, without padding.

    q = torch.cat([q_0, q_1, ...])                         (T_q, H_q, D), sequence s in rows cu_seqlens_q[s] .. [s + 1]
    o = flash_attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, causal=True)

Documents are the same in a batch, where queries and keys are the same tokens; so both are one operator.
"""

from __future__ import annotations

from typing import Literal, Unpack, overload

from torch import Tensor

from flashlearn.core.inputs import check_bool
from flashlearn.core.mask import Window
from flashlearn.core.options import check_tensors
from flashlearn.fast.api import Common, differentiated, once_differentiable, options_of, prepare
from flashlearn.fast.operators import flat, general_forward


class Options(Common, total=False):
    """What `flash_attention_varlen` takes by name."""

    alibi: Tensor | None


@overload
def flash_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, *,
    return_lse: Literal[False] = ..., **options: Unpack[Options],
) -> Tensor: ...  # fmt: skip
@overload
def flash_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, *,
    return_lse: Literal[True], **options: Unpack[Options],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def flash_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, *,
    return_lse: bool, **options: Unpack[Options],
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def flash_attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, *, causal: bool = False,
    window: Window | None = None, softcap: float | None = None, alibi: Tensor | None = None,
    sinks: Tensor | None = None, scale: float | None = None, return_lse: bool = False, check: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """`flash_attention` of packed sequences, each on its own, full unless `causal=True`; differentiable once.

    q (T_q, H_q, D); k, v (T_k, H_kv, D), any strides. Sequence s has the queries cu_seqlens_q[s] .. cu_seqlens_q[s + 1]
    and the keys cu_seqlens_k[s] .. cu_seqlens_k[s + 1]: offsets (sequences + 1,) int32, 0 .. T, on the device of q. A
    sequence may have no queries or no keys. causal, window and alibi count within a sequence, N_q and N_k being its own.
    Returns o, shaped as q, and with `return_lse` also lse (H_q, T_q) in float32. alibi and sinks get gradients too.

    Nothing is copied, and the host waits for nothing: the offsets are looked at with `check`, and in the interpreter
    always. Unchecked bad ones make wrong results, and no access outside the tensors. Rejects what `flash_attention` does.
    """
    for name, t in (("q", q), ("k", k), ("v", v)):
        if isinstance(t, Tensor) and t.ndim != 3:
            raise ValueError(f"expected {name} of shape (T, H, D), got {tuple(t.shape)}")
    q, k, v = (t.transpose(0, 1)[None] if isinstance(t, Tensor) else t for t in (q, k, v))  # (1, H, T, D)
    q, k, v, scale = prepare(q, k, v, causal, scale)
    check_bool(return_lse, "return_lse")
    options = options_of(
        q, k, check, causal=causal, window=window, softcap=softcap, alibi=alibi, sinks=sinks, scale=scale
    )
    options = options._replace(offsets=(cu_seqlens_q, cu_seqlens_k))
    check_tensors(options, q, k)
    if len(cu_seqlens_q) != len(cu_seqlens_k):
        got = f"{len(cu_seqlens_q)} and {len(cu_seqlens_k)}"
        raise ValueError(f"expected as many offsets in cu_seqlens_q as in cu_seqlens_k, got {got}")
    differentiated(q, k, v, *(t for t in (alibi, sinks) if t is not None))
    o, lse = once_differentiable(general_forward, q, k, v, *flat(options), check)
    o = o[0].transpose(0, 1)
    return (o, lse[0]) if return_lse else o
