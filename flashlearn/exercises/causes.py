"""Questions that find the cause of a wrong answer: each takes the answer and says what it gets wrong, or nothing.

A question measures one property of the answer with an input of its own, and what it says is true of the answer. They
are asked in order, from the simple to the special, and the first that has something to say ends it: so each may take
for granted what those before it have asked. One file per notebook.
"""

from importlib import import_module

from flashlearn.course import NOTEBOOKS
from flashlearn.exercises.assessment import Cause

CAUSES: dict[str, tuple[Cause, ...]] = {}
for _name in NOTEBOOKS:
    CAUSES.update(import_module(f"flashlearn.course.{_name}.causes").CAUSES)
