"""Pictures: every step of every softmax can be painted, and what is painted is what the step says."""

import io

import pytest
import torch
from PIL import Image

import flashlearn as fl
from flashlearn.algorithms.softmax import uncorrected_sum_steps
from flashlearn.core.signs import number
from flashlearn.show import picture, play
from flashlearn.show.draw import COLOURS, draw_row, draw_terms, draw_tree
from flashlearn.show.draw.style import MEANING, colour, tint
from flashlearn.show.frame import as_runs, at, count, transcript
from tests.drawing import sound
from tests.slow import across, every, slow

INF, NAN = float("inf"), float("nan")
X = torch.tensor([3.0, 2.0, 5.0, 1.0])


ROWS = {
    "worked": [3.0, 2.0, 5.0, 1.0],
    "negative": [-1.5, -2.0, -3.0],
    "one": [0.0],
    "infinities": [-INF, 1.0, INF, NAN],
    "all -inf": [-INF, -INF],
    "equal": [0.0, 0.0, 0.0],
    "huge": [1e30, -1e30, 1.0],
    "empty": [],
    "long": torch.linspace(-3, 3, 100).tolist(),
}


@pytest.mark.parametrize(
    "steps, row", across([fl.naive_softmax_steps, fl.safe_softmax_steps, fl.online_softmax_steps], ROWS)
)
def test_draw_row_takes_any_row(steps, row):
    run = fl.record(steps(torch.tensor(ROWS[row])))
    for step in run[:: max(1, len(run) // 4)] + run[-1:]:
        for narrow in (False, True):
            sound(draw_row(step, narrow=narrow), usual=row != "long")


@pytest.mark.parametrize("n", [4, 10, 11, 12, 13, 16])
def test_values_above_bars_do_not_overlap(n):
    """Of equal height, and as long as weights and logits come."""
    step = fl.record(fl.online_softmax_steps(torch.full((n,), -1.25)))[-1]
    for narrow in (False, True):
        scene = sound(draw_row(step, narrow=narrow))
        values = [item for item in scene.words() if item.id.endswith("-value")]
        assert len(values) <= (2 * n if n <= 12 else 0)
        assert narrow or len(values) == (2 * n if n <= 12 else 0)


@pytest.mark.parametrize("n", [0, 1, 5, 26, slow(64)])
def test_draw_tree_takes_any_row(n):
    for step in fl.record(fl.merge_tree_steps(torch.linspace(-1, 1, n), 4)):
        for narrow in (False, True):
            sound(draw_tree(step, narrow=narrow), apart=4)


def test_row_shows_the_numbers_of_the_step():
    steps = fl.record(fl.online_softmax_steps(X))
    scene = draw_row(steps[2])
    assert {"5", "1.1851", "3 →", "1.3679 →", "× e3−5 = 0.1353", "+ e5−5 = 1"} <= set(scene.texts())
    assert {"pass 1 of 2: maximum and sum", "read 12 B · written 0 B", "12 B"} <= set(scene.texts())
    assert "0.831" not in scene.texts() and "0.831" in draw_row(steps[6]).texts()
    unit = scene["before"].rect.w / 1.3679
    assert scene["kept"].rect.w == pytest.approx(1.3679 * 0.1353 * unit, rel=1e-3)
    assert scene["added"].rect.w == pytest.approx(unit, rel=1e-3)


def test_bars_are_as_high_as_their_values_and_look_as_they_were_read():
    scene = draw_row(fl.record(fl.online_softmax_steps(X))[2])
    bars = [scene[f"x{j}"] for j in range(4)]
    heights = [bar.rect.h for bar in bars]
    assert [height / heights[3] for height in heights] == pytest.approx(X.tolist())
    assert [(bar.look.face, bar.look.tone, bar.look.dashed) for bar in bars] == [
        ("S", "light", False),
        ("S", "light", False),
        ("S", "", False),
        ("", "", True),
    ]
    assert scene["m"].rings[0][0][1] == pytest.approx(bars[2].rect.y), "the line of the maximum touches its bar"
    assert draw_row(fl.record(fl.online_softmax_steps(torch.tensor([1.0, -INF])))[1])["x1"].look.hatched


def test_row_shows_a_wrong_algorithm_as_wrong():
    """The picture comes from the steps: a recording with another sum shows that sum."""
    from dataclasses import replace

    step = fl.record(fl.online_softmax_steps(X))[2]
    wrong = replace(step, values={**step.values, "l_i": torch.tensor([2.3679])})
    assert "2.3679" in draw_row(wrong).texts() and "1.1851" not in draw_row(wrong).texts()


def test_the_sum_without_its_correction_is_drawn_wrong_and_the_other_right():
    thread = torch.arange(1.0, 7.0)
    wrong, right = fl.record(uncorrected_sum_steps(thread)), fl.record(fl.online_softmax_steps(thread))[:6]
    assert wrong[-1].output[1].item() == 6 and right[-1].values["l_i"].item() == pytest.approx(1.5781, abs=1e-4)
    shown, other = draw_terms(wrong[3]).texts(), draw_terms(right[3]).texts()
    assert "too large by 2.447" in shown and "too large" not in " ".join(other) and "right" in other
    assert {"e1−1", "e2−2", "e4−4"} <= set(shown) and "e5−5" not in shown
    assert {"e1−4", "e2−4", "0.1353", "0.0498"} <= set(other)
    assert "1.553" in other and "1.553" not in shown


@pytest.mark.parametrize("row", every(2, [row for row in ROWS if row != "infinities"]))
def test_the_terms_of_any_row_can_be_drawn(row):
    for algorithm in (uncorrected_sum_steps, fl.online_softmax_steps):
        for step in fl.record(algorithm(torch.tensor(ROWS[row])))[:4]:
            for narrow in (False, True):
                sound(draw_terms(step, narrow=narrow))


@pytest.mark.parametrize("other", [INF, NAN])
def test_a_sum_that_is_no_number_is_not_called_right(other):
    run = fl.record(fl.online_softmax_steps(torch.tensor([1.0, other, 2.0])))
    assert "right" in draw_terms(run[0]).texts()
    for step in run[1:]:
        shown = draw_terms(step).texts()
        assert "ℓ is NaN" in shown and "right" not in shown
        assert "dashed: e^(x − m) of all that was read, NaN" in shown


def test_a_sum_without_rises_needs_no_correction():
    falling = torch.tensor([5.0, 3.0, 3.0])
    wrong, right = fl.run(uncorrected_sum_steps(falling)), fl.last(fl.online_softmax_steps(falling)).values
    assert torch.equal(wrong[1], right["l_i"]) and torch.equal(wrong[0], right["m_i"])


def test_tree_fills_in_as_it_goes():
    steps = fl.record(fl.merge_tree_steps(torch.arange(8.0), 2))
    filled = [sum(text.startswith("m ") for text in draw_tree(step).texts()) for step in steps]
    assert filled == [1, 2, 3, 4, 5, 6, 7, 7]


def test_one_meaning_per_colour():
    assert len(set(COLOURS.values())) == len(COLOURS) - 1, "only S and P share a colour: they share a place"
    assert COLOURS["S"] == COLOURS["P"]
    assert all(colour(name) in COLOURS.values() for name in MEANING)
    assert tint("Q", 0) == (1, 1, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: colour("nope"), "expected a name that has a colour, one of 'Q', 'K', .*, got 'nope'"),
        (lambda: colour(["Q"]), r"expected a name that has a colour, .*, got \['Q'\]"),
        (lambda: tint("nope", 0.5), "expected a name that has a colour, .*, got 'nope'"),
        *(
            (lambda strength=strength: tint("Q", strength), f"expected a strength from 0 to 1, got {strength}")
            for strength in (2, -0.1, NAN)
        ),
    ],
)
def test_what_has_no_colour(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.123456, "0.1235"),
        (-2.5, "−2.5"),
        (INF, "∞"),
        (-INF, "−∞"),
        (NAN, "NaN"),
        (1e-7, "1.0e−07"),
        (0.0, "0"),
        (-0.0, "0"),
        (-0.004, "−0.004"),
    ],
)
def test_number(value, text):
    assert number(value) == text
    assert number(-0.04, 1) == "0", "no minus before a zero"


