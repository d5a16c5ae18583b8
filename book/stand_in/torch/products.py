"""Products of matrices, and what joins, picks and moves whole pieces."""

import itertools
import math
from operator import mul

from torch.dispatch import MISSING, Operation, operation
from torch.dtypes import converted, result_type, rounded
from torch.elementwise import in_place
from torch.strided import Strided, broadcast_shape, wrapped


def _matrix(a, b):
    """The entries of a @ b for two matrices: each is summed in float64, and rounded once where it is stored."""
    if a.dtype is not b.dtype:
        names = [{"float32": "float", "float64": "double"}.get(t.dtype.name, t.dtype.name) for t in (a, b)]
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {' != '.join(names)}")
    (m, n), p, left, right = a.shape, b.shape[1], a.values(), b.mT.values()
    rows, columns = ([t[i * n : (i + 1) * n] for i in range(k)] for t, k in ((left, m), (right, p)))
    return [sum(map(mul, row, column)) for row in rows for column in columns]


def _of_two(name, problem):
    """The product of a matrix or vector with another; `problem` is the error where their sizes do not fit."""

    def kernel(a, b):
        if a.shape[-1] != b.shape[0]:
            raise RuntimeError(problem.format(*a.shape, *b.shape))
        entries = _matrix(a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None])
        return a.of(entries, (*a.shape[:-1], *b.shape[1:]), a.dtype)

    return Operation(name, kernel)


class Products:
    """What a tensor can do with whole rows and columns."""

    mm = _of_two("mm", "mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})")
    mv = _of_two("mv", "size mismatch, got input ({0}), mat ({0}x{1}), vec ({2})")
    dot = _of_two(
        "dot",
        "inconsistent tensor size, expected tensor [{0}] and src [{1}] to have the same number of elements, "
        "but got {0} and {1} elements respectively",
    )

    @operation("bmm")
    def bmm(self, mat2):
        if self.shape[::2] != mat2.shape[:2]:
            sizes = f"{list(self.shape[::2])} but got: {list(mat2.shape[:2])}"
            raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: {sizes}.")
        entries = itertools.chain.from_iterable(map(_matrix, self.unbind(), mat2.unbind()))
        return self.of(entries, (*self.shape[:2], mat2.shape[2]), self.dtype)

    def matmul(self, other):
        """self @ other: of vectors, matrices, or batches of matrices, whose leading dimensions are repeated to fit."""
        if not self.ndim or not other.ndim:
            which = f"{self.ndim}D and {other.ndim}D"
            raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {which}")
        if (self.ndim, other.ndim) in ((1, 1), (2, 1), (2, 2)):
            return getattr(self, {2: "dot", 3: "mv", 4: "mm"}[self.ndim + other.ndim])(other)
        if self.ndim == 1:
            return self[None].matmul(other).squeeze(-2)
        if other.ndim == 1:
            return self.matmul(other[:, None]).squeeze(-1)
        if other.ndim == 2:
            return self.reshape(-1, self.shape[-1]).mm(other).view(*self.shape[:-1], other.shape[-1])
        lead = broadcast_shape(self.shape[:-2], other.shape[:-2])
        left, right = (t.expand(*lead, *t.shape[-2:]).reshape(math.prod(lead), *t.shape[-2:]) for t in (self, other))
        return left.bmm(right).view(*lead, self.shape[-2], other.shape[-1])

    def __matmul__(self, other):
        return self.matmul(other) if isinstance(other, Strided) else NotImplemented

    @operation("addmm")
    def addmm(self, mat1, mat2, *, beta=1, alpha=1):
        pairs = zip(self.values((mat1.shape[0], mat2.shape[1])), _matrix(mat1, mat2), strict=True)
        return self.of([beta * v + alpha * p for v, p in pairs], (mat1.shape[0], mat2.shape[1]), self.dtype)

    addmm_ = in_place("addmm", addmm)

    def _triangle(self, keeps):
        at = itertools.product(*map(range, self.shape))
        entries = [v if keeps(ij[-1] - ij[-2]) else 0 for ij, v in zip(at, self.values(), strict=True)]
        return self.of(entries, self.shape, self.dtype)

    tril = Operation("tril", lambda x, diagonal=0: x._triangle(lambda right: right <= diagonal))
    triu = Operation("triu", lambda x, diagonal=0: x._triangle(lambda right: right >= diagonal))

    @operation("diag_embed")
    def diag_embed(self):
        n = self.shape[-1]
        made = self.of([0] * (self.numel() * n), (*self.shape, n), self.dtype)
        made.diagonal(0, -2, -1).write(self.values())
        return made

    @operation("repeat_interleave")
    def repeat_interleave(self, repeats, dim=None):
        """Every slice along a dimension as many times, next to each other."""
        x, at = (self.flatten(), 0) if dim is None else (self, wrapped(dim, self.ndim))
        wide = x.unsqueeze(at + 1).expand(*x.shape[: at + 1], repeats, *x.shape[at + 1 :])
        return self.of(wide.values(), (*x.shape[:at], x.shape[at] * repeats, *x.shape[at + 1 :]), self.dtype)

    @operation("index")
    def index(self, picks):
        """The entries that tensors of indices, or masks, pick: a copy."""
        shape, found = self.places_of(picks)
        return self.of([self.storage[place] for place in found], shape, self.dtype)

    @operation("index_put_", writes=True)
    def index_put_(self, picks, value):
        shape, found = self.places_of(picks)
        tensor = isinstance(value, Strided)
        new = (
            converted(value.values(shape), value.dtype, self.dtype)
            if tensor
            else [rounded(value, self.dtype)] * len(found)
        )
        self.write(new, found)
        return self


