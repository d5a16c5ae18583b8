"""All exercises of the course, and what a notebook does with them: `check`, `hint` and `lines`."""

import difflib
from importlib import import_module

from flashlearn import course
from flashlearn.exercises.assessment import Exercise, grade
from flashlearn.exercises.causes import CAUSES
from flashlearn.exercises.ordering import Lines, Ordering, as_function
from flashlearn.exercises.outcome import leave
from flashlearn.exercises.report import Hint, Report

NOTEBOOKS = tuple(import_module(f"flashlearn.course.{name}.exercises") for name in course.NOTEBOOKS)
EXERCISES = {exercise.name: exercise for notebook in NOTEBOOKS for exercise in notebook.EXERCISES}
PARTS = {part.name: part for exercise in EXERCISES.values() for part in exercise.parts}  # "12.kernel.1", ...

_hints_shown: dict[str, int] = {}  # of each exercise, since Python started


def check(name: str, function) -> Report:
    """Grade `function` as an answer to the exercise `name`: a table of tests, and what is wrong, where that shows.

    If the answer gives what a well-known mistake gives, the report says which; an error comes with the line of the answer.
    An answer that overwrites its inputs fails, unless the task asks for that; one that calls a function that does the
    whole task, torch.softmax for one, passes with a remark.
    A stub that still raises `NotImplementedError` is "not attempted". Nothing that `function` does raises here. Where lines
    are to be put in order, the letters will do in place of a function: `check("03.order", "CAB")`. The steps of a long
    exercise are checked by their numbers: "12.kernel.1" wants less than "12.kernel".
    """
    exercise = _exercise(name)
    answer = as_function(function) if isinstance(exercise, Ordering) else function
    report = grade(exercise, answer, CAUSES.get(name, ()))
    if name in EXERCISES:
        leave(name, [row.passed for row in report.rows], report.summary, report.core_passed)
    return report


def lines(name: str) -> Lines:
    """The lines that the exercise `name` asks to put in order, and the program that they belong to."""
    exercise = _exercise(name)
    if not isinstance(exercise, Ordering):
        names = ", ".join(one.name for one in EXERCISES.values() if isinstance(one, Ordering))
        raise ValueError(f"expected an exercise with lines to put in order, one of {names}, got {name!r}")
    return Lines(exercise.puzzle)


def hint(name: str, number: int | None = None) -> Hint:
    """The next hint for the exercise `name`, or the one of that number; after the last, where the solution is."""
    exercise = _exercise(name)
    count = len(exercise.hints)
    if number is None:
        number = min(_hints_shown.get(name, 0), count) + 1
    elif not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= count:
        raise ValueError(f"expected the number of a hint, 1 to {count}, got {number!r}")
    _hints_shown[name] = number
    if number > count:
        return Hint(f"Exercise {name}: no more hints", f"The solution is in {exercise.place}.")
    return Hint(f"Exercise {name}, hint {number} of {count}", exercise.hints[number - 1])


def _exercise(name: str) -> Exercise:
    if not isinstance(name, str):
        raise TypeError(f"expected the name of an exercise, a text, got {type(name).__name__}")
    if name in PARTS:
        return PARTS[name]
    if name not in EXERCISES:
        near = difflib.get_close_matches(name, [*EXERCISES, *PARTS], n=1)
        meant = f": do you mean {near[0]!r}?" if near else ""
        raise ValueError(f"expected the name of an exercise, one of {', '.join(EXERCISES)}, got {name!r}{meant}")
    return EXERCISES[name]
