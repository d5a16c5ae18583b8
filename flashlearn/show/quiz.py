"""Questions as a widget: a choice is noted by the kernel, which only then sends what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anywidget
from traitlets import Dict, List, Unicode

from flashlearn.show.bundle import browser_text


class Hall(anywidget.AnyWidget):
    """The questions of one cell; `note(name, place)` is called with a choice, and returns what to tell of it.

    questions   [{"name", "question", "choices": [text, ...]}, ...]; the answers are not among them
    told        {name: {"chosen", "right", "believes", "why"}} of the questions that a choice is made for
    """

    _esm = Unicode(browser_text("ballot.js", "saved.js", "hall.js")).tag(sync=True)
    _css = Unicode(browser_text("ballot.css")).tag(sync=True)
    questions: Any = List().tag(sync=True)
    told = Dict().tag(sync=True)

    def __init__(
        self, questions: Sequence[Mapping[str, Any]], told: Mapping[str, Any], note: Callable[[str, int], dict]
    ):
        self._note = note
        super().__init__(questions=list(questions), told=dict(told))
        self.on_msg(self._hear)

    def _hear(self, widget: Any, content: dict, buffers: list) -> None:
        """A choice was made in the browser; the first one of a question stays."""
        name, chosen = content["question"], content["chosen"]
        if name not in self.told:
            self.told = {**self.told, name: self._note(name, chosen)}