@pytest.fixture(scope="module")
def shown():
    """One animation for several tests: the third step is its still."""
    return play(fl.online_softmax_steps(X), draw_row, alt="four bars", still=2)


def test_animation_has_a_frame_per_step(shown):
    steps = list(fl.online_softmax_steps(X))
    image = Image.open(io.BytesIO(shown.png))
    assert image.is_animated and image.n_frames == len(steps) + 1  # and the still before them
    assert image.size == shown.size
    width, height = image.size
    data, metadata = shown._repr_mimebundle_()
    assert set(data) >= {"image/png", "text/plain"}  # and the live player
    assert shown.run["delays"] == [1200, 1200, 2400, *[1200] * 5, 3600]  # 5 is a new maximum
    assert metadata["image/png"] == {"alt": "four bars", "width": width, "height": height}
    assert data["text/plain"] == "[animation, 9 steps] four bars"
    assert [line.split(" · ")[1] for line in shown.transcript] == [step.sentence for step in steps]


@pytest.mark.slow
def test_animation_is_the_same_every_time():
    one, other = (play(fl.safe_softmax_steps(X[:2]), draw_row, alt="a").png for _ in range(2))
    assert one == other


def test_runs_side_by_side_wait_for_the_longest():
    runs = as_runs({"safe": fl.safe_softmax_steps(X), "online": fl.online_softmax_steps(X)})
    assert count(runs) == 13
    assert at(runs, 12)["online"].number == 8 and at(runs, 12)["safe"].number == 12
    assert transcript(runs, 12).split("\n")[1].startswith("online: Step 9 of 9 · Done")


def test_picture():
    shown = picture(lambda ax: ax.plot([1, 2]), alt="a rising line", figsize=(6, 4))
    image = Image.open(io.BytesIO(shown.png))
    assert image.size == (600, 400) and not getattr(image, "is_animated", False)
    assert repr(shown) == "[picture] a rising line"
