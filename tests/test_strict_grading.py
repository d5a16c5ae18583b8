"""Grading of examinations: what counts is what a function returns, and nothing that is said about it."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest
import torch

from flashlearn.exercises import EXERCISES, NOTEBOOKS
from flashlearn.exercises.__main__ import grade_notebook
from flashlearn.exercises.mutation_lab import MUTANTS
from flashlearn.exercises.submissions.strict import grade_cells
from flashlearn.exercises.submissions.wire import HEAD, Channel, WireError, error_of
from tests.slow import slow
from tests.test_grading_command import submission

SOLUTIONS = Path("flashlearn/exercises/solutions")
TESTS = {name: len(exercise.cases) for name, exercise in EXERCISES.items()}
FIRST = "import math, torch\nfrom flashlearn.exercises import check, hint"
MEMORY = 4 * 2**30


def graded(*cells, timeout=120):
    """{exercise: (passed, remark)} of the best that the cells hand in."""
    entries, problem = grade_cells([FIRST, *cells], timeout, MEMORY)
    best = {entry.exercise: entry for entry in sorted(entries, key=lambda entry: entry.passed)}
    return {name: (entry.passed, entry.remark) for name, entry in best.items()}, problem


def solved(module):
    """Cells that hand in the solutions of a notebook as a student who had found them: by their source."""
    number, name = module.EXERCISES[0].name[:2], module.__name__.rpartition(".")[2]
    yield (SOLUTIONS / f"{name}.py").read_text()
    if number in ("12", "13"):
        yield "import triton.language as tl"
    for exercise in module.EXERCISES:
        function = exercise.solution.__name__
        yield f'check("{exercise.name}", {function.removesuffix("_solution") if number == "11" else function})'
    if number == "12":
        yield (SOLUTIONS / "mutation_lab.py").read_text()
        yield "from flashlearn.exercises.mutation_lab import run_lab\nrun_lab(test_scale, test_causal)"


def right(*names):
    """Cells that hand in right answers to these exercises of notebooks with plain functions."""
    for module in NOTEBOOKS:
        mine = [exercise for exercise in module.EXERCISES if exercise.name in names]
        if mine:
            yield (SOLUTIONS / f"{module.__name__.rpartition('.')[2]}.py").read_text()
        for exercise in mine:
            yield f'check("{exercise.name}", {exercise.solution.__name__})'


@pytest.mark.slow
def test_every_right_answer_passes():
    """All kinds of inputs cross, functions and GPUs too, and so does what is watched."""
    found, problem = graded(*(cell for module in NOTEBOOKS for cell in solved(module)), timeout=300)
    killed, _ = found.pop("12.mutants")
    assert found == {name: (tests, "") for name, tests in TESTS.items()}
    assert 2 <= killed < len(MUTANTS), "two tests kill their mutants, and no others"
    assert problem == ""
