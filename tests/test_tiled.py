"""What the tiled algorithms claim besides the right result: any blocks, few visits, few bytes, no S in HBM."""

import math
from collections import Counter

import pytest
import torch
from torch.testing import assert_close

import flashlearn as fl
from flashlearn.algorithms.tiled import BlockSizes
from flashlearn.core.mask import causal_mask
from tests.grid import Case, make

BOTH = pytest.mark.parametrize(
    "function, steps",
    [(fl.tiled_attention_v1, fl.tiled_attention_v1_steps), (fl.tiled_attention_v2, fl.tiled_attention_v2_steps)],
    ids=["v1", "v2"],
)
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
SIZES = [(8, 8), (7, 7), (5, 9), (9, 5), (1, 6), (6, 1)]
BLOCKS = [(1, 1), (2, 3), (3, 2), (4, 4), (16, 2), (2, 16), (64, 64)]


@BOTH
@CAUSAL
def test_block_sizes_do_not_change_the_result(function, steps, causal):
    for N_q, N_k in SIZES:
        q, k, v, _ = make(Case(N_q, N_k, 4, dtype=torch.float64))
        whole = function(q, k, v, causal=causal, block_q=64, block_k=64)
        for block_q, block_k in BLOCKS:
            assert_close(function(q, k, v, causal=causal, block_q=block_q, block_k=block_k), whole)


@BOTH
def test_the_order_of_the_keys_does_not_change_the_result(function, steps):
    q, k, v, _ = make(Case(6, 12, 4, dtype=torch.float64))
    order = torch.tensor([8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7])  # the blocks of 4 in another order
    assert_close(function(q, k[:, :, order], v[:, :, order], block_k=4), function(q, k, v, block_k=4))


@BOTH
def test_logits_may_be_shifted(function, steps):
    q, k, v, _ = make(Case(6, 12, 4, dtype=torch.float64))
    assert_close(function(q, k + 100 * torch.ones(4), v, block_k=5), function(q, k, v, block_k=5))


@BOTH
@CAUSAL
@pytest.mark.parametrize("N_q, N_k", SIZES)
@pytest.mark.parametrize("block_q, block_k", BLOCKS)
def test_masked_blocks_are_not_visited_and_only_crossed_ones_masked(
    function, steps, causal, N_q, N_k, block_q, block_k
):
    q, k, v, _ = make(Case(N_q, N_k, 4))
    seen = causal_mask(N_q, N_k) if causal else torch.ones(N_q, N_k, dtype=torch.bool)
    visits = [s.values for s in steps(q, k, v, causal=causal, block_q=block_q, block_k=block_k) if s.matmuls]
    expected = {}
    for i, i0 in enumerate(range(0, N_q, block_q)):
        for j, j0 in enumerate(range(0, N_k, block_k)):
            block = seen[i0 : i0 + block_q, j0 : j0 + block_k]
            if block.any():
                expected[i, j] = not block.all()
    assert {(at["i"], at["j"]): at["masked"] for at in visits} == expected
    assert len(visits) == fl.visited_blocks(N_q, N_k, block_q, block_k, causal)
    for at in visits:
        block = seen[slice(*at["rows"]), slice(*at["cols"])]
        assert torch.equal(at["S"][0, 0] == -math.inf, ~block) and torch.equal(at["P"][0, 0] == 0, ~block)


def test_the_count_of_visited_blocks():
    assert fl.visited_blocks(16, 16, 4, 4) == 16 and fl.visited_blocks(16, 16, 4, 4, causal=True) == 4 * 5 // 2
    assert fl.visited_blocks(1024, 1024, 64, 64, causal=True) == 16 * 17 // 2
    assert fl.visited_blocks(5, 5, 3, 3) == 4  # ceil(5 / 3) = 2 both ways; floor would leave out two rows
    assert fl.visited_blocks(1, 100, 64, 16, causal=True) == 7  # decoding sees every key
    assert fl.visited_blocks(8, 2, 2, 2, causal=True) == 1  # only the last two queries see anything
    with pytest.raises(ValueError, match="expected block_q of at least 1, got 0"):
        fl.visited_blocks(4, 4, 0, 4)


