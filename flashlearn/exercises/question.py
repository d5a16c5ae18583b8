"""A question that is asked before the cell that answers it, with what each wrong choice would mean. No widget here."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """A wrong choice.

    believes   completes "That is what one believes who thinks that ..."
    source     where people really say so: a myth of the README, "myth: <its words>", or a known wrong answer to an
               exercise, "mistake: 03.merge: <its `what`>"; a beginning that fits one alone is enough
    """

    text: str
    believes: str
    source: str


@dataclass(frozen=True)
class Question:
    """A question with one right choice and two to four wrong ones.

    name     as those of exercises: "03.correction"; recall questions: "03.recall.merge"
    why      one sentence said with the right choice once the reader has chosen
    shown    a line of the code cell that shows the answer; it stands below the question, in the same notebook. Of a
             recall question: the number of the earlier notebook that showed it, "01"
    """

    name: str
    text: str
    right: str
    wrong: tuple[Wrong, ...]
    why: str
    shown: str

    def __post_init__(self):
        if not 2 <= len(self.wrong) <= 4:
            raise ValueError(f"expected two to four wrong choices, got {len(self.wrong)} for {self.name}")
        if len(set(self.choices)) < len(self.choices):
            raise ValueError(f"expected choices that differ, got {self.choices} for {self.name}")

    @property
    def choices(self) -> list[str]:
        """All choices, in an order that depends on the name alone."""
        return random.Random(self.name).sample(texts := [self.right, *(wrong.text for wrong in self.wrong)], len(texts))
