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
    notebook.cell, notebook.status = cell, cell.locator('.flashlearn-sentence [role="status"]')
    notebook.fit = cell.locator('.flashlearn-fit [role="status"]')
    notebook.image = cell.locator("img.widget-image")
    expect(notebook.status).to_contain_text("Step ", timeout=30_000)
    cell.locator(".jp-Cell-outputWrapper").evaluate("output => output.scrollIntoView()")
    yield notebook
    assert notebook.errors == []


def slider(notebook, name):
    """The handle of the slider with this label."""
    row = notebook.cell.locator(".widget-hslider").filter(has=notebook.page.get_by_text(name, exact=True))
    return row.locator(".noUi-handle")


def test_every_control_from_the_keyboard(explorer):
    explorer.screenshot("explorer first")
    for name, key in (("N", "ArrowRight"), ("B_r", "ArrowLeft"), ("B_c", "ArrowLeft"), ("SRAM", "ArrowRight")):
        before = explorer.fit.text_content(), explorer.image.get_attribute("src")
        slider(explorer, name).press(key)
        expect(explorer.fit).not_to_have_text(before[0])
        expect(explorer.status).to_contain_text("Step 1 of")
    before = explorer.fit.text_content()
    explorer.cell.get_by_label("mask").select_option("window of 4")
    expect(explorer.fit).not_to_have_text(before)
    slider(explorer, "D").press("ArrowLeft")
    explorer.cell.get_by_label("blocks").select_option("the paper's rule")
    expect(explorer.status).to_contain_text("do not fit")
    explorer.screenshot("explorer does not fit")
    explorer.cell.get_by_label("blocks").select_option("largest that fit")
    expect(explorer.fit).to_contain_text("they fit")
    explorer.cell.get_by_label("beside").select_option("all three")
    expect(explorer.status).to_contain_text("Standard")
    explorer.screenshot("explorer all three")


def test_rescaling_is_found_and_nothing_moves(explorer):
    handle, button = slider(explorer, "step"), explorer.cell.get_by_role("button", name="next rescaling")
    places = []
    for _ in range(4):
        before = explorer.status.text_content()
        button.press("Enter")
        expect(explorer.status).not_to_have_text(before)
        expect(explorer.status).to_contain_text("new maximum")
        places.append((explorer.image.bounding_box(), handle.bounding_box()["y"]))
    explorer.screenshot("explorer rescaling")
    assert len(set(map(str, places))) == 1
    handle.press("End")
    last = int(re.search(r"of (\d+)", explorer.status.text_content()).group(1))
    expect(explorer.status).to_contain_text(f"Step {last} of {last}")
    explorer.screenshot("explorer last")


def test_it_fits_a_projector(explorer):
    """Picture, sentences and controls are on the screen together."""
    explorer.screenshot("explorer whole")
    boxes = [explorer.image.bounding_box(), slider(explorer, "SRAM").bounding_box(), explorer.fit.bounding_box()]
    boxes.append(explorer.cell.locator(".flashlearn-travel").bounding_box())
    assert boxes[0]["width"] > 1000
    assert max(box["x"] + box["width"] for box in boxes) <= 1280, "a control is off the screen"
    assert max(box["y"] + box["height"] for box in boxes) - boxes[0]["y"] <= 660  # of 720, without JupyterLab's bars


LAID_OUT = """stepper => {
  const width = node => node.getBoundingClientRect().width;
  const scrolls = node => /auto|scroll/.test(getComputedStyle(node).overflow)
    && (node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight);
  const controls = [...stepper.querySelectorAll(".flashlearn-bars .widget-inline-hbox, .flashlearn-bars button")];
  return {
    tracks: [...stepper.querySelectorAll(".noUi-target")].map(width),
    scrolling: [stepper, ...stepper.querySelectorAll("*")].filter(scrolls).map(node => node.className),
    outside: controls.filter(node => node.getBoundingClientRect().right > stepper.getBoundingClientRect().right + 1).length,
    height: stepper.querySelector(".flashlearn-bars").getBoundingClientRect().bottom - stepper.getBoundingClientRect().top,
    room: stepper.closest(".jp-WindowedPanel-outer").clientHeight,
  }
}"""


