"""Exercises: a specification, a stub in the notebook, `check` to grade it and `hint` to get on with it.

    from flashlearn.exercises import check, hint
    hint("03.merge")  # the first of three; called again, the next
    check("03.merge", merge)

Tasks, hints, tests and known mistakes of a notebook are in its folder of `flashlearn/course`. The modules here:

checking     what a notebook calls: `check`, `hint`, `lines`, and all exercises
assessment   an exercise, its cases, and how an answer is graded: the cause of what is wrong
report       what `check` and `hint` show, and what is left for a grading run
answers      loads known mistakes and wrong answers (wrong.toml); altered: a program with some of its text replaced
ordering     lines to put in order: the program is put together from them and run
calling      an answer as a check calls it: its inputs stay as they are, calls of a library are noted
watching     which tensors an answer made on the way; answers in another process
launching    answers that are part of a kernel, kernels, or launch kernels; simulating: those of notebook 15
findings     what wrong results have in common with the right ones; formulas: which formula they follow
raised       errors in plain words (raised.toml), with the line of the answer
questions    the questions of questions.md; predicting: `predict` shows them; log: keeps what was chosen
sentences    `in_a_sentence`: the reader's sentence, then ours

The names below are imported when they are first used: `import flashlearn.exercises` imports none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashlearn.exercises.answers import Answer
    from flashlearn.exercises.assessment import Case, Exercise
    from flashlearn.exercises.checking import EXERCISES, check, hint, lines
    from flashlearn.exercises.predicting import predict
    from flashlearn.exercises.report import Hint, Report
    from flashlearn.exercises.sentences import in_a_sentence

HOMES = {
    "Answer": "answers",
    "EXERCISES": "checking",
    "Case": "assessment",
    "Exercise": "assessment",
    "Hint": "report",
    "Report": "report",
    "check": "checking",
    "hint": "checking",
    "lines": "checking",
    "predict": "predicting",
    "in_a_sentence": "sentences",
}

__all__ = [
    "EXERCISES",
    "Answer",
    "Case",
    "Exercise",
    "Hint",
    "Report",
    "check",
    "hint",
    "in_a_sentence",
    "lines",
    "predict",
]


if not TYPE_CHECKING:  # it would believe in any name

    def __getattr__(name: str) -> Any:
        if name not in HOMES:
            raise AttributeError(f"module 'flashlearn.exercises' has no attribute {name!r}")
        found = getattr(import_module(f"flashlearn.exercises.{HOMES[name]}"), name)
        globals()[name] = found  # the next time it is found at once
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
