"""The class `Tensor`: what the other modules give it, conversions, and what it says of itself."""

import functools
from dataclasses import dataclass
from types import SimpleNamespace

from torch import making
from torch.dispatch import MISSING
from torch.dtypes import FLOATING, bfloat16, bool_, float16, float32, float64, int32, int64
from torch.elementwise import Elementwise
from torch.printing import text
from torch.products import Products, cat
from torch.reductions import Reductions
from torch.strided import Strided

KINDS = {float64: "Double", float16: "Half", bfloat16: "BFloat16", int64: "Long", int32: "Int"}


@dataclass(frozen=True)
class device:
    """Where a tensor is: in a page always on the CPU."""

    type: str = "cpu"

    def __post_init__(self):
        if self.type != "cpu":
            raise RuntimeError(MISSING.format(f"torch.device({self.type!r})"))

    def __str__(self):
        return self.type


CPU, strided = device(), SimpleNamespace(name="torch.strided")


class Storage:
    """The memory of a tensor, which its views share."""

    def __init__(self, memory):
        self.data_ptr, self.nbytes = lambda: memory.buffer_info()[0], lambda: len(memory) * memory.itemsize
        self.cpu = lambda: self


class Tensor(Elementwise, Reductions, Products, Strided):
    """Numbers of one type in a grid of any dimensions (see `torch.strided`)."""

    device, layout, grad = CPU, strided, None
    requires_grad = is_nested = is_cuda = False
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.numel() * self.dtype.itemsize)
    data = property(lambda self: self.detach())
    new_zeros, new_ones, new_empty, __hash__ = making.new_zeros, making.new_ones, making.new_empty, object.__hash__

    def to(self, *args, dtype=None, copy=False, **_):
        """The tensor in another type; itself if it has it already."""
        for one in args:
            dtype = one.dtype if isinstance(one, Tensor) else one if hasattr(one, "itemsize") else dtype
        return self._to_copy(dtype or self.dtype) if copy or dtype not in (None, self.dtype) else self

    def type(self, dtype=None):
        name = KINDS.get(self.dtype, self.dtype.name.removesuffix("32").title())
        return self.to(dtype) if dtype else f"torch.{name}Tensor"

    def tolist(self):
        """The entries as Python numbers, in nested lists."""
        values = list(map(bool, self.values())) if self.dtype is bool_ else list(self.values())
        for at in range(self.ndim - 1, 0, -1):
            size = self.shape[at]
            values = [values[i * size : (i + 1) * size] for i in range(self.shape[:at].numel())]
        return values if self.ndim else values[0]

    def item(self):
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return bool(self.storage[self.offset]) if self.dtype is bool_ else self.storage[self.offset]

    def __bool__(self):
        if self.numel() != 1:
            what = "more than one value" if self.numel() else "no values"
            raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
        return bool(self.item())

    def __index__(self):
        if self.dtype.kind == FLOATING or self.numel() != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self):
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self):
        if not self.ndim:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __invert__(self):
        if self.dtype.kind == FLOATING:
            raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
        return self.logical_not() if self.dtype is bool_ else -self - 1

    def requires_grad_(self, requires_grad=True):
        if requires_grad:
            raise NotImplementedError(MISSING.format("autograd (requires_grad)"))
        return self

    def __format__(self, spec):
        return format(repr(self) if self.ndim else self.item(), spec)

    def __deepcopy__(self, _):
        return type(self)(self.storage[:], self.shape, self.dtype, self.strides, self.offset)

    def __getattr__(self, name):
        raise AttributeError(name if name.startswith("__") else MISSING.format(f"torch.Tensor.{name}"))


TYPES = {"float": float32, "double": float64, "half": float16, "bfloat16": bfloat16, "long": int64, "int": int32}
for _name, _type in {**TYPES, "bool": bool_}.items():
    setattr(Tensor, _name, lambda self, _type=_type: self.to(_type))
for _name, _method in {  # what follows from the above
    "__repr__": text,
    "__float__": lambda x: float(x.item()),
    "__int__": lambda x: int(x.item()),
    "__contains__": lambda x, value: bool((x == value).any()),
    "new_full": lambda x, size, value, *, dtype=None, **_: making.full_of("new_full", (size,), value, dtype or x.dtype),
    "new_tensor": lambda x, data, *, dtype=None, **_: making.tensor(data, dtype=dtype or x.dtype),
    "element_size": lambda x: x.dtype.itemsize,
    "is_floating_point": lambda x: x.dtype.is_floating_point,
    "is_complex": lambda x: False,
    "is_neg": lambda x: False,
    "cpu": lambda x: x,
    "untyped_storage": lambda x: Storage(x.storage),
    "data_ptr": lambda x: x.storage.buffer_info()[0] + x.offset * x.storage.itemsize,
    "zero_": lambda x: x.fill_(0),
    "std": lambda x, *args, **kwargs: x.var(*args, **kwargs).sqrt(),
    "diff": lambda x, dim=-1: x.narrow(dim, 1, x.shape[dim] - 1) - x.narrow(dim, 0, x.shape[dim] - 1),
    "square": lambda x: x * x,
    "norm": lambda x, dim=None, keepdim=False: (x * x).sum(dim, keepdim).sqrt(),
    "outer": lambda x, other: x[:, None] * other,
    "diag": lambda x, diagonal=0: x.diag_embed() if x.ndim == 1 else x.diagonal(diagonal).clone(),
    "repeat": lambda x, *times: functools.reduce(lambda t, at: cat([t] * at[1], at[0]), enumerate(times), x),
    "argsort": lambda x, dim=-1, descending=False: x.sort(dim, descending).indices,
}.items():
    setattr(Tensor, _name, _method)
