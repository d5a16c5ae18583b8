"""`predict`: questions asked before the cell that answers them."""

from __future__ import annotations

from flashlearn.exercises.questions import QUESTIONS, Question


class Asked:
    """Questions as an output."""

    def __init__(self, questions: tuple[Question, ...]):
        self.questions = questions

    def __repr__(self) -> str:
        return "\n".join(question.text for question in self.questions)


def predict(*names: str) -> Asked:
    """Ask these questions; the answers are told once a choice is made."""
    for name in names:
        if name not in QUESTIONS:
            raise ValueError(f"expected the names of questions, among them {', '.join(QUESTIONS)}, got {name!r}")
    return Asked(tuple(QUESTIONS[name] for name in names))