def test_version_1_passes_unfinished_rows_through_hbm():
    q, k, v, _ = make(Case(8, 12, 4, dtype=torch.float16))
    run = fl.record(fl.tiled_attention_v1_steps(q, k, v, block_q=4, block_k=4))
    reads, writes = (Counter(tile.name for step in run for tile in getattr(step, way)) for way in ("reads", "writes"))
    assert reads == {"K": 3, "V": 3, "Q": 6, "O": 6, "m_i": 6, "l_i": 6}
    assert writes == {"O": 7, "m_i": 7, "l_i": 7}  # once to initialise them
    assert [(s.values["j"], s.values["i"]) for s in run if s.matmuls] == [(j, i) for j in range(3) for i in range(2)]
    widths = [tile.itemsize for step in run for tile in step.writes if tile.name == "O"]
    assert widths == [4, 4, 4, 4, 4, 2, 2]  # float32 until the last visit of each of the two row blocks
    assert run[-1].output.dtype == torch.float16


@CAUSAL
@pytest.mark.parametrize("N_q, N_k", SIZES)
def test_version_1_line_by_line_is_the_same_run(N_q, N_k, causal):
    q, k, v, _ = make(Case(N_q, N_k, 3, dtype=torch.float16))
    options = {"causal": causal, "block_q": 3, "block_k": 4}
    visits, lines = (
        fl.record(f(q, k, v, **options)) for f in (fl.tiled_attention_v1_steps, fl.tiled_attention_v1_lines)
    )
    assert torch.equal(visits[-1].output, lines[-1].output)
    groups = [lines[:1], *(lines[at : at + 6] for at in range(1, len(lines) - 1, 6)), lines[-1:]]
    for visit, group in zip(visits, groups, strict=True):
        for noted in ("reads", "writes", "matmuls"):
            assert sorted(map(str, getattr(visit, noted))) == sorted(str(x) for s in group for x in getattr(s, noted))
        assert visit.operations == sum((s.operations for s in group), Counter())
        told, last = visit.values, group[-1].values
        assert [str(value) for name, value in told.items() if name != "O"] == [
            str(last[name]) for name in told if name != "O"
        ]
        assert torch.equal(told["O"], last["O"].to(told["O"].dtype))  # on chip wide, stored in float16 at last


def test_each_line_of_version_1_makes_what_the_paper_says():
    q, k, v, _ = make(Case(5, 5, 3, dtype=torch.float64))
    run = fl.record(fl.tiled_attention_v1_lines(q, k, v, block_q=3, block_k=4))
    visit = [f"line {number}" for number in range(8, 14)]
    assert [s.phase for s in run] == ["initialise", *(4 * visit), "done"]
    assert [[tile.name for tile in s.writes] for s in run[5:7]] == [["O"], ["l_i", "m_i"]]
    for at in range(1, len(run) - 1, 6):
        now, rows, cols = run[at + 5].values, slice(*run[at].values["rows"]), slice(*run[at].values["cols"])
        assert ("K" in {tile.name for tile in run[at].reads}) == (now["i"] == 0) and not run[at + 1].writes
        S = q[:, :, rows] @ k[:, :, cols].mT / math.sqrt(3)
        assert_close(run[at + 1].values["S"], S)
        assert_close(run[at + 2].values["m_block"], S.amax(-1, keepdim=True))
        assert_close(run[at + 2].values["l_block"], torch.exp(S - S.amax(-1, keepdim=True)).sum(-1, keepdim=True))
        seen = q[:, :, rows] @ k[:, :, : cols.stop].mT / math.sqrt(3)  # with all keys so far
        assert_close(now["m_i"], seen.amax(-1, keepdim=True))
        assert_close(run[at + 4].written("O")[:, :, rows], torch.softmax(seen, -1) @ v[:, :, : cols.stop])
        assert "m_i" not in run[at + 2].values and "O" not in run[at + 3].values


