"""The recorder: real kernels move the bytes that the formulas say, and faulty ones are caught."""

from __future__ import annotations

import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: no kernel is recorded", allow_module_level=True)

import triton
import triton.language as tl

from flashlearn import kernels
from flashlearn.algorithms.attention import spans
from flashlearn.algorithms.matmul import tiled_matmul_steps
from flashlearn.algorithms.tiled import tiled_attention_v2_steps
from flashlearn.core.steps import hbm_bytes, last, record, sram_peak
from flashlearn.core.target import INTERPRETED
from flashlearn.cost import v2_cost
from flashlearn.kernels.forward import Launch
from flashlearn.kernels.recorder import Race, StrayAccess, Unrecordable, kernel_steps
from tests.grid import Case, fp16, fp32, make
from tests.slow import slow

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled here: nothing to record")

CASES = (
    Case(1, 1, 1, block_q=16, block_k=16),
    Case(100, 100, 24, causal=True, block_q=32, block_k=16),
    Case(100, 111, 16, H_q=4, H_kv=2, B=2, dtype=fp16, block_q=16, block_k=32, layout="strided"),
    Case(63, 130, 16, causal=True, H_q=2, H_kv=1, block_q=32, block_k=32, layout="transposed"),
    Case(20, 40, 16, H_q=2, H_kv=1, B=2, dtype=fp16, block_q=16, block_k=32, layout="strided"),
    Case(130, 63, 40, causal=True, layout="packed", block_q=32, block_k=16),  # 67 rows see no key
)


LONG = {CASES[2]}  # 8 heads
every_case = pytest.mark.parametrize("case", [slow(case) if case in LONG else case for case in CASES], ids=str)


def visits(case: Case) -> list[tuple[int, int]]:
    """(queries, keys) of every pair of blocks that some query of the one sees some key of the other in."""
    shift = case.N_k - case.N_q
    return [
        (q1 - q0, k1 - k0)
        for q0, q1 in spans(case.N_q, case.block_q)
        for k0, k1 in spans(case.N_k, case.block_k)
        if not case.causal or k0 <= q1 - 1 + shift
    ]


def rows_seeing(case: Case) -> int:
    """Queries in blocks that see any key: the others are not even read."""
    shift = case.N_k - case.N_q
    return sum(q1 - q0 for q0, q1 in spans(case.N_q, case.block_q) if not case.causal or q1 + shift > 0)


def forward_bytes(case: Case) -> tuple[int, int]:
    """read    e D (N_seen + 2 sum over visits of keys)     written    N_q (e D + 4), for each query head"""
    e, heads = case.dtype.itemsize, case.B * case.H_q
    read = e * case.D * (rows_seeing(case) + 2 * sum(keys for _, keys in visits(case)))
    return heads * read, heads * case.N_q * (e * case.D + 4)


def dkdv_bytes(case: Case) -> tuple[int, int]:
    """read    2 e D N_k for each key head, and (2 e D + 8) sum over visits of queries for each query head
    written 2 e D N_k for each key head

    The 8 bytes are lse and delta of a query.
    """
    e, per_key_head = case.dtype.itemsize, 2 * case.dtype.itemsize * case.D * case.N_k * case.B * case.H_kv
    queries = case.B * case.H_q * sum(queries for queries, _ in visits(case))
    return per_key_head + (2 * e * case.D + 8) * queries, per_key_head


def dq_bytes(case: Case) -> tuple[int, int]:
    """read    (2 e D + 8) N_seen + 2 e D sum over visits of keys     written    e D N_q, for each query head"""
    e, heads = case.dtype.itemsize, case.B * case.H_q
    read = (2 * e * case.D + 8) * rows_seeing(case) + 2 * e * case.D * sum(keys for _, keys in visits(case))
    return heads * read, heads * e * case.D * case.N_q


def delta_bytes(case: Case) -> tuple[int, int]:
    """read    2 e D N_q     written    4 N_q, for each query head"""
    queries = case.B * case.H_q * case.N_q
    return 2 * case.dtype.itemsize * case.D * queries, 4 * queries


def recorded(case: Case):
    """Steps of the forward and of the backward kernels."""
    q, k, v, do = make(case)
    options = {"causal": case.causal, "launch": Launch(case.block_q, case.block_k)}
    forward = record(kernel_steps(kernels.attention_forward, q, k, v, **options))
    backward = record(kernel_steps(kernels.attention_backward, do, q, k, v, *forward[-1].output, **options))
    return forward, backward


@every_case
def test_bytes_equal_the_formulas(case):
    forward, backward = recorded(case)
    assert hbm_bytes(forward) == forward_bytes(case)
    formulas = {"delta": delta_bytes, "attention_dkdv": dkdv_bytes, "attention_dq": dq_bytes}
    for kernel, formula in formulas.items():
        assert hbm_bytes(step for step in backward if step.phase == kernel) == formula(case), kernel


