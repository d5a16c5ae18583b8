"""The tiling explorer, driven from Python: every control changes the runs; nothing it can be set to raises."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import flashlearn as fl
from flashlearn.algorithms.tiled import sram_elements
from flashlearn.show import animation
from flashlearn.show.explorers import tiling
from tests.slow import every, slow


@pytest.fixture
def explorer():
    return tiling.tiling_explorer()


def shown(explorer):
    return bytes(explorer.picture.value), explorer.sentence.value, explorer.fit.value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("length", 9),
        ("block_q", 2),
        slow("block_k", 2),
        slow("sram", 58),
        slow("mask", tiling.FULL),
        ("mask", tiling.WINDOW),
        slow("dimension", 3),
        slow("rule", tiling.FITTING),
    ],
)
def test_every_control_records_and_redraws(explorer, name, value):
    explorer.sram.value = 60
    if name == "rule":
        explorer.block_q.value = 1
    before, runs = shown(explorer), explorer.runs
    getattr(explorer, name).value = value
    assert explorer.runs is not runs
    assert explorer.fit.value != before[2]
    if name != "sram":  # more room changes the verdict, not the steps
        assert bytes(explorer.picture.value) != before[0]
    assert "Step 1 of" in explorer.sentence.value and explorer.slider.value == 1


def test_runs_are_what_the_controls_say():
    explorer = tiling.tiling_explorer(N=10, block_q=4, block_k=2, mask=tiling.FULL)
    tensors = explorer._tensors()
    for run in explorer.runs.values():
        torch.testing.assert_close(run[-1].output, F.scaled_dot_product_attention(*tensors))
        assert sum(step.phase == "blocks" for step in run) == fl.visited_blocks(10, 10, 4, 2)
    totals = [fl.hbm_bytes(run).total for run in explorer.runs.values()]
    assert all(f"{total:,}" in explorer.fit.value for total in totals)


@pytest.mark.parametrize("stride", [5, slow(1)])
def test_sentence_and_picture_follow_the_step(explorer, stride):
    seen, numbers = {shown(explorer)[:2]}, range(2, explorer.slider.max + 1, stride)
    for number in numbers:
        explorer.slider.value = number
        seen.add(shown(explorer)[:2])
    assert len(seen) == 1 + len(numbers) >= 4


@pytest.mark.parametrize(
    "N, sram",
    [slow(1, 10), (1, 17), slow(1, 128), (tiling.LONGEST, 10), slow(tiling.LONGEST, 17), slow(tiling.LONGEST, 128)],
)
@pytest.mark.slow
def test_extreme_values_never_raise(N, sram):
    explorer = tiling.tiling_explorer(N=N, sram=sram)
    for rule, mask in itertools.product((tiling.BY_HAND, tiling.FITTING, tiling.PAPER), (tiling.CAUSAL, tiling.WINDOW)):
        explorer.rule.value, explorer.mask.value = rule, mask
        for block_q, block_k in ((1, 1), (1, tiling.LARGEST), (tiling.LARGEST, 1), (tiling.LARGEST, tiling.LARGEST)):
            if rule == tiling.BY_HAND:
                explorer.block_q.value, explorer.block_k.value = block_q, block_k
            sizes = explorer.block_q.value, explorer.block_k.value
            fits = sram_elements(*sizes, tiling.D) <= sram
            assert ("they fit" in explorer.fit.value) == fits
            assert ("do not fit" in explorer.sentence.value or "No blocks fit" in explorer.sentence.value) == (not fits)
        explorer.slider.value = explorer.slider.max
        assert bytes(explorer.picture.value).startswith(b"\x89PNG")


def test_blocks_that_do_not_fit_are_explained(explorer):
    explorer.block_k.value = 5
    assert "they need 79 elements, and the SRAM holds 59. Make a block smaller" in explorer.sentence.value
    assert explorer.slider.max == 1 and explorer.fit.value.count("Nothing was run")
    explorer.sram.value = 79
    assert "need 79 of 79 elements: they fit" in explorer.fit.value and explorer.slider.max > 1


def test_bytes_on_chip_are_those_of_the_elements(explorer):
    """57 elements of tiles are 228 B; 252 B are on chip with m and l, which what fits leaves out."""
    assert "need 57 of 59 elements: they fit." in explorer.fit.value
    peaks = {fl.sram_peak(run) for run in explorer.runs.values()}
    assert peaks == {4 * (sram_elements(3, 3, tiling.D) + 2 * 3)} == {252}


def test_rules_choose_the_blocks(explorer):
    explorer.rule.value = tiling.PAPER
    assert (explorer.block_q.value, explorer.block_k.value) == fl.paper_block_sizes(59, tiling.D) == (4, 4)
    assert explorer.block_q.disabled and "do not fit" in explorer.sentence.value
    explorer.rule.value = tiling.FITTING
    assert (explorer.block_q.value, explorer.block_k.value) == fl.fitting_block_sizes(59, tiling.D) == (3, 3)
    explorer.sram.value = 10
    assert "even 1 × 1 needs 4 × 4 + 1 = 17 elements, and the SRAM holds 10" in explorer.sentence.value
    explorer.rule.value = tiling.BY_HAND
    assert not explorer.block_q.disabled


@pytest.mark.parametrize("dimension", range(3, 9))
def test_sliders_reach_what_the_rules_choose(dimension):
    for M in range(4 * dimension + 1, 129):
        for rule in (fl.paper_block_sizes, fl.fitting_block_sizes):
            assert max(rule(M, dimension)) <= tiling.LARGEST


def test_the_example_of_the_notebook_can_be_set(explorer):
    """M = 59, d = 3: the paper's rule asks for 63 elements, and what fits is 3 by 4, with 54."""
    explorer.dimension.value, explorer.rule.value = 3, tiling.PAPER
    assert (explorer.block_q.value, explorer.block_k.value) == fl.paper_block_sizes(59, 3) == (3, 5)
    assert "need 63 elements, and the SRAM holds 59" in explorer.sentence.value and "width:100%" in explorer.fit.value
    explorer.rule.value = tiling.FITTING
    assert "3 × 4 blocks need 54 of 59 elements: they fit" in explorer.fit.value and "width:92%" in explorer.fit.value


