"""Offsets of our kernels are 64 bits wide: no product of a row number and a stride leaves the range of its dtype.

Tensors have one row that is 2^28 elements from the next, which does not exist: nothing is allocated, and the masked rows of
a block of 16 lie up to element 2^32. The interpreter is told to look for overflow in every sum and product.
"""

import dataclasses
import importlib.util
from unittest import mock

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn import kernels  # isort: skip (first: it chooses the backend)

import flashlearn as fl
from flashlearn.kernels import versions

if not kernels.INTERPRETED:
    pytest.skip("kernels are compiled here: the interpreter looks for overflow", allow_module_level=True)


def far(*shape, requires_grad=False):
    """A tensor (B, H, 1, D) whose second row would begin at element 2^28."""
    strides = (2**30, 2**29, 2**28, 1)
    return torch.randn(shape).as_strided(shape, strides).requires_grad_(requires_grad)


def teaching(causal):
    q, k, v, do = (far(1, 1, 1, 16) for _ in range(4))
    o, lse = kernels.attention_forward(q, k, v, causal=causal)
    kernels.attention_backward(do, q, k, v, o, lse, causal=causal)


def portable(**options):
    q, k, v = (far(1, 1, 1, 16, requires_grad=True) for _ in range(3))
    fl.flash_attention(q, k, v, **options).backward(far(1, 1, 1, 16))


def version(kernel, causal=False):
    versions.attend(kernel, *(far(1, 1, 1, 16) for _ in range(3)), causal=causal)


CASES = {
    "teaching": lambda: teaching(False),
    "teaching, causal": lambda: teaching(True),
    "portable": lambda: portable(causal=False),
    "portable, causal": lambda: portable(causal=True),
    "portable, with a window": lambda: portable(window=(3, 3)),
    "ragged version": lambda: version(versions.ragged_kernel),
    "causal version": lambda: version(versions.causal_kernel, True),
    "grouped version": lambda: version(versions.grouped_kernel, True),
}


@pytest.mark.parametrize("what", CASES)
def test_no_offset_leaves_its_dtype(what):
    from triton.runtime.interpreter import interpreter_builder

    checked = dataclasses.replace(interpreter_builder.options, debug=True, sanitize_overflow=True)
    with mock.patch.object(interpreter_builder, "options", checked):
        CASES[what]()
