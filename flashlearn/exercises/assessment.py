"""Grade an exercise: run every case, and find the cause of a wrong answer.

A hint belongs to the cause, not to the case. The report on a wrong answer has the first that applies of these:

1. the known mistake that gives the same wrong numbers;
2. the first question of `causes` that it gets wrong;
3. a known mistake that gives NaN, infinities or an error in the same places;
4. the error that it raised, with its line;
5. the relation of its results to the right ones;
6. the hint of the first case that fails.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch

from flashlearn.core.progress import progress
from flashlearn.exercises.answers import Answer
from flashlearn.exercises.calling import ByTheLibrary, Called
from flashlearn.exercises.findings import compare, of_another_form
from flashlearn.exercises.raised import by_the_check, explain, unwrapped
from flashlearn.exercises.report import Note, Report, Row
from flashlearn.exercises.watching import WrongWay

INF = float("inf")
T = TypeVar("T")
Cause = Callable[[Callable], str]  # a question to an answer: its finding in a sentence, or nothing
Causes = tuple[Cause, ...]
Rows = tuple[Row, ...]


@dataclass(frozen=True)
class Case:
    """One test: `compare(function)` returns (got, expected), numbers or tensors or tuples of them.

    It passes if shapes agree and no entry differs by more than `tolerance` (NaN and infinities must match). The first
    case of an exercise is the plain one; each of the others adds one difficulty, and `hint` is about it.
    """

    name: str
    compare: Callable[[Callable], tuple[Any, Any]]
    hint: str
    tolerance: float = 1e-5
    step: int = 0  # of the path to an answer that is written in steps: the first step that must pass it


@dataclass(frozen=True)
class Part:
    """A step on the way to a long answer, with three hints of its own."""

    task: str
    hints: tuple[str, ...]


@dataclass(frozen=True)
class Exercise:
    """A task, the tests that grade it, a solution that passes them, three hints, and known mistakes.

    In its file an exercise has the name "merge", and no mistakes and causes: the course adds them, and the name becomes
    "03.merge", `id` "online_softmax.merge".
    The hints go from a nudge to the shape of the answer. The solution is in `solution_file`, and nowhere else. A long answer has
    a `path`: steps that are checked by themselves, "12.kernel.1" and so on, each by the cases of the steps up to it.
    """

    name: str
    task: str
    solution: Callable
    cases: tuple[Case, ...]
    hints: tuple[str, ...] = ()
    mistakes: tuple[Answer, ...] = ()
    values: tuple[str, ...] = ()  # the names of the returned values, if there are several
    path: tuple[Part, ...] = ()
    writes: tuple[str, ...] = ()  # inputs that the task has overwritten; an answer leaves all others as they are
    library: tuple[str, ...] = ()  # calls that do the whole task, "flashlearn" for any algorithm of this package
    core: tuple[str, ...] = ()  # cases after the first without which the idea is missed
    causes: Causes = ()
    id: str = ""

    def is_core(self, case: Case) -> bool:
        """Whether an answer that fails the case has missed the idea: its score is at most a quarter."""
        return case is self.cases[0] or case.name in self.core

    @property
    def in_a_kernel(self) -> bool:
        """Whether the answer is compiled or simulated inside a kernel, so that no Python function is called."""
        return bool({"tl", "gl"} & getattr(self.solution, "__globals__", {}).keys())

    @property
    def parts(self) -> tuple[Exercise, ...]:
        """The steps of the path as exercises of their own; a mistake counts where a case is there that catches it."""
        return tuple(self._part(number, part) for number, part in enumerate(self.path, start=1))

    def _part(self, number: int, part: Part) -> Exercise:
        cases = tuple(case for case in self.cases if case.step <= number)
        known = tuple(mistake for mistake in self.mistakes if mistake.caught_by in {case.name for case in cases})
        return Exercise(f"{self.name}.{number}", part.task, self.solution, cases, part.hints, known, self.values)

    @property
    def solution_file(self) -> str:
        return f"flashlearn/course/{self.solution.__module__.split('.')[2]}/solutions.py"


def unlimited(action: Callable[[], T], otherwise: T) -> T:
    """The result of `action`, without a limit of time."""
    return action()


def grade(
    exercise: Exercise,
    function: Callable,
    *,
    own_work: bool = False,
    limited: Callable[[Callable[[], Any], Any], Any] = unlimited,
) -> Report:
    """Run every case; a stub that raises NotImplementedError in all of them is not attempted.

    With `own_work` an answer fails where it calls a function that does the whole task, of PyTorch or of this package.
    Without it, such an answer passes with a remark. `limited(action, otherwise)` returns the result of `action`, or
    `otherwise` if that takes too long. It limits each case, and the search for the cause.
    """
    if not callable(function):
        raise TypeError(f"expected a function for exercise {exercise.name}, got {type(function).__name__}")
    called = Called(function, exercise.solution, exercise.writes, exercise.library)
    answer = function if exercise.in_a_kernel else called
    cases = progress(exercise.cases, f"Exercise {exercise.name}", "test")
    outcomes = [limited(functools.partial(_run, case, answer), LATE) for case in cases]
    if own_work and called.helped:
        outcomes = [_forbidden(outcome, called.helped) for outcome in outcomes]
    if all(type(outcome.got) is NotImplementedError for outcome in outcomes):
        return Report(exercise.name, ())
    rows = tuple(
        Row(case.name, outcome.passed, outcome.detail, core=exercise.is_core(case))
        for case, outcome in zip(exercise.cases, outcomes, strict=True)
    )
    if all(row.passed for row in rows):
        text = f"right; the library did the work: {' and '.join(called.helped)}. Write the steps yourself to practise them."
        return Report(exercise.name, rows, (), (Note("library", text),) if called.helped else ())
    return limited(lambda: _explained(exercise, function, rows, outcomes), Report(exercise.name, rows))


def _forbidden(outcome: Outcome, names: tuple[str, ...]) -> Outcome:
    """The outcome where these may not be called: a right one becomes wrong."""
    problem = ByTheLibrary(f"expected the steps in your own code, got a call of {' and '.join(names)}")
    return Outcome(problem, False, problem.detail) if outcome.passed else outcome


def _explained(exercise: Exercise, function: Callable, rows: Rows, outcomes: list[Outcome]) -> Report:
    """The report on a wrong answer, in the order of this module's docstring."""
    report = functools.partial(Report, exercise.name)
    known, firm = _mistakes(exercise, outcomes)
    if firm and known:
        return report(rows, known)
    raised = _raised(rows, outcomes)
    returned = [outcome for outcome in outcomes if not isinstance(outcome.got, BaseException)]
    if not returned and len(raised) == 1:
        return report(rows, (), raised)
    if coarse := _coarse(outcomes):
        return report(rows, (), (Note("seen", _digits(coarse)),))
    # results of another form get no questions: one would take m for l
    silent = any(of_another_form(outcome.got, outcome.expected) for outcome in returned)
    silent = silent or all(out.passed or isinstance(out.got, WrongWay) for out in outcomes)
    if not silent and (why := next(filter(None, (_ask(cause, function) for cause in exercise.causes)), "")):
        return report(rows, (), (*raised, Note("why", why)))
    if known:
        return report(_hinted(exercise, rows, outcomes), known, raised)
    at = _rounded(exercise, outcomes)
    if at is not None:
        error = relative_error(outcomes[at].got, outcomes[at].expected)
        note = Note("seen", f'in "{rows[at].case}" {_digits(error)}')
        return report(_with_hint(exercise, rows, at) if at else rows, (), (*raised, note))
    seen = _seen(exercise, outcomes)
    plain = not (seen or raised)  # there is nothing else to say
    return report(_hinted(exercise, rows, outcomes, plain), (), (*raised, *seen))


