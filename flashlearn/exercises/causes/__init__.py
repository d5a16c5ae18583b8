"""Questions that find the cause of a wrong answer: each takes the answer and says what it gets wrong, or nothing.

A question measures one property of the answer with an input of its own, and what it says is true of the answer. They
are asked in order, from the simple to the special, and the first that has something to say ends it: so each may take
for granted what those before it have asked. One file per notebook.
"""

import importlib
import pkgutil

from flashlearn.exercises.grading import Cause

CAUSES: dict[str, tuple[Cause, ...]] = {}
for _module in pkgutil.iter_modules(__path__):
    CAUSES.update(importlib.import_module(f"{__name__}.{_module.name}").CAUSES)