def test_version_2_writes_a_row_block_once():
    q, k, v, _ = make(Case(8, 12, 4, dtype=torch.float16))
    run = fl.record(fl.tiled_attention_v2_steps(q, k, v, block_q=4, block_k=4))
    reads, writes = (Counter(tile.name for step in run for tile in getattr(step, way)) for way in ("reads", "writes"))
    assert reads == {"Q": 2, "K": 6, "V": 6} and writes == {"O": 2, "lse": 2}
    assert [(s.values["i"], s.values["j"]) for s in run if s.matmuls] == [(i, j) for i in range(2) for j in range(3)]
    assert [s.program for s in run[:-1]] == [(0,)] * 3 + [(1,)] * 3
    assert [bool(s.writes) for s in run] == [False, False, True, False, False, True, False]
    assert fl.hbm_bytes(run).total < fl.hbm_bytes(fl.tiled_attention_v1_steps(q, k, v, block_q=4, block_k=4)).total


@BOTH
def test_scores_never_reach_hbm(function, steps):
    q, k, v, _ = make(Case(8, 8, 4))
    run = list(steps(q, k, v, block_q=2, block_k=2))
    assert run[-1].shapes["S"] == (1, 2, 8, 8)
    assert not any(tile.name in "SP" for step in run for tile in (*step.reads, *step.writes))


def test_row_blocks_of_version_2_do_not_need_each_other():
    q, k, v, _ = make(Case(8, 8, 4, dtype=torch.float64))
    o = fl.tiled_attention_v2(q, k, v, causal=True, block_q=4, block_k=2)
    alone = fl.tiled_attention_v2(q[:, :, :4], k[:, :, :4], v[:, :, :4], causal=True, block_q=4, block_k=2)
    assert torch.equal(o[:, :, :4], alone)


@BOTH
def test_alpha_rescales_rows(function, steps):
    q, k, v, _ = make(Case(4, 8, 3, dtype=torch.float64, logits="rising"))
    run = fl.record(steps(q, k, v, block_q=4, block_k=2))
    for before, step in zip(run, run[1:], strict=False):
        at = step.values
        if not step.matmuls or at["j"] == 0:
            continue
        old = before.values["acc" if "acc" in at else "O"].double()
        PV = at["P"] @ v[:, :, slice(*at["cols"])]
        diag = torch.diag_embed(at["factor"][..., 0])  # from the left: diag(a) X scales the rows of X
        if "acc" in at:
            assert_close(at["acc"], diag @ old + PV)
        else:
            assert_close(at["O"], diag @ old + at["beta"] / at["l_i"] * PV)
        assert (at["alpha"] < 1).all() and (at["m_i"] > at["m_old"]).all()


@BOTH
def test_sentences_name_the_row_in_which_the_maximum_rises(function, steps):
    q = torch.tensor([1.0, 1.0, 1.0, -1.0]).reshape(1, 1, 4, 1)  # row 3 has its maximum, -1, in the first block
    k = torch.tensor([5.0, 1.0, 2.0, 7.0]).reshape(1, 1, 4, 1)
    run = fl.record(steps(q, k, k, scale=1.0, block_q=2, block_k=2))
    said = {(s.values["i"], s.values["j"]): s.sentence for s in run if s.matmuls}
    assert said[0, 0].startswith("Block Q0 meets block K0, its first: row 0 starts with m = 5.00, ℓ = 1.02.")
    assert "new maximum 7.00 in row 0 (and in 1 more)" in said[0, 1]
    assert "new maximum 7.00 in row 2: its" in said[1, 1]
    assert ("exp(m_old − m_new) = 0.14" in said[0, 1]) == ("acc" in run[-2].values)
    run = fl.record(steps(q[:, :, 3:], k, k, scale=1.0, block_q=2, block_k=2))
    assert "no maximum rises; row 0 keeps m = −1.00" in run[-2].sentence


def test_rows_that_see_nothing_are_told():
    q, k, v, _ = make(Case(6, 2, 4))
    run = fl.record(fl.tiled_attention_v2_steps(q, k, v, causal=True, block_q=2, block_k=2))
    assert [step.values.get("j") for step in run[:-1]] == [None, None, 0]
    assert run[0].sentence == "Block Q0 attends to no key: write O = 0 and lse = −∞." and not run[0].reads
    assert not run[0].values["O"].any() and (run[0].values["lse"] == -math.inf).all()


