"""Questions as a widget: a choice is noted by the kernel, which only then sends what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anywidget
from traitlets import Dict, List, Unicode

from flashlearn.show.bundle import browser_text


class Quiz(anywidget.AnyWidget):
    """The questions of one cell; `note(name, place)` records a choice and returns its answer.

    questions   [{"name", "question", "choices": [text, ...]}, ...]; the answers are not among them
    answers        {name: {"chosen", "right", "believes", "why"}} of the questions that a choice is made for
    """

    _esm = Unicode(browser_text("question.js", "saved.js", "quiz.js")).tag(sync=True)
    _css = Unicode(browser_text("question.css")).tag(sync=True)
    questions: Any = List().tag(sync=True)
    answers = Dict().tag(sync=True)

    def __init__(
        self, questions: Sequence[Mapping[str, Any]], answers: Mapping[str, Any], note: Callable[[str, int], dict]
    ):
        self._note = note
        super().__init__(questions=list(questions), answers=dict(answers))
        self.on_msg(self._receive)

    def _receive(self, widget: Any, content: dict, buffers: list) -> None:
        """A choice was made in the browser; the first one of a question stays."""
        name, chosen = content["question"], content["chosen"]
        if name not in self.answers:
            self.answers = {**self.answers, name: self._note(name, chosen)}