def _check_joined(tensors, first, at):
    for number, t in enumerate(tensors):
        if t.ndim != first.ndim:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.ndim} and {t.ndim}")
        for d in range(t.ndim):
            if d != at and t.shape[d] != first.shape[d]:
                sizes = (
                    f"Expected size {first.shape[d]} but got size {t.shape[d]} for tensor number {number} in the list."
                )
                raise RuntimeError(f"Sizes of tensors must match except in dimension {at}. {sizes}")


@operation("cat")
def cat(tensors, dim=0):
    """The tensors one after the other along a dimension; all other sizes must be equal."""
    to = result_type(*tensors)
    parts = [t for t in tensors if t.shape != (0,)] or tensors[:1]
    first, at = parts[0], wrapped(dim, parts[0].ndim)
    _check_joined(parts, first, at)
    shape = [*first.shape[:at], sum(t.shape[at] for t in parts), *first.shape[at + 1 :]]
    rows = [(converted(t.values(), t.dtype, to), math.prod(t.shape[at:])) for t in parts]
    pieces = (values[i * width : (i + 1) * width] for i in range(math.prod(shape[:at])) for values, width in rows)
    return first.of(itertools.chain.from_iterable(pieces), shape, to)


@operation("stack")
def stack(tensors, dim=0):
    """The tensors along a new dimension; their shapes must be equal."""
    for number, t in enumerate(tensors):
        if t.shape != tensors[0].shape:
            sizes = f"{list(tensors[0].shape)} at entry 0 and {list(t.shape)} at entry {number}"
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {sizes}")
    return cat.kernel([t.unsqueeze(dim) for t in tensors], dim)


def einsum(equation, *operands):
    """A sum of products of one or two tensors, by the letters of their dimensions: "bij,bjk->bik"."""
    names, arrow, out = equation.replace(" ", "").partition("->")
    terms = names.split(",")
    if "." in equation or len(operands) > 2:
        raise NotImplementedError(MISSING.format("torch.einsum with ... or of three tensors"))
    out = out if arrow else "".join(sorted(c for c in names if c != "," and names.count(c) == 1))
    others = [out + "".join(terms[:k] + terms[k + 1 :]) for k in range(len(terms))]
    parts = list(map(_summed, operands, terms, others))
    if len(parts) == 1:
        return parts[0][0].permute([parts[0][1].index(c) for c in out])
    (a, left), (b, right) = parts
    batch, inner = ([c for c in left if c in right and (c in out) == keep] for keep in (True, False))
    rows, columns = [c for c in left if c not in right], [c for c in right if c not in left]
    size = dict(zip(left + right, (*a.shape, *b.shape), strict=True))
    n, m, k, p = (math.prod(size[c] for c in letters) for letters in (batch, rows, inner, columns))
    a = a.permute([left.index(c) for c in batch + rows + inner]).reshape(n, m, k)
    b = b.permute([right.index(c) for c in batch + inner + columns]).reshape(n, k, p)
    made = batch + rows + columns
    return a.bmm(b).view([size[c] for c in made]).permute([made.index(c) for c in out])


def _summed(t, letters, needed):
    """The tensor without the dimensions that nothing else has, which are summed; a letter twice is its diagonal."""
    for c in dict.fromkeys(letters):
        if letters.count(c) > 1:
            t, letters = t.diagonal(0, letters.index(c), letters.rindex(c)), letters.replace(c, "") + c
    alone = [d for d, c in enumerate(letters) if c not in needed]
    return (t.sum(alone) if alone else t), "".join(c for c in letters if c in needed)
