"""A tensor in memory: one flat array, and for every dimension a size and a stride.

    entry [i, j] of t  is  t.storage[t.offset + i * t.strides[0] + j * t.strides[1]]

    storage  0 1 2 3 4 5       t                    shape (2, 3)   strides (3, 1)   offset 0   0 1 2 / 3 4 5
                               t.mT                 shape (3, 2)   strides (1, 3)   offset 0   0 3 / 1 4 / 2 5
                               t[:, 1]              shape (2,)     strides (3,)     offset 1   1 4
                               t[0].expand(2, 3)    shape (2, 3)   strides (0, 1)   offset 0   0 1 2 / 0 1 2

A transpose, a slice or an expansion is a view: other sizes and strides, and the same array. What is written through one is
seen through all. Only where no strides give the entries in the new order, as in t.mT.reshape(6), they are copied.
"""

import functools
import itertools
import math
from functools import lru_cache
from operator import index, itemgetter

from torch.dtypes import bool_, int64, packed


class Size(tuple):
    """A shape."""

    def numel(self):
        return math.prod(self)

    def __repr__(self):
        return f"torch.Size({list(self)})"

    def __getitem__(self, key):
        return Size(super().__getitem__(key)) if isinstance(key, slice) else super().__getitem__(key)


@lru_cache(4096)
def row_major(shape):
    """The strides of a tensor whose entries are stored row by row, without gaps."""
    return tuple(math.prod(max(1, size) for size in shape[dim + 1 :]) for dim in range(len(shape)))


@lru_cache(1024)
def places(shape, strides, offset):
    """Where in the storage each entry is, row by row."""
    found = [offset]
    for size, stride in zip(shape, strides, strict=True):
        found = [place + i * stride for place in found for i in range(size)]
    return found


@lru_cache(1024)
def _reader(shape, strides, offset):
    """A function that picks the entries out of the storage."""
    where = places(shape, strides, offset)
    return itemgetter(*where) if len(where) > 1 else lambda storage: [storage[place] for place in where]


def broadcast_shape(a, b):
    """The shape of what two tensors make entry by entry: a size of 1 is repeated. RuntimeError if they do not fit."""
    if a == b:
        return a
    shape = list(a if len(a) >= len(b) else b)
    for dim in range(-1, -min(len(a), len(b)) - 1, -1):
        if a[dim] != b[dim] and 1 not in (a[dim], b[dim]):
            sizes = f"tensor a ({a[dim]}) must match the size of tensor b ({b[dim]})"
            raise RuntimeError(f"The size of {sizes} at non-singleton dimension {len(shape) + dim}")
        shape[dim] = b[dim] if a[dim] == 1 else a[dim]
    return tuple(shape)


def as_shape(sizes):
    """A shape that is given as one tuple or as several numbers."""
    return tuple(map(index, sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes))


def wrapped(dim, ndim):
    """A dimension, counted from the end if it is negative. IndexError if there is none."""
    most = max(1, ndim)
    if not -most <= dim < most:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {dim})")
    return dim % most


