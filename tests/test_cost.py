"""Bytes and FLOPs counted from the steps equal the formulas, and grow as the asymptotic claims say."""

import itertools
import math
from dataclasses import fields
from functools import partial

import numpy as np
import pytest
import torch

import flashlearn as fl
from flashlearn.core.mask import Mask
from flashlearn.core.steps import Step, hbm_bytes, matmul_flops
from flashlearn.cost import (
    A100_40GB,
    ATTENTION_COSTS,
    HARDWARE,
    RTX_4060_LAPTOP,
    Cost,
    communication,
    fitted,
    formulas,
    fused_backward_cost,
    ideal_cost,
    intensities,
    matmul_cost,
    one_pass_cost,
    operations,
    placement,
    placement_table,
    race,
    serving,
    softmax_cost,
    standard_backward_cost,
    standard_cost,
    standard_kernels,
    stored_backward_cost,
    two_pass_backward_cost,
    two_pass_cost,
    v1_cost,
    v2_cost,
)
from flashlearn.cost import counted as counted_by_the_package
from flashlearn.cost.formulas import _keys_of_queries, _work
from tests.grid import CASES, DTYPES, Case, make, traits, work
from tests.slow import covering, slow

STEPS = {
    "standard_attention": fl.standard_attention_steps,
    "two_pass_attention": fl.two_pass_attention_steps,
    "one_pass_attention": fl.one_pass_attention_steps,
    "tiled_attention_v1": fl.tiled_attention_v1_steps,
    "tiled_attention_v2": fl.tiled_attention_v2_steps,
}
# small, for every pairing of sizes, blocks and dtype; the grid adds ragged and large ones
LITTLE = [
    Case(N_q, N_k, 3, causal=causal, dtype=dtype, H_q=4, H_kv=2, B=2, block_q=block_q, block_k=block_k)
    for (N_q, N_k), (block_q, block_k), causal, dtype in itertools.product(
        [(7, 7), (5, 9), (9, 5), (1, 6), (6, 1), (0, 3), (3, 0)],
        [(2, 3), (4, 1), (64, 64)],
        (False, True),
        (torch.float16, torch.float32),
    )
]


def counted(steps) -> Cost:
    """The cost that a run had: extra is what was written besides O, and O as long as it is held wider."""
    steps = list(steps)
    written = [tile for step in steps for tile in step.writes]
    kept = {tile.name: (math.prod(steps[0].shapes[tile.name]), tile.itemsize) for tile in written if tile.name != "O"}
    widths = [tile.itemsize for tile in written if tile.name == "O"]
    o = steps[-1].output
    held_wide = o.numel() * (max(widths) - o.element_size()) if widths and o.numel() else 0
    traffic = hbm_bytes(steps)
    extra = sum(numel * itemsize for numel, itemsize in kept.values())
    return Cost(traffic.read, traffic.written, matmul_flops(steps), extra + held_wide)


def options(name: str, case: Case) -> dict:
    wanted = {"standard": (), "two_pass": ("block_k",), "one_pass": ("block_k",)}
    return {b: getattr(case, b) for b in wanted.get(name.removesuffix("_attention"), ("block_q", "block_k"))}


def both_costs(name, case, **more):
    q, k, v, _ = make(case)
    blocks = options(name, case) | more
    sizes = (case.B, case.H_q, case.N_q, case.N_k, case.D)
    formula = ATTENTION_COSTS[name](*sizes, dtype=case.dtype, causal=case.causal, **blocks)
    return counted(STEPS[name](q, k, v, causal=case.causal, **blocks)), formula


COVER = [p.values[0] for p in covering(CASES, traits, work) if not p.marks]


@pytest.mark.parametrize(
    "name, cases",
    [(name, (*COVER, *LITTLE)) for name in STEPS]
    + [slow(name, [c for c in CASES if c not in COVER]) for name in STEPS],
    ids=[f"{name}-{which}" for which in ("few", "rest") for name in STEPS],
)
def test_counted_equals_predicted_for_every_shape(name, cases):
    for case in cases:
        count, formula = both_costs(name, case)
        assert count == formula, str(case)


