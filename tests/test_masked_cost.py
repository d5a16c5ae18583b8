"""What masks save, in closed form: visited blocks, bytes and FLOPs of every algorithm, equal to the counts."""

from __future__ import annotations

import random

import pytest
import torch

import flashlearn as fl
from flashlearn.algorithms.tiled import visited_blocks
from flashlearn.core.numerics import spans
from flashlearn.core.steps import VALUES, hbm_bytes, matmul_flops, record
from flashlearn.cost import (
    ATTENTION_COSTS,
    fused_backward_cost,
    standard_backward_cost,
    stored_backward_cost,
    two_pass_backward_cost,
)
from tests.grid import make
from tests.masked import given
from tests.slow import slow
from tests.test_masked_algorithms import ALGORITHMS, CASES, FEW, REST, blocks_of, int32, problem

SEEN = ("causal", "window", "documents", "key_range")


def hidden_only(case):
    """The problem in float16, its tensors, the options that hide something; what scores are made of costs nothing here."""
    p = problem(case, torch.float16)
    options = given(p)
    return p, make(p), {name: options.get(name) for name in SEEN}


def bytes_of_offsets(options) -> int:
    documents, ranges = options["documents"], options["key_range"]
    return 4 * ((0 if documents is None else len(documents)) + (0 if ranges is None else 2 * len(ranges[0])))


def held(steps, cost, extra, at):
    """The counts of a run are those of the formula; what it keeps besides is what is stored and the offsets."""
    steps = record(steps)
    assert hbm_bytes(steps) == (cost.read, cost.written), at
    assert matmul_flops(steps) == cost.flops, at
    assert cost.extra == extra, at


@pytest.mark.parametrize(
    "name, numbers", [(name, FEW) for name in ALGORITHMS] + [slow(name, REST) for name in ALGORITHMS]
)
def test_bytes_and_flops_of_an_algorithm_are_those_of_its_formula(name, numbers):
    for case in (CASES[n] for n in numbers):
        p, (q, k, v, _), options = hidden_only(case)
        mine = blocks_of(p, name)
        sizes = (*q.shape[:3], k.shape[2], q.shape[3])
        cost = ATTENTION_COSTS[name](*sizes, dtype=torch.float16, **options, **mine)
        plain = ATTENTION_COSTS[name](*sizes, dtype=torch.float16, **mine)
        steps = getattr(fl, f"{name}_steps")(q, k, v, **options, **mine)
        held(steps, cost, plain.extra + bytes_of_offsets(options), case)
        assert cost.flops <= plain.flops


@pytest.mark.parametrize("numbers", [FEW[::2], slow(REST[::2])], ids=["few", "rest"])
def test_bytes_and_flops_of_the_backward_passes_are_those_of_their_formulas(numbers):
    for case in (CASES[n] for n in numbers):
        p, (q, k, v, do), options = hidden_only(case)
        blocks = blocks_of(p)
        o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True, **options)
        P = fl.last(fl.standard_attention_steps(q, k, v, **options)).values["P"]
        runs = [
            (standard_backward_cost, {}, fl.attention_backward_steps(do, q, k, v, **options)),
            (stored_backward_cost, {}, fl.attention_backward_steps(do, q, k, v, stored=P, **options)),
        ]
        for formula, fused in ((two_pass_backward_cost, False), (fused_backward_cost, True)):
            steps = fl.tiled_attention_backward_steps(do, q, k, v, o, lse, fused=fused, **options, **blocks)
            runs.append((formula, blocks, steps))
        for formula, sizes, steps in runs:
            shape = (*q.shape[:3], k.shape[2], q.shape[3])
            cost = formula(*shape, dtype=torch.float16, H_kv=k.shape[1], **options, **sizes)
            extra = formula(*shape, dtype=torch.float16, H_kv=k.shape[1], **sizes).extra + bytes_of_offsets(options)
            held(steps, cost, extra, (formula.__name__, case))


def test_visited_blocks_are_those_in_which_some_pair_is_seen():
    rng = random.Random(5)
    for _ in range(150):
        N, B_r, B_c = rng.randint(0, 24), rng.randint(1, 7), rng.randint(1, 7)
        documents = int32(0, *sorted(rng.randint(0, N) for _ in range(rng.randint(0, 5))), N)
        causal, window = rng.random() < 0.5, rng.choice([None, (0, 0), (3, None), (None, 2), (1, 4), (50, 50)])
        seen = fl.Mask.of(fl.core.inputs.Sizes(1, 1, 1, N, N, 1), causal, window, documents).visible((0, N), (0, N))
        by_count = sum(bool(seen[slice(*r), slice(*c)].any()) for r in spans(N, B_r) for c in spans(N, B_c))
        assert visited_blocks(N, N, B_r, B_c, causal, window, documents) == by_count


