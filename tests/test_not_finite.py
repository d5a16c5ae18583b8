"""NaN and inf in keys and values that no earlier query attends to: how far they reach in each algorithm and kernel.

A hidden key weighs 0, and 0 times NaN is NaN. So the answer is: as far as the block of queries whose visits the key's block.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch

import flashlearn as fl

N, D, AT = 160, 16, 100  # tokens, columns, and the token that is not finite

ALGORITHMS = {  # (queries, keys) of a block
    "standard_attention": (N, N),
    "two_pass_attention": (1, 16),
    "one_pass_attention": (1, 16),
    "tiled_attention_v1": (32, 16),
    "tiled_attention_v2": (32, 16),
}
KERNELS = {"causal": {"causal": True}, "window": {"window": (N - 2, 0)}}


def first_of(block_q: int, block_k: int) -> int:
    """The first query whose block visits the block of key AT under a causal mask."""
    return AT // block_k * block_k // block_q * block_q


def bad_rows(t: torch.Tensor) -> list[int]:
    return (~t.detach().isfinite()).any(-1)[0, 0].nonzero().flatten().tolist()


def results(attention, name: str, number: float, **options):
    """o, and dq of a loss that looks at the queries before AT alone, where one number of that token's K or V is bad."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, N, D) for _ in range(3))
    {"k": k, "v": v}[name][0, 0, AT, 3] = number
    q.requires_grad_()
    o = attention(q, k, v, **options)
    return bad_rows(o), bad_rows(torch.autograd.grad(o[:, :, :AT].sum(), q)[0])


@pytest.mark.parametrize("number", (float("nan"), float("inf")))
@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms(name, number):
    block_q, block_k = ALGORITHMS[name]
    options = {"causal": True}
    options |= {"block_k": block_k} if name != "standard_attention" else {}
    options |= {"block_q": block_q} if name.startswith("tiled") else {}
    first = first_of(block_q, block_k)
    o, dq = results(getattr(fl, name), "v", number, **options)
    assert [i for i in o if i < AT] == list(range(first, AT)) and dq == list(range(first, N))
    o, dq = results(getattr(fl, name), "k", number, **options)
    assert not [i for i in o if i < AT] and dq == list(range(first, N))  # a hidden score is replaced, whatever it was


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed here")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize("number", (float("nan"), float("inf")))
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name, number):
    from flashlearn.core.target import INTERPRETED

    if not INTERPRETED:
        pytest.skip("kernels are compiled here, with other blocks")
    q = torch.empty(1, 1, N, D)
    explained = fl.explain(q, q, q, **KERNELS[name])
    assert explained.forward.kernel == explained.backward.kernel == "portable"
    first, first_back = first_of(*explained.forward.blocks["o"]), first_of(*explained.backward.blocks["dq"])
    assert 0 < first < AT and 0 < first_back < AT  # else nothing is shown
    o, dq = results(fl.flash_attention, "v", number, **KERNELS[name])
    assert [i for i in o if i < AT] == list(range(first, AT)) and dq == list(range(min(first, first_back), N))
    o, dq = results(fl.flash_attention, "k", number, **KERNELS[name])
    assert not [i for i in o if i < AT] and dq == list(range(first_back, N))


def test_what_does_not_exist_may_hold_anything():
    """Not so with key_range: padding is never used, in no block."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 40, D) for _ in range(3))
    ends = torch.tensor([3], dtype=torch.int32), torch.tensor([37], dtype=torch.int32)
    want = [getattr(fl, name)(q, k, v, key_range=ends) for name in ALGORITHMS]
    for t in (k, v):
        t[:, :, :3] = t[:, :, 37:] = float("nan")
    for name, o in zip(ALGORITHMS, want, strict=True):
        torch.testing.assert_close(getattr(fl, name)(q, k, v, key_range=ends), o)
