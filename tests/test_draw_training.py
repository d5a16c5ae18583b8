"""The picture of a long training run: both runs, the least validation loss and the 5-gram model, in their places."""

import pytest

from flashlearn.show import picture
from flashlearn.show.draw import draw_training
from flashlearn.show.draw.curves import MEAN

VALIDATION = {"0": 4.0, "100": 2.0, "200": 1.5, "300": 1.75, "400": 3.0}
RUNS = {
    "theirs": {
        "losses": [4.0] * MEAN + [1.0] * MEAN + [9.0],
        "validation": {k: 1.1 * v for k, v in VALIDATION.items()},
    },
    "ours": {"losses": [2.0] * MEAN + [0.5] * MEAN + [9.0], "validation": VALIDATION},
}


def drawn(runs):
    shown = picture(lambda ax: draw_training(ax, runs, 1.6, "recorded somewhere"), alt="losses of a long run")
    return shown.figure


def test_both_runs_are_drawn_and_told_apart():
    whole, near = drawn(RUNS).axes
    curves = [list(line.get_ydata()) for line in whole.lines]
    for run, training in zip(RUNS.values(), ([4, 1], [2, 0.5]), strict=True):
        assert training in curves and list(run["validation"].values()) in curves
        assert list(run["validation"].values()) in [list(line.get_ydata()) for line in near.lines]
    (legend,) = whole.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["theirs", "ours"]
    assert len({(line.get_linestyle(), line.get_linewidth()) for line in legend.get_lines()}) == 2


def test_the_least_validation_loss_and_the_5_gram_model_are_marked():
    figure = drawn(RUNS)
    whole, near = figure.axes
    for panel in (whole, near):
        (ring,) = (line for line in panel.lines if line.get_marker() == "o")
        assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (200, 1.5)
        assert [1.6, 1.6] in [list(line.get_ydata()) for line in panel.lines]
        low, high = panel.get_ylim()
        assert low < 1.5 < 1.6 < high
    assert {text.get_text() for text in near.texts} == {"step 200: 1.500", "5-gram: 1.600"}
    assert {"validation loss", f"training loss, means of {MEAN} steps", "5-gram model"} == {
        text.get_text() for text in whole.texts
    }
    assert figure.get_supxlabel() == "recorded somewhere"


def test_another_number_of_runs_is_rejected():
    with pytest.raises(ValueError):
        drawn({**RUNS, "a third": RUNS["ours"]})
