"""Operations entry by entry: arithmetic, comparisons, functions of one number, and their forms in place.

Two tensors are first repeated to a common shape, and their numbers taken in a common type; each result is rounded once.
"""

import itertools
import math
import operator

from torch.dispatch import Operation, operation
from torch.dtypes import FLOATING, INTEGER, bfloat16, bool_, converted, float16, float32, result_type, rounded
from torch.strided import Strided, broadcast_shape

INF, NAN, NUMBER = math.inf, math.nan, bool | int | float


def shape_of(value):
    return value.shape if isinstance(value, Strided) else ()


def number_of(value):
    return value.item() if isinstance(value, Strided) else value


def _operand(value, shape, to):
    """The entries of a tensor, or a number as many times, in the type that is computed in: float32 for 16 bits."""
    if not isinstance(value, Strided):
        return itertools.repeat(rounded(value, float32 if to in (float16, bfloat16) else to), math.prod(shape))
    same = value.dtype is to or value.dtype.kind != FLOATING and to.kind == INTEGER
    return value.values(shape) if same else converted(value.values(shape), value.dtype, to)


def _binary(name, function, kind=""):
    """An operation on two operands. `kind`: "compares" gives booleans, "divides" makes floats of integers."""

    def kernel(a, b):
        shape, common = broadcast_shape(shape_of(a), shape_of(b)), result_type(a, b)
        common = float32 if kind == "divides" and common.kind != FLOATING else common
        made = a if isinstance(a, Strided) else b
        results = map(function, _operand(a, shape, common), _operand(b, shape, common))
        return made.of(results, shape, bool_ if kind == "compares" else common)

    return Operation(name, kernel)


def _unary(name, function, to=None, floats=True):
    """An operation on one tensor; with `floats`, integers become float32 first. `to`: the type of the result."""

    def kernel(x):
        result = to or (float32 if floats and x.dtype.kind != FLOATING else x.dtype)
        return x.of(map(function, x.values()), x.shape, result)

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


def _outside_power(a, b):
    odd = b % 2 == 1
    return NAN if a < 0 and b % 1 else math.copysign(INF, a) if odd else INF


def _log_add_exp(a, b):
    return (
        a + b if a + b != a + b else a if a == b and a in (INF, -INF) else max(a, b) + math.log1p(math.exp(-abs(a - b)))
    )


def larger(a, b):
    return a if a != a or a > b else b  # NaN if one is


def smaller(a, b):
    return a if a != a or a < b else b


exp = _or(lambda v: INF, math.exp)
_nan, _below_zero = (lambda v: NAN), (lambda v: -INF if v == 0 else NAN)


def _whole(function):
    return lambda v: v if v - v != 0 else math.copysign(function(v), v)


class Elementwise:
    """What a tensor can do entry by entry."""

    clamp = Operation("clamp", lambda x, min=None, max=None: _clamped(_clamped(x, min, larger), max, smaller))
    clone = Operation("clone", lambda x: x.of(x.values(), x.shape, x.dtype))
    _to_copy = Operation("_to_copy", lambda x, to: type(x)(converted(x.values(), x.dtype, to), x.shape, to))
    nan_to_num = Operation("nan_to_num", lambda x, nan=0.0, posinf=None, neginf=None: _finite(x, nan, posinf, neginf))

    @operation("where")
    def where(self, condition, other):
        """The tensor where the condition is true, the other one elsewhere."""
        common = result_type(self, other)
        shape = broadcast_shape(broadcast_shape(condition.shape, shape_of(self)), shape_of(other))
        a, b = _operand(self, shape, common), _operand(other, shape, common)
        return condition.of(
            [x if c else y for c, x, y in zip(condition.values(shape), a, b, strict=True)], shape, common
        )

    @operation("masked_fill")
    def masked_fill(self, mask, value):
        """The tensor with a number where the mask is true."""
        if mask.dtype is not bool_:
            raise RuntimeError(f"masked_fill only supports boolean masks, but got mask with dtype {mask.dtype}")
        shape, number = broadcast_shape(self.shape, mask.shape), number_of(value)
        pairs = zip(self.values(shape), mask.values(shape), strict=True)
        number = rounded(number, self.dtype)
        return self.of([number if hidden else v for v, hidden in pairs], shape, self.dtype)

    @operation("nextafter")
    def nextafter(self, other):
        shape = broadcast_shape(self.shape, other.shape)
        pairs = zip(self.values(shape), other.values(shape), strict=True)
        return self.of([_next(a, b, self.dtype) for a, b in pairs], shape, self.dtype)

    @operation("isclose")
    def isclose(self, other, rtol=1e-5, atol=1e-8, equal_nan=False):
        shape = broadcast_shape(self.shape, other.shape)
        pairs = zip(self.values(shape), other.values(shape), strict=True)
        return self.of([near(a, b, rtol, atol, equal_nan) for a, b in pairs], shape, bool_)

    @operation("copy_", writes=True)
    def copy_(self, source):
        self.write(converted(source.values(self.shape), source.dtype, self.dtype))
        return self

    @operation("fill_", writes=True)
    def fill_(self, value):
        self.write([rounded(number_of(value), self.dtype)] * self.numel())
        return self


