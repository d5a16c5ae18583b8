"""How an exercise is graded, the table that says so, and the hints on the way."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

INF = float("inf")


@dataclass(frozen=True)
class Case:
    """One test: `compare(function)` returns (got, expected), numbers or tensors or tuples of them.

    It passes if shapes agree and no entry differs by more than `tolerance` (NaN and infinities must match).
    """

    name: str
    compare: Callable[[Callable], tuple[Any, Any]]
    hint: str
    tolerance: float = 1e-5


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that is often given: `function` gives it, and the case named `caught_by` must fail.

    `what` completes the sentence "This is what you get if ...".
    """

    what: str
    function: Callable
    caught_by: str


@dataclass(frozen=True)
class Exercise:
    """A task, the tests that grade it, a solution that passes them, three hints, and known wrong answers.

    The hints go from a nudge to nearly the answer. The solution is in `place`, and nowhere else.
    """

    name: str
    task: str
    solution: Callable
    cases: tuple[Case, ...]
    hints: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()

    @property
    def place(self) -> str:
        return f"flashlearn/exercises/solutions/{self.solution.__module__.rpartition('.')[2]}.py"


class Row(NamedTuple):
    """The outcome of one case: the largest error, or what went wrong; a hint if it failed."""

    case: str
    passed: bool
    detail: str
    hint: str


