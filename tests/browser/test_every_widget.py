"""Every notebook in a real JupyterLab: it runs, its players and explorers obey the keyboard, and it can be projected.

One kernel for each, one page for all that pass; screenshots are kept in tests/artifacts.
"""

import re

import nbformat
import pytest

from tests.browser.conftest import ROOT

pytest.importorskip("playwright", reason="needs the extra `test`")
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

PLAYER, EXPLORER = (re.compile(rf"(?<!import )\b(?:{names})\(") for names in ("play", r"\w+_explorer"))


def widgets_in(name, kind):
    """How many code cells of a notebook make such a widget."""
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
    return sum(cell.cell_type == "code" and bool(kind.search(cell.source)) for cell in cells)


NOTEBOOKS = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
UNNAMED = """root => [...root.querySelectorAll("button, input, select, [role=slider], [role=textbox]")]
    .filter(node => node.checkVisibility())
    .filter(node => !(node.ariaLabel || node.innerText?.trim() || node.labels?.length)).map(node => node.outerHTML)"""
CLIPPED = """root => [...root.querySelectorAll(".flashlearn-sentence, .flashlearn-fit, label > span, button")]
    .filter(node => node.scrollHeight > node.clientHeight + 2 || node.scrollWidth > node.clientWidth + 2)
    .map(node => [node.scrollWidth, node.clientWidth, node.scrollHeight, node.clientHeight, node.outerHTML])"""

NAMELESS = """[...document.querySelectorAll(".jp-OutputArea-output img")].filter(node => !node.alt && !node.title)
    .map(node => node.outerHTML.slice(0, 80))"""
AT_THE_TOP = "node => Math.abs(node.getBoundingClientRect().top) < 1"


QUICK = ("00_start_here",)
SLOW = [name for name in NOTEBOOKS if name not in QUICK]


class TestQuick:  # classes, because pytest-xdist keeps a class on one worker
    @pytest.mark.parametrize("name", QUICK)
    def test_notebook(self, open_in_the_page, name):
        whole_notebook(open_in_the_page, name)


@pytest.mark.slow
class TestEven:  # and there are two workers
    @pytest.mark.parametrize("name", SLOW[::2])
    def test_notebook(self, open_in_the_page, name):
        whole_notebook(open_in_the_page, name)


@pytest.mark.slow
class TestOdd:
    @pytest.mark.parametrize("name", SLOW[1::2])
    def test_notebook(self, open_in_the_page, name):
        whole_notebook(open_in_the_page, name)


def whole_notebook(open_one, name):
    notebook = open_one(name)  # with its stored animations, which are not painted again: nbval does that
    notebook.unfold()
    notebook.run_code("from flashlearn.show import reduced_motion\nreduced_motion()")
    assert notebook.run_all() == []
    players = all_shown(notebook.page, ".flashlearn-player:not(.flashlearn-explorer *)", widgets_in(name, PLAYER))
    explorers = all_shown(notebook.page, ".flashlearn-explorer", widgets_in(name, EXPLORER))
    assert players.count() > 0
    for place, player in enumerate(players.all()):
        is_played(player)
        assert player.evaluate(UNNAMED) == []
        player.evaluate("node => node.scrollIntoView()")
        notebook.screenshot(f"{name} player {place}")
    assert notebook.page.evaluate(NAMELESS) == []
    if explorers.count():
        for place, explorer in enumerate(explorers.all()):
            explorer.evaluate("node => node.scrollIntoView()")
            assert explorer.evaluate(UNNAMED) == []
            photograph(notebook, explorer, f"{name} {place}")
        is_projected(notebook, explorers, name)
    assert notebook.errors == []
    notebook.passed = True


def all_shown(page, selector, least):
    """The widgets of this kind, once at least so many are there: a cell has run before its widget is shown."""
    page.wait_for_function(
        "([selector, least]) => document.querySelectorAll(selector).length >= least",
        arg=[selector, least],
        timeout=30_000,
    )
    return page.locator(selector)


def is_played(player):
    """Keys move it through its frames, which are painted one by one here; and it plays."""
    status, image = player.get_by_role("status").first, player.get_by_role("img")
    expect(status).to_contain_text("Step 1 of", timeout=30_000)
    last = player.evaluate("root => root.flashlearnPlayer.count")
    seen, place = set(), player.bounding_box()["height"]
    player.focus()
    for key, number in (("ArrowRight", 2), ("End", last), ("PageUp", last - 1), ("Home", 1)):
        player.page.keyboard.press(key)
        expect(status).to_contain_text(f"Step {number} of {last}")
        expect(image).to_have_accessible_name(re.compile(f"Step {number} of {last}"), timeout=30_000)
        seen.add(image.evaluate("node => node.src ?? node.innerHTML"))
    assert len(seen) >= min(last, 3) and player.bounding_box()["height"] == place, "something moved"
    player.page.keyboard.press(" ")
    expect(status).not_to_contain_text("Step 1 of", timeout=10_000)
    player.page.keyboard.press(" ")
    expect(player.get_by_role("button", name="Play")).to_be_visible()


def says(explorer, number, last):
    expect(explorer.locator(".flashlearn-sentence")).to_contain_text(f"Step {number} of {last}", timeout=10_000)
    picture = explorer.locator(".flashlearn-stage").locator("> img, > svg").first
    words = re.compile(f"Step {number} of {last}")
    expect(picture).to_have_attribute(
        "alt" if picture.evaluate("node => node.tagName") == "IMG" else "aria-label", words
    )


def photograph(notebook, explorer, name):
    for width, height in ((1280, 720), (1920, 1080)):
        notebook.page.set_viewport_size({"width": width, "height": height})
        explorer.evaluate("node => node.scrollIntoView()")
        notebook.page.wait_for_timeout(150)
        notebook.screenshot(f"{name} {height}")
    notebook.page.set_viewport_size({"width": 1280, "height": 720})


def is_projected(notebook, explorers, name):
    """In projector mode every explorer is the screen, and keys work without a click; then all is as before."""
    page = notebook.page
    notebook.project()
    expect(page.locator(".flashlearn-shown")).to_have_count(1)
    assert page.locator(".jp-CodeCell .jp-Cell-inputWrapper").filter(visible=True).count() == 0
    for place, explorer in enumerate(explorers.all()):
        notebook.turn_to(explorer)
        last = explorer.evaluate("root => root.flashlearnPlayer.count")
        for key, number in (("End", last), ("Home", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
            page.keyboard.press(key)
            says(explorer, min(number, last), last)
            page.wait_for_function(AT_THE_TOP, arg=explorer.element_handle())
        for width, height in ((1920, 1080), (1280, 720)):
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_timeout(200)
            box = explorer.bounding_box()
            assert [round(box[side]) for side in ("x", "y", "width", "height")] == [0, 0, width, height]
            assert explorer.evaluate(CLIPPED) == []
            assert explorer.evaluate("node => node.scrollHeight <= node.clientHeight + 1"), "more than the screen"
            notebook.screenshot(f"projector {name} {place} {height}")
    notebook.project(False)
    assert page.locator(".jp-CodeCell .jp-Cell-inputWrapper").filter(visible=True).count() > 0