def test_counted_equals_predicted_for_the_variants():
    for case in (case for case in LITTLE if case.block_q == 2):
        for block_k in (1, 2):
            count, formula = both_costs("two_pass_attention", case, block_k=block_k, recompute=True)
            assert count == formula, str(case)
            assert count.read > both_costs("two_pass_attention", case, block_k=block_k)[0].read or not count.flops
        q, k, v, _ = make(case)
        o_prime = counted(fl.one_pass_attention_steps(q, k, v, causal=case.causal, normalised=True))
        assert o_prime == counted(fl.one_pass_attention_steps(q, k, v, causal=case.causal))


def test_softmax_names_are_checked():
    with pytest.raises(ValueError, match="expected one of .'blocked', 'naive', 'online', 'safe'., got 'fast'"):
        softmax_cost("fast", 1, 1)


@pytest.mark.parametrize("shape", [(10,), (2, 10), (2, 3, 7), (3, 1), (4, 0), (0, 4)], ids=str)
def test_counted_is_the_formula_for_every_softmax(shape):
    for dtype in DTYPES:
        x = torch.zeros(shape, dtype=dtype)
        runs = {"naive": fl.naive_softmax_steps, "safe": fl.safe_softmax_steps, "online": fl.online_softmax_steps}
        for name, steps in runs.items():
            formula = softmax_cost(name, math.prod(shape[:-1]), shape[-1], dtype=dtype)
            assert counted_by_the_package(steps(x)) == formula
        for block_size in (1, 4, 20):
            formula = softmax_cost("blocked", math.prod(shape[:-1]), shape[-1], dtype=dtype, block_size=block_size)
            assert counted_by_the_package(fl.blocked_softmax_steps(x, block_size)) == formula
    assert softmax_cost("safe", 3, 7).read == 3 * 3 * 7 * 4 and softmax_cost("online", 3, 7).read == 2 * 3 * 7 * 4


def test_results_that_are_never_written_are_no_part_of_what_is_stored():
    steps = list(fl.merge_tree_steps(torch.zeros(2, 10), 3))
    assert counted_by_the_package(steps) == Cost(read=80, written=0, flops=2 * operations(steps).total())
    q = torch.zeros(1, 2, 5, 4)
    assert counted_by_the_package(fl.tiled_attention_v2_steps(q, q, q)).extra == 4 * 2 * 5
    assert counted_by_the_package(fl.tiled_attention_v2_steps(q, q, q, return_lse=True)).extra == 0
    nothing_seen = counted_by_the_package(fl.tiled_attention_v2_steps(q, q[:, :, :0], q[:, :, :0]))
    assert nothing_seen == v2_cost(1, 2, 5, 0, 4, dtype=torch.float32)


# The asymptotic claims, from counted bytes.


def bytes_of(steps, N, D, **blocks):
    q = torch.zeros(1, 1, N, D)
    return hbm_bytes(steps(q, q, q, **blocks)).total


def slope(xs, ys):
    """Of the line through (log x, log y) that fits best."""
    log_x, log_y = (torch.tensor(t, dtype=torch.float64).log() for t in (xs, ys))
    return torch.linalg.lstsq(torch.stack((log_x, torch.ones_like(log_x)), 1), log_y[:, None]).solution[0].item()


def test_standard_attention_moves_n_d_and_n_squared():
    sizes = list(itertools.product((16, 64, 256), (4, 16, 64)))
    counts = torch.tensor([[float(bytes_of(fl.standard_attention_steps, N, D))] for N, D in sizes], dtype=torch.float64)
    terms = torch.tensor([[N * D, N * N] for N, D in sizes], dtype=torch.float64)
    fit = torch.linalg.lstsq(terms, counts).solution
    torch.testing.assert_close(fit, torch.tensor([[16.0], [16.0]], dtype=torch.float64))  # 4 N d and 4 N^2 floats
    assert (terms @ fit - counts).abs().max() < 1e-6
    long, wide = (64, 128, 256, 512), (64, 128, 256, 512)
    assert abs(slope(long, [bytes_of(fl.standard_attention_steps, N, 1) for N in long]) - 2) < 0.05
    assert abs(slope(wide, [bytes_of(fl.standard_attention_steps, 2, D) for D in wide]) - 1) < 0.05


