"""The player in Chromium: on a page of its own, and in a real JupyterLab with a kernel that may die."""

import base64
import io
import json
import os
import re
import statistics

import numpy as np
import pytest
from PIL import Image, ImageDraw

from flashlearn.show.bundle import browser_text, packed_run

pytest.importorskip("playwright", reason="needs the extra `test`")
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

CAPTIONS = [
    f"Step {number} of 5 · the bar is at {number}{', and stays there for long' * number}." for number in range(1, 6)
]


def data_uri(image):
    stream = io.BytesIO()
    image.save(stream, "png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def bar(number):
    """A frame with a bar at its place."""
    image = Image.new("RGB", (640, 200), "white")
    ImageDraw.Draw(image).rectangle((100 * number, 40, 100 * number + 80, 180), fill=(0, 114, 178))
    return data_uri(image)


def drawn(number, narrow=False):
    """The same as a scene, with a copy that comes from the bar's place, and room for a hatched part."""
    width, height = (300, 400) if narrow else (640, 200)
    at = f'x="{(30 if narrow else 100) * number}" y="40" width="{20 + 10 * number}" height="140"'
    return (
        f'<svg class="scene" viewBox="0 0 {width} {height}" aria-hidden="true"><pattern id="scene-hatch"></pattern>'
        f'<rect data-id="bar" {at}/><rect data-id="copy{number}" data-from="0 0 10 10" x="200" y="90" width="20" height="20"/>'
        f'<g data-id="still" data-at="1 2 3 4"><text x="5" y="20">bar {number}</text></g></svg>'
    )


def scenes(**more):
    frames = [(drawn(number), drawn(number, narrow=True)) for number in range(5)]
    return bars(frames=[], scenes=packed_run(frames), narrow=[300, 400], **more)


def bars(**more):
    run = {
        "alt": "A bar that moves.",
        "captions": CAPTIONS,
        "frames": [bar(number) for number in range(5)],
        "size": [640, 200],
        "delays": [120] * 5,
        "table": {"heads": ["step", "what happens"], "rows": [[str(number), "it moves"] for number in range(1, 6)]},
    }
    return {**run, **more}


class Page:
    """A page with one player, `p`."""

    def __init__(self, browser, run, **context):
        self.context = browser.new_context(viewport={"width": 800, "height": 600}, **context)
        self.page = self.context.new_page()
        self.errors = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        module = browser_text("picture.js", "player.js")
        self.page.set_content(
            f"<!doctype html><html lang=en><style>{browser_text('player.css')}</style>"
            "<main id=place><img alt='the still'><details><summary>kept</summary></details></main>"
            f"<script type=module>{module}\n globalThis.events = [];\n"
            f"globalThis.wanted = []; const run = {json.dumps(run)}; run.wanted = (number) => wanted.push(number);\n"
            "for (const kind of ['step', 'picture', 'playing']) addEventListener(kind, ({ detail }) => events.push([kind, detail]));\n"
            "addEventListener('keydown', ({ key }) => events.push(['left to the page', key]));\n"
            "globalThis.p = mount(document.getElementById('place'), run);</script>"
        )
        self.page.wait_for_function("globalThis.p")
        self.root = self.page.locator(".flashlearn-player")

    def says(self, number):
        """The sentence, the picture, its text and the slider are those of this step, from 1."""
        expect(self.page.get_by_role("status").first).to_have_text(CAPTIONS[number - 1])
        image = self.page.locator(".flashlearn-stage img")
        expect(image).to_have_attribute("src", bar(number - 1))
        expect(image).to_have_attribute("alt", f"A bar that moves. {CAPTIONS[number - 1]}")
        expect(self.page.get_by_role("slider", name="step")).to_have_value(str(number))

    def button(self, name):
        return self.page.get_by_role("button", name=name)

    def left(self):
        """The keys that the player left to the page."""
        return self.page.evaluate("events.filter(([kind]) => kind == 'left to the page').map(([, key]) => key)")


@pytest.fixture
def page(chromium):
    opened = []

    def one(run=None, **context):
        opened.append(Page(chromium, run or bars(), **context))
        return opened[-1]

    yield one
    for each in opened:
        each.context.close()
        assert each.errors == []


def test_keys_and_boundaries(page):
    one = page()
    one.says(1)
    one.root.focus()
    for key, number in (
        ("ArrowRight", 2),
        ("PageDown", 3),
        ("ArrowLeft", 2),
        ("End", 5),
        ("ArrowRight", 5),
        ("PageDown", 5),
        ("PageUp", 4),
        ("Home", 1),
        ("PageUp", 1),
        ("Shift+ArrowRight", 1),
    ):
        one.page.keyboard.press(key)
        one.says(number)
    assert one.left() == ["PageDown", "PageUp", "Shift", "ArrowRight"]


def test_slider_takes_the_keys_of_the_player(page):
    one = page()
    slider = one.page.get_by_role("slider", name="step")
    slider.focus()
    for key, number in (
        ("ArrowUp", 2),
        ("PageDown", 3),
        ("End", 5),
        ("PageDown", 5),
        ("ArrowDown", 4),
        ("Home", 1),
        ("PageUp", 1),
    ):
        one.page.keyboard.press(key)
        one.says(number)
    box = slider.bounding_box()
    one.page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + box["height"] / 2)
    one.says(3)
    one.page.keyboard.press("ArrowRight")  # the focus is back
    one.says(4)
    assert one.page.evaluate("document.activeElement == p.root")