@every_case
def test_forward_bytes_equal_the_cost_of_tiled_attention_v2(case):
    q, k, v, _ = make(case)
    launch = Launch(case.block_q, case.block_k)
    steps = kernel_steps(kernels.attention_forward, q, k, v, causal=case.causal, launch=launch)
    blocks = {"block_q": case.block_q, "block_k": case.block_k}
    sizes = (case.B, case.H_q, case.N_q, case.N_k, case.D)
    cost = v2_cost(*sizes, dtype=case.dtype, causal=case.causal, **blocks)
    assert hbm_bytes(steps) == (cost.read, cost.written)


def test_the_kernel_walks_the_tiles_of_tiled_attention_v2():
    """One program of the kernel reads and writes, step by step, what one head of the algorithm does."""
    case = Case(50, 70, 16, causal=True, H_q=1, H_kv=1)
    q, k, v, _ = make(case)
    kernel = record(kernel_steps(kernels.attention_forward, q, k, v, causal=True, launch=Launch(16, 32)))
    algorithm = record(tiled_attention_v2_steps(q, k, v, causal=True, block_q=16, block_k=32))
    for ours, theirs in zip(kernel[:-1], algorithm[:-1], strict=True):
        assert sorted(map(str, ours.reads)) == sorted(map(str, theirs.reads))
        assert sorted(map(str, ours.writes)) == sorted(map(str, theirs.writes))
        for name in ("i", "j", "rows", "cols", "masked"):
            assert ours.values[name] == theirs.values[name], name


def test_recording_changes_no_result():
    case = Case(20, 40, 16, causal=True, block_q=16, block_k=16)
    forward, backward = recorded(case)
    q, k, v, do = make(case)
    launch = Launch(case.block_q, case.block_k)
    o, lse = kernels.attention_forward(q, k, v, causal=True, launch=launch)
    assert all(map(torch.equal, forward[-1].output, (o, lse)))
    grads = kernels.attention_backward(do, q, k, v, o, lse, causal=True, launch=launch)
    assert all(map(torch.equal, backward[-1].output, grads))
    assert torch.equal(forward[-2].written("O").float(), o)
    assert torch.equal(forward[-2].written("lse")[..., 0].float(), lse)


def test_products_are_counted_with_their_padding():
    q, k, v, _ = make(Case(20, 20, 10, H_q=1, H_kv=1))
    first = next(kernel_steps(kernels.attention_forward, q, k, v, launch=Launch(16, 32)))
    assert first.matmuls == ((1, 16, 16, 32), (1, 16, 32, 16))
    assert {tile.name: tile.shape for tile in first.on_chip}["S"] == (1, 1, 16, 20)


def test_other_kernels():
    x = torch.randn(3000)
    steps = record(kernel_steps(kernels.vector_add, x, x))  # one tensor, twice
    assert len(steps) == 3 + 1 and hbm_bytes(steps) == (2 * 3000 * 4, 3000 * 4)
    assert steps[2].reads[0].index == ((2048, 3000),)
    steps = record(kernel_steps(kernels.softmax, torch.randn(5, 7).T))
    assert [step.program for step in steps[:-1]] == [(row,) for row in range(7)]
    assert hbm_bytes(steps) == (5 * 7 * 4, 5 * 7 * 4)
    a, b = torch.randn(40, 50), torch.randn(50, 30)
    steps = record(kernel_steps(kernels.matmul, a, b, block_m=32, block_n=16, block_k=32))
    assert hbm_bytes(steps, "A", "B") == (4 * (40 * 50 * 2 + 50 * 30 * 2), 0)
    assert hbm_bytes(steps, "C") == (0, 4 * 40 * 30)
    torch.testing.assert_close(steps[-1].output, a @ b)
    algorithm = record(tiled_matmul_steps(a, b, block_m=32, block_n=16, block_k=32))
    tiles = [[sorted(map(str, step.on_chip)) for step in run] for run in (steps, algorithm)]
    assert tiles[0] == tiles[1] and sram_peak(steps) == sram_peak(algorithm)


def test_expanded_inputs_show_the_entry_that_exists():
    q, k, v, _ = make(Case(16, 16, 16, H_q=2, H_kv=2, layout="expanded"))
    steps = record(kernel_steps(kernels.attention_forward, q, k, v, launch=Launch(16, 16)))
    assert {str(t) for s in steps for t in s.reads if t.name == "K"} == {"K[0:1, 0:1, 0:16, 0:16]"}


@triton.jit
def shift_kernel(x_ptr, y_ptr, N, SHIFT: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """y_i = x_{i + SHIFT}: right for SHIFT = 0 and MASKED only."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs < N) | (not MASKED)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs + SHIFT, mask=mask), mask=mask)


@triton.jit
def overlap_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """Every program writes one element of its neighbour's."""
    offs = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < N), mask=offs < N)