@pytest.mark.parametrize(
    "version, rule",
    [
        (2, fl.fitting_block_sizes),
        slow(1, fl.paper_block_sizes),
        slow(1, fl.fitting_block_sizes),
        slow(2, fl.paper_block_sizes),
    ],
)
def test_flash_attention_moves_n_squared_d_squared_over_m(rule, version):
    def count(N, D, M):
        few, many = rule(M, D)  # version 1 wants its many rows in K_j, version 2 in Q_i
        if version == 1:
            return bytes_of(fl.tiled_attention_v1_steps, N, D, block_q=few, block_k=many)
        return bytes_of(fl.tiled_attention_v2_steps, N, D, block_q=many, block_k=few)

    N, D, M = 512, 32, 2**13
    assert abs(slope((256, 512, 1024), [count(n, D, M) for n in (256, 512, 1024)]) - 2) < 0.15
    assert abs(slope((16, 32, 40), [count(N, d, M) for d in (16, 32, 40)]) - 2) < 0.3
    assert abs(slope((2**12, 2**13, 2**14), [count(N, D, m) for m in (2**12, 2**13, 2**14)]) + 1) < 0.2


def test_extra_memory_is_quadratic_or_linear():
    lengths = (256, 1024, 4096)
    extra = {name: [cost(1, 1, N, N, 64).extra for N in lengths] for name, cost in ATTENTION_COSTS.items()}
    slopes = {name: slope(lengths, ys) for name, ys in extra.items() if any(ys)}
    assert slopes == pytest.approx({"standard_attention": 2, "tiled_attention_v1": 1, "tiled_attention_v2": 1})
    assert extra["tiled_attention_v2"] == [4 * N for N in lengths]
    assert extra["one_pass_attention"] == extra["two_pass_attention"] == [0, 0, 0]


def test_costs_in_order():
    full = {name: cost(1, 1, 1024, 1024, 64).bytes for name, cost in ATTENTION_COSTS.items()}
    assert full["tiled_attention_v2"] < full["standard_attention"] < full["one_pass_attention"]
    assert full["tiled_attention_v2"] < full["tiled_attention_v1"]
    assert ideal_cost(1, 1, 1024, 1024, 64).bytes < full["tiled_attention_v2"]
    assert v2_cost(1, 1, 1024, 1024, 64, block_q=1024).bytes == ideal_cost(1, 1, 1024, 1024, 64).bytes + 4 * 1024
    assert v2_cost(2, 3, 512, 512, 64, causal=True).flops < 0.6 * v2_cost(2, 3, 512, 512, 64).flops
    assert ideal_cost(1, 1, 4, 4, 8, causal=True).flops == 4 * 8 * 10


def test_one_pass_is_version_2_with_single_queries():
    one, two = (
        one_pass_cost(1, 1, 50, 70, 8, causal=True),
        v2_cost(1, 1, 50, 70, 8, causal=True, block_q=1, block_k=1),
    )
    assert (one.read, one.flops, one.written + 4 * 50) == (two.read, two.flops, two.written)


# Hardware and the roofline.


def test_the_a100_as_the_course_quotes_it():
    assert round(A100_40GB.ridge()) == 201
    assert A100_40GB.bandwidth == 1555e9 and A100_40GB.sram == 108 * 192 * 1024  # about 20 MB
    assert A100_40GB.shared_per_sm == 164 * 1024 < A100_40GB.sram_per_sm
    assert {round(gpu.ridge()) for gpu in HARDWARE.values()} == {201, 295, 206, 114}


@pytest.mark.parametrize("gpu", HARDWARE.values(), ids=lambda gpu: gpu.name)
def test_every_figure_has_a_source(gpu):
    assert set(gpu.source) == {field.name for field in fields(gpu)} - {"name", "source"}
    assert all(gpu.source.values())
    assert gpu.shared_per_sm < gpu.sram_per_sm and gpu.registers_per_sm == 65536 * 4
    assert set(gpu.peak) == set(DTYPES)
    assert gpu.peak[torch.float16] >= gpu.peak[torch.float32] >= gpu.peak[torch.float64]


