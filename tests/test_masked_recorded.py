"""What the portable kernels move with masks: the bytes of the blocks that are visited, no stray access, no race."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is recorded", allow_module_level=True)

from flashlearn.algorithms.attention import spans
from flashlearn.core.inputs import check_qkv
from flashlearn.core.mask import Mask
from flashlearn.core.options import AttentionOptions, plain_options
from flashlearn.core.steps import Tile, hbm_bytes
from flashlearn.core.target import INTERPRETED
from flashlearn.fast.portable.backward import BackwardCall, attention_gradients
from flashlearn.fast.portable.forward import attention_forward_portable
from flashlearn.fast.portable.launches import PortableLaunch
from flashlearn.fast.portable.masks import find_tiles
from flashlearn.kernels.recorder import Race, StrayAccess, _Recording, kernel_steps
from tests.grid import fp16, make
from tests.masked import Problem, given, offsets_of, without_gradients
from tests.slow import every, slow

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled here: nothing to record")

BLOCKS = PortableLaunch(16, 32)
PROBLEMS = (
    Problem(63, 70, 16, window=(20, 3), H_q=2, H_kv=1),
    Problem(70, 63, 16, causal=True, window=(0, None), sinks=True, dtype=fp16),
    Problem(40, 100, 24, window=(200, 200), softcap=5.0, alibi=True),
    Problem(70, 70, 16, documents=(1, 0, 33, 16, 20), causal=True, H_q=2, H_kv=1, alibi=True),
    Problem(17, 17, 16, documents=(1,) * 17, sinks=True),  # more than a block of them
    Problem(50, 100, 16, B=3, key_range=((0, 100), (37, 64), (50, 50)), causal=True, window=(30, None)),
    Problem(70, 70, 16, B=2, key_range=((3, 60), (32, 33)), documents=(30, 40), window=(9, 9)),
)


def low_level(problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> BackwardCall:
    options = AttentionOptions.of(check_qkv(q, k, v), q, **without_gradients(given(problem)))
    return BackwardCall(options, launch=BLOCKS, launch_dq=BLOCKS, slopes=problem.alibi)


def recorded(problem: Problem) -> dict[str, list]:
    """{kernel: its steps}, forward and backward."""
    q, k, v, do = make(problem)
    how = low_level(problem, q, k, v)
    options = how.options
    forward = list(kernel_steps(attention_forward_portable, q, k, v, launch=BLOCKS, options=options))
    o, lse = forward[-1].output
    backward = list(kernel_steps(attention_gradients, do, q, k, v, o, lse, None, how))
    steps: dict[str, list] = {}
    for step in forward[:-1] + backward[:-1]:
        steps.setdefault(step.phase.removeprefix("attention_").removesuffix("_portable"), []).append(step)
    return steps


def sequences(problem: Problem) -> list[Mask]:
    """A mask for each sequence that a kernel treats on its own: of the batch, and in it of the documents."""
    left, right = problem.window or (None, None)
    masks = []
    for b in range(problem.B):
        start, stop = problem.key_range[b] if problem.key_range else (0, problem.N_k)
        first = 0
        for n in problem.documents or (problem.N_k,):
            there = (min(max(start - first, 0), n), min(max(stop - first, 0), n))
            N_q = n if problem.documents else problem.N_q
            masks.append(Mask(N_q, n, left, 0 if problem.causal else right, None, (there,)))
            first += n
    return masks


def existing(mask: Mask, cols) -> int:
    start, stop = mask.key_range[0]
    return max(0, min(cols[1], stop) - max(cols[0], start))


def programs(problem: Problem, N: int, block: int) -> int:
    """Tiles along N, over the batch."""
    return problem.B * (N // block + len(problem.documents) if problem.documents else -(-N // block))


def small(problem: Problem) -> int:
    """Bytes that a program reads to know what it does: its place, and which keys exist."""
    return 20 * bool(problem.documents) + 8 * bool(problem.key_range)


def row_bytes(problem: Problem) -> int:
    return problem.D * problem.dtype.itemsize


def forward_bytes(problem: Problem) -> tuple[int, int]:
    """K and V of the blocks that a block of queries visits; Q if there are any; O and lse written."""
    row, read = row_bytes(problem), 0
    for mask in sequences(problem):
        for rows in spans(mask.N_q, 16):
            visited = mask.key_blocks(rows, 32)
            read += bool(visited) * (rows[1] - rows[0]) * row
            read += sum(2 * row * existing(mask, cols) for _, cols in visited)
    few = small(problem) + 4 * problem.alibi + 4 * problem.sinks
    written = problem.B * problem.N_q * (row + 4)
    return problem.H_q * (read + few * programs(problem, problem.N_q, 16)), problem.H_q * written


def dq_bytes(problem: Problem) -> tuple[int, int]:
    """As forward, with dO; of every query two numbers, and one more written where slopes have a gradient."""
    row, read = row_bytes(problem), 0
    for mask in sequences(problem):
        for rows in spans(mask.N_q, 16):
            visited = mask.key_blocks(rows, 32)
            read += (rows[1] - rows[0]) * (8 + bool(visited) * 2 * row)
            read += sum(2 * row * existing(mask, cols) for _, cols in visited)
    few = small(problem) + 4 * problem.alibi
    written = problem.B * problem.N_q * (row + 4 * problem.alibi)
    return problem.H_q * (read + few * programs(problem, problem.N_q, 16)), problem.H_q * written


def dkdv_bytes(problem: Problem) -> tuple[int, int]:
    """K and V once, as far as they exist; Q, dO and two numbers a query for every head and block that sees a block."""
    row, of_keys, of_queries = row_bytes(problem), 0, 0
    for mask in sequences(problem):
        for cols in spans(mask.N_k, 32):
            of_keys += 2 * row * existing(mask, cols)
            for _, rows in mask.query_blocks(cols, 16):
                of_queries += (rows[1] - rows[0]) * (2 * row + 8) + 4 * problem.alibi
    of_keys += small(problem) * programs(problem, problem.N_k, 32)
    written = 2 * row * problem.B * problem.H_kv * problem.N_k
    return problem.H_kv * of_keys + problem.H_q * of_queries, written


@pytest.mark.parametrize("problem", [slow(p) if p.B == 3 else p for p in PROBLEMS], ids=str)
def test_bytes_are_those_of_the_blocks_visited(problem):
    steps = recorded(problem)
    formulas = {"forward": forward_bytes, "dq": dq_bytes, "dkdv": dkdv_bytes}
    for kernel, formula in formulas.items():
        assert hbm_bytes(steps[kernel]) == formula(problem), kernel


def test_a_window_that_is_ignored_shows_in_the_bytes(monkeypatch):
    problem = PROBLEMS[0]
    q, k, v, _ = make(problem)
    options = low_level(problem, q, k, v).options
    steps = list(kernel_steps(attention_forward_portable, q, k, v, launch=BLOCKS, options=options._replace(left=None)))
    assert hbm_bytes(steps[:-1]) != forward_bytes(problem)


def test_a_longer_sequence_moves_no_more_a_query_in_a_window():
    short, long = (Problem(N, N, 16, causal=True, window=(31, None), H_q=1, H_kv=1) for N in (256, 512))
    read = [forward_bytes(problem)[0] for problem in (short, long)]
    assert 1.9 < read[1] / read[0] < 2.1, "expected bytes that grow as N, not as N^2"


@pytest.mark.parametrize("problem", every(2, (PROBLEMS[0], PROBLEMS[3], PROBLEMS[6], PROBLEMS[5])), ids=str)
def test_steps_say_what_is_masked(problem):
    """Only blocks that need a mask are told to have one; every visited block shows some query a key."""
    q, k, v, _ = make(problem)
    options = low_level(problem, q, k, v).options
    steps = kernel_steps(attention_forward_portable, q, k, v, launch=BLOCKS, options=options)
    whole = Mask(
        problem.N_q, problem.N_k, (problem.window or (None, None))[0],
        0 if problem.causal else (problem.window or (None, None))[1],
        None if problem.documents is None else tuple(offsets_of(problem.documents).tolist()), None,
    )  # fmt: skip
    seen = 0
    for step in steps:
        if step.values.get("j") is None or not any(isinstance(t, Tile) and t.name == "K" for t in step.reads):
            continue
        batch = step.on_chip[0].index[0][0] if step.on_chip[0].name == "Q" else step.program[2]
        mask = replace(whole, key_range=(problem.key_range[batch],)) if problem.key_range else whole
        rows, cols = step.values["rows"], step.values["cols"]
        assert mask.attends(rows, cols) and step.values["masked"] == mask.crosses(rows, cols)
        seen += 1
    assert seen > 3


@pytest.mark.parametrize("block", (16, 64))
@pytest.mark.parametrize("lengths", ((70,), (0, 0, 5, 16, 1, 64, 0), (1,) * 40, (0,), (63, 1, 129)), ids=str)
def test_every_block_of_every_sequence_has_one_tile(lengths, block):
    cut, other = offsets_of(lengths), offsets_of(tuple(reversed(lengths)))
    N = sum(lengths)
    places = find_tiles(cut, other, N, N, block).tolist()
    found = [(first, length, start) for start, first, length, *_ in places if length]
    want = [
        (first, length, start)
        for first, length in zip(cut.tolist(), lengths, strict=False)
        for start in range(0, length, block)
    ]
    assert found == want and len(places) == N // block + len(lengths)
    firsts = dict(zip(cut.tolist()[:-1], zip(other.tolist(), reversed(lengths), strict=False), strict=True))
    for _, first, length, *theirs in places:
        assert not length or tuple(theirs) == firsts[first]


BAD = (
    [0, 90, 10, -7, 70],
    [5, 10**9, -(10**9), 2, 3],
    [70, 0, 0, 0, 0],
    [-5, -4, -3, -2, -1],
    [80, 90, 95, 99, 2**31 - 1],
)


@pytest.mark.parametrize("offsets", every(4, BAD), ids=str)
def test_bad_offsets_unchecked_read_nothing_outside(offsets, monkeypatch):
    """They may have two programs write one row, which nobody is to rely on; StrayAccess would be raised."""
    monkeypatch.setattr(_Recording, "_reject_race", lambda *_: None)
    problem = Problem(70, 70, 16, causal=True, H_q=1, H_kv=1)
    q, k, v, do = make(problem)
    cut = torch.tensor(offsets, dtype=torch.int32)
    bad_range = (torch.tensor([-9], dtype=torch.int32), torch.tensor([10**9], dtype=torch.int32))
    causal = plain_options(16, 0.25, causal=True)
    for options in (causal._replace(offsets=(cut, None)), causal._replace(offsets=(cut, None), key_range=bad_range)):
        forward = list(kernel_steps(attention_forward_portable, q, k, v, launch=BLOCKS, options=options))
        o, lse = forward[-1].output
        how = BackwardCall(options, launch=BLOCKS, launch_dq=BLOCKS)
        list(kernel_steps(attention_gradients, do, q, k, v, o.nan_to_num(), lse.nan_to_num(), None, how))


def test_without_clamping_that_would_be_seen(monkeypatch):
    monkeypatch.setattr(_Recording, "_reject_race", lambda *_: None)
    q, k, v, _ = make(Problem(70, 70, 16, H_q=1, H_kv=1))
    monkeypatch.setattr(
        "flashlearn.fast.portable.masks.find_tiles",
        lambda *_: torch.tensor([[0, 60, 16, 0, 70]], dtype=torch.int32),
    )
    options = plain_options(16, 0.25, causal=False)._replace(offsets=(offsets_of((70,)), None))
    with pytest.raises((StrayAccess, Race)):
        list(kernel_steps(attention_forward_portable, q, k, v, launch=BLOCKS, options=options))