@pytest.mark.parametrize("size", [(1280, 720), (1366, 768), (1440, 900), (1920, 1080)], ids=lambda size: str(size[0]))
def test_sliders_can_be_dragged_beside_the_file_browser(explorer, size):
    page = explorer.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    page.wait_for_timeout(500)
    try:
        found = explorer.cell.locator(".flashlearn-stepper").evaluate(LAID_OUT)
        assert len(found["tracks"]) == 6 and min(found["tracks"]) >= 120
        assert found["scrolling"] == [] and found["outside"] == 0
        assert found["height"] <= found["room"], "what is changed and what changes are on one screen"
        track = slider(explorer, "N").locator("xpath=ancestor::*[contains(@class, 'noUi-target')]")
        track.scroll_into_view_if_needed()
        box, handle = track.bounding_box(), slider(explorer, "N").bounding_box()
        page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 5 / 15, handle["y"] + 5, steps=5)  # N is from 1 to 16
        page.mouse.up()
        expect(slider(explorer, "N")).to_have_attribute("aria-valuenow", "6.0")
        expect(explorer.image).to_have_attribute("title", re.compile("Step 1 of 5"))
        explorer.screenshot(f"explorer beside files {size[0]}")
    finally:
        page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
        page.set_viewport_size({"width": 1280, "height": 720})


def test_projected_the_picture_keeps_its_size_and_no_caption_is_covered(explorer):
    page, stepper = explorer.page, explorer.cell.locator(".flashlearn-stepper")
    explorer.project()
    explorer.turn_to(stepper)
    page.keyboard.press("Home")
    heights, said = set(), set()
    for number in range(1, 12):
        expect(explorer.status).to_contain_text(f"Step {number} of")
        page.mouse.move(600 + number, 300)
        heights.add(explorer.image.bounding_box()["height"])
        bottoms = [each.bounding_box()["y"] + each.bounding_box()["height"] for each in (explorer.status, explorer.fit)]
        assert max(bottoms) <= stepper.locator(".flashlearn-bars").bounding_box()["y"]
        said.add(explorer.status.text_content())
        page.keyboard.press("ArrowRight")
    assert len(heights) == 1 and heights.pop() > 390 and len(said) == 11
    explorer.project(False)


def test_projected_it_stays_until_the_reader_scrolls(explorer):
    """JupyterLab measures cells again and again, and each time moves those below them: not what is on stage."""
    page, stepper = explorer.page, explorer.cell.locator(".flashlearn-stepper")

    def move(pixels):
        """Scroll as JupyterLab does."""
        stepper.evaluate("(node, by) => (node.closest('.jp-WindowedPanel-outer').scrollTop += by)", pixels)
        page.wait_for_timeout(200)
        return abs(stepper.bounding_box()["y"])

    explorer.project()
    explorer.turn_to(stepper)
    explorer.screenshot("stage tiling controls")
    page.mouse.move(600, 200)
    page.wait_for_timeout(100)
    explorer.screenshot("stage tiling pointer")
    page.keyboard.press("End")
    assert move(900) < 1 and move(-300) < 1
    page.mouse.move(640, 300)
    page.mouse.wheel(0, -200)
    expect(page.locator(".flashlearn-shown")).to_have_count(0)
    page.wait_for_timeout(200)
    assert max(move(-150), move(-150)) > 50, "the reader scrolled away from it, yet it came back"
    stepper.scroll_into_view_if_needed()
    page.keyboard.press("Home")
    expect(explorer.status).to_contain_text("Step 1 of")
    assert move(900) < 1
    page.keyboard.press("F9")  # as F11 would, but that one enlarges no window here
    for width, height in ((1920, 1080), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(200)
        assert move(0) < 1 and round(stepper.bounding_box()["height"]) == height
        explorer.screenshot(f"stage tiling {height}")
    explorer.project(False)
