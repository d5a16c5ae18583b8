"""Questions in a real JupyterLab, answered by keys: nothing is told before the choice, and the choice stays."""

import json
import re

import pytest

from flashlearn.exercises import log
from flashlearn.exercises.questions import QUESTIONS

pytest.importorskip("playwright", reason="needs the extra `test`")
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NAME = "03.complexity"
ASK = f"from flashlearn.exercises import predict\npredict({NAME!r})"


def asked(notebook):
    """The question below the last cell."""
    form = notebook.page.locator(".flashlearn-question").last
    form.wait_for(timeout=60_000)
    return form


def test_it_is_answered_by_keys_once_and_for_all(open_in_the_page, kept):
    (kept / log.PREDICTIONS).unlink(missing_ok=True)
    notebook, question = open_in_the_page("00_start_here"), QUESTIONS[NAME]
    keyboard = notebook.page.keyboard
    notebook.run_code(ASK)
    form = asked(notebook)
    expect(form.get_by_role("group", name=question.text)).to_be_visible()
    radios = form.get_by_role("radio")
    assert [radio.evaluate("node => node.parentElement.textContent") for radio in radios.all()] == question.choices
    status = form.get_by_role("status")
    there = status.element_handle()
    active = "window.jupyterapp.shell.currentWidget.content.activeCellIndex"

    form.get_by_role("button").focus()
    keyboard.press("Enter")
    expect(status).to_have_text("Choose one first: a guess is enough.")
    keyboard.press("Shift+Tab")
    keyboard.press("Space")
    cell = notebook.page.evaluate(active)
    wrong = next(at for at, text in enumerate(question.choices) if text != question.right)
    for _ in question.choices:
        if radios.nth(wrong).is_checked():
            break
        keyboard.press("ArrowDown")
    expect(radios.nth(wrong)).to_be_checked()
    assert notebook.page.evaluate(active) == cell, "the arrows are the radio buttons', not the notebook's"
    assert question.why not in notebook.page.content(), "not told, and not in the page, before the choice is made"
    assert not (kept / log.PREDICTIONS).exists()

    keyboard.press("Tab")
    keyboard.press("Enter")
    believes = next(each.believes for each in question.wrong if each.text == question.choices[wrong])
    for words in (believes, question.right, question.why):
        expect(status).to_contain_text(words)
    assert status.evaluate("(node, there) => node === there", there), "the node that a screen reader watches stays"
    line = json.loads((kept / log.PREDICTIONS).read_text(encoding="utf-8"))
    assert (line["question"], line["choice"], line["right"]) == (NAME, question.choices[wrong], False)

    keyboard.press("Shift+Tab")
    keyboard.press("ArrowDown")
    keyboard.press("ArrowUp")
    radios.nth(question.choices.index(question.right)).click(force=True)
    expect(radios.nth(wrong)).to_be_checked()
    expect(form.locator("label.right")).to_contain_text("✓ right")
    expect(form.locator("label.chosen")).to_contain_text("✗ your choice")
    notebook.screenshot("predict")

    notebook.run_code(ASK)
    expect(asked(notebook).get_by_role("radio").nth(wrong)).to_be_checked()
    expect(asked(notebook).get_by_role("status")).to_contain_text(question.why)
    assert len((kept / log.PREDICTIONS).read_text(encoding="utf-8").splitlines()) == 1
    assert notebook.errors == []
    notebook.passed = True


def test_a_busy_kernel_is_spoken_of_and_the_answer_comes_later(open_in_the_page, kept):
    (kept / log.PREDICTIONS).unlink(missing_ok=True)
    notebook, question = open_in_the_page("00_start_here"), QUESTIONS[NAME]
    notebook.run_code(ASK)
    form = asked(notebook)
    notebook.run_code("import time\ntime.sleep(0.1)")
    form.get_by_label(question.right).check()
    form.get_by_role("button").click()
    expect(form.get_by_role("status")).to_contain_text(f"Right. {question.why}", timeout=20_000)
    notebook.passed = True


STAGE = """import torch
import flashlearn as fl
from flashlearn.exercises import predict
from flashlearn.show import play
from flashlearn.show.draw import draw_row
display(predict("17.longer", "03.wrong"))
display(play(fl.online_softmax_steps(torch.tensor([3.0, 2.0, 5.0])), draw_row, alt="bars"))
"""


def is_on_stage(page, stop):
    """The stop fills the screen, and all of its words are on it, in at least 28 pixels."""
    expect(stop).to_have_class(re.compile("flashlearn-shown"))
    box, size = stop.bounding_box(), page.viewport_size
    assert [round(box[side]) for side in ("x", "y", "width", "height")] == [0, 0, size["width"], size["height"]]
    assert stop.evaluate("node => node.scrollHeight <= node.clientHeight && node.scrollWidth <= node.clientWidth")
    sizes = "node => [...node.querySelectorAll('legend, label, [role=status]')].map(n => parseFloat(getComputedStyle(n).fontSize))"
    assert min(stop.evaluate(sizes)) >= 28


def test_in_projector_mode_it_is_a_stop(open_in_the_page, kept):
    """A question waits on the screen; a number marks a choice, Page Down takes it, and then goes on."""
    (kept / log.PREDICTIONS).unlink(missing_ok=True)
    notebook = open_in_the_page("00_start_here")
    page, press = notebook.page, notebook.page.keyboard.press
    notebook.run_code(STAGE)
    longest, other = (notebook.page.locator(".flashlearn-question").nth(at) for at in (0, 1))
    expect(page.locator(".flashlearn-player")).to_have_count(1, timeout=60_000)
    notebook.project()
    notebook.turn_to(longest)
    is_on_stage(page, longest)
    press("9")
    press("b")
    expect(page.locator(".flashlearn-black")).to_have_count(1)
    press("b")
    assert longest.locator("input:checked").count() == 0
    press("2")
    expect(longest.get_by_role("radio").nth(1)).to_be_checked()
    press("1")
    press("b")
    expect(page.locator(".flashlearn-black")).to_have_count(1)
    press("b")
    press("PageDown")
    question = QUESTIONS["17.longer"]
    expect(longest.get_by_role("status")).to_contain_text(question.why, timeout=20_000)
    expect(longest.get_by_role("radio").first).to_be_checked()
    for height, width in ((1080, 1920), (720, 1280)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)
        is_on_stage(page, longest)
        notebook.screenshot(f"stage question {height}")
    press("PageDown")
    is_on_stage(page, other)
    press("PageDown")  # nothing was chosen
    expect(page.locator(".flashlearn-player")).to_have_class(re.compile("flashlearn-shown"))
    assert len((kept / log.PREDICTIONS).read_text(encoding="utf-8").splitlines()) == 1
    press("PageUp")
    is_on_stage(page, other)
    press("ArrowUp")
    is_on_stage(page, longest)
    page.mouse.click(640, 690)
    press("ArrowDown")
    press("3")
    press("Enter")  # as outside
    expect(other.get_by_role("status")).to_contain_text(QUESTIONS["03.wrong"].why, timeout=20_000)
    assert notebook.errors == []
