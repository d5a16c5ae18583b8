"""The lecture: its slides are read from Markdown, its minutes are those of the guide, and its numbers are true."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path

import pytest
import torch

import flashlearn as fl
from flashlearn.cost import v1_cost, v2_cost
from flashlearn.exercises.questions import QUESTIONS
from flashlearn.show.frame import as_runs, count, rescales
from tools.lecture import runs
from tools.lecture.__main__ import SLIDES
from tools.lecture.page import chosen, clock, paper
from tools.lecture.runs import NUMBERS, PLOTS, RUNS
from tools.lecture.slides import Choice, Poll, Slide, planned, read

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "notebooks" / "INSTRUCTORS.md").read_text(encoding="utf-8")
LECTURE = read(SLIDES, NUMBERS)


def by_notebook(length: str) -> dict[str, float]:
    total: dict[str, float] = {}
    for each in planned(LECTURE, length):
        if each.minutes:
            total[each.slide.notebook] = total.get(each.slide.notebook, 0) + each.minutes
    return total


def written(tmp_path: Path, text: str, name: str = "03_online_softmax.md") -> list[Slide]:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read(tmp_path, NUMBERS)


def test_minutes_are_shared_out_as_the_guide_says():
    guide: dict[str, float] = {}
    for start, end, notebook in re.findall(r"^\| (\d+)–(\d+) \| (\d\d),", GUIDE, flags=re.MULTILINE):
        guide[notebook] = guide.get(notebook, 0) + int(end) - int(start)
    if importlib.util.find_spec("triton"):
        assert by_notebook("90") == guide and sum(guide.values()) == 90
    (line,) = re.findall(r"^If there are only 45 minutes: (.*)\.$", GUIDE, flags=re.MULTILINE)
    short = {name: int(minutes) for name, minutes in re.findall(r"(\d\d) \((\d+)\)", line)}
    assert by_notebook("45") == short and sum(short.values()) == 45


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="slides of the kernel need Triton")
def test_both_halves_take_45_minutes():
    plan = planned(LECTURE, "2x45")
    (at,) = (place for place, each in enumerate(plan) if each.slide.title == "Break")
    assert sum(each.minutes for each in plan[:at]) == sum(each.minutes for each in plan[at:]) == 45
    assert not any(each.slide.only for length in ("90", "45") for each in planned(LECTURE, length))


def test_what_slides_show_is_there():
    assert {slide.run for slide in LECTURE} - {""} <= set(RUNS) and {slide.plot for slide in LECTURE} - {""} <= set(
        PLOTS
    )
    assert all(slide.notes for slide in LECTURE if slide.minutes)
    assert "{{" not in "".join(slide.text + slide.notes for slide in LECTURE[1:])


# --- the format ---


def test_a_slide_is_read_from_markdown(tmp_path):
    (one, two) = written(
        tmp_path,
        "# One\nminutes: 8, 7\nrun: tiles\nsteps: 1, 3, 5-7\nstill: 2\nask 3: What becomes of ℓ?\n\n"
        "ℓ is {{l_2}}.\n\nNote:\nSay it.\n\n# Two\n\nOnly text.\n",
    )
    assert (one.notebook, one.title, one.minutes, one.run) == ("03", "One", (8, 7), "tiles")
    assert (one.steps, one.still, one.asks) == ((0, 2, 4, 5, 6), 1, {2: "What becomes of ℓ?"})
    assert (one.text, one.notes) == (f"ℓ is {runs.L[1]:.4f}.", "Say it.")
    assert (two.minutes, two.text, two.notes) == (None, "Only text.", "")
    assert [each.slide.title for each in planned([one, two], "45")] == ["One", "Two"], "without minutes it is in both"


def test_a_poll_is_a_list(tmp_path):
    text = "# A\npoll: Why?\n\nBefore.\n\n- one :: because 1\n- [x] two :: because 2\n- three :: because 3\n\nAfter.\n"
    (slide,) = written(tmp_path, text)
    assert slide.poll.right == 1 and slide.poll.choices[1] == Choice("two", "because 2")
    assert "Before." in slide.text and "After." in slide.text and "one" not in slide.text


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("# A\nminute: 3, 3\n\n", "ask N in 03_online_softmax.md, 'A', got 'minute: 3, 3'"),
        ("# A\nrun: tiles\nplot: roofline\n\n", "at most one of run, plot, explorer, question, poll in 03"),
        ("# A\n\n{{none}}\n", "in 03_online_softmax.md, got {{none}}"),
        ("# A\npoll: ?\n\n- a :: b\n- c :: d\n- e :: f\n", "one right choice, marked"),
        ("# A\npoll: ?\n\n- [x] a :: b\n- c :: d\n", "three to five choices, got 2"),
        ("# A\npoll: ?\n\n- [x] a :: b\n- a :: d\n- c :: e\n", "choices that differ"),
    ],
)
def test_a_slide_that_is_none_is_rejected(tmp_path, text, wrong):
    with pytest.raises(ValueError, match=re.escape(wrong)):
        written(tmp_path, text)


def test_an_empty_folder_and_other_lengths_are_rejected(tmp_path):
    with pytest.raises(ValueError, match="expected slides in files like"):
        read(tmp_path, {})
    with pytest.raises(ValueError, match="expected a lecture of 90, 45, 2x45 minutes, got 60"):
        planned(LECTURE, "60")
    assert clock(1.5, 2.25) == "1:30–3:45"


def test_what_is_not_installed_is_left_out(tmp_path):
    assert [slide.title for slide in written(tmp_path, "# A\nneeds: nothing_of_that_name\n\n# B\n\n")] == ["B"]


# --- chosen steps ---


@pytest.mark.parametrize("name", [name for name in RUNS if name != "kernel"])
def test_a_run_stops_at_about_eight_steps(name):
    run = as_runs(RUNS[name].steps())
    stops = chosen(run, Slide("07", name, None, "", ""))
    assert stops[0] == 0 and stops[-1] == count(run) - 1 and stops == sorted(set(stops))
    assert len(stops) == count(run) if count(run) <= 9 else len(stops) == 8
    if count(run) > 9 and name != "merge_tree":
        rising = {step.number for steps in run.values() for step in steps if rescales(step)}
        assert not rising or rising & set(stops[1:]), "a rescaling is among them"


@pytest.mark.parametrize(("size", "printed"), [((880, 330), [0, 1, 2, 4, 6, 8, 9, 11]), ((736, 534), [0, 2, 8, 11])])
def test_of_tall_pictures_four_are_printed(size, printed):
    stops = [0, 1, 2, 4, 6, 8, 9, 11]
    assert paper(stops, size) == printed and paper(stops[:2], (736, 534)) == [0, 1]


def test_steps_of_a_slide_and_questions_are_kept():
    run = as_runs(RUNS["tiles"].steps())
    slide = Slide("07", "tiles", None, "", "", steps=(0, 11), asks={6: "?"})
    assert chosen(run, slide) == [0, 5, 6, 11], "what is asked about, and the step before"
    with pytest.raises(ValueError, match="expected steps from 1 to 12 for 'tiles', got 13"):
        chosen(run, Slide("07", "tiles", None, "", "", steps=(0, 12)))


# --- numbers ---


def test_the_numbers_of_softmax():
    assert [round(value, 4) for value in runs.L] == [1.0, 1.3679, 1.1851, 1.2034]
    assert runs.L[1] == pytest.approx(1 + math.exp(-1)) and runs.NOT_RESCALED == pytest.approx(2 + math.exp(-1))
    assert f"{runs.ANSWER:.4f}" == f"{(torch.softmax(runs.X, 0) @ runs.X).item():.4f}" == "5.4329"
    for dtype, name in runs.FORMATS.items():
        edge = runs.EDGES[name]
        low, high = (torch.tensor(edge * by, dtype=torch.float64).to(dtype).exp() for by in (0.99, 1.01))
        assert low.isfinite() and high.isinf(), name
    assert runs.E11 < torch.finfo(torch.float16).max < math.exp(12), "e^11 fits into float16, e^12 does not"
    late = torch.full((4,), -2000.0)
    assert (torch.exp(late + 1000) / torch.exp(late + 1000).sum()).isnan().all(), "a maximum that starts at -1000"
    both = fl.merge((torch.tensor(5.0), torch.tensor(1.2)), (torch.tensor(3.0), torch.tensor(1.4)))
    assert f"{both[1].item():.4f}" == NUMBERS["merged"]


def test_the_right_choices_are_right():
    polls = {slide.title: slide.poll for slide in LECTURE if slide.poll}
    right = {title: poll.choices[poll.right].text for title, poll in polls.items()}
    assert right["Where does exp overflow?"] == "11.1" and 11 < runs.EDGES["float16"] < 11.1
    assert right["One pass for maximum and sum?"] == "1.1851"
    assert right["Two halves of a row"] == f"{1.2 + 1.4 * math.exp(-2):.4f}"
    assert right["Do the blocks fit?"] == "63"
    for poll in polls.values():
        said = [choice.because.startswith("Right") for choice in poll.choices]
        assert said.index(True) == poll.right and sum(said) == 1


def test_bytes_of_the_tiles_are_their_formulas():
    for found, blocks, causal in (
        (runs.SQUARE, (3, 3), True),
        (runs.SINGLE, (1, 1), True),
        (runs.NARROW, (1, 3), True),
        (runs.FULL, (3, 3), False),
    ):
        options = {"block_q": blocks[0], "block_k": blocks[1], "causal": causal, "dtype": torch.float32}
        assert found == [cost(1, 1, 12, 12, runs.D, **options).bytes for cost in (v1_cost, v2_cost)]
    assert runs.SQUARE[1] < runs.SQUARE[0] and runs.NARROW[0] < runs.NARROW[1]
    assert len(set(runs.FLOPS.values())) == 1 and min(runs.RACE, key=runs.RACE.get) == "FlashAttention-2"
    assert runs.NEED[runs.PAPER] == 63 > runs.M >= runs.NEED[runs.FITTING] == 54


def test_a_poll_asks_the_question_of_a_notebook():
    question = QUESTIONS["03.wrong"]
    poll = Poll.of("03.wrong")
    assert [choice.text for choice in poll.choices] == question.choices
    assert poll.choices[poll.right].text == question.right
    for choice in poll.choices:
        assert question.beliefs.get(choice.text, question.why) in choice.because
    with pytest.raises(KeyError, match=r"99\.none"):
        Poll.of("99.none")