def _with_hint(exercise: Exercise, rows: Rows, at: int) -> Rows:
    return (*rows[:at], rows[at]._replace(hint=exercise.cases[at].hint), *rows[at + 1 :])


def _hinted(exercise: Exercise, rows: Rows, outcomes: list[Outcome], plain: bool = False) -> Rows:
    """The rows, with a hint at the first that fails: it is about the difficulty of its case.

    There is none if the plain case fails, unless there is nothing else to say. There is none either if the case is
    about the last digits, by its tolerance, and more is wrong than these.
    """
    at = next(n for n, row in enumerate(rows) if not row.passed)
    of_digits = exercise.cases[at].tolerance < exercise.cases[0].tolerance / 10
    if of_digits and relative_error(outcomes[at].got, outcomes[at].expected) > 1e-5:
        return rows
    return _with_hint(exercise, rows, at) if at or plain else rows


def _digits(error: float) -> str:
    return f"right to {int(-math.log10(error))} digits and no more: something is rounded or added on the way, or the dtype changes"


class Outcome(NamedTuple):
    """The outcome of one case: a value or the exception that was raised, and whether it is right."""

    got: Any
    passed: bool
    detail: str
    expected: Any = None


LATE = Outcome(TimeoutError("the comparison took too long"), False, "raised TimeoutError")


