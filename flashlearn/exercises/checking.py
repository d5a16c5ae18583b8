"""All exercises of the course, and `check`, `hint` and `lines` for notebooks."""

import difflib
import functools
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from importlib import import_module

from flashlearn.course import NOTEBOOKS, NUMBERS, numbered
from flashlearn.exercises.answers import answers
from flashlearn.exercises.assessment import Exercise, grade
from flashlearn.exercises.ordering import Lines, Ordering, as_function
from flashlearn.exercises.report import Hint, Report, leave


@functools.cache
def of_notebook(notebook: str) -> dict[str, Exercise]:
    """The exercises of a notebook by name, "03.merge" for one."""
    return {exercise.name: exercise for exercise in _exercises(notebook)}


def _exercises(notebook: str) -> Iterator[Exercise]:
    """The exercises of a notebook, with their known mistakes and causes of others."""
    folder = f"flashlearn.course.{notebook}"
    causes = import_module(f"{folder}.causes").CAUSES
    for exercise in import_module(f"{folder}.exercises").EXERCISES:
        name, known = exercise.name, answers(notebook, exercise.name, exercise.solution, "known")
        mine = causes.get(name, ())
        if isinstance(exercise, Ordering):
            known, mine = (*exercise.puzzle.mistakes, *known), (*exercise.puzzle.causes, *mine)
        id = f"{notebook}.{name}"
        yield replace(exercise, name=numbered(id), id=id, mistakes=known, causes=mine)


class _Exercises(MutableMapping[str, Exercise]):
    """All exercises by name, and those that an instructor adds. A notebook's are imported when one of them is needed:
    those on kernels need Triton.
    """

    def __init__(self) -> None:
        self._added: dict[str, Exercise] = {}

    def __setitem__(self, name: str, exercise: Exercise) -> None:
        self._added[name] = exercise

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __getitem__(self, name: str) -> Exercise:
        if name in self._added:
            return self._added[name]
        notebook = next((notebook for notebook, number in NUMBERS.items() if name.startswith(f"{number}.")), None)
        if notebook is None:
            raise KeyError(name)
        return of_notebook(notebook)[name]

    def __iter__(self) -> Iterator[str]:
        course = (name for notebook in NOTEBOOKS for name in of_notebook(notebook))
        return iter(dict.fromkeys([*course, *self._added]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


EXERCISES = _Exercises()

_hints_shown: dict[str, int] = {}  # of each exercise, since Python started


def check(name: str, function) -> Report:
    """Grade `function` as an answer to the exercise `name`, "03.merge" or "online_softmax.merge": a table of tests, and
    the cause of a wrong result, where it is found. If the answer gives the results of a known mistake, the report names
    it; an error comes with the line of the answer. An answer that overwrites its inputs fails, unless that is the task;
    one that calls a function that does the whole task, torch.softmax for one, passes with a remark. A stub that still
    raises `NotImplementedError` is "not attempted". Nothing that `function` does raises here. Where lines are to be put
    in order, the letters will do in place of a function: `check("03.order", "CAB")`. The steps of a long exercise are
    checked by their numbers: "12.kernel.1" requires less than "12.kernel".
    """
    exercise = _exercise(name)
    answer = as_function(function) if isinstance(exercise, Ordering) else function
    report = grade(exercise, answer)
    if exercise.name in EXERCISES:
        leave(exercise.name, [row.passed for row in report.rows], report.summary, report.core_passed)
    return report


def lines(name: str) -> Lines:
    """The lines of the exercise `name` that are to be put in order, and their program."""
    exercise = _exercise(name)
    if not isinstance(exercise, Ordering):
        names = ", ".join(one.name for one in EXERCISES.values() if isinstance(one, Ordering))
        raise ValueError(f"expected an exercise with lines to put in order, one of {names}, got {name!r}")
    return Lines(exercise.puzzle)


def hint(name: str, number: int | None = None) -> Hint:
    """The next hint for the exercise `name`, or the one of that number; after the last, where the solution is."""
    exercise = _exercise(name)
    name, count = exercise.name, len(exercise.hints)
    if number is None:
        number = min(_hints_shown.get(name, 0), count) + 1
    elif not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= count:
        raise ValueError(f"expected the number of a hint, 1 to {count}, got {number!r}")
    _hints_shown[name] = number
    if number > count:
        return Hint(f"Exercise {name}: no more hints", f"The solution is in {exercise.solution_file}.")
    return Hint(f"Exercise {name}, hint {number} of {count}", exercise.hints[number - 1])


def _exercise(name: str) -> Exercise:
    if not isinstance(name, str):
        raise TypeError(f"expected the name of an exercise, a text, got {type(name).__name__}")
    given, name = name, numbered(name)
    if name in EXERCISES:
        return EXERCISES[name]
    whole, _, step = name.rpartition(".")  # "12.kernel.1" is the first step to "12.kernel"
    for part in EXERCISES[whole].parts if step.isdecimal() and whole in EXERCISES else ():
        if part.name == name:
            return part
    parts = [part.name for exercise in EXERCISES.values() for part in exercise.parts]
    near = difflib.get_close_matches(name, [*EXERCISES, *parts], n=1)
    meant = f": do you mean {near[0]!r}?" if near else ""
    raise ValueError(f"expected the name of an exercise, one of {', '.join(EXERCISES)}, got {given!r}{meant}")
