"""Grade submitted notebooks.

    python -m flashlearn grade submissions/*/03*.ipynb
    python -m flashlearn grade --csv submissions/*/*.ipynb > results.csv
    python -m flashlearn grade --strict examination/*.ipynb

One line for each exercise: notebook, exercise, tests passed, tests, score in percent, remark. The score is the share of
the tests that passed. It is at most 25 if a core test failed, because then the answer misses the idea of the task.

Each notebook runs to its end in a process of its own, in an empty folder. The file is not changed, and outputs stored in
it do not count. An exercise that was not checked is "missing"; of several checks the best one counts. The number and title
in the file's name, anywhere in it, identify the notebook. A missing file ends the command at once, with exit code 2. A file
that is no notebook is a line of the table. Linux, macOS or WSL is needed.

With --strict, for examinations, the functions that a notebook passes to its checks are called in a process of their own.
They are compared here, and only what they return counts. notebooks/GRADING.md says what is not prevented. An answer
that calls a function for the whole task, such as torch.softmax, passes with a remark. With --own-work it fails, unless it
hides the call, for example in a thread.

`python -m flashlearn.grading` is the same command. `python -m flashlearn inventory` asks what students believe.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flashlearn.core.extras import needs
from flashlearn.core.progress import progress
from flashlearn.exercises.report import score
from flashlearn.grading import inventory, landlock
from flashlearn.grading.kernel import run_cells
from flashlearn.grading.record import NOT_ATTEMPTED, Entry
from flashlearn.grading.sandbox import GIGABYTE, closed_to_others

FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # characters that start a formula in a spreadsheet, or are skipped before one
# The same after characters that separate cells in other countries, and in pasted lists
AFTER_A_SEPARATOR = re.compile(r"""(?s)(?<=.)([;|\t\r\n][\s"']*)([=+\-@＝＋－＠])""")


class Grade(NamedTuple):
    """One line of the table: the result of one notebook's check of one exercise."""

    notebook: str
    exercise: str
    passed: int
    tests: int
    score: int  # in percent
    remark: str


def grade_notebook(
    path: Path, timeout: int = 120, memory: float = 4.0, *, strict: bool = False, own_work: bool = False
) -> list[Grade]:
    """Run the notebook and read the record of its checks; if `strict`, grade the functions that it passes to them
    instead.

    A cell that takes longer than `timeout` seconds is interrupted. `memory` is in GB, of data in any process of the
    notebook. With `strict` and `own_work` a function fails where it calls one that does the whole task.
    """
    from flashlearn.grading.notebook import (
        NotANotebook,
        code_cells,
        tests,
    )  # here: `--help` needs no PyTorch

    needs("grading", "notebooks", "IPython", "ipykernel", "jupyter_client", "nbformat")
    try:
        cells = code_cells(path)
        if strict:
            from flashlearn.grading.strict import grade_cells

            entries, problem = grade_cells(cells, timeout, int(memory * GIGABYTE), own_work)
        else:
            entries, problem = run_cells(cells, tests(), timeout, int(memory * GIGABYTE))
    except NotANotebook as error:
        entries, problem = [], str(error)
    return grades(path, entries, problem)


def grades(path: Path, entries: list[Entry], problem: str) -> list[Grade]:
    """One line for each exercise of the notebook, of several checks the best, and for any other that was checked."""
    from flashlearn.grading.notebook import chapter, exercises_of, tests

    best = {entry.exercise: entry for entry in sorted(entries, key=_merit)}  # the last of a name stays
    for number in {name[:2] for name in best} | {chapter(path)}:
        for name in exercises_of(number):
            best.setdefault(name, Entry(name, 0, tests()[name], problem or "missing"))
    if not best:
        best[""] = Entry("none", 0, 0, problem or "no exercise checked, and no number and title in the file's name")
    return [
        Grade(str(path), one.exercise, one.passed, one.tests, _percent(one), one.remark)
        for one in sorted(best.values())
    ]


def _percent(entry: Entry) -> int:
    return int(100 * score(entry.passed, entry.tests, entry.core))


def _merit(entry: Entry) -> tuple[int, int, bool]:
    return _percent(entry), entry.passed, entry.remark != NOT_ATTEMPTED


def table(grades: list[Grade]) -> Iterator[str]:
    """The grades as lines of text."""
    grades = [grade._replace(notebook=_printable(grade.notebook), remark=_printable(grade.remark)) for grade in grades]
    wide = max((len(grade.notebook) for grade in grades), default=0)
    names = max((len(grade.exercise) for grade in grades), default=0)
    for notebook, exercise, passed, tests, percent, remark in grades:
        line = f"{notebook:<{wide}}  {exercise:<{names}}  {passed:2} of {tests:2}  {percent:3} %  {remark}"
        yield line.rstrip()


def _printable(text: str) -> str:
    """Without control characters of a terminal, and without what cannot be printed."""
    return "".join(c if c.isprintable() else "?" for c in text)


def cell(value: object) -> object:
    """A value for a cell of a spreadsheet; an apostrophe keeps a text from being taken for a formula."""
    if not isinstance(value, str):
        return value
    value = value.encode(errors="backslashreplace").decode()  # a file's name need not be UTF-8
    value = AFTER_A_SEPARATOR.sub(r"\1'\2", value)
    return f"'{value}" if value.startswith(FORMULA) else value


WINDOWS = "processes of a notebook cannot be limited and ended there. Install WSL (`wsl --install`) and grade inside it"
NO_SANDBOX = (
    "expected Landlock (Linux 5.13 or later), got none: answers can read your files, the solutions among them, and use the "
    "network. Grade on such a Linux, or read the section on examinations in notebooks/GRADING.md"
)


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["inventory"]:
        return inventory.main(given[1:])
    options = _options(arguments)
    if sys.platform == "win32":
        print(f"expected Linux, macOS or WSL, got Windows: {WINDOWS}", file=sys.stderr)
        return 2
    if options.strict:
        closed_to_others()
        if not landlock.version():
            print(NO_SANDBOX, file=sys.stderr)
    done: list[Grade] = []
    try:
        if options.csv:
            csv.writer(sys.stdout).writerow(Grade._fields)
        for path in progress(options.notebooks, "Grading", "notebook", delay=0):
            new = grade_notebook(
                path, options.timeout, options.memory, strict=options.strict, own_work=options.own_work
            )
            done += new
            if options.csv:
                csv.writer(sys.stdout).writerows(map(cell, grade) for grade in new)
                sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"interrupted: {path} and what follows is not graded", file=sys.stderr)
        return 130
    finally:
        if not options.csv:
            print("\n".join(table(done)))
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m flashlearn grade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--csv", action="store_true", help="print comma-separated values, a notebook's when it is done")
    parser.add_argument("--strict", action="store_true", help="for examinations: call the functions, compare here")
    own_work = (
        "with --strict: an answer fails where it calls a function that does the whole task, such as torch.softmax"
    )
    parser.add_argument("--own-work", action="store_true", help=own_work)
    timeout = "seconds for a cell, or a function (default: 120); a notebook has 15 times that"
    parser.add_argument("--timeout", type=int, default=120, help=timeout)
    parser.add_argument("--memory", type=float, default=4.0, help="GB for one process (default: 4)")
    options = parser.parse_args(arguments)
    from flashlearn.exercises.checking import EXERCISES

    if options.own_work and not options.strict:
        parser.error("expected --own-work together with --strict, got it alone: add --strict")
    added = [name for name, exercise in EXERCISES.items() if not exercise.solution.__module__.startswith("flashlearn.")]
    if added and not options.strict:
        parser.error(
            f"expected --strict with {', '.join(added)}, an exercise of your own. Without it the checks run where the notebook "
            "runs, and only the exercises of the package are known there"
        )
    for path in options.notebooks:
        if not path.is_file() or not os.access(path, os.R_OK):
            parser.error(f"expected files that can be read, got {str(path)!r}")
    for name in ("timeout", "memory"):
        if not getattr(options, name) > 0:
            parser.error(f"expected --{name} above 0, got {getattr(options, name)}")
    if options.memory * GIGABYTE > sys.maxsize:  # inf, too
        parser.error(f"expected --memory of at most {sys.maxsize / GIGABYTE:.0f}, got {options.memory}")
    return options


if __name__ == "__main__":
    sys.exit(main())
