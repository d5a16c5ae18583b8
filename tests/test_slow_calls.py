"""A call that takes over a second in Triton's interpreter says why, once; the kernels are left out here."""

from __future__ import annotations

import importlib.util
import warnings

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

from flashlearn.algorithms.tiled import visited_blocks
from flashlearn.core import interpreter_warning
from flashlearn.core.options import plain_options
from flashlearn.core.target import INTERPRETED
from flashlearn.fast import operators, paged
from flashlearn.fast.api import flash_attention

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled here")
int32 = {"dtype": torch.int32}


@pytest.fixture
def said(monkeypatch):
    """What was said so far; kernels return at once."""
    words: list[str] = []
    monkeypatch.setattr(interpreter_warning, "_said", lambda: words)
    monkeypatch.setattr(
        operators, "attention_forward_portable", lambda q, *_, **__: (torch.zeros_like(q), q.new_zeros(q.shape[:3]))
    )
    monkeypatch.setattr(
        operators, "attention_gradients", lambda do, q, k, v, *_: (*map(torch.zeros_like, (q, k, v)), None, None)
    )
    monkeypatch.setattr(paged, "paged", lambda given, **_: (torch.zeros_like(given.q), None))
    return words


def documents_of(N: int, length: int) -> torch.Tensor:
    return torch.arange(0, N + 1, length, **int32)


@pytest.mark.parametrize(
    "N, options, words",
    (
        (640, {"causal": True}, ""),
        (704, {"causal": True}, "flash_attention takes about 1.1 s"),  # 8 heads, 66 pairs of blocks, 2 ms
        (448, {}, ""),
        (512, {}, "flash_attention takes about 1.0 s"),
        (640, {"window": (640, 0)}, ""),  # causal
        (704, {"window": (702, 0)}, "flash_attention takes about 1.1 s"),
        (704, {"window": (63, 0)}, ""),
        (1024, {"documents": documents_of(1024, 64), "causal": True}, ""),
        (1024, {"documents": documents_of(1024, 512), "causal": True}, "flash_attention takes about 1.2 s"),
        (576, {"softcap": 9.0, "causal": True}, "flash_attention takes about 1.1 s here or more: its kernels run in Triton's "
         "interpreter, on the CPU, which needs 3 ms for each pair of a block of queries and a block of keys, of which there are 360"),
    ),
)  # fmt: skip
def test_forward(said, N, options, words):
    q = torch.randn(1, 8, N, 16)
    if not words:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            flash_attention(q, q, q, **options)
        return
    with pytest.warns(UserWarning, match=words):
        flash_attention(q, q, q, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flash_attention(q, q, q, **options)  # said once
    assert len(said) == 1


@pytest.mark.parametrize("options", ({"causal": True}, {"window": (510, 0)}))
def test_backward(said, options):
    """Two kernels go over the blocks again: a forward pass of less than a second has a backward pass of more."""
    q = torch.randn(1, 8, 512, 16, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        o = flash_attention(q, q, q, **options)
    with pytest.warns(UserWarning, match="the backward pass of flash_attention takes about 1.[0-9] s"):
        o.sum().backward()


@pytest.mark.parametrize("length, window, says", ((1000, None, True), (200, None, False), (1000, (64, 0), False)))
def test_paged(said, length, window, says):
    q, pages = torch.randn(3, 4, 64, 16), torch.randn(64, 2, 16, 16)
    table, lengths = torch.zeros(3, 63, **int32), torch.full((3,), length, **int32)
    ragged = {"cu_seqlens_q": torch.tensor([0, 64, 128, 192], **int32)}
    for given, options in ((q, {}), (q.transpose(1, 2).flatten(0, 1), ragged)):
        said.clear()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            paged.flash_attention_paged(given, pages, pages, table, lengths, window=window, **options)
        assert [str(w.message).partition(" takes")[0] for w in found] == ["flash_attention_paged"] * says


@pytest.mark.parametrize("causal, left, right", ((False, None, None), (True, None, 0), (False, 9, 0), (False, 30, 5)))
def test_pairs_are_those_that_are_visited(causal, left, right):
    q, k = torch.empty(2, 3, 70, 8), torch.empty(2, 1, 90, 8)
    window = (left, right)
    want = 6 * visited_blocks(70, 90, 16, 32, causal, window)
    options = plain_options(8, 1.0, causal)._replace(left=left, right=right)
    assert interpreter_warning.tile_steps(q, k, 16, 32, options) == want
