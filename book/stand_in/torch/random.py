"""Random numbers: the generator of PyTorch's CPU, MT19937, and the formulas by which it makes normal numbers.

The numbers of a seed are PyTorch's, up to the last bit of a logarithm or a cosine.
"""

import math
import random as python_random
from contextlib import contextmanager

from torch.dtypes import float32, float64, int64, rounded
from torch.making import made
from torch.strided import as_shape


class Generator:
    """A source of random numbers. Python's is the same, and fills its state from a seed in another way."""

    def __init__(self, device=None):
        self.source = python_random.Random()
        self.manual_seed(67280421310721)  # PyTorch's default

    def manual_seed(self, seed):
        state = [seed & 0xFFFFFFFF]
        for i in range(1, 624):
            state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
        self.source.setstate((3, (*state, 624), None))
        self.next = None  # normal numbers come in pairs: the second one waits
        return self

    def bits(self):
        return self.source.getrandbits(32)

    def uniform(self, digits):
        """A number from 0 to below 1, with 24 or 53 bits of precision."""
        bits = self.bits() if digits == 24 else self.bits() << 32 | self.bits()
        return (bits & (1 << digits) - 1) / (1 << digits)

    def normal(self):
        if self.next is not None:
            found, self.next = self.next, None
            return found
        angle, radius = math.tau * self.uniform(53), math.sqrt(-2 * math.log1p(-self.uniform(53)))
        self.next = radius * math.sin(angle)
        return radius * math.cos(angle)

    def normals(self, count, kind):
        """Normal numbers: from 16 on, sixteen at a time from eight pairs."""
        if count < 16:
            return [self.normal() for _ in range(count)]
        values = [self.uniform(kind.digits) for _ in range(count)]
        for start in range(0, count - 15, 16):
            values[start : start + 16] = _sixteen(values[start : start + 16], kind)
        if count % 16:  # the last sixteen are made anew
            values[-16:] = _sixteen([self.uniform(kind.digits) for _ in range(16)], kind)
        return values


def _sixteen(uniform, kind):
    radii = [rounded(math.sqrt(-2 * rounded(math.log(1 - u), kind)), kind) for u in uniform[:8]]
    angles = [rounded(rounded(math.tau, kind) * u, kind) for u in uniform[8:]]
    return [r * f(a) for f in (math.cos, math.sin) for r, a in zip(radii, angles, strict=True)]


default_generator = Generator()
manual_seed = default_generator.manual_seed


@contextmanager
def fork_rng(devices=(), enabled=True):
    """What is drawn inside leaves the generator as it was."""
    before, waits = default_generator.source.getstate(), default_generator.next
    try:
        yield
    finally:
        default_generator.source.setstate(before)
        default_generator.next = waits


def randn(*size, generator=None, dtype=float32, device=None):
    """Normal numbers."""
    shape, exact = as_shape(size), float64 if dtype is float64 else float32
    return made("randn", (generator or default_generator).normals(math.prod(shape), exact), shape, dtype)


def rand(*size, generator=None, dtype=float32, device=None):
    """Numbers from 0 to below 1."""
    shape, source = as_shape(size), generator or default_generator
    digits = 53 if dtype is float64 else 24
    return made("rand", [source.uniform(digits) for _ in range(math.prod(shape))], shape, dtype)


def randint(*bounds, size=None, generator=None, dtype=int64, device=None):
    """Integers from low (0 if only one bound is given) to below high: randint(low, high, size)."""
    *low, high, shape = bounds if size is None else (*bounds, size)
    low, source = low[0] if low else 0, generator or default_generator
    return made("randint", [low + source.bits() % (high - low) for _ in range(math.prod(shape))], shape, dtype)


def randperm(n, *, generator=None, device=None):
    """0 to n - 1 in random order."""
    source, order = generator or default_generator, list(range(n))
    for i in range(n - 1):
        other = i + source.bits() % (n - i)
        order[i], order[other] = order[other], order[i]
    return made("randperm", order, (n,), int64)
