"""The questions of `predict`: their wrong choices are what people really say, and the answer is shown below each."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from flashlearn.course import NOTEBOOKS, NUMBERS, numbered
from flashlearn.exercises.checking import EXERCISES
from flashlearn.exercises.questions import QUESTIONS, Question, Wrong, read

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
MYTHS = re.findall(
    r'^\| (\w+) \| ".*" \| \w+ \|$', (files("flashlearn.course") / "myths.md").read_text(encoding="utf-8"), re.MULTILINE
)
SOURCES = {mistake.id for exercise in EXERCISES.values() for mistake in exercise.mistakes} | {
    f"myth.{id}" for id in MYTHS
}
every_question = pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda question: question.name)
every_notebook = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@cache
def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@cache
def asked(path: Path) -> dict[str, int]:
    """The questions that a notebook asks -> the place of the cell that asks them."""
    found = {}
    for at, cell in enumerate(cells(path)):
        for node in ast.walk(ast.parse("".join(cell["source"]))) if cell["cell_type"] == "code" else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "predict":
                for argument in node.args:
                    assert argument.value not in found, f"{argument.value} is asked twice"
                    found[argument.value] = at
    return found


def notebook(question: Question) -> Path:
    return next(path for path in FILES if path.stem[:2] == question.name[:2])


def is_recall(name: str) -> bool:
    return ".recall." in name


# --- the questions ---


def test_no_question_has_marks_that_its_widget_would_show():
    """Questions are plain text, in widgets and on pages."""
    for name, question in QUESTIONS.items():
        texts = (question.text, question.why, *question.choices, *(wrong.believes for wrong in question.wrong))
        assert not any(mark in text for text in texts for mark in ("`", "**", "$")), name


@every_question
def test_a_question_is_named_after_its_notebook(question):
    assert re.fullmatch(r"\d\d\.(recall\.)?[a-z0-9_]+", question.name) and numbered(question.id) == question.name


def test_no_name_is_used_twice():
    found = [question.id for name in NOTEBOOKS for question in read(text(name), name)]
    assert len(found) == len(set(found)) == len(QUESTIONS)


def text(name):
    return (files("flashlearn.course") / name / "questions.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("- [x] 6", "- 6"), "expected a choice, Why, Cell or Notebook in online_softmax.wrong, got '- 6'"),
        (("Why: ", "Because: "), "got 'Because: "),
        (("\nCell: ", "\nCell "), "expected a choice, Why, Cell or Notebook"),
        (("- [x] 6\n", ""), "expected right in online_softmax.wrong, got none"),
    ],
)
def test_a_file_with_a_fault_names_the_question(change, problem):
    part = "## wrong" + text("online_softmax").split("## wrong")[1].split("\n## ")[0]
    assert [each.name for each in read(part, "online_softmax")] == ["03.wrong"]
    with pytest.raises(ValueError, match=re.escape(problem)):
        list(read(part.replace(*change, 1), "online_softmax"))


@every_question
def test_what_is_wrong_is_what_people_say(question):
    assert 3 <= len(question.choices) <= 5
    assert {wrong.source for wrong in question.wrong} <= SOURCES


@every_question
def test_words_are_plain_and_short(question):
    texts = (question.text, question.right, question.why, *(each.text for each in question.wrong))
    for text in (*texts, *(each.believes for each in question.wrong)):
        assert text.strip() == text and text and "$" not in text and "\\" not in text, text
    assert len(question.text.split()) <= 60 and all(len(text.split()) <= 25 for text in question.choices)
    assert question.why.endswith((".", "!", "?"))


def test_the_right_choice_is_not_the_longest_as_a_rule():
    longest = [one.name for one in QUESTIONS.values() if len(one.right) > max(len(each.text) for each in one.wrong)]
    assert len(longest) <= len(QUESTIONS) / 3, longest


def test_the_right_choice_stands_at_every_place():
    places = [one.choices.index(one.right) for one in QUESTIONS.values()]
    assert all(places.count(place) >= len(places) / 6 for place in range(3))


@pytest.mark.parametrize("count", [1, 5])
def test_too_few_and_too_many_choices_are_rejected(count):
    wrong = tuple(Wrong(str(number), "x", "y") for number in range(count))
    with pytest.raises(ValueError, match=f"expected two to four wrong choices, got {count} for online_softmax.x"):
        Question("online_softmax.x", "?", "right", wrong, "because", "")


# --- in the notebooks ---


@every_question
def test_the_answer_is_shown_below_the_question(question):
    path = notebook(question)
    assert question.name in asked(path), f"{path.stem} does not ask {question.name}"
    if is_recall(question.name):
        assert NUMBERS[question.shown] < question.name[:2]
        return
    (at,) = (at for at, cell in enumerate(cells(path)) if cell["id"] == question.shown)
    assert cells(path)[at]["cell_type"] == "code" and at > asked(path)[question.name]


@every_notebook
def test_what_a_notebook_asks_are_questions_of_its_own(path):
    assert all(name in QUESTIONS and name[:2] == path.stem[:2] for name in asked(path))


@every_notebook
def test_a_notebook_asks_two_questions_at_least(path):
    assert sum(not is_recall(name) for name in asked(path)) >= 2


@every_notebook
def test_from_02_on_a_notebook_opens_with_two_on_earlier_ones(path):
    recalls = {name: at for name, at in asked(path).items() if is_recall(name)}
    assert len(recalls) == (2 if path.stem[:2] >= "02" else 0)
    if recalls:
        (place,) = set(recalls.values())
        assert place <= 8 and place == min(asked(path).values())
