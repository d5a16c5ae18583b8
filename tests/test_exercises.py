"""Every exercise: its solution passes, an untouched stub is not attempted, planted mistakes are caught."""

import importlib

import pytest
import torch

from flashlearn import exercises
from flashlearn.exercises import EXERCISES, check
from flashlearn.exercises.grading import largest_error

MISTAKES = {
    name: planted
    for module in sorted({exercise.solution.__module__.rsplit(".", 1)[1] for exercise in EXERCISES.values()})
    for name, planted in importlib.import_module(f"tests.mistakes.{module}").MISTAKES.items()
}


@pytest.mark.parametrize("name", EXERCISES)
def test_solution_passes(name):
    report = check(name, EXERCISES[name].solution)
    assert report.passed, repr(report)


@pytest.mark.parametrize("name", EXERCISES)
def test_stub_is_not_attempted(name):
    def stub(*args, **kwargs):
        raise NotImplementedError("your turn")

    report = check(name, stub)
    assert not report.attempted and not report.passed
    assert repr(report) == f"Exercise {name}: not attempted"
    assert "not attempted" in report._repr_html_()


@pytest.mark.parametrize("name", EXERCISES)
def test_nothing_a_student_writes_raises(name):
    for function in (lambda *a, **k: 1 / 0, lambda *a, **k: None, lambda *a, **k: "?", lambda: 0):
        report = check(name, function)
        assert report.attempted and not report.passed


@pytest.mark.parametrize("name", EXERCISES)
def test_at_least_three_mistakes_are_planted(name):
    assert len(MISTAKES.get(name, ())) >= 3


@pytest.mark.parametrize(
    ("name", "wrong", "function", "case"),
    [(name, *planted) for name, several in MISTAKES.items() for planted in several],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistake_is_caught_by_the_case_meant_for_it(name, wrong, function, case):
    assert case in {known.name for known in EXERCISES[name].cases}
    report = check(name, function)
    failed = {row.case for row in report.rows if not row.passed}
    assert case in failed, f"{wrong}: expected {case!r} to fail, failed were {failed or 'none'}"
    assert next(row.hint for row in report.rows if row.case == case) in repr(report)


def test_unknown_exercise_says_which_there_are():
    with pytest.raises(ValueError, match=r"expected the name of an exercise, one of 00\.scores.*got '99.x'"):
        check("99.x", print)


def test_not_a_function():
    with pytest.raises(TypeError, match="expected a function for exercise 03.merge, got int"):
        check("03.merge", 3)


def test_partly_written_answer_is_attempted():
    def half(x):
        if x.ndim == 1:
            return torch.softmax(x, -1)
        raise NotImplementedError

    report = check("01.softmax", half)
    assert report.attempted and not report.passed


def test_largest_error():
    inf, nan = float("inf"), float("nan")
    assert largest_error((1.0, torch.tensor([2.0, nan])), (1.0, torch.tensor([2.5, nan]))) == 0.5
    assert largest_error(torch.tensor(inf), torch.tensor(inf)) == 0
    assert largest_error(torch.tensor(nan), torch.tensor(0.0)) == inf
    assert largest_error(torch.tensor(inf), torch.tensor(1.0)) == inf
    with pytest.raises(ValueError, match=r"expected shape \(2,\), got \(1,\)"):
        largest_error(torch.zeros(1), torch.zeros(2))


def test_every_module_of_exercises_is_listed():
    from pathlib import Path

    files = {path.stem for path in Path(exercises.__file__).parent.glob("*.py")} - {"__init__", "grading"}
    assert files == {exercise.solution.__module__.rsplit(".", 1)[1] for exercise in EXERCISES.values()}
