"""In a real JupyterLab: the tiling explorer obeys keyboard and mouse, and stays in its place."""

import re

import pytest

from tests.browser.conftest import in_a_page

pytest.importorskip("playwright", reason="needs the extra `test`")
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def notebook(lab, chromium, kept_pages):
    """The notebook with its first cell run, the imports; each test runs the explorer's."""
    opened = in_a_page(lab, chromium, kept_pages, "07_tiled_attention")
    opened.run_cell("import tiling_explorer")
    opened.page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    yield opened
    opened.shut_down()


@pytest.fixture
def explorer(notebook):
    """The explorer, made anew."""
    cell = notebook.show_cell("tiling_explorer(N")
    notebook.run_cell("tiling_explorer(N")
    notebook.cell, notebook.root = cell, cell.locator(".flashlearn-explorer")
    notebook.status, notebook.fit = cell.locator(".flashlearn-sentence"), cell.locator(".flashlearn-fit")
    notebook.picture, notebook.stage = cell.locator(".flashlearn-stage > svg"), cell.locator(".flashlearn-stage")
    expect(notebook.status).to_contain_text("Step ", timeout=30_000)
    expect(notebook.picture).to_be_visible()
    notebook.root.evaluate("node => node.scrollIntoView()")
    yield notebook
    assert notebook.errors == []


def slider(notebook, name):
    return notebook.cell.get_by_role("slider", name=name, exact=True)


def test_every_control_from_the_keyboard(explorer):
    explorer.screenshot("explorer first")
    for name, key in (("N", "ArrowRight"), ("B_r", "ArrowLeft"), ("B_c", "ArrowLeft"), ("SRAM", "ArrowRight")):
        before = explorer.fit.text_content()
        slider(explorer, name).press(key)
        expect(explorer.fit).not_to_have_text(before)
        expect(explorer.status).to_contain_text("Step 1 of")
    before = explorer.fit.text_content()
    explorer.cell.get_by_role("combobox", name="mask").select_option("window of 4")
    expect(explorer.fit).not_to_have_text(before)
    slider(explorer, "D").press("ArrowLeft")
    explorer.cell.get_by_role("combobox", name="blocks").select_option("the paper's rule")
    expect(explorer.status).to_contain_text("do not fit")
    expect(slider(explorer, "B_r")).to_be_disabled()
    explorer.screenshot("explorer does not fit")
    explorer.cell.get_by_role("combobox", name="blocks").select_option("largest that fit")
    expect(explorer.fit).to_contain_text("they fit")
    explorer.cell.get_by_role("combobox", name="beside").select_option("all three")
    expect(explorer.status).to_contain_text("Standard")
    explorer.screenshot("explorer all three")


def test_rescaling_is_found_and_nothing_moves(explorer):
    button, places = explorer.cell.get_by_role("button", name="next rescaling"), []
    for _ in range(4):
        before = explorer.status.text_content()
        button.press("Enter")
        expect(explorer.status).not_to_have_text(before)
        expect(explorer.status).to_contain_text("new maximum")
        places.append((explorer.stage.bounding_box(), slider(explorer, "step").bounding_box()["y"]))
    explorer.screenshot("explorer rescaling")
    assert len(set(map(str, places))) == 1
    slider(explorer, "step").press("End")
    last = int(re.search(r"of (\d+)", explorer.status.text_content()).group(1))
    expect(explorer.status).to_contain_text(f"Step {last} of {last}")


def test_python_and_the_page_follow_each_other(explorer):
    explorer.run_code("explorer.N = 8")
    expect(slider(explorer, "N")).to_have_attribute("aria-valuetext", "8")
    expect(explorer.status).to_contain_text("Step 1 of 7")
    slider(explorer, "N").press("ArrowLeft")
    expect(explorer.fit).to_contain_text("9 pairs")
    explorer.run_code("print('N is', explorer.N, explorer.call)")
    expect(explorer.page.get_by_text("N is 7 tiling_explorer(N=7)")).to_be_visible()


def test_the_call_is_copied(explorer):
    slider(explorer, "N").press("ArrowLeft")
    expect(explorer.fit).to_contain_text("In all: standard 2,640 B")
    explorer.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    explorer.cell.get_by_role("button", name="Copy the call").click()
    expect(explorer.cell.get_by_text("copied")).to_be_visible()
    assert explorer.page.evaluate("navigator.clipboard.readText()") == "tiling_explorer(N=11)"


