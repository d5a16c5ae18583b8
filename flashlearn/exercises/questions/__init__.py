"""Questions to predict an answer to: one file per notebook, of the same name as the file of its exercises.

    from flashlearn.exercises import predict
    predict("03.correction")

A file holds `QUESTIONS`, those asked before a cell of its notebook, and `RECALLS`, three on earlier notebooks that it
opens with (from notebook 02 on).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from flashlearn.exercises.questions.question import Question, Wrong

_FILES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "question"))
_MODULES = [import_module(f"{__name__}.{file}") for file in _FILES]
_ALL = [question for module in _MODULES for question in (*module.RECALLS, *module.QUESTIONS)]
QUESTIONS: dict[str, Question] = {question.name: question for question in sorted(_ALL, key=lambda one: one.name)}

__all__ = ["QUESTIONS", "Question", "Wrong"]
