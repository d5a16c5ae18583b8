"""A stand-in for the part of PyTorch that the course uses, in pure Python: it runs in a page, where PyTorch does not.

    sys.path.insert(0, "book/stand_in")
    import torch

It is small enough to be read, and a lesson on what a tensor is:

    strided       one array as memory; shape, strides and offset; views, indices
    dtypes        types, and how a result is rounded to them
    elementwise   arithmetic and functions, entry by entry
    reductions    sums, maxima, softmax
    products      products of matrices
    dispatch      the hooks by which exercises watch what an answer does

Values are PyTorch's up to the order of additions: sums are computed in float64 and rounded once. There are no GPUs and no
autograd, and all that is missing raises an error with its name.
"""

# ruff: noqa: F401, I001  names for others

import math
from contextlib import nullcontext
from types import SimpleNamespace

from torch import autograd, nn, overrides, random, testing
from torch._tensor import Tensor, device, strided
from torch.dispatch import MISSING, function
from torch.dtypes import (
    bfloat16, dtype, finfo, float16, float32, float64, int8, int32, int64, promote_types, result_type,
)  # fmt: skip
from torch.dtypes import bool_ as bool
from torch.making import (
    arange, as_tensor, empty, empty_like, eye, full, full_like, linspace, ones, ones_like, tensor, zeros, zeros_like,
)  # fmt: skip
from torch.products import cat, einsum, stack
from torch.random import Generator, default_generator, manual_seed, rand, randint, randn, randperm
from torch.strided import Size

__version__ = "the page's stand-in for PyTorch"
inf, nan, pi = math.inf, math.nan, math.pi
float, double, half, long, int = float32, float64, float16, int64, int32
METHODS = """
    add sub rsub mul div true_divide pow floor_divide remainder maximum minimum logaddexp
    eq ne lt le gt ge bitwise_and bitwise_or logical_not
    exp exp2 log log2 log10 log1p sqrt square reciprocal tanh sigmoid sin cos neg abs sign relu
    floor ceil round isnan isinf isfinite isneginf masked_fill clamp nan_to_num nextafter isclose clone
    sum mean var std norm prod amax amin any all logsumexp max min argmax argmin softmax log_softmax cumsum cummax sort argsort
    flip roll nonzero unique bucketize equal allclose is_floating_point is_complex numel
    mm bmm mv dot matmul addmm outer tril triu diag diag_embed repeat_interleave index_select
    permute transpose t flatten ravel reshape unsqueeze squeeze unbind split chunk narrow diagonal
""".split()
for _name in METHODS:
    globals()[_name] = function(_name, getattr(Tensor, _name), Tensor)
where = function("where", lambda condition, input, other: Tensor.where(input, condition, other))
concat = concatenate = cat
is_tensor = lambda obj: isinstance(obj, Tensor)  # noqa: E731
get_default_dtype = lambda: float32  # noqa: E731
is_grad_enabled = is_autocast_enabled = lambda *_: False
no_grad = nullcontext
cuda = SimpleNamespace(is_available=lambda: False)


def tensordot(a, b, dims=2):
    """The sum of products over the last dimensions of a and the first of b, or over two lists of dimensions."""
    left, right = dims if isinstance(dims, tuple | list) else (range(a.ndim - dims, a.ndim), range(dims))
    first, second = "abcdefgh"[: a.ndim], list("ijklmnop"[: b.ndim])
    for l, r in zip(left, right, strict=True):
        second[r] = first[l]
    kept = [c for c in first if c not in second] + [c for c in second if c not in first]
    return einsum(f"{first},{''.join(second)}->{''.join(kept)}", a, b)


def __getattr__(name):
    raise AttributeError(MISSING.format(f"torch.{name}"))
