"""Exports of all questions: the structure that Moodle documents, and text that text2qti reads."""

from __future__ import annotations

import csv
import io
import re
from xml.etree import ElementTree

import pytest

from flashlearn.__main__ import main
from flashlearn.exercises import EXERCISES
from flashlearn.exercises.questions import QUESTIONS, SENTENCES, Question, Wrong
from flashlearn.grading import export
from flashlearn.grading.inventory import FORMS

MARKS = Question(
    "99.a",
    "1 < 2 & a*b*c, $5 x_i_j?",
    "<b> & *x*",
    (Wrong("a_b_c", "^ `is` $", "x"), Wrong("#1", "2.", "x")),
    "Yes!",
    "z",
)
# A line of text2qti: a mark, a space and one paragraph (its README)
LINE = re.compile(r"(Quiz title: |Shuffle answers: |Title: |Points: |\d+\. |\*?[a-e]\) |\.\.\. )\S.*|____|")


@pytest.fixture
def written(tmp_path):
    """written(*options): what the command writes."""

    def written(*options):
        assert main(["export", *options, str(tmp_path / "out")]) == 0
        return (tmp_path / "out").read_text(encoding="utf-8")

    return written


@pytest.mark.parametrize("form", [None, "A", "B"])
def test_moodle_has_every_question_with_one_right_answer(written, form):
    quiz = ElementTree.fromstring(written("--format", "moodle", "--points", "2", *(("--form", form) if form else ())))
    expected = {one.name: one for one in (FORMS[form] if form else QUESTIONS).values()}
    assert quiz.tag == "quiz" and {one.get("type") for one in quiz} == {"category", "multichoice"}
    found = [one for one in quiz if one.get("type") == "multichoice"]
    assert [one.findtext("name/text") for one in found] == list(expected)
    for one in found:
        question = expected[one.findtext("name/text")]
        assert one.findtext("questiontext/text") == question.text and one.findtext("idnumber") == question.id
        assert one.find("questiontext").get("format") == "plain_text"
        assert one.findtext("generalfeedback/text") == question.why and one.findtext("defaultgrade") == "2"
        settings = {name: one.findtext(name) for name in ("single", "shuffleanswers", "answernumbering")}
        assert settings == {"single": "true", "shuffleanswers": "true", "answernumbering": "abc"}
        answers = {each.findtext("text"): each for each in one.findall("answer")}
        assert list(answers) == question.choices
        assert [text for text, each in answers.items() if each.get("fraction") == "100"] == [question.right]
        assert {each.get("fraction") for each in answers.values()} == {"0", "100"}
        for wrong in question.wrong:
            assert wrong.believes.rstrip(".") in answers[wrong.text].findtext("feedback/text")


def test_moodle_has_a_category_before_the_questions_of_each_notebook(written):
    quiz = ElementTree.fromstring(written("--format", "moodle"))
    place, seen = "", []
    for one in quiz:
        if one.get("type") == "category":
            place = one.findtext("category/text")
            seen.append(place)
            assert re.fullmatch(r"\$course\$/top/flashlearn/\d\d [a-z0-9 ]+", place)
        else:
            assert place.rpartition("/")[2][:2] == one.findtext("name/text")[:2]
    assert len(seen) == len(set(seen)) == len({name[:2] for name in QUESTIONS})


def test_text2qti_has_every_question_in_lines_of_known_forms(written):
    text = written("--format", "text2qti", "--points", "0.5")
    assert all(LINE.fullmatch(line) for line in text.splitlines())
    assert text.count("\nPoints: 0.5\n") == text.count("\n*") == len(QUESTIONS)
    parts = re.findall(r"(?m)^Title: (.*)\nPoints: .*\n(\d+)\. (.*)\n((?:.+\n)+)", text)
    assert [(title, int(number)) for title, number, _, _ in parts] == [(name, n) for n, name in enumerate(QUESTIONS, 1)]
    for name, _, asked, lines in parts:
        question = QUESTIONS[name]
        choices = re.findall(r"(?m)^(\*?)[a-e]\) (.*)\n\.\.\. (.*)$", lines)
        assert unescaped(asked) == question.text and [unescaped(each[1]) for each in choices] == question.choices
        assert [unescaped(each[1]) for each in choices if each[0]] == [question.right]
        assert all(question.why in unescaped(each[2]) for each in choices)


def test_sentences_are_essays(written):
    quiz = ElementTree.fromstring(written("--format", "moodle", "--sentences"))
    essays = {one.findtext("name/text"): one for one in quiz if one.get("type") == "essay"}
    assert set(essays) == set(SENTENCES) and len(quiz) > len(essays) + len(QUESTIONS)
    for name, one in essays.items():
        task = SENTENCES[name]
        assert one.findtext("questiontext/text") == task.text and task.model in one.findtext("graderinfo/text")
        assert all(point in one.findtext("graderinfo/text") for point in task.points)
    places = [one.findtext("category/text") for one in quiz if one.get("type") == "category"]
    assert len(places) == len(set(places)), "one category for each notebook"
    text = written("--format", "text2qti", "--sentences")
    assert all(LINE.fullmatch(line) for line in text.splitlines()) and text.count("\n____\n") == len(SENTENCES)
    assert "____" not in written("--format", "text2qti")


def unescaped(text):
    return re.sub(r"\\(.)", r"\1", text).replace("&lt;", "<").replace("&gt;", ">")


def test_marks_are_text():
    assert export._plain(MARKS.right) == r"&lt;b&gt; & \*x\*" and export._plain("$5 x_i") == r"\$5 x\_i"
    element = export._moodle_question(MARKS, 1)
    again = ElementTree.fromstring(ElementTree.tostring(element))
    assert [each.findtext("text") for each in again.findall("answer")] == MARKS.choices


def test_a_notebook_alone(written):
    text = written("--format", "text2qti", "--notebook", "3")
    assert text.startswith("Quiz title: flashlearn, 03 online softmax\n")
    assert re.findall(r"(?m)^Title: (.*)$", text) == [name for name in QUESTIONS if name.startswith("03.")]


def test_the_table_of_exercises_has_points_and_core_tests(written):
    rows = list(csv.DictReader(io.StringIO(written("--format", "exercises", "--points", "4"))))
    assert [row["exercise"] for row in rows] == list(EXERCISES)
    for row in rows:
        exercise = EXERCISES[row["exercise"]]
        core, others = ([*filter(None, row[key].split("; "))] for key in ("core tests", "other tests"))
        assert core == [case.name for case in exercise.cases if exercise.is_core(case)] and core
        assert len(core) + len(others) == int(row["tests"]) and row["points"] == "4"
    assert "right side holds the maximum" in next(row["core tests"] for row in rows if row["exercise"] == "03.merge")


def test_standard_output_and_a_file_that_cannot_be_written(tmp_path, capsys):
    assert main(["export", "--format", "moodle", "-"]) == 0 and "<quiz>" in capsys.readouterr().out
    assert main(["export", "--format", "moodle", str(tmp_path)]) == 1 and "can be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["x"], ["--format", "gift", "x"], ["--format", "moodle", "--points", "0", "x"], ["--format", "moodle"]]
    + [["--format", "moodle", "--points", "0.3", "x"], ["--format", "moodle", "--notebook", "99", "x"]]
    + [["--format", "exercises", "--form", "A", "x"]],
)
def test_options_that_are_none_are_rejected(options, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["export", *options])
    assert stopped.value.code == 2 and "export" in capsys.readouterr().err
