"""Types of numbers: how a result is rounded to one, and which of two types wins."""

import math
import struct
import sys
from array import array

BOOL, INTEGER, FLOATING = range(3)


class dtype:
    """A type. `code` is that of the Python array that holds its numbers: 16-bit floats are held in 32 bits."""

    is_complex = False

    def __init__(self, name, code, itemsize, kind, digits=0, largest=0.0, least=0.0):
        self.name, self.code, self.itemsize, self.kind = name, code, itemsize, kind
        # of a float: bits of precision, largest and least normal number
        self.digits, self.largest, self.least = digits, largest, least
        self.is_floating_point = kind == FLOATING

    def __repr__(self):
        return f"torch.{self.name}"

    def __deepcopy__(self, _):
        return self


bool_ = dtype("bool", "b", 1, BOOL)
int8, int32, int64 = (dtype(f"int{8 * n}", code, n, INTEGER) for code, n in (("b", 1), ("i", 4), ("q", 8)))
float16 = dtype("float16", "f", 2, FLOATING, 11, 65504.0, 2.0**-14)
bfloat16 = dtype("bfloat16", "f", 2, FLOATING, 8, (2 - 2.0**-7) * 2.0**127, 2.0**-126)
float32 = dtype("float32", "f", 4, FLOATING, 24, (2 - 2.0**-23) * 2.0**127, 2.0**-126)
float64 = dtype("float64", "d", 8, FLOATING, 53, sys.float_info.max, sys.float_info.min)
ORDER = (bool_, int8, int32, int64, float16, bfloat16, float32, float64)


def packed(values, to):
    """The numbers as they are stored: each rounded to the nearest number of the type, ties to even; integers wrap."""
    if to is float16 or to is bfloat16:
        in_float32 = array("f", values)  # PyTorch computes in float32 and rounds once more
        return _to_float16(in_float32) if to is float16 else _to_bfloat16(in_float32)
    values = values if to.kind == FLOATING else list(values)
    try:
        return array(to.code, values)
    except OverflowError:
        half = 1 << 8 * to.itemsize - 1
        return array(to.code, [(v + half) % (2 * half) - half for v in values])


def _to_float16(values):
    """Python packs what is finite in float16; from 65520 on it is infinite."""
    inside = [v if -65520 < v < 65520 or v != v else math.copysign(math.inf, v) for v in values]
    return array("f", struct.unpack(f"{len(values)}e", struct.pack(f"{len(values)}e", *inside)))


def _to_bfloat16(values):
    """The upper 16 bits, after half of the last of them was added; a tie stays even."""
    words = array("I", values.tobytes())
    for place, (word, value) in enumerate(zip(words, values, strict=True)):
        words[place] = word + 0x7FFF + (word >> 16 & 1) & 0xFFFF0000 if value == value else word
    return array("f", words.tobytes())


def converted(values, source, to):
    """Numbers of one type as numbers of another; integers drop what follows the point."""
    if to is bool_:
        return array("b", map(bool, values))
    if source.kind == FLOATING and to.kind == INTEGER:
        half = 1 << 8 * to.itemsize - 1  # a CPU makes -half of NaN and of what is too large
        values = [int(v) if -half <= v < half else -half for v in values]
    return packed(values, to)


def rounded(value, to):
    """One number as the type holds it."""
    return converted((value,), float64 if isinstance(value, float) else int64, to)[0]


def of_number(value):
    return bool_ if isinstance(value, bool) else int64 if isinstance(value, int) else float32


def promote_types(a, b):
    """The smallest type that holds numbers of both."""
    return float32 if {a, b} == {float16, bfloat16} else max(a, b, key=ORDER.index)


def result_type(*operands):
    """The type of what is computed: tensors with dimensions decide it; those without, and numbers, only by a higher kind."""
    best = [None, None, None]  # of tensors, of tensors without dimensions, of numbers
    for operand in operands:
        number = isinstance(operand, bool | int | float)
        level, one = (2, of_number(operand)) if number else (not operand.shape, operand.dtype)
        best[level] = one if best[level] is None else promote_types(best[level], one)
    return max((one for one in best if one), key=lambda one: one.kind)


class finfo:
    """The limits of a floating-point type; `eps` is the distance from 1 to the next number."""

    def __init__(self, of=float32):
        self.dtype, self.bits, self.eps = of.name, 8 * of.itemsize, 2.0 ** (1 - of.digits)
        self.max, self.min, self.tiny, self.smallest_normal = of.largest, -of.largest, of.least, of.least
