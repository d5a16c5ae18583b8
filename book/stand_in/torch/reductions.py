"""Reductions: many entries to one, over some dimensions or all; and what sorts, counts and accumulates."""

import bisect
import itertools
import math
from collections import namedtuple

from torch.dispatch import Operation, operation
from torch.dtypes import FLOATING, bool_, float32, int64
from torch.elementwise import INF, NAN, exp
from torch.strided import Strided, wrapped

Extreme = namedtuple("Extreme", ("values", "indices"))


def total(numbers):
    """The sum; of floats without any rounding on the way."""
    numbers = list(numbers)
    try:
        return math.fsum(numbers) if numbers and isinstance(numbers[0], float) else sum(numbers)
    except (OverflowError, ValueError):  # past float64, or inf - inf
        return sum(numbers)


def largest(row):
    return NAN if any(v != v for v in row) else max(row, default=-INF)


def least(row):
    return NAN if any(v != v for v in row) else min(row, default=INF)


def _mean(row):
    return total(row) / len(row) if len(row) else NAN


def _variance(row):
    middle = _mean(row)
    return total((v - middle) ** 2 for v in row) / (len(row) - 1) if len(row) > 1 else NAN


def _rows(x, dims):
    """The entries that meet in a reduction over these dimensions, for each result; and the dimensions that stay."""
    kept = [dim for dim in range(x.ndim) if dim not in dims]
    values, width = x.permute(*kept, *dims).values(), math.prod(x.shape[dim] for dim in dims)
    return [values[i * width : (i + 1) * width] for i in range(math.prod(x.shape[dim] for dim in kept))], kept


def _dims(x, dim):
    """The dimensions that are reduced, all for None."""
    if dim is None or dim == () or not x.ndim:
        return list(range(x.ndim))
    return sorted(wrapped(one, x.ndim) for one in (dim if isinstance(dim, tuple | list) else (dim,)))


def _reduction(name, function, to=None, nonempty=False):
    """An operation that takes `function` of the entries along `dim`, which goes, or with `keepdim` keeps a size of 1."""

    def kernel(self, dim=None, keepdim=False, *, dtype=None):
        x, dims = self.to(dtype or self.dtype), _dims(self, dim)
        if nonempty and any(not x.shape[d] for d in dims):
            what = "Specify the reduction dim with the 'dim' argument."
            what = f"to be specified for input.numel() == 0. {what}" if dim is None else f"{dim} to have non-zero size."
            raise (RuntimeError if dim is None else IndexError)(f"{name}(): Expected reduction dim {what}")
        rows, kept = _rows(x, dims)
        shape = [1 if d in dims else n for d, n in enumerate(x.shape)] if keepdim else [x.shape[d] for d in kept]
        return x.of(map(function, rows), shape, to(x.dtype) if to else x.dtype)

    return Operation(name, kernel)


def along(x, dim, function, to=None):
    """Every row along a dimension replaced by as many entries."""
    dims = _dims(x, dim)
    rows, kept = _rows(x, dims)
    order = [*kept, *dims]
    made = x.of(itertools.chain.from_iterable(map(function, rows)), [x.shape[d] for d in order], to or x.dtype)
    return made.permute([order.index(d) for d in range(x.ndim)])


def _weights(row):
    """Softmax of a row."""
    m = largest(row)
    terms = [exp(v - m) if m - m == 0 else NAN for v in row]
    l = total(terms)
    return [term / l for term in terms]


def _log_sum_exp(row):
    m = largest(row)
    return m if m - m != 0 else m + math.log(total(exp(v - m) for v in row))


def _softmax(name, function):
    def kernel(x, dim, dtype):
        x = x.to(dtype or x.dtype)
        if x.dtype.kind != FLOATING:
            raise NotImplementedError(f"\"softmax_lastdim_kernel_impl\" not implemented for '{x.type()[6:-6]}'")
        return along(x, dim, function).contiguous()

    found = Operation(name, kernel)
    return lambda self, dim, dtype=None: found(self, dim, dtype)


