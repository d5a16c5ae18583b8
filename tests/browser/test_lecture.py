"""The deck of the lecture plays by keys alone, and is printed."""

from __future__ import annotations

import re

import pytest

from tools.lecture import softmax
from tools.lecture.__main__ import build, sections
from tools.lecture.slides import Poll, Run, planned

pytestmark = [pytest.mark.slow, pytest.mark.browser]

STATE = """() => {
    const slide = Reveal.getCurrentSlide(), player = slide.querySelector(".flashlearn-player")?.flashlearnPlayer;
    const bottom = Math.max(...[...slide.querySelectorAll("h1, h2, p, img, li")].filter((node) => node.offsetParent)
        .map((node) => node.getBoundingClientRect().bottom));
    const said = slide.querySelector(".flashlearn-sentence");
    return {place: Reveal.getIndices().h, last: Reveal.isLastSlide(), step: player?.step, count: player?.count, bottom,
            open: Boolean(slide.querySelector(".poll.open")), px: said && parseFloat(getComputedStyle(said).fontSize)};
}"""


@pytest.fixture(scope="module")
def lecture(chromium, tmp_path_factory):
    return build(45, tmp_path_factory.mktemp("lecture") / "out")


@pytest.fixture
def page(chromium, lecture):
    context = chromium.new_context(viewport={"width": 1280, "height": 720})
    page = context.new_page()
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.asked.append(f"error: {error}"))
    page.goto(lecture[0].as_uri())
    page.wait_for_selector("body[data-ready]")
    yield page
    context.close()


def test_page_down_shows_every_step_and_every_answer_and_ends_at_the_last_slide(page):
    seen, state = [], page.evaluate(STATE)
    while len(seen) < 500 and not (state["last"] and seen and seen[-1] == state):
        seen.append(state)
        page.keyboard.press("PageDown")
        state = page.evaluate(STATE)
    plan = planned(sections(), 45)
    assert {one["place"] for one in seen} == set(range(len(plan) + 1)), "the title and every slide"
    for place, (_, slide, _) in enumerate(plan, start=1):
        here = [one for one in seen if one["place"] == place]
        if isinstance(slide.shows, Run):
            assert {one["step"] for one in here} == set(range(here[0]["count"])), slide.title
            assert here[0]["px"] >= 28
        if isinstance(slide.shows, Poll):
            assert [one["open"] for one in here] == [False, True], slide.title
    assert max(one["bottom"] for one in seen) <= 720, "nothing is below the edge"
    for _ in range(3):
        page.keyboard.press("PageUp")
    assert page.evaluate(STATE)["place"] < len(plan)
    assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_a_vote_is_kept_until_the_answer_and_b_makes_the_screen_black(page):
    page.keyboard.press("PageDown")
    poll = page.locator("section.present .poll")
    page.keyboard.press("1")
    assert poll.locator("button[aria-pressed=true]").inner_text() == f"{softmax.wrong:.4f}"
    assert not poll.locator(".because").first.is_visible()
    page.keyboard.press("b")
    assert page.evaluate("Reveal.isPaused()")
    page.keyboard.press("b")
    page.keyboard.press("PageDown")
    assert poll.locator("[role=status]").inner_text() == "2 is right. You chose 1."
    page.keyboard.press("3")
    assert poll.locator("button[aria-pressed=true]").inner_text() == f"{softmax.wrong:.4f}", "too late to change"


def tab_to(page, text):
    """Press Tab until the focus is on what says this."""
    seen = []
    for _ in range(15):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent"))
        if seen[-1] == text:
            return
    raise AssertionError(f"expected the focus on {text!r}, got {seen}")


PLAYER_BEFORE_A_POLL = """Reveal.slide(Reveal.getSlides().findIndex((slide) =>
    slide.querySelector(".flashlearn-player") && slide.nextElementSibling.querySelector(".poll")))"""


def test_tab_reaches_all_of_the_slide_and_nothing_of_the_next(page):
    page.evaluate(PLAYER_BEFORE_A_POLL)
    for name in ("Play", "▶", "Predict first", "All steps in words"):
        tab_to(page, name)
        assert page.locator("section.present :focus").is_visible()
    for _ in range(6):
        page.keyboard.press("Tab")
        assert page.locator("section:not(.present) :focus").count() == 0
        page.keyboard.press("Enter")
    assert page.locator(".poll button[aria-pressed=true]").count() == 0, "nobody has been asked yet"


def test_space_presses_the_button_that_has_the_focus(page):
    page.evaluate(PLAYER_BEFORE_A_POLL)
    place = page.evaluate(STATE)["place"]
    tab_to(page, "▶")
    page.keyboard.press("Space")
    player = "Reveal.getCurrentSlide().querySelector('.flashlearn-player').flashlearnPlayer"
    assert page.evaluate(f"[{player}.step, Boolean({player}.playing)]") == [1, False]
    tab_to(page, "All steps in words")
    page.keyboard.press("Space")
    assert page.locator("section.present table").is_visible()
    page.keyboard.press("End")
    page.keyboard.press("PageDown")
    choice = page.locator("section.present .poll button").nth(1)
    tab_to(page, choice.inner_text())
    page.keyboard.press("Space")
    assert choice.get_attribute("aria-pressed") == "true"
    state = page.evaluate(STATE)
    assert (state["place"], state["open"]) == (place + 1, False)


def test_the_controls_of_every_player_are_on_the_slide(page):
    bottoms = page.evaluate(
        """() => Reveal.getSlides().flatMap((slide, place) => {
            Reveal.slide(place);
            const player = slide.querySelector(".flashlearn-player");
            player?.focus({ preventScroll: true });
            return player ? [player.querySelector("summary").getBoundingClientRect().bottom] : [];
        })"""
    )
    assert len(bottoms) > 3 and 0 < min(bottoms) and max(bottoms) <= 720


def test_slides_with_notes_and_a_handout_of_two_pages_are_printed(lecture):
    index, slides_pdf, handout_pdf = lecture
    pages = [len(re.findall(rb"/Type\s*/Page\b", file.read_bytes())) for file in (slides_pdf, handout_pdf)]
    assert pages == [len(planned(sections(), 45)), 2]
    assert index.parent.joinpath("reveal", "LICENSE").exists()
    assert sum(file.stat().st_size for file in index.parent.rglob("*") if file.is_file()) < 40e6
