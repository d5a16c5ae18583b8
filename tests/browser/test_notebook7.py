"""In Notebook 7, the successor of the classic notebook: the same widgets, the same keys, and the still before a run."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ARTIFACTS

pytest.importorskip("notebook", reason="the package notebook is not installed")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
NOTEBOOK_ITSELF = {  # what it says at its start without any notebook of ours, and why
    "(reading 'schema')": "it reads a setting that only JupyterLab has",
    "Command 'filebrowser:open-path' not registered": "it has no file browser beside a notebook",
}


def test_it_degrades_and_works(lab, chromium):
    address, token = lab
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}/notebooks/notebooks/03_online_softmax.ipynb?token={token}")
    page.wait_for_selector(".jp-RenderedImage img", timeout=60_000)
    stored = page.locator(".jp-Cell", has_text="step 3 is the rescaling").first
    assert stored.locator("img").count() == 1, "before a run: the still of the stepper"
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    stepper = page.locator(".flashlearn-stepper").first
    status = stepper.locator('[role="status"]')
    expect(status).to_contain_text("Step 1 of 9", timeout=90_000)
    stepper.locator(".noUi-handle").press("ArrowRight")
    expect(status).to_contain_text("Step 2 of 9", timeout=90_000)  # cells below are still running
    expect(stepper.get_by_role("button", name="play or pause")).to_be_visible()
    expect(stepper.locator("img").first).to_have_attribute("title", re.compile("Step 2 of 9"))
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / "notebook_7.png")
    assert [error for error in errors if not any(known in error for known in NOTEBOOK_ITSELF)] == []
    sessions = json.loads(page.request.get(f"{address}/api/sessions?token={token}").text())
    for session in sessions:
        if session["path"].endswith("03_online_softmax.ipynb"):
            page.request.delete(f"{address}/api/sessions/{session['id']}", headers={"Authorization": f"token {token}"})
    page.close()
