"""Functions that make tensors: of lists, of one number, of a range."""

import itertools
import math
from collections.abc import Sequence

from torch.dispatch import Operation
from torch.dtypes import FLOATING, bool_, float32, float64, int64, of_number, rounded
from torch.strided import Strided, as_shape


def made(name, values, shape, to):
    """A new tensor, by the operation of this name."""
    from torch._tensor import Tensor

    return Operation(name, lambda: Tensor.of(values, shape, to))()


def tensor(data, *, dtype=None, device=None, requires_grad=False):
    """A new tensor from a number or nested lists: float32 for floats, int64 for integers, unless `dtype` says otherwise."""
    flat, shape = _flattened(data)
    kind = (
        data.dtype
        if isinstance(data, Strided)
        else max(map(of_number, flat), key=lambda one: one.kind, default=float32)
    )
    kind = dtype or kind
    flat = flat if kind.kind == FLOATING else map(bool if kind is bool_ else int, flat)
    return made("lift_fresh", flat, shape, kind).requires_grad_(requires_grad)


def _flattened(data):
    """The numbers in nested lists, and the shape of these."""
    if isinstance(data, Strided):
        return list(data.values()), tuple(data.shape)
    if isinstance(data, str) or not isinstance(data, Sequence):
        if not isinstance(data, bool | int | float):
            raise TypeError(f"expected numbers in nested lists, got {type(data).__name__}")
        return [data], ()
    parts = [_flattened(one) for one in data]
    for _, shape in parts:
        if shape != parts[0][1]:
            raise ValueError(f"expected nested lists of one shape, got {list(parts[0][1])} and {list(shape)}")
    flat = list(itertools.chain.from_iterable(values for values, _ in parts))
    return flat, (len(parts), *(parts[0][1] if parts else ()))


def as_tensor(data, dtype=None, device=None):
    return data.to(dtype or data.dtype) if isinstance(data, Strided) else tensor(data, dtype=dtype)


def full_of(name, size, value, to):
    """A tensor full of one number."""
    shape, number = as_shape(size), value.item() if isinstance(value, Strided) else value
    return made(name, [rounded(number, to)] * math.prod(shape), shape, to)


def full(size, fill_value, *, dtype=None, device=None):
    kind = fill_value.dtype if isinstance(fill_value, Strided) else of_number(fill_value)
    return full_of("full", (size,), fill_value, dtype or kind)


def full_like(input, fill_value, *, dtype=None, device=None):
    return full_of("full_like", input.shape, fill_value, dtype or input.dtype)


def of_one_number(name, value):
    """`zeros`, `zeros_like`, and the method `new_zeros`, or those of another number."""

    def plain(*size, dtype=None, device=None):
        return full_of(name, size, value, dtype or float32)

    def like(input, *, dtype=None, device=None):
        return full_of(f"{name}_like", input.shape, value, dtype or input.dtype)

    def new(self, *size, dtype=None, device=None):
        return full_of(f"new_{name}", size, value, dtype or self.dtype)

    return plain, like, new


(zeros, zeros_like, new_zeros), (ones, ones_like, new_ones) = of_one_number("zeros", 0), of_one_number("ones", 1)
empty, empty_like, new_empty = of_one_number("empty", 0)  # nothing should depend on what is in it


def eye(n, m=None, *, dtype=None, device=None):
    shape = (n, n if m is None else m)
    return made("eye", [i == j for i in range(shape[0]) for j in range(shape[1])], shape, dtype or float32)


def arange(*bounds, dtype=None, device=None):
    """start, start + step, ... before end; called as range is."""
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    count = max(0, math.ceil((end - start) / step))
    kind = dtype or (float32 if any(isinstance(b, float) for b in bounds) else int64)
    return made("arange", [start + i * step for i in range(count)], (count,), kind)


def linspace(start, end, steps, *, dtype=None, device=None):
    """`steps` numbers from start to end, counted from either end, as PyTorch does."""
    kind = dtype or float32
    step = rounded((end - start) / (steps - 1), float64 if kind is float64 else float32) if steps > 1 else 0.0
    values = [start + step * i if i < steps // 2 else end - step * (steps - i - 1) for i in range(steps)]
    return made("linspace", map(float, values), (steps,), kind)
