"""`flash_attention`: checks and autocast, and then one of the operators in `flashlearn.fast.operators`."""

from __future__ import annotations

from typing import Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from flashlearn.core.inputs import check_bool, check_qkv, dual, sizes_of
from flashlearn.core.mask import KeyRange, Window, limits
from flashlearn.core.options import AttentionKwargs, AttentionOptions, check_tensors
from flashlearn.core.target import DTYPES, check_device, check_head_dim, check_softcap, resolve_scale
from flashlearn.fast.operators import attention_forward, attention_inference, flat, general_forward


class Common(TypedDict, total=False):
    """What all three functions take by name; return_lse aside, which decides the type of the result."""

    causal: bool
    window: Window | None
    softcap: float | None
    sinks: Tensor | None
    scale: float | None
    check: bool


class Options(Common, total=False):
    """What `flash_attention` takes by name."""

    documents: Tensor | None
    key_range: KeyRange | None
    alibi: Tensor | None


@overload
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[False] = ..., **options: Unpack[Options]
) -> Tensor: ...
@overload
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...
@overload
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_lse: bool, **options: Unpack[Options]
) -> Tensor | tuple[Tensor, Tensor]: ...
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, window: Window | None = None,
    documents: Tensor | None = None, key_range: KeyRange | None = None, softcap: float | None = None,
    alibi: Tensor | None = None, sinks: Tensor | None = None, scale: float | None = None, return_lse: bool = False,
    check: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """O = softmax(Q K^T scale) V, full unless `causal=True`, in tiles, with memory linear in N; differentiable once.

    q (B, H_q, N_q, D); k, v (B, H_kv, N_k, D) in float16, bfloat16 or float32, any strides, D up to 256, H_q a multiple of
    H_kv. `scale` is 1 / sqrt(D) unless given. Returns o, shaped as q, and with `return_lse` also lse (B, H_q, N_q), the
    natural logarithm of the sum of exp(scores), in float32; both carry gradients.

    causal      query i attends to keys j <= i + N_k - N_q; one that attends to none gets o = 0, lse = -inf, zero gradients
    window      (left, right): keys i + N_k - N_q - left to i + N_k - N_q + right; None: no limit on that side
    documents   offsets (n + 1,) int32, 0 .. N: tokens attend to their own document only; N_q = N_k
    key_range   (start, stop), each (B,) int32: the keys that exist in each sequence
    softcap     c: scores become c tanh(score / c)
    alibi       slopes (H_q,) float32, or in 16 bits: score - slope |i + N_k - N_q - j|; gets a gradient
    sinks       (H_q,) likewise: one more term e^sink in every query's sum, and in lse, with a value of 0. To merge results
                over parts of the keys (`merge_attentions`), give the sinks to one part alone: each part counts them
    check       read offsets and ranges, for which a GPU is waited for; in the interpreter always. Unchecked bad ones make
                wrong results, and no access outside the tensors

    The order is scale, softcap, alibi, mask, sinks. TypeError, ValueError or RuntimeError say what was expected and what came.
    Accuracy, NaN, determinism, and what differs from FlashAttention and PyTorch: flashlearn/fast/README.md.
    """
    q, k, v, scale = prepare(q, k, v, causal, scale)
    check_bool(return_lse, "return_lse")
    if window is not None:
        window, causal = without_causal(window, causal, q.shape[2], k.shape[2])
    if window is documents is key_range is softcap is alibi is sinks is None:
        check_bool(check, "check")
        if not (differentiated(q, k, v) or return_lse):
            return attention_inference(q, k, v, causal, scale)
        o, lse = once_differentiable(attention_forward, q, k, v, causal, scale)
    else:
        options = options_of(
            q, k, causal=causal, window=window, documents=documents, key_range=key_range,
            softcap=softcap, alibi=alibi, sinks=sinks, scale=scale, check=check,
        )  # fmt: skip
        differentiated(q, k, v, *(t for t in (alibi, sinks) if t is not None))
        o, lse = once_differentiable(general_forward, q, k, v, *flat(options), check)
    return (o, lse) if return_lse else o


def once_differentiable(operator, *given):
    """operator(*given), and what to do instead where torch.func wants its derivative."""
    try:
        return operator(*given)
    except RuntimeError as error:
        if "functorch transforms" not in str(error):
            raise
        raise NotImplementedError(
            "flash_attention has a derivative for torch.autograd, not for torch.func (grad, vjp, jacrev, or vmap of them): "
            "call o.backward() or torch.autograd.grad, or use flashlearn.standard_attention under torch.func, and under "
            "vmap torch.nn.functional.scaled_dot_product_attention"
        ) from error


def without_causal(window: Window | None, causal: bool, N_q: int, N_k: int) -> tuple[Window | None, bool]:
    """A window that hides more than `causal` does, if there is one, and whether attention is causal."""
    if window is not None:
        left, right = window = limits(window, causal, N_q, N_k)
        if left is None and right in (None, 0):
            return None, right == 0
    return window, causal


def prepare(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> tuple[Tensor, Tensor, Tensor, float]:
    """q, k and v as autocast would have them, and the scale; rejects what `flash_attention` does not take."""
    if isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor):
        q, k, v = _autocast(q, k, v)
    size = check_qkv(q, k, v)
    if q.dtype not in DTYPES:
        raise TypeError(
            f"expected q, k and v in float16, bfloat16 or float32, got {q.dtype}: use flashlearn.tiled_attention_v2"
        )
    check_head_dim(size.D)
    check_device(q.device, "q, k and v")
    check_bool(causal, "causal")
    return q, k, v, resolve_scale(scale, size.D)


def differentiated(q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> bool:
    """Whether a backward pass may follow. Forward-mode derivatives are rejected: they would be dropped in silence."""
    if dual(q, k, v, *others):
        raise NotImplementedError(
            "flash_attention has a backward pass and no forward-mode derivative; use flashlearn.standard_attention"
        )
    return torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)


def _autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What autocast makes of the inputs of attention: its dtype, of all but float64 and what is not floating point."""
    kind = q.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return q, k, v
    dtype = torch.get_autocast_dtype(kind)
    q, k, v = (t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (q, k, v))
    return q, k, v


def options_of(q: Tensor, k: Tensor, check: bool = False, **given: Unpack[AttentionKwargs]) -> AttentionOptions:
    """What a caller of `flash_attention` requested; of tensors all is checked that the host knows.

    Offsets, starts and stops themselves are looked at by the operator, with `check` or in the interpreter: there the
    tensors have contents, also where a compiler traces the call.
    """
    check_bool(check, "check")
    given["softcap"] = check_softcap(given.get("softcap"))
    options = AttentionOptions.of(sizes_of(q, k), q, **given)  # left and right are less than the lengths: 32 bits
    check_tensors(options, q, k)
    return options