@pytest.mark.slow
def test_it_plays_in_the_time_of_each_step_and_stops_at_the_end(page):
    one = page(bars(delays=[50, 50, 400, 50, 50]))
    one.page.evaluate("events.length = 0; addEventListener('step', () => events.push(['at', performance.now()]))")
    one.button("Play").click()
    expect(one.button("Play")).to_be_visible(timeout=5000)
    one.says(5)
    times = one.page.evaluate("events.filter(([kind]) => kind == 'at').map(([, time]) => time)")
    waits = np.diff(times)
    assert len(times) == 4 and 380 < waits[1] < 900 and waits[0] < 300 and waits[2] < 300
    status = one.page.get_by_role("status").first
    one.button("Play").click()  # from the beginning again
    expect(status).to_have_attribute("aria-live", "off")
    one.page.keyboard.press(" ")
    expect(status).to_have_attribute("aria-live", "polite")
    one.button("speed").click()
    assert one.page.evaluate("p.speed") == 2


def test_predict_first_hides_the_next_frame_and_its_sentence(page):
    one = page(bars(questions={"2": "Where does it go?"}))
    one.button("Predict first").click()
    one.says(1)
    one.page.keyboard.press("ArrowRight")
    status, image = one.page.get_by_role("status").first, one.page.locator(".flashlearn-stage img")
    expect(status).to_contain_text("Step 2 of 5 · What happens now?")
    expect(image).to_have_attribute("src", bar(0))
    assert CAPTIONS[1] not in one.page.locator(".flashlearn-words").text_content().replace(CAPTIONS[4], "")
    one.button("Reveal").press("Enter")
    one.says(2)
    one.page.keyboard.press("PageDown")
    expect(status).to_have_text("Step 3 of 5 · Where does it go?")
    one.page.keyboard.press("PageDown")
    one.says(3)
    one.page.keyboard.press("ArrowLeft")
    one.says(2)
    one.page.keyboard.press("ArrowRight")
    one.says(3)  # it was seen
    for key in ("End", "PageDown", "PageDown"):
        one.page.keyboard.press(key)
    one.says(5)
    assert one.left() == ["PageDown"], "the last, when there is nothing to reveal any more"