def test_the_laptop_figures_follow_from_their_sources():
    assert RTX_4060_LAPTOP.peak[torch.float16] == pytest.approx(29.1e12, rel=0.01)  # 24/128 of an RTX 4090's 165.2
    assert RTX_4060_LAPTOP.peak[torch.float16] == pytest.approx(165.2e12 * 24 / 128 * 2370 / 2520, rel=0.001)
    assert RTX_4060_LAPTOP.bandwidth == 128 / 8 * 16e9


def test_the_roofline():
    ridge = A100_40GB.ridge()
    assert A100_40GB.attainable(ridge / 2) == pytest.approx(156e12)
    assert A100_40GB.attainable(ridge) == pytest.approx(312e12) and A100_40GB.attainable(10 * ridge) == 312e12
    assert A100_40GB.attainable(1, torch.float32) == 1555e9
    assert Cost(0, 0, 1).intensity == math.inf


def test_placement():
    big = placement(matmul_cost(8192, 8192, 8192), A100_40GB)
    assert big.bound == "compute-bound" and big.attainable == 312e12
    assert big.seconds == pytest.approx(2 * 8192**3 / 312e12)
    standard = placement(standard_cost(1, 1, 4096, 4096, 64), A100_40GB)
    assert standard.bound == "memory-bound" and standard.attainable == pytest.approx(standard.intensity * 1555e9)
    assert standard.intensity == pytest.approx(32, rel=0.05)  # 4 N^2 d FLOP over 8 N^2 bytes
    assert placement(one_pass_cost(1, 1, 4096, 4096, 64), A100_40GB).intensity == pytest.approx(1, rel=0.01)


def test_the_table_of_what_is_compute_bound():
    tiled = partial(placement_table, v2_cost, (128, 1024, 8192), (64, 128), A100_40GB)
    table = tiled(block_q=128)
    assert set(table) == {(N, D) for N in (128, 1024, 8192) for D in (64, 128)}
    # Each row block reads all of K and V: the intensity tends to block_q, and 128 is below the ridge, 201.
    assert table[8192, 64].intensity == pytest.approx(128, rel=0.05)
    assert {at.bound for at in table.values()} == {"memory-bound"}
    assert tiled(block_q=256)[8192, 64].bound == "compute-bound"
    once = placement_table(ideal_cost, (128, 1024, 8192), (64, 128), A100_40GB)
    assert [once[N, 64].bound for N in (128, 1024, 8192)] == ["memory-bound", "compute-bound", "compute-bound"]


def test_version_1_reads_k_and_v_once():
    e, N, D = 2, 300, 16
    cost = v1_cost(1, 1, N, N, D, block_q=N, block_k=N)
    assert cost.read == e * 3 * N * D + 4 * N * (D + 2)


@pytest.mark.parametrize("gpu", HARDWARE.values(), ids=lambda gpu: gpu.name)
def test_sram_bandwidth_is_a_dozen_times_that_of_hbm(gpu):
    clock = gpu.sram_bandwidth / gpu.sms / 128
    assert 1.4e9 <= clock <= 2.4e9 and gpu.sram_bandwidth > 6 * gpu.bandwidth
    assert gpu.l2 > gpu.sram / 2 and gpu.l2 < gpu.memory / 100


def test_the_clock_of_the_sram_is_that_of_the_peak():
    # FLOP per cycle and SM of the tensor cores: 2048 (A100), 4096 (H100), 512 (Ada, float32 sums)
    for name, per_cycle in (("A100-40GB", 2048), ("H100 SXM", 4096), ("H200 SXM", 4096), ("RTX 4060 Laptop", 512)):
        gpu = HARDWARE[name]
        assert gpu.peak[torch.float16] / gpu.sms / per_cycle == pytest.approx(
            gpu.sram_bandwidth / gpu.sms / 128, rel=0.001
        )


