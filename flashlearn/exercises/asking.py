"""`predict`: questions asked before the cell that answers them."""

from __future__ import annotations

import html
from typing import Any

from flashlearn.exercises.questions import QUESTIONS, Question

PREDICT = "application/vnd.flashlearn.predict+json"  # the questions as data, which the page of the book asks by itself
LETTERS = "abcde"


class Asked:
    """Questions as an output: as text without the answers, as HTML with the answers folded away, and as data."""

    def __init__(self, questions: tuple[Question, ...]):
        self.questions = questions

    def __repr__(self) -> str:
        return "\n\n".join(map(in_words, self.questions))

    def _repr_mimebundle_(self, **kwargs) -> dict[str, Any]:
        return {
            "text/plain": repr(self),
            "text/html": "".join(map(on_a_page, self.questions)),
            PREDICT: {"questions": [as_data(question) for question in self.questions]},
        }


def in_words(question: Question) -> str:
    """The question and its choices, without the answer."""
    lettered = zip(LETTERS, question.choices, strict=False)
    return "\n".join([f"Predict: {question.text}", *(f"  {letter}) {text}" for letter, text in lettered)])


def on_a_page(question: Question) -> str:
    """The question for pages without scripts, its answer to be unfolded."""
    choices = "".join(f"<li>{html.escape(text)}</li>" for text in question.choices)
    beliefs = "".join(
        f"<li>{html.escape(wrong.text)}: that is what one believes who thinks that {html.escape(wrong.believes)}.</li>"
        for wrong in question.wrong
    )
    return (
        f'<p><strong>Predict: {html.escape(question.text)}</strong></p><ol type="a">{choices}</ol>'
        f"<details><summary>The answer, once you have chosen</summary><p>{html.escape(question.right)}. "
        f"{html.escape(question.why)}</p><ul>{beliefs}</ul></details>"
    )


def as_data(question: Question) -> dict[str, Any]:
    """The question as book/_static/predict.js takes it, its choices in their order."""
    beliefs = {wrong.text: wrong.believes for wrong in question.wrong}
    return {
        "name": question.name,
        "question": question.text,
        "choices": [
            {"text": text, "believes": beliefs[text]} if text in beliefs else {"text": text, "right": True}
            for text in question.choices
        ],
        "why": question.why,
    }


def predict(*names: str) -> Asked:
    """Ask these questions; the answers are told once a choice is made."""
    if not names:
        raise ValueError("expected the names of questions, got none")
    for name in names:
        if name not in QUESTIONS:
            raise ValueError(f"expected the names of questions, among them {', '.join(QUESTIONS)}, got {name!r}")
    return Asked(tuple(QUESTIONS[name] for name in names))
