"""In Notebook 7, the successor of the classic notebook: the same player, the same keys, and the picture before a run."""

import re

import pytest

from tests.browser.conftest import ARTIFACTS, wait_until

pytest.importorskip("playwright", reason="needs the extra `test`")
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NOTEBOOK_ITSELF = {  # what it says at its start without any notebook of ours, and why
    "(reading 'schema')": "it reads a setting that only JupyterLab has",
    "Command 'filebrowser:open-path' not registered": "it has no file browser beside a notebook",
}
END_KERNELS = """async ([url, token]) => {
    const headers = { Authorization: `token ${token}` };
    for (const { id } of await (await fetch(url, { headers })).json()) await fetch(`${url}/${id}`, { method: "DELETE", headers });
}"""


def test_it_shows_the_picture_and_then_plays(notebook7, chromium):
    address, token = notebook7
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}/notebooks/notebooks/00_start_here.ipynb?token={token}")
    page.wait_for_selector(".jp-RenderedImage img", timeout=60_000)
    stored = page.locator(".jp-Cell", has_text="largest_so_far_steps(x),").first
    expect(stored.locator("img")).to_have_count(1, timeout=60_000)  # cells are drawn one after the other
    assert page.locator(".flashlearn-player").count() == 0, "before a run"
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    player = page.locator(".flashlearn-player").first
    status = player.get_by_role("status").first
    expect(status).to_contain_text("Step 1 of 7", timeout=90_000)
    player.get_by_role("slider", name="step").press("ArrowRight")
    expect(status).to_contain_text("Step 2 of 7")  # cells below may be running still
    player.focus()
    page.keyboard.press("PageDown")
    expect(status).to_contain_text("Step 3 of 7")
    expect(player.get_by_role("img")).to_have_accessible_name(re.compile("Step 3 of 7"))
    assert player.locator("svg text").count() > 5
    player.get_by_role("button", name="Play").click()
    expect(status).to_contain_text("Step 5 of 7", timeout=20_000)
    page.keyboard.press(" ")
    expect(player.get_by_role("button", name="Play")).to_be_visible()
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / "notebook_7.png")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+s")
    words = page.get_by_text("To play it, run the notebook")
    assert words.filter(visible=True).count() == 0, "while it can be played, nothing is said of a picture"
    stored = f"{address}/api/contents/notebooks/00_start_here.ipynb?token={token}"
    wait_until(page, "async url => (await (await fetch(url)).text()).includes('To play it, run')", stored)
    page.evaluate(END_KERNELS, [f"{address}/api/sessions", token])
    page.goto(f"{address}/notebooks/notebooks/00_start_here.ipynb?token={token}")
    expect(words.first).to_be_visible(timeout=60_000)
    page.wait_for_selector(".jp-RenderedImage img")
    assert page.get_by_text("Error displaying widget").count() == 0
    words.first.scroll_into_view_if_needed()
    page.screenshot(path=ARTIFACTS / "notebook_7_reopened.png")
    assert [error for error in errors if not any(known in error for known in NOTEBOOK_ITSELF)] == []
    page.close()
