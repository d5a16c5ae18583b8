"""Questions in a real JupyterLab, answered by keys: nothing is told before the choice, and the choice stays."""

import json

import pytest
from playwright.sync_api import expect

from flashlearn.exercises import diary
from flashlearn.exercises.questions import QUESTIONS

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NAME = "03.complexity"
ASK = f"from flashlearn.exercises import predict\npredict({NAME!r})"


def asked(notebook):
    """The question below the last cell."""
    form = notebook.page.locator(".flashlearn-ballot").last
    form.wait_for(timeout=60_000)
    return form


def test_it_is_answered_by_keys_once_and_for_all(open_notebook, kept):
    (kept / diary.PREDICTIONS).unlink(missing_ok=True)
    notebook, question = open_notebook("00_start_here"), QUESTIONS[NAME]
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
    assert not (kept / diary.PREDICTIONS).exists()

    keyboard.press("Tab")
    keyboard.press("Enter")
    believes = next(each.believes for each in question.wrong if each.text == question.choices[wrong])
    for words in (believes, question.right, question.why):
        expect(status).to_contain_text(words)
    assert status.evaluate("(node, there) => node === there", there), "the node that a screen reader watches stays"
    line = json.loads((kept / diary.PREDICTIONS).read_text())
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
    assert len((kept / diary.PREDICTIONS).read_text().splitlines()) == 1
    assert notebook.errors == []


def test_a_busy_kernel_is_spoken_of_and_the_answer_comes_later(open_notebook, kept):
    (kept / diary.PREDICTIONS).unlink(missing_ok=True)
    notebook, question = open_notebook("00_start_here"), QUESTIONS[NAME]
    notebook.run_code(ASK)
    form = asked(notebook)
    notebook.run_code("import time\ntime.sleep(0.1)")
    form.get_by_label(question.right).check()
    form.get_by_role("button").click()
    expect(form.get_by_role("status")).to_contain_text(f"Right. {question.why}", timeout=20_000)


def test_in_projector_mode_it_is_readable(open_notebook):
    notebook = open_notebook("00_start_here")
    notebook.run_code(ASK)
    form = asked(notebook)
    notebook.project()
    notebook.page.keyboard.press("Escape")
    form.scroll_into_view_if_needed()
    size = form.locator("label").first.evaluate("node => parseFloat(getComputedStyle(node).fontSize)")
    assert size >= 18
    box = form.bounding_box()
    assert box["width"] <= 1280
    notebook.screenshot("predict_projected")
