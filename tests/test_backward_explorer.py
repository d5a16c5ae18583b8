"""The backward explorer and the pictures with numbers: what they show is what the steps hold."""

import math
import re
from pathlib import Path

import nbformat
import pytest
import torch

import flashlearn as fl
from flashlearn.show.draw import draw_backward_chip, draw_gradient_row, draw_gradients, draw_sums
from flashlearn.show.draw.equations import fitting, height, length, matrix, short, wrapped
from flashlearn.show.explorers import backward_explorer
from flashlearn.show.explorers.backward import EVERY, FOLLOWED, FUSED, ROW, TILES, TWO_PASSES
from tests.drawing import sound
from tests.slow import slow


def both(draw, step):
    """Both layouts are sound."""
    for narrow in (False, True):
        sound(draw(step, narrow=narrow))


def by_hand():
    """Q, K, V and dO of the example that notebooks 09 and 10 work out."""
    rows = (
        [[math.log(3), 0.0], [2.0, -1.0]],
        [[2.0, 1.0], [1.0, -1.0]],
        [[1.0, 0.0], [1.0, 2.0]],
        [[1.0, 2.0], [2.0, -1.0]],
    )
    return [torch.tensor(each, dtype=torch.float64)[None, None] for each in rows]


def whole():
    q, k, v, do = by_hand()
    return fl.record(fl.attention_backward_steps(do, q, k, v, scale=1.0))


def tiled(**options):
    q, k, v, do = by_hand()
    blocks = {"block_q": 1, "block_k": 1, "scale": 1.0}
    o, lse = fl.tiled_attention_v2(q, k, v, **blocks, return_lse=True)
    return fl.record(fl.tiled_attention_backward_steps(do, q, k, v, o, lse, **blocks, **options))


@pytest.mark.parametrize("value, text", [(0.75, "0.75"), (2.0, "2"), (-0.5, "−0.5"), (10.0, "10"), (-1e-9, "0")])
def test_numbers_are_as_short_as_they_can_be(value, text):
    assert short(value) == text


def test_numbers_appear_when_they_are_made():
    run = whole()
    shown = [draw_gradients(step).texts() for step in run]
    assert shown[0].count("2.2") == 1 and "5" not in shown[2] and "5" in shown[3]
    assert "−0.75" not in shown[3] and shown[4].count("−0.75") == 3, (
        "dS, in its own equation and as a factor, also turned"
    )
    for name in ("S", "P", "dV", "Pᵀ", "dP", "dS", "δ", "dQ", "dK", "dSᵀ", "= softmax(S)"):
        assert all(name in each for each in shown)
    dq = run[-1].output[0][0, 0].flatten().tolist()
    assert all(short(value) in shown[5] for value in dq) and short(dq[1]) not in shown[4]


@pytest.mark.parametrize("number", [slow(0), 4, slow(7)])
def test_words_of_whole_matrices_are_readable(number):
    both(draw_gradients, whole()[number])


@pytest.mark.parametrize("fused", [False, True])
def test_the_chip_shows_the_numbers_of_the_step(fused):
    for step in tiled(fused=fused)[1::2]:
        shown = draw_backward_chip(step).texts()
        for name in {"P", "S", "dP", "dS", "dV", "dK", "dQ"} & set(step.values) - (
            {"dQ"} if step.phase == "initialise" else set()
        ):
            if "P" in step.values:
                assert {short(value) for value in step.values[name].flatten().tolist()} <= set(shown), name
        assert f"FLOPs {fl.matmul_flops(step.so_far):,}" in shown
        assert f"▼ read {fl.hbm_bytes(step.so_far).read:,} B" in shown


def test_what_a_block_of_keys_adds_up_to_is_that_of_the_whole_matrices():
    """P_00^T dO_0 + P_10^T dO_1 by tiles is the first row of dV by whole matrices."""
    last_of_key_0 = [step for step in tiled() if step.phase == "dK and dV" and step.values["j"] == 0][-1]
    torch.testing.assert_close(last_of_key_0.values["dV"][0, 0, 0], whole()[-1].output[2][0, 0, 0])
    assert {"1.75", "1", "0.5", "dV₀", "dO₁", "Pᵀ", "dK₀"} <= set(draw_backward_chip(last_of_key_0).texts())


