"""What a lecture is made of: sections with their minutes, slides, runs to play, polls. No content, no HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashlearn.exercises.questions import QUESTIONS
from flashlearn.show.frame import Draw, Steps


@dataclass(frozen=True)
class Poll:
    """A question asked before the answer is shown.

    choices    (text, what somebody who chooses it believes) for each; the right one's says why it is right
    right      its place among them, from 0
    """

    question: str
    choices: tuple[tuple[str, str], ...]
    right: int

    def __post_init__(self):
        if not 3 <= len(self.choices) <= 5:
            raise ValueError(f"expected three to five choices, got {len(self.choices)} for {self.question!r}")
        if not 0 <= self.right < len(self.choices):
            raise ValueError(f"expected the right choice to be one of {len(self.choices)}, got {self.right}")
        if len({text for text, _ in self.choices}) < len(self.choices):
            raise ValueError(f"expected choices that differ, got {[text for text, _ in self.choices]}")

    @classmethod
    def of(cls, name: str) -> Poll:
        """The question of this name, as a notebook asks it. KeyError if there is none."""
        question = QUESTIONS[name]
        because = {
            wrong.text: f"That is what one believes who thinks that {wrong.believes}." for wrong in question.wrong
        }
        because[question.right] = f"Right. {question.why}"
        choices = tuple((html.escape(text), html.escape(because[text])) for text in question.choices)
        return cls(html.escape(question.text), choices, question.choices.index(question.right))


@dataclass(frozen=True)
class Run:
    """Recorded steps to be played, and how they are painted; `questions` are asked before a step (from 0) is shown."""

    steps: Callable[[], Steps]
    draw: Draw
    alt: str
    figsize: tuple[float, float] = (12.8, 5.0)
    questions: dict[int, str] = field(default_factory=dict)
    still: int = -1


@dataclass(frozen=True)
class Plot:
    """One picture: `draw(ax)` paints it."""

    draw: Callable[[Any], Any]
    alt: str
    figsize: tuple[float, float] = (12.8, 5.0)


@dataclass(frozen=True)
class Slide:
    """One slide: a title, text (HTML) and at most one of a run, a plot and a poll; what to say, and for how long.

    minutes   (in 90 minutes, in 45); 0 in 45: left out there
    """

    title: str
    minutes: tuple[float, float]
    notes: str
    text: str = ""
    shows: Run | Plot | Poll | None = None


@dataclass(frozen=True)
class Section:
    """The part of a lecture that belongs to one notebook."""

    notebook: str
    slides: tuple[Slide, ...]


Planned = list[tuple[Section, Slide, float]]  # with the minutes of each


def planned(sections: Sequence[Section], length: int) -> Planned:
    """The slides of a lecture of 90 or 45 minutes, each with its minutes."""
    if length not in (90, 45):
        raise ValueError(f"expected a lecture of 90 or 45 minutes, got {length}")
    column = (90, 45).index(length)
    every = ((section, slide, slide.minutes[column]) for section in sections for slide in section.slides)
    return [(section, slide, minutes) for section, slide, minutes in every if minutes]
