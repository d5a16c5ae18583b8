"""Write the questions of the course for a learning platform, or the exercises as a table.

    python -m flashlearn export --format moodle questions.xml
    python -m flashlearn export --format text2qti --notebook 03 quiz.txt
    python -m flashlearn export --format exercises exercises.csv

moodle: Moodle XML. Import it into the question bank, where each notebook becomes a category.

text2qti: a quiz for the program of that name (`pip install text2qti`). `text2qti quiz.txt` then makes quiz.zip, the QTI
package that Canvas imports.

exercises: comma-separated values. Each exercise has its points, its tests, and those without which the idea is missed.

Questions have their feedback: why the right choice is right, and the belief behind each wrong one. Without --notebook and
--form, all questions of all notebooks are written. --sentences adds what students explain in a sentence, as essays.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from flashlearn.course import NOTEBOOKS, NUMBERS
from flashlearn.exercises.questions import QUESTIONS, SENTENCES, Question, Sentence
from flashlearn.grading.asking import LETTERS, feedback
from flashlearn.grading.inventory import FORMS

Asked = Question | Sentence
CATEGORY = "$course$/top/flashlearn"


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.format == "exercises":
        text = exercises(options.points, options.notebook)
    else:
        questions = chosen(options.notebook, options.form, options.sentences)
        text = moodle(questions, options.points) if options.format == "moodle" else text2qti(questions, options.points)
    if options.file == Path("-"):
        sys.stdout.buffer.write(text.encode())  # UTF-8, whatever the terminal has
        return 0
    try:
        options.file.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        print(f"expected a file that can be written, got {str(options.file)!r}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def chosen(numbers: Sequence[str], form: str | None, sentences: bool = False) -> list[Asked]:
    """The questions of these notebooks, all if there is none, or those of a form of the inventory."""
    questions: list[Asked] = [*(FORMS[form] if form else QUESTIONS).values()]
    if sentences:
        questions = sorted([*questions, *SENTENCES.values()], key=asked_in)
    return [one for one in questions if not numbers or asked_in(one) in numbers]


def asked_in(question: Asked) -> str:
    """The number of the notebook that asks; of an item of the inventory, of that which shows the answer."""
    if isinstance(question, Question) and question.id.startswith("form_"):
        return NUMBERS[question.shown]
    return question.name[:2]


def title(number: str) -> str:
    """A notebook as people call it: "03 online softmax"."""
    return f"{number} {list(NOTEBOOKS)[int(number)].replace('_', ' ')}"


# --- Moodle XML: https://docs.moodle.org/en/Moodle_XML_format


def moodle(questions: Sequence[Asked], points: float) -> str:
    """A file of Moodle XML, one category for each notebook."""
    quiz = ElementTree.Element("quiz")
    for number, group in groupby(questions, asked_in):
        category = ElementTree.SubElement(quiz, "question", type="category")
        _text(ElementTree.SubElement(category, "category"), f"{CATEGORY}/{title(number)}")
        quiz.extend(
            _moodle_question(one, points) if isinstance(one, Question) else _moodle_essay(one, points) for one in group
        )
    ElementTree.indent(quiz)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(quiz, encoding="unicode")}\n'


def _moodle_question(question: Question, points: float) -> ElementTree.Element:
    element = _moodle_asked("multichoice", question, points, question.why)
    settings = {"penalty": "0.3333333", "single": "true", "shuffleanswers": "true", "answernumbering": "abc"}
    for name, value in settings.items():
        ElementTree.SubElement(element, name).text = value
    for choice in question.choices:
        right = choice == question.right
        answer = ElementTree.SubElement(element, "answer", fraction="100" if right else "0", format="plain_text")
        _text(answer, choice)
        said = "Right." if right else feedback(question, choice).removesuffix(f" {question.why}")
        _text(ElementTree.SubElement(answer, "feedback", format="plain_text"), said)
    return element


def _moodle_essay(task: Sentence, points: float) -> ElementTree.Element:
    element = _moodle_asked("essay", task, points, task.model)
    for name, value in {"responseformat": "plain", "responserequired": "1", "responsefieldlines": "3"}.items():
        ElementTree.SubElement(element, name).text = value
    _text(ElementTree.SubElement(element, "graderinfo", format="plain_text"), "\n".join([task.model, *task.points]))
    return element


def _moodle_asked(kind: str, question: Asked, points: float, why: str) -> ElementTree.Element:
    """The parts of every kind of question."""
    element = ElementTree.Element("question", type=kind)
    _text(ElementTree.SubElement(element, "name"), question.name)
    _text(ElementTree.SubElement(element, "questiontext", format="plain_text"), question.text)
    _text(ElementTree.SubElement(element, "generalfeedback", format="plain_text"), why)
    for name, value in {"defaultgrade": f"{points:g}", "hidden": "0", "idnumber": question.id}.items():
        ElementTree.SubElement(element, name).text = value
    return element


def _text(parent: ElementTree.Element, text: str) -> None:
    ElementTree.SubElement(parent, "text").text = text


# --- text2qti: https://github.com/gpoore/text2qti


def text2qti(questions: Sequence[Asked], points: float) -> str:
    """A quiz as plain text, one paragraph for each part."""
    numbers = dict.fromkeys(map(asked_in, questions))
    name = title(next(iter(numbers))) if len(numbers) == 1 else "all notebooks"
    lines = [f"Quiz title: flashlearn, {name}", "Shuffle answers: true", ""]
    for number, question in enumerate(questions, start=1):
        lines += [f"Title: {question.name}", f"Points: {points:g}", f"{number}. {_plain(question.text)}"]
        lines += [*(_choices(question) if isinstance(question, Question) else ["____"]), ""]
    return "\n".join(lines)


def _choices(question: Question) -> Iterator[str]:
    """Two lines for each choice."""
    for letter, choice in zip(LETTERS, question.choices, strict=False):
        yield f"{'*' * (choice == question.right)}{letter}) {_plain(choice)}"
        yield f"... {_plain(feedback(question, choice))}"


def _plain(text: str) -> str:
    """The text with all marks of Markdown and LaTeX escaped."""
    return re.sub(r"([\\`*_{}\[\]()#+.!$-])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


# --- exercises


def exercises(points: float, numbers: Sequence[str]) -> str:
    """All exercises as a table of comma-separated values."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("exercise", "points", "tests", "core tests", "other tests", "task"))
    writer.writerows(_rows(points, numbers))
    return file.getvalue()


