"""The lecture: its minutes are those of the guide, and its numbers are true."""

from __future__ import annotations

import html
import importlib.util
import math
import re
from pathlib import Path

import pytest
import torch

import flashlearn as fl
from flashlearn.cost import v1_cost, v2_cost
from flashlearn.exercises.questions import QUESTIONS
from tools.lecture import softmax, tiles
from tools.lecture.__main__ import sections
from tools.lecture.page import clock
from tools.lecture.slides import Poll, Slide, planned

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "notebooks" / "INSTRUCTORS.md").read_text(encoding="utf-8")


def by_notebook(length: int) -> dict[str, float]:
    total: dict[str, float] = {}
    for section, _, minutes in planned(sections(), length):
        total[section.notebook] = total.get(section.notebook, 0) + minutes
    return total


def slides() -> list[Slide]:
    return [slide for section in sections() for slide in section.slides]


def test_minutes_are_shared_out_as_the_guide_says():
    guide: dict[str, float] = {}
    for start, end, notebook in re.findall(r"^\| (\d+)–(\d+) \| (\d\d),", GUIDE, flags=re.MULTILINE):
        guide[notebook] = guide.get(notebook, 0) + int(end) - int(start)
    if importlib.util.find_spec("triton"):
        assert by_notebook(90) == guide and sum(guide.values()) == 90
    (line,) = re.findall(r"^If there are only 45 minutes: (.*)\.$", GUIDE, flags=re.MULTILINE)
    short = {name: int(minutes) for name, minutes in re.findall(r"(\d\d) \((\d+)\)", line)}
    assert by_notebook(45) == short and sum(short.values()) == 45


def test_the_numbers_of_softmax():
    assert [round(value, 4) for value in softmax.L] == [1.0, 1.3679, 1.1851, 1.2034]
    assert softmax.L[1] == pytest.approx(1 + math.exp(-1)) and softmax.wrong == pytest.approx(2 + math.exp(-1))
    assert f"{softmax.answer:.4f}" == f"{(torch.softmax(softmax.X, 0) @ softmax.X).item():.4f}" == "5.4329"
    for dtype, name in softmax.FORMATS.items():
        edge = softmax.EDGES[name]
        low, high = (torch.tensor(edge * by, dtype=torch.float64).to(dtype).exp() for by in (0.99, 1.01))
        assert low.isfinite() and high.isinf(), name
    assert softmax.e11 < softmax.e_max < math.exp(12), "e^11 fits into float16, e^12 does not"
    late = torch.full((4,), -2000.0)
    assert (torch.exp(late + 1000) / torch.exp(late + 1000).sum()).isnan().all(), "a maximum that starts at -1000"
    both = fl.merge((torch.tensor(5.0), torch.tensor(1.2)), (torch.tensor(3.0), torch.tensor(1.4)))
    assert f"{both[1].item():.4f}" == f"{1.2 + 1.4 * math.exp(-2):.4f}"


def test_the_right_choices_are_right():
    polls = {slide.title: slide.shows for slide in slides() if isinstance(slide.shows, Poll)}
    chosen = {title: poll.choices[poll.right][0] for title, poll in polls.items()}
    assert chosen["Where does exp overflow?"] == "11.1" and 11 < softmax.EDGES["float16"] < 11.1
    assert chosen["One pass for maximum and sum?"] == "1.1851"
    assert chosen["Two halves of a row"] == f"{1.2 + 1.4 * math.exp(-2):.4f}"
    assert chosen["Do the blocks fit?"] == "63"
    for poll in polls.values():
        assert poll.choices[poll.right][1].startswith("Right")
        assert sum(because.startswith("Right") for _, because in poll.choices) == 1


def test_bytes_of_the_tiles_are_their_formulas():
    for found, blocks, causal in (
        (tiles.SQUARE, (3, 3), True),
        (tiles.SINGLE, (1, 1), True),
        (tiles.NARROW, (1, 3), True),
        (tiles.FULL, (3, 3), False),
    ):
        options = {"block_q": blocks[0], "block_k": blocks[1], "causal": causal, "dtype": torch.float32}
        assert found == [cost(1, 1, 12, 12, tiles.D, **options).bytes for cost in (v1_cost, v2_cost)]
    assert tiles.SQUARE[1] < tiles.SQUARE[0] and tiles.NARROW[0] < tiles.NARROW[1]
    assert len(set(tiles.FLOPS.values())) == 1 and min(tiles.RACE, key=tiles.RACE.get) == "FlashAttention-2"
    assert tiles.NEED[tiles.PAPER] == 63 > tiles.M >= tiles.NEED[tiles.FITTING] == 54


def test_a_poll_asks_the_question_of_a_notebook():
    question = QUESTIONS["03.correction"]
    poll = Poll.of("03.correction")
    assert [html.unescape(text) for text, _ in poll.choices] == question.choices
    assert html.unescape(poll.choices[poll.right][0]) == question.right
    for (_, because), text in zip(poll.choices, question.choices, strict=True):
        beliefs = [wrong.believes for wrong in question.wrong if wrong.text == text] or [question.why]
        assert beliefs[0] in html.unescape(because)
    with pytest.raises(KeyError, match="99.none"):
        Poll.of("99.none")


@pytest.mark.parametrize(
    "choices, right, wrong",
    [
        ((("a", ""), ("b", "")), 0, "three to five choices, got 2"),
        ((("a", ""), ("b", ""), ("c", "")), 3, "one of 3, got 3"),
        ((("a", ""), ("a", ""), ("c", "")), 0, "choices that differ"),
    ],
)
def test_a_poll_that_is_none_is_rejected(choices, right, wrong):
    with pytest.raises(ValueError, match=wrong):
        Poll("?", choices, right)


def test_other_lengths_are_rejected():
    with pytest.raises(ValueError, match="expected a lecture of 90 or 45 minutes, got 60"):
        planned(sections(), 60)
    assert clock(1.5, 2.25) == "1:30–3:45"