def _clamped(x, bound, choose):
    return x if bound is None else _binary("", choose).kernel(x, bound)


def _finite(x, nan, posinf, neginf):
    instead = {INF: x.dtype.largest if posinf is None else posinf, -INF: -x.dtype.largest if neginf is None else neginf}
    return x.of([nan if v != v else instead.get(v, v) for v in x.values()], x.shape, x.dtype)


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


def _in_place(name, found):
    """x.add_(y): the result is written to x, whose shape and type stay."""

    def kernel(self, *args, **kwargs):
        result = found.kernel(self, *args, **kwargs)
        if result.shape != self.shape:
            shapes = f"{list(self.shape)} doesn't match the broadcast shape {list(result.shape)}"
            raise RuntimeError(f"output with shape {shapes}")
        self.write(converted(result.values(), result.dtype, self.dtype))
        return self

    return Operation(f"{name}_", kernel, writes=True)


BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "rsub": lambda a, b: b - a,
    "pow": _or(_outside_power, _power), "floor_divide": _or(_by_zero, operator.floordiv),
    "remainder": _or(_by_zero, operator.mod), "maximum": larger, "minimum": smaller, "logaddexp": _log_add_exp,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
}  # fmt: skip
COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")} | {
    "logical_and": lambda a, b: bool(a and b), "logical_or": lambda a, b: bool(a or b),
}  # fmt: skip
UNARY = {
    "exp": exp, "exp2": _or(lambda v: INF, lambda v: math.pow(2.0, v)), "expm1": _or(lambda v: INF, math.expm1),
    "log": _or(_below_zero, math.log), "log2": _or(_below_zero, math.log2), "log10": _or(_below_zero, math.log10),
    "log1p": _or(lambda v: -INF if v == -1 else NAN, math.log1p), "sqrt": _or(_nan, math.sqrt),
    "rsqrt": lambda v: 1 / math.sqrt(v) if v > 0 else INF if v == 0 else NAN,
    "reciprocal": lambda v: 1 / v if v else math.copysign(INF, v), "tanh": math.tanh,
    "sigmoid": lambda v: 1 / (1 + exp(-v)), "sin": _or(_nan, math.sin), "cos": _or(_nan, math.cos),
}  # fmt: skip
OF_ANY_TYPE = {
    "neg": operator.neg, "abs": abs, "sign": lambda v: (v > 0) - (v < 0), "relu": lambda v: v if v > 0 or v != v else v * 0,
    "floor": _whole(math.floor), "ceil": _whole(math.ceil), "round": _whole(round), "trunc": _whole(math.trunc),
}  # fmt: skip
QUESTIONS = {
    "isnan": lambda v: v != v, "isinf": lambda v: v in (INF, -INF), "isfinite": lambda v: v - v == 0,
    "isneginf": lambda v: v == -INF, "logical_not": operator.not_,
}  # fmt: skip
OPERATIONS = (
    {"div": _binary("div", _or(_by_zero, lambda a, b: float(a) / b), "divides")}
    | {name: _binary(name, f) for name, f in BINARY.items()}
    | {name: _binary(name, f, "compares") for name, f in COMPARISONS.items()}
    | {name: _unary(name, f) for name, f in UNARY.items()}
    | {name: _unary(name, f, floats=False) for name, f in OF_ANY_TYPE.items()}
    | {name: _unary(name, f, bool_) for name, f in QUESTIONS.items()}
)
for _name, _operation in OPERATIONS.items():
    setattr(Elementwise, _name, _operation)
for _name in (*BINARY, *UNARY, *OF_ANY_TYPE, "div", "clamp", "masked_fill"):
    setattr(Elementwise, f"{_name}_", _in_place(_name, getattr(Elementwise, _name)))
for _other, _name in {
    "true_divide": "div",
    "divide": "div",
    "subtract": "sub",
    "multiply": "mul",
    "negative": "neg",
}.items():
    setattr(Elementwise, _other, OPERATIONS[_name])


def _operator(found, swapped=False):
    """`a + b`, or swapped `b + a`: NotImplemented for what is no tensor or number, which then gets its turn."""

    def forward(self, other):
        if not isinstance(other, Strided | NUMBER):
            return NotImplemented
        return found(other, self) if swapped else found(self, other)

    return forward


SIGNS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow", "floordiv": "floor_divide",
    "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip
for _sign, _name in SIGNS.items():
    setattr(Elementwise, f"__{_sign}__", _operator(OPERATIONS[_name]))
    setattr(Elementwise, f"__r{_sign}__", _operator(OPERATIONS[_name], swapped=True))
    setattr(Elementwise, f"__i{_sign}__", getattr(Elementwise, f"{_name}_"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Elementwise, f"__{_name}__", _operator(OPERATIONS[_name]))
Elementwise.__rsub__ = _operator(OPERATIONS["rsub"])
Elementwise.__rtruediv__ = lambda self, other: (
    self.reciprocal() * other if isinstance(other, NUMBER) else NotImplemented
)
Elementwise.__neg__, Elementwise.__abs__ = OPERATIONS["neg"], OPERATIONS["abs"]