class Strided:
    """Shape, strides and offset over a storage: reading, writing, views and indices."""

    def __init__(self, storage, shape, dtype, strides=None, offset=0):
        self.storage, self.shape, self.dtype, self.offset = storage, Size(shape), dtype, offset
        self.strides = row_major(self.shape) if strides is None else strides
        self.ndim = len(self.shape)

    @classmethod
    def of(cls, values, shape, dtype):
        """A new tensor from its entries, row by row, which are rounded to the type."""
        return cls(packed(values, dtype), shape, dtype)

    def values(self, shape=None):
        """The entries, row by row, repeated to a shape if it is given."""
        if shape is not None and shape != self.shape:
            one = self.numel() == 1
            return [self.storage[self.offset]] * math.prod(shape) if one else self.expand(shape).values()
        if self.strides == row_major(self.shape):
            return self.storage[self.offset : self.offset + self.numel()]
        return _reader(self.shape, self.strides, self.offset)(self.storage)

    def write(self, values, where=None):
        """Write the entries, row by row, or to these places of the storage."""
        where = places(self.shape, self.strides, self.offset) if where is None else where
        for place, value in zip(where, packed(values, self.dtype), strict=True):
            self.storage[place] = value

    # Views

    def _view(self, shape, strides, offset=0):
        return type(self)(self.storage, shape, self.dtype, tuple(strides), self.offset + offset)

    def permute(self, *dims):
        """The dimensions in another order."""
        order = [wrapped(dim, self.ndim) for dim in as_shape(dims)]
        return self._view([self.shape[dim] for dim in order], [self.strides[dim] for dim in order])

    def transpose(self, dim0, dim1):
        order, a, b = list(range(self.ndim)), wrapped(dim0, self.ndim), wrapped(dim1, self.ndim)
        order[a], order[b] = order[b], order[a]
        return self.permute(order)

    @property
    def mT(self):
        if self.ndim < 2:
            what = "tensor.mT is only supported on matrices or batches of matrices"
            raise RuntimeError(f"{what}. Got {self.ndim}-D tensor.")
        return self.transpose(-1, -2)

    def expand(self, *sizes):
        """Repeat dimensions of size 1, by a stride of 0; new ones are added in front."""
        target = as_shape(sizes)
        extra = len(target) - self.ndim
        old, strides = (1,) * extra + self.shape, (0,) * extra + self.strides
        shape = [had if size == -1 else size for size, had in zip(target, old, strict=True)]
        for dim, (size, had) in enumerate(zip(shape, old, strict=True)):
            if had not in (1, size):
                raise RuntimeError(
                    f"The expanded size of the tensor ({size}) must match the existing size ({had}) at non-singleton "
                    f"dimension {dim}.  Target sizes: {list(target)}.  Tensor sizes: {list(self.shape)}"
                )
        return self._view(shape, [0 if had != size else s for s, size, had in zip(strides, shape, old, strict=True)])

    def squeeze(self, dim=None):
        """Without the dimensions of size 1, or without one of them."""
        chosen = range(self.ndim) if dim is None else [wrapped(dim, self.ndim)]
        kept = [d for d in range(self.ndim) if d not in chosen or self.shape[d] != 1]
        return self.permute(kept)

    def reshape(self, *sizes):
        """Another shape: a view where strides can express it, a copy otherwise."""
        shape = self._completed(as_shape(sizes))
        strides = _strides_of(self.shape, self.strides, shape)
        return self.clone().reshape(shape) if strides is None else self._view(shape, strides)

    def view(self, *sizes):
        """The same, and a RuntimeError in place of a copy."""
        shape = self.reshape(*sizes)
        if shape.storage is not self.storage:
            what = "spans across two contiguous subspaces). Use .reshape(...) instead."
            at = "view size is not compatible with input tensor's size and stride (at least one dimension"
            raise RuntimeError(f"{at} {what}")
        return shape

    def _completed(self, shape):
        """The shape with -1 replaced by what is left."""
        known = math.prod(size for size in shape if size != -1)
        full = tuple(self.numel() // known if size == -1 and known else size for size in shape)
        if math.prod(full) != self.numel():
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {self.numel()}")
        return full

    def flatten(self, start_dim=0, end_dim=-1):
        first, last = wrapped(start_dim, self.ndim), wrapped(end_dim, self.ndim)
        return self.reshape(*self.shape[:first], math.prod(self.shape[first : last + 1]), *self.shape[last + 1 :])

    def split(self, split_size, dim=0):
        """Pieces of one size, the last one smaller, or of the sizes in a list."""
        total, sizes = self.shape[wrapped(dim, self.ndim)], split_size
        if isinstance(sizes, int):
            sizes = [min(sizes, total - start) for start in range(0, max(total, 1), sizes)]
        if sum(sizes) != total:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension "
                f"{dim}), but got split_sizes={list(sizes)}"
            )
        starts = itertools.accumulate(sizes, initial=0)
        return tuple(self.narrow(dim, start, length) for start, length in zip(starts, sizes, strict=False))

    def diagonal(self, offset=0, dim1=0, dim2=1):
        a, b = wrapped(dim1, self.ndim), wrapped(dim2, self.ndim)
        rest = [d for d in range(self.ndim) if d not in (a, b)]
        length = max(0, min(self.shape[a] + min(0, offset), self.shape[b] - max(0, offset)))
        shape, strides = [self.shape[d] for d in rest] + [length], [self.strides[d] for d in rest]
        start = self.strides[b] * offset if offset >= 0 else -self.strides[a] * offset
        return self._view(shape, [*strides, self.strides[a] + self.strides[b]], start)

    # Indices

    def __getitem__(self, key):
        view, picks = self._indexed(key)
        return view.index(picks) if picks else view

    def __setitem__(self, key, value):
        view, picks = self._indexed(key)
        if picks:
            view.index_put_(picks, value)
        else:
            view.copy_(value) if isinstance(value, Strided) else view.fill_(value)

    def _indexed(self, key):
        """The view that numbers, slices, None and ... make, and by dimension of it, the tensors that pick entries."""
        keys = list(key) if isinstance(key, tuple) else [key]
        keys = [self.of(one, (len(one),), int64) if isinstance(one, list | range) else one for one in keys]
        used, dim, shape, strides, offset, picks = sum(map(_dimensions, keys)), 0, [], [], 0, {}
        if used > self.ndim:
            raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
        at = next((i for i, one in enumerate(keys) if one is Ellipsis), len(keys))
        for one in keys[:at] + [slice(None)] * (self.ndim - used) + keys[at + 1 :]:
            width = _dimensions(one)
            sizes, steps = self.shape[dim : dim + width], self.strides[dim : dim + width]
            if isinstance(one, slice):
                inside = range(*one.indices(sizes[0]))
                shape, strides = [*shape, len(inside)], [*strides, steps[0] * inside.step]
                offset += steps[0] * inside.start if len(inside) else 0
            elif one is None or (isinstance(one, Strided) and (one.ndim or one.dtype is bool_)):
                if one is not None:
                    picks[len(shape)] = one if one.ndim else one.reshape(1)  # tensor(True) is a mask of a new dimension
                shape, strides = [*shape, *(sizes or [1])], [*strides, *(steps or [0])]
            else:
                offset += steps[0] * _inside(one, sizes[0], dim)
            dim += width
        return self._view(shape, strides, offset), picks

    def places_of(self, picks):
        """Shape and places of what tensors of indices pick; their dimensions come where the first of them is."""
        columns = {}
        for dim, pick in picks.items():
            mask = pick.dtype is bool_
            columns |= dict(enumerate(pick.nonzero().unbind(1), dim)) if mask else {dim: pick}
            if mask and pick.shape != self.shape[dim : dim + pick.ndim]:
                shapes = f"mask {list(pick.shape)} does not match the indexed tensor {list(self.shape)}"
                raise IndexError(f"The shape of the {shapes} from dimension {dim} on")
        common = functools.reduce(broadcast_shape, [t.shape for t in columns.values()])
        picked = [0] * math.prod(common)
        for dim, t in columns.items():
            steps = [_inside(v, self.shape[dim], dim) * self.strides[dim] for v in t.values(common)]
            picked = [place + step for place, step in zip(picked, steps, strict=True)]
        first = min(columns) if max(columns) - min(columns) == len(columns) - 1 else 0
        rest = [dim for dim in range(self.ndim) if dim not in columns]
        (n, before), (m, after) = (self._corners(part) for part in (rest[:first], rest[first:]))
        return (*n, *common, *m), [self.offset + a + p + b for a in before for p in picked for b in after]

    def _corners(self, dims):
        """The sizes of these dimensions, and where their entries are, relative to the first."""
        sizes, strides = tuple(self.shape[d] for d in dims), tuple(self.strides[d] for d in dims)
        return sizes, places(sizes, strides, 0)


