"""`flash_attention` with masks and changed scores: two operators beside the plain ones, which stay as short as they were.

`flashlearn::general_forward` and its derivative `flashlearn::general_backward` take everything that `AttentionOptions`
names. They run the Hopper kernels where these apply, for few queries that of decoding, otherwise the portable ones. Operators take flat arguments: `FLAT` says which.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake
from torch.utils.flop_counter import register_flop_formula

from flashlearn.core.inputs import Sizes, check_bool
from flashlearn.core.interpreter_warning import warn_if_slow
from flashlearn.core.mask import KeyRange, Window, check_documents, check_key_range
from flashlearn.core.options import AttentionOptions
from flashlearn.core.target import INTERPRETED, check_softcap
from flashlearn.fast.decode import decode
from flashlearn.fast.dispatch import allow_tf32, choose_with_options, must_widen
from flashlearn.fast.portable.backward import BackwardCall, attention_gradients
from flashlearn.fast.portable.forward import attention_forward_portable

FLAT = (
    "Tensor? sinks, Tensor? alibi, Tensor? offsets_q, Tensor? offsets_k, Tensor? key_start, Tensor? key_stop, "
    "int? left, int? right, float? softcap, float scale"
)
torch.library.define(
    "flashlearn::general_forward",
    f"(Tensor q, Tensor k, Tensor v, {FLAT}, bool check) -> (Tensor, Tensor)",
)
torch.library.define(
    "flashlearn::general_backward",
    f"(Tensor do, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {FLAT}, bool slopes)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def options_of(
    q: Tensor, size: Sizes, *, causal: bool = False, window: Window | None = None, documents: Tensor | None = None,
    key_range: KeyRange | None = None, softcap: float | None = None, alibi: Tensor | None = None,
    sinks: Tensor | None = None, scale: float | None = None, check: bool = False,
) -> AttentionOptions:  # fmt: skip
    """What a caller of `flash_attention` requested; of tensors all is checked that the host knows.

    Offsets, starts and stops themselves are looked at by the operator, with `check` or in the interpreter: there the
    tensors have contents, also where a compiler traces the call.
    """
    check_bool(check, "check")
    options = AttentionOptions.of(  # left and right are less than the lengths, so 32 bits hold them
        size, q, causal=causal, window=window, documents=documents, key_range=key_range, scale=scale,
        softcap=check_softcap(softcap), alibi=alibi, sinks=sinks,
    )  # fmt: skip
    if documents is not None:
        check_place(q, documents, size.N_q, "documents")
    if key_range is not None:
        for side, ends in zip(("start", "stop"), key_range, strict=True):
            check_on_device_of(q, ends, f"the {side} of key_range")
    return options


def check_offsets(q: Tensor, offsets: Tensor, N: int, name: str) -> None:
    """Reject what are no offsets of sequences that N tokens are cut into, as far as the host knows."""
    check_documents(offsets, N, check=False, name=name)
    check_place(q, offsets, N, name)


def check_place(q: Tensor, offsets: Tensor, N: int, name: str) -> None:
    check_on_device_of(q, offsets, name)
    if len(offsets) == 1 and N:
        raise ValueError(f"expected {name} to end at N = {N}, got no sequence")


def check_on_device_of(q: Tensor, t: Tensor, name: str) -> None:
    if t.device != q.device:
        raise ValueError(f"expected {name} on the device of q, {q.device}, got {t.device}")


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


def check_contents(options: AttentionOptions, q: Tensor, k: Tensor) -> None:
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
    *which, check = given
    options = unflat(q, v, which)
    if check or INTERPRETED:
        check_contents(options, q, k)
    with torch.cuda.device_of(q):  # kernels are launched on the current device
        if must_widen(q):
            o, lse = _run_forward(q.float(), k.float(), v.float(), options)
            return torch.empty_like(q).copy_(o), lse
        return _run_forward(q, k, v, options)


def _run_forward(q, k, v, options: AttentionOptions):
    choice = choose_with_options(q, k, v, options)
    if choice.name == "decode":
        return decode(q, k, v, options, allow_tf32=allow_tf32(q))
    if choice.name == "hopper":
        from flashlearn.fast.hopper.masked import masked_forward

        return masked_forward(q, k, v, options, **choice.options)
    if INTERPRETED:
        warn_if_slow(q, k, options)
    return attention_forward_portable(q, k, v, allow_tf32=allow_tf32(q), options=options)


@torch.library.register_fake("flashlearn::general_forward")
def _(q, k, v, *given):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _backward(do, dlse, q, k, v, o, lse, *given):
    """dq, dk, dv, shaped as q, k and v; dsinks and dalibi, (H_q,) float32, or (0,) where they are not to be had."""
    *which, slopes = given
    how = BackwardCall(unflat(q, v, which), allow_tf32(q), slopes=slopes)
    matrices = (do, q, k, v, o)
    if must_widen(q):
        matrices = tuple(t.float() for t in matrices)
    with torch.cuda.device_of(q):
        *grads, dsinks, dalibi = _run_backward(*matrices, lse, dlse, how)
    if must_widen(q):
        grads = [torch.empty_like(t).copy_(grad) for t, grad in zip((q, k, v), grads, strict=True)]
    return *grads, *(lse.new_empty(0) if t is None else t for t in (dsinks, dalibi))


def _run_backward(do, q, k, v, o, lse, dlse, how: BackwardCall):
    choice = choose_with_options(q, k, v, how.options, backward=True)
    if choice.name == "hopper":
        from flashlearn.fast.hopper.masked import masked_backward

        return *masked_backward(do, q, k, v, o, lse, dlse, how.options, **choice.options), None
    if INTERPRETED:
        warn_if_slow(q, k, how.options, back=True)
    return attention_gradients(do, q, k, v, o, lse, dlse, how)


@torch.library.register_fake("flashlearn::general_backward")
def _(do, dlse, q, k, v, o, lse, sinks, *given):
    of_sinks = 0 if sinks is None else q.shape[1]
    return (
        torch.empty_like(q), torch.empty_like(k), torch.empty_like(v),
        lse.new_empty(of_sinks), lse.new_empty(q.shape[1] if given[-1] else 0),
    )  # fmt: skip


def _save_for_backward(ctx, inputs, output):
    q, k, v, *given, _ = inputs
    ctx.tensors = [isinstance(t, Tensor) for t in given]
    ctx.others = [t for t in given if not isinstance(t, Tensor)]
    ctx.save_for_backward(q, k, v, *output, *(t for t in given if isinstance(t, Tensor)))
    ctx.set_materialize_grads(False)  # no zeros for the gradient of an lse that nobody used


def _differentiate(ctx, do, dlse):
    q, k, v, o, lse, *tensors = ctx.saved_tensors
    nothing = (None,) * (len(ctx.tensors) - 1)  # of options and check: sinks and alibi, the first two, have gradients
    if do is None and dlse is None:
        return None, None, None, None, None, *nothing
    tensors, others = iter(tensors), iter(ctx.others)
    given = [next(tensors) if tensor else next(others) for tensor in ctx.tensors]
    do = torch.zeros_like(o) if do is None else do
    _, _, _, want_sinks, want_slopes, *_ = ctx.needs_input_grad
    dq, dk, dv, dsinks, dalibi = torch.ops.flashlearn.general_backward(do, dlse, q, k, v, o, lse, *given, want_slopes)
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