def _run(case: Case, function: Callable) -> Outcome:
    with torch.random.fork_rng(devices=()):  # the same numbers for all, and none taken from the notebook
        torch.default_generator.manual_seed(0)
        try:
            got, expected = case.compare(function)
            got = without_numpy(got)
        except WrongWay as problem:
            return Outcome(problem, False, problem.detail)
        except (Exception, SystemExit) as problem:  # whatever a student's function raises belongs in the table
            raised = f"raised {type(unwrapped(problem)).__name__}"
            return Outcome(problem, False, "not what is expected" if by_the_check(problem) else raised)
    try:
        error = largest_error(got, expected)
    except (TypeError, ValueError) as problem:
        return Outcome(got, False, str(problem), expected)
    except RuntimeError as problem:  # a tensor without numbers
        return Outcome(None, False, f"{type(problem).__name__}: {problem}", expected)
    return Outcome(got, error <= case.tolerance, f"{error:.1e}", expected)


def without_numpy(value: Any) -> Any:
    """NumPy's numbers as Python's, in tuples and lists, too: an answer may be either."""
    if isinstance(value, tuple | list):
        return [*map(without_numpy, value)] if isinstance(value, list) else tuple(map(without_numpy, value))
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") and not value.shape else value


def _no_warnings() -> AbstractContextManager:
    """NumPy says nothing of what overflows, where anything has imported it."""
    return sys.modules["numpy"].errstate(all="ignore") if sys.modules.get("numpy") else nullcontext()


_run_known = functools.lru_cache(maxsize=4096)(_run)  # a known mistake does the same at every check of a session


def _mistakes(exercise: Exercise, outcomes: list[Outcome]) -> tuple[tuple[str, ...], bool]:
    """The known mistakes with the same results, and whether a finite wrong number shows them."""
    shown = [mistake.what for mistake in exercise.mistakes if _shows(mistake, exercise.cases, outcomes)]
    firm = any(not outcome.passed and _wrong_number(outcome.got, outcome.expected) for outcome in outcomes)
    return tuple(dict.fromkeys(shown)), firm


def _shows(mistake: Answer, cases: tuple[Case, ...], outcomes: list[Outcome]) -> bool:
    """Whether the mistake fails the same cases with the same results; not if it only raises."""
    if all(isinstance(outcome.got, BaseException) for outcome in outcomes):
        return False
    for case, outcome in zip(cases, outcomes, strict=True):
        other = _run_known(case, mistake.function)
        if other.passed != outcome.passed or not alike(other.got, outcome.got):
            return False
        if not outcome.passed and _farther(other.got, outcome):
            return False
    return True


def _farther(other: Any, outcome: Outcome) -> bool:
    """Whether the two are no nearer to each other than to the right results, as with different rounding."""
    between, error = relative_error(other, outcome.got), relative_error(outcome.got, outcome.expected)
    return math.isfinite(error) and math.isfinite(between) and between > 0.5 * error


def _wrong_number(got: Any, expected: Any) -> bool:
    """Whether there is a finite number that is wrong, or a shape."""
    if isinstance(got, tuple | list) and isinstance(expected, tuple | list):
        return len(got) != len(expected) or any(map(_wrong_number, got, expected))
    if not all(isinstance(value, torch.Tensor | int | float) for value in (got, expected)):
        return False
    if isinstance(got, float) and isinstance(expected, float) and {got, expected} == {0.0, 1.0}:
        return False  # a verdict, which is right by chance in one case of two
    g, e = _float64(got, expected)
    return g.shape != e.shape or bool((g.isfinite() & ~torch.isclose(g, e, rtol=1e-5, atol=1e-6)).any())


def _ask(cause: Cause, function: Callable) -> str:
    """The finding of this question about the answer; nothing if it raises."""
    with torch.random.fork_rng(devices=()), _no_warnings():
        torch.default_generator.manual_seed(0)
        try:
            return cause(function)
        except (Exception, SystemExit):  # a question that the answer cannot take says nothing about it
            return ""


def _raised(rows: Rows, outcomes: list[Outcome]) -> tuple[Note, ...]:
    """The errors raised, each once, and the tests in which, if not in all."""
    found: dict[tuple[str, type, str], tuple[str, list[str]]] = {}
    for row, outcome in zip(rows, outcomes, strict=True):
        if isinstance(outcome.got, BaseException):
            error = explain(outcome.got)
            ruled_out = isinstance(outcome.got, WrongWay)
            kind = "why" if ruled_out else "seen" if by_the_check(outcome.got) else "error"
            key = kind, type(unwrapped(outcome.got)), error.line or error.plain if kind == "error" else ""
            text = f"raised {error.text}" if kind == "error" else str(outcome.got)
            found.setdefault(key, (text, []))[1].append(row.case)
    notes = []
    for (kind, _, _), (text, cases) in found.items():
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        where = "every test" if len(cases) == len(rows) else f'"{cases[0]}"{more}'
        notes.append(Note(kind, f"{where} {text}" if kind == "error" else f"in {where} {text}"))
    return tuple(notes)