def _dimensions(key):
    """How many dimensions a key takes: a mask those that it has, a new dimension none."""
    mask = isinstance(key, Strided) and key.dtype is bool_
    return key.ndim if mask else int(key is not None and key is not Ellipsis)


def _inside(key, size, dim):
    """An index, counted from the end if it is negative."""
    if not hasattr(key, "__index__"):
        kinds = "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices"
        raise IndexError(f"{kinds} (got {type(key).__name__})")
    at = index(key)
    if not -size <= at < size:
        raise IndexError(f"index {at} is out of bounds for dimension {dim} with size {size}")
    return at % size


def _strides_of(shape, strides, new):
    """The strides that give the entries another shape, None if there are none.

    Neighbouring dimensions without gaps between them are one run of entries; the new dimensions must divide the runs.
    """
    if strides == row_major(shape) or 0 in new:
        return row_major(new)
    runs = []  # (entries, stride of the last dimension)
    for size, stride in zip(shape, strides, strict=True):
        if size != 1:
            joins = runs and runs[-1][1] == size * stride
            runs.append(((runs.pop()[0] if joins else 1) * size, stride))
    found, left, stride = [], 1, 1
    for size in reversed(new):
        if left == 1 and runs and size != 1:
            left, stride = runs.pop()
        if left % size:
            return None
        found.insert(0, stride)
        left, stride = left // size, stride * size
    return tuple(found)


def _at(x, dim, key):
    """The tensor with an index in one dimension."""
    return x[(*(slice(None),) * wrapped(dim, x.ndim + (key is None)), key)]


for _name, _method in {  # what follows from the above
    "as_strided": lambda x, size, stride, offset=0: type(x)(x.storage, size, x.dtype, tuple(stride), offset),
    "unsqueeze": lambda x, dim: _at(x, dim, None),
    "narrow": lambda x, dim, start, length: _at(x, dim, slice(start, start + length)),
    "select": _at,
    "index_select": _at,
    "unbind": lambda x, dim=0: tuple(_at(x, dim, i) for i in range(x.shape[wrapped(dim, x.ndim)])),
    "detach": lambda x: x._view(x.shape, x.strides),
    "t": lambda x: x.transpose(0, 1) if x.ndim > 1 else x,
    "T": property(lambda x: x.permute(*reversed(range(x.ndim)))),
    "ravel": lambda x: x.reshape(-1),
    "expand_as": lambda x, other: x.expand(other.shape),
    "chunk": lambda x, chunks, dim=0: x.split(max(1, -(-x.shape[dim] // chunks)), dim),
    "contiguous": lambda x: x if x.is_contiguous() else x.clone(),
    "is_contiguous": lambda x: x.strides == row_major(x.shape) or x.numel() < 2,
    "dim": lambda x: x.ndim,
    "numel": lambda x: math.prod(x.shape),
    "size": lambda x, dim=None: x.shape if dim is None else x.shape[wrapped(dim, x.ndim)],
    "stride": lambda x, dim=None: x.strides if dim is None else x.strides[dim],
    "storage_offset": lambda x: x.offset,
}.items():
    setattr(Strided, _name, _method)
