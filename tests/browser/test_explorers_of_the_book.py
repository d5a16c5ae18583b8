"""The explorers of the book: the formulas in JavaScript are those of flashlearn.cost; controls and addresses work."""

import json
import random
import re
from urllib.parse import unquote, urlencode

import pytest
import torch

from flashlearn import cost
from flashlearn.algorithms.tiled import sram_elements
from flashlearn.cost import placement
from flashlearn.show.explorers.tiling import MASKS
from tests.browser.conftest import ROOT
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


@slow
def test_the_tiling_explorer_shows_recorded_bytes_and_says_what_does_not_fit(site, visit):  # noqa: F811
    page = visit(f"{site}/explorers/tiling.html#N=5&D=3&blockQ=3&blockK=5&sram=59&causal=0").page
    explorer = page.locator(".explorer")
    explorer.get_by_text("need 63 of 59 elements").wait_for()
    assert "they do not fit" in explorer.inner_text()
    total = {
        name: getattr(cost, name)(1, 1, 5, 5, 3, dtype=torch.float32, block_q=3, block_k=5).bytes
        for name in ("v1_cost", "v2_cost")
    }
    assert f"FlashAttention-1 {total['v1_cost']:,} B" in explorer.inner_text()
    assert f"FlashAttention-2 {total['v2_cost']:,} B" in explorer.inner_text()
    page.get_by_role("slider", name="B_c: keys in a block").press("ArrowLeft")
    explorer.get_by_text("they fit.").wait_for()
    page.get_by_role("slider", name="N: tokens").press("End")
    page.locator(".flashlearn-player[aria-label*='N = 16']").first.wait_for()
    page.get_by_role("button", name="Next rescaling").click()
    assert "new maximum" in explorer.locator(".flashlearn-sentence").inner_text()


@slow
def test_a_mask_is_a_choice_and_a_chapter_begins_with_its_own(site, visit):  # noqa: F811
    """Under every mask as many keys are hatched as Python hides; the address keeps the mask."""
    page = visit(f"{site}/explorers/tiling.html").page
    drawn = set()
    for mask, options in MASKS.items():
        page.get_by_role("combobox", name="mask").select_option(mask)
        player = page.locator(f".flashlearn-player[aria-label$='mask: {mask}.']")
        player.wait_for()
        assert urlencode({"mask": mask}) in page.url
        total = cost.v2_cost(1, 1, 12, 12, 4, dtype=torch.float32, block_q=3, block_k=3, **options(12)).bytes
        assert f"FlashAttention-2 {total:,} B" in page.locator(".explorer").inner_text()
        picture = unquote(player.locator("img").get_attribute("src"))
        hidden = sum((start > 0) + (stop < 12) for start, stop in runs.spans(12, options(12)))
        assert picture.count("url(#hidden)") == 2 * hidden, "in both panels"
        drawn.add(picture)
    assert len(drawn) == len(MASKS)
    chapter = visit(f"{site}/notebooks/17_which_keys.html").page.locator("[data-explorer]")
    expect(chapter.get_by_role("combobox", name="mask")).to_have_value("documents, window")
    expect(chapter.get_by_text("Blocks 3 × 3 need 57 of 59")).to_be_visible()


@slow
def test_every_step_of_the_tiling_explorer_is_a_picture(site, visit):  # noqa: F811
    seen = visit(f"{site}/explorers/tiling.html#N=6&blockQ=2&blockK=3")
    page = seen.page
    page.locator(".flashlearn-player").focus()
    shown = set()
    for _ in range(8):
        page.wait_for_function("document.querySelector('.flashlearn-stage img').naturalWidth > 0")
        shown.add(page.locator(".flashlearn-stage img").get_attribute("src"))
        page.keyboard.press("ArrowRight")
    assert len(shown) >= 6 and seen.errors == []


@slow
def test_all_recorded_settings_are_there(book):  # noqa: F811
    named = {f"{N}-{D}-{q}-{k}" for D, lengths in runs.grid().items() for N, pairs in lengths.items() for q, k in pairs}
    assert {path.stem for path in (book / "_static" / "runs").glob("*.js")} == named
    text = (book / "_static" / "runs" / "12-4-3-3.js").read_text(encoding="utf-8")
    assert json.loads(text[text.index("{") : text.rindex("}") + 1]) == json.loads(json.dumps(runs.setting(12, 4, 3, 3)))


@slow
@pytest.mark.parametrize("size", [PHONE, (768, 1024), (1440, 900)], ids=lambda size: str(size[0]))
@pytest.mark.parametrize("name", ["explorers/tiling", "notebooks/07_tiled_attention"])
def test_text_among_the_tiles_is_at_least_12_pixels(site, visit, name, size):  # noqa: F811
    page = visit(f"{site}/{name}.html", size).page
    image = page.locator("[data-explorer] .flashlearn-stage img")
    page.wait_for_function("img => img.naturalWidth > 0", arg=image.element_handle())
    scale = image.evaluate("img => img.getBoundingClientRect().width / img.naturalWidth")
    smallest = min(float(each) for each in re.findall(r"font-size(?:%3A|:)([\d.]+)px", image.get_attribute("src")))
    assert smallest * scale >= 12
