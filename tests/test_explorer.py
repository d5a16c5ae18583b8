"""The tiling explorer, driven from Python: every control changes the runs; nothing it can be set to raises."""

import itertools

import pytest
import torch
import torch.nn.functional as F
import traitlets

import flashlearn as fl
from flashlearn.algorithms.tiled import sram_elements
from flashlearn.show.explorers import tiling
from tests.slow import every, slow


@pytest.fixture
def explorer():
    return tiling.tiling_explorer()


def shown(explorer):
    return explorer._made(explorer.step), explorer.transcript[explorer.step], explorer.report


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("N", 9),
        ("block_q", 2),
        slow("block_k", 2),
        slow("sram", 58),
        slow("mask", tiling.FULL),
        ("mask", tiling.WINDOW),
        slow("D", 3),
        slow("blocks", tiling.FITTING),
    ],
)
def test_every_control_records_and_redraws(explorer, name, value):
    explorer.sram = 60
    if name == "blocks":
        explorer.block_q = 1
    before, runs, version = shown(explorer), explorer.runs, explorer.version
    setattr(explorer, name, value)
    assert explorer.runs is not runs and explorer.version > version
    assert explorer.report != before[2] and explorer.said["text"] == explorer.report
    if name != "sram":  # more room changes the verdict, not the steps
        assert shown(explorer)[0] != before[0]
    assert "Step 1 of" in shown(explorer)[1] and explorer.step == 0


def test_runs_are_what_the_controls_say():
    explorer = tiling.tiling_explorer(N=10, block_q=4, block_k=2, mask=tiling.FULL)
    tensors = tiling.problem(10, 4)
    for run in explorer.runs.values():
        torch.testing.assert_close(run[-1].output, F.scaled_dot_product_attention(*tensors))
        assert sum(step.phase == "blocks" for step in run) == fl.visited_blocks(10, 10, 4, 2)
    totals = [fl.hbm_bytes(run).total for run in explorer.runs.values()]
    assert all(f"{total:,}" in explorer.report for total in totals)


@pytest.mark.parametrize("stride", [5, slow(1)])
def test_sentence_and_picture_follow_the_step(explorer, stride):
    last = len(explorer.transcript)
    seen, numbers = {str(shown(explorer)[:2])}, range(1, last, stride)
    for number in numbers:
        explorer.step = number
        seen.add(str(shown(explorer)[:2]))
    assert len(seen) == 1 + len(numbers) >= 4


@pytest.mark.parametrize(
    "N, sram",
    [slow(1, 10), (1, 17), slow(1, 128), (tiling.LONGEST, 10), slow(tiling.LONGEST, 17), slow(tiling.LONGEST, 128)],
)
@pytest.mark.slow
def test_extreme_values_never_raise(N, sram):
    explorer = tiling.tiling_explorer(N=N, sram=sram)
    for rule, mask in itertools.product((tiling.BY_HAND, tiling.FITTING, tiling.PAPER), (tiling.CAUSAL, tiling.WINDOW)):
        explorer.set(blocks=rule, mask=mask)
        for block_q, block_k in ((1, 1), (1, tiling.LARGEST), (tiling.LARGEST, 1), (tiling.LARGEST, tiling.LARGEST)):
            if rule == tiling.BY_HAND:
                explorer.set(block_q=block_q, block_k=block_k)
            fits = sram_elements(explorer.block_q, explorer.block_k, 4) <= sram
            assert ("they fit" in explorer.report) == fits
            said = shown(explorer)[1]
            assert ("do not fit" in said or "No blocks fit" in said) == (not fits)
        explorer.step = len(explorer.transcript) - 1
        assert shown(explorer)[0]


def test_blocks_that_do_not_fit_are_explained(explorer):
    explorer.block_k = 5
    assert "they need 79 elements, and the SRAM holds 59. Make a block smaller" in explorer.transcript[0]
    assert len(explorer.transcript) == 1 and explorer.report == "Nothing was run."
    assert (explorer.said["need"], explorer.said["room"]) == (79, 59)
    explorer.sram = 79
    assert "need 79 of 79 elements: they fit" in explorer.report and len(explorer.transcript) > 1


