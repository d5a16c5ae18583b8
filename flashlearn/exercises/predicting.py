"""`predict`: questions before the cell that answers them.

While the notebook runs they are a widget (flashlearn.show.quiz), which keeps a choice (log.py) before it shows the
answer. The stored output is the same whatever was chosen: text, HTML for a code host, and data for the page and the
deck.
"""

from __future__ import annotations

import html
import importlib.util
import sys
from typing import Any

from flashlearn.course import numbered
from flashlearn.exercises import log
from flashlearn.exercises.questions import QUESTIONS, Question

PREDICT = "application/vnd.flashlearn.predict+json"  # the questions as data, for the page of the book


class Questions:
    """Questions as an output: as text without the answers, as HTML with the answers folded away, and as data.

    `quiz` is the widget, made where there is a kernel and somebody looks.
    """

    def __init__(self, questions: tuple[Question, ...]):
        self.questions = questions
        self.quiz: Any = None

    def __repr__(self) -> str:
        return "\n\n".join(map(as_text, self.questions))

    def note(self, name: str, index: int) -> dict[str, Any]:
        """Keep the choice of this index for a question; the feedback, and if it cannot be kept, why."""
        question = QUESTIONS[name]
        choice, trouble = log.note(question, question.choices[index])
        return {**feedback(question, choice), "trouble": f"(Your choice is not kept: {trouble}.)" if trouble else ""}

    def _repr_mimebundle_(self, **kwargs) -> tuple[dict[str, Any], dict[str, Any]]:
        live, how = self._live(**kwargs) if has_kernel() else ({}, {})
        plain = {
            "text/plain": repr(self),
            "text/html": "".join(map(as_html, self.questions)),
            PREDICT: {"questions": list(map(as_data, self.questions))},
        }
        return {**live, **plain}, how

    def _live(self, **kwargs) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, with what was predicted earlier, in data and metadata."""
        from flashlearn.show.bundle import parts
        from flashlearn.show.quiz import Quiz

        if self.quiz is None:
            shown = [{"name": each.name, "question": each.text, "choices": each.choices} for each in self.questions]
            earlier = {each.name: feedback(each, choice) for each in self.questions if (choice := log.predicted(each))}
            self.quiz = Quiz(shown, earlier, self.note)
        return parts(self.quiz._repr_mimebundle_(**kwargs))


def has_kernel() -> bool:
    """Whether this runs in a kernel, and with the extra that widgets need."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel") and importlib.util.find_spec("anywidget") is not None


def feedback(question: Question, choice: str) -> dict[str, Any]:
    """The feedback for question.js: the index of the choice and of the right one, the belief behind each, and why."""
    return {
        "chosen": question.choices.index(choice),
        "right": question.choices.index(question.right),
        "believes": [question.beliefs.get(text, "") for text in question.choices],
        "why": question.why,
    }


def as_text(question: Question) -> str:
    """The question and its choices, without the answer."""
    choices = (f"  {letter}) {text}" for letter, text in zip("abcde", question.choices, strict=False))
    return "\n".join([f"Predict: {question.text}", *choices])


def as_html(question: Question) -> str:
    """The question for pages without scripts, its answer to be unfolded."""
    choices = "".join(f"<li>{html.escape(text)}</li>" for text in question.choices)
    beliefs = "".join(
        f"<li>{html.escape(text)}: you may be thinking that {html.escape(_closed(belief))}</li>"
        for text, belief in question.beliefs.items()
    )
    return (
        f'<p><strong>Predict: {html.escape(question.text)}</strong></p><ol type="a">{choices}</ol>'
        f"<details><summary>The answer, once you have chosen</summary><p>{html.escape(_closed(question.right))} "
        f"{html.escape(question.why)}</p><ul>{beliefs}</ul></details>"
    )


def as_data(question: Question) -> dict[str, Any]:
    """The question as book/_static/predict.js takes it, its choices in their order."""
    beliefs = question.beliefs
    choices = [
        {"text": text, **({"believes": beliefs[text]} if text in beliefs else {"right": True})}
        for text in question.choices
    ]
    return {"name": question.name, "question": question.text, "choices": choices, "why": question.why}


def _closed(text: str) -> str:
    """The text with a full stop, if it has no end yet."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def predict(*names: str) -> Questions:
    """Show these questions; the answers come once a choice is made."""
    if not names:
        raise ValueError("expected the names of questions, got none")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"expected the names of questions, each a text, got {type(name).__name__}")
        if numbered(name) not in QUESTIONS:
            raise ValueError(f"expected the names of questions, among them {', '.join(QUESTIONS)}, got {name!r}")
    return Questions(tuple(QUESTIONS[numbered(name)] for name in names))
