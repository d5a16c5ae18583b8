"""The static book: it builds without a warning, plays without a kernel or a network, and reads well on any screen."""

import fcntl
import functools
import html
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from flashlearn.exercises.questions import QUESTIONS
from tests.browser.conftest import ARTIFACTS, ROOT

pytest.importorskip("axe_playwright_python", reason="needs the extra `test`")
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CHAPTERS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
SEEN = ["03_online_softmax", "07_tiled_attention", "08_why_it_is_fast", "14_making_it_fast", *CHAPTERS[-3:]]
OTHERS = ["index", "instructors", "grading", "map", "inventory", "api", "explorers/bytes", "explorers/tiling"]
PAGES = [*OTHERS, *(f"notebooks/{name}" for name in CHAPTERS), "notebooks/14_appendix"]
LARGEST_CHAPTER, LARGEST_SITE = 1_000_000, 40_000_000  # bytes
PHONE, TABLET, DESK = (390, 844), (768, 1024), (1440, 900)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The book's folder, built once in this run, whichever worker asks first; FLASHLEARN_BOOK names one built already."""
    if "FLASHLEARN_BOOK" in os.environ:
        return Path(os.environ["FLASHLEARN_BOOK"])
    ours = tmp_path_factory.getbasetemp()
    run = ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours
    with (run / "book.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (run / "book.built").exists():
            command = [sys.executable, "-m", "tools.book"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, encoding="utf-8")
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
            (run / "book.built").touch()
    return ROOT / "build" / "book"


@pytest.fixture(scope="module")
def site(book):
    """The address of the book on this machine, as a server gives it out."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=book)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


DRAWN = """async () => {  // fonts are there, colours have stopped fading, and two frames were drawn
    await document.fonts.ready;
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
    const passing = document.getAnimations().filter(each => each.effect.getComputedTiming().endTime < Infinity);
    await Promise.allSettled(passing.map(each => each.finished));
}"""


class Page:
    """A page of the book, what it asked for, and what went wrong."""

    def __init__(self, chromium, size=DESK, **options):
        self.page = chromium.new_page(viewport=dict(zip(("width", "height"), size, strict=True)), **options)
        self.bytes, self.hosts, self.errors, self.awaited = {}, set(), [], set()
        self.page.on("response", self._count)
        self.page.on("request", self._ask)
        for over in ("requestfinished", "requestfailed"):
            self.page.on(over, lambda request: self.awaited.discard(request))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.errors.append(said.text))

    def _count(self, response):
        if response.url.startswith("http"):
            self.bytes[response.url] = int(response.headers.get("content-length", 0))

    def _ask(self, request):
        self.hosts.add(request.url.split("/")[2])
        if not request.url.startswith("data:"):
            self.awaited.add(request)

    def open(self, url):
        self.page.goto(url)
        self.settle()
        return self.page

    def settle(self):
        """Wait until everything that the page asked for has come and been drawn, and this asked for nothing more.

        The scripts of the book ask for more only when something is drawn or has come: they have no timers for it.
        """
        quiet, end = 0, time.monotonic() + 60
        while quiet < 2:
            self.page.evaluate(DRAWN)
            quiet = 0 if self.awaited else quiet + 1
            assert time.monotonic() < end, f"still waiting for {[request.url for request in self.awaited]}"


@pytest.fixture
def visit(chromium):
    pages = []

    def visit(url, size=DESK, **options):
        pages.append(Page(chromium, size, **options))
        pages[-1].open(url)
        return pages[-1]

    yield visit
    for each in pages:
        each.page.close()


# --- weight, hosts, policy ---------------------------------------------------------------------------------


def is_light_and_asks_no_other_host(seen, site):
    assert 0 < sum(seen.bytes.values()) <= LARGEST_CHAPTER, seen.bytes
    assert seen.hosts <= {site.split("/")[2], ""}  # "": data URIs
    assert seen.errors == []
    assert 'http-equiv="Content-Security-Policy"' in seen.page.content()


def test_the_site_is_small(book):
    assert sum(path.stat().st_size for path in book.rglob("*") if path.is_file()) <= LARGEST_SITE


def test_the_policy_stops_a_script_that_is_not_ours(site, visit):
    page = visit(f"{site}/index.html").page
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.stranger = 1'}))"
    )
    assert page.evaluate("window.stranger") is None


def test_every_link_within_the_book_leads_somewhere(book):
    for path in book.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"#?:]+)[^":]*"', path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), f"{path.name} leads to {link}"


# --- pages: one visit a size, for loading one takes longer than most looks at it -----------------------------


def one_heading_and_one_search_box(page):
    assert page.locator("h1").count() == 1
    assert page.locator("[role=search] input[name=q]").count() == 1


def words_for_every_picture(page):
    silent = page.locator("article img:not(.cards img)").evaluate_all(
        """images => images.filter(image => image.hasAttribute("src") && (image.getAttribute("alt") ?? "").length <= 20)
             .map(image => image.outerHTML.slice(0, 120))"""
    )
    assert silent == [], "every picture has more than 20 characters of words"


def nothing_sticks_out(page, name, size):
    found = page.locator("html, body, .content")  # where the theme lets .content scroll, the page does not
    wide = found.evaluate_all("nodes => nodes.map(node => node.scrollWidth)")
    assert len(wide) == 3 and max(wide) <= size[0], f"something sticks out at {size[0]} pixels: {wide}"
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"book_{name.replace('/', '_')}_{size[0]}.png")


def no_code_scrolls(page):
    """With everything that is folded shown: long lines continue in the next."""
    scrolling = page.locator("article .cell_input pre, article .cell_output pre").evaluate_all(
        "nodes => nodes.filter(node => node.scrollWidth > node.clientWidth + 1).map(node => node.textContent.slice(0, 60))"
    )
    assert scrolling == []


def unfold(page):
    page.evaluate("document.querySelectorAll('article details').forEach(each => (each.open = true))")


def text_first(page):
    """The first screen has the title and the lead, and neither code nor the table of bytes."""
    ends = page.evaluate("document.querySelector('.opening').getBoundingClientRect().bottom")
    assert 0 < ends < DESK[1]
    above = page.locator("article :is(pre, table)").evaluate_all(
        "(nodes, bottom) => nodes.filter(node => node.checkVisibility() && node.getBoundingClientRect().top < bottom).length",
        ends,
    )
    assert above == 0 and page.locator("h1").bounding_box()["y"] < 200


def come_near(seen, pictures):
    """Scroll to each of these, for a reader who comes near has it loaded; how many there are."""
    found = seen.page.locator(pictures).evaluate_all(
        """async nodes => {
             for (const node of nodes) {
                 node.scrollIntoView({ block: "center", behavior: "instant" });
                 for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
             }
             return nodes.length;
           }"""
    )
    seen.settle()
    return found


# A word of code is a <span>, a letter of a formula an <mi>: thousands in a chapter, in a few colours. axe looks at some of
# each colour, size and ground: at the longest, for it judges no single letter, and none that is partly covered. The others
# stay as wide and as high as they were.
NOTE_LOOKS = """() => {
    const ground = node => {
        const colour = getComputedStyle(node).backgroundColor;
        return colour === "rgba(0, 0, 0, 0)" && node.parentElement ? ground(node.parentElement) : colour;
    };
    for (const node of document.querySelectorAll("pre span, math :not(:has(*))")) {
        const { color, fontSize, fontWeight, opacity } = getComputedStyle(node);
        node.looks = [node.looks, color, fontSize, fontWeight, opacity, ground(node)].join();
    }
}"""
SOME_OF_A_LOOK = """() => {
    const nodes = [...document.querySelectorAll("pre span, math :not(:has(*))")];
    const kept = {};
    for (const node of nodes.sort((one, other) => other.textContent.length - one.textContent.length)) {
        kept[node.looks] = (kept[node.looks] ?? 0) + 1;
        if (kept[node.looks] <= 4) continue;
        if (node.closest("pre")) node.replaceWith(...node.childNodes);
        else node.style.visibility = "hidden";
    }
}"""


def axe_finds_nothing_serious(page):
    page.evaluate(NOTE_LOOKS)
    page.evaluate(SOME_OF_A_LOOK)
    found = Axe().run(page, options={"resultTypes": ["violations"], "selectors": False}).response["violations"]
    serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
    assert not serious, [(rule["id"], [node["html"][:200] for node in rule["nodes"]][:3]) for rule in serious]


def text_is_at_least_12_pixels(seen):
    small = seen.page.evaluate(
        """() => [...document.querySelectorAll('article *')].filter(node =>
             [...node.childNodes].some(child => child.nodeType == 3 && child.data.trim()) && node.checkVisibility()
             && !node.closest('math, svg, noscript, script, style')
             && parseFloat(getComputedStyle(node).fontSize) < 12).map(node => node.outerHTML.slice(0, 120))"""
    )
    assert small == []
    come_near(seen, "figure.run")
    scenes = seen.page.locator(":is(.flashlearn-stage, .picture) svg text").evaluate_all(
        """texts => texts.filter(text => text.checkVisibility() && parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b) < 11.8)
             .map(text => text.textContent)"""
    )
    assert scenes == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_at_the_desk(site, visit, name):
    seen = visit(f"{site}/{name}.html", DESK, color_scheme="light")
    if name.startswith("notebooks/"):
        is_light_and_asks_no_other_host(seen, site)
        if not name.endswith("appendix"):
            text_first(seen.page)
    one_heading_and_one_search_box(seen.page)
    words_for_every_picture(seen.page)
    nothing_sticks_out(seen.page, name, DESK)
    unfold(seen.page)
    come_near(seen, "figure.run")
    axe_finds_nothing_serious(seen.page)
    no_code_scrolls(seen.page)
    assert seen.errors == []


@pytest.mark.parametrize("name", [*OTHERS, *(f"notebooks/{name}" for name in SEEN)])
def test_a_page_on_a_tablet(site, visit, name):
    seen = visit(f"{site}/{name}.html", TABLET)
    nothing_sticks_out(seen.page, name, TABLET)
    assert seen.errors == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_on_a_phone(site, visit, name):
    """In the dark: what the desk shows in the light."""
    seen = visit(f"{site}/{name}.html", PHONE, color_scheme="dark")
    unfold(seen.page)
    nothing_sticks_out(seen.page, name, PHONE)
    text_is_at_least_12_pixels(seen)
    axe_finds_nothing_serious(seen.page)
    no_code_scrolls(seen.page)
    assert seen.errors == []


# --- players -----------------------------------------------------------------------------------------------


def captions_and_scenes(book, name):
    """[(captions, path of the scenes)] of every run of scenes in a chapter."""
    page = (book / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
    found = re.findall(r'data-scenes="([^"]*)"[^>]*><script type="application/json">(.*?)</script>', page)
    return [(json.loads(run)["captions"], book / scenes) for scenes, run in found]


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_run_is_a_player_with_its_frames_and_its_table(book, name):
    page = (book / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
    runs = page.count('<figure class="run"')
    assert runs == page.count("All steps in words") == page.count('<div class="whole">')
    for captions, scenes in captions_and_scenes(book, name):
        data = json.loads(scenes.read_text(encoding="utf-8").partition(",")[2].removesuffix(");\n"))
        assert len(data["wide"]) == len(data["narrow"]) == len(captions)
    for files in re.findall(r'"files":(\[\[.*?\]\])', page):
        assert all((book / file).exists() for step in json.loads(files) for file in step)
    assert "apng" not in page and ".gif" not in page


def test_a_run_loads_nothing_until_one_comes_near_then_steps_by_keys(site, visit):
    seen = visit(f"{site}/notebooks/03_online_softmax.html")
    run = seen.page.locator("figure.run:not(details *)").last
    scenes = run.get_attribute("data-scenes")
    assert run.locator(".flashlearn-stage svg").count() == 1, "its first picture is there at once"
    assert not any(scenes in url for url in seen.bytes)
    run.scroll_into_view_if_needed()
    run.locator(".flashlearn-player").focus()
    seen.page.keyboard.press("ArrowRight")
    seen.page.keyboard.press("ArrowRight")
    picture = run.locator(".flashlearn-stage svg[role=img]")
    expect(picture).to_have_attribute("aria-label", re.compile("Step 3 of"))
    assert "Step 3 of" in run.get_by_role("status").first.inner_text()
    assert sum(scenes in url for url in seen.bytes) == 1


def test_the_first_page_plays_at_once_unless_asked_not_to(site, visit):
    moving = visit(f"{site}/index.html", reduced_motion="no-preference").page
    still = visit(f"{site}/index.html", reduced_motion="reduce").page
    moving.wait_for_timeout(3000)
    sentence = ".flashlearn-sentence"
    assert "Step 1 of" not in moving.locator(sentence).inner_text().split("\n")[0]
    assert "Step 1 of" in still.locator(sentence).inner_text()
    start = still.locator("a.start-button")
    assert start.count() == 1
    start.click()
    assert "00_start_here" in still.url


def test_pictures_are_narrow_on_a_phone_and_dark_in_the_dark(site, visit):
    shapes, grounds = {}, {}
    for size, scheme in ((PHONE, "dark"), (DESK, "light")):
        page = visit(f"{site}/index.html", size, reduced_motion="reduce", color_scheme=scheme).page
        picture = page.locator("figure.run .flashlearn-stage > svg")
        shapes[size] = picture.evaluate("svg => svg.viewBox.baseVal.width / svg.viewBox.baseVal.height")
        grounds[size] = picture.locator(".hbm").first.evaluate("rect => getComputedStyle(rect).fill")
        box = picture.bounding_box()
        assert 0 <= box["x"] and box["x"] + box["width"] <= size[0]
    assert shapes[PHONE] < 0.6 < 1 < shapes[DESK]
    light = {size: sum(map(int, re.findall(r"\d+", ground))) for size, ground in grounds.items()}
    assert light[PHONE] < 200 < 600 < light[DESK]


@pytest.mark.parametrize("size", [PHONE, DESK])
def test_a_picture_fills_the_screen_with_its_controls_and_comes_back(site, visit, size):
    page = visit(f"{site}/notebooks/03_online_softmax.html", size).page
    figure = page.locator("figure.run").nth(1)
    figure.scroll_into_view_if_needed()
    figure.get_by_role("button", name="fill the screen").click()
    page.wait_for_timeout(200)
    box = {side: round(pixels) for side, pixels in figure.bounding_box().items()}
    assert (box["x"], box["y"], box["width"], box["height"]) == (0, 0, *size)
    for control in figure.locator(".flashlearn-controls > :is(button, input), .flashlearn-stage > svg").all():
        inside = control.bounding_box()
        assert 0 <= inside["x"] and inside["x"] + inside["width"] <= size[0] + 1
        assert 0 <= inside["y"] and inside["y"] + inside["height"] <= size[1] + 1
    page.keyboard.press("Escape")
    assert "filling" not in figure.get_attribute("class")
    figure.locator(".flashlearn-stage > svg").click(position={"x": 5, "y": 5})
    assert "filling" in figure.get_attribute("class")


def test_without_scripts_the_still_and_the_table_are_there(book, chromium):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{book / 'notebooks/03_online_softmax.html'}")
    runs = page.locator("figure.run")
    assert page.locator("figure.run .whole > :is(svg, img)").count() == runs.count() > 0
    assert all(whole.is_visible() for whole in page.locator("figure.run .whole").all())
    assert page.locator("figure.run details table").count() == runs.count()
    context.close()


def test_it_plays_from_a_folder_too(book, visit):
    seen = visit(f"file://{book / 'notebooks/03_online_softmax.html'}")
    run = seen.page.locator("figure.run").nth(1)
    run.scroll_into_view_if_needed()
    run.get_by_role("button", name="one step on").click()
    expect(run.locator(".flashlearn-stage svg[role=img]")).to_have_attribute("aria-label", re.compile("Step 2 of"))
    assert seen.errors == []


def test_in_print_every_picture_is_there_and_no_control(site, visit, tmp_path):
    """At once after the page was opened at its top, so that nothing further down has come near."""
    page = visit(f"{site}/notebooks/03_online_softmax.html").page
    pictures = page.locator("figure.run, figure.still").count()
    page.emulate_media(media="print")
    left = page.locator(
        "header, .skip, .flashlearn-controls, .enlarge, summary:not(:has(h2, h3), .sentence summary)"
    ).evaluate_all("nodes => nodes.filter(node => node.checkVisibility()).map(node => node.outerHTML.slice(0, 80))")
    assert left == []
    file = page.pdf(format="A4", tagged=True)
    assert file.count(b"/Alt ") == pictures >= 5, "a tagged PDF names every picture that it holds"
    shown = page.locator("figure :is(svg[role=img], img)").evaluate_all(
        """nodes => nodes.filter(node => node.checkVisibility()).map(node => {
             const { left, right } = node.getBoundingClientRect();
             return [left, right, document.documentElement.clientWidth, node.localName === "svg" || node.naturalWidth > 0];
           })"""
    )
    assert len(shown) == pictures and all(0 <= left < right <= wide and there for left, right, wide, there in shown)


# --- folds -------------------------------------------------------------------------------------------------


def asked(page, name):
    """The form of a question."""
    texts = page.locator("section.predict").evaluate_all("nodes => nodes.map(node => node.textContent)")
    assert any(QUESTIONS[name].text in text for text in texts)
    return page.locator("form.flashlearn-question", has_text=QUESTIONS[name].text)


def fold_of(page, name):
    return page.locator(f'details.answer[data-questions~="{name}"]')


def a_chapter_with_folds(book):
    """(chapter, question) of the first answer that is folded in the book."""
    for name in CHAPTERS:
        text = (book / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        if found := re.search(r'<div class="answer" data-questions="([\w.]+)"', text):
            return name, found[1]
    raise AssertionError("no answer is folded")


def test_an_answer_is_folded_until_its_question_is_answered_by_keys(site, book, visit):
    name, question = a_chapter_with_folds(book)
    seen = visit(f"{site}/notebooks/{name}.html")
    page, fold = seen.page, fold_of(seen.page, question)
    others = page.locator(f'details.answer[open]:not([data-questions~="{question}"])')
    assert fold.get_attribute("open") is None and not fold.locator(".cell").first.is_visible()
    form = asked(page, question)
    form.get_by_role("radio").first.focus()
    page.keyboard.press("Space")
    assert fold.get_attribute("open") is None, "a choice that may still change unfolds nothing"
    page.keyboard.press("Enter")
    assert fold.locator(".cell").first.is_visible() and not fold.locator(":scope > summary").is_visible()
    assert others.count() == 0
    page.reload()
    assert fold_of(page, question).locator(".cell").first.is_visible(), "what was predicted stays"
    assert seen.errors == []


def test_an_answer_can_be_shown_without_predicting_and_folded_again_by_keys(site, book, visit):
    name, question = a_chapter_with_folds(book)
    page = visit(f"{site}/notebooks/{name}.html").page
    fold = fold_of(page, question)
    fold.locator(":scope > summary").focus()
    page.keyboard.press("Enter")
    assert fold.locator(".cell").first.is_visible()
    found = Axe().run(page, context="article details.answer").response["violations"]
    assert not [rule["id"] for rule in found if rule["impact"] in ("serious", "critical")]
    page.keyboard.press("Enter")
    assert not fold.locator(".cell").first.is_visible()


def test_in_print_and_without_scripts_nothing_is_folded(site, book, visit, chromium):
    name, _ = a_chapter_with_folds(book)
    page = visit(f"{site}/notebooks/{name}.html").page
    page.emulate_media(media="print")
    hidden = "nodes => nodes.filter(node => !node.checkVisibility({ contentVisibilityAuto: true }) || !node.offsetHeight).length"
    answers = page.locator("details.answer > :not(summary)")
    assert answers.count() and answers.evaluate_all(hidden) == 0
    context = chromium.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"file://{book}/notebooks/{name}.html")
    assert plain.locator("div.answer > *").evaluate_all(hidden) == 0 and plain.locator("details.answer").count() == 0
    context.close()


DEEPER = (
    '<section id="deep"><h2>Deep</h2><div class="deeper"></div><p>inside</p><section id="inner"><h3>Inner</h3><p>more</p></section></section>'
    '<section class="sentence"><script type="application/json">{"name": "99.why", "text": "Why?", "model": "Because.", "points": ["one"]}</script></section>'
)


def test_a_deeper_section_opens_by_a_link_into_it_and_in_print(site, visit):
    page = visit(f"{site}/index.html").page
    page.evaluate(
        "html => { document.querySelector('article').insertAdjacentHTML('beforeend', html); flashlearnBook.folds(); }",
        DEEPER,
    )
    fold, inner = page.locator("#deep > details"), page.locator("#inner p")
    assert fold.locator("summary h2").is_visible() and not inner.is_visible()
    page.emulate_media(media="print")
    assert inner.is_visible()
    page.emulate_media(media="screen")
    assert not inner.is_visible()
    page.evaluate("location.hash = 'inner'")
    expect(inner).to_be_visible()
    page.evaluate("document.querySelector('#deep > details').open = false; location.hash = 'deep'")
    expect(inner).to_be_visible()


def test_a_sentence_is_compared_once_it_is_written(site, visit):
    page = visit(f"{site}/index.html").page
    page.evaluate(
        "html => { document.querySelector('article').insertAdjacentHTML('beforeend', html); flashlearnBook.questions(); }",
        DEEPER,
    )
    form = page.locator("section.sentence form")
    box, compare, ours = (
        form.get_by_label("Why?"),
        form.get_by_role("button", name="Compare"),
        form.get_by_text("Because."),
    )
    for words, seen in (("too few", False), ("all terms share one old maximum", True)):
        box.fill(words)
        compare.click()
        assert ours.is_visible() == seen
    page.reload()
    assert "share one old maximum" not in page.content() and page.evaluate("JSON.stringify(sessionStorage)") == "{}"


# --- the rest ----------------------------------------------------------------------------------------------


def test_every_chapter_says_where_it_can_be_run(book):
    for name in CHAPTERS:
        page = (book / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        assert page.count(f"labpath=notebooks%2F{name}.ipynb") == 2, "at the top, and at the exercises"
        assert page.count(f"/blob/colab/{name}.ipynb") == 2
        assert (book / "download" / f"{name}.ipynb").exists() and (
            book.parent / "book-colab" / f"{name}.ipynb"
        ).exists()


def test_search_ranks_the_chapter_of_that_name_first(site, book, visit):
    page = visit(f"{site}/search.html").page
    for name in CHAPTERS:
        text = (book / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        title = html.unescape(re.search(r"<h1>(.*?)<a", text)[1])
        page.goto(f"{site}/search.html?{urlencode({'q': title})}")
        page.wait_for_selector("#results li", timeout=20_000)
        assert page.locator("#results a").first.get_attribute("href") == f"notebooks/{name}.html"


def test_search_leads_to_sections(site, visit):
    page = visit(f"{site}/search.html?q=associative").page
    page.wait_for_selector("#results li", timeout=20_000)
    link = page.get_by_role("link", name="Online softmax › Any order, any grouping")
    link.click()
    assert page.url.endswith("#any-order-any-grouping") and "03_online_softmax.html" in page.url
    unfolded = page.locator("#any-order-any-grouping").evaluate(
        """section => [...section.querySelectorAll('details.answer')]
             .every(fold => fold.open === fold.textContent.toLowerCase().includes('associative'))"""
    )
    assert unfolded, "what was searched for is no longer folded"


def test_a_theme_that_is_chosen_stays(site, visit):
    page = visit(f"{site}/index.html", color_scheme="dark").page
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="dark or light").click()
    light = page.evaluate(ground)
    page.reload()
    assert dark != light == page.evaluate(ground)
    page.emulate_media(color_scheme="light")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == light


def test_menus_open_by_keys_one_at_a_time(site, visit):
    page = visit(f"{site}/notebooks/03_online_softmax.html").page
    chapters, sections = page.locator("header summary").all()
    chapters.focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("link", name="07 · Tiled attention").is_visible()
    sections.click()
    assert not page.get_by_role("link", name="07 · Tiled attention").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("header details[open]").count() == 0


ASKED = (
    '{"questions": [{"name": "99.often", "question": "How often?", "why": "A pass is enough.", "choices": '
    '[{"text": "once", "right": true}, {"text": "twice", "believes": "l waits"}]}, '
    '{"name": "99.more", "question": "And then?", "why": "It is done.", "choices": '
    '[{"text": "never", "believes": "all is vain"}, {"text": "again", "right": true}]}]}'
)


def put_questions(page):
    page.evaluate(
        """data => { const section = document.createElement('section'); section.className = 'predict';
             section.innerHTML = `<script type="application/json">${data}</script>`; document.querySelector('article').append(section);
             flashlearnBook.questions(); }""",
        ASKED,
    )
    return page.locator("section.predict form")


def test_questions_are_answered_by_keys_without_a_kernel(site, visit):
    seen = visit(f"{site}/index.html")
    page = seen.page
    forms = put_questions(page)
    assert forms.count() == 2
    form, status = forms.first, forms.first.get_by_role("status")
    form.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert "Choose one first" in status.inner_text()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")  # on the last of them: so a browser enters a group from below
    page.keyboard.press("ArrowDown")
    assert form.get_by_label("once").is_checked()
    page.keyboard.press("ArrowDown")
    assert form.get_by_label("twice").is_checked() and "l waits" not in status.inner_text()
    page.keyboard.press("Enter")
    assert all(words in status.inner_text() for words in ("l waits", "once.", "A pass is enough."))
    page.keyboard.press("ArrowUp")
    assert form.get_by_label("twice").is_checked(), "what was predicted stays"
    assert forms.last.get_by_role("status").inner_text() == ""
    found = Axe().run(page).response["violations"]
    assert not [rule["id"] for rule in found if rule["impact"] in ("serious", "critical")]

    page.reload()
    forms = put_questions(page)
    assert forms.first.get_by_label("twice").is_checked() and not forms.last.get_by_role("radio").first.is_checked()
    forms.last.get_by_label("again").check()
    forms.last.get_by_role("button").click()
    assert forms.last.get_by_role("status").inner_text() == "Right. It is done."
    assert seen.errors == []