def test_lse_has_the_dtype_of_sums():
    for dtype, wide in [(torch.float16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)]:
        q, k, v, _ = make(Case(3, 4, 2, dtype=dtype))
        o, lse = fl.tiled_attention_v2(q, k, v, return_lse=True)
        assert o.dtype == dtype and lse.dtype == wide and lse.shape == (1, 2, 3)


# Block sizes from an SRAM budget.


def test_the_paper_s_blocks_may_not_fit():
    assert fl.paper_block_sizes(M=59, D=3) == BlockSizes(block_q=3, block_k=5)
    assert fl.sram_elements(3, 5, D=3) == 2 * 9 + 2 * 15 + 15 == 63 > 59
    assert fl.sram_elements(3, 59 // 12, D=3) == 2 * 9 + 2 * 12 + 12 == 54 <= 59
    assert fl.fitting_block_sizes(M=59, D=3) == BlockSizes(3, 4)
    assert fl.sram_elements(4, 64 // 16, D=4) == 80 > 64  # rounding down does not always help


@pytest.mark.parametrize("D", [1, 2, 3, 4, 8, 64])
def test_the_paper_s_blocks_fit_from_a_size_on(D):
    enough = 8 * D**2 + 12 * D - 3
    for M in (*range(enough, enough + 9 * D), 98_304):
        block_q, block_k = fl.paper_block_sizes(M, D)
        assert fl.sram_elements(block_q, block_k, D) <= M and block_q == D
        assert block_q * block_k < M / 4 + D  # S takes about a quarter
    assert any(
        fl.sram_elements(*fl.paper_block_sizes(M, D), D) > M for M in range(max(4 * D + 1, enough - 6 * D), enough)
    )
    assert fl.sram_elements(*fl.paper_block_sizes(98_304, 64), 64) == 81_920


def test_fitting_blocks_fit_and_no_larger_ones_do():
    for D in (1, 2, 3, 4, 16, 64, 128):
        for M in [*range(4 * D + 1, 4 * D + 400, 7), 2**14, 10**5, 227 * 1024 // 2]:
            block_q, block_k = fl.fitting_block_sizes(M, D)
            assert 1 <= block_q == min(block_k, D)
            assert fl.sram_elements(block_q, block_k, D) <= M < fl.sram_elements(min(block_k + 1, D), block_k + 1, D)


def test_what_the_budget_counts_is_what_sits_on_chip():
    q, k, v, _ = make(Case(6, 8, 3, H_q=1, H_kv=1))
    for steps in (fl.tiled_attention_v1_steps, fl.tiled_attention_v2_steps):
        run = list(steps(q, k, v, block_q=3, block_k=4))
        columns = 2 * 3  # m_i and l_i
        assert fl.sram_peak(run) == 4 * (fl.sram_elements(3, 4, D=3) + columns)
        names = {tile.name for step in run if step.matmuls for tile in step.on_chip}
        assert names - {"m_i", "l_i"} in ({"Q", "K", "V", "S", "O"}, {"Q", "K", "V", "S", "acc"})


@pytest.mark.parametrize("rule", [fl.paper_block_sizes, fl.fitting_block_sizes])
def test_a_budget_too_small_says_what_is_needed(rule):
    assert rule(13, 3) and fl.sram_elements(1, 1, 3) == 13
    with pytest.raises(ValueError, match=r"at least 4 D \+ 1 = 13 elements for D = 3, got 12"):
        rule(12, 3)
    with pytest.raises(TypeError, match="expected M to be an int, got float"):
        rule(1e5, 64)


@pytest.mark.parametrize("sizes", [(-1, 2, 3), (1, 0, 3), (1, 2, -3)])
def test_sram_elements_rejects_what_is_no_size(sizes):
    with pytest.raises(ValueError, match="expected (block_q|block_k|D) of at least 1, got"):
        fl.sram_elements(*sizes)


def test_visited_blocks_rejects_negative_lengths():
    with pytest.raises(ValueError, match="expected N_q of at least 0, got -8"):
        fl.visited_blocks(-8, 8, 2, 2)