def test_bytes_on_chip_are_those_of_the_elements(explorer):
    """57 elements of tiles are 228 B; 252 B are on chip with m and l, which what fits leaves out."""
    assert "need 57 of 59 elements: they fit." in explorer.report
    peaks = {fl.sram_peak(run) for run in explorer.runs.values()}
    assert peaks == {4 * (sram_elements(3, 3, explorer.D) + 2 * 3)} == {252}


def test_rules_choose_the_blocks(explorer):
    explorer.blocks = tiling.PAPER
    assert (explorer.block_q, explorer.block_k) == fl.paper_block_sizes(59, explorer.D) == (4, 4)
    assert explorer.chosen == ["block_q", "block_k"] and "do not fit" in explorer.transcript[0]
    explorer.blocks = tiling.FITTING
    assert (explorer.block_q, explorer.block_k) == fl.fitting_block_sizes(59, explorer.D) == (3, 3)
    explorer.sram = 10
    assert "even 1 × 1 needs 4 × 4 + 1 = 17 elements, and the SRAM holds 10" in explorer.transcript[0]
    explorer.blocks = tiling.BY_HAND
    assert explorer.chosen == []


@pytest.mark.parametrize("dimension", range(3, 9))
def test_sliders_reach_what_the_rules_choose(dimension):
    for M in range(4 * dimension + 1, 129):
        for rule in (fl.paper_block_sizes, fl.fitting_block_sizes):
            assert max(rule(M, dimension)) <= tiling.LARGEST


def test_the_example_of_the_notebook_can_be_set(explorer):
    """M = 59, d = 3: the paper's rule asks for 63 elements, and what fits is 3 by 4, with 54."""
    explorer.D, explorer.blocks = 3, tiling.PAPER
    assert (explorer.block_q, explorer.block_k) == fl.paper_block_sizes(59, 3) == (3, 5)
    assert "need 63 elements, and the SRAM holds 59" in explorer.transcript[0]
    explorer.blocks = tiling.FITTING
    assert "3 × 4 blocks need 54 of 59 elements: they fit" in explorer.report and explorer.said["need"] == 54


@pytest.mark.slow
def test_standard_attention_stands_beside_them(explorer):
    standard = fl.hbm_bytes(fl.record(fl.standard_attention_steps(*tiling.problem(12, 4), causal=True)))
    assert f"In all: standard {standard.total:,} B, FA-1 " in explorer.report
    for beside, titles in (
        ("standard, FA-2", (tiling.STANDARD, tiling.V2)),
        ("all three", (tiling.STANDARD, "FlashAttention-1", "FlashAttention-2")),
    ):
        explorer.beside = beside
        assert tuple(explorer.runs) == titles
        full = max(max(fl.hbm_bytes(run)) for run in explorer.runs.values())
        assert explorer.draw_step.keywords["full"] == full >= max(standard)
        explorer.step = 5
        assert "Standard" in shown(explorer)[1]


BACK = torch.arange(12)[:, None] - torch.arange(12)
ALIKE = (torch.arange(12)[:, None] < 5) == (torch.arange(12) < 5)  # documents of 5 and 7 tokens
SEEN = {
    tiling.FULL: BACK < 12,
    tiling.CAUSAL: BACK >= 0,
    tiling.WINDOW: (BACK >= 0) & (BACK <= 3),
    tiling.DOCUMENTS: (BACK >= 0) & ALIKE,
    tiling.BOTH: (BACK >= 0) & (BACK <= 3) & ALIKE,
}


@pytest.mark.parametrize("mask", every(2, tiling.MASKS))
def test_masks_hide_what_they_say(mask):
    explorer = tiling.tiling_explorer(mask=mask)
    want = torch.nn.functional.scaled_dot_product_attention(*tiling.problem(12, 4), attn_mask=SEEN[mask])
    for run in explorer.runs.values():
        torch.testing.assert_close(run[-1].output, want)
    blocks = SEEN[mask].unflatten(0, (4, 3)).unflatten(2, (4, 3)).any(3).any(1)
    assert f"{int(blocks.sum())} of 16 pairs" in explorer.report


