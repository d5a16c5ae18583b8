"""Checks of inputs: each raises an error with what was expected and what came."""

from __future__ import annotations

import math
import sys
from numbers import Integral, Real
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MAX_FLOAT64 = sys.float_info.max
MAX_SCALE = torch.finfo(torch.float32).max * math.log(2)  # where sums are in float32: kernels take it times log2(e)


def check_row(x: Tensor) -> None:
    """Accept only a floating-point tensor (..., N) with at least one dimension."""
    check_float(x, "x")
    if x.ndim == 0:
        raise ValueError("expected x with at least one dimension, (..., N), got a scalar")


def check_float(x: Tensor, name: str) -> None:
    """Accept only a tensor in one of the four dtypes of the course."""
    if not isinstance(x, Tensor):
        raise TypeError(f"expected {name} to be a torch.Tensor, got {type(x).__name__}")
    if x.dtype not in DTYPES:
        raise TypeError(f"expected {name} in float16, bfloat16, float32 or float64, got {x.dtype}")
    if x.is_nested or x.layout is not torch.strided:
        kind = "a nested tensor (packed sequences are for flash_attention_varlen)" if x.is_nested else x.layout
        raise TypeError(f"expected {name} to be a dense tensor, got {kind}")


def dual(*tensors: Tensor) -> bool:
    """Whether one carries a forward-mode derivative, which code that is no PyTorch operator would silently drop."""
    return forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None for t in tensors)  # type: ignore[no-untyped-call]


def check_block(size: int, name: str = "block_size") -> None:
    """Accept only a positive integer."""
    if not isinstance(size, Integral) or isinstance(size, bool):
        raise TypeError(f"expected {name} to be an int, got {type(size).__name__}")
    if size < 1:
        raise ValueError(f"expected {name} of at least 1, got {size}")


def check_blocks(block_q: int, block_k: int) -> None:
    """Accept only two positive integers."""
    check_block(block_q, "block_q")
    check_block(block_k, "block_k")


def check_count(size: int, name: str) -> None:
    """Accept only an integer of at least 0."""
    if not isinstance(size, Integral) or isinstance(size, bool):
        raise TypeError(f"expected {name} to be an int, got {type(size).__name__}")
    if size < 0:
        raise ValueError(f"expected {name} of at least 0, got {size}")


def check_int32(t: Tensor, name: str) -> None:
    """Accept only a tensor in int32."""
    if not isinstance(t, Tensor):
        raise TypeError(f"expected {name} to be a torch.Tensor, got {type(t).__name__}")
    if t.dtype != torch.int32:
        raise TypeError(f"expected {name} in int32, got {t.dtype}")


def check_like(name: str, t: Tensor, other_name: str, other: Tensor) -> None:
    """Reject a tensor that is not shaped and typed as another, or is on another device."""
    check_float(t, name)
    if t.shape != other.shape:
        expected = f"{name} shaped as {other_name}, {tuple(other.shape)}"
        raise ValueError(f"expected {expected}, got {tuple(t.shape)}")
    if t.dtype != other.dtype:
        raise TypeError(f"expected {name} in the dtype of {other_name}, {other.dtype}, got {t.dtype}")
    if t.device != other.device:
        raise ValueError(f"expected {name} on the device of {other_name}, {other.device}, got {t.device}")


def check_together(given: dict[str, Tensor], names: str) -> None:
    """Reject tensors of several dtypes, or on several devices."""
    first, like = next(iter(given.items()))
    for name, t in given.items():
        check_float(t, name)
        if t.dtype != like.dtype:
            raise TypeError(f"expected {names} in one dtype, got {first} {like.dtype} and {name} {t.dtype}")
        if t.device != like.device:
            raise ValueError(f"expected {names} on one device, got {first} on {like.device} and {name} on {t.device}")


def check_bool(value: bool, name: str) -> None:
    """Accept only True or False: "False" and "no" would count as True."""
    if not isinstance(value, bool):
        raise TypeError(f"expected {name} to be True or False, got {value!r:.80}")


class Sizes(NamedTuple):
    """The sizes of an attention problem: q is (B, H_q, N_q, D), k and v are (B, H_kv, N_k, D)."""

    B: int
    H_q: int
    H_kv: int
    N_q: int
    N_k: int
    D: int

    @property
    def group(self) -> int:
        """Query heads that share one key/value head (grouped-query attention)."""
        return self.H_q // self.H_kv if self.H_kv else 1


def check_qkv(q: Tensor, k: Tensor, v: Tensor) -> Sizes:
    """Reject what is not attention: q (B, H_q, N_q, D); k, v (B, H_kv, N_k, D); one dtype, one device.

    H_q must be a multiple of H_kv. Returns the sizes.
    """
    for name, t in (("q", q), ("k", k), ("v", v)):
        check_float(t, name)
        if t.ndim != 4:
            raise ValueError(f"expected {name} of shape (B, H, N, D), got {tuple(t.shape)}")
    dtype, device = q.dtype, q.device
    for name, t in (("k", k), ("v", v)):
        if t.dtype != dtype:
            raise TypeError(f"expected q, k and v in one dtype, got q {dtype} and {name} {t.dtype}")
        if t.device != device:
            raise ValueError(f"expected q, k and v on one device, got q on {device} and {name} on {t.device}")
    (B, H_q, N_q, D), shape = q.shape, k.shape
    if shape != v.shape:
        raise ValueError(f"expected k and v of one shape, got k {tuple(shape)} and v {tuple(v.shape)}")
    B_kv, H_kv, N_k, D_kv = shape
    if B != B_kv or D != D_kv:
        raise ValueError(f"expected q and k with the same B and D, got q {tuple(q.shape)} and k {tuple(k.shape)}")
    if D == 0:
        raise ValueError(f"expected a head dimension D of at least 1, got q {tuple(q.shape)}")
    if H_kv == 0 or H_q == 0 or H_q % H_kv:
        raise ValueError(
            f"expected the heads of q to be a multiple of those of k and v, got {H_q} and {H_kv} in (B, H, N, D)"
        )
    return Sizes(B, H_q, H_kv, N_q, N_k, D)


def sizes_of(q: Tensor, k: Tensor) -> Sizes:
    """What `check_qkv` returned, once more."""
    (B, H_q, N_q, D), (_, H_kv, N_k, _) = q.shape, k.shape
    return Sizes(B, H_q, H_kv, N_q, N_k, D)


def resolve_scale(scale: float | None, D: int) -> float:
    """The factor on q.k: 1 / sqrt(D) unless given."""
    if scale is None:
        return 1 / math.sqrt(D)
    if type(scale) in (float, int) and -MAX_FLOAT64 <= scale <= MAX_FLOAT64:  # torch.compile can trace this test
        return float(scale)
    if not isinstance(scale, (float, Real)) or isinstance(scale, bool):  # float first: Real takes a microsecond
        raise TypeError(f"expected scale to be a number or None, got {type(scale).__name__}")
    try:
        factor = float(scale)
    except OverflowError:
        raise ValueError("expected a scale that is finite, got a number past float64") from None
    if not math.isfinite(factor):
        raise ValueError(f"expected a finite scale, got {scale}")
    return factor


def resolve_scale_in_float32(scale: float | None, D: int) -> float:
    """The same, rejected where its product with log2(e) is infinite in float32."""
    factor = resolve_scale(scale, D)
    if abs(factor) > MAX_SCALE:
        raise ValueError(f"expected scale log2(e) finite in float32, so |scale| up to {MAX_SCALE:.4g}, got {scale}")
    return factor