@triton.jit
def in_place_kernel(x_ptr, N, BLOCK: tl.constexpr):
    """x_i = x_{i + 1}, in place: the programs depend on each other."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs + 1, mask=offs + 1 < N)
    tl.store(x_ptr + offs, x, mask=offs + 1 < N)


@triton.jit
def diagonal_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """The diagonal of x: no rectangle."""
    offs = tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs * (N + 1), mask=offs < N), mask=offs < N)


@triton.jit
def count_kernel(x_ptr, N, BLOCK: tl.constexpr):
    """Every program adds 1 to every element."""
    offs = tl.arange(0, BLOCK)
    tl.atomic_add(x_ptr + offs, 1.0, mask=offs < N)


def shift(x, **options):
    y = torch.empty_like(x)
    shift_kernel[(triton.cdiv(len(x), 16),)](x, y, len(x), **{"SHIFT": 0, "MASKED": True, **options}, BLOCK=16)
    return y


def launch(kernel, grid, *tensors):
    kernel[grid](*tensors, len(tensors[0]), BLOCK=16)


def test_a_grid_may_be_a_function_of_the_arguments():
    x, y = torch.arange(10.0), torch.empty(10)

    def launcher():
        shift_kernel[lambda meta: (triton.cdiv(meta["N"], meta["BLOCK"]),)](x, y, 10, SHIFT=0, MASKED=True, BLOCK=4)

    steps = record(kernel_steps(launcher))
    assert len({step.program for step in steps[:-1]}) == 3 and torch.equal(x, y)
    assert torch.equal(last(kernel_steps(shift, x)).output, x)


STRAY = (  # options of `shift`, and what is said
    ({"SHIFT": 1}, r"shift, program \(2,\): load of what is no element of any tensor; it would be element 40 of x, which has "
                   r"shape \(40,\), strides \(1,\) and elements 0 to 39$"),
    ({"SHIFT": -1}, r"shift, program \(0,\): load .* element -1 of x"),
    ({"MASKED": False}, r"program \(2,\): load .* element 40 of x"),
)  # fmt: skip


@pytest.mark.parametrize("options, message", STRAY, ids=str)
def test_out_of_bounds_is_caught(options, message):
    with pytest.raises(StrayAccess, match=message):
        list(kernel_steps(shift, torch.randn(40), **options))


def test_a_stray_is_told_the_same_wherever_the_tensors_lie():
    messages = set()
    for size in (40, 4000, 400000):  # other allocations, and x far from where it was
        others = [torch.empty(size) for _ in range(9)]
        with pytest.raises(StrayAccess, match="element 30040 of x") as stray:
            list(kernel_steps(shift, torch.randn(40), SHIFT=30040))
        messages.add(str(stray.value))
        del others
    assert len(messages) == 1


def test_a_gap_between_strides_is_out_of_bounds():
    with pytest.raises(StrayAccess, match=r"element 0 of x, .* strides \(2,\)"):
        list(kernel_steps(shift, torch.randn(80)[::2]))  # the kernel takes no stride: it reads the gaps


@pytest.mark.parametrize(
    "kernel, tensors, message",
    (
        (overlap_kernel, 2, r"program \(1,\) writes what program \(0,\) writes: element 15 of y"),
        (in_place_kernel, 1, r"program \(1,\) writes what program \(0,\) reads: element 16 of x"),
    ),
)
def test_races_are_caught(kernel, tensors, message):
    with pytest.raises(Race, match=message):
        list(kernel_steps(launch, kernel, (2,), *(torch.randn(32) for _ in range(tensors))))


def test_what_is_no_tile_is_rejected():
    with pytest.raises(Unrecordable, match="^expected a rectangle of x, got 8 elements"):
        list(kernel_steps(launch, diagonal_kernel, (1,), torch.randn(8, 8), torch.randn(8)))


@triton.jit
def sum_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr, OTHER: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + at, mask=at < N, other=OTHER), 0))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
def test_what_a_mask_hides_is_undefined_unless_other_says_what_it_is(dtype):
    x = torch.ones(5, dtype=dtype)
    for block, other, right in ((8, 0.0, True), (8, None, False), (4, None, True)):
        y = torch.zeros(1)
        list(kernel_steps(lambda y=y, more=(block, other): sum_kernel[(1,)](x, y, 5, *more)))
        assert y.item() == min(block, 5) if right else y.isnan().all()


def test_atomic_operations_are_rejected():
    with pytest.raises(Unrecordable, match="^expected loads and stores, got an atomic operation in count$"):
        list(kernel_steps(launch, count_kernel, (2,), torch.zeros(4)))


def test_a_wrong_tile_shows_in_the_bytes_and_the_tiles():
    """A kernel that forgets to skip masked blocks gives the right result, and the recorder tells."""
    case = Case(64, 64, 16, causal=True, H_q=1, H_kv=1, block_q=16, block_k=16, dtype=fp32)
    q, k, v, _ = make(case)
    steps = record(kernel_steps(kernels.attention_forward, q, k, v, launch=Launch(16, 16)))  # not causal
    assert hbm_bytes(steps).read > forward_bytes(case)[0]
    seen = {step.values["i"]: step.values["j"] for step in steps[:-1]}  # the last key block of each program
    assert seen == {0: 3, 1: 3, 2: 3, 3: 3}
