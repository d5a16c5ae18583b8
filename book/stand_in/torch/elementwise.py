"""Operations entry by entry: arithmetic, comparisons, functions of one number, and their forms in place.

Tensors are first repeated to a common shape, and their numbers taken in a common type; each result is rounded once.
"""

import functools
import itertools
import math
import operator

from torch.dispatch import Operation, operation
from torch.dtypes import FLOATING, INTEGER, bfloat16, bool_, converted, float16, float32, result_type, rounded
from torch.strided import Strided, broadcast_shape

INF, NAN, NUMBER = math.inf, math.nan, bool | int | float


def number_of(value):
    return value.item() if isinstance(value, Strided) else value


def _operand(value, shape, to, name):
    """The entries of a tensor, or a number as many times, in the common type; of 16 bits, a factor stays in float32."""
    if not isinstance(value, Strided):
        wide = name in ("mul", "div") and to in (float16, bfloat16)
        return itertools.repeat(rounded(value, float32 if wide else to), math.prod(shape))
    same = value.dtype is to or (value.dtype.kind != FLOATING and to.kind == INTEGER)
    return value.values(shape) if same else converted(value.values(shape), value.dtype, to)


def _entrywise(name, function, kind=""):
    """An operation on tensors and numbers. `kind`: "asks" gives booleans, "floats" makes float32 of integers."""

    def kernel(*operands):
        tensors = [one for one in operands if isinstance(one, Strided)]
        shape, common = functools.reduce(broadcast_shape, [one.shape for one in tensors]), result_type(*operands)
        common = float32 if kind == "floats" and common.kind != FLOATING else common
        results = map(function, *(_operand(one, shape, common, name) for one in operands))
        return tensors[0].of(results, shape, bool_ if kind == "asks" else common)

    return Operation(name, kernel)


def _or(outside, function):
    """`function`, and where Python raises for want of a number, what PyTorch gives there."""

    def guarded(*numbers):
        try:
            return function(*numbers)
        except (ValueError, OverflowError, ZeroDivisionError):
            return outside(*numbers)

    return guarded


def _by_zero(a, b):
    if isinstance(a, int):
        raise RuntimeError("ZeroDivisionError")
    return NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1, b)


def _power(a, b):
    if isinstance(a, int) and b < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return a**b if isinstance(a, int) else math.pow(a, b)


def _log_add_exp(a, b):
    same = a == b and a - a != 0  # two infinities
    return a if same or a != a else larger(a, b) + math.log1p(math.exp(-abs(a - b)))


def larger(a, b):
    return a if a != a or a > b else b  # NaN if one is


def smaller(a, b):
    return a if a != a or a < b else b


def near(a, b, rtol, atol, equal_nan=False):
    """Whether |a - b| <= atol + rtol |b|; infinities only where they are equal."""
    return a == b or (equal_nan and a != a and b != b) or (a - a == b - b == 0 and abs(a - b) <= atol + rtol * abs(b))


def _next(a, b, of):
    """The next number of a type from a towards b."""
    if a == b or a != a or b != b:
        return a if a != a else b
    lowest = round(math.log2(of.least))
    exponent = max(math.frexp(a)[1] - 1, lowest)
    towards_zero = abs(a) == 2.0**exponent and exponent > lowest and (b > a) == (a < 0)  # there they are twice as close
    unit = math.ldexp(1.0, exponent - of.digits + 1 - towards_zero)
    found = a + unit if b > a else a - unit
    return math.copysign(INF, found) if abs(found) > of.largest else found


def _round(v, decimals):
    """To a multiple of a power of ten, as PyTorch does: the scaled number is rounded, ties to even."""
    return round(v * 10**decimals) / 10**decimals if decimals else round(v)


exp = _or(lambda v: INF, math.exp)
_nan, _log_of_none, _whole = (
    lambda v: NAN,
    lambda v: -INF if v == 0 else NAN,
    lambda f: lambda v: f(v) if v - v == 0 else v,
)
PLAIN = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "rsub": lambda a, b: b - a,
    "floor_divide": _or(_by_zero, operator.floordiv), "remainder": _or(_by_zero, operator.mod),
    "pow": _or(lambda a, b: NAN if a < 0 and b % 1 else math.copysign(INF, a) if b % 2 == 1 else INF, _power),
    "maximum": larger, "minimum": smaller, "logaddexp": _log_add_exp,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "neg": operator.neg, "abs": abs, "sign": lambda v: (v > 0) - (v < 0), "relu": lambda v: v if v > 0 or v != v else v * 0,
    "floor": _whole(math.floor), "ceil": _whole(math.ceil),
}  # fmt: skip
FLOATS = {
    "div": _or(_by_zero, lambda a, b: float(a) / b), "exp": exp, "exp2": _or(lambda v: INF, lambda v: math.pow(2.0, v)),
    "log": _or(_log_of_none, math.log), "log2": _or(_log_of_none, math.log2), "log10": _or(_log_of_none, math.log10),
    "log1p": _or(lambda v: -INF if v == -1 else NAN, math.log1p), "sqrt": _or(_nan, math.sqrt), "tanh": math.tanh,
    "reciprocal": lambda v: 1 / v if v else math.copysign(INF, v), "sigmoid": lambda v: 1 / (1 + exp(-v)),
    "sin": _or(_nan, math.sin), "cos": _or(_nan, math.cos),
}  # fmt: skip
ASKS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")} | {
    "isnan": lambda v: v != v, "isinf": lambda v: v in (INF, -INF), "isfinite": lambda v: v - v == 0,
    "isneginf": lambda v: v == -INF, "logical_not": operator.not_,
}  # fmt: skip
SIGNS = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "truediv", "pow": "pow", "floor_divide": "floordiv",
    "remainder": "mod", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
}  # fmt: skip


