"""In a real JupyterLab: a widget keeps its place. What every widget must do is in test_every_widget.py."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

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