def test_the_three_kernels_of_standard_attention_are_its_parts():
    for N_q, N_k, D in ((16, 16, 4), (5, 9, 3), (9, 1, 8)):
        q, k = (torch.zeros(2, 3, n, D, dtype=torch.float16) for n in (N_q, N_k))
        kernels = standard_kernels(2, 3, N_q, N_k, D)
        run = list(fl.standard_attention_steps(q, k, k))
        for step, cost in zip(run[:3], kernels.values(), strict=True):
            assert hbm_bytes([step]) == (cost.read, cost.written)
            elementwise = 0 if step.matmuls else 2 * 3 * N_q * step.operations.total()
            assert matmul_flops([step]) + elementwise == cost.flops
        whole = standard_cost(2, 3, N_q, N_k, D)
        assert sum(cost.bytes for cost in kernels.values()) == whole.bytes == counted_by_the_package(run).bytes
        assert sum(cost.extra for cost in kernels.values()) == whole.extra == counted_by_the_package(run).extra


def test_a_fit_explains_every_count_or_says_that_it_does_not():
    cases = [(n, m) for n in (1, 3, 8) for m in (2, 5)]
    assert fitted(lambda n, m: (n * m, n, 1), cases, lambda n, m: 7 * n * m - 2 * n + 0.5) == [7, -2, 0.5]
    with pytest.raises(ValueError, match="expected terms that explain every count, got a difference of"):
        fitted(lambda n, m: (n * m, n), cases, lambda n, m: 7 * n * m + n * n)


def test_a_fit_has_constants_of_any_sign_and_size():
    assert fitted(lambda n: (-n * n, n), [(1,), (2,), (5,)], lambda n: 3 * n * n - n) == [-3, -1]
    assert fitted(lambda n: (n,), [(10**20,), (3,)], lambda n: 2 * n) == [2]
    assert fitted(lambda n: (n,), [(1,), (2,)], lambda n: 0) == [0]


@pytest.mark.parametrize(
    ("message", "terms", "cases", "count"),
    [
        ("a difference of", lambda n: (n,), [(1,), (2,)], lambda n: 1e-5 * n * n),
        ("all 3 constants, got terms of rank 1", lambda n: (n, n * n, 1), [(1,)], lambda n: 3 * n),
        ("all 2 constants, got terms of rank 1", lambda n: (n, 3 * n), [(1,), (2,), (7,)], lambda n: n),
        ("all 2 constants, got terms of rank 1", lambda n: (n, 0), [(1,), (2,)], lambda n: n),
        ("expected at least one case, got none", lambda n: (n,), [], lambda n: n),
        (r"a finite count, got \[1.0, nan\] for \(1,\)", lambda n: (n,), [(1,), (2,)], lambda n: math.nan),
        (r"expected finite terms .*, got \[inf, 1.0\] for \(1,\)", lambda n: (math.inf,), [(1,)], lambda n: n),
    ],
)
def test_a_fit_that_is_none_is_rejected(message, terms, cases, count):
    with pytest.raises(ValueError, match=message):
        fitted(terms, cases, count)


def test_intensities_are_marked_right_of_the_ridge():
    table = placement_table(standard_cost, (128, 8192), (64, 512), A100_40GB)
    text = intensities("standard attention", table)
    assert text.splitlines()[0].split() == ["standard", "attention", "d", "=", "64", "d", "=", "512"]
    assert text.splitlines()[2].split() == ["N", "=", "8192", "32", "241*"] and "*" not in text.splitlines()[1]


FORWARD = [*ATTENTION_COSTS.values(), standard_kernels, ideal_cost]
BACKWARD = [standard_backward_cost, stored_backward_cost, two_pass_backward_cost, fused_backward_cost]
BLOCKED = [one_pass_cost, two_pass_cost, v1_cost, v2_cost, two_pass_backward_cost, fused_backward_cost]
UNBLOCKED = [standard_cost, standard_kernels, ideal_cost, standard_backward_cost, stored_backward_cost]
SOFTMAX = list(fl.safe_softmax_steps(torch.zeros(4)))


