"""The explorers of the book: the formulas in JavaScript are those of flashlearn.cost; controls and addresses work."""

import base64
import gzip
import json
import random
import re
from urllib.parse import urlencode

import pytest
import torch

from flashlearn import cost
from flashlearn.algorithms.tiled import sram_elements
from flashlearn.cost import placement
from flashlearn.show.explorers.tiling import MASKS
from tests.browser.conftest import ROOT, wait_until
from tests.browser.test_book import PHONE, book, site, visit  # noqa: F401

pytest.importorskip("latex2mathml", reason="needs the extra `book`")
pytest.importorskip("playwright", reason="needs the extra `test`")
from playwright.sync_api import expect

from tools.book import finish, runs

pytestmark = pytest.mark.browser
STATIC = ROOT / "book" / "_static"
slow = pytest.mark.slow
FORMULAS = {  # as book/_static/cost.js names them
    "forward": ["standard_cost", "two_pass_cost", "v1_cost", "v2_cost", "ideal_cost"],
    "backward": ["stored_backward_cost", "standard_backward_cost", "two_pass_backward_cost", "fused_backward_cost"],
}
BLOCKED = {"v1_cost", "v2_cost", "two_pass_backward_cost", "fused_backward_cost"}


@pytest.fixture(scope="module")
def formulas(chromium, tmp_path_factory):
    """A page with book/_static/cost.js in it, as `costs`."""
    path = tmp_path_factory.mktemp("js") / "all.js"
    finish.bundle([STATIC / "cost.js"], path)
    page = chromium.new_page()
    page.add_script_tag(content=path.read_text(encoding="utf-8").replace("const modules_cost", "window.costs"))
    yield page
    page.close()


def settings(count=500):
    """Random settings, most of them ragged; one of 50 as long as the explorer goes, for Python counts block by block."""
    draw = random.Random(7)
    for number in range(count):
        N = round(2 ** draw.uniform(0, 10 if number % 50 else 17))
        D, block_q, block_k = draw.randint(1, 256), draw.randint(1, 300), draw.randint(1, 300)
        yield {"N": N, "D": D, "blockQ": block_q, "blockK": block_k, "causal": draw.random() < 0.5}


def by_python(name, at, dtype):
    more = {"block_q": at["blockQ"], "block_k": at["blockK"]} if name in BLOCKED else {}
    found = getattr(cost, name)(1, 1, at["N"], at["N"], at["D"], causal=at["causal"], dtype=dtype, **more)
    return {"read": found.read, "written": found.written, "flops": found.flops, "extra": found.extra}


@pytest.mark.parametrize(
    ("dtype", "count"),
    [(torch.float16, 100), pytest.param(torch.float16, 500, marks=slow), (torch.float32, 50)],
    ids=["float16", "float16-many", "float32"],
)
def test_the_formulas_are_those_of_python(formulas, dtype, count):
    cases = list(settings(count))
    sizes = {"e": dtype.itemsize, "a": 4}
    told = formulas.evaluate(
        """([cases, sizes]) => cases.map(at => Object.values(costs.ALGORITHMS).flat().map(algorithm =>
             [algorithm.python, algorithm.cost({...at, ...sizes})]))""",
        [cases, sizes],
    )
    for at, algorithms in zip(cases, told, strict=True):
        assert [name for name, _ in algorithms] == [name for names in FORMULAS.values() for name in names]
        for name, found in algorithms:
            assert found == by_python(name, at, dtype), f"{name} of {at}"


