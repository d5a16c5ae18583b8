"""`merge_attentions`: parts of the keys, merged, are attention over all keys, with their gradients."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import flashlearn as fl

fp64 = torch.float64


def inputs(N_q=5, N_k=17, heads=2, dtype=fp64):
    torch.manual_seed(0)
    return [torch.randn(2, heads, N, 4, dtype=dtype, requires_grad=True) for N in (N_q, N_k, N_k)]


def by_parts(q, k, v, ends, **options):
    """(o, lse) of every part of the keys, from one end to the next; under a mask of the whole."""
    N_q, N_k, parts = q.shape[2], k.shape[2], []
    for start, stop in zip((0, *ends), (*ends, N_k), strict=True):
        right = N_k - N_q - start - ((stop - start) - N_q) if options.get("causal") else None
        hidden = right is not None and right < 0
        if hidden:  # a window of ours has no negative limit: leave out the queries that attend to none of these keys
            o, lse = fl.tiled_attention_v2(
                q[:, :, -right:], k[:, :, start:stop], v[:, :, start:stop], causal=True, return_lse=True
            )
            o = torch.cat([torch.zeros_like(q[:, :, :-right]), o], 2)
            lse = torch.cat([torch.full_like(q[:, :, :-right, 0], -torch.inf), lse], 2)
        else:
            window = None if right is None else (None, right)
            o, lse = fl.tiled_attention_v2(q, k[:, :, start:stop], v[:, :, start:stop], window=window, return_lse=True)
        parts.append((o, lse))
    return zip(*parts, strict=True)


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("ends", ((), (8,), (0, 3, 16), (14,), (17,)))
def test_parts_are_the_whole(ends, causal):
    q, k, v = inputs()
    o, lse = fl.merge_attentions(*by_parts(q, k, v, ends, causal=causal))
    want, want_lse = fl.tiled_attention_v2(q, k, v, causal=causal, return_lse=True)
    torch.testing.assert_close((o, lse), (want, want_lse))
    do, dlse = torch.randn_like(o), torch.randn_like(lse)
    got = torch.autograd.grad((o, lse), (q, k, v), (do, dlse))
    torch.testing.assert_close(got, torch.autograd.grad((want, want_lse), (q, k, v), (do, dlse)))


def test_parts_of_nothing_weigh_nothing():
    """o = 0 and lse = -inf, with zero gradients, also where every part is such."""
    outputs = [torch.zeros(1, 2, 3, 4, dtype=fp64, requires_grad=True) for _ in range(2)]
    lses = [torch.full((1, 2, 3), -torch.inf, dtype=fp64, requires_grad=True) for _ in range(2)]
    o, lse = fl.merge_attentions(outputs, lses)
    assert not o.any() and lse.isneginf().all()
    grads = torch.autograd.grad((o, lse), (*outputs, *lses), (torch.ones_like(o), torch.ones_like(lse)))
    assert not any(grad.any() for grad in grads)
    full = torch.randn(1, 2, 3, 4, dtype=fp64), torch.randn(1, 2, 3, dtype=fp64)
    torch.testing.assert_close(fl.merge_attentions([full[0], outputs[0]], [full[1], lses[0]]), full)


def test_16_bits_are_summed_in_float32():
    o = [torch.tensor(x, dtype=torch.bfloat16).expand(1, 1, 1, 2) for x in (1.0, 1.0078125)]
    lse = [torch.zeros(1, 1, 1)] * 2
    merged, both = fl.merge_attentions(o * 2, lse * 2)
    assert merged.dtype == torch.bfloat16 and both.dtype == torch.float32
    assert merged[0, 0, 0, 0].item() == torch.tensor(1.00390625).bfloat16().item()
    torch.testing.assert_close(both, torch.full((1, 1, 1), 4.0).log())


def test_a_sink_belongs_to_one_part():
    """Two parts that both hold it count it twice, and the result is wrong by far; as a part of its own it is right."""
    q, k, v = inputs()
    sinks = torch.tensor([2.0, -1.0], dtype=fp64)
    want = fl.tiled_attention_v2(q, k, v, sinks=sinks, return_lse=True)
    halves = [(k[:, :, :8], v[:, :, :8]), (k[:, :, 8:], v[:, :, 8:])]
    with_sink = [fl.tiled_attention_v2(q, *half, sinks=sinks, return_lse=True) for half in halves]
    without = [fl.tiled_attention_v2(q, *half, return_lse=True) for half in halves]
    own = torch.zeros_like(q), sinks[:, None].expand(q.shape[:3])
    for parts in ([with_sink[0], without[1]], [*without, own]):
        torch.testing.assert_close(fl.merge_attentions(*zip(*parts, strict=True)), want)
    wrong, _ = fl.merge_attentions(*zip(*with_sink, strict=True))
    assert (wrong - want[0]).abs().max() > 0.1


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed here")
def test_packed_parts_are_merged_as_the_kernels_return_them():
    torch.manual_seed(0)
    offsets = torch.tensor([0, 3, 7], dtype=torch.int32)
    q, k, v = (torch.randn(7, 7, 16) for _ in range(3))  # as many tokens as heads: shapes alone do not tell
    o, lse = fl.flash_attention_varlen(q, k, v, offsets, offsets, return_lse=True)
    first, rest = torch.tensor([0, 3, 4]), torch.tensor([1, 2, 5, 6])
    parts = []
    for at, ends in ((first, [0, 1, 3]), (rest, [0, 2, 4])):
        of_keys = torch.tensor(ends, dtype=torch.int32)
        parts.append(fl.flash_attention_varlen(q, k[at], v[at], offsets, of_keys, return_lse=True))
    torch.testing.assert_close(fl.merge_attentions(*zip(*parts, strict=True)), (o, lse), atol=1e-5, rtol=1e-5)


O, LSE = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3)


@pytest.mark.parametrize(
    "error, message, outputs, lses",
    (
        (TypeError, "lists of tensors, one for each part, got a tensor", O, LSE),
        (ValueError, "an output and an lse of every part, got 0 and 0", [], []),
        (ValueError, "an output and an lse of every part, got 2 and 1", [O, O], [LSE]),
        (ValueError, r"outputs\[1\] shaped as outputs\[0\], \(1, 2, 3, 4\), got \(1, 2, 3, 5\)", [O, O.new_zeros(1, 2, 3, 5)], [LSE] * 2),
        (TypeError, r"outputs\[1\] in the dtype of outputs\[0\], torch.float32, got torch.float16", [O, O.half()], [LSE] * 2),
        (ValueError, r"lses\[0\] shaped as the queries of outputs\[0\], \(1, 2, 3\), got \(1, 3, 2\)", [O], [LSE.mT]),
        (TypeError, r"lses\[0\] in the dtype of .*, torch.float32, got torch.float16", [O.half()], [LSE.half()]),
        (ValueError, r"lses\[0\] on the device of .*, cpu, got meta", [O], [LSE.to("meta")]),
        (ValueError, r"\(B, H, N, D\), or packed \(T, H, D\), got \(3, 4\)", [O[0, 0]], [LSE]),
        (ValueError, r"the queries of outputs\[0\], \(2, 3\), got \(3, 2\)", [O[0].transpose(0, 1)], [LSE[0].mT]),
        (TypeError, "expected outputs\\[0\\] to be a torch.Tensor, got tuple", [(O, LSE)], [LSE]),
    ),
)  # fmt: skip
def test_bad_parts(error, message, outputs, lses):
    with pytest.raises(error, match="expected .*" + message.removeprefix("expected ")):
        fl.merge_attentions(outputs, lses)
