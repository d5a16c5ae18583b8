"""`in_a_sentence("03.why")`: the reader says why in one sentence, then compares it with ours.

They are in `questions.md`, a heading each, and differ from other questions by their `Model:` line:

    ## why
    What to explain, on one line.
    - what a good sentence says, a point a line
    Model: our sentence.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from flashlearn.course import numbered
from flashlearn.exercises.questions import SENTENCES, Sentence

SENTENCE = "application/vnd.flashlearn.sentence+json"  # the task as data, for the page of the book
WORDS = 5  # fewer say nothing


@dataclass(frozen=True)
class Comparison:
    """A task, and the reader's sentence next to ours once there is one."""

    task: Sentence
    mine: str = ""

    def __repr__(self) -> str:
        if not self.mine:
            return f"In a sentence: {self.task.text}\nWrite it between the quotes and run the cell: ours then follows."
        points = "\n".join(f"- {point}" for point in self.task.points)
        return f"Yours: {self.mine}\nOurs:  {self.task.model}\nDoes yours say\n{points}"

    def _repr_mimebundle_(self, **kwargs) -> dict[str, Any]:
        points = "".join(f"<li>{html.escape(point)}</li>" for point in self.task.points)
        ours = f"<p>{html.escape(self.task.model)}</p><p>Does yours say</p><ul>{points}</ul>"
        if self.mine:
            shown = f"<p>Yours: {html.escape(self.mine)}</p><p>Ours:</p>{ours}"
        else:
            shown = f"<details><summary>Ours, once you have written yours</summary>{ours}</details>"
        data = {"name": self.task.name, "text": self.task.text, "model": self.task.model, "points": self.task.points}
        asked = f"<p><strong>In a sentence: {html.escape(self.task.text)}</strong></p>"
        return {"text/plain": repr(self), "text/html": asked + shown, SENTENCE: data}


def in_a_sentence(name: str, mine: str = "") -> Comparison:
    """Ask for a sentence; with one of at least five words, show ours and what to look for. Nothing is graded."""
    if not isinstance(name, str) or numbered(name) not in SENTENCES:
        raise ValueError(f"expected the name of a task, one of {', '.join(SENTENCES)}, got {name!r}")
    if not isinstance(mine, str):
        raise TypeError(f"expected your sentence as a text, got {type(mine).__name__}")
    if mine and len(mine.split()) < WORDS:
        raise ValueError(f"expected a sentence of at least {WORDS} words, got {len(mine.split())}: {mine!r}")
    return Comparison(SENTENCES[numbered(name)], mine)