def _rows(points: float, numbers: Sequence[str]) -> Iterator[tuple[str, str, int, str, str, str]]:
    from flashlearn.exercises.checking import EXERCISES  # here: `--help` needs no PyTorch

    for name, exercise in EXERCISES.items():
        if not numbers or name[:2] in numbers:
            core = [case.name for case in exercise.cases if exercise.is_core(case)]
            others = [case.name for case in exercise.cases if not exercise.is_core(case)]
            yield name, f"{points:g}", len(exercise.cases), "; ".join(core), "; ".join(others), exercise.task


def _options(arguments: list[str] | None) -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m flashlearn export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="the file to write, - for standard output")
    parser.add_argument("--format", required=True, choices=("moodle", "text2qti", "exercises"))
    parser.add_argument("--notebook", action="append", default=[], metavar="NN", help="a notebook, by its number")
    parser.add_argument("--form", choices=sorted(FORMS), help="only the questions of this form of the inventory")
    parser.add_argument("--sentences", action="store_true", help="and what students explain in a sentence")
    parser.add_argument("--points", type=float, default=1.0, help="of each question or exercise (default: 1)")
    options = parser.parse_args(arguments)
    options.notebook = [number.zfill(2) for number in options.notebook]
    if wrong := set(options.notebook) - set(NUMBERS.values()):
        parser.error(f"expected --notebook from 00 to {max(NUMBERS.values())}, got {min(wrong)}")
    if options.form and options.format == "exercises":
        parser.error("expected --form with questions, got it with exercises")
    if not 0 < options.points < 1000 or options.points * 2 % 1:
        parser.error(f"expected --points above 0 and below 1000, in halves, got {options.points:g}")
    return options