@pytest.mark.slow
def test_swipes_and_large_controls_on_a_phone(page):
    one = page(has_touch=True, is_mobile=True)
    one.page.set_viewport_size({"width": 390, "height": 844})
    touch = one.page.context.new_cdp_session(one.page)

    def swipe(x, y, to_x, to_y):
        for kind, points in (
            ("touchStart", [{"x": x, "y": y}]),
            ("touchMove", [{"x": to_x, "y": to_y}]),
            ("touchEnd", []),
        ):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    box = one.page.locator(".flashlearn-stage").bounding_box()
    y = box["y"] + 40
    swipe(300, y, 200, y + 10)
    one.says(2)
    swipe(200, y, 280, y)
    one.says(1)
    swipe(300, y, 280, y)  # too short
    swipe(300, y, 240, y + 50)  # a scroll
    one.says(1)
    small = "node => [...node.querySelectorAll('button, input, summary')].filter(n => n.checkVisibility()).map(n => n.getBoundingClientRect().height)"
    assert min(one.root.evaluate(small)) >= 44
    assert one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_speaks_stays_and_nothing_moves(page):
    one = page()
    one.page.evaluate("globalThis.kept = [p.status, p.picture.image]")
    height = "p.root.getBoundingClientRect().height"
    before = one.page.evaluate(height)
    one.root.focus()
    for _ in range(4):
        one.page.keyboard.press("ArrowRight")
        assert one.page.evaluate(height) == before
    assert one.page.evaluate("kept.every(node => node.isConnected) && kept[0].getAttribute('aria-live') == 'polite'")
    assert (
        one.page.locator("summary").all_text_contents() == ["All steps in words"]
        and one.page.locator("tr").count() == 6
    )
    seen = one.page.evaluate("(({ width, height }) => width / height)(p.picture.stage.getBoundingClientRect())")
    assert abs(seen - 640 / 200) < 0.01


def test_frames_that_come_later(page):
    one = page(bars(frames=[bar(0)], table=None))
    assert one.page.locator("summary").all_text_contents() == ["kept"]
    one.root.focus()
    one.page.keyboard.press("ArrowRight")
    expect(one.page.get_by_role("status").first).to_have_text(CAPTIONS[1])
    assert one.page.evaluate("[wanted, p.there, p.count]") == [[1], 1, 5]
    assert one.page.locator(".flashlearn-stage").get_attribute("aria-busy") == "true"
    one.page.evaluate("frame => p.frame(1, frame)", bar(1))
    one.says(2)
    one.page.evaluate("p.message(`The kernel is gone: ${p.there} of ${p.count} frames are here.`)")
    expect(one.page.get_by_role("status").last).to_have_text("The kernel is gone: 2 of 5 frames are here.")
    one.page.evaluate("run => p.load(run)", {"captions": ["Step 1 of 1 · all."], "frames": [bar(3)]})
    expect(one.page.get_by_role("status").first).to_have_text("Step 1 of 1 · all.")
    assert one.page.evaluate("[p.count, p.note.textContent]") == [1, ""]
    one.page.evaluate("p.destroy()")
    assert one.page.locator(".flashlearn-player").count() == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"captions": []}, "expected run.captions"),
        ({"captions": [1]}, "expected run.captions"),
        ({"alt": " "}, "expected run.alt"),
        ({"size": [640]}, "expected run.size"),
    ],
)
@pytest.mark.slow
def test_a_run_that_cannot_be_played_is_rejected_and_the_page_keeps_its_still(page, wrong, message):
    one = page()
    said = one.page.evaluate(
        "run => { try { p.load(run) } catch (error) { return `${error.name}: ${error.message}` } }", bars(**wrong)
    )
    assert said.startswith(f"TypeError: {message}")
    one.says(1)


@pytest.mark.slow
def test_less_motion_stops_what_plays_by_itself(page):
    long = bars(autoplay=True, delays=[60_000] * 5)  # which does not end before it is looked at
    assert page(long).page.evaluate("p.playing") is True
    assert not page(long, reduced_motion="reduce").page.evaluate("p.playing")


