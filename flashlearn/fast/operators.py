"""The PyTorch operators behind `flash_attention`: derivatives, `torch.compile`, FLOPs, and the kernels that they run.

    flashlearn::attention_forward      o and lse, full or causal; its derivative is attention_backward
    flashlearn::attention_inference    the same without lse and without a derivative: less to do for a call that wants neither
    flashlearn::general_forward        with everything that `AttentionOptions` names; its derivative is general_backward

Each has a rule for fake tensors, so that a compiler can trace it without running it. Operators take flat arguments: `FLAT`
says which. They run on a GPU, or on the CPU in Triton's interpreter, and never fall back to anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake
from torch.utils.flop_counter import register_flop_formula

from flashlearn.core.interpreter_warning import warn_if_slow
from flashlearn.core.options import AttentionOptions, check_tensors, plain_options
from flashlearn.core.target import INTERPRETED
from flashlearn.fast.decode import decode
from flashlearn.fast.dispatch import allow_tf32, choose, must_widen
from flashlearn.fast.portable.backward import BackwardCall, attention_gradients
from flashlearn.fast.portable.forward import attention_forward_portable

# define and impl, not custom_op: the same operators without the checks that custom_op adds to every call
PLAIN = "bool causal, float scale"
FLAT = (
    "Tensor? sinks, Tensor? alibi, Tensor? offsets_q, Tensor? offsets_k, Tensor? key_start, Tensor? key_stop, "
    "int? left, int? right, float? softcap, float scale"
)
QKV, BACKWARD = (
    "Tensor q, Tensor k, Tensor v",
    "Tensor do, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse",
)
for name, signature in {
    "attention_forward": f"({QKV}, {PLAIN}) -> (Tensor, Tensor)",
    "attention_inference": f"({QKV}, {PLAIN}) -> Tensor",
    "attention_backward": f"({BACKWARD}, {PLAIN}) -> (Tensor, Tensor, Tensor)",
    "general_forward": f"({QKV}, {FLAT}, bool check) -> (Tensor, Tensor)",
    "general_backward": f"({BACKWARD}, {FLAT}, bool slopes) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
}.items():
    torch.library.define(f"flashlearn::{name}", signature)


def flat(options: AttentionOptions) -> tuple:
    """The options in the order of `FLAT`; their widths are those of q and v."""
    offsets, there = options.offsets or (None, None), options.key_range or (None, None)
    return (
        options.sinks, options.alibi, *offsets, *there, options.left, options.right, options.softcap, options.scale,
    )  # fmt: skip


def unflat(q: Tensor, v: Tensor, given: Iterable) -> AttentionOptions:
    """The options from what `flat` made of them, their tensors contiguous."""
    *tensors, left, right, softcap, scale = given
    sinks, alibi, offsets_q, offsets_k, start, stop = (None if t is None else t.contiguous() for t in tensors)
    offsets = None if offsets_q is None else (offsets_q, offsets_k)
    key_range = None if start is None or stop is None else (start, stop)
    widths = q.shape[-1], v.shape[-1]
    return AttentionOptions(*widths, scale, left, right, offsets, key_range, softcap, alibi, sinks)


# Kernels ------------------------------------------------------------------------------------------------------


def run_forward(
    q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions, with_lse: bool = True
) -> tuple[Tensor, Tensor | None]:
    """o, shaped as q, and lse (B, H_q, N_q), perhaps None if it is not wanted, by the kernel that `choose` picks."""
    if must_widen(q):
        o, lse = run_forward(q.float(), k.float(), v.float(), options)
        return torch.empty_like(q).copy_(o), lse
    with torch.cuda.device_of(q):  # kernels are launched on the current device
        choice = choose(q, k, v, options)
        if choice.name == "decode":
            return decode(q, k, v, options, allow_tf32=allow_tf32(q), with_lse=with_lse)
        if choice.name == "hopper":
            from flashlearn.fast.hopper.forward import hopper_forward

            return hopper_forward(q, k, v, options, **choice.options)
        if INTERPRETED:
            warn_if_slow(q, k, options)
        return attention_forward_portable(q, k, v, allow_tf32=allow_tf32(q), options=options)


def run_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, dlse: Tensor | None,
    options: AttentionOptions, slopes: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """dq, dk and dv, shaped as q, k and v, by the kernels that `choose` picks; dsinks, and with `slopes` dalibi, else None."""
    if must_widen(q):
        do, q32, k32, v32, o = (t.float() for t in (do, q, k, v, o))
        dq, dk, dv, dsinks, dalibi = run_backward(do, q32, k32, v32, o, lse, dlse, options, slopes)
        dq, dk, dv = (torch.empty_like(t).copy_(grad) for t, grad in ((q, dq), (k, dk), (v, dv)))
        return dq, dk, dv, dsinks, dalibi
    with torch.cuda.device_of(q):
        choice = choose(q, k, v, options, backward=True)
        if choice.name == "hopper":
            from flashlearn.fast.hopper.backward_launch import hopper_backward

            return *hopper_backward(do, q, k, v, o, lse, dlse, options, **choice.options), None
        if INTERPRETED:
            warn_if_slow(q, k, options, back=True)
        return attention_gradients(do, q, k, v, o, lse, dlse, BackwardCall(options, allow_tf32(q), slopes=slopes))


def _forward(q, k, v, causal, scale):
    return run_forward(q, k, v, plain_options(q.shape[-1], scale, causal))


def _inference(q, k, v, causal, scale):
    return run_forward(q, k, v, plain_options(q.shape[-1], scale, causal), with_lse=False)[0]


def _backward(do, dlse, q, k, v, o, lse, causal, scale):
    return run_backward(do, q, k, v, o, lse, dlse, plain_options(q.shape[-1], scale, causal))[:3]


def _general_forward(q, k, v, *given):
    *which, check = given
    options = unflat(q, v, which)
    if check or INTERPRETED:
        check_tensors(options, q, k, read=True)
    return run_forward(q, k, v, options)


def _general_backward(do, dlse, q, k, v, o, lse, *given):
    """dsinks and dalibi are (H_q,) float32, or (0,) where they are not to be had."""
    *which, slopes = given
    dq, dk, dv, *others = run_backward(do, q, k, v, o, lse, dlse, unflat(q, v, which), slopes)
    return dq, dk, dv, *(lse.new_empty(0) if t is None else t for t in others)


IMPLEMENTATIONS: dict[str, Callable] = {
    "attention_forward": _forward,
    "attention_inference": _inference,
    "attention_backward": _backward,
    "general_forward": _general_forward,
    "general_backward": _general_backward,
}
for name, function in IMPLEMENTATIONS.items():
    torch.library.impl(f"flashlearn::{name}", ("cpu", "cuda"), function)


# Fake tensors -------------------------------------------------------------------------------------------------


@torch.library.register_fake("flashlearn::attention_inference")
def _(q, k, v, causal, scale):
    return torch.empty_like(q)


@torch.library.register_fake("flashlearn::attention_forward")
@torch.library.register_fake("flashlearn::general_forward")
def _fake_forward(q, k, v, *given):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.register_fake("flashlearn::attention_backward")
def _(do, dlse, q, k, v, o, lse, causal, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


@torch.library.register_fake("flashlearn::general_backward")
def _(do, dlse, q, k, v, o, lse, sinks, *given):
    of_sinks = 0 if sinks is None else q.shape[1]
    return (
        torch.empty_like(q), torch.empty_like(k), torch.empty_like(v),
        lse.new_empty(of_sinks), lse.new_empty(q.shape[1] if given[-1] else 0),
    )  # fmt: skip


# Derivatives --------------------------------------------------------------------------------------------------


def _save_for_backward(ctx, inputs, output):
    q, k, v, *given = inputs
    ctx.tensors = [isinstance(t, Tensor) for t in given]
    ctx.others = [t for t in given if not isinstance(t, Tensor)]
    ctx.save_for_backward(q, k, v, *output, *(t for t in given if isinstance(t, Tensor)))
    ctx.set_materialize_grads(False)  # no zeros for the gradient of an lse that nobody used


def _saved(ctx, do, dlse):
    """What both backward operators take: do, dlse, q, k, v, o, lse, and the options that were given forward."""
    q, k, v, o, lse, *tensors = ctx.saved_tensors
    tensors, others = iter(tensors), iter(ctx.others)
    given = [next(tensors) if tensor else next(others) for tensor in ctx.tensors]
    return torch.zeros_like(o) if do is None else do, dlse, q, k, v, o, lse, *given


def _differentiate(ctx, do, dlse):
    if do is None and dlse is None:
        return None, None, None, None, None
    return *torch.ops.flashlearn.attention_backward(*_saved(ctx, do, dlse)), None, None


def _differentiate_general(ctx, do, dlse):
    nothing = (None,) * (len(ctx.tensors) - 2)  # of options and check: sinks and alibi, the first two, have gradients
    if do is None and dlse is None:
        return None, None, None, None, None, *nothing
    *given, _ = _saved(ctx, do, dlse)  # all but check
    _, _, _, want_sinks, want_slopes, *_ = ctx.needs_input_grad
    dq, dk, dv, dsinks, dalibi = torch.ops.flashlearn.general_backward(*given, want_slopes)
    return dq, dk, dv, dsinks if want_sinks else None, dalibi if want_slopes else None, *nothing


def _reject_second_order(ctx, *grads):
    raise NotImplementedError(
        "flash_attention is differentiable once; for second derivatives use flashlearn.standard_attention, "
        "or scaled_dot_product_attention with PyTorch's MATH backend"
    )


for name, derivative in {"attention": _differentiate, "general": _differentiate_general}.items():
    torch.library.register_autograd(f"flashlearn::{name}_forward", derivative, setup_context=_save_for_backward)
    torch.library.register_autograd(f"flashlearn::{name}_backward", _reject_second_order)


# FLOPs, as `torch.utils.flop_counter` asks for them -------------------------------------------------------------


def flops_of(
    products: int, q: Tensor, k: Tensor, offsets_q: Tensor | None = None, offsets_k: Tensor | None = None
) -> int:
    """FLOPs of so many products of q (B, H_q, N_q, D) and k (B, H_kv, N_k, D), or with offsets of every sequence in them.

    As PyTorch counts those of its attention: the scores once more backward, and nothing left out for a mask.
    """
    B, H, N_q, D = q.shape
    pairs = N_q * k.shape[2]
    if offsets_q is not None and not is_fake(offsets_q):
        lengths_k = (offsets_q if offsets_k is None else offsets_k).diff()
        pairs = int((offsets_q.diff().long() * lengths_k.long()).sum())
    return 2 * products * B * H * pairs * D


OPS = torch.ops.flashlearn


@register_flop_formula([OPS.attention_forward, OPS.attention_inference], get_raw=True)
def _(q, k, *_, **__) -> int:
    return flops_of(2, q, k)


@register_flop_formula(OPS.attention_backward, get_raw=True)
def _(do, dlse, q, k, *_, **__) -> int:
    return flops_of(5, q, k)


@register_flop_formula(OPS.general_forward, get_raw=True)
def _(q, k, v, sinks, alibi, offsets_q, offsets_k, *_, **__) -> int:
    return flops_of(2, q, k, offsets_q, offsets_k)


@register_flop_formula(OPS.general_backward, get_raw=True)
def _(do, dlse, q, k, v, o, lse, sinks, alibi, offsets_q, offsets_k, *_, **__) -> int:
    return flops_of(5, q, k, offsets_q, offsets_k)


attention_forward, attention_inference = OPS.attention_forward.default, OPS.attention_inference.default
general_forward = OPS.general_forward.default