@pytest.mark.parametrize(
    ("error", "message", "costs", "changed"),
    [
        (ValueError, "expected N_q of at least 0, got -8", FORWARD + BACKWARD, {"N_q": -8}),
        (TypeError, "expected N_k to be an int, got float", FORWARD + BACKWARD, {"N_k": float("nan")}),
        (TypeError, "expected D to be an int, got str", FORWARD + BACKWARD, {"D": "4"}),
        (TypeError, "expected B to be an int, got bool", FORWARD + BACKWARD, {"B": True}),
        (TypeError, "expected H to be an int, got float", FORWARD + BACKWARD, {"H": 4.0}),
        (TypeError, "expected dtype to be one of .*, got 'fp16'", FORWARD + BACKWARD, {"dtype": "fp16"}),
        (TypeError, "torch.float64, got torch.int8", FORWARD + BACKWARD, {"dtype": torch.int8}),
        (TypeError, "expected causal to be True or False, got 'no'", FORWARD + BACKWARD, {"causal": "no"}),
        (ValueError, "expected block_k of at least 1, got -1", BLOCKED, {"block_k": -1}),
        (ValueError, "expected block_q of at least 1, got 0", BLOCKED[2:], {"block_q": 0}),
        (ValueError, "expected H_kv of at least 1, got -2", BACKWARD, {"H_kv": -2}),
        (ValueError, "expected the heads of q to be a multiple .*, got 4 and 3", BACKWARD, {"H_kv": 3}),
        (TypeError, "expected recompute to be True or False, got 'no'", [two_pass_cost], {"recompute": "no"}),
        (TypeError, "expected recompute to be True or False, got 5", [two_pass_cost], {"recompute": 5}),
        (TypeError, "expected options of .*, got recompute", FORWARD[:1] + FORWARD[2:] + BACKWARD, {"recompute": True}),
        (TypeError, "expected options of .*, got block_q", BLOCKED[:2] + UNBLOCKED, {"block_q": 8}),
        (TypeError, "expected options of .*, got block_k", UNBLOCKED, {"block_k": 8}),
        (TypeError, "expected options of .*, got H_kv", FORWARD, {"H_kv": 2}),
        (TypeError, "expected options of .*, key_range, block_k, got recompute", [one_pass_cost], {"recompute": True}),
    ],
)
def test_costs_of_attention_check_what_they_are_given(error, message, costs, changed):
    for cost in costs:
        with pytest.raises(error, match=message):
            cost(**{"B": 1, "H": 4, "N_q": 8, "N_k": 8, "D": 4, **changed})


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "expected N to be an int, got str", lambda: softmax_cost("safe", 1, "8")),
        (ValueError, "expected rows of at least 0, got -1", lambda: softmax_cost("safe", -1, 8)),
        (TypeError, "softmax alone, got 2 for online softmax", lambda: softmax_cost("online", 1, 8, block_size=2)),
        (ValueError, "expected block_size of at least 1, got 0", lambda: softmax_cost("blocked", 1, 8, block_size=0)),
        (TypeError, "expected dtype to be a torch.dtype, got 'fp16'", lambda: softmax_cost("safe", 1, 8, dtype="fp16")),
        (ValueError, "expected m of at least 0, got -1", lambda: matmul_cost(-1, 2, 3)),
        (TypeError, "expected p to be an int, got float", lambda: matmul_cost(1, 2, 3.0)),
        (TypeError, "expected dtype to be a torch.dtype, got None", lambda: matmul_cost(1, 2, 3, dtype=None)),
        (TypeError, "float64, got torch.int8", lambda: placement(Cost(1, 2, 3), A100_40GB, torch.int8)),
        (TypeError, "float64, got torch.int8", lambda: A100_40GB.ridge(torch.int8)),
        (TypeError, "float64, got torch.int8", lambda: A100_40GB.attainable(1, torch.int8)),
        (ValueError, "expected at least one run, got none", lambda: list(race({}))),
        (ValueError, "expected frames of at least 1, got -1", lambda: list(race({"a": SOFTMAX}, frames=-1))),
        (TypeError, "expected frames to be an int, got float", lambda: list(race({"a": SOFTMAX}, frames=2.0))),
        (ValueError, "expected at least one step, got none", lambda: counted_by_the_package([])),
        (ValueError, "all steps of a run, .* got NoneType there", lambda: counted_by_the_package(SOFTMAX[:-1])),
        (ValueError, "got int there", lambda: counted_by_the_package([Step(output=3)])),
        (TypeError, "expected steps, .* got int: 1", lambda: counted_by_the_package([1])),
        (TypeError, "expected steps, .* got int: 1", lambda: operations([1])),
    ],
)
def test_costs_and_races_check_what_they_are_given(error, message, call):
    with pytest.raises(error, match=message):
        call()


