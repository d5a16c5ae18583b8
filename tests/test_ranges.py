"""Windows and documents in the Hopper kernels: the ranges, and the kernels' own text run by the simulator of barriers."""

from __future__ import annotations

import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is run", allow_module_level=True)

from flashlearn.core.target import INTERPRETED
from flashlearn.fast.hopper.ranges import Ranges, attention_ranges
from flashlearn.fast.hopper.semaphores import make_semaphores
from flashlearn.fast.portable.masks import mean_seen
from tests.compiling import compiling
from tests.ranges import CASES, KEYS, RAGGED, RANGES, attend, dense
from tests.test_barriers import backward_run, forward_run, problem

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
COMPILE = """
import flashlearn.kernels
from flashlearn.compiler.compile_only import compile_for
launches = compile_for(90)
import torch
from flashlearn.fast.hopper.ranges import attention_ranges
pair = (torch.tensor([0, 9], dtype=torch.int32),) * 2
for given in ({}, {"offsets": pair}, {"key_range": pair}, {}):
    for of_keys in (False, True):
        attention_ranges(9, 9, torch.device("cpu"), left=5, right=0, **given, of_keys=of_keys)
print(f"{len(launches)} launches, {sum(launch.spilled for launch in launches)} bytes of stack")
"""


def visible_by(ranges, N):
    """The booleans that ranges stand for, (.., rows, N)."""
    j = torch.arange(N)
    return (j >= ranges[:, 0, :, None]) & (j < ranges[:, 1, :, None])


def ranges_of(sizes, options, of_keys=False):
    """What the kernel makes of the options, on the CPU, where the simulator reads it."""
    pairs = {name: tuple(t.to(DEVICE) for t in pair) for name, pair in options.items() if isinstance(pair, tuple)}
    return attention_ranges(*sizes, DEVICE, **options | pairs, of_keys=of_keys).ends.cpu()


@pytest.mark.parametrize("name", CASES)
def test_spans_are_the_mask(name):
    sizes, options = CASES[name]
    want = dense(*sizes, options["left"], options["right"], options.get("offsets"), options.get("key_range"))
    of_queries, of_keys = ranges_of(sizes, options), ranges_of(sizes, options, of_keys=True)
    assert torch.equal(visible_by(of_queries, sizes[1]), want)
    assert torch.equal(visible_by(of_keys, sizes[0]), want.mT)
    for ranges in (of_queries, of_keys):
        assert (ranges.diff(dim=-1) >= 0).all(), "the start or the end of a span moves back"


@pytest.mark.parametrize("left, right", [(None, 0), (40, 0), (40, 7), (None, None), (3, None), (0, 500)])
@pytest.mark.parametrize("sequences", (1, 5))
def test_how_many_see_in_the_mean(left, right, sequences):
    """Of five sequences of 60 tokens, or one of 300."""
    N, length = 300, 300 // sequences
    ends = torch.arange(0, N + 1, length, dtype=torch.int32)
    want = dense(N, N, left, right, (ends, ends)).sum().item() / N
    assert mean_seen(N, left, right, sequences) == pytest.approx(want)