def _coarse(outcomes: list[Outcome]) -> float:
    """The largest error as a part of its tensor, if all that fail are right to two digits or more; 0 if not."""
    wrong = [outcome for outcome in outcomes if not outcome.passed]
    if not all(isinstance(outcome.expected, torch.Tensor | tuple | list) for outcome in wrong):
        return 0.0
    errors = [relative_error(outcome.got, outcome.expected) for outcome in wrong]
    return max(errors) if len(errors) > 1 and 1e-5 < min(errors) and max(errors) < 1e-2 else 0.0


def _rounded(exercise: Exercise, outcomes: list[Outcome]) -> int | None:
    """The first case with a small tolerance that fails by its last digits alone, if the plain case does not fail."""
    for n, (case, outcome) in enumerate(zip(exercise.cases, outcomes, strict=True)):
        if not outcome.passed and case.tolerance < 1e-6 and 0 < relative_error(outcome.got, outcome.expected) < 1e-5:
            return n
        if not n and not outcome.passed:
            return None
    return None


def _seen(exercise: Exercise, outcomes: list[Outcome]) -> tuple[Note, ...]:
    """The relation of the wrong results to the right ones: of all tests that fail, or of the first."""
    wrong = [
        (case.name, compare(outcome.got, outcome.expected, exercise.values, case.tolerance))
        for case, outcome in zip(exercise.cases, outcomes, strict=True)
        if not outcome.passed and not isinstance(outcome.got, BaseException)
    ]
    if not wrong or not wrong[0][1]:
        return ()
    name, text = wrong[0]
    everywhere = len(wrong) > 1 and all(other == text for _, other in wrong)
    return (Note("seen", text if everywhere else f'in "{name}" {text}'),)


def _float64(*values: Any) -> tuple[torch.Tensor, ...]:
    return tuple(torch.as_tensor(value, dtype=torch.float64, device="cpu").detach() for value in values)


def alike(a: Any, b: Any) -> bool:
    """Whether two answers are the same up to rounding, 1e-5 of their size; exceptions if they have the same text."""
    if isinstance(a, BaseException) or isinstance(b, BaseException):
        return type(a) is type(b) and str(a) == str(b)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(alike, a, b))
    if not all(isinstance(value, torch.Tensor | int | float) for value in (a, b)):
        return False
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    x, y = _float64(a, b)
    return x.shape == y.shape and torch.allclose(x, y, rtol=1e-5, atol=1e-5, equal_nan=True)


def largest_error(got: Any, expected: Any) -> float:
    """The largest absolute difference; infinite where shapes, NaN or infinities differ."""
    if isinstance(expected, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(expected):
            raise TypeError(f"expected {len(expected)} values, got {_describe(got)}")
        return max((largest_error(g, e) for g, e in zip(got, expected, strict=True)), default=0.0)
    if got is None or not isinstance(got, torch.Tensor | int | float):
        raise TypeError(f"expected {_describe(expected)}, got {_describe(got)}")
    g, e = _float64(got, expected)
    if g.shape != e.shape:
        raise ValueError(f"expected shape {tuple(e.shape)}, got {tuple(g.shape)}")
    same = (g == e) | (g.isnan() & e.isnan())
    difference = torch.where(same, 0.0, (g - e).abs().nan_to_num(nan=INF, posinf=INF))
    return difference.max().item() if difference.numel() else 0.0


def relative_error(got: Any, expected: Any) -> float:
    """The largest error of a value as a part of its largest entry; infinite where it is no matter of digits."""
    if isinstance(expected, tuple | list):
        same_kind = isinstance(got, tuple | list) and len(got) == len(expected)
        return max(map(relative_error, got, expected), default=0.0) if same_kind else INF
    if isinstance(expected, int) or not isinstance(got, torch.Tensor | int | float):
        return INF
    g, e = _float64(got, expected)
    if g.shape != e.shape or not g.isfinite().all() or not e.isfinite().all():
        return 0.0 if g.shape == e.shape and torch.equal(g, e) else INF
    if not g.numel():
        return 0.0
    return ((g - e).abs().max() / (e.abs().max() if e.any() else 1)).item()


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{len(value)} values" if isinstance(value, tuple | list) else f"{type(value).__name__} {value!r}"