# --- scenes ----------------------------------------------------------------------------------------------------

MOVING = """() => document.getAnimations().map(({ effect }) => [effect.target.dataset.id, effect.getKeyframes()[0].transform])"""


def shown(one):
    """What the scene on the page says."""
    return one.page.locator(".flashlearn-stage > svg > g > text").text_content()


def test_a_scene_is_text_on_the_page_with_a_name_of_its_own(page):
    one = page(scenes())
    assert shown(one) == "bar 0"
    one.root.focus()
    one.page.keyboard.press("End")
    assert shown(one) == "bar 4"
    picture = one.page.get_by_role("img", name=f"A bar that moves. {CAPTIONS[4]}")
    assert picture.evaluate("node => node.tagName") == "svg" and picture.get_attribute("aria-hidden") is None
    assert one.page.locator("#scene-hatch").count() == 0 and one.page.locator("pattern").count() == 1
    assert one.page.evaluate("events.filter(([kind]) => kind == 'picture').map(([, { step }]) => step)") == [0, 4]


def test_between_neighbouring_steps_what_has_the_same_name_moves(page):
    one = page(scenes())
    one.root.focus()
    assert one.page.evaluate(MOVING) == []
    one.page.keyboard.press("ArrowRight")
    assert one.page.evaluate(MOVING) == [
        ["bar", "translate(-66.6667px, 0px) scale(0.666667, 1)"],  # from x = 0, 20 wide, to x = 100, 30 wide
        ["copy1", "translate(-100px, -45px) scale(0.5, 0.5)"],  # from where it comes from
    ]
    one.page.wait_for_function("document.getAnimations().length == 0")
    one.page.keyboard.press("End")
    assert one.page.evaluate(MOVING) == [], "a jump is no motion"
    one.page.keyboard.press("ArrowLeft")
    assert [name for name, _ in one.page.evaluate(MOVING)] == ["bar", "copy3"]


@pytest.mark.parametrize("how", [{"motion": False}, {"reduced_motion": "reduce"}])
def test_nothing_moves_for_those_who_want_less(page, how):
    one = page(scenes(motion=how.pop("motion", True)), **how)
    one.root.focus()
    one.page.keyboard.press("ArrowRight")
    assert shown(one) == "bar 1" and one.page.evaluate(MOVING) == []


def test_with_little_room_the_narrow_layout_is_shown(page):
    one = page(scenes())
    ratio = "(({ width, height }) => width / height)(p.picture.stage.getBoundingClientRect())"
    box = "document.querySelector('.flashlearn-stage > svg').getAttribute('viewBox')"
    for width, wanted in ((800, [640, 200]), (390, [300, 400]), (800, [640, 200])):
        one.page.set_viewport_size({"width": width, "height": 800})
        one.page.wait_for_function(f"{box} == '0 0 {wanted[0]} {wanted[1]}'")
        assert abs(one.page.evaluate(ratio) - wanted[0] / wanted[1]) < 0.02
        assert one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_tall_picture_is_on_one_screen_with_its_caption_and_controls(page):
    one = page(bars(frames=[bar(0)], size=[640, 640]))
    assert one.page.locator(".flashlearn-controls").bounding_box()["y"] < 540
    assert one.page.locator(".flashlearn-stage").bounding_box()["width"] >= 300


def test_out_of_sight_it_has_the_wide_layout(page):
    """JupyterLab makes a cell's output before it is on the page."""
    one = page(scenes())
    one.page.evaluate("p.root.parentNode.style.display = 'none'; p.load(p.run)")
    assert one.page.evaluate("p.picture.stage.querySelector('svg').getAttribute('viewBox')") == "0 0 640 200"


