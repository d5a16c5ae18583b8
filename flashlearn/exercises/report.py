"""The reports of `check` and `hint`, and the file for a grading run (`flashlearn.grading`).

A grading run names the file and a token in the environment of the notebook's process. Without these nothing is written.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

FILE, TOKEN = "FLASHLEARN_RECORD", "FLASHLEARN_RECORD_TOKEN"


class Row(NamedTuple):
    """The outcome of one case: the largest error, or a finding; a hint if the case failed by its own difficulty."""

    case: str
    passed: bool
    detail: str
    hint: str = ""
    core: bool = False  # without it the idea is missed


class Note(NamedTuple):
    """A remark below the table."""

    # "error": what the answer raised; "seen": what the wrong results have in common; "why": their cause; "library": a
    # right answer called a function that does the whole task
    kind: str
    text: str


MOST_WITHOUT_CORE = 0.25  # the score of an answer that misses the idea of a task, at most


def score(passed: int, tests: int, core: bool) -> float:
    """The share of tests that passed, at most a quarter where a core test failed; 0 for no tests.

    >>> score(7, 10, core=True), score(7, 10, core=False), score(1, 10, core=False)
    (0.7, 0.25, 0.1)
    """
    share = passed / tests if tests else 0.0
    return share if core else min(share, MOST_WITHOUT_CORE)


@dataclass(frozen=True)
class Report:
    """The outcome of an exercise; displays itself as a table."""

    exercise: str
    rows: tuple[Row, ...]  # none if not attempted
    misconceptions: tuple[str, ...] = ()  # known mistakes that give the same results
    notes: tuple[Note, ...] = ()

    @property
    def attempted(self) -> bool:
        return bool(self.rows)

    @property
    def passed(self) -> bool:
        return self.attempted and all(row.passed for row in self.rows)

    @property
    def core_passed(self) -> bool:
        return all(row.passed for row in self.rows if row.core)

    @property
    def score(self) -> float:
        """The share of the tests that passed; at most a quarter if a core test failed."""
        return score(sum(row.passed for row in self.rows), len(self.rows), self.core_passed)

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

    @property
    def summary(self) -> str:
        """One sentence for the table of a class: the diagnosis, the first "why", or the library that a right answer called."""
        return self.diagnosis or next((text for kind, text in self.notes if kind in ("why", "library")), "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is below the table, a paragraph each."""
        notes = tuple(f"{kind}: {text}" for kind, text in self.notes)
        return (*notes, self.diagnosis) if self.diagnosis else notes

    def __repr__(self) -> str:
        lines = [self.headline]
        wide = max((len(row.case) for row in self.rows), default=0)
        for row in self.rows:
            lines.append(f"  {'pass' if row.passed else 'FAIL'}  {row.case:<{wide}}  {row.detail}")
            if row.hint:
                lines.append(f"        hint: {row.hint}")
        for remark in self.remarks:
            lines += [f"  {line}" for line in remark.splitlines()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self.attempted:
            return f"<p><b>{self.headline}</b></p>"
        columns = 4 if any(row.hint for row in self.rows) else 3
        head = "".join(
            f'<th scope="col">{title}</th>' for title in ("result", "test", "largest error", "hint")[:columns]
        )
        table = f"<table><caption><b>{self.headline}</b></caption><tr>{head}</tr>"
        for row in self.rows:
            texts = (row.case, row.detail, row.hint)[: columns - 1]
            cells = "".join(f'<td style="text-align:left">{html.escape(text)}</td>' for text in texts)
            table += f"<tr><td><b>{'✓ pass' if row.passed else '✗ FAIL'}</b></td>{cells}</tr>"
        return f"{table}</table>" + "".join(
            f"<p>{html.escape(text).replace(chr(10), '<br>')}</p>" for text in self.remarks
        )


@dataclass(frozen=True)
class Hint:
    """A hint for an exercise, or, past the last one, the sentence that says where the solution is."""

    headline: str
    text: str

    def __repr__(self) -> str:
        return f"{self.headline}\n  {self.text}"

    def _repr_html_(self) -> str:
        return f"<p><b>{self.headline}</b></p><p>{html.escape(self.text)}</p>"


def leave(exercise: str, passed: Sequence[bool], remark: str = "", core: bool = True) -> None:
    """Note which tests passed, none if the exercise was not attempted; `core` says whether all core tests passed."""
    if path := os.environ.get(FILE):
        token = os.environ.get(TOKEN, "")
        line = json.dumps([token, exercise, sum(map(bool, passed)), len(passed), remark, core])
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