@pytest.mark.parametrize("right_way", (True, False))
def test_how_many_blocks_of_keys_add_before(right_way):
    """More blocks of queries, and of keys, than are counted at a time; and ranges that no mask has."""
    N_q, N_k, block_m, own, heads = 2300, 4200, 64, 128, 3
    ranges = torch.randint(0, N_q + 1, (2, 2, N_k), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    if right_way:
        ranges = ranges.sort(-1).values.sort(1).values
    q, k = (torch.empty(2, heads, N, 8, device=DEVICE) for N in (N_q, N_k))
    turns = make_semaphores(q, k, Ranges(ranges.to(DEVICE), N_q, N_q), block_m, own).cpu()
    at = torch.arange(0, N_k, own)
    first, stop = ranges[:, 0, at] // block_m, -(-ranges[:, 1, (at + own - 1).clamp(max=N_k - 1)] // block_m)
    blocks = torch.arange(-(-N_q // block_m))
    counted = 1 + 2 * 2 * heads * len(blocks)
    got = turns[counted:].view(2, len(at), len(blocks))
    so_far = torch.zeros(2, len(blocks), dtype=torch.int32)
    for n in range(len(at)):
        assert torch.equal(got[:, n], so_far)
        so_far += (first[:, n, None] <= blocks) & (blocks < stop[:, n, None])
    assert not turns[:counted].any() and so_far.max() > 0
    assert make_semaphores(q, k, None, block_m, own).tolist() == [0] * counted


def test_bad_offsets_stay_inside():
    wrong = torch.tensor([5, -3, 1000, 7], dtype=torch.int32)
    for of_keys, most in ((False, 90), (True, 100)):
        ranges = ranges_of((100, 90), dict(left=None, right=0, offsets=(wrong, wrong)), of_keys)
        assert (ranges >= 0).all() and (ranges <= most).all()


@pytest.mark.parametrize(
    ("name", "D", "how"),
    [
        ("window", 64, {}),
        pytest.param("window", 128, {"consumers": 3}, marks=pytest.mark.slow),
        ("packed", 64, {"block_n": 128, "consumers": 3}),
        pytest.param("documents", 128, {"stages": 3}, marks=pytest.mark.slow),
        pytest.param("causal documents", 64, {}, marks=pytest.mark.slow),
        pytest.param("two sides, more queries", 64, {"programs": 3}, marks=pytest.mark.slow),
        pytest.param("two sides, more keys", 64, {}, marks=pytest.mark.slow),
        pytest.param("wide", 64, {}, marks=pytest.mark.slow),
        ("padded", 64, {}),
        ("packed", 256, {}),
        ("packed", 192, {}),
        pytest.param("window", 256, {}, marks=pytest.mark.slow),
        pytest.param("padded", 256, {}, marks=pytest.mark.slow),
    ],
)
def test_the_kernels_see_what_the_spans_say(name, D, how):
    sizes, options = CASES[name]
    B = 1 if "key_range" not in options else len(RANGES[0])
    q, k, v, do, *_ = problem(B, 2, 1, *sizes, D, False)
    wide = [t.float().requires_grad_() for t in (q, k, v)]
    seen = dense(*sizes, options["left"], options["right"], options.get("offsets"), options.get("key_range"))
    want, want_lse = attend(*wide, seen)
    o, lse = forward_run(q, k, v, False, **how, ranges=ranges_of(sizes, options))
    torch.testing.assert_close(o.float(), want, atol=3e-3, rtol=0)
    torch.testing.assert_close(lse, want_lse.detach(), atol=3e-3, rtol=0)
    gradients = torch.autograd.grad(want, wide, do.float())
    for side in (0, 2):  # dq added up in any order, and in one
        got = backward_run(q, k, v, do, o, lse, False, ranges=ranges_of(sizes, options, of_keys=True), side=side)
        for what, ours, wanted in zip(("dq", "dk", "dv"), got, gradients, strict=True):
            torch.testing.assert_close(
                ours.float(), wanted, atol=1e-2, rtol=1e-2, msg=f"{what}, {side} rows side by side"
            )


@pytest.mark.parametrize(("D", "softcap"), [(64, 0.5), pytest.param(128, 30.0, marks=pytest.mark.slow), (256, 30.0)])
def test_scores_under_a_softcap(D, softcap):
    """Also keys that are not seen, queries that see nothing, and a sink; all three gradients."""
    sizes, options = CASES["packed"]
    q, k, v, do, *_ = problem(1, 2, 1, *sizes, D, False)
    sinks = torch.tensor([-1.0, 1.0])
    wide = [t.float().requires_grad_() for t in (q, k, v)]
    want, want_lse = attend(*wide, dense(*sizes, 50, 0, (RAGGED, KEYS)), sinks, softcap=softcap)
    o, lse = forward_run(q, k, v, False, ranges=ranges_of(sizes, options), sinks=sinks, softcap=softcap)
    torch.testing.assert_close(o.float(), want, atol=3e-3, rtol=0)
    torch.testing.assert_close(lse, want_lse.detach(), atol=3e-3, rtol=0)
    got = backward_run(q, k, v, do, o, lse, False, ranges=ranges_of(sizes, options, of_keys=True), softcap=softcap)
    for ours, wanted in zip(got, torch.autograd.grad(want, wide, do.float()), strict=True):
        torch.testing.assert_close(ours.float(), wanted, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("D", (64, 256))
@pytest.mark.parametrize("seed", range(3))
def test_nobody_waits_for_ever_whatever_the_spans_are(seed, D):
    """Bad offsets make wrong results, and no program that waits for one that adds nothing."""
    torch.manual_seed(seed)
    q, k, v, do, *_ = problem(2, 1, 1, 300, 300, D, False)
    ranges = torch.randint(0, 301, (2, 2, 300), dtype=torch.int32)
    backward_run(q, k, v, do, q, torch.zeros(2, 1, 300), False, ranges=ranges, side=2)  # else a Deadlock


@pytest.mark.parametrize("sink", (-2.0, 3.0))
def test_a_sink_takes_part_in_the_sum_alone(sink):
    """Also where no key is seen: o = 0 and lse = sink."""
    sizes, options = CASES["packed"]
    q, k, v, *_ = problem(1, 2, 1, *sizes, 64, False)
    sinks = torch.tensor([sink, -sink])
    want, want_lse = attend(q.float(), k.float(), v.float(), dense(*sizes, 50, 0, (RAGGED, KEYS)), sinks)
    o, lse = forward_run(q, k, v, False, ranges=ranges_of(sizes, options), sinks=sinks)
    torch.testing.assert_close(o.float(), want, atol=3e-3, rtol=0)
    torch.testing.assert_close(lse, want_lse, atol=3e-3, rtol=0)
    assert (lse[0, 0] == sink).any()


@pytest.mark.slow  # a process of its own, and a compiler
def test_the_kernel_of_spans_compiles_for_a_hopper_gpu():
    """The interpreter takes what the compiler rejects; a second call launches what the first compiled."""
    done = compiling(COMPILE)
    assert done.stdout == "8 launches, 0 bytes of stack\n", done.stderr