def _extreme(name, function, entrywise):
    """x.max(): the largest entry; along a dimension with its place; of two tensors entry by entry."""
    best, place = _reduction(name, function, nonempty=True), _place(name, function)

    def method(self, dim=None, keepdim=False):
        if isinstance(dim, Strided):
            return getattr(self, entrywise)(dim)
        return best(self) if dim is None else Extreme(best(self, dim, keepdim), place.kernel(self, dim, keepdim))

    return method


def _place(name, best):
    """Where in a row the largest or least entry is first."""
    find = lambda row: next(i for i, v in enumerate(row) if v != v or v == best(row))  # noqa: E731
    return _reduction(f"arg{name}", find, lambda of: int64, True)


def _summed(of):
    return of if of.kind == FLOATING else int64


class Reductions:
    """What a tensor can do with many of its entries at once."""

    sum, prod = _reduction("sum", total, _summed), _reduction("prod", math.prod, _summed)
    mean, var = _reduction("mean", _mean), _reduction("var", _variance)
    any, all = _reduction("any", any, lambda of: bool_), _reduction("all", all, lambda of: bool_)
    amax, amin = _reduction("amax", largest, nonempty=True), _reduction("amin", least, nonempty=True)
    max, min = _extreme("max", largest, "maximum"), _extreme("min", least, "minimum")
    argmax, argmin = _place("max", largest), _place("min", least)
    logsumexp = _reduction("logsumexp", _log_sum_exp, lambda of: of if of.kind == FLOATING else float32)
    softmax = _softmax("_softmax", _weights)
    log_softmax = _softmax("_log_softmax", lambda row: [v - _log_sum_exp(row) for v in row])
    cumsum = Operation("cumsum", lambda x, dim: along(x, dim, itertools.accumulate, _summed(x.dtype)))

    def cummax(self, dim):
        """The largest entry so far along a dimension, and its place."""
        places = along(
            self,
            dim,
            lambda row: itertools.accumulate(range(len(row)), lambda i, j: j if row[j] >= row[i] else i),
            int64,
        )
        return Extreme(along(self, dim, lambda row: itertools.accumulate(row, max)), places)

    @operation("sort")
    def sort(self, dim=-1, descending=False):
        def order(row):
            return sorted(range(len(row)), key=lambda i: (row[i] != row[i], row[i]), reverse=descending)

        return Extreme(along(self, dim, lambda row: [row[i] for i in order(row)]), along(self, dim, order, int64))

    @operation("flip")
    def flip(self, *dims):
        for dim in dims[0] if isinstance(dims[0], tuple | list) else dims:
            self = along(self, dim, reversed)
        return self

    @operation("roll")
    def roll(self, shifts, dims=0):
        return along(self, dims, lambda row: [row[i - shifts % len(row)] for i in range(len(row))])

    @operation("nonzero")
    def nonzero(self):
        where = [at for at, v in zip(itertools.product(*map(range, self.shape)), self.values(), strict=True) if v]
        return self.of(itertools.chain.from_iterable(where), (len(where), self.ndim), int64)

    @operation("_unique2")
    def unique(self):
        found = sorted(set(self.values()))
        return self.of(found, (len(found),), self.dtype)

    @operation("bucketize")
    def bucketize(self, boundaries, *, right=False):
        """How many of the sorted boundaries are below each entry; with `right`, not above it."""
        find, bounds = bisect.bisect_right if right else bisect.bisect_left, list(boundaries.values())
        return self.of([find(bounds, v) for v in self.values()], self.shape, int64)

    def equal(self, other):
        return self.shape == other.shape and list(self.values()) == list(other.values())

    def allclose(self, other, rtol=1e-5, atol=1e-8, equal_nan=False):
        return bool(self.isclose(other, rtol, atol, equal_nan).all())