def test_a_still_is_shown_until_there_are_frames(page):
    one = page(bars(frames=[], narrow=[300, 400]))
    assert one.page.locator(".flashlearn-stage > img").get_attribute("alt") == "the still"
    one.page.evaluate("scenes => p.fill(scenes)", scenes()["scenes"])
    assert shown(one) == "bar 0" and one.page.locator(".flashlearn-stage > img").count() == 0
    assert one.page.evaluate("p.there") == 5


def test_frames_of_both_kinds_can_stand_in_one_run(page):
    one = page(bars(frames=[bar(0), drawn(1), [drawn(2), drawn(2, narrow=True)], bar(3), None]))
    one.root.focus()
    for number, kind in ((2, "svg"), (3, "svg"), (4, "img")):
        one.page.keyboard.press("ArrowRight")
        expect(one.page.get_by_role("status").first).to_have_text(CAPTIONS[number - 1])
        assert (
            one.page.locator(".flashlearn-stage > :first-child").evaluate("node => node.tagName.toLowerCase()") == kind
        )


# --- in JupyterLab ---------------------------------------------------------------------------------------------

IMPORTS = """
import torch, flashlearn as fl
from flashlearn.show import play, reduced_motion
from flashlearn.show.draw import draw_row
x = torch.linspace(-1, 2, 12)[torch.randperm(12, generator=torch.Generator().manual_seed(1))]
def dots(ax, step):
    ax.set_axis_off()
    ax.scatter(step.number % 50, step.number // 50)
"""
SHOWN = """async ([root, key, step]) => {
  const player = root.flashlearnPlayer, from = player.step;
  const event = new Promise((done) => root.addEventListener("picture", () => done(performance.now()), { once: true }));
  const start = performance.now();
  if (key) player.key(key);
  else player.go(step);
  const end = await event;
  await new Promise(requestAnimationFrame);
  return [performance.now() - start, player.step - from];
}"""


def shared():
    """How many processes share a core just now: on a machine of its own, 1."""
    return max(1.0, os.getloadavg()[0] / os.cpu_count())


@pytest.fixture
def notebook(open_in_the_page):
    opened = open_in_the_page("00_start_here", height=900)
    opened.run_code(IMPORTS)
    return opened


