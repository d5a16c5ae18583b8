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


def test_slides_with_notes_and_a_handout_of_two_pages_are_printed(lecture):
    index, slides_pdf, handout_pdf = lecture
    pages = [len(re.findall(rb"/Type\s*/Page\b", file.read_bytes())) for file in (slides_pdf, handout_pdf)]
    assert pages == [len(planned(sections(), 45)), 2]
    assert index.parent.joinpath("reveal", "LICENSE").exists()
    assert sum(file.stat().st_size for file in index.parent.rglob("*") if file.is_file()) < 40e6