# the explorer


@pytest.mark.parametrize("follow", [f if f in ("K1, V1", "Q2", EVERY) else slow(f) for f in FOLLOWED])
def test_a_followed_block_is_in_every_step(follow):
    explorer = backward_explorer(follow=follow)
    (run,) = explorer.runs.values()
    if follow != EVERY:
        letter, number = ("j", int(follow[1])) if follow[0] == "K" else ("i", int(follow[1]))
        assert run and all(step.values[letter] == number for step in run)
    pairs = {(step.values["i"], step.values["j"]) for step in run if "P" in step.values}
    assert f"which meet {len(pairs)} tiles: {fl.hbm_bytes(run).total:,} B" in explorer.report
    assert f"{fl.matmul_flops(run):,} FLOPs" in explorer.report


def test_keys_meet_the_queries_that_see_them():
    meets = [
        len({s.values["i"] for s in backward_explorer(follow=f"K{j}, V{j}").runs[""] if "P" in s.values})
        for j in (0, 2)
    ]
    assert meets == [4, 2]
    assert {s.values["i"] for s in backward_explorer(follow="K3, V3", causal=False).runs[""]} == {0, 1, 2, 3}


def test_two_passes_make_seven_products_for_a_pair_and_fused_five():
    counts = {}
    for form in (TWO_PASSES, FUSED):
        (run,) = backward_explorer(follow="K1, V1", form=form).runs.values()
        pairs = {(step.values["i"], step.values["j"]) for step in run}
        counts[form] = sum(len(step.matmuls) for step in run) / len(pairs)
    assert counts == {TWO_PASSES: 7, FUSED: 5}


@pytest.mark.parametrize("name, value", [("follow", "Q2"), slow("form", FUSED), slow("causal", False), ("view", ROW)])
def test_every_control_records_and_redraws(name, value):
    explorer = backward_explorer()
    before = explorer._made(0), explorer.report
    setattr(explorer, name, value)
    assert explorer.report != before[1]
    if name in ("follow", "view"):  # the first pair of blocks is the same in both forms
        assert explorer._made(0) != before[0]
    assert "Step " in explorer.transcript[0]


def test_a_row_follows_its_sliders():
    explorer = backward_explorer(view=ROW)
    for name, value in (("s0", 3.0), ("dp2", -3.0)):
        setattr(explorer, name, value)
        (run,) = explorer.runs.values()
        s, dp = (
            torch.tensor([getattr(explorer, f"{kind}{key}") for key in range(4)], dtype=torch.float64)
            for kind in ("s", "dp")
        )
        s.requires_grad_()
        torch.testing.assert_close(run[-1].output, torch.autograd.grad(torch.softmax(s, -1), s, dp)[0])
        assert explorer.step == 2 == len(run) - 1, "the consequence is seen at once"
    assert "ds adds up to 0.00" in explorer.report


def test_a_row_says_what_it_adds_up_to_and_when():
    (run,) = backward_explorer(view=ROW).runs.values()
    shown = [draw_gradient_row(step).texts() for step in run]
    assert "adds up to 0.00" not in shown[0] and "adds up to 0.00" in shown[1]
    assert "δ = Σ p dp = 1.42" in shown[0] and any("raises s₀, s₁" in text for text in shown[1])
    for step in run:
        both(draw_gradient_row, step)


@pytest.mark.parametrize("value", [slow(-3.0), slow(0.0), 3.0])
def test_extreme_rows_are_painted_and_add_up_to_nothing(value):
    explorer = backward_explorer(view=ROW)
    explorer.set(**dict.fromkeys(("s0", "s1", "dp1", "dp2", "dp3"), value))
    (run,) = explorer.runs.values()
    assert abs(run[-1].output.sum().item()) < 1e-12 and "adds up to 0.00" in explorer.report
    both(draw_gradient_row, run[-1])


