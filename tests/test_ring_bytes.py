"""Bytes on the wire: what the steps count, what the formulas say, and what processes send, are one number."""

from __future__ import annotations

import pytest
import torch

from flashlearn.algorithms.attention import standard_attention
from flashlearn.algorithms.gradients import attention_backward
from flashlearn.core.steps import hbm_bytes, record
from flashlearn.cost import communication as cost
from flashlearn.cost.hardware import H200_SXM
from flashlearn.ring import ring_attention, ring_attention_steps, split, ulysses_attention
from flashlearn.ring.processes import threads
from tests.slow import slow

B, H_q, H_kv, D = 2, 4, 2, 8
SETTINGS = [  # P, N, order, causal: lengths that P and 2 P do not divide
    (4, 18, "plain", False),
    (4, 18, "plain", True),
    (4, 18, "zigzag", True),
    (3, 13, "zigzag", False),
    (2, 4, "zigzag", True),
    slow(5, 31, "plain", True),
    slow(5, 31, "zigzag", True),
    slow(1, 9, "zigzag", True),
]


def problem(N: int, dtype: torch.dtype = torch.float32):
    source = torch.Generator().manual_seed(N)
    return [torch.randn(B, H, N, D, generator=source).to(dtype) for H in (H_q, H_kv, H_kv, H_q)]


def formulas(P: int, N: int, order: str, causal: bool, e: int) -> tuple[int, int]:
    """Forward and backward, of all heads."""
    options = {"causal": causal, "e": e}
    forward = cost.ring_bytes(N, P, D, order, **options)
    return B * H_kv * forward, B * H_kv * cost.ring_backward_bytes(N, P, D, order, **options)


@pytest.mark.parametrize("P, N, order, causal", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, slow(torch.bfloat16)])
def test_steps_count_what_the_formulas_say(P, N, order, causal, dtype):
    q, k, v, do = problem(N, dtype)
    steps = record(ring_attention_steps(q, k, v, P=P, order=order, causal=causal, do=do))
    counted = [hbm_bytes(step for step in steps if step.phase == phase).read for phase in ("forward", "backward")]
    assert tuple(counted) == formulas(P, N, order, causal, dtype.itemsize)


@pytest.mark.parametrize("order", ["plain", "zigzag"])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": (4, 0)}])
def test_steps_end_in_plain_attention(order, options):
    q, k, v, do = (t.double() for t in problem(18))
    steps = record(ring_attention_steps(q, k, v, P=4, order=order, do=do, **options))
    o, lse, *grads = steps[-1].output
    torch.testing.assert_close(o, standard_attention(q, k, v, **options))
    for ours, theirs in zip(grads, attention_backward(do, q, k, v, **options), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert lse.shape == q.shape[:3]
    assert [step.phase for step in steps] == ["forward"] * 4 + ["backward"] * 4 + ["done"]
    assert all(step.sentence for step in steps)


def test_work_of_the_steps_is_every_visible_pair():
    q, k, v, _ = problem(18)
    for order in ("plain", "zigzag"):
        count = torch.zeros(18, 18, dtype=torch.int64)
        for step in ring_attention_steps(q, k, v, P=4, order=order, causal=True):
            for block in step.values.get("work", ()):
                count[slice(*block.rows), slice(*block.cols)] += 1
                assert block.pairs == torch.ones(18, 18).tril()[slice(*block.rows), slice(*block.cols)].sum()
        assert torch.equal(count.tril(), torch.ones(18, 18, dtype=torch.int64).tril())


class Scales:
    """A group that weighs what is sent."""

    def __init__(self, group):
        self.group, self.sent = group, 0

    def send(self, tensors, to, tag):
        self.sent += sum(t.nbytes for t in tensors)
        return self.group.send(tensors, to, tag)

    def __getattr__(self, name):
        return getattr(self.group, name)


def weighed(P: int, N: int, attend, order: str, causal: bool) -> tuple[int, int]:
    """Bytes that P processes send forward and backward."""
    tensors = problem(N)

    def go(group):
        group = Scales(group)
        q, k, v, do = (split(t, order=order, group=group) for t in tensors)
        q, k, v = (t.requires_grad_() for t in (q, k, v))
        o = attend(q, k, v, order=order, group=group, causal=causal)
        forward = group.sent
        torch.autograd.grad(o, (q, k, v), do)
        return forward, group.sent - forward

    forward, backward = zip(*threads(P, go), strict=True)
    return sum(forward), sum(backward)


@pytest.mark.parametrize("P, N, order, causal", SETTINGS)
def test_processes_send_what_the_formulas_say(P, N, order, causal):
    assert weighed(P, N, ring_attention, order, causal) == formulas(P, N, order, causal, 4)


def test_ulysses_sends_what_the_formula_says():
    whole = B * cost.ulysses_bytes(18, 2, D, H_q, H_kv, e=4)
    assert weighed(2, 18, ulysses_attention, "zigzag", True) == (whole, whole)


def test_skipping_halves_the_plain_ring_and_zigzag_saves_one_chunk():
    full = cost.ring_bytes(64, 4, 1, "plain", e=1)
    assert full == 2 * 3 * 64
    assert cost.ring_bytes(64, 4, 1, "plain", causal=True, e=1) == full // 2
    assert cost.ring_bytes(64, 4, 1, "zigzag", causal=True, e=1) == full - 2 * 3 * 8


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (ValueError, "expected N of at least 0, got -8", {"N": -8}),
        (TypeError, "expected N to be an int, got float", {"N": 8.0}),
        (ValueError, "expected P of at least 1, got 0", {"P": 0}),
        (TypeError, "expected P to be an int, got bool", {"P": True}),
        (ValueError, "expected D of at least 0, got -1", {"D": -1}),
        (ValueError, "expected e of at least 1, got 0", {"e": 0}),
        (TypeError, "expected causal to be True or False, got 'no'", {"causal": "no"}),
        (ValueError, "expected order to be 'plain' or 'zigzag', got 'zig'", {"order": "zig"}),
        (ValueError, "expected wide of at least 1, got 0", {"wide": 0}),
        (ValueError, "expected the heads of q to be a multiple of those of k and v, got 4 and 3", {"H_kv": 3}),
    ],
)
def test_formulas_of_the_wire_check_what_they_are_given(error, message, changed):
    sizes = {"N": 8, "P": 2, "D": 4, "e": 2}
    ring, backward = {"order": "plain", "causal": True}, {"order": "plain", "causal": True, "wide": 4}
    for formula, more in (
        (cost.ring_bytes, ring),
        (cost.ring_backward_bytes, backward),
        (cost.ulysses_bytes, {"H_q": 4, "H_kv": 2}),
    ):
        good = {**sizes, **more}
        assert formula(**good) > 0
        if changed.keys() <= good.keys():
            with pytest.raises(error, match=message):
                formula(**{**good, **changed})


def test_hiding_condition_is_where_both_times_meet():
    link, P = cost.ETHERNET_100, 4
    n = round(cost.tokens_to_hide(link, H200_SXM))
    computing = 4 * n * n * 128 / H200_SXM.peak[torch.bfloat16]
    sending = cost.ring_bytes(n * P, P, 128, "plain") / P / (P - 1) / link.bandwidth
    assert computing == pytest.approx(sending, rel=1e-3)
    assert cost.tokens_to_hide(link, H200_SXM, group=4) == pytest.approx(n / 4, rel=1e-3)
    for name in ("group", "e"):
        with pytest.raises(ValueError, match=f"expected {name} of at least 1, got 0"):
            cost.tokens_to_hide(link, H200_SXM, **{name: 0})
