"""Projector mode in a real JupyterLab, driven by real keys and clicks: what a lecturer and a clicker do."""

import re

import pytest

from tests.browser.conftest import SMALLEST_IN_SCENES, in_a_page

pytest.importorskip("playwright", reason="needs the extra `test`")
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SMALLEST = """Math.min(...[...document.querySelectorAll(".flashlearn-shown [role=status]")]
    .filter(node => node.textContent).map(node => parseFloat(getComputedStyle(node).fontSize)))"""
STOPS = ".flashlearn-player:not(.flashlearn-explorer *), .flashlearn-explorer, .flashlearn-picture, .jp-RenderedImage"
MAKE = """
import torch
import flashlearn as fl
from flashlearn.exercises import check
from flashlearn.show import picture, play
from flashlearn.show.draw import draw_row
from flashlearn.show.explorers import program_explorer
display(picture(lambda ax: ax.plot([1, 3, 2]), alt="A line that rises and falls"))
display(check("03.merge", lambda *a: None))
display(play(fl.online_softmax_steps(torch.tensor([3.0, 2.0, 5.0])), draw_row, alt="bars"))
display(program_explorer(N=2, block=2, H=2, B=1))
"""
TALL = "from flashlearn.show.explorers import tiling_explorer\ntiling_explorer()"


class Projected:
    """A notebook with a stored picture and, in its last cell, a picture, a report, a player and an explorer."""

    def __init__(self, notebook):
        self.notebook, self.page = notebook, notebook.page
        self.shown = self.page.locator(".flashlearn-shown")
        self.stops = self.page.locator(STOPS)

    def begin(self, key, last=True, source="import flashlearn\nflashlearn.projector()"):
        """Type the call into a cell, the last or the first, and press a key there."""
        self.page.evaluate(
            """([source, last]) => {
                 const { content } = window.jupyterapp.shell.currentWidget;
                 const index = last ? content.model.cells.length : 0;
                 content.model.sharedModel.insertCell(index, { cell_type: 'code', source });
                 content.activeCellIndex = index;
                 content.mode = 'edit';
               }""",
            [source, last],
        )
        self.page.wait_for_function("document.activeElement?.closest('.cm-editor')")
        self.page.keyboard.press(key)
        self.page.wait_for_selector(".flashlearn-presenting")

    def end(self):
        self.notebook.run_code("import flashlearn\nflashlearn.projector(False)")
        self.page.wait_for_selector(".flashlearn-projector", state="detached")

    def is_at(self, number):
        """Stop `number` fills the screen, on top of everything."""
        expect(self.shown).to_have_count(1)
        expect(self.stops.nth(number)).to_have_class(re.compile("flashlearn-shown"))
        box, size = self.shown.bounding_box(), self.page.viewport_size
        assert [round(box[side]) for side in ("x", "y", "width", "height")] == [0, 0, size["width"], size["height"]]
        assert self.shown.evaluate("node => node.contains(document.elementFromPoint(innerWidth / 2, innerHeight / 3))")

    def says(self, words):
        expect(self.shown.locator(".flashlearn-sentence").first).to_contain_text(words, timeout=20_000)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)


@pytest.fixture(scope="module")
def one(lab, chromium, kept_pages):
    notebook = in_a_page(lab, chromium, kept_pages, "00_start_here")
    notebook.run_code(MAKE)
    for kind, many in (("picture", 1), ("player", 2), ("explorer", 1)):
        expect(notebook.page.locator(f".flashlearn-{kind}")).to_have_count(many, timeout=60_000)
    yield Projected(notebook)
    notebook.shut_down()


@pytest.fixture(autouse=True)
def ends(one):
    yield
    one.page.set_viewport_size({"width": 1280, "height": 720})
    one.end()
    assert one.notebook.errors == []


@pytest.mark.parametrize(("key", "last"), [("Shift+Enter", True), ("Control+Enter", True), ("Shift+Enter", False)])
def test_page_keys_walk_through_every_stop_and_step(one, key, last):
    """From the first stop to the last and back, each from its first step to its last, with a clicker's two keys."""
    one.begin(key, last)
    first = one.stops.count() - 3
    assert first >= 1, "a stored picture is a stop too"
    one.is_at(0)
    one.press(*["PageDown"] * first)
    one.is_at(first)
    expect(one.shown.locator("img")).to_have_attribute("alt", "A line that rises and falls")
    one.press("PageDown")
    one.is_at(first + 1)
    last_step = 7
    for step in range(1, last_step + 1):
        one.says(f"Step {step} of {last_step}")
        one.press("PageDown")
    one.is_at(first + 2)
    for step in (1, 2, 3):
        one.says(f"Step {step} of 3")
        one.press("PageDown")
    one.is_at(first + 2)
    one.says("Step 3 of 3")
    one.press("PageUp", "PageUp", "PageUp")
    one.is_at(first + 1)
    one.says(f"Step {last_step} of {last_step}")
    one.press(*["PageUp"] * last_step)
    one.is_at(first)