def test_times_and_tiles_are_those_of_python(formulas):
    gpus = {gpu["name"]: gpu for gpu in runs.hardware()}
    for at in settings(20):
        for name, gpu in gpus.items():
            mine = cost.v2_cost(
                1, 1, at["N"], at["N"], at["D"], causal=at["causal"], block_q=at["blockQ"], block_k=at["blockK"]
            )
            right = placement(mine, cost.HARDWARE[name])
            said = formulas.evaluate(
                "([at, gpu]) => costs.placement(costs.ALGORITHMS.forward[3].cost({...at, e: 2, a: 4}), gpu)", [at, gpu]
            )
            assert said["seconds"] == pytest.approx(right.seconds, rel=1e-12)
            assert said["bound"] == right.bound.removesuffix("-bound")
        elements = formulas.evaluate("at => costs.sramElements(at)", at)
        assert elements == sram_elements(at["blockQ"], at["blockK"], at["D"])


def test_a_wrong_formula_would_be_seen(formulas):
    """The settings tell ceil from floor, and the blocks of queries from those of keys."""
    cases = [at for at in settings() if at["N"] > at["blockQ"]]
    assert any(
        by_python("v2_cost", at, torch.float16) != by_python("v2_cost", {**at, "blockQ": at["blockK"]}, torch.float16)
        for at in cases
    )
    assert (
        any(at["N"] % at["blockQ"] for at in cases)
        and any(at["causal"] for at in cases)
        and not all(at["causal"] for at in cases)
    )


# --- on the page -------------------------------------------------------------------------------------------


@slow
def test_what_is_set_stands_in_the_address_and_comes_back(site, visit):  # noqa: F811
    page = visit(f"{site}/explorers/bytes.html").page
    page.get_by_role("slider", name="N: queries and keys").press("End")
    page.get_by_role("slider", name="D: head dimension").press("ArrowRight")
    page.get_by_label("causal").check()
    page.get_by_role("combobox", name="GPU").select_option("H100 SXM")
    page.get_by_role("combobox", name="pass").select_option("backward")
    assert "N=131072" in page.url and "D=96" in page.url and "sram=228" in page.url and "causal=1" in page.url
    words = page.locator(".explorer").inner_text()
    again = visit(page.url).page
    assert again.locator(".explorer").inner_text() == words
    wrong = visit(f"{site}/explorers/bytes.html#N=1e99&D=-3&gpu=none&pass=toString").page
    assert "8,192" in wrong.locator(".explorer").inner_text()


@slow
def test_the_page_says_what_python_says(site, visit):  # noqa: F811
    page = visit(
        f"{site}/explorers/bytes.html#N=8192&D=64&blockQ=128&blockK=64&sram=164&gpu=A100-40GB&causal=0&pass=forward"
    ).page
    standard = cost.standard_cost(1, 1, 8192, 8192, 64)
    ours = cost.v2_cost(1, 1, 8192, 8192, 64, block_q=128, block_k=64)
    words = page.locator(".explorer").inner_text()
    assert f"moves {standard.bytes / ours.bytes:.1f} times the bytes" in words
    assert f"Standard {standard.bytes / 1e6:.0f} MB" in words and f"FlashAttention-2 {ours.bytes / 1e6:.0f} MB" in words
    assert f"fills it {2 * 8192**2 // (164 * 1024)} times" in page.locator(".explorer svg").first.text_content()


@slow
@pytest.mark.parametrize("size", [PHONE, (1440, 900)], ids=["phone", "desk"])
def test_text_in_the_pictures_is_large_enough_and_inside(site, visit, size):  # noqa: F811
    seen = visit(f"{site}/explorers/bytes.html", size)
    page = seen.page
    length = page.get_by_role("slider", name="N: queries and keys")
    chosen = page.get_by_role("combobox", name="pass")
    for N in (128, 300, 8192, 131072):
        for name in ("forward", "backward"):
            page.goto("about:blank")  # or only the part after # would change, and the page would stay
            seen.open(f"{site}/explorers/bytes.html#N={N}&pass={name}")
            assert length.get_attribute("aria-valuetext") == f"{N:,}" and chosen.input_value() == name
            out = page.evaluate(
                """() => [...document.querySelectorAll('.explorer svg text')].filter(text => {
                     const [box, room] = [text, text.ownerSVGElement].map(node => node.getBoundingClientRect());
                     return parseFloat(getComputedStyle(text).fontSize) < 12 || box.left < room.left - 1 || box.right > room.right + 1
                       || box.top < room.top - 1 || box.bottom > room.bottom + 1; }).map(text => text.textContent)"""
            )
            assert out == [] and page.locator(".explorer svg text").count() > 10