def test_two_documents_are_there_whatever_the_length():
    explorer = tiling.tiling_explorer(mask=tiling.DOCUMENTS, sram=128)
    for explorer.N in (1, 2, tiling.LONGEST):
        assert "they fit" in explorer.report and all(run[-1].output is not None for run in explorer.runs.values())


@pytest.mark.slow
def test_next_rescaling_visits_every_one_and_starts_again(explorer):
    frames = tiling.rescalings(explorer.runs)
    assert len(frames) >= 4
    for frame in (*frames, frames[0]):
        explorer.next_rescaling()
        assert explorer.step == frame
        assert "new maximum" in shown(explorer)[1]


def test_no_rescaling_stays_where_it_is():
    explorer = tiling.tiling_explorer(N=1)
    assert tiling.rescalings(explorer.runs) == []
    explorer.next_rescaling()
    assert explorer.step == 0


def test_every_control_has_a_name_and_says_what_it_is(explorer):
    named = [control.get("name") or control["press"] for control in explorer.controls]
    assert named == ["N", "D", "block_q", "block_k", "sram", "mask", "blocks", "beside", "next_rescaling"]
    assert all(control["label"] and control["help"] for control in explorer.controls)


def test_settings_can_be_linked_and_reject_what_no_control_can_say(explorer):
    other = tiling.tiling_explorer()
    link = traitlets.link((explorer, "N"), (other, "N"))
    explorer.N = 8
    assert other.N == 8 and other.runs[tiling.V2][0].shapes["Q"][-2] == 8
    link.unlink()
    for name, value in (("N", 99), ("N", True), ("mask", "none"), ("step", 10**6)):
        with pytest.raises(traitlets.TraitError):
            setattr(explorer, name, value)
    assert explorer.N == 8 and explorer.mask == tiling.CAUSAL


def test_the_call_makes_the_same_again(explorer):
    assert explorer.call == "tiling_explorer()"
    explorer.set(N=8, mask=tiling.BOTH, block_k=2)
    explorer.step = 3
    again = eval(explorer.call, {"tiling_explorer": tiling.tiling_explorer})
    assert (again.settings, again.step, again.call) == (explorer.settings, 3, explorer.call)
    assert shown(again) == shown(explorer)


def test_a_button_is_pressed_by_its_name(explorer):
    explorer._pressed(explorer, {"press": "next_rescaling"}, [])
    assert explorer.step == tiling.rescalings(explorer.runs)[0]
    explorer._pressed(explorer, {"press": "close"}, [])
    assert explorer.comm is not None, "no other method is called"


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("N", 99, ValueError, "expected N from 1 to 16, got 99"),
        ("N", "8", TypeError, "expected N to be an int, got str"),
        ("N", True, TypeError, "expected N to be an int, got bool"),
        ("N", 2.5, TypeError, "expected N to be an int, got float"),
        ("block_q", 0, ValueError, "expected block_q from 1 to 12, got 0"),
        ("block_k", None, TypeError, "expected block_k to be an int, got NoneType"),
        ("D", -1, ValueError, "expected D from 3 to 8, got -1"),
        ("sram", 10**6, ValueError, "expected sram from 10 to 128, got 1000000"),
        ("causal", "no", TypeError, "expected causal to be True or False, got 'no'"),
        ("mask", "no", ValueError, "expected mask to be one of 'full', 'causal', .*, got 'no'"),
        ("mask", "", ValueError, "expected mask to be one of .*, got ''"),
        ("length", 3, TypeError, "expected some of N, D, .*, step, got length"),
    ],
)
def test_first_values_are_taken_as_they_are_or_rejected(name, value, error, message):
    with pytest.raises(error, match=message):
        tiling.tiling_explorer(**{name: value})