@pytest.mark.slow
def test_standard_attention_stands_beside_them(explorer):
    standard = fl.hbm_bytes(fl.record(fl.standard_attention_steps(*explorer._tensors(), causal=True)))
    assert f"In all: standard {standard.total:,} B, FA-1 " in explorer.fit.value
    for beside, titles in (
        ("standard, FA-2", (tiling.STANDARD, tiling.V2)),
        ("all three", (tiling.STANDARD, "FlashAttention-1", "FlashAttention-2")),
    ):
        explorer.beside.value = beside
        assert tuple(explorer.runs) == titles
        assert explorer._full == max(max(fl.hbm_bytes(run)) for run in explorer.runs.values()) >= max(standard)
        for number in range(1, 6):
            explorer.slider.value = number
        assert "Standard" in explorer.sentence.value


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
    want = torch.nn.functional.scaled_dot_product_attention(*explorer._tensors(), attn_mask=SEEN[mask])
    for run in explorer.runs.values():
        torch.testing.assert_close(run[-1].output, want)
    blocks = SEEN[mask].unflatten(0, (4, 3)).unflatten(2, (4, 3)).any(3).any(1)
    assert f"{int(blocks.sum())} of 16 pairs" in explorer.fit.value


def test_two_documents_are_there_whatever_the_length():
    explorer = tiling.tiling_explorer(mask=tiling.DOCUMENTS, sram=128)
    for explorer.length.value in (1, 2, tiling.LONGEST):
        assert "they fit" in explorer.fit.value and all(run[-1].output is not None for run in explorer.runs.values())


@pytest.mark.slow
def test_tiles_travel_one_step_on_and_not_without_motion(explorer, monkeypatch):
    """Between two steps they are on their way; not back, not far, not for who hurries, not with reduced motion."""
    parts, plain = [], tiling.draw_tiling
    monkeypatch.setattr(tiling, "draw_tiling", lambda *a: (parts.append(a[-1]), plain(*a)))

    def go(number, calm=True):
        parts.clear()
        explorer._last = -1e9 if calm else explorer._last
        explorer.slider.value = number
        return sorted(set(parts))

    assert go(2) == [*tiling.IN_BETWEEN, 1.0]
    assert go(3, calm=False) == [1.0] and go(6) == [1.0] and go(5) == [1.0]
    explorer.travel.value = False
    assert go(7) == [1.0]
    explorer.travel.value = True
    animation.reduced_motion()
    try:
        assert go(8) == [1.0] and tiling.tiling_explorer().travel.value is False
    finally:
        animation.reduced_motion(False)
    assert go(9) == [*tiling.IN_BETWEEN, 1.0]


@pytest.mark.slow
def test_next_rescaling_visits_every_one_and_starts_again(explorer):
    frames = tiling.rescalings(explorer.runs)
    assert len(frames) >= 4
    for frame in (*frames, frames[0]):
        explorer.rescaling.click()
        assert explorer.slider.value == frame + 1
        assert "new maximum" in explorer.sentence.value


def test_no_rescaling_stays_where_it_is():
    explorer = tiling.tiling_explorer(N=1)
    assert tiling.rescalings(explorer.runs) == []
    explorer.rescaling.click()
    assert explorer.slider.value == 1


def test_every_control_has_a_name_and_a_tooltip(explorer):
    for control in (
        explorer.length,
        explorer.block_q,
        explorer.block_k,
        explorer.sram,
        explorer.rule,
        explorer.mask,
        explorer.beside,
        explorer.travel,
        explorer.dimension,
        explorer.rescaling,
    ):
        assert control.description and control.tooltip


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
    ],
)
def test_first_values_are_taken_as_they_are_or_rejected(name, value, error, message):
    with pytest.raises(error, match=message):
        tiling.tiling_explorer(**{name: value})