# --- the tiling explorer -----------------------------------------------------------------------------------

PICTURE = ".flashlearn-stage > svg.scene"


@slow
def test_the_tiling_explorer_shows_recorded_bytes_and_says_what_does_not_fit(site, visit):  # noqa: F811
    page = visit(f"{site}/explorers/tiling.html#N=5&D=3&block_q=3&block_k=5&sram=59&mask=full").page
    said = page.locator(".flashlearn-fit")
    expect(said).to_contain_text("3 × 5 blocks need 63 of 59 elements: they do not fit.")
    for name, short in (("v1_cost", "FA-1"), ("v2_cost", "FA-2")):
        total = getattr(cost, name)(1, 1, 5, 5, 3, dtype=torch.float32, block_q=3, block_k=5).bytes
        expect(said).to_contain_text(f"{short} {total:,} B")
    page.get_by_role("slider", name="B_c").press("ArrowLeft")
    expect(said).to_contain_text("they fit.")
    page.get_by_role("slider", name="N", exact=True).press("End")
    expect(page.get_by_role("slider", name="N", exact=True)).to_have_attribute("aria-valuetext", "12")
    page.get_by_role("button", name="next rescaling").click()
    expect(page.locator(".flashlearn-sentence")).to_contain_text("new maximum")


@slow
def test_state_and_step_are_in_the_address_which_is_followed(site, visit):  # noqa: F811
    seen = visit(f"{site}/explorers/tiling.html")
    page, sentence = seen.page, seen.page.locator(".flashlearn-sentence")
    page.get_by_role("combobox", name="mask").select_option("window of 4")
    page.get_by_role("slider", name="B_r").press("ArrowLeft")
    expect(sentence).to_contain_text("Step 1 of")
    page.get_by_role("slider", name="step").press("ArrowRight")
    expect(sentence).to_contain_text("Step 2 of")
    wait_until(page, "() => location.hash.includes('step=2')")
    assert "block_q=2" in page.url and urlencode({"mask": "window of 4"}) in page.url
    here, words, picture = page.url, sentence.inner_text(), page.locator(PICTURE).inner_html()
    page.evaluate("location.hash = '#N=8&block_q=4&block_k=4&mask=full&step=3'")  # as a link on the page would
    expect(sentence).to_contain_text("Step 3 of")
    expect(page.get_by_role("slider", name="N", exact=True)).to_have_attribute("aria-valuetext", "8")
    page.evaluate("location.hash = '#N=8&block_q=4&block_k=4&mask=full&step=1'")
    expect(sentence).to_contain_text("Step 1 of")
    again = visit(here).page
    expect(again.locator(".flashlearn-sentence")).to_have_text(words)
    without_names = "html => html.replaceAll(/flashlearn-\\w+/g, '')"
    assert again.evaluate(without_names, again.locator(PICTURE).inner_html()) == again.evaluate(without_names, picture)
    wrong = visit(f"{site}/explorers/tiling.html#N=1e99&D=-3&mask=none&step=x").page
    expect(wrong.locator(".flashlearn-sentence")).to_contain_text("Step 1 of")
    assert seen.errors == []


