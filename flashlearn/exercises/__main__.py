"""Grade notebooks that were handed in: run them, and print what their checks say.

    python -m flashlearn.exercises submissions/*/03*.ipynb
    python -m flashlearn.exercises --csv submissions/*/*.ipynb > results.csv

Each notebook runs in a kernel of its own, in its folder, to the end, whatever fails on the way; the file is not
changed. An exercise of the notebook that was not checked is "missing"; of several checks the best one counts.
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
from flashlearn.exercises import EXERCISES

RESULT = re.compile(r"Exercise (\S+): (?:not attempted|(\d+) of (\d+) (?:tests passed|mutants killed))")
DIAGNOSIS = re.compile(r"This is what you get if .*")


class Grade(NamedTuple):
    """One line of the table: what one notebook's check of one exercise said."""

    notebook: str
    exercise: str
    passed: int
    tests: int
    remark: str


def grade_notebook(path: Path, timeout: int = 120) -> list[Grade]:
    """Run the notebook and read its checks. A cell that takes longer than `timeout` seconds is interrupted."""
    texts, problem = _run(path, timeout)
    best: dict[str, Grade] = {}
    for text in texts:
        for name, passed, tests in RESULT.findall(text):
            diagnosis = DIAGNOSIS.search(text)
            remark = "not attempted" if not tests else diagnosis.group() if diagnosis else ""
            grade = Grade(str(path), name, int(passed or 0), int(tests or _tests(name)), remark)
            if name not in best or grade.passed > best[name].passed:
                best[name] = grade
    number = re.search(r"\d\d(?=_)", path.stem)
    chapters = {name[:3] for name in best} | ({f"{number.group()}."} if number else set())
    expected = [name for name in EXERCISES if name[:3] in chapters]
    for name in expected:
        best.setdefault(name, Grade(str(path), name, 0, _tests(name), problem or "missing"))
    if not best:
        best[""] = Grade(str(path), "-", 0, 0, problem or "no check of an exercise in it")
    return sorted(best.values(), key=lambda grade: grade.exercise)


def _tests(name: str) -> int:
    return len(EXERCISES[name].cases) if name in EXERCISES else 0


def _run(path: Path, timeout: int) -> tuple[list[str], str]:
    """The plain text of all results, and what ended the run early, if anything did."""
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # the python3 kernel of this environment
    needs("grading", "course", "nbclient", "nbformat")
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import DeadKernelError

    try:
        notebook = nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        return [], f"not a notebook: {type(error).__name__}"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []  # what was handed in as output does not count
    client = NotebookClient(
        notebook,
        timeout=timeout,
        interrupt_on_timeout=True,
        allow_errors=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    problem = ""
    try:
        client.execute()
    except DeadKernelError:
        problem = "the kernel died"
    results = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return [out.data.get("text/plain", "") for out in results if out.output_type == "execute_result"], problem


def table(grades: list[Grade]) -> Iterator[str]:
    """The grades as lines of text."""
    wide = [max(len(row.notebook) for row in grades), max(len(row.exercise) for row in grades)]
    for grade in grades:
        yield f"{grade.notebook:<{wide[0]}}  {grade.exercise:<{wide[1]}}  {grade.passed:2} of {grade.tests:2}  {grade.remark}".rstrip()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m flashlearn.exercises", description=__doc__.split("\n")[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--csv", action="store_true", help="print comma-separated values")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one cell (default: 120)")
    options = parser.parse_args(arguments)
    grades = []
    for number, path in enumerate(options.notebooks, start=1):
        print(f"{number} of {len(options.notebooks)}: {path}", file=sys.stderr)
        grades += grade_notebook(path, options.timeout)
    if options.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(Grade._fields)
        writer.writerows(grades)
    else:
        print("\n".join(table(grades)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
