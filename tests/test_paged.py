"""Attention over pages: the kernel against float64, whatever the lengths, pages and options are, and where it reads."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import random
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from torch.autograd import forward_ad

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: its kernels are not tested", allow_module_level=True)

import flashlearn as fl
from flashlearn.core.mask import check_window
from flashlearn.core.options import AttentionOptions
from flashlearn.core.pages import check_paged
from flashlearn.core.steps import VALUES, hbm_bytes
from flashlearn.core.target import INTERPRETED
from flashlearn.cost import cache_bytes, decode_cost, paged_cost
from flashlearn.fast import paged as paging
from flashlearn.fast.paged import PagedPlan, PagedProblem, flash_attention_paged, paged, tiles_of_queries
from flashlearn.fast.portable.launches import PortableLaunch
from flashlearn.kernels.recorder import Race, kernel_steps
from tests.compiling import compiling
from tests.slow import across, covering, slow

fp16, bf16, fp32 = torch.float16, torch.bfloat16, torch.float32
DEVICE = "cpu" if INTERPRETED else "cuda"
NARROWEST = 1 if INTERPRETED else 2  # D; that 1 is rejected on a GPU is tested in tests/gpu
needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled: nothing can be recorded")
BOUND = {fp32: 2e-5, fp16: 4e-3, bf16: 3e-2}  # of o, for values of about 1; of lse, for scores of about 10


@dataclass(frozen=True)
class Problem:
    """Lengths of the keys of each sequence, and how many queries: one number for all, or a tuple."""

    lengths: tuple[int, ...]
    queries: int | tuple[int, ...] = 1
    D: int = 16
    H_kv: int = 2
    group: int = 2
    page: int = 16
    dtype: torch.dtype = fp32
    spare: int = 1  # entries of the table behind those that are used, which hold no page's number
    shared: bool = False  # whether all sequences begin with the pages of the longest
    strided: bool = False
    seed: int = 0

    def __str__(self) -> str:
        default = Problem(())
        names = ("D", "H_kv", "group", "page", "dtype", "spare", "shared", "strided")
        parts = [f"{name}={getattr(self, name)}" for name in names if getattr(self, name) != getattr(default, name)]
        return " ".join([f"{self.lengths}x{self.queries}", *parts])


def make(problem: Problem, device=DEVICE):
    """(q, k_pages, v_pages, page_table, lengths), {"cu_seqlens_q": ...} if ragged; pages in random order."""
    p, draw = problem, random.Random(problem.seed)
    generator = torch.Generator().manual_seed(p.seed)

    def randn(*shape):
        wide = torch.randn(*shape[:-1], 2 * shape[-1], generator=generator)
        return (wide[..., ::2] if p.strided else wide[..., : shape[-1]].contiguous()).to(p.dtype)

    used = [-(-length // p.page) for length in p.lengths]
    numbers = draw.sample(range(sum(used) + 3), sum(used))  # three pages are nobody's
    table = torch.full((len(p.lengths), max(used, default=0) + p.spare), -7, dtype=torch.int32)
    for b, n in enumerate(used):
        table[b, :n] = torch.tensor([numbers.pop() for _ in range(n)])
    if p.shared:
        longest = table[used.index(max(used))].clone()
        for b, n in enumerate(used):
            table[b, : max(n - 1, 0)] = longest[: max(n - 1, 0)]
    k, v = (randn(sum(used) + 3, p.H_kv, p.page, p.D) for _ in "kv")
    lengths = torch.tensor(p.lengths, dtype=torch.int32)
    H_q, options = p.H_kv * p.group, {}
    if isinstance(p.queries, int):
        q = randn(len(p.lengths), H_q, p.queries, p.D)
    else:
        q = randn(sum(p.queries), H_q, p.D)
        options["cu_seqlens_q"] = torch.tensor([0, *p.queries]).cumsum(0).to(device, torch.int32)
    return [t.to(device) for t in (q, k, v, table, lengths)], options


def one(q, k, v, *, causal=True, window=None, softcap=None, sinks=None, scale=None):
    """(o, lse) of one sequence in float64: q (H_q, n, D), k and v (H_kv, N, D)."""
    n, N, group = q.shape[1], k.shape[1], q.shape[0] // k.shape[0]
    k, v = (t.double().repeat_interleave(group, 0) for t in (k, v))
    S = q.double() @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    S = S if softcap is None else softcap * torch.tanh(S / softcap)
    ahead = torch.arange(N) - (torch.arange(n)[:, None] + N - n)
    left, right = window or (None, None)
    right = 0 if causal else right
    hidden = (ahead < -(N + n if left is None else left)) | (ahead > (N + n if right is None else right))
    S = S.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        S = torch.cat([S, sinks.double()[:, None, None].expand(-1, n, 1)], -1)
        v = torch.cat([v, v.new_zeros(v.shape[0], 1, v.shape[2])], 1)
    lse = torch.logsumexp(S, -1) if S.shape[-1] else torch.full((q.shape[0], n), -torch.inf, dtype=torch.float64)
    P = torch.exp(S - lse.masked_fill(lse == -torch.inf, 0)[..., None])
    return P @ v, lse


def oracle(tensors, cu_seqlens_q=None, **options):
    """(o, lse) of all sequences in float64, key by key from the pages."""
    q, k_pages, v_pages, table, lengths = (t.cpu() for t in tensors)
    page, results = k_pages.shape[2], []
    options = {name: v.cpu() if isinstance(v, torch.Tensor) else v for name, v in options.items()}
    for b, length in enumerate(lengths.tolist()):
        t = torch.arange(length)
        k, v = (pages[table[b, t // page].long(), :, t % page].transpose(0, 1) for pages in (k_pages, v_pages))
        mine = q[b] if cu_seqlens_q is None else q[cu_seqlens_q[b] : cu_seqlens_q[b + 1]].transpose(0, 1)
        results.append(one(mine, k, v, **options))
    if cu_seqlens_q is None:
        return tuple(map(torch.stack, zip(*results, strict=True)))
    return torch.cat([o for o, _ in results], 1).transpose(0, 1), torch.cat([lse for _, lse in results], 1)


def compare(got, want, dtype, what="") -> None:
    """o and lse, each within the rounding of its dtype; infinities where they should be, and no NaN."""
    for name, ours, theirs in zip(("o", "lse"), got, want, strict=True):
        assert ours.shape == theirs.shape, f"{what}: {name} of shape {tuple(ours.shape)}"
        assert ours.dtype == (dtype if name == "o" else fp32)
        ours = ours.detach().cpu().double()
        nothing = theirs == -torch.inf
        assert torch.equal(ours == -torch.inf, nothing), f"{what}: -inf in other places of {name}"
        error = (ours - theirs)[~nothing].abs()
        assert not error.numel() or error.max() <= BOUND[dtype], f"{what}: {name} is off by {error.max():.1e}"


def cut(tensors, options, launch, programs, split=True, cu_seqlens_q=None, least=16):
    """(o, lse) with the work cut in another way than the host would."""
    q = tensors[0]
    sizes = check_paged(*tensors, cu_seqlens_q)
    left, right = check_window(options.get("window"))
    scale = options.get("scale")
    how = AttentionOptions(
        sizes.D, sizes.D, sizes.D**-0.5 if scale is None else scale, left=left,
        right=0 if options.get("causal", True) else right, softcap=options.get("softcap"), sinks=options.get("sinks"),
    )  # fmt: skip
    given = PagedProblem(*tensors, cu_seqlens_q, sizes, how)
    if not split:
        programs = tiles_of_queries(sizes, launch.block_m) * sizes.H_kv
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paging, "MIN_KEYS", least)
        return paged(given, plan=PagedPlan(launch, programs, split)) if q.numel() else None


AWKWARD = (
    Problem((1,)),
    Problem((0, 5, 16, 17)),
    Problem((33, 1, 64), D=40, group=3, H_kv=1, page=32),
    Problem((63, 100), 2, D=64, page=64, dtype=fp16),
    Problem((111, 7), 7, group=1, page=128),  # the second has as many queries as keys
    Problem((40, 3), 9, page=16),  # six queries of the second see no key
    Problem((100, 30, 57), page=16, shared=True, dtype=fp16),
    Problem((70, 9), strided=True, D=NARROWEST, group=4),
    Problem((17, 40, 20, 5), (1, 0, 12, 5)),
    Problem((50, 0, 31), (20, 2, 0), D=40, group=3, dtype=fp16, shared=True),
    Problem((257, 16), page=256, group=8, H_kv=1, spare=0),
    Problem((45, 18), page=16, dtype=bf16),
    Problem((), 3),
    Problem((5, 6), (0, 0)),
)
OPTIONS = {
    "causal": (True, False),
    "window": (None, (5, None), (20, 3), (0, 0), (None, 4)),
    "softcap": (None, 2.0),
    "sinks": (None, "sinks"),
    "scale": (None, -0.3),
}


def pairwise():
    """Few dictionaries of options in which every two values of two options meet."""
    rows = [dict(zip(OPTIONS, values, strict=True)) for values in itertools.product(*OPTIONS.values())]

    def pairs(row):
        return set(itertools.combinations(row.items(), 2))

    left, chosen = set().union(*map(pairs, rows)), []
    while left:
        chosen.append(max(rows, key=lambda row: len(pairs(row) & left)))
        left -= pairs(chosen[-1])
    return chosen


def with_sinks(options, problem):
    H_q = problem.H_kv * problem.group
    sinks = torch.linspace(-2, 3, H_q, device=DEVICE) if options.get("sinks") else None
    return options | {"sinks": sinks}


@pytest.mark.parametrize("problem", AWKWARD, ids=str)
def test_against_float64(problem):
    tensors, ragged = make(problem)
    got = flash_attention_paged(*tensors, **ragged, return_lse=True)
    if problem.lengths:
        compare(got, oracle(tensors, **ragged), problem.dtype)
    else:
        assert got[0].shape == tensors[0].shape and got[1].shape == tensors[0].shape[:3]
    assert torch.equal(flash_attention_paged(*tensors, **ragged), got[0])


def columns_of(t):
    """t as every second number of a tensor, the others such as would make a difference."""
    return torch.stack([t, t.flip(0) + 3], 1)[:, 0]


def test_lengths_offsets_and_sinks_may_have_any_strides():
    tensors, ragged = make(Problem((17, 40, 20, 5), (1, 0, 12, 5)))
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.1], device=DEVICE)[: tensors[0].shape[1]]
    want = flash_attention_paged(*tensors, **ragged, sinks=sinks)
    ragged["cu_seqlens_q"], tensors[4] = columns_of(ragged["cu_seqlens_q"]), columns_of(tensors[4])
    assert torch.equal(flash_attention_paged(*tensors, **ragged, sinks=columns_of(sinks)), want)
    negated = torch.complex(sinks, -sinks).conj().imag  # -(-sinks), lazily
    assert negated.is_neg() and torch.equal(flash_attention_paged(*tensors, **ragged, sinks=negated), want)


@pytest.mark.parametrize(
    "row, problem",
    covering(
        itertools.product(range(len(pairwise())), (AWKWARD[5], AWKWARD[8], AWKWARD[9])),
        lambda row, problem: {problem, *pairwise()[row].items()},
    ),
)
def test_every_two_options(row, problem):
    options = with_sinks(pairwise()[row], problem)
    tensors, ragged = make(replace(problem, dtype=fp32))
    want = oracle(tensors, **ragged, **options)
    compare(flash_attention_paged(*tensors, **ragged, **options, return_lse=True), want, fp32)
    compare(cut(tensors, options, PortableLaunch(16, 16), 5, **ragged), want, fp32, "cut by 5 programs")


@pytest.mark.parametrize(
    "programs, problem",
    [
        *across((1, 2, 3, 7), AWKWARD[1:9:2]),
        slow(40, AWKWARD[9]),
        slow(13, Problem((300, 2, 1, 0, 90), page=32)),
        slow(29, Problem((64, 64, 64, 64), 40, page=16, group=1)),
    ],
    ids=str,
)
def test_however_the_work_is_cut(programs, problem):
    tensors, ragged = make(problem)
    want = oracle(tensors, **ragged)
    for launch in (PortableLaunch(16, 16), PortableLaunch(32, 16)):
        compare(cut(tensors, {}, launch, programs, **ragged), want, problem.dtype, f"{launch}, {programs} programs")
    compare(cut(tensors, {}, PortableLaunch(16, 32), 0, False, **ragged), want, problem.dtype, "not cut")


@pytest.mark.parametrize("page", (16, slow(1), slow(32), slow(64), 128, slow(256)))
def test_page_sizes(page):
    """The same sequences in pages of any size, and tiles larger and smaller than a page."""
    problem = Problem((257, 31, page), page=page, group=4, H_kv=1)
    tensors, _ = make(problem)
    want = oracle(tensors)
    for block_n in (16, 64):
        compare(cut(tensors, {}, PortableLaunch(16, block_n), 3, least=64), want, fp32)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_anything(seed):
    draw = random.Random(seed)
    B, page = draw.choice((1, 2, 3, 5)), draw.choice((1, 4, 16, 32, 64))
    lengths = tuple(draw.randrange(0, 9 * min(page, 16) + 1) for _ in range(B))
    queries = draw.choice((1, 2, 9, tuple(draw.choice((0, 1, 1, 2, 7, 20)) for _ in range(B))))
    problem = Problem(
        lengths, queries, draw.choice((NARROWEST, 16, 40, 64)), draw.choice((1, 2)), draw.choice((1, 2, 3, 4)), page,
        draw.choice((fp16, fp32)), draw.choice((0, 2)), draw.random() < 0.3, draw.random() < 0.3, seed,
    )  # fmt: skip
    options = with_sinks({name: draw.choice(values) for name, values in OPTIONS.items()}, problem)
    tensors, ragged = make(problem)
    want = oracle(tensors, **ragged, **options)
    compare(flash_attention_paged(*tensors, **ragged, **options, return_lse=True), want, problem.dtype)
    launch, programs = PortableLaunch(draw.choice((16, 32)), draw.choice((16, 32))), draw.choice((1, 2, 3, 7))
    if tensors[0].numel():
        compare(cut(tensors, options, launch, programs, **ragged), want, problem.dtype, f"{launch}, {programs}")


def test_what_lies_in_other_pages_and_behind_the_last_key_is_not_read():
    problem = Problem((21, 40), page=16)
    tensors, _ = make(problem)
    want = flash_attention_paged(*tensors)
    _, k, v, table, lengths = tensors
    mine = torch.zeros(k.shape[0], 16, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        t = torch.arange(length)
        mine[table[b, t // 16].long(), t % 16] = True
    for pages in (k, v):
        pages.masked_fill_(~mine[:, None, :, None].to(pages.device), float("nan"))
    assert torch.equal(flash_attention_paged(*tensors), want)


def test_equal_to_the_dense_op():
    """The same numbers, other addresses."""
    problem = Problem((48, 48), 3, page=16, D=40)
    tensors, _ = make(problem)
    q, k_pages, v_pages, table, _ = tensors
    k, v = (t[table[:, :3].long()].transpose(1, 2).flatten(2, 3) for t in (k_pages, v_pages))
    want = fl.flash_attention(q, k, v, causal=True, return_lse=True)
    for ours, theirs in zip(fl.flash_attention_paged(*tensors, return_lse=True), want, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_numbers_out_of_range_are_taken_for_the_nearest(monkeypatch):
    """Unchecked, nothing outside the tensors is read or written."""
    monkeypatch.setattr(paging, "INTERPRETED", False)
    tensors, _ = make(Problem((20, 30), page=16))
    q, k, v, table, lengths = tensors
    wild = table.clone()
    wild[0, 0], wild[1, 1] = 10**6, -(10**6)
    near = wild.clamp(0, k.shape[0] - 1)
    longest = torch.tensor([2**31 - 1, -5], dtype=torch.int32, device=DEVICE)
    clamped = torch.tensor([48, 0], dtype=torch.int32, device=DEVICE)
    got = flash_attention_paged(q, k, v, wild, longest)
    assert torch.equal(got, flash_attention_paged(q, k, v, near, clamped))
    ragged = q.transpose(1, 2).flatten(0, 1)
    starts = torch.tensor([-3, 1, 99], dtype=torch.int32, device=DEVICE)
    right = torch.tensor([0, 1, 2], dtype=torch.int32, device=DEVICE)
    got, want = (flash_attention_paged(ragged, k, v, near, lengths, cu_seqlens_q=cu) for cu in (starts, right))
    assert torch.equal(got, want)


def test_how_the_work_is_cut_depends_on_shapes_alone(monkeypatch):
    monkeypatch.setattr(paging, "sm_count", lambda device: 132)
    monkeypatch.setattr(paging, "shared_memory", lambda device: 232448)
    plans = {}
    for most, B, queries in ((1, 128, 1), (256, 1, 1), (4, 1, 1), (256, 128, 1), (16, 4, 512)):
        q, k = torch.empty(B, 32, queries, 128, dtype=fp16), torch.empty(1, 8, 256, 128, dtype=fp16)
        table, lengths = torch.empty(B, most, dtype=torch.int32), torch.empty(B, dtype=torch.int32)
        plans[most, B, queries] = PagedPlan.of(check_paged(q, k, k, table, lengths), 2, q.device)
    assert [plan.programs for plan in plans.values()] == [1024, 396, 34, 396, 264]
    assert [plan.split for plan in plans.values()] == [False, True, True, True, True]
    assert [plan.launch.block_m for plan in plans.values()] == [16, 16, 16, 16, 128]
    for page, room, programs in ((128, 232448, 396), (64, 232448, 264), (256, 166912, 264)):
        monkeypatch.setattr(paging, "shared_memory", lambda device: room)  # noqa: B023
        q, k = torch.empty(128, 32, 1, 128, dtype=fp16), torch.empty(1, 8, page, 128, dtype=fp16)
        table, lengths = torch.empty(128, 1024, dtype=torch.int32), torch.empty(128, dtype=torch.int32)
        assert PagedPlan.of(check_paged(q, k, k, table, lengths), 2, q.device).programs == programs


OCCUPANCY = """
import flashlearn.kernels
from flashlearn.compiler.compile_only import compile_for
launches = compile_for(90)
import torch
from flashlearn.core.options import plain_options
from flashlearn.core.pages import check_paged
from flashlearn.fast import paged as paging
paging.sm_count, paging.shared_memory = (lambda device: 132), (lambda device: 232448)
torch.cuda.get_device_capability = lambda *device: (9, 0)
for D, page in ((64, 16), (64, 256), (96, 128), (128, 16), (128, 64), (128, 128), (128, 256)):
    q = torch.empty(128, 32, 1, D, dtype=torch.float16)
    k = torch.empty(1024, 8, page, D, dtype=torch.float16)
    table, lengths = torch.zeros(128, 1024 // page, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    sizes, how = check_paged(q, k, k, table, lengths), plain_options(q.shape[-1], 0.1, causal=True)
    given = paging.PagedProblem(q, k, k, table, lengths, None, sizes, how)
    plan = paging.PagedPlan.of(given.sizes, 2, q.device)
    paging.paged(given, plan=plan, with_lse=False)
    room = min(65536 // (128 * launches[0].registers), 233472 // (launches[0].shared + 1024))
    print(D, page, plan.programs // 132, room, launches[0].spilled)
    launches.clear()
"""


@pytest.mark.slow  # a process of its own, which compiles
def test_as_many_programs_are_launched_as_find_room():
    """Those that find none begin when others are through: with pages of 16 or 64 keys one in three once did."""
    done = compiling(OCCUPANCY)
    assert not done.returncode, done.stderr
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert [launched for _, _, launched, _, _ in found] == [2, 3, 3, 2, 2, 3, 3]
    for D, page, launched, room, spilled in found:
        assert launched <= room and spilled <= 16, (D, page, launched, room, spilled)


GOOD = Problem((20, 30), page=16)
BAD = (  # what is put in the place of what, and what is said
    ("page_table", lambda t: t.fill_(9), r"page numbers of 0 to 6, got 9 in page_table\[0, 0\]"),
    ("page_table", lambda t: t.index_put_((torch.tensor(1), torch.tensor(0)), torch.tensor(-1, dtype=torch.int32)),
     r"page numbers of 0 to 6, got -1 in page_table\[1, 0\]"),
    ("lengths", lambda t: t.fill_(49), "lengths of 0 to 48, most [*] page, got 49 for sequence 0"),
    ("lengths", lambda t: t.fill_(-1), "lengths of 0 to 48, .* got -1"),
    ("lengths", lambda t: t[:1], r"lengths of shape \(2,\), got \(1,\)"),
    ("page_table", lambda t: t[0], r"page_table of shape \(B, most\), got \(3,\)"),
    ("page_table", lambda t: t.to("meta"), "page_table on the device of q, .*, got meta"),
    ("lengths", lambda t: t.to("meta"), "lengths on the device of q, .*, got meta"),
    ("k_pages", lambda t: t[:, :, :12], "k_pages and v_pages of one shape"),
    ("q", lambda t: t[:1], "q with B = 2, the rows of page_table"),
    ("q", lambda t: t[..., :8], "the same D of at least 1"),
    ("q", lambda t: t[:, :3], "multiple of those of the pages, got 3 and 2"),
    ("q", lambda t: t[0], r"q of shape \(B, H_q, N_q, D\), or \(T, H_q, D\) with cu_seqlens_q"),
    ("cu_seqlens_q", lambda t: torch.tensor([0, 1, 2], dtype=torch.int32), r"\(T, H_q, D\) with cu_seqlens_q"),
    ("sinks", lambda t: torch.zeros(3), r"sinks of shape \(H_q,\)"),
    ("softcap", lambda t: 0.0, "softcap to be positive"),
    ("window", lambda t: (-1, 0), "left of window to be at least 0"),
)  # fmt: skip


@pytest.mark.parametrize("name, change, message", BAD)
def test_bad_input(name, change, message):
    tensors, _options = make(GOOD)
    given = dict(zip(("q", "k_pages", "v_pages", "page_table", "lengths"), tensors, strict=True))
    given[name] = change(given.get(name))
    with pytest.raises(ValueError, match="expected .*" + message):
        flash_attention_paged(**given, check=True)


@pytest.mark.parametrize("page", (12, 24, 3))
def test_page_sizes_are_powers_of_two(page):
    tensors, _ = make(Problem((20,), page=page))
    with pytest.raises(ValueError, match=f"expected a page size that is a power of two, got {page}"):
        flash_attention_paged(*tensors)


@pytest.mark.parametrize("starts", ([0, 3, 2, 4], [1, 2, 3, 4], [0, 1, 2, 3]))
def test_queries_out_of_order(starts):
    tensors, _ = make(Problem((20, 30, 5), (1, 1, 2)))
    cu = torch.tensor(starts, dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError, match="cu_seqlens_q to rise from 0 to T = 4, got"):
        flash_attention_paged(*tensors, cu_seqlens_q=cu, check=True)


def test_wrong_types():
    (q, k, v, table, lengths), _ = make(GOOD)
    with pytest.raises(TypeError, match="page_table in int32, got torch.int64"):
        flash_attention_paged(q, k, v, table.long(), lengths)
    with pytest.raises(TypeError, match="q and the pages in one dtype"):
        flash_attention_paged(q, k.half(), v.half(), table, lengths)
    with pytest.raises(TypeError, match="float16, bfloat16 or float32, got torch.float64"):
        flash_attention_paged(q.double(), k.double(), v.double(), table, lengths)
    with pytest.raises(TypeError, match="lengths to be a torch.Tensor, got list"):
        flash_attention_paged(q, k, v, table, [20, 30])


@pytest.mark.parametrize("which", (0, 1, 2, 5), ids=("q", "k", "v", "sinks"))
def test_gradients_are_not_dropped_in_silence(which):
    given = [*make(GOOD)[0], torch.zeros(GOOD.H_kv * GOOD.group, device=DEVICE)]

    def call(changed):
        *tensors, sinks = [changed if place == which else t for place, t in enumerate(given)]
        return flash_attention_paged(*tensors, sinks=sinks)

    leaf = given[which].clone().requires_grad_()
    with pytest.raises(NotImplementedError, match="no backward pass"):
        call(leaf)
    with torch.no_grad():
        want = call(leaf)
    with forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"), torch.no_grad():
            call(forward_ad.make_dual(given[which], torch.ones_like(given[which])))
        assert torch.equal(call(given[which]), want)


# under torch.compile


@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
def test_a_compiled_caller_runs_it_uncompiled(backend):
    tensors, _ = make(GOOD)
    want, lse = flash_attention_paged(*tensors, window=(9, 0), return_lse=True)

    def caller(q, *others):
        o, lse = flash_attention_paged(q, *others, window=(9, 0), return_lse=True)
        return 2 * o, lse

    torch._dynamo.reset()
    compiled = torch.compile(caller, backend=backend)
    for _ in range(3):
        got = compiled(*tensors)
        assert torch.equal(got[0], 2 * want) and torch.equal(got[1], lse)
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(*tensors)
    plain = torch.compile(flash_attention_paged, backend=backend)(*tensors)
    assert torch.equal(plain, flash_attention_paged(*tensors))


def test_a_whole_graph_is_rejected():
    tensors, _ = make(GOOD)
    torch._dynamo.reset()
    with pytest.raises(
        torch._dynamo.exc.Unsupported, match="flash_attention_paged runs uncompiled: leave out fullgraph"
    ):
        torch.compile(flash_attention_paged, backend="eager", fullgraph=True)(*tensors)


# the same as steps: what they return, and what they read


def costs_of(problem: Problem, options):
    heads = problem.H_kv * problem.group, problem.H_kv
    seen = {name: options[name] for name in ("causal", "window") if name in options}
    return paged_cost(problem.lengths, queries_of(problem), heads, problem.D, dtype=problem.dtype, **seen)


@pytest.mark.parametrize("row", range(len(pairwise())))
@pytest.mark.parametrize("problem", (AWKWARD[6], AWKWARD[8], AWKWARD[5]), ids=str)
def test_the_steps_against_float64_and_bytes_against_the_formula(problem, row):
    options = with_sinks(pairwise()[row], problem)
    tensors, ragged = make(problem, "cpu")
    options = {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    steps = fl.record(fl.paged_attention_steps(*tensors, **ragged, **options, return_lse=True))
    compare(steps[-1].output, oracle(tensors, **ragged, **options), problem.dtype)
    cost, sinks = costs_of(problem, options), 4 * problem.H_kv * problem.group * len(problem.lengths)
    traffic = fl.hbm_bytes(steps)
    assert traffic.read == cost.read + (sinks if options["sinks"] is not None else 0)
    assert traffic.written == cost.written and fl.matmul_flops(steps) == cost.flops


def test_steps_say_which_page_is_read():
    problem = Problem((20, 0, 40), page=16)
    tensors, _ = make(problem, "cpu")
    steps = fl.record(fl.paged_attention_steps(*tensors))
    table = tensors[3]
    at = [(step.values["i"], step.values["j"], step.values["page"]) for step in steps[:-1]]
    pages = {(b, j): int(table[b, j]) for b, j in ((0, 0), (0, 1), (2, 0), (2, 1), (2, 2))}
    assert at == [(0, 0, pages[0, 0]), (0, 1, pages[0, 1]), (1, None, None), *((2, j, pages[2, j]) for j in range(3))]
    assert steps[1].values["cols"] == (16, 20) and steps[1].reads[0].rows == (pages[0, 1] * 16, pages[0, 1] * 16 + 4)
    assert f"its keys 16 to 19 are on page {pages[0, 1]};" in steps[1].sentence
    assert steps[2].sentence == "Sequence 1 attends to no key: nothing is read, and O is 0."
    assert steps[-1].sentence == "Done: 5 pages were read, each once for every head of K and V."
    assert set(steps[0].values) <= set(VALUES) | {"Q", "K", "V", "O", "lse"}


def test_bytes_of_a_token():
    """Decoding reads every key once per key head, and nothing else that grows with the cache."""
    before, after = (decode_cost((N, 7), 8, 2, 64) for N in (1000, 1001))
    assert after.read - before.read == cache_bytes(1, 2, 64)
    for N in (1, 1000):
        ours, theirs = paged_cost((N, 7), (1, 1), (8, 2), 64), decode_cost((N, 7), 8, 2, 64)
        assert (ours.read, ours.flops, ours.written - ours.extra) == (theirs.read, theirs.flops, theirs.written)
    window = [paged_cost((N,), (1,), (8, 2), 64, window=(99, 0)).read for N in (100, 1000, 10**6)]
    assert len(set(window)) == 1


@pytest.mark.parametrize("wrong", ({"windw": (1, 0)}, {"causal": 1}, {"return_lse": 0}))
def test_the_steps_refuse_what_they_do_not_know(wrong):
    tensors, _ = make(GOOD, "cpu")
    with pytest.raises(TypeError, match="expected"):
        fl.paged_attention(*tensors, **wrong)
    tensors[3].fill_(99)
    with pytest.raises(ValueError, match="page numbers of 0 to 6, got 99"):
        fl.paged_attention(*tensors)


RECORDED = (  # and whether any sequence is cut
    (AWKWARD[1], {}, 1, 16, False), (AWKWARD[4], {}, 5, 16, True), (AWKWARD[3], {"window": (40, 0)}, 3, 32, True),
    (Problem((100, 30), page=16, shared=True), {"causal": False}, 7, 64, True), (AWKWARD[8], {"softcap": 2.0}, 4, 16, True),
)  # fmt: skip


@needs_interpreter
@pytest.mark.parametrize("problem, options, programs, block_n, is_cut", RECORDED, ids=str)
def test_the_kernel_reads_what_the_formula_says(problem, options, programs, block_n, is_cut):
    """Recorded: nothing outside the tensors, no race, every key once per key head, no key that is not there."""
    tensors, ragged = make(problem)
    steps = fl.record(kernel_steps(cut, tensors, options, PortableLaunch(32, block_n), programs, **ragged))
    attention = [step for step in steps if step.phase == "attention_paged"]
    cost, e = costs_of(problem, options), problem.dtype.itemsize
    rows = tensors[0].numel() * e
    unseen = [n for n, length in zip(queries_of(problem), problem.lengths, strict=True) if not length]
    rows -= sum(unseen) * problem.H_kv * problem.group * problem.D * e
    assert hbm_bytes(attention, "K").read == hbm_bytes(attention, "V").read == (cost.read - rows) // 2
    pieces = hbm_bytes(attention, "o_splits").written // (4 * problem.D)
    assert hbm_bytes(attention, "Q").read >= rows and is_cut == (pieces > 0)
    assert pieces <= 2 * programs * 32
    assert hbm_bytes(steps, "O").written == tensors[0].numel() * e, "every row once"
    assert hbm_bytes(steps, "lse").written == 4 * tensors[0].numel() // problem.D
    merged = [step for step in steps if step.phase == "attention_paged_merge"]
    assert not pieces or hbm_bytes(merged, "o_splits").read == 4 * problem.D * pieces, "every piece is merged once"


def queries_of(problem: Problem) -> tuple[int, ...]:
    return problem.queries if isinstance(problem.queries, tuple) else (problem.queries,) * len(problem.lengths)


@needs_interpreter
def test_wild_numbers_lead_nowhere(monkeypatch):
    """Unchecked, every address is inside a tensor: the recorder watches each."""
    monkeypatch.setattr(paging, "INTERPRETED", False)
    (q, k, v, table, lengths), _ = make(Problem((20, 30, 4), page=16))
    table.copy_(torch.tensor([10**9, -(10**9), 3], dtype=torch.int32))
    ragged = q.transpose(1, 2).flatten(0, 1)
    for wild in ([2**31 - 1, -5, 48], [7, 10**6, 10**6]):
        lengths.copy_(torch.tensor(wild, dtype=torch.int32))
        fl.record(kernel_steps(flash_attention_paged, q, k, v, table, lengths))
        for starts in ([0, 1, 2, 10**6], [0, 1, -7, 3], [-(2**31), 0, 0, 2**31 - 1]):
            cu = torch.tensor(starts, dtype=torch.int32)
            with contextlib.suppress(Race):  # of sequences that claim the same queries
                fl.record(kernel_steps(flash_attention_paged, ragged, k, v, table, lengths, cu_seqlens_q=cu))


COMPILE = """
import sys, torch
from types import SimpleNamespace
from flashlearn.compiler.compile_only import SHARED, compile_for
import flashlearn.fast.paged as paging
gpu = int(sys.argv[1])
launches = compile_for(gpu)
properties = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=SHARED[gpu])
torch.cuda.get_device_properties = lambda device=None: properties
torch.cuda.get_device_capability = lambda device=None: divmod(gpu, 10)
paging.check_device = lambda *_: None
sinks = torch.zeros(8)
for dtype, B, queries, most, page, options in (
    ("float16", 4, 1, 64, 64, {}),
    ("bfloat16", 4, 1, 512, 16, {}),
    ("float16", 4, 1, 4, 64, {}),
    ("float16", 1, 512, 64, 256, {}),
    ("bfloat16", 1, 512, 64, 16, {"window": (100, 0), "softcap": 30.0, "sinks": sinks}),
    ("float32", 4, 1, 64, 16, {}),
):
    q, k = (torch.empty(shape, dtype=getattr(torch, dtype)) for shape in ((B, 8, queries, 128), (8, 2, page, 128)))
    table, lengths = torch.zeros(B, most, dtype=torch.int32), torch.zeros(B, dtype=torch.int32)
    launches.clear()
    paging.flash_attention_paged(q, k, k, table, lengths, **options)
    print(*(f"{launch.kernel} {launch.shared} {launch.spilled}" for launch in launches), sep=", ")
"""


@pytest.mark.slow
@pytest.mark.parametrize("gpu", (80, 90))
def test_the_kernels_compile_and_keep_two_tiles_under_way(gpu):
    """For GPUs that are not there; four tiles of 64 keys in shared memory are two of K and two of V. A Hopper GPU has a
    kernel of its own for few queries in 16 bits, which tests/test_paged_hopper.py compiles in other ways too."""
    env = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(gpu)], env=env, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [[launch.split() for launch in line.split(", ")] for line in done.stdout.splitlines()]
    main, merge = "attention_paged_kernel", "attention_paged_merge_kernel"
    few = "attention_paged_hopper_kernel" if gpu == 90 else main
    assert [[name for name, _, _ in launches] for launches in found] == [[few, merge]] * 2 + [[few]] + [
        [main, merge]
    ] * 3
    for launches in found:
        assert int(launches[0][1]) >= 4 * 64 * 128 * 2, f"one tile at a time: {launches}"
        assert all(int(spilled) <= 320 for _, _, spilled in launches), launches
    assert all(int(spilled) <= 16 for launches in found[:3] for _, _, spilled in launches), "decoding in 16 bits spills"


@pytest.mark.parametrize("ragged", (False, True))
def test_pages_before_the_window_may_be_gone(ragged):
    """A cache that freed them has -1 in the table; what stands at the first page that is attended to is still checked."""
    left, page, length, queries = 8, 16, 60, 2
    tensors, _ = make(Problem((length,), queries, page=page))
    options = {"window": (left, 0)}
    if ragged:
        tensors = (tensors[0][0].transpose(0, 1).contiguous(), *tensors[1:])
        options["cu_seqlens_q"] = torch.tensor([0, queries], dtype=torch.int32)
    want = flash_attention_paged(*tensors, **options, check=True)
    first = (length - queries - left) // page  # 50 // 16: page 3
    table = tensors[3].clone()
    table[:, :first] = -1
    for attention in (flash_attention_paged, fl.paged_attention):
        torch.testing.assert_close(attention(*tensors[:3], table, tensors[4], **options), want)
    table[:, first] = -1
    for attention in (flash_attention_paged, fl.paged_attention):
        with pytest.raises(ValueError, match=rf"page numbers of 0 to .*, got -1 in page_table\[0, {first}\]"):
            attention(*tensors[:3], table, tensors[4], **options)
    table[:, first] = tensors[3][:, first]
    with pytest.raises(ValueError, match=r"got -1 in page_table\[0, 0\]"):
        flash_attention_paged(*tensors[:3], table, tensors[4], cu_seqlens_q=options.get("cu_seqlens_q"), check=True)
