"""`play`, driven from Python: what is stored, what the browser is sent, and when frames are painted."""

import asyncio
import base64
import gc
import io
import json
import math
import sys
import time
import types
import weakref
import xml.etree.ElementTree as ET
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from traitlets import TraitError

import flashlearn as fl
from flashlearn.exercises import predict, predicting
from flashlearn.show import Player, animation, bundle, frame, kernel, picture, play, player
from flashlearn.show.draw import draw_row
from flashlearn.show.draw.scene import Scene
from flashlearn.show.film import frames
from flashlearn.show.frame import as_runs, paint, rescales
from flashlearn.show.panels import GAP, TITLE
from flashlearn.show.player import page_run

X = torch.tensor([3.0, 2.0, 5.0, 1.0])


def steps():
    return fl.record(fl.online_softmax_steps(X))


def dots(ax, step):
    """Quick to paint, and another picture at every step."""
    ax.set_axis_off()
    ax.set(xlim=(-1, 50), ylim=(-1, 50))
    ax.scatter(step.number % 50, step.number // 50)


def many(count):
    return [fl.Step(sentence=f"Dot {number}") for number in range(count)]


@pytest.fixture(autouse=True)
def without_the_loop_of_another_test():
    """The browser tests of this process leave a loop running; these here are of a process that has none."""
    running = asyncio.events._get_running_loop()
    asyncio.events._set_running_loop(None)
    yield
    asyncio.events._set_running_loop(running)


@pytest.fixture
def sent(monkeypatch):
    """What players send, as (content, buffers)."""
    messages = []
    monkeypatch.setattr(Player, "send", lambda self, content, buffers=None: messages.append((content, buffers)))
    return messages


@pytest.fixture
def still_only():
    animation.reduced_motion()
    yield
    animation.reduced_motion(False)


@pytest.fixture
def painted(monkeypatch):
    """The numbers of the frames that were painted, in order."""
    numbers, drawn = [], frame.drawn

    def noted(runs, number, *args, **how):
        numbers.append(number)
        return drawn(runs, number, *args, **how)

    monkeypatch.setattr(frame, "drawn", noted)
    return numbers


def plain(step, *, narrow=False):
    """A scene that has another bar at every step, and its number."""
    scene = Scene(120 if narrow else 200, 100)
    scene.rect((10, 40, 5 * step.number + 5, 20), "K", id="bar")
    scene.text(10, 20, step.number)
    return scene


def made(shown, number):
    """A frame that a player sent, as an image."""
    return Image.open(io.BytesIO(base64.b64decode(shown.removeprefix("data:image/png;base64,"))))


def test_a_short_run_is_painted_once_for_both_forms(painted):
    shown = play(many(9), dots, alt="dots", figsize=(2, 1), still=2)
    assert painted == [0, *range(1, 9)] and len(frames(shown.png)) == 9
    assert shown.run["size"] == [200, 100] == list(shown.size) and "narrow" not in shown.run
    for number in (0, 5):
        assert np.array_equal(made(shown._made(number), number), frames(shown.png)[number])
    assert len(painted) == 9


def test_a_scene_comes_as_svg_and_is_stored_as_pixels(painted):
    shown = play(many(9), plain, alt="a bar", figsize=(3, 3))
    assert shown.run["frames"] == [[plain(shown.runs[""][0], narrow=n).svg(key="scene") for n in (False, True)]]
    assert (shown.run["size"], shown.run["narrow"]) == ([202, 102], [122, 102])
    assert len(frames(shown.png)) == 9 and shown.size[0] == 2 * shown.size[1], "as wide as it is, for its height"
    assert painted == list(range(9))


def test_a_changed_caption_changes_no_picture():
    for draw in (plain, dots):
        one, other = (
            play([fl.Step(sentence=text) for _ in range(4)], draw, alt="a", figsize=(2, 1)).png
            for text in ("The maximum rises.", "A much longer sentence. " * 20)
        )
        assert one == other


def test_runs_side_by_side_have_their_scenes_side_by_side_or_one_above_the_other():
    shown = play({"one": many(2), "other & more": many(5)}, plain, alt="two bars")
    (wide, narrow), run = shown.run["frames"][0], shown.run
    assert run["size"] == [120 + GAP + 120, TITLE + 100] and run["narrow"] == [120, 2 * (TITLE + 100) + GAP]
    for svg, size in ((wide, run["size"]), (narrow, run["narrow"])):
        root = ET.fromstring(svg)
        assert root.get("viewBox") == f"0 0 {size[0]} {size[1]}"
        assert [each.get("data-panel") for each in root.iter() if each.get("data-panel")] == ["0", "1"]
        assert "other &amp; more" in svg
    assert shown._made(4)[0].count(">1<") == 1, "a run that is over stays at its last step"


def test_a_packed_run_has_every_line_once():
    run = page_run(many(9), plain, alt="a bar")
    lines, wide, narrow = (run["scenes"][name] for name in ("lines", "wide", "narrow"))
    shown = play(many(9), plain, alt="a bar")
    for number in range(9):
        for layout, svg in zip((wide, narrow), shown._made(number), strict=True):
            numbers = [tuple(map(int, each.split("-"))) for each in layout[number].split()]
            assert "".join("".join(lines[n[0] : n[-1] + 1]) for n in numbers) == svg
    assert len(set(lines)) == len(lines)
    assert len(json.dumps(run["scenes"])) < 0.6 * sum(len(svg) for number in range(9) for svg in shown._made(number))
    assert page_run(many(3), dots, alt="dots").keys() == run.keys() - {"scenes", "narrow"}


def test_beside_the_picture_are_its_words(monkeypatch):
    outputs = []
    monkeypatch.setattr(bundle, "display", lambda data, metadata, raw: outputs.append((data, metadata)))
    play(many(3), dots, alt="three <dots>", figsize=(2, 1))._ipython_display_()
    (data, about), (words, mark) = outputs
    assert "image/png" in data and about["image/png"]["alt"] == "three <dots>"
    assert set(words) == {"text/html"} and mark == {"flashlearn": "words"}
    assert words["text/html"].count("Dot ") == 3 and "three &lt;dots&gt;" in words["text/html"]


def test_colab_is_told_where_the_script_for_custom_widgets_is(monkeypatch):
    """By metadata beside the data, of a player, of a picture and of questions; nobody else is told."""
    view, asked = "application/vnd.jupyter.widget-view+json", []
    colab = types.ModuleType("google.colab.output")
    colab.enable_custom_widget_manager = lambda: asked.append("enabled")
    colab._widgets = types.SimpleNamespace(_installed_url="https://some.where/manager.js")

    def shown():
        published = []
        monkeypatch.setattr(animation, "display", lambda data, metadata, raw: published.append((data, metadata)))
        picture(lambda ax: ax.plot([1, 2]), alt="a line")._ipython_display_()
        return [
            play(steps(), dots, alt="dots", figsize=(2, 1))._repr_mimebundle_(),
            predict("03.wrong")._repr_mimebundle_(),
            *published,
        ]

    monkeypatch.setattr(predicting, "has_kernel", lambda: True)
    elsewhere = shown()
    monkeypatch.setitem(sys.modules, "google.colab.output", colab)
    there = shown()
    assert len(there) == 3 and asked
    for (data, about), (_, plain) in zip(there, elsewhere, strict=True):
        assert view in data and about[view] == {
            "colab": {"custom_widget_manager": {"url": colab._widgets._installed_url}}
        }
        assert view not in plain and set(about) == {view, *plain}


def test_steps_that_rescale_stand_longer():
    run = steps()
    assert [n for n, step in enumerate(run) if rescales(step)] == [2]
    assert play(run, dots, alt="dots", seconds=0.5, figsize=(2, 1)).run["delays"] == [500, 500, 1000, *[500] * 5, 1500]
    infinite = fl.record(fl.online_softmax_steps(torch.tensor([-torch.inf, 1.0, 0.5])))
    assert not any(map(rescales, infinite)), "a first maximum scales nothing"


def test_a_long_run_is_painted_when_it_is_asked_for(painted, sent):
    shown = play(many(1000), dots, alt="dots", figsize=(2, 1), still=500)
    assert painted == [0, 500] and len(frames(shown.png)) == 1
    for number in (7, 7, 0):
        shown._receive(shown, {"wanted": number, "version": 0}, [])
    assert [content["frame"] for content, _ in sent] == [7, 0]
    assert made(sent[0][0]["picture"], 7).size == (200, 100)


def test_a_run_of_25_steps_is_stored_as_its_still(painted):
    assert len(frames(play(many(24), dots, alt="dots", figsize=(2, 1)).png)) == 24
    painted.clear()
    assert len(frames(play(many(25), dots, alt="dots", figsize=(2, 1)).png)) == 1 and sorted(painted) == [0, 24]


@pytest.mark.slow
def test_a_long_run_is_stored_whole_where_that_is_asked_for(monkeypatch):
    monkeypatch.setenv("FLASHLEARN_ALL_FRAMES", "1")
    shown = play(many(60), dots, alt="dots", figsize=(2, 1))
    assert len(frames(shown.png)) == 60 and shown.size == (200, 100)


@pytest.mark.slow  # 128 frames
def test_128_steps_are_stored_in_less_than_500_kb(monkeypatch):
    from flashlearn.show.draw import draw_tree

    monkeypatch.setenv("FLASHLEARN_ALL_FRAMES", "1")
    logits = torch.randn(256, generator=torch.Generator().manual_seed(3))
    shown = play(fl.merge_tree_steps(logits, 4), draw_tree, alt="a tree", seconds=0.4)
    assert len(frames(shown.png)) == 128 and len(shown.png) < 500_000


def test_without_motion_the_still_and_the_first_are_painted(still_only, painted):
    shown = play(many(9), dots, alt="dots", figsize=(2, 1), still=3)
    assert sorted(painted) == [0, 3] and len(frames(shown.png)) == 1 and shown.run["motion"] is False


class Kernel:
    """Runs a player on a loop, as a kernel does, until it has sent so many frames."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(player, "kernel_loop", asyncio.get_running_loop)
        monkeypatch.setattr(kernel, "QUIET", 0.05)

    async def until(self, sent, count):
        end = time.monotonic() + 20
        while len(sent) < count and time.monotonic() < end:
            await asyncio.sleep(0.01)
        return [content.get("frame") for content, _ in sent]


def test_frames_are_painted_ahead_while_somebody_looks_and_no_cell_runs(monkeypatch, sent, still_only):
    async def look():
        browser = Kernel(monkeypatch)
        shown = play(many(100), dots, alt="dots", figsize=(2, 1))
        await asyncio.sleep(0.2)
        assert sent == [], "nobody has looked"
        monkeypatch.setattr(kernel._Cells, "last", time.monotonic() + 0.5)  # a cell runs until then
        shown._receive(shown, {"here": True}, [])
        await asyncio.sleep(0.3)
        assert sent == [], "a cell was running"
        assert await browser.until(sent, player.AHEAD) == list(range(player.AHEAD))
        shown.step = 70
        ahead = (await browser.until(sent, 64 + 8))[: 64 + 8]
        assert ahead[64:] == [70, 71, 72, 69, 73, 74, 75, 68], "around the step that is shown, most of them after it"
        shown._receive(shown, {"gone": True}, [])
        before = len(sent)
        await asyncio.sleep(0.2)
        assert len(sent) - before <= 1

    asyncio.run(look())


def test_a_frame_is_painted_once_however_often_it_is_asked_for(monkeypatch, sent, still_only):
    """The browser says that the step changed, and that it wants its frame: whichever comes first has it painted."""

    async def look():
        browser = Kernel(monkeypatch)
        shown = play(many(200), dots, alt="dots", figsize=(2, 1))
        shown._receive(shown, {"here": True}, [])
        await browser.until(sent, 1)
        shown.step = 150
        for _ in range(3):
            shown._receive(shown, {"wanted": 150, "version": 0}, [])
        numbers = await browser.until(sent, 30)
        assert numbers.count(150) == 1 and len(set(numbers)) == len(numbers)
        shown._receive(shown, {"here": True}, [])  # another view has none
        shown._receive(shown, {"wanted": 150, "version": 0}, [])
        assert (await browser.until(sent, len(sent) + 10)).count(150) == 2
        shown._receive(shown, {"gone": True}, [])
        shown._receive(shown, {"gone": True}, [])

    asyncio.run(look())


def wanted_while(monkeypatch, sent, at, act, count):
    """What is sent first of 200 frames, the player's only view doing `act(player)` while frame `at` is drawn."""

    def draw(ax, step):
        dots(ax, step)
        if step.number == at and done:
            done.pop()(shown)

    async def look():
        nonlocal shown
        browser = Kernel(monkeypatch)
        shown = play(many(200), draw, alt="dots", figsize=(2, 1), still=0)
        done.append(act)
        shown._receive(shown, {"here": True}, [])
        await browser.until(sent, count)
        shown._receive(shown, {"gone": True}, [])
        return [(content["version"], content["frame"]) for content, _ in sent[:count]]

    shown, done = None, []
    return asyncio.run(look())


def wants(*numbers):
    """The act of asking for these frames, one right after the other."""
    return lambda shown: [shown._receive(shown, {"wanted": each, "version": 0}, []) for each in numbers]


def test_a_frame_that_is_asked_for_comes_before_those_ahead(monkeypatch, sent, still_only):
    first = wanted_while(monkeypatch, sent, 2, wants(50), 6)
    assert first == [(0, 0), (0, 1), (0, 2), (0, 50), (0, 3), (0, 4)]


def test_of_frames_asked_for_one_after_the_other_the_last_is_painted(monkeypatch, sent, painted, still_only):
    """A key that is held down asks for more frames than can be painted."""
    assert wanted_while(monkeypatch, sent, 2, wants(50, 60, 70), 4)[3:] == [(0, 70)]
    assert not {50, 60} & set(painted)


def test_in_jupyterlab_the_animation_is_painted_once_the_kernel_is_idle(monkeypatch, sent, painted):
    """The cell paints the first frame and the still; browser/saved.js stores `film` once it is there."""

    async def look():
        Kernel(monkeypatch)
        monkeypatch.setattr(player, "on_server", lambda: True)
        monkeypatch.setattr(bundle, "display", lambda data, metadata, raw: outputs.append(data))
        shown = play(many(9), dots, alt="dots", figsize=(2, 1))
        shown._ipython_display_()
        assert painted == [0, 8] and shown.film == b""
        end = time.monotonic() + 20
        while not shown.film and time.monotonic() < end:
            await asyncio.sleep(0.01)
        still = Image.open(io.BytesIO(base64.b64decode(outputs[0]["image/png"])))
        assert np.array_equal(still, frames(shown.film)[8]) and len(frames(shown.film)) == 9 == len(painted)
        assert shown.png == shown.film == play(many(9), dots, alt="dots", figsize=(2, 1)).picture.png

    outputs = []
    asyncio.run(look())


@pytest.mark.parametrize("ahead", [False, True])
def test_no_collection_of_all_objects_falls_into_a_frame(monkeypatch, sent, still_only, ahead):
    """Of the figures of fifteen frames nothing is left to grow old: there is no reason for one."""
    seen, figures = [], []

    def draw(ax, step):
        seen.append(gc.isenabled())
        figures.append(weakref.ref(ax.figure))
        draw_row(run[step.number % len(run)]).axes(ax)

    async def look():
        browser = Kernel(monkeypatch)
        shown = play(many(15), draw, alt="bars", figsize=(6.4, 2.5), still=0)
        gc.collect()
        gc.callbacks.append(note)
        if ahead:
            shown._receive(shown, {"here": True}, [])
            await browser.until(sent, 15)
            shown._receive(shown, {"gone": True}, [])
        else:
            for number in range(15):
                paint(shown.runs, number, draw, (6.4, 2.5))

    def note(phase, of):
        collected.append(of["generation"])

    run, collected = steps(), []
    try:
        asyncio.run(look())
    finally:
        gc.callbacks.remove(note)
    assert len(seen) >= 15 and not any(seen) and gc.isenabled()
    assert 2 not in collected and collected.count(1) >= 15
    assert sum(figure() is not None for figure in figures) <= 1


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        paint(as_runs(steps()), 0, draw_row, (6.4, 2.5))
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(ZeroDivisionError):
        paint(as_runs(steps()), 0, lambda ax, step: 1 / 0, (6.4, 2.5))
    assert gc.isenabled()


def test_a_frame_that_cannot_be_painted_is_spoken_of(monkeypatch, sent, still_only):
    def fails_later(ax, step):
        return dots(ax, step) if step.number < 2 else 1 / 0

    async def look():
        browser = Kernel(monkeypatch)
        shown = play(many(3), fails_later, alt="dots", figsize=(2, 1), still=0)
        shown._receive(shown, {"wanted": 2, "version": 0}, [])
        await browser.until(sent, 1)
        assert sent[0][0]["failed"] == "A frame cannot be painted: ZeroDivisionError: division by zero"

    asyncio.run(look())


def test_show_loads_another_run_and_one_that_fails_changes_nothing(sent):
    shown = play(steps(), draw_row, alt="bars", figsize=(6.4, 2.5))
    shown.step = 5
    shown.show(fl.naive_softmax_steps(torch.tensor([1.0, 2.0])))
    assert (shown.step, shown.version, len(shown.run["captions"])) == (0, 1, 5)
    before = shown.run
    with pytest.raises(TypeError, match="each a flashlearn.Step"):
        shown.show([1])
    with pytest.raises(ValueError, match="expected"):
        shown.show([fl.Step(sentence="another picture's step")])
    assert shown.run == before and shown.version == 1
    shown._receive(shown, {"wanted": 1, "version": 0}, [])
    assert sent == [], "what is wanted of the run before is not painted any more"


def test_after_show_the_new_run_is_stored(tmp_path, painted):
    asked = {2: "What becomes of the sum?"}
    shown = play(steps(), dots, alt="online", figsize=(2, 1), predict=asked, still=7)
    online, before = shown.png, len(painted)
    shown.show(many(5))
    assert len(painted) == before + 1, "the rest is painted when somebody wants the stored form"
    assert shown.png != online and len(frames(shown.png)) == 5
    shown.save(tmp_path / "dots.png")
    assert (tmp_path / "dots.png").read_bytes() == shown.png == play(many(5), dots, alt="a", figsize=(2, 1)).png
    assert shown.in_words().count("Dot ") == len(shown.picture.steps) == 5


def test_show_keeps_predict_first_and_takes_another_alt(still_only):
    shown = play(steps(), dots, alt="online", figsize=(2, 1), predict={2: "What becomes of the sum?"})
    shown.show(many(5))
    assert (shown.run["predict"], shown.run["questions"]) == (True, {}), "the questions were about the other run"
    assert shown.alt == shown.run["alt"] == shown.picture.alt == "online"
    with pytest.raises(ValueError, match="expected alt text that says"):
        shown.show(many(3), alt=" ")
    assert len(shown.transcript) == 5
    shown.show(many(3), alt="dots")
    assert shown.run["alt"] == shown.picture.alt == "dots" and repr(shown) == "[animation, 3 steps] dots"


@pytest.mark.slow
def test_projected_frames_are_painted_anew_and_back_again_but_scenes_are_sharp(sent, capsys):
    shown, scene = play(many(3), dots, alt="dots", figsize=(6.4, 2.5)), play(many(3), plain, alt="a bar")
    first = shown.run["frames"]
    fl.projector()
    try:
        assert shown.version == 1 and scene.version == 0
        shown._receive(shown, {"wanted": 1, "version": 1}, [])
        assert made(sent[0][0]["picture"], 1).size == (960, 375)
    finally:
        fl.projector(False)
    assert shown.run["frames"] == first and shown.version == 2


def test_a_player_that_fails_leaves_the_projector_alone(monkeypatch, capsys):
    def fails(ax, step):
        raise ZeroDivisionError("no such picture")

    monkeypatch.setattr(Player, "all", weakref.WeakSet())  # those of other tests would all be painted
    one = play(steps(), dots, alt="dots", figsize=(2, 1))
    there = {one}
    with pytest.raises(ZeroDivisionError) as kept:  # its traceback keeps what was half made, as a notebook's does
        play(steps(), fails, alt="a")
    assert set(Player.all) == there and kept.value.__traceback__
    fl.projector()
    fl.projector(False)


# --- what it takes ---------------------------------------------------------------------------------------------


SIZES = [(0, 0), (1e-9, 1e-9), (0.99, 5), (5, -1), (5,), 5, (float("nan"), 5), ("5", "5"), (True, 5), (101, 5), {5, 4}]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            lambda: play(draw_row, steps(), alt="a"),
            TypeError,
            r"function draw\(step\) or draw\(ax, step\), got list; .* swapped",
        ),
        (lambda: play(draw_row, draw_row, alt="a"), TypeError, "expected steps, got the function draw_row"),
        (lambda: play(fl.online_softmax_steps, draw_row, alt="a"), TypeError, "online_softmax_steps: call it"),
        (lambda: play([1], draw_row, alt="a"), TypeError, "each a flashlearn.Step, got int among them: 1"),
        (lambda: play(3, draw_row, alt="a"), TypeError, "expected an iterable of steps, got int"),
        (lambda: play({"x": [X]}, draw_row, alt="a"), TypeError, "each a flashlearn.Step, got Tensor"),
        (lambda: play(iter(()), draw_row, alt="a"), ValueError, "expected at least one step, got none"),
        (lambda: play({}, draw_row, alt="a"), ValueError, "expected at least one run of steps"),
        (lambda: play(steps(), lambda: None, alt="a"), TypeError, r"or draw\(ax, step\), got <lambda>\(\)"),
        (lambda: play(steps(), lambda ax: None, alt="a"), TypeError, r"to return a Scene, got NoneType"),
    ],
)
def test_what_cannot_be_played(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()


NUMBERS = {
    "alt": (ValueError, "expected alt text that says", [" "]),
    "figsize": (ValueError, r"expected figsize \(width, height\) in inches, from 1 to 100, got", SIZES),
    "still": (ValueError, "still to be the number of a frame, from -9 to 8, got", [99, 9, -10, 1.0, True, None]),
    "seconds": (ValueError, "expected seconds from 0.001 to 60, got", [0, 1e-9, -1, math.nan, math.inf, 61, "1", True]),
    "predict": (
        (ValueError, TypeError),
        r"expected (questions \{step from 1 to 8: text\}|predict to be True, False or)",
        [{9: "What?"}, {0: "What?"}, {-1: "What?"}, {1: " "}, {1: 2}, {"1": "What?"}, 1],
    ),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in NUMBERS for value in NUMBERS[name][2]])