@pytest.mark.slow
class TestInJupyterLab:
    def made(self, notebook, source, count=1):
        notebook.run_code(source)
        players = notebook.page.locator(".flashlearn-player")
        expect(players).to_have_count(count, timeout=60_000)
        return players.last

    def test_key_to_picture(self, notebook):
        """Median and worst of 50, in ms, with all frames there and with none of those that are asked for."""
        root = self.made(notebook, "play(fl.online_softmax_steps(x), draw_row, alt='bars')")
        notebook.page.wait_for_function(
            "root => root.flashlearnPlayer.there == root.flashlearnPlayer.count", arg=root.element_handle()
        )
        handle, times = root.element_handle(), []
        for number in range(50):
            key = "ArrowRight" if number % 46 < 24 else "ArrowLeft"
            time, moved = notebook.page.evaluate(SHOWN, [handle, key])
            assert abs(moved) == 1
            times.append(time)
        print(f"there: median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms")
        assert statistics.median(times) <= 30 * shared() and sorted(times)[44] <= 50 * shared()  # nine of ten
        notebook.run_code("reduced_motion()")
        run = "40 * fl.record(fl.online_softmax_steps(x))"
        root = self.made(notebook, f"play({run}, draw_row, alt='bars')", 2)
        handle, times = root.element_handle(), []
        for step in range(950, 50, -18):  # back, and the kernel paints ahead: none of them is there yet
            assert not notebook.page.evaluate(
                "([root, step]) => root.flashlearnPlayer.run.frames[step]", [handle, step]
            )
            times.append(notebook.page.evaluate(SHOWN, [handle, "", step])[0])
        print(f"not painted yet: median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms of {len(times)}")
        assert statistics.median(times) <= 100 * shared()
        assert notebook.errors == []
        notebook.passed = True

    def test_frames_come_while_the_kernel_is_idle_and_stay_when_it_dies(self, notebook):
        steps = "[fl.Step(sentence=f'Dot {n}') for n in range(1000)]"
        root = self.made(notebook, f"play({steps}, dots, alt='dots', figsize=(6, 3))")
        expect(root.get_by_role("status").first).to_contain_text("Step 1 of 1000")
        handle = root.element_handle()
        notebook.page.wait_for_function("root => root.flashlearnPlayer.there > 20", arg=handle, timeout=60_000)
        notebook.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.shutdown()")
        expect(root.get_by_role("status").last).to_contain_text("The kernel is gone", timeout=20_000)
        there = notebook.page.evaluate("root => root.flashlearnPlayer.there", handle)
        expect(root.get_by_role("status").last).to_contain_text(f"{there} of 1000 frames are here")
        root.focus()
        for number in range(2, 6):
            notebook.page.keyboard.press("ArrowRight")
            expect(root.get_by_role("status").first).to_contain_text(f"Step {number} of 1000")
            expect(root.locator("img")).to_have_attribute("alt", f"dots Step {number} of 1000 · Dot {number - 1}")

    def test_twenty_players_and_a_second_run(self, notebook):
        source = (
            "players = [play(fl.online_softmax_steps(x[:3]), dots, alt=f'dots {n}', figsize=(6, 2)) for n in range(20)]"
        )
        notebook.run_code(f"{source}\nfor each in players:\n    display(each)")
        players = notebook.page.locator(".flashlearn-player")
        expect(players).to_have_count(20, timeout=60_000)
        for place in (0, 19, 7):
            root = players.nth(place)
            root.focus()
            notebook.page.keyboard.press("ArrowRight")
            expect(root.get_by_role("status").first).to_contain_text("Step 2 of 7")
        expect(players.nth(8).get_by_role("status").first).to_contain_text("Step 1 of 7")
        notebook.run_code("assert [each.step for each in players].count(1) == 3\nplayers[3].step = 5")
        expect(players.nth(3).get_by_role("status").first).to_contain_text("Step 6 of 7")
        notebook.run_cell("for each in players")
        expect(players.nth(0).get_by_role("status").first).to_contain_text("Step 1 of 7", timeout=60_000)
        expect(players).to_have_count(20)
        assert notebook.errors == []
        notebook.passed = True

    def test_a_bad_argument_is_an_error_in_its_cell_and_the_projector_is_unharmed(self, notebook):
        self.made(notebook, "play(fl.online_softmax_steps(x[:3]), dots, alt='dots')")
        notebook.run_code("play(dots, fl.online_softmax_steps(x), alt='swapped')")
        error = notebook.page.get_by_text("are steps and draw swapped?").last
        expect(error).to_be_visible()
        notebook.project()
        notebook.project(False)
        root = notebook.page.locator(".flashlearn-player")
        expect(root).to_have_count(1)
        root.focus()
        notebook.page.keyboard.press("End")
        expect(root.get_by_role("status").first).to_contain_text("Step 7 of 7")
        expect(root.locator("img")).to_have_attribute("alt", re.compile("^dots Step 7 of 7 · Done: "))
        notebook.passed = True

    def test_axe_finds_nothing_serious_in_what_is_shown(self, notebook):
        axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra `test`")
        picture = "from flashlearn.show import picture\npicture(lambda ax: ax.plot([1, 2]), alt='a line that rises')"
        notebook.run_code(picture)
        notebook.run_code("from flashlearn.exercises import predict\npredict('03.wrong')")
        self.made(notebook, "play(fl.online_softmax_steps(x[:3]), dots, alt='dots')")
        for shown in (".flashlearn-player", ".flashlearn-picture", ".flashlearn-question"):
            notebook.page.locator(shown).wait_for()
            found = axe.Axe().run(notebook.page, context=shown).response["violations"]
            assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
        notebook.passed = True