def test_documents_of_whole_blocks_visit_a_square_each_and_a_window_a_band():
    assert visited_blocks(64, 64, 8, 8, documents=int32(0, 16, 40, 64)) == 2**2 + 3**2 + 3**2
    assert visited_blocks(64, 64, 8, 8, True, documents=int32(0, 16, 40, 64)) == 3 + 6 + 6
    assert visited_blocks(64, 64, 8, 8, True, (8, None)) == 2 * 8 - 1
    one_each = int32(*range(65))
    assert visited_blocks(64, 64, 8, 8, documents=one_each) == 8 == visited_blocks(64, 64, 8, 8, window=(0, 0))
    assert visited_blocks(64, 64, 8, 8, window=(100, 100)) == visited_blocks(64, 64, 8, 8) == 64


def test_memory_of_a_mask_is_linear_and_its_bytes_follow_what_is_seen():
    """A causal window of 1,024 at N = 16,384: what a query sees, not N, decides."""
    sizes, blocks = (1, 16, 16_384, 16_384, 128), {"block_q": 128, "block_k": 128}
    cost = ATTENTION_COSTS["tiled_attention_v2"]
    causal = cost(*sizes, causal=True, **blocks)
    window = cost(*sizes, causal=True, window=(1024, None), **blocks)
    packed = cost(*sizes, causal=True, documents=torch.arange(0, 16_385, 1024, dtype=torch.int32), **blocks)
    assert causal.flops / window.flops == pytest.approx(8256 / 1116)  # blocks: 128 * 129 / 2; 128 * 9 - (1 + ... + 8)
    assert causal.flops / packed.flops == pytest.approx(8256 / (16 * 36))
    assert packed.extra - causal.extra == 17 * 4 and window.extra == causal.extra


def test_sinks_and_slopes_move_a_number_for_each_head_and_program():
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, H, 10, 4, generator=g) for H in (4, 2, 2))
    do, per_head = torch.randn(2, 4, 10, 4, generator=g), torch.rand(2, 4, generator=g)
    options = {"causal": True, "sinks": per_head[0], "alibi": per_head[1]}
    once = 4 * 2 * 4  # bytes of a number, sequences, heads

    def bytes_in(steps):
        steps = record(steps)
        return tuple(hbm_bytes(steps, name).total // once for name in ("sinks", "alibi"))

    assert bytes_in(fl.standard_attention_steps(q, k, v, **options)) == (1, 1)
    assert bytes_in(fl.one_pass_attention_steps(q, k, v, **options)) == (10, 10)
    assert bytes_in(fl.tiled_attention_v1_steps(q, k, v, **options, block_q=3, block_k=4)) == (1, 1)
    assert bytes_in(fl.tiled_attention_v2_steps(q, k, v, **options, block_q=3, block_k=4)) == (4, 4)
    o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True, **options)
    back = [do, q, k, v, o, lse]
    fused = record(fl.tiled_attention_backward_steps(*back, **options, block_q=3, block_k=4, fused=True))
    visits = fused[-1].values["visits"]
    assert bytes_in(fused) == (4, 3)  # a block of rows, a block of keys
    assert hbm_bytes(fused, "dsinks") == (4 * once, once // 2 + 4 * once)
    assert hbm_bytes(fused, "dslopes") == (visits * once, once // 2 + visits * once)


def test_a_window_visits_few_blocks_and_reads_q_once_wherever_it_starts():
    q, k, v = torch.randn(3, 1, 1, 64, 4)
    steps = record(fl.tiled_attention_v2_steps(q, k, v, causal=True, window=(8, None), block_q=8, block_k=8))
    visits = [(s.values["i"], s.values["j"]) for s in steps if s.matmuls]
    assert visits == [(i, j) for i in range(8) for j in (i - 1, i) if j >= 0]
    assert len(visits) == visited_blocks(64, 64, 8, 8, True, (8, None)) == 15 < visited_blocks(64, 64, 8, 8, True) == 36
    assert hbm_bytes(steps, "Q").read == q.numel() * 4


def test_the_names_in_a_step_are_documented():
    do, q, k, v = torch.randn(4, 1, 2, 5, 3)
    o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True)
    x = torch.randn(5)
    runs = [getattr(fl, f"{name}_steps")(q, k, v) for name in ALGORITHMS]
    runs += [fl.attention_backward_steps(do, q, k, v), fl.merge_tree_steps(x, 2), fl.online_softmax_steps(x)]
    runs += [fl.safe_softmax_steps(x), fl.naive_softmax_steps(x)]
    runs += [fl.tiled_qkv_steps(q[0, 0], k[0, 0], v[0, 0], block_q=2, block_k=2)]
    runs += [fl.tiled_matmul_steps(q[0, 0], k[0, 0].mT, block_m=2, block_n=2, block_k=2)]
    for fused in (False, True):
        runs.append(fl.tiled_attention_backward_steps(do, q, k, v, o, lse, block_q=2, block_k=2, fused=fused))
    used = {name for steps in runs for step in steps for name in step.values if name not in step.shapes}
    assert used <= set(VALUES), used - set(VALUES)