@dataclass(frozen=True)
class Report:
    """The outcome of an exercise; displays itself as a table."""

    exercise: str
    rows: tuple[Row, ...]  # none if not attempted
    misconceptions: tuple[str, ...] = ()  # known mistakes that give the same results

    @property
    def attempted(self) -> bool:
        return bool(self.rows)

    @property
    def passed(self) -> bool:
        return self.attempted and all(row.passed for row in self.rows)

    @property
    def headline(self) -> str:
        if not self.attempted:
            return f"Exercise {self.exercise}: not attempted"
        good = sum(row.passed for row in self.rows)
        return f"Exercise {self.exercise}: {good} of {len(self.rows)} tests passed"

    @property
    def diagnosis(self) -> str:
        """One sentence on what went wrong, empty if the answer is right or wrong in an unknown way."""
        return f"This is what you get if {', or if '.join(self.misconceptions)}." if self.misconceptions else ""

    def __repr__(self) -> str:
        lines = [self.headline]
        wide = max((len(row.case) for row in self.rows), default=0)
        for row in self.rows:
            lines.append(f"  {'pass' if row.passed else 'FAIL'}  {row.case:<{wide}}  {row.detail}")
            if not row.passed:
                lines.append(f"        hint: {row.hint}")
        if self.diagnosis:
            lines.append(f"  {self.diagnosis}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self.attempted:
            return f"<p><b>{self.headline}</b></p>"
        cells = "".join(
            f"<tr><td><b>{'✓ pass' if row.passed else '✗ FAIL'}</b></td>"
            + "".join(f'<td style="text-align:left">{html.escape(text)}</td>' for text in row[::2])
            + f'<td style="text-align:left">{"" if row.passed else html.escape(row.hint)}</td></tr>'
            for row in self.rows
        )
        head = "".join(f'<th scope="col">{name}</th>' for name in ("result", "test", "largest error", "hint"))
        table = f"<table><caption><b>{self.headline}</b></caption><tr>{head}</tr>{cells}</table>"
        return table + (f"<p>{html.escape(self.diagnosis)}</p>" if self.diagnosis else "")


@dataclass(frozen=True)
class Hint:
    """One rung of the ladder of hints of an exercise, or, past the last, where the solution is."""

    exercise: Exercise
    number: int  # from 1; one more than there are hints means the solution

    @property
    def headline(self) -> str:
        if self.number > len(self.exercise.hints):
            return f"Exercise {self.exercise.name}: no more hints"
        return f"Exercise {self.exercise.name}, hint {self.number} of {len(self.exercise.hints)}"

    @property
    def text(self) -> str:
        if self.number > len(self.exercise.hints):
            return f"The solution is in {self.exercise.place}."
        return self.exercise.hints[self.number - 1]

    def __repr__(self) -> str:
        return f"{self.headline}\n  {self.text}"

    def _repr_html_(self) -> str:
        return f"<p><b>{self.headline}</b></p><p>{html.escape(self.text)}</p>"


def grade(exercise: Exercise, function: Callable) -> Report:
    """Run every case; a stub that raises NotImplementedError in all of them is not attempted."""
    if not callable(function):
        raise TypeError(f"expected a function for exercise {exercise.name}, got {type(function).__name__}")
    outcomes = [_run(case, function) for case in exercise.cases]
    if all(isinstance(outcome.got, NotImplementedError) for outcome in outcomes):
        return Report(exercise.name, ())
    rows = tuple(
        Row(case.name, outcome.passed, outcome.detail, case.hint)
        for case, outcome in zip(exercise.cases, outcomes, strict=True)
    )
    if all(row.passed for row in rows):
        return Report(exercise.name, rows)
    shown = (mistake.what for mistake in exercise.mistakes if _shows(mistake, exercise.cases, outcomes))
    return Report(exercise.name, rows, tuple(dict.fromkeys(shown)))


class Outcome(NamedTuple):
    """What came back in one case: a value or the exception that was raised, and whether it is right."""

    got: Any
    passed: bool
    detail: str


def _run(case: Case, function: Callable) -> Outcome:
    with torch.random.fork_rng(devices=()):  # the same numbers for all, and none taken from the notebook
        torch.default_generator.manual_seed(0)
        try:
            got, expected = case.compare(function)
        except (Exception, SystemExit) as problem:  # whatever a student's function raises belongs in the table
            return Outcome(problem, False, f"{type(problem).__name__}: {problem}")
    try:
        error = largest_error(got, expected)
    except (TypeError, ValueError, RuntimeError) as problem:
        return Outcome(
            None if isinstance(problem, RuntimeError) else got, False, f"{type(problem).__name__}: {problem}"
        )
    return Outcome(got, error <= case.tolerance, f"{error:.1e}")


def _shows(mistake: Mistake, cases: tuple[Case, ...], outcomes: list[Outcome]) -> bool:
    """Whether the mistake fails the same cases with the same results; not if all it does is to raise."""
    for case, outcome in zip(cases, outcomes, strict=True):
        other = _run(case, mistake.function)
        if other.passed != outcome.passed or not alike(other.got, outcome.got):
            return False
    return any(not isinstance(outcome.got, Exception) for outcome in outcomes)


def alike(a: Any, b: Any) -> bool:
    """Whether two answers are the same up to rounding, 1e-5 of their size; exceptions by their type."""
    if isinstance(a, Exception) or isinstance(b, Exception):
        return type(a) is type(b)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(alike, a, b))
    if not all(isinstance(value, torch.Tensor | int | float) for value in (a, b)):
        return False
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    x, y = (torch.as_tensor(t, dtype=torch.float64, device="cpu").detach() for t in (a, b))
    return x.shape == y.shape and torch.allclose(x, y, rtol=1e-5, atol=1e-5, equal_nan=True)


def largest_error(got: Any, expected: Any) -> float:
    """The largest absolute difference; infinite where shapes, NaN or infinities differ."""
    if isinstance(expected, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(expected):
            raise TypeError(f"expected {len(expected)} values, got {_describe(got)}")
        return max((largest_error(g, e) for g, e in zip(got, expected, strict=True)), default=0.0)
    if got is None or not isinstance(got, torch.Tensor | int | float):
        raise TypeError(f"expected {_describe(expected)}, got {_describe(got)}")
    g, e = (torch.as_tensor(t, dtype=torch.float64, device="cpu").detach() for t in (got, expected))
    if g.shape != e.shape:
        raise ValueError(f"expected shape {tuple(e.shape)}, got {tuple(g.shape)}")
    same = (g == e) | (g.isnan() & e.isnan())
    difference = torch.where(same, 0.0, (g - e).abs().nan_to_num(nan=INF, posinf=INF))
    return difference.max().item() if difference.numel() else 0.0


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{len(value)} values" if isinstance(value, tuple | list) else f"{type(value).__name__} {value!r}"
