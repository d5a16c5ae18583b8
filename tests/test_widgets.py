"""The stepper, driven from Python: picture and sentence follow the slider."""

import base64

import pytest
import torch

import flashlearn as fl
from flashlearn.show.draw import draw_row
from flashlearn.show.widgets import Stepper, stepper

X = torch.tensor([3.0, 2.0, 5.0, 1.0])


@pytest.fixture
def widget():
    return stepper(fl.online_softmax_steps(X), draw_row, alt="four bars")


def test_first_step_is_shown(widget):
    assert isinstance(widget, Stepper)
    assert bytes(widget.picture.value).startswith(b"\x89PNG")
    assert "Step 1 of 9 · x[0] = 3 comes first" in widget.sentence.value
    assert (widget.slider.min, widget.slider.max, widget.play.max) == (1, 9, 9)


def test_slider_changes_picture_and_sentence(widget):
    seen = set()
    for number in range(1, 10):
        widget.slider.value = number
        assert f"Step {number} of 9" in widget.sentence.value
        assert f"Step {number} of 9" in widget.picture.tooltip
        seen.add(widget.picture.value)
    assert len(seen) == 9


def test_buttons_stay_within_bounds(widget):
    widget.back.click()
    assert widget.slider.value == 1
    for _ in range(20):
        widget.next.click()
    assert widget.slider.value == 9
    widget.back.click()
    assert widget.slider.value == 8


def test_a_step_is_painted_once():
    painted = []

    def draw(ax, step):
        painted.append(step.number)

    widget = stepper(fl.online_softmax_steps(X), draw, alt="nothing")
    for number in (2, 3, 2, 1, 3):
        widget.slider.value = number
    assert painted == [0, 1, 2]


def test_show_loads_another_run(widget):
    widget.slider.value = 9
    widget.show(fl.naive_softmax_steps(torch.tensor([1.0, 2.0])))
    assert widget.slider.value == 1 and widget.slider.max == 5
    assert "Step 1 of 5" in widget.sentence.value


def test_two_steppers_do_not_disturb_each_other(widget):
    other = stepper(fl.naive_softmax_steps(X), draw_row, alt="four bars")
    before = other.picture.value
    widget.slider.value = 4
    assert other.picture.value == before and other.slider.value == 1


def test_runs_side_by_side():
    widget = stepper({"safe": fl.safe_softmax_steps(X), "online": fl.online_softmax_steps(X)}, draw_row, alt="two")
    assert widget.slider.max == 13
    assert "safe: Step 1 of 13" in widget.sentence.value and "online: Step 1 of 9" in widget.sentence.value


def test_sentences_are_escaped():
    from dataclasses import replace

    steps = [replace(step, sentence="a < b & c") for step in fl.naive_softmax_steps(X)]
    assert "a &lt; b &amp; c" in stepper(steps, draw_row, alt="bars").sentence.value


def test_what_a_page_without_widgets_shows(widget):
    bundle = widget._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert data["text/plain"] == "[stepper, 9 steps; run the notebook to move it] four bars"
    assert base64.b64decode(data["image/png"]) == bytes(widget.picture.value)
    assert "application/vnd.jupyter.widget-view+json" in data


def test_every_control_is_labelled(widget):
    assert widget.slider.description and widget.play.tooltip and widget.back.tooltip and widget.next.tooltip
    assert 'role="status"' in widget.sentence.value


def test_needs_words_and_steps():
    with pytest.raises(ValueError, match="expected alt text"):
        stepper(fl.naive_softmax_steps(X), draw_row, alt="")
    with pytest.raises(ValueError, match="expected at least one step"):
        stepper(iter(()), draw_row, alt="bars")
