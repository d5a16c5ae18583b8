"""The static book: it builds without a warning, and its pages read well in a browser without a network."""

import subprocess
import sys

import pytest

from tests.browser.conftest import ARTIFACTS, ROOT

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = ["index.html", "notebooks/00_start_here.html", "notebooks/03_online_softmax.html"]


@pytest.fixture(scope="module")
def book():
    done = subprocess.run(
        [sys.executable, "tools/build_book.py"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return ROOT / "build" / "book"


@pytest.mark.parametrize("name", PAGES)
def test_page(book, chromium, name):
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"file://{book / name}")
    assert page.locator("h1").filter(visible=True).count() == 1  # the theme has another one, for print
    assert page.get_by_role("link", name="03 · Online softmax").count() >= 1
    for image in page.locator("article img").all():
        assert len(image.get_attribute("alt") or "") > 20
        image.scroll_into_view_if_needed()
        page.wait_for_function("img => img.complete && img.naturalWidth > 0", arg=image.element_handle())
    if "03" in name:
        page.wait_for_selector("mjx-container", timeout=20_000)
        assert page.get_by_role("link", name="previous").count() and page.get_by_role("link", name="next").count()
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"book_{name.split('/')[-1].removesuffix('.html')}.png")
    assert errors == []
    page.close()


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_animations_move_unless_asked_not_to(book, chromium, motion):
    page = chromium.new_page(reduced_motion=motion)
    page.goto(f"file://{book / 'notebooks/03_online_softmax.html'}")
    image = page.locator("article picture img").first
    image.scroll_into_view_if_needed()
    page.wait_for_function("img => img.complete && img.currentSrc", arg=image.element_handle())
    assert image.evaluate("img => img.currentSrc").endswith(".still.png") == (motion == "reduce")
    words = page.locator("article details", has_text="This animation in words").first
    words.locator("summary").press("Enter")
    assert "Done: " in words.locator("table").inner_text()
    seen = set()
    for _ in range(6):
        seen.add(image.screenshot())
        page.wait_for_timeout(700)
    assert (len(seen) > 1) == (motion == "no-preference")
    page.close()


def test_search_finds_a_word(book, chromium):
    page = chromium.new_page()
    page.goto(f"file://{book / 'search.html'}?q=associative")
    page.wait_for_selector("#search-results li", timeout=20_000)
    assert "Online softmax" in page.locator("#search-results").inner_text()
    page.close()