def test_a_click_anywhere_leaves_the_keys_to_the_stage(one):
    one.begin("Shift+Enter")
    one.press(*["ArrowDown"] * (one.stops.count() - 2))
    one.says("Step 1 of 7")
    for place in ((20, 20), (640, 300), (1260, 700), (640, 690)):
        one.page.mouse.click(*place)
    one.press("Home", "ArrowRight", "PageDown")
    one.says("Step 3 of 7")
    one.press("ArrowDown")
    heads = one.shown.get_by_role("slider", name="heads")
    heads.click()
    value = heads.get_attribute("aria-valuetext")
    one.press("Home", "ArrowRight")
    one.page.wait_for_function("() => document.querySelector('.flashlearn-shown').flashlearnPlayer.step === 1")
    assert heads.get_attribute("aria-valuetext") == value, "an arrow changed the size that was touched"
    heads.focus()
    one.press("Tab", "Shift+Tab")  # by the keyboard, on purpose
    one.press("ArrowRight")
    expect(heads).not_to_have_attribute("aria-valuetext", value)
    one.press("Escape")


def test_what_is_seen(one):
    """Sizes of type, hidden controls, and no report."""
    one.begin("Shift+Enter")
    one.press(*["ArrowDown"] * 20)
    expect(one.shown.locator(".flashlearn-panel")).to_be_visible()
    assert one.notebook.page.evaluate(SMALLEST) >= 20  # of an explorer, which has controls beside its sentences
    assert one.shown.evaluate(SMALLEST_IN_SCENES) >= 15.95
    for width, height in ((1920, 1080), (1280, 720)):
        one.page.set_viewport_size({"width": width, "height": height})
        one.page.wait_for_timeout(300)
        one.is_at(one.stops.count() - 1)
        one.notebook.screenshot(f"stage explorer {height}")
    one.press("ArrowUp")
    one.page.mouse.move(10, 10)
    expect(one.shown.locator(".flashlearn-controls")).to_have_css("opacity", "1")
    expect(one.shown.locator(".flashlearn-controls")).to_have_css("opacity", "0", timeout=8_000)
    assert one.notebook.page.evaluate(SMALLEST) >= 28
    assert one.shown.evaluate(SMALLEST_IN_SCENES) >= 15.95
    one.notebook.screenshot("stage player 720")
    one.press("b")
    expect(one.page.locator(".flashlearn-black")).to_have_count(1)
    one.press("PageDown")  # only ends it
    expect(one.page.locator(".flashlearn-black")).to_have_count(0)
    one.press("ArrowUp")
    one.notebook.screenshot("stage picture 720")
    one.press("ArrowDown", "Escape")
    expect(one.shown).to_have_count(0)
    reports = one.page.locator(".jp-OutputArea-child", has_text="Exercise 03.merge")
    assert reports.count() > 0 and reports.filter(visible=True).count() == 0
    one.notebook.screenshot("stage let go 720")
    one.press("PageDown")  # to where it was
    one.is_at(one.stops.count() - 2)


def test_a_tall_picture_has_its_words_and_its_controls_beside_it(one):
    one.begin("Shift+Enter", source=TALL + "\nimport flashlearn\nflashlearn.projector()\ntiling_explorer()")
    one.press(*["ArrowDown"] * 20)
    stage, panel, words = (one.shown.locator(f".flashlearn-{part}") for part in ("stage", "panel", "sentence"))
    expect(panel).to_be_visible()
    one.page.wait_for_timeout(300)
    assert one.shown.evaluate(SMALLEST_IN_SCENES) >= 15.95
    one.notebook.screenshot("stage tall explorer 720")
    left, right, below = stage.bounding_box(), panel.bounding_box(), words.bounding_box()
    assert left["x"] + left["width"] <= right["x"] and right["y"] + right["height"] <= below["y"] + 1
