"""Functions of `torch.nn.functional` that the course compares with."""

import math

from torch._tensor import Tensor
from torch.dispatch import MISSING, Operation, function
from torch.dtypes import bool_, float32, promote_types
from torch.making import full_of


def _attention(q, k, v, mask, scale):
    """softmax(scale q k^T) v, computed wide, rounded at the end; a query that attends to nothing gets 0."""
    wide = promote_types(q.dtype, float32)
    S = (q.to(wide) @ k.to(wide).mT) * scale
    if mask is not None:
        S = S.masked_fill(~mask, -math.inf) if mask.dtype is bool_ else S + mask
    return (S.softmax(-1).masked_fill((S == -math.inf).all(-1, keepdim=True), 0.0) @ v.to(wide)).to(q.dtype)


def _sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """softmax(query key^T / sqrt(D)) value; `is_causal` is aligned to the top left."""
    if dropout_p:
        raise NotImplementedError(MISSING.format("dropout_p of torch.nn.functional.scaled_dot_product_attention"))
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    if is_causal:
        attn_mask = full_of("ones", (query.shape[-2], key.shape[-2]), True, bool_).tril()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return Operation("_scaled_dot_product_flash_attention_for_cpu", _attention)(query, key, value, attn_mask, scale)


def _pad(input, pad, mode="constant", value=0.0):
    """Numbers added around a tensor: pairs (before, after), of the last dimension first."""
    pairs = [(0, 0)] * (input.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    shape = [before + n + after for n, (before, after) in zip(input.shape, pairs, strict=True)]
    made = full_of("constant_pad_nd", shape, value, input.dtype)
    made[tuple(slice(before, before + n) for n, (before, _) in zip(input.shape, pairs, strict=True))].write(
        input.values()
    )
    return made


scaled_dot_product_attention = function("scaled_dot_product_attention", _sdpa, Tensor)
softmax = function("softmax", Tensor.softmax, Tensor)
log_softmax = function("log_softmax", Tensor.log_softmax, Tensor)
relu, pad = function("relu", Tensor.relu, Tensor), function("pad", _pad, Tensor)
linear = function("linear", lambda x, weight, bias=None: x @ weight.t() + (0 if bias is None else bias), Tensor)


def __getattr__(name):
    raise AttributeError(MISSING.format(f"torch.nn.functional.{name}"))
