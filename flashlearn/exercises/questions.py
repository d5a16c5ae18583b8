"""Questions before the cell that answers them, with the belief behind each wrong choice.

    from flashlearn.exercises import predict
    predict("03.wrong")

They are in `flashlearn/course/NAME/questions.md`, a heading each:

    ## wrong
    The text of the question, on one line.
    - [x] the right choice
    - a wrong choice :: the belief behind it :: online_softmax.merge.not_rescaled
    Why: one sentence, said once the reader has chosen.
    Cell: the id of the code cell that shows the answer, in the same notebook

The last part of a wrong choice is the source of the belief: the id of a known mistake, or `myth.ID` of
`flashlearn/course/myths.md`. Questions on earlier notebooks are called `recall.NAME`, and have `Notebook: NAME` for a
cell.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from flashlearn.course import NOTEBOOKS, numbered


@dataclass(frozen=True)
class Wrong:
    """A wrong choice: `believes` completes "You may be thinking that ...", `source` is an id."""

    text: str
    believes: str
    source: str


@dataclass(frozen=True)
class Question:
    """A question with one right choice and two to four wrong ones.

    id       "online_softmax.wrong"; `name` has the notebook's number in place of its name: "03.wrong"
    shown    the id of the cell that shows the answer; of a recall question the name of the notebook that showed it
    """

    id: str
    text: str
    right: str
    wrong: tuple[Wrong, ...]
    why: str
    shown: str

    def __post_init__(self):
        if not 2 <= len(self.wrong) <= 4:
            raise ValueError(f"expected two to four wrong choices, got {len(self.wrong)} for {self.id}")
        if len(set(self.choices)) < len(self.choices):
            raise ValueError(f"expected choices that differ, got {self.choices} for {self.id}")

    @property
    def name(self) -> str:
        return numbered(self.id)

    @property
    def beliefs(self) -> dict[str, str]:
        """{wrong choice: the belief behind it}"""
        return {wrong.text: wrong.believes for wrong in self.wrong}

    @property
    def choices(self) -> list[str]:
        """All choices, in an order that depends on the name alone."""
        return random.Random(self.name).sample(texts := [self.right, *(wrong.text for wrong in self.wrong)], len(texts))


@dataclass(frozen=True)
class Sentence:
    """A task to explain in a sentence, ours for comparison, and the points that it should make."""

    id: str
    text: str
    model: str
    points: tuple[str, ...]

    @property
    def name(self) -> str:
        return numbered(self.id)


def read(text: str, notebook: str) -> Iterator[Question]:
    """The questions of a file. ValueError names the question that lacks a part, or has a line of no known form."""
    for name, lines in _entries(text):
        if _is_sentence(lines):
            continue
        found: dict[str, str] = {}
        wrong = []
        for line in lines:
            key, _, rest = line.partition(": ")
            if line.startswith("- [x] "):
                found["right"] = line.removeprefix("- [x] ")
            elif line.startswith("- ") and line.count(" :: ") == 2:
                wrong.append(Wrong(*line.removeprefix("- ").split(" :: ")))
            elif key in ("Why", "Cell", "Notebook"):
                found["why" if key == "Why" else "shown"] = rest
            elif "text" not in found:
                found["text"] = line
            else:
                raise ValueError(f"expected a choice, Why, Cell or Notebook in {notebook}.{name}, got {line!r}")
        if missing := {"text", "right", "why", "shown"} - found.keys():
            raise ValueError(f"expected {', '.join(sorted(missing))} in {notebook}.{name}, got none")
        yield Question(f"{notebook}.{name}", wrong=tuple(wrong), **found)


def sentences(text: str, notebook: str) -> Iterator[Sentence]:
    """The tasks of a file to explain something.

    ValueError names the task that lacks its text, or has a line of no known form.
    """
    for name, lines in filter(lambda entry: _is_sentence(entry[1]), _entries(text)):
        model = [line.removeprefix("Model: ") for line in lines if line.startswith("Model: ")]
        points = tuple(line.removeprefix("- ") for line in lines if line.startswith("- "))
        if len(lines) - len(points) != 2:
            raise ValueError(f"expected a text, points and one Model in {notebook}.{name}, got {lines!r}")
        yield Sentence(f"{notebook}.{name}", lines[0], model[0], points)


def _entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """The name in each heading of a file, and the lines below it that are not empty."""
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, *lines = filter(None, map(str.strip, part.splitlines()))
        yield name, lines


def _is_sentence(lines: list[str]) -> bool:
    """Whether these lines ask for a sentence, and not for a choice."""
    return any(line.startswith("Model: ") for line in lines)


_FILES = {name: (files("flashlearn.course") / name / "questions.md").read_text(encoding="utf-8") for name in NOTEBOOKS}
_ALL = [question for notebook, text in _FILES.items() for question in read(text, notebook)]
QUESTIONS: dict[str, Question] = {question.name: question for question in sorted(_ALL, key=lambda one: one.name)}
SENTENCES = {task.name: task for notebook, text in _FILES.items() for task in sentences(text, notebook)}
