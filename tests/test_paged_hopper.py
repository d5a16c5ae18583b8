"""Decoding over pages for Hopper GPUs: the kernel's own text run by the simulator of barriers, its pieces merged by the
interpreter, beside the algorithm in float64."""

from __future__ import annotations

import importlib.util
from operator import attrgetter

import pytest
import torch

import flashlearn as fl

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is run", allow_module_level=True)

from flashlearn.core.options import plain_options
from flashlearn.core.pages import check_paged
from flashlearn.core.target import INTERPRETED
from flashlearn.exercises.altered import altered
from flashlearn.fast import paged as portable
from flashlearn.fast.hopper import paged as hopper
from flashlearn.fast.portable.masks import Strides
from flashlearn.simulator.barriers import Race
from flashlearn.simulator.scheduler import Deadlock
from flashlearn.simulator.simulated import simulate, tiles
from tests.compiling import compiling
from tests.slow import across, slow

interpreted = pytest.mark.skipif(
    not INTERPRETED, reason="kernels are compiled: pieces are merged by the interpreter here"
)
NAN = float("nan")


def problem(lengths, D, page, N_q=1, heads=(4, 2), dtype=torch.float16):
    """q, k_pages, v_pages, page_table, lengths: pages in random order, NaN wherever no key of a sequence is."""
    torch.manual_seed(sum(lengths) + D)
    B, most, (H_q, H_kv) = len(lengths), max(-(-max(lengths) // page), 1), heads
    q = torch.randn(B, H_q, N_q, D).to(dtype)
    pages = B * most + 1
    k, v = (torch.full((pages, H_kv, page, D), NAN, dtype=dtype) for _ in "kv")
    table = torch.randperm(pages - 1)[: B * most].view(B, most).to(torch.int32)
    for b, length in enumerate(lengths):
        for start in range(0, length, page):
            here = min(page, length - start)
            for pool in (k, v):
                pool[table[b, start // page], :, :here] = torch.randn(H_kv, here, D).to(dtype)
    return q, k, v, table, torch.tensor(lengths, dtype=torch.int32)


def attend(given, programs, causal=True, split=True, left=None, softcap=None, sinks=None, stages=2, replaced=None):
    """o and lse by the package's kernels, with so many programs."""
    q, k, v, table, lengths = given
    sizes = check_paged(*given)
    D = sizes.D
    how = plain_options(D, D**-0.5, causal)._replace(left=left, softcap=softcap, sinks=sinks)
    options = portable.PagedProblem(*given, None, sizes, how)
    plan = portable.PagedPlan.of_hopper(sizes, q.device)._replace(programs=programs, split=split)
    o, lse = torch.full_like(q, NAN), torch.full(q.shape[:3], NAN)
    parts = torch.full((programs, 2, 16, D), NAN), torch.full((programs, 2, 16), NAN)
    constants = portable._constants(sizes, plan.launch, portable.MIN_KEYS)
    simulate(
        hopper.attention_paged_hopper_kernel, *(tiles(*each, (1, 1, hopper.PIECE.value, 64)) for each in (("K", k), ("V", v))),
        q, o, lse, *parts, table, lengths, sinks, Strides(*q.stride()), Strides(*o.stride()), *table.stride(),
        sizes.N_q, sizes.B, sizes.most_keys, sizes.pages, left, how.scale, softcap, grid=(programs,), replaced=replaced,
        **{name: constants[name] for name in ("H_KV", "GROUP", "HEAD_DIM", "MINIMUM", "BLOCK_B")},
        PAGE=sizes.page, CAUSAL=causal, SPLIT=split, STAGES=stages,
    )  # fmt: skip
    if split and programs > 1:
        portable._launch_merge(options, plan, portable.Results(o, lse, *parts))
    return o, lse


def close(given, got, **options):
    """o and lse beside the algorithm in float64; what is in no sequence is NaN, and must not matter."""
    q, k, v, table, lengths = given
    wide = [torch.nan_to_num(t).double() for t in (q, k, v)]
    want, want_lse = fl.paged_attention(*wide, table, lengths, **options, return_lse=True)
    torch.testing.assert_close(got[0].double(), want, atol=2e-3, rtol=0)
    torch.testing.assert_close(got[1].double(), want_lse, atol=2e-3, rtol=0)


CASES = {  # lengths, D, page, queries, programs
    "one sequence": ([700], 64, 64, 1, 3),
    "rows of every kind": ([1, 64, 65, 0, 300, 128, 7], 64, 64, 1, 4),
    "few programs": ([200, 330, 90], 128, 128, 1, 2),
    "several queries": ([200, 3, 90], 64, 64, 5, 4),
    "more queries than keys": ([2, 130], 64, 64, 4, 2),
    "wide pages, odd D": ([300, 500], 40, 256, 1, 5),
    "one program": ([100, 260], 64, 64, 2, 1),
    "small pages": ([100, 17, 260], 64, 16, 2, 3),
    "three parts": ([150, 90], 136, 32, 1, 2),
}


@interpreted
@pytest.mark.parametrize(("causal", "name"), across((True, False), CASES))
def test_the_kernel_and_the_merge(causal, name):
    lengths, D, page, N_q, programs = CASES[name]
    given = problem(lengths, D, page, N_q)
    close(given, attend(given, programs, causal), causal=causal)


@interpreted
@pytest.mark.parametrize("left", [0, slow(70), slow(400)])
def test_a_window(left):
    """A row begins at the tile of the first key that its first query sees."""
    given = problem([300, 64, 30, 200], 64, 64, N_q=3)
    close(given, attend(given, 4, left=left), window=(left, 0))


@interpreted
def test_scores_under_a_softcap_and_sinks():
    """A sink takes part once in a row that is cut, and in one without keys."""
    given, sinks = problem([300, 0, 90], 64, 64, N_q=2), torch.tensor([-1.0, 2.0, -torch.inf, 0.5])
    close(given, attend(given, 3, softcap=0.5, sinks=sinks), softcap=0.5, sinks=sinks.double())


@interpreted
@pytest.mark.parametrize("programs", [slow(1), slow(2), 5, slow(12)])
def test_whole_rows(programs):
    """Short sequences are not cut: a program takes rows."""
    given = problem([100, 0, 256, 64, 65], 64, 256)
    close(given, attend(given, programs, split=False))


@interpreted
@pytest.mark.parametrize(
    ("name", "old", "new", "error"),
    [
        slow("load", "cta.k.producer_acquire(t)", "pass", Race),
        slow("load", "else:  # nothing is loaded\n                    mbarrier.arrive(cta.k.full.index(cta.k.index(t)), count=1)", "", Deadlock),
        slow("update", "cta.k.consumer_wait(t)", "pass", Race),
        ("update", "cta.k.consumer_release(t)", "pass", Deadlock),
        ("update", "gl.where(rows[:, None] < keys.number, values", "gl.where(rows[:, None] >= 0, values", AssertionError),
        slow("Work.split", "first + gl.maximum(self.before - QUERIES_COST, 0)", "first + gl.maximum(self.before, 0)", AssertionError),
        slow("initial_state", "(work.before == 0)", "(work.before >= 0)", AssertionError),
    ],
)  # fmt: skip
def test_a_fault_is_seen(name, old, new, error):
    """By these tests: whoever changes the kernel learns of it without a GPU."""
    given, sinks = problem([300, 30, 200], 64, 64), torch.tensor([-1.0, 2.0, 0.0, 0.5])
    replaced = {name: altered(attrgetter(name)(hopper).fn, (old, new))}
    with pytest.raises(error):
        close(given, attend(given, 3, sinks=sinks, replaced=replaced), sinks=sinks.double())


COMPILE = """
import sys
from flashlearn.compiler.compile_only import compile_for
import flashlearn.fast.paged as paging
launches = compile_for(90)
import torch
from flashlearn.core.options import plain_options
from flashlearn.core.pages import check_paged
paging.sm_count = lambda device: 132
torch.cuda.get_device_capability = lambda *device: (9, 0)
for D, page, B, queries, left, softcap in (
    (128, 256, 16, 1, None, None), (128, 16, 128, 4, None, None), (64, 64, 1, 1, 100, 30.0),
    (40, 32, 3, 3, None, None), (192, 16, 8, 1, None, None), (256, 64, 8, 1, 100, None),
):
    q, k = torch.empty(B, 16, queries, D, dtype=torch.bfloat16), torch.empty(64 * B, 4, page, D, dtype=torch.bfloat16)
    table, lengths = torch.zeros(B, 64, dtype=torch.int32), torch.zeros(B, dtype=torch.int32)
    sinks = None if left is None else torch.zeros(16)
    how = plain_options(q.shape[-1], 0.1, causal=True)._replace(left=left, softcap=softcap, sinks=sinks)
    given = paging.PagedProblem(q, k, k, table, lengths, None, check_paged(q, k, k, table, lengths), how)
    assert not paging.why_not_these_pages(given.sizes, how, q.dtype)
    plan = paging.PagedPlan.of_hopper(given.sizes, q.device)
    paging.paged(given, plan=plan)
    print(*(f"{launch.kernel} {launch.shared} {launch.spilled}" for launch in launches), sep=", ")
    launches.clear()
"""


@pytest.mark.slow  # a process of its own, which compiles
def test_the_kernel_compiles_and_keeps_many_tiles_under_way():
    """For a GPU that is not there: D of 40 to 256, pages of 16 to 256, several queries, windows, softcaps, sinks."""
    done = compiling(COMPILE)
    assert not done.returncode, done.stderr[-2000:]
    found = [[launch.split() for launch in line.split(", ")] for line in done.stdout.splitlines()]
    assert len(found) == 6
    for (main, shared, spilled), (merge, *_) in found:
        assert (main, merge) == ("attention_paged_hopper_kernel", "attention_paged_merge_kernel")
        assert 96 * 1024 <= int(shared) <= 232448 and int(spilled) <= 64, found


def test_what_the_kernel_does_not_take():
    """The portable kernel takes it, and the reason can be asked for."""
    given = problem([100, 20], 64, 64)
    sizes = check_paged(*given)
    plain = plain_options(sizes.D, 0.1, causal=True)
    why = lambda dtype=torch.float16, right=0, **changed: portable.why_not_these_pages(  # noqa: E731
        sizes._replace(**changed), plain._replace(right=right), dtype
    )
    assert why() == why(page=16) == why(D=256) == why(right=None) == ""
    assert why(torch.float32) == "torch.float32 inputs: tensor cores take 16 bits"
    assert why(N_q=None) == "ragged queries: a tile has those of one sequence"
    assert why(N_q=9) == "18 queries share a key head, and a tile has room for 16"
    assert why(page=8) == "pages of 8 tokens, where TMA brings 16 at a time"
    assert why(D=20) == "D = 20: a key has no whole 16 bytes"
    assert why(right=3) == "a window to the right"
    assert why(most=0) == "there are no pages"
    if INTERPRETED:
        assert (
            portable.why_not_hopper_paged(portable.PagedProblem(*given, None, sizes, plain))
            == "kernels run in the interpreter"
        )
