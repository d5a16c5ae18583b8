"""The stepper, driven from Python: picture and sentence follow the slider."""

import base64
import importlib.util
import subprocess
import sys
import textwrap
import weakref

import pytest
import torch

import flashlearn as fl
from flashlearn.show import Player, Stepper, picture, reduced_motion
from flashlearn.show.draw import draw_row

X = torch.tensor([3.0, 2.0, 5.0, 1.0])


@pytest.fixture
def widget():
    return Stepper(fl.online_softmax_steps(X), draw_row, alt="four bars")


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


@pytest.mark.slow
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

    widget = Stepper(fl.online_softmax_steps(X), draw, alt="nothing")
    for number in (2, 3, 2, 1, 3):
        widget.slider.value = number
    assert painted == [0, 1, 2]


def test_show_loads_another_run(widget):
    widget.slider.value = 9
    widget.show(fl.naive_softmax_steps(torch.tensor([1.0, 2.0])))
    assert widget.slider.value == 1 and widget.slider.max == 5
    assert "Step 1 of 5" in widget.sentence.value


def test_two_steppers_do_not_disturb_each_other(widget):
    other = Stepper(fl.naive_softmax_steps(X), draw_row, alt="four bars")
    before = other.picture.value
    widget.slider.value = 4
    assert other.picture.value == before and other.slider.value == 1


def test_runs_side_by_side():
    widget = Stepper({"safe": fl.safe_softmax_steps(X), "online": fl.online_softmax_steps(X)}, draw_row, alt="two")
    assert widget.slider.max == 13
    assert "safe: Step 1 of 13" in widget.sentence.value and "online: Step 1 of 9" in widget.sentence.value


def test_sentences_are_escaped():
    from dataclasses import replace

    steps = [replace(step, sentence="a < b & c") for step in fl.naive_softmax_steps(X)]
    assert "a &lt; b &amp; c" in Stepper(steps, draw_row, alt="bars").sentence.value


def test_what_a_page_without_widgets_shows(widget):
    bundle = widget._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert data["text/plain"] == "[stepper, 9 steps; run the notebook to move it] four bars"
    assert base64.b64decode(data["image/png"]) == bytes(widget.picture.value)
    assert "application/vnd.jupyter.widget-view+json" in data


def test_every_control_is_labelled(widget):
    assert widget.slider.description and widget.play.tooltip and widget.back.tooltip and widget.next.tooltip
    assert 'role="status"' in widget.sentence.value


def steps():
    return fl.record(fl.online_softmax_steps(X))


@pytest.mark.parametrize("interval", [-5, 0, 1.5, "100", True])
def test_an_interval_that_is_none(interval):
    with pytest.raises(ValueError, match=f"expected interval in whole milliseconds, 1 or more, got {interval!r}"):
        Stepper(steps(), draw_row, alt="a", interval=interval)


def test_a_picture_says_what_it_needs():
    with pytest.raises(TypeError, match=r"expected a function plot\(ax\), got str"):
        picture("plot", alt="a")
    with pytest.raises(TypeError, match="expected a step of a softmax, got Axes"):
        picture(draw_row, alt="a")
    for alt in ("", "  ", None):
        with pytest.raises(ValueError, match="expected alt text that says what the picture shows"):
            picture(lambda ax: None, alt=alt)
        with pytest.raises(ValueError, match="expected alt text that says what the picture shows"):
            Stepper(steps(), draw_row, alt=alt)
    with pytest.raises(ValueError, match="expected figsize"):
        picture(lambda ax: None, alt="a", figsize=(0, 0))
    with pytest.raises(TypeError, match="expected on to be True or False, got 'no'"):
        reduced_motion("no")


def fails(ax, step):
    raise ZeroDivisionError("no such picture")


def test_a_stepper_that_fails_leaves_the_projector_alone(widget, monkeypatch):
    """It fails while its first step is painted, after the steps were found good."""
    for kind, there in ((Player, ()), (Stepper, [widget])):  # those of other tests would all be painted
        monkeypatch.setattr(kind, "all", weakref.WeakSet(there))
    there = {widget}
    with pytest.raises(ZeroDivisionError) as kept:  # keeps the half-made widget alive, as a notebook's traceback does
        Stepper(steps(), fails, alt="a")
    assert set(Stepper.all) == there and kept.value.__traceback__
    fl.projector()
    fl.projector(False)


def test_a_run_that_fails_changes_nothing(widget):
    def only_rows(ax, step):
        draw_row(step).axes(ax) if "x" in step.values else fails(ax, step)

    widget = Stepper(steps(), only_rows, alt="four bars")
    widget.slider.value = 3
    seen = bytes(widget.picture.value), widget.sentence.value
    with pytest.raises(ZeroDivisionError):
        widget.show([fl.Step(sentence="another picture's step")])
    with pytest.raises(TypeError, match="each a flashlearn.Step"):
        widget.show([1])
    assert (widget.slider.value, widget.slider.max) == (3, 9)
    fl.projector(False)  # paints every stepper again
    assert seen == (bytes(widget.picture.value), widget.sentence.value)
    widget.next.click()
    assert "Step 4 of 9" in widget.sentence.value


def test_show_gives_what_notebooks_need():
    """Every name is there, by import and in dir(); none hides a module, and a wrong one is an AttributeError."""
    from flashlearn import show

    for name in show.__all__:
        assert getattr(show, name).__module__ == f"flashlearn.show.{show.HOMES[name]}" and name in dir(show)
        assert importlib.util.find_spec(f"flashlearn.show.{name}") is None, f"{name} hides a module"
    assert show.projector is fl.projector
    with pytest.raises(AttributeError, match="module 'flashlearn.show' has no attribute 'animation_'"):
        show.animation_  # noqa: B018


@pytest.mark.slow  # a process of its own
def test_names_of_show_import_what_they_need_only():
    program = """
        import sys
        import flashlearn
        assert "matplotlib" not in sys.modules and "flashlearn.show" not in sys.modules
        import flashlearn.show
        assert "matplotlib" not in sys.modules and "ipywidgets" not in sys.modules
        from flashlearn.show import picture
        assert "matplotlib" in sys.modules
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
