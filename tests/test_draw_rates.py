"""Pictures of rates: every number of a recording is in them, and nothing else."""

import pytest

from flashlearn.show import picture
from flashlearn.show.draw import draw_rates, draw_sustained, draw_versions, panels_of

ROWS = [
    {"D": D, "N": N, "causal": causal, "ours": {"forward": N / D}, "other": {"forward": 10.0}}
    for D in (64, 128)
    for causal in (False, True)
    for N in (4096, 1024)
]


def test_a_panel_for_every_setting_and_all_numbers_in_order():
    panels = panels_of(ROWS, "forward", {"ours": "flash_attention", "other": "cuDNN"})
    assert list(panels) == ["D = 64", "D = 64, causal", "D = 128", "D = 128, causal"]
    assert list(panels["D = 64"]["flash_attention"].items()) == [(1024, 16), (4096, 64)]
    assert set(panels["D = 128"]) == {"flash_attention", "cuDNN"}


def test_curves_are_drawn_within_the_axes_with_names_and_note():
    panels = panels_of(ROWS, "forward", {"ours": "ours", "other": "other"})
    drawn = []

    def plot(ax):
        drawn.append(ax.figure)
        draw_rates(ax, panels, "recorded somewhere", "forward, TFLOP/s")

    picture(plot, alt="rates")
    axes = drawn[0].axes
    assert [ax.get_title() for ax in axes] == list(panels)
    for ax, curves in zip(axes, panels.values(), strict=True):
        assert [list(line.get_ydata()) for line in ax.lines] == [list(rates.values()) for rates in curves.values()]
        assert all(max(line.get_ydata()) < ax.get_ylim()[1] for line in ax.lines)
        assert sorted(label.get_text() for label in ax.get_xticklabels()) == ["1K", "4K"]
    assert drawn[0].get_supxlabel() == "recorded somewhere" and axes[0].get_ylabel() == "forward, TFLOP/s"
    assert len({(line.get_marker(), line.get_linestyle()) for line in axes[0].lines}) == 2, "told apart without colour"


def test_six_names_can_be_told_apart_and_none_is_left_out_in_silence():
    drawn = []

    def plot(ax, names):
        drawn.append(ax.figure)
        draw_rates(ax, {"D = 64": {name: {512: 1.0, 1024: 2.0, 2048: 3.0, 4096: 4.0} for name in names}}, "note")

    picture(lambda ax: plot(ax, "abcdef"), alt="six curves")
    (axes,) = drawn[0].axes
    assert len({(line.get_marker(), line.get_linestyle()) for line in axes.lines}) == 6
    assert axes.get_xticks()[0] == 4096, "the longest has its tick"
    with pytest.raises(ValueError, match="expected panels with the same names in the same order, up to 6, got "):
        picture(lambda ax: plot(ax, "abcdefg"), alt="seven curves")


@pytest.mark.parametrize("panels", [("ab", "ba"), ("a", "b"), ("ab", "b"), ("", ""), ()])
def test_panels_have_the_names_of_the_legend(panels):
    rates = {f"D = {at}": {name: {512: 1.0} for name in names} for at, names in enumerate(panels)}
    with pytest.raises(ValueError, match="expected panels with the same names in the same order, up to 6, got "):
        picture(lambda ax: draw_rates(ax, rates, "note"), alt="wrong legend")


def test_rates_at_work_are_drawn_against_time_from_zero():
    curves, drawn = {"ours": {0.1: 5.0, 30.0: 4.0}, "other": {0.2: 6.0, 40.0: 3.0}}, []

    def plot(ax):
        drawn.append(ax)
        draw_sustained(ax, curves, 25.0, "recorded somewhere")

    picture(plot, figsize=(12.8, 4.6), alt="rates at work")
    (ax,) = drawn
    assert [dict(zip(*line.get_data(), strict=True)) for line in ax.lines] == list(curves.values())
    assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > 6 and ax.get_xlim()[0] == 0
    (band,) = ax.patches
    assert band.get_extents().transformed(ax.transData.inverted()).x1 == pytest.approx(25)
    assert [text.get_text() for text in ax.texts] == ["measure here:\nthe first 25 ms"]
    assert ax.get_title() == "recorded somewhere"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(curves)


@pytest.mark.parametrize("measured", ({}, {"fused": 300.0, "op": 600.0}))
def test_predictions_and_measurements_stand_in_words(measured):
    texts = []

    def plot(ax):
        draw_versions(ax, {"fused": 400.0, "op": 900.0}, measured, "note")
        texts.extend(text.get_text() for text in ax.texts)

    picture(plot, alt="versions")
    fused = "400 predicted" + (", 300 measured" if measured else "")
    assert fused in texts and "note" in texts
