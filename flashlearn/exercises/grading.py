"""How an exercise is graded, and the table that says so."""

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
class Exercise:
    """A task, the tests that grade it, and a solution that passes them."""

    name: str
    task: str
    solution: Callable
    cases: tuple[Case, ...]


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

    def __repr__(self) -> str:
        lines = [self.headline]
        wide = max((len(row.case) for row in self.rows), default=0)
        for row in self.rows:
            lines.append(f"  {'pass' if row.passed else 'FAIL'}  {row.case:<{wide}}  {row.detail}")
            if not row.passed:
                lines.append(f"        hint: {row.hint}")
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
        return f"<table><caption><b>{self.headline}</b></caption><tr>{head}</tr>{cells}</table>"


def grade(exercise: Exercise, function: Callable) -> Report:
    """Run every case; a stub that raises NotImplementedError in all of them is not attempted."""
    if not callable(function):
        raise TypeError(f"expected a function for exercise {exercise.name}, got {type(function).__name__}")
    rows = tuple(_outcome(case, function) for case in exercise.cases)
    untouched = all(row.detail.startswith("NotImplementedError") for row in rows)
    return Report(exercise.name, () if untouched else rows)


def _outcome(case: Case, function: Callable) -> Row:
    try:
        got, expected = case.compare(function)
        error = largest_error(got, expected)
    except Exception as problem:  # whatever a student's function raises belongs in the table
        return Row(case.name, False, f"{type(problem).__name__}: {problem}", case.hint)
    return Row(case.name, error <= case.tolerance, f"{error:.1e}", case.hint)


def largest_error(got: Any, expected: Any) -> float:
    """The largest absolute difference; infinite where shapes, NaN or infinities differ."""
    if isinstance(expected, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(expected):
            raise TypeError(f"expected {len(expected)} values, got {_describe(got)}")
        return max((largest_error(g, e) for g, e in zip(got, expected, strict=True)), default=0.0)
    if got is None or not isinstance(got, torch.Tensor | int | float):
        raise TypeError(f"expected {_describe(expected)}, got {_describe(got)}")
    g, e = (torch.as_tensor(t).detach().double().cpu() for t in (got, expected))
    if g.shape != e.shape:
        raise ValueError(f"expected shape {tuple(e.shape)}, got {tuple(g.shape)}")
    same = (g == e) | (g.isnan() & e.isnan())
    difference = torch.where(same, 0.0, (g - e).abs().nan_to_num(nan=INF, posinf=INF))
    return difference.max().item() if difference.numel() else 0.0


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{len(value)} values" if isinstance(value, tuple | list) else f"{type(value).__name__} {value!r}"
