"""`flash_attention` with masks and changed scores: two operators beside the plain ones, which stay as short as they were.

`flashlearn::general_forward` and its derivative `flashlearn::general_backward` take everything that `Options` names.
They run the Hopper kernels where these apply, for few queries that of decoding, otherwise the portable ones. Operators take flat arguments: `FLAT` says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake
from torch.utils.flop_counter import register_flop_formula

from flashlearn.core.inputs import Sizes, check_bool
from flashlearn.core.mask import KeyRange, Window, check_documents, check_key_range, check_one_length, limits
from flashlearn.core.scores import per_head
from flashlearn.fast.decode import decode
from flashlearn.fast.dispatch import allow_tf32, choose_with_options, must_widen
from flashlearn.fast.interpreter_warning import warn_if_slow
from flashlearn.fast.portable.backward import BackwardCall, attention_gradients
from flashlearn.fast.portable.forward import attention_forward_portable
from flashlearn.fast.portable.options import Options
from flashlearn.fast.target import INTERPRETED, check_softcap

FLAT = (
    "Tensor? sinks, Tensor? alibi, Tensor? offsets_q, Tensor? offsets_k, Tensor? key_start, Tensor? key_stop, "
    "int? left, int? right, float? softcap"
)
torch.library.define(
    "flashlearn::general_forward",
    f"(Tensor q, Tensor k, Tensor v, {FLAT}, float scale, bool check) -> (Tensor, Tensor)",
)
torch.library.define(
    "flashlearn::general_backward",
    f"(Tensor do, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {FLAT}, float scale, bool slopes)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def options_of(
    q: Tensor, size: Sizes, *, causal: bool = False, window: Window | None = None, documents: Tensor | None = None,
    key_range: KeyRange | None = None, softcap: float | None = None, alibi: Tensor | None = None,
    sinks: Tensor | None = None, check: bool = False,
) -> Options:  # fmt: skip
    """What a caller of `flash_attention` requested; of tensors all is checked that the host knows.

    Offsets, starts and stops themselves are looked at by the operator, with `check` or in the interpreter: there the
    tensors have contents, also where a compiler traces the call.
    """
    check_bool(check, "check")
    left, right = limits(window, causal, size.N_q, size.N_k)  # less than these, so 32 bits hold them
    offsets = None
    if documents is not None:
        check_one_length(size.N_q, size.N_k)
        check_offsets(q, documents, size.N_q, "documents")
        offsets = (documents, None)
    if key_range is not None:
        check_key_range(key_range, size.B, size.N_k, check=False)
        for side, ends in zip(("start", "stop"), key_range, strict=True):
            check_on_device_of(q, ends, f"the {side} of key_range")
    alibi, sinks = per_head(alibi, "alibi", size.H_q, q), per_head(sinks, "sinks", size.H_q, q)
    return Options(left, right, offsets, key_range, check_softcap(softcap), alibi, sinks)


def check_offsets(q: Tensor, offsets: Tensor, N: int, name: str) -> None:
    """Reject what are no offsets of sequences that N tokens are cut into, as far as the host knows."""
    check_documents(offsets, N, check=False, name=name)
    check_on_device_of(q, offsets, name)
    if len(offsets) == 1 and N:
        raise ValueError(f"expected {name} to end at N = {N}, got no sequence")


def check_on_device_of(q: Tensor, t: Tensor, name: str) -> None:
    if t.device != q.device:
        raise ValueError(f"expected {name} on the device of q, {q.device}, got {t.device}")


def flat(options: Options) -> tuple:
    """The options in the order of `FLAT`."""
    offsets, there = options.offsets or (None, None), options.key_range or (None, None)
    return options.sinks, options.alibi, *offsets, *there, options.left, options.right, options.softcap


def unflat(given: Iterable) -> Options:
    """The options from what `flat` made of them, their tensors contiguous."""
    together: list[Any] = [t.contiguous() if isinstance(t, Tensor) else t for t in given]
    sinks, alibi, offsets_q, offsets_k, start, stop, left, right, softcap = together
    offsets = None if offsets_q is None else (offsets_q, offsets_k)
    return Options(left, right, offsets, None if start is None else (start, stop), softcap, alibi, sinks)


def check_contents(options: Options, q: Tensor, k: Tensor) -> None:
    """Reject offsets and ranges that are not what they should be: a GPU is waited for."""
    if options.offsets is not None:
        queries_of, keys_of = options.offsets
        check_documents(queries_of, q.shape[2], name="documents" if keys_of is None else "cu_seqlens_q")
        if keys_of is not None:
            check_documents(keys_of, k.shape[2], name="cu_seqlens_k")
    if options.key_range is not None:
        check_key_range(options.key_range, q.shape[0], k.shape[2])


def _forward(q, k, v, *given):
    """o, shaped as q, and lse (B, H_q, N_q)."""
    *which, scale, check = given
    options = unflat(which)
    if check or INTERPRETED:
        check_contents(options, q, k)
    with torch.cuda.device_of(q):  # kernels are launched on the current device
        if must_widen(q):
            o, lse = _run_forward(q.float(), k.float(), v.float(), scale, options)
            return torch.empty_like(q).copy_(o), lse
        return _run_forward(q, k, v, scale, options)


def _run_forward(q, k, v, scale, options: Options):
    causal, tf32 = options.right == 0, allow_tf32(q)
    choice = choose_with_options(q, k, v, options, scale=scale)
    if choice.name == "decode":
        return decode(q, k, v, causal, scale, allow_tf32=tf32, options=options)
    if choice.name == "hopper":
        from flashlearn.fast.hopper.masked import masked_forward

        return masked_forward(q, k, v, scale, options, **choice.options)
    if INTERPRETED:
        warn_if_slow(q, k, causal=causal, options=options)
    return attention_forward_portable(q, k, v, causal=causal, scale=scale, allow_tf32=tf32, options=options)


@torch.library.register_fake("flashlearn::general_forward")
def _(q, k, v, *given):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _backward(do, dlse, q, k, v, o, lse, *given):
    """dq, dk, dv, shaped as q, k and v; dsinks and dalibi, (H_q,) float32, or (0,) where they are not to be had."""
    *which, scale, slopes = given
    options = unflat(which)
    how = BackwardCall(options.right == 0, scale, allow_tf32(q), options=options, slopes=slopes)
    matrices = (do, q, k, v, o)
    if must_widen(q):
        matrices = tuple(t.float() for t in matrices)
    with torch.cuda.device_of(q):
        *grads, dsinks, dalibi = _run_backward(*matrices, lse, dlse, scale, how)
    if must_widen(q):
        grads = [torch.empty_like(t).copy_(grad) for t, grad in zip((q, k, v), grads, strict=True)]
    return *grads, *(lse.new_empty(0) if t is None else t for t in (dsinks, dalibi))


def _run_backward(do, q, k, v, o, lse, dlse, scale, how: BackwardCall):
    choice = choose_with_options(q, k, v, how.options, scale=scale, backward=True)
    if choice.name == "hopper":
        from flashlearn.fast.hopper.masked import masked_backward

        return *masked_backward(do, q, k, v, o, lse, dlse, scale, how.options, **choice.options), None
    if INTERPRETED:
        warn_if_slow(q, k, causal=how.causal, options=how.options, back=True)
    return attention_gradients(do, q, k, v, o, lse, dlse, how)


@torch.library.register_fake("flashlearn::general_backward")
def _(do, dlse, q, k, v, o, lse, sinks, *given):
    of_sinks = 0 if sinks is None else q.shape[1]
    return (
        torch.empty_like(q), torch.empty_like(k), torch.empty_like(v),
        lse.new_empty(of_sinks), lse.new_empty(q.shape[1] if given[-1] else 0),
    )  # fmt: skip


def _save_for_backward(ctx, inputs, output):
    q, k, v, *given, ctx.scale, _ = inputs
    ctx.tensors = [isinstance(t, Tensor) for t in given]
    ctx.others = [t for t in given if not isinstance(t, Tensor)]
    ctx.save_for_backward(q, k, v, *output, *(t for t in given if isinstance(t, Tensor)))
    ctx.set_materialize_grads(False)  # no zeros for the gradient of an lse that nobody used


def _differentiate(ctx, do, dlse):
    q, k, v, o, lse, *tensors = ctx.saved_tensors
    nothing = (None,) * len(ctx.tensors)  # scale and check have no gradient, and of the others sinks and alibi have one
    if do is None and dlse is None:
        return None, None, None, None, None, *nothing
    tensors, others = iter(tensors), iter(ctx.others)
    given = [next(tensors) if tensor else next(others) for tensor in ctx.tensors]
    do = torch.zeros_like(o) if do is None else do
    _, _, _, want_sinks, want_slopes, *_ = ctx.needs_input_grad
    dq, dk, dv, dsinks, dalibi = torch.ops.flashlearn.general_backward(
        do, dlse, q, k, v, o, lse, *given, ctx.scale, want_slopes
    )
    return dq, dk, dv, dsinks if want_sinks else None, dalibi if want_slopes else None, *nothing


def reject_second_order(ctx, *grads):
    raise NotImplementedError(
        "flash_attention is differentiable once; for second derivatives use flashlearn.standard_attention, "
        "or scaled_dot_product_attention with PyTorch's MATH backend"
    )


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


def count_flops(name: str, *, backward: bool = False) -> None:
    """Have `torch.utils.flop_counter` count an operator, called with q, k, v, or with do, dlse, q, k, v, o, lse, and options.

    The general operators have offsets among these, after sinks and slopes; the plain ones have two options.
    """
    products, first, kept = (5, 2, 7) if backward else (2, 0, 3)

    @register_flop_formula(getattr(torch.ops.flashlearn, name), get_raw=True)
    def _(*given, **_) -> int:
        options = given[kept:]
        offsets = options[2:4] if len(options) > 2 else ()
        return flops_of(products, given[first], given[first + 1], *offsets)


torch.library.impl("flashlearn::general_forward", ("cpu", "cuda"), _forward)
torch.library.impl("flashlearn::general_backward", ("cpu", "cuda"), _backward)
torch.library.register_autograd("flashlearn::general_forward", _differentiate, setup_context=_save_for_backward)
torch.library.register_autograd("flashlearn::general_backward", reject_second_order)
count_flops("general_forward")
count_flops("general_backward", backward=True)

general_forward = torch.ops.flashlearn.general_forward.default
