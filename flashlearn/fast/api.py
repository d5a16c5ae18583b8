"""`flash_attention`: the kernels of `flashlearn.fast` as one differentiable PyTorch operator.

What the operator adds to the launchers: automatic differentiation (first order), `torch.compile`, autocast,
and the choice of the kernel. Registered with `torch.library` are `flashlearn::attention_forward`, its
derivative `flashlearn::attention_backward`, and `flashlearn::attention_inference`, which is the first without
a derivative and without lse: a call that wants neither has less to do. Each has a rule for
fake tensors, so that a compiler can trace it without running it. They run on a GPU, or on the CPU in Triton's
interpreter (see `flashlearn.core.target`), and never fall back to anything else.
"""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from flashlearn.core.inputs import check_bool, check_qkv, dual, sizes_of
from flashlearn.core.interpreter_warning import warn_if_slow
from flashlearn.core.mask import KeyRange, Window, limits
from flashlearn.core.options import plain_options
from flashlearn.core.target import DTYPES, INTERPRETED, check_device, check_head_dim, resolve_scale
from flashlearn.fast.decode import decode
from flashlearn.fast.dispatch import allow_tf32, choose_backward, choose_forward, must_widen, why_not_tma
from flashlearn.fast.options_operator import count_flops, flat, general_forward, options_of, reject_second_order
from flashlearn.fast.portable.backward import attention_backward_portable
from flashlearn.fast.portable.forward import attention_forward_portable


@overload
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., window: Window | None = ...,
    documents: Tensor | None = ..., key_range: KeyRange | None = ..., softcap: float | None = ...,
    alibi: Tensor | None = ..., sinks: Tensor | None = ..., scale: float | None = ...,
    return_lse: Literal[False] = ..., check: bool = ...,
) -> Tensor: ...  # fmt: skip


@overload
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., window: Window | None = ...,
    documents: Tensor | None = ..., key_range: KeyRange | None = ..., softcap: float | None = ...,
    alibi: Tensor | None = ..., sinks: Tensor | None = ..., scale: float | None = ..., return_lse: Literal[True],
    check: bool = ...,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip


@overload
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., window: Window | None = ...,
    documents: Tensor | None = ..., key_range: KeyRange | None = ..., softcap: float | None = ...,
    alibi: Tensor | None = ..., sinks: Tensor | None = ..., scale: float | None = ..., return_lse: bool,
    check: bool = ...,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip


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
            return _attention_inference(q, k, v, causal, scale)
        o, lse = once_differentiable(_attention_forward, q, k, v, causal, scale)
    else:
        options = options_of(
            q, sizes_of(q, k), causal=causal, window=window, documents=documents, key_range=key_range,
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


# define and impl, not custom_op: the same operators without the checks that custom_op adds to every call
torch.library.define(
    "flashlearn::attention_forward", "(Tensor q, Tensor k, Tensor v, bool causal, float scale) -> (Tensor, Tensor)"
)
torch.library.define(
    "flashlearn::attention_inference", "(Tensor q, Tensor k, Tensor v, bool causal, float scale) -> Tensor"
)
torch.library.define(
    "flashlearn::attention_backward",
    "(Tensor do, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, bool causal, float scale)"
    " -> (Tensor, Tensor, Tensor)",
)


def _forward(q, k, v, causal, scale, with_lse=True):
    """o, shaped as q, and lse (B, H_q, N_q), unless it is not wanted."""
    if must_widen(q):
        o, lse = _forward(q.float(), k.float(), v.float(), causal, scale)
        return torch.empty_like(q).copy_(o), lse
    with torch.cuda.device_of(q):  # kernels are launched on the current device
        return _run_forward(q, k, v, causal, scale, with_lse)


def _run_forward(q, k, v, causal, scale, with_lse):
    """The same by the kernel that `choose_forward` picks."""
    choice = choose_forward(q, k, v, causal=causal, scale=scale)
    if choice.name == "portable":
        if INTERPRETED:
            warn_if_slow(q, k, plain_options(q.shape[-1], scale, causal))
        return attention_forward_portable(q, k, v, causal=causal, scale=scale, allow_tf32=allow_tf32(q))
    if choice.name == "decode":
        return decode(q, k, v, plain_options(q.shape[-1], scale, causal), allow_tf32=allow_tf32(q), with_lse=with_lse)
    from flashlearn.fast.hopper.forward import attention_forward_hopper

    return attention_forward_hopper(q, k, v, causal=causal, scale=scale, **choice.options)


@torch.library.register_fake("flashlearn::attention_forward")
def _(q, k, v, causal, scale):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _inference(q, k, v, causal, scale):
    """o, shaped as q."""
    return _forward(q, k, v, causal, scale, with_lse=False)[0]


@torch.library.register_fake("flashlearn::attention_inference")
def _(q, k, v, causal, scale):
    return torch.empty_like(q)


def _backward(do, dlse, q, k, v, o, lse, causal, scale):
    """dq, dk and dv, shaped as q, k and v."""
    if must_widen(q):
        wide = (t.float() for t in (do, q, k, v, o))
        do32, q32, k32, v32, o32 = wide
        grads = _backward(do32, dlse, q32, k32, v32, o32, lse, causal, scale)
        return tuple(torch.empty_like(t).copy_(grad) for t, grad in zip((q, k, v), grads, strict=True))
    with torch.cuda.device_of(q):
        return _run_backward(do, dlse, q, k, v, o, lse, causal, scale)


def _run_backward(do, dlse, q, k, v, o, lse, causal, scale):
    """The same by the kernels that `choose_backward` picks."""
    choice = choose_backward(q, k, v, scale=scale)
    if choice.name == "portable":
        if INTERPRETED:
            warn_if_slow(q, k, plain_options(q.shape[-1], scale, causal), back=True)
        return attention_backward_portable(
            do, q, k, v, o, lse, causal=causal, scale=scale, dlse=dlse, allow_tf32=allow_tf32(q)
        )
    from flashlearn.fast.hopper.backward import attention_backward_hopper
    from flashlearn.fast.hopper.backward_wide import attention_backward_wide
    from flashlearn.fast.hopper.dq_accumulator import preprocess

    do = do.contiguous() if why_not_tma(do) else do  # e.g. all ones, from sum(): a single element, expanded
    preprocessed = preprocess(o, do, lse, scale, dlse)
    backward = attention_backward_wide if q.shape[-1] > 128 else attention_backward_hopper
    return backward(do, q, k, v, o, lse, causal=causal, scale=scale, preprocessed=preprocessed, **choice.options)


@torch.library.register_fake("flashlearn::attention_backward")
def _(do, dlse, q, k, v, o, lse, causal, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _save_for_backward(ctx, inputs, output):
    q, k, v, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)  # no zeros for the gradient of an lse that nobody used


def _differentiate(ctx, do, dlse):
    q, k, v, o, lse = ctx.saved_tensors
    if do is None and dlse is None:
        return None, None, None, None, None
    do = torch.zeros_like(o) if do is None else do
    dq, dk, dv = torch.ops.flashlearn.attention_backward(do, dlse, q, k, v, o, lse, ctx.causal, ctx.scale)
    return dq, dk, dv, None, None


torch.library.impl("flashlearn::attention_forward", ("cpu", "cuda"), _forward)
torch.library.impl("flashlearn::attention_inference", ("cpu", "cuda"), _inference)
torch.library.impl("flashlearn::attention_backward", ("cpu", "cuda"), _backward)
torch.library.register_autograd("flashlearn::attention_forward", _differentiate, setup_context=_save_for_backward)
torch.library.register_autograd("flashlearn::attention_backward", reject_second_order)
count_flops("attention_forward")
count_flops("attention_inference")
count_flops("attention_backward", backward=True)

_attention_forward = torch.ops.flashlearn.attention_forward.default
_attention_inference = torch.ops.flashlearn.attention_inference.default


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