class Elementwise:
    """What a tensor can do entry by entry; most of it is added below, from the tables."""

    clamp = Operation("clamp", lambda x, min=None, max=None: _clamped(_clamped(x, min, larger), max, smaller))
    clone = Operation("clone", lambda x: x.of(x.values(), x.shape, x.dtype))
    _to_copy = Operation("_to_copy", lambda x, to: type(x)(converted(x.values(), x.dtype, to), x.shape, to))
    round = Operation("round", lambda x, *, decimals=0: _entrywise("", _whole(lambda v: _round(v, decimals))).kernel(x))
    nextafter = Operation(
        "nextafter", lambda x, other: _entrywise("", lambda a, b: _next(a, b, x.dtype)).kernel(x, other)
    )
    _where = _entrywise("where", lambda a, condition, b: a if condition else b)

    def where(self, condition, other):
        """The tensor where the condition is true, the other one elsewhere."""
        if condition.dtype is not bool_:
            kind = f"but got a tensor with dtype {condition.type()[6:-6]}"
            raise RuntimeError(f"where expected condition to be a boolean tensor, {kind}")
        return Elementwise._where(self, condition, other)

    @operation("masked_fill")
    def masked_fill(self, mask, value):
        """The tensor with a number where the mask is true."""
        if mask.dtype is not bool_:
            raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}")
        shape, number = broadcast_shape(self.shape, mask.shape), rounded(number_of(value), self.dtype)
        pairs = zip(self.values(shape), mask.values(shape), strict=True)
        return self.of([number if hidden else v for v, hidden in pairs], shape, self.dtype)

    @operation("nan_to_num")
    def nan_to_num(self, nan=0.0, posinf=None, neginf=None):
        most = self.dtype.largest
        instead = {INF: most if posinf is None else posinf, -INF: -most if neginf is None else neginf}
        return self.of([nan if v != v else instead.get(v, v) for v in self.values()], self.shape, self.dtype)

    def isclose(self, other, rtol=1e-5, atol=1e-8, equal_nan=False):
        return _entrywise("isclose", lambda a, b: near(a, b, rtol, atol, equal_nan), "asks")(self, other)

    @operation("copy_", writes=True)
    def copy_(self, source):
        self.write(converted(source.values(self.shape), source.dtype, self.dtype))
        return self

    @operation("fill_", writes=True)
    def fill_(self, value):
        self.write([rounded(number_of(value), self.dtype)] * self.numel())
        return self


def _clamped(x, bound, choose):
    return x if bound is None else _entrywise("", choose).kernel(x, bound)


def in_place(name, found):
    """x.add_(y): the result is written to x, whose shape and type stay."""

    def kernel(self, *args, **kwargs):
        result = found.kernel(self, *args, **kwargs)
        if result.shape != self.shape:
            shapes = f"{list(self.shape)} doesn't match the broadcast shape {list(result.shape)}"
            raise RuntimeError(f"output with shape {shapes}")
        self.write(converted(result.values(), result.dtype, self.dtype))
        return self

    return Operation(f"{name}_", kernel, writes=True)


def _operator(found, swapped=False):
    """`a + b`, or swapped `b + a`: NotImplemented for what is no tensor or number, which then gets its turn."""

    def forward(self, other):
        if not isinstance(other, Strided | NUMBER):
            return NotImplemented
        return found(other, self) if swapped else found(self, other)

    return forward


for _kind, _table in {"": PLAIN, "floats": FLOATS, "asks": ASKS}.items():
    for _name, _function in _table.items():
        _found = _entrywise(_name, _function, _kind)
        setattr(Elementwise, _name, _found)
        if _kind != "asks":
            setattr(Elementwise, f"{_name}_", in_place(_name, _found))
        if _name in SIGNS or _kind == "asks":
            setattr(Elementwise, f"__{SIGNS.get(_name, _name)}__", _operator(_found))
        if _name in SIGNS:
            setattr(Elementwise, f"__r{SIGNS[_name]}__", _operator(_found, swapped=True))
            setattr(Elementwise, f"__i{SIGNS[_name]}__", getattr(Elementwise, f"{_name}_"))
for _name in ("clamp", "masked_fill"):
    setattr(Elementwise, f"{_name}_", in_place(_name, getattr(Elementwise, _name)))
Elementwise.true_divide, Elementwise.__rsub__ = Elementwise.div, _operator(Elementwise.rsub)
Elementwise.__rtruediv__ = _operator(lambda self, other: self.reciprocal() * other)
Elementwise.__neg__, Elementwise.__abs__ = Elementwise.neg, Elementwise.abs