@pytest.mark.parametrize("follow, form", [(EVERY, FUSED), slow("Q3", TWO_PASSES)])
def test_no_step_of_tiles_is_clipped(follow, form):
    (run,) = backward_explorer(follow=follow, form=form).runs.values()
    for step in run[::5]:
        both(draw_backward_chip, step)


def test_the_controls_of_the_other_view_are_not_shown():
    explorer = backward_explorer(view=TILES)
    amounts = [f"{kind}{key}" for kind in ("s", "dp") for key in range(4)]
    assert explorer.hidden == amounts
    explorer.view = ROW
    assert explorer.hidden == ["follow", "form", "causal"]
    assert [control["name"] for control in explorer.controls] == ["view", *explorer.hidden, *amounts]
    assert all(control["label"] and control["help"] for control in explorer.controls)


@pytest.mark.parametrize("start", [{"view": "rows"}, {"follow": "K4, V4"}, {"form": "three passes"}])
def test_bad_arguments_say_what_was_expected(start):
    ((name, value),) = start.items()
    with pytest.raises(ValueError, match=f"expected {name} to be one of .*, got '{value}'"):
        backward_explorer(**start)


def test_causal_must_be_a_truth_value():
    with pytest.raises(TypeError, match="expected causal to be True or False, got str"):
        backward_explorer(causal="no")


def test_both_notebooks_work_out_the_same_numbers():
    """The lines that type Q, K, V and dO stand alike in 09 and 10, and are those of `by_hand`."""
    typed = []
    for path in sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))[9:11]:
        source = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
        typed.append(re.findall(r"^(?:Q2|K2|V2|dO2) = .*$", source, flags=re.MULTILINE))
    assert typed[0] == typed[1] and len(typed[0]) == 4
    space: dict = {"torch": torch, "math": math}
    exec("\n".join(typed[0]), space)
    for name, t in zip(("Q2", "K2", "V2", "dO2"), by_hand(), strict=True):
        assert torch.equal(space[name], t[0, 0])


# sums written out


@pytest.mark.parametrize("phase", ["dK and dV", "dQ"])
def test_terms_appear_one_by_one_and_add_up(phase):
    run = fl.record(step for step in tiled() if step.phase == phase and step.program == (0,))
    made = ("dV", "dK") if phase != "dQ" else ("dQ",)
    for number, step in enumerate(run):
        both(draw_sums, step)
        shown = draw_sums(step).texts()
        for name in made:
            assert {short(value) for value in step.values[name].flatten().tolist()} <= set(shown)
        numbers = [text for text in shown if re.fullmatch(r"−?[\d.]+", text)]
        assert len(numbers) == len(made) * (2 + 3 * (number + 1)), (
            "the sum, and a factor and a row for every term so far"
        )
    assert ("dV₀" in shown and "P₁₀ᵀ" in shown and "dO₁" in shown) == (phase != "dQ")


def test_no_sum_where_nothing_is_added():
    assert draw_sums(tiled()[0]).texts() == []


@pytest.mark.parametrize("width, high, scale", [(10_000, 10_000, 1.5), (300, 10_000, None), (10_000, 20, None)])
def test_equations_grow_into_their_room_and_shrink_only_where_they_must(width, high, scale):
    line = [matrix("A", "Q", torch.ones(2, 3)), "=", matrix("B", "K", torch.ones(2, 3))]
    got = fitting([[line]], width, high)
    assert got * length(line) <= width and got * height(line) <= high
    assert got == scale or (scale is None and (got < 1) == (high < 100 or width < length(line)))


def test_what_is_too_wide_breaks_before_a_plus():
    A, B = (matrix(name, "Q", torch.ones(2, 3)) for name in "AB")
    line = [A, "=", B, "·", A, "+", B, "·", A]
    assert wrapped([[line]], 10_000) == [[line]]
    assert wrapped([[line]], length(line) - 1) == [[line[:5]], [line[5:]]]
    assert wrapped([[line[:5], line[5:]]], length(line) - 1) == [[line[:5]], [line[5:]]]