LAID_OUT = """root => {
  const scrolls = node => /auto|scroll/.test(getComputedStyle(node).overflow)
    && (node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight);
  const controls = [...root.querySelectorAll("input, select, button")].filter(node => node.checkVisibility());
  return {
    tracks: [...root.querySelectorAll("input[type=range]")].map(node => node.getBoundingClientRect().width),
    scrolling: [root, ...root.querySelectorAll("*")].filter(scrolls).map(node => node.className),
    outside: controls.filter(node => node.getBoundingClientRect().right > root.getBoundingClientRect().right + 1).length,
    height: root.getBoundingClientRect().height,
    room: root.closest(".jp-WindowedPanel-outer").clientHeight,
  }
}"""


@pytest.mark.parametrize("size", [(1280, 720), (1366, 768), (1440, 900), (1920, 1080)], ids=lambda size: str(size[0]))
def test_sliders_can_be_dragged_beside_the_file_browser(explorer, size):
    page = explorer.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    page.wait_for_timeout(500)
    try:
        found = explorer.root.evaluate(LAID_OUT)
        assert len(found["tracks"]) == 6 and min(found["tracks"]) >= 120
        assert found["scrolling"] == [] and found["outside"] == 0
        assert found["height"] <= found["room"], "what is changed and what changes are on one screen"
        explorer.root.evaluate("node => node.scrollIntoView()")
        track = slider(explorer, "N").bounding_box()
        middle, inside = track["y"] + track["height"] / 2, track["width"] - 16  # of a thumb's middle

        def at(N):
            return track["x"] + 8 + inside * (N - 1) / 15  # N is from 1 to 16

        page.mouse.move(at(12), middle)
        page.mouse.down()
        page.mouse.move(at(6), middle + 5, steps=5)
        page.mouse.up()
        expect(slider(explorer, "N")).to_have_attribute("aria-valuetext", "6")
        expect(explorer.picture).to_have_attribute("aria-label", re.compile("Step 1 of 5"))
        explorer.screenshot(f"explorer beside files {size[0]}")
    finally:
        page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
        page.set_viewport_size({"width": 1280, "height": 720})


def test_projected_the_picture_keeps_its_size_and_no_caption_is_covered(explorer):
    page = explorer.page
    explorer.project()
    explorer.turn_to(explorer.root)
    page.keyboard.press("Home")
    heights, said = set(), set()
    for number in range(1, 12):
        expect(explorer.status).to_contain_text(f"Step {number} of")
        page.mouse.move(600 + number, 300)
        heights.add(explorer.stage.bounding_box()["height"])
        box = explorer.status.bounding_box()
        assert box["y"] + box["height"] <= explorer.cell.locator(".flashlearn-controls").bounding_box()["y"]
        said.add(explorer.status.text_content())
        page.keyboard.press("ArrowRight")
    assert len(heights) == 1 and heights.pop() > 450 and len(said) == 11
    explorer.project(False)


def test_projected_it_stays_until_the_reader_scrolls(explorer):
    """JupyterLab measures cells again and again, and each time moves those below them: not what is on stage."""
    page, root = explorer.page, explorer.root

    def move(pixels):
        """Scroll as JupyterLab does."""
        root.evaluate("(node, by) => (node.closest('.jp-WindowedPanel-outer').scrollTop += by)", pixels)
        page.wait_for_timeout(200)
        return abs(root.bounding_box()["y"])

    explorer.project()
    explorer.turn_to(root)
    page.keyboard.press("End")
    assert move(900) < 1 and move(-300) < 1
    page.mouse.move(640, 300)
    page.mouse.wheel(0, -200)
    expect(page.locator(".flashlearn-shown")).to_have_count(0)
    page.wait_for_timeout(200)
    assert max(move(-150), move(-150)) > 50, "the reader scrolled away from it, yet it came back"
    root.scroll_into_view_if_needed()
    page.keyboard.press("Home")
    expect(explorer.status).to_contain_text("Step 1 of")
    assert move(900) < 1
    for width, height in ((1920, 1080), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(200)
        assert move(0) < 1 and round(root.bounding_box()["height"]) == height
        explorer.screenshot(f"stage tiling {height}")
    explorer.project(False)
