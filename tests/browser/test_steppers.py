"""In a real JupyterLab: notebooks run, the slider moves by keyboard, picture and sentence follow, play plays."""

import re

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

NOTEBOOKS = ["00_start_here", "01_naive_softmax", "02_safe_softmax", "03_online_softmax"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stepper(open_notebook, name):
    notebook = open_notebook(name)
    assert notebook.run_all() == []
    cell = notebook.show_cell("stepper(")
    image, status = cell.locator("img.widget-image"), cell.locator('[role="status"]')
    expect(status).to_contain_text("Step 1 of", timeout=30_000)
    last = int(re.search(r"of (\d+)", status.text_content()).group(1))
    assert image.evaluate("img => img.complete && img.naturalWidth") == 1280
    assert "Step 1 of" in image.get_attribute("title")
    notebook.screenshot(f"{name} first step")

    handle = cell.locator(".noUi-handle")
    handle.focus()
    shown = {image.get_attribute("src")}
    for key, number in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", last), ("Home", 1)):
        handle.press(key)
        expect(status).to_contain_text(f"Step {number} of {last}")
        shown.add(image.get_attribute("src"))
    assert len(shown) >= 4

    cell.get_by_role("button", name="next").click()
    expect(status).to_contain_text("Step 2 of")
    cell.get_by_role("button", name="back").click()
    expect(status).to_contain_text("Step 1 of")

    cell.locator(".widget-play button").first.click()
    expect(status).to_contain_text("Step 3 of", timeout=15_000)
    notebook.screenshot(f"{name} playing")
    assert notebook.errors == []


def test_redrawing_moves_nothing(open_notebook):
    """No flicker: the picture keeps its place and size while the steps change."""
    notebook = open_notebook("03_online_softmax")
    assert notebook.run_all() == []
    cell = notebook.show_cell("stepper(")
    handle, status = cell.locator(".noUi-handle"), cell.locator('[role="status"]')
    expect(status).to_contain_text("Step 1 of", timeout=30_000)
    handle.focus()
    before = cell.locator("img.widget-image").bounding_box(), handle.bounding_box()["y"]
    for number in (2, 3, 4):
        handle.press("ArrowRight")
        expect(status).to_contain_text(f"Step {number} of")
    assert (cell.locator("img.widget-image").bounding_box(), handle.bounding_box()["y"]) == before
