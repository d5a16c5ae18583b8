"""All questions of the course: `flashlearn/course/NAME/questions.py` has those of a notebook.

    from flashlearn.exercises import predict
    predict("03.correction")

Such a file holds `QUESTIONS`, those asked before a cell of its notebook, and `RECALLS`, three on earlier notebooks that
it opens with (from notebook 02 on).
"""

from __future__ import annotations

from importlib import import_module

from flashlearn.course import NOTEBOOKS
from flashlearn.exercises.question import Question, Wrong

_MODULES = [import_module(f"flashlearn.course.{name}.questions") for name in NOTEBOOKS]
_ALL = [question for module in _MODULES for question in (*module.RECALLS, *module.QUESTIONS)]
QUESTIONS: dict[str, Question] = {question.name: question for question in sorted(_ALL, key=lambda one: one.name)}

__all__ = ["QUESTIONS", "Question", "Wrong"]