def test_options_that_are_none(name, value):
    error, message, _ = NUMBERS[name]
    with pytest.raises(error, match=message):
        play(steps(), draw_row, **{"alt": "a", name: value})


def test_a_size_is_read_more_than_once():
    for show in (play, lambda steps, draw, **options: picture(print, **options)):
        with pytest.raises(ValueError, match="expected figsize .*, got <tuple_iterator"):
            show(steps(), draw_row, alt="a", figsize=iter((5, 4)))


def test_the_smallest_there_is():
    shown = play({title: steps() for title in "ab"}, dots, alt="a", figsize=(1, 1), seconds=0.001)
    assert shown.run["size"] == [100, 145] and min(shown.run["delays"]) == 1


@pytest.mark.parametrize("step", [9, 99, -1, True])
def test_a_step_that_there_is_not(step):
    shown = play(many(9), dots, alt="a", figsize=(2, 1))
    shown.step = 8
    with pytest.raises(TraitError, match=f"expected step from 0 to 8, got {step}"):
        shown.step = step
    with pytest.raises(TraitError):
        shown.set_state({"step": 99})  # as a browser does
    assert shown.step == 8
    shown.show(many(3))
    assert shown.step == 0
    with pytest.raises(TraitError, match="expected step from 0 to 2, got 3"):
        shown.step = 3


def test_draw_may_take_more_and_need_not_say_what():
    for draw in (lambda ax, step, more=1: dots(ax, step), lambda *what: dots(*what), partial(dots)):
        assert len(play(many(2), draw, alt="a", figsize=(2, 1)).transcript) == 2


def test_the_first_and_the_last_still_exist():
    first, last = (play(many(2), dots, alt="a", figsize=(2, 1), still=still).png for still in (-2, 1))
    assert first != last and last == play(many(2), dots, alt="a", figsize=(2, 1)).png


def test_numbers_of_numpy_are_numbers():
    sizes = tuple(np.array([2.0, 1.0]))
    shown = play(many(2), dots, alt="a", figsize=sizes, seconds=np.float32(0.5), still=np.int64(1))
    assert shown.run["size"] == [200, 100] and shown.run["delays"] == [500, 1500]