# Integers of NumPy. They overflow, and a cache takes them for Python's.

SIZES = (3, 4, 90_000, 70_000, 64)
BLOCK_SIZES = {"block_q": 128, "block_k": 64}
OFFSETS = torch.tensor([0, 30_000, 90_000], dtype=torch.int32)
CALLS = {  # every cost that takes sizes, with large ones
    **{cost: (SIZES, {"window": (70_000, 3)}) for cost in (standard_cost, standard_kernels, ideal_cost, v1_cost)},
    v2_cost: ((3, 4, 90_000, 90_000, 64), {"documents": OFFSETS, **BLOCK_SIZES}),
    two_pass_cost: (SIZES, {"block_k": 4096}),
    one_pass_cost: (SIZES, {"causal": True, "block_k": 4096}),
    **{cost: (SIZES, {"H_kv": 2}) for cost in (standard_backward_cost, stored_backward_cost)},
    **{cost: (SIZES, {"H_kv": 2, **BLOCK_SIZES}) for cost in (two_pass_backward_cost, fused_backward_cost)},
    softmax_cost: (("blocked", 90_000, 90_000), {"block_size": 7}),
    matmul_cost: ((70_000, 70_000, 70_000), {}),
    serving.cache_bytes: ((1000, 1000, 1000), {}),
    serving.latent_cache_bytes: ((100_000, 70_000, 70_000), {}),
    serving.decode_cost: (([90_000] * 9, 64, 8, 128), {"N_q": 70_000}),
    serving.latent_decode_cost: (([90_000] * 9, 64, 512, 64), {"N_q": 70_000}),
    serving.paged_cost: (([90_000] * 9, [80_000] * 9, (64, 8), 128), {"window": (70_000, 0)}),
    communication.ring_bytes: ((10**7, 8, 128, "zigzag"), {"causal": True, "e": 2}),
    communication.ring_backward_bytes: ((10**7, 8, 128, "zigzag"), {"causal": True, "e": 2, "wide": 4}),
    communication.ulysses_bytes: ((10**7, 8, 128, 8, 2), {"e": 2}),
    communication.tokens_to_hide: ((communication.ETHERNET_10, A100_40GB), {"group": 2**30, "e": 2}),
    fl.sram_elements: ((50_000, 50_000, 128), {}),
}


def in_int32(value):
    """The same with all integers in NumPy's int32, those in lists and tuples too."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(in_int32, value))
    return np.int32(value) if type(value) is int else value


@pytest.mark.parametrize("cost", CALLS, ids=lambda cost: cost.__name__)
@pytest.mark.filterwarnings("error")
def test_integers_of_numpy_cost_what_those_of_python_do(cost):
    sizes, options = CALLS[cost]
    _work.cache_clear()
    _keys_of_queries.cache_clear()
    in_numpy = cost(*in_int32(sizes), **{name: in_int32(option) for name, option in options.items()})
    after = cost(*sizes, **options)
    _work.cache_clear()
    _keys_of_queries.cache_clear()
    assert in_numpy == after == cost(*sizes, **options)
    numbers = vars(in_numpy).values() if isinstance(in_numpy, Cost) else (in_numpy,)
    assert not any(isinstance(number, np.integer) for number in numbers)


def test_no_cost_that_takes_sizes_is_left_out():
    functions = [
        value for module in (formulas, serving, communication) for value in vars(module).values() if callable(value)
    ]
    costs = {f for f in functions if getattr(f, "__name__", "").endswith(("_cost", "_bytes", "_kernels"))}
    assert costs - {hbm_bytes} <= set(CALLS)


def test_a_mask_of_numpys_integers_is_that_of_pythons():
    mask = Mask(*in_int32((9, 9, 2, 0, (0, 4, 9), ((0, 9), (2, 7)))))
    assert mask == Mask(9, 9, 2, 0, (0, 4, 9), ((0, 9), (2, 7)))
    ends = itertools.chain.from_iterable((*mask.key_range, mask.documents))
    assert {type(number) for number in (mask.N_q, mask.N_k, mask.left, mask.right, *ends)} == {int}