@slow
def test_a_link_to_what_is_shown_is_copied_also_in_a_chapter(site, visit):  # noqa: F811
    page = visit(f"{site}/notebooks/17_which_keys.html").page
    chapter = page.locator("[data-explorer]")
    chapter.scroll_into_view_if_needed()
    expect(chapter.get_by_role("combobox", name="mask")).to_have_value("documents, window")
    expect(chapter.get_by_text("3 × 3 blocks need 57 of 59")).to_be_visible()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chapter.get_by_role("slider", name="step").press("ArrowRight")
    chapter.get_by_role("button", name="Copy link").click()
    expect(chapter.get_by_text("copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{site}/explorers/tiling.html#") and "step=2" in link
    other = visit(link).page
    expect(other.get_by_role("combobox", name="mask")).to_have_value("documents, window")
    expect(other.locator(".flashlearn-sentence")).to_contain_text("Step 2 of")


@slow
def test_every_mask_and_every_step_is_a_picture(site, visit):  # noqa: F811
    seen = visit(f"{site}/explorers/tiling.html#N=12&block_q=3&block_k=3")
    page, drawn = seen.page, set()
    for mask, options in MASKS.items():
        page.get_by_role("combobox", name="mask").select_option(mask)
        total = cost.v2_cost(1, 1, 12, 12, 4, dtype=torch.float32, block_q=3, block_k=3, **options(12)).bytes
        expect(page.locator(".flashlearn-fit")).to_contain_text(f"FA-2 {total:,} B")
        drawn.add(page.locator(PICTURE).inner_html())
    assert len(drawn) == len(MASKS)
    page.locator(".flashlearn-player").focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
        drawn.add(page.locator(PICTURE).inner_html())
    assert len(drawn) >= len(MASKS) + 8 and seen.errors == []


@slow
@pytest.mark.parametrize("size", [(1280, 720), (1366, 768), (1440, 900), (1920, 1080)], ids=lambda size: str(size[0]))
def test_what_is_changed_and_what_changes_are_on_one_screen(site, visit, size):  # noqa: F811
    page = visit(f"{site}/explorers/tiling.html", size).page
    explorer = page.locator(".flashlearn-explorer")
    expect(page.locator(PICTURE)).to_be_visible()
    explorer.evaluate("node => node.scrollIntoView()")
    tracks = [track.bounding_box()["width"] for track in explorer.get_by_role("slider").all()]
    assert len(tracks) == 6 and min(tracks) >= 120
    assert explorer.bounding_box()["height"] <= size[1]
    page.get_by_role("button", name="next rescaling").click()
    before = page.locator(".flashlearn-stage").bounding_box()
    page.get_by_role("button", name="next rescaling").click()
    assert page.locator(".flashlearn-stage").bounding_box() == before


@slow
def test_all_recorded_settings_are_there(book):  # noqa: F811
    named = {
        runs.named(N, D, q, k, mask)
        for D, lengths in runs.grid().items()
        for N, pairs in lengths.items()
        for q, k in pairs
        for mask in MASKS
    }
    files = list((book / "_static" / "runs").glob("*.js"))
    assert {path.stem for path in files} == named
    assert max(path.stat().st_size for path in files) < 100_000
    text = (book / "_static" / "runs" / "12-4-3-3-causal.js").read_text(encoding="utf-8")
    data = gzip.decompress(base64.b64decode(re.search(r'","([^"]*)"', text)[1]))
    assert json.loads(data) == json.loads(json.dumps(runs.setting(12, 4, 3, 3, "causal")))


@slow
@pytest.mark.parametrize("size", [PHONE, (768, 1024), (1440, 900)], ids=lambda size: str(size[0]))
@pytest.mark.parametrize("name", ["explorers/tiling", "notebooks/07_tiled_attention"])
def test_text_among_the_tiles_is_readable(site, visit, name, size):  # noqa: F811
    """At least 12 pixels on a phone; beside its controls, with all on one screen, at least 9."""
    page = visit(f"{site}/{name}.html", size).page
    picture = page.locator(f"[data-explorer] {PICTURE}")
    picture.scroll_into_view_if_needed()
    expect(picture).to_be_visible()
    smallest = picture.evaluate(
        """svg => Math.min(...[...svg.querySelectorAll("text")].map(text =>
             parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))"""
    )
    assert smallest >= (12 if size == PHONE else 9)
