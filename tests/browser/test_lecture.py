"""The deck of the lecture plays by keys alone, from the speaker's window too, and is printed."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.browser.conftest import SMALLEST_IN_SCENES, wait_until
from tools.lecture import runs
from tools.lecture.__main__ import SLIDES, build
from tools.lecture.slides import planned, read

pytestmark = [pytest.mark.slow, pytest.mark.browser]

STATE = """() => {
    const { slide, player, vote, place } = deck;
    const bottom = Math.max(...[...slide.querySelectorAll("h1, h2, p, img, svg, li, .flashlearn-controls")]
        .filter((node) => node.offsetParent).map((node) => node.getBoundingClientRect().bottom));
    const said = slide.querySelector(".flashlearn-sentence");
    return {place, last: place === deck.slides.length - 1, step: player?.step, count: player?.count, stops: slide.stops, bottom,
            hidden: Boolean(player?.hidden), open: vote && vote.open, px: said && parseFloat(getComputedStyle(said).fontSize),
            stage: player && slide.querySelector(".flashlearn-stage").getBoundingClientRect().height};
}"""


@pytest.fixture(scope="module")
def lecture(chromium, tmp_path_factory):
    return build("45", tmp_path_factory.mktemp("lecture") / "out")


@pytest.fixture(scope="module")
def plan():
    return planned(read(SLIDES, runs.NUMBERS), "45")


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
    assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    context.close()


def state(page):
    return page.evaluate(STATE)


def test_the_smallest_words_of_a_run_are_16_pixels_of_720(page):
    small = {}
    for place in range(page.evaluate("deck.slides.length")):
        page.evaluate("place => deck.show(place)", place)
        if page.evaluate("Boolean(deck.player)"):
            for part in (0, 0.5, 1):
                page.evaluate("part => deck.player.go(Math.round(part * (deck.player.count - 1)))", part)
                page.evaluate("() => new Promise(requestAnimationFrame)")
                small[place, part] = page.evaluate(f"({SMALLEST_IN_SCENES})(deck.slide)")
    assert small and min(small.values()) >= 15.95, small


def to_the_slide(page, plan, run):
    """The slide of this run, at its first step."""
    place = next(number for number, each in enumerate(plan) if each.slide.run == run)
    page.evaluate("place => (location.hash = `#${place + 1}.1`)", place)
    wait_until(page, "place => deck.place === place && deck.player.step === 0", place)
    return place


def walk(page, press):
    """Every state from the first slide to the last."""
    seen = [state(page)]
    while len(seen) < 500:
        press()
        seen.append(state(page))
        if seen[-1] == seen[-2]:
            return seen
    raise AssertionError("no end after 500 keys")


@pytest.mark.parametrize("where", ["hall", "speaker"])
def test_page_down_shows_chosen_steps_and_every_answer_and_ends_at_the_last_slide(page, plan, where):
    keyboard = page.keyboard
    if where == "speaker":
        with page.context.expect_page() as opened:
            page.keyboard.press("s")
        keyboard = opened.value.keyboard
    seen = walk(page, lambda: keyboard.press("PageDown"))
    assert {one["place"] for one in seen} == set(range(len(plan)))
    for place, each in enumerate(plan):
        here = [one for one in seen if one["place"] == place]
        if each.slide.run:
            steps = [one["step"] for one in here if not one["hidden"]]
            assert list(dict.fromkeys(steps)) == here[0]["stops"], each.slide.title
            assert {one["step"] for one in here if one["hidden"]} == set(each.slide.asks), (
                "asks where it has a question"
            )
            assert here[0]["px"] >= 24 and len({one["stage"] for one in here}) == 1
        if each.slide.poll:
            assert [one["open"] for one in here][:2] == [False, True], each.slide.title
        if each.slide.explorer:
            assert [one["step"] for one in here] == list(range(here[0]["count"]))
    assert max(one["bottom"] for one in seen) <= 720, "nothing is below the edge"
    for _ in range(3):
        keyboard.press("PageUp")
    assert state(page)["place"] < len(plan) - 1 or state(page)["step"] is not None


def test_all_steps_on_request(page, plan):
    to_the_slide(page, plan, "tiles")
    assert len(state(page)["stops"]) < state(page)["count"]
    page.keyboard.press("a")
    seen = []
    for _ in range(state(page)["count"]):
        seen.append(state(page)["step"])
        page.keyboard.press("PageDown")
    assert seen == list(range(len(seen)))
    page.keyboard.press("a")
    page.keyboard.press("PageUp")
    page.keyboard.press("Home")
    page.keyboard.press("PageDown")
    assert state(page)["step"] == state(page)["stops"][1]


def test_both_windows_show_the_same_step_and_every_key_works_in_both(page, plan):
    with page.context.expect_page() as opened:
        page.keyboard.press("s")
    speaker = opened.value
    place = to_the_slide(page, plan, "online_softmax")
    hall, beside = page.locator(".slide:not([hidden])"), speaker.locator(".now .slide")

    def same():
        for part in ("h2", ".flashlearn-sentence"):
            words = hall.locator(part).inner_text()
            wait_until(
                speaker, "([part, words]) => document.querySelector(`.now ${part}`)?.innerText === words", [part, words]
            )

    for window, key, step in (
        (speaker, "PageDown", 1),
        (page, "PageDown", 2),
        (speaker, "End", 8),
        (speaker, "Home", 0),
    ):
        window.keyboard.press(key)
        assert (state(page)["place"], state(page)["step"]) == (place, step)
        same()
    speaker.keyboard.press("ArrowUp")
    speaker.keyboard.press("1")
    assert page.locator(".slide:not([hidden]) button[aria-pressed=true]").count() == 1
    speaker.keyboard.press("PageUp")
    speaker.keyboard.press("ArrowDown")
    speaker.keyboard.press("PageDown")
    wait_until(speaker, "() => document.querySelector('.now .poll.open')")
    assert beside.locator("[role=status]").inner_text() == hall.locator("[role=status]").inner_text() != ""
    assert speaker.locator(".notes").last.inner_text() != ""
    speaker.keyboard.press("b")
    assert page.locator("body.black").count() == 1
    speaker.keyboard.press("b")
    assert page.locator("body.black").count() == 0
    speaker.keyboard.press("?")
    assert speaker.locator("dialog[open]").is_visible() and page.locator("dialog").count() == 0, (
        "the hall is not shown it"
    )


def test_a_vote_is_kept_until_the_answer(page, plan):
    place = next(number for number, each in enumerate(plan) if each.slide.title == "One pass for maximum and sum?")
    page.evaluate("place => (location.hash = `#${place + 1}`)", place)
    wait_until(page, "place => deck.place === place", place)
    poll = page.locator(".slide:not([hidden]) .poll")
    page.keyboard.press("1")
    assert poll.locator("button[aria-pressed=true]").inner_text() == f"{runs.NOT_RESCALED:.4f}"
    assert not poll.locator(".because").first.is_visible()
    page.keyboard.press("PageDown")
    assert poll.locator("[role=status]").inner_text() == "2 is right. You chose 1."
    page.keyboard.press("3")
    assert poll.locator("button[aria-pressed=true]").inner_text() == f"{runs.NOT_RESCALED:.4f}", "too late to change"


def test_help_lists_the_keys_of_the_deck_and_a_list_leads_to_slides(page, plan):
    page.keyboard.press("?")
    listed = page.locator("dialog th").all_inner_texts()
    assert {"Page Down →", "A", "1 2 3 4 5", "B .", "S"} <= set(listed) and "O" not in listed
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    assert page.locator("dialog a").count() == len(plan)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert state(page)["place"] == 1 and page.locator("dialog").count() == 0


def test_a_mouse_shows_the_controls_and_leaves_the_picture_its_size(page, plan):
    to_the_slide(page, plan, "tiles")
    stage, controls = (
        page.locator(".slide:not([hidden]) .flashlearn-stage"),
        page.locator(".slide:not([hidden]) .flashlearn-controls"),
    )
    before = stage.bounding_box()
    assert controls.evaluate("node => getComputedStyle(node).opacity") == "0"
    page.mouse.move(300, 300)
    page.mouse.move(320, 300)
    assert controls.evaluate("node => getComputedStyle(node).opacity") == "1"
    controls.get_by_role("button", name="one step on").click()
    assert state(page)["step"] == 1 and stage.bounding_box() == before
    page.keyboard.press("PageDown")
    assert state(page)["step"] == state(page)["stops"][2], "the keys are the deck's after a click"


def test_the_address_holds_slide_and_step(page, plan):
    place = to_the_slide(page, plan, "tiles")
    page.keyboard.press("End")
    assert page.url.endswith(f"#{place + 1}.{state(page)['count']}")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert (state(page)["place"], state(page)["step"]) == (place, state(page)["count"] - 1)


def test_an_explorer_is_driven_by_keys_and_its_setting_is_in_the_address(page, plan):
    place = next(number for number, each in enumerate(plan) if each.slide.explorer)
    page.evaluate("place => (location.hash = `#${place + 1}`)", place)
    wait_until(page, "place => deck.place === place && deck.player", place)
    here = page.locator(".slide:not([hidden])")
    here.get_by_role("slider", name="N", exact=True).press("ArrowLeft")
    wait_until(page, "() => location.hash.includes('N=8')")
    page.keyboard.press("PageDown")
    assert page.url.split("#")[1].startswith(f"{place + 1}.2&N=8")
    words = here.locator(".flashlearn-sentence").inner_text()
    page.reload()
    page.wait_for_selector("body[data-ready]")
    wait_until(
        page, "words => document.querySelector('.slide:not([hidden]) .flashlearn-sentence')?.innerText === words", words
    )
    page.keyboard.press("ArrowDown")
    assert state(page)["place"] == place + 1


def test_tab_reaches_all_of_the_slide_and_nothing_of_the_next(page, plan):
    to_the_slide(page, plan, "online_softmax")
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent"))
        assert page.evaluate("[document.body, ...deck.slide.querySelectorAll('*')].includes(document.activeElement)")
    assert {"Play", "▶", "Predict first", "All steps in words"} <= set(seen)


def test_space_presses_the_button_that_has_the_focus(page, plan):
    to_the_slide(page, plan, "online_softmax")
    page.locator(".slide:not([hidden])").get_by_role("button", name="one step on").focus()
    page.keyboard.press("Space")
    assert state(page)["step"] == 1 and not page.evaluate("Boolean(deck.player.playing)")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    assert page.evaluate("deck.player.playing")


def test_a_page_a_slide_and_a_handout_of_two_pages_are_printed(page, lecture, plan):
    index, slides_pdf, handout_pdf = lecture
    pages = [len(re.findall(rb"/Type\s*/Page\b", file.read_bytes())) for file in (slides_pdf, handout_pdf)]
    assert pages == [len(plan), 2]
    page.set_viewport_size({"width": 703, "height": 1030})  # A4 without its margins
    page.emulate_media(media="print")
    found = page.evaluate(
        """() => [...document.querySelectorAll(".slide")].map((slide) => ({
            height: slide.getBoundingClientRect().height,
            frames: [...slide.querySelectorAll(".paper img, .paper svg")].filter((node) => node.getBoundingClientRect().width > 250).length,
            stops: slide.classList.contains("beside") ? 2 : slide.stops?.length ?? 0,
            buttons: [...slide.querySelectorAll(".flashlearn-player button")].filter((node) => node.offsetParent).length,
        }))"""
    )
    for each in found:
        assert each["height"] <= 1030 and each["buttons"] == 0
        assert each["frames"] == each["stops"] or 4 == each["frames"] < each["stops"], "of tall pictures there are four"
    assert page.locator(".notes").filter(visible=True).count() == sum(bool(each.slide.notes) for each in plan)
    assert sum(file.stat().st_size for file in index.parent.rglob("*") if file.is_file()) < 40e6


def test_a_lecture_of_ones_own(chromium, tmp_path):
    """Slides are dropped and added, and a brand is put on."""
    mine = tmp_path / "mine"
    shutil.copytree(SLIDES, mine, ignore=lambda folder, names: [name for name in names if name[:2] not in ("00", "03")])
    (mine / "99_mine.md").write_text(
        "# Mine\nminutes: 2, 2\n\nOf $x^2$ and {{l_2}}.\n\nNote:\nSay it.\n", encoding="utf-8"
    )
    (mine / "brand.css").write_text(".slide h2 { color: rgb(0, 51, 102); }", encoding="utf-8")
    (index,) = build("45", tmp_path / "out", pdf=False, slides=mine)
    page = chromium.new_page()
    page.goto(index.as_uri())
    page.wait_for_selector("body[data-ready]")
    titles = page.locator(".slide h1, .slide h2")
    assert titles.all_text_contents()[0] == "How FlashAttention works" and titles.all_text_contents()[-1] == "Mine"
    assert page.locator(".slide").count() == len(planned(read(mine, runs.NUMBERS), "45"))
    page.evaluate("location.hash = '#7'")
    wait_until(page, "() => deck.place === 6")
    assert titles.last.evaluate("node => getComputedStyle(node).color") == "rgb(0, 51, 102)"
    assert page.locator(".slide").last.locator("math msup").count() == 1
    page.close()
