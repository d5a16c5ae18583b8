"""Wrong answers that nobody planted: the check of every exercise fails each of them."""

import importlib
import itertools
import pkgutil
import re
from pathlib import Path

import pytest
import torch

from flashlearn.exercises import EXERCISES, check, checking
from tests import wrong_answers
from tests.test_exercises import LONG, WHOLE, param

FOLDER = Path(wrong_answers.__file__).parent
MODULES = [importlib.import_module(f"tests.wrong_answers.{m.name}") for m in pkgutil.iter_modules([str(FOLDER)])]
WRONG = {name: entries for module in MODULES for name, entries in module.WRONG.items()}


class Wrong:
    """What an answer does wrong, the answer, and a pattern that its report must match."""

    def __init__(self, what, function, names=""):
        self.what, self.function, self.names = what, function, names


RIGHT = [(name, Wrong(*e)) for module in MODULES for name, es in getattr(module, "RIGHT", {}).items() for e in es]
ENTRIES = [(name, Wrong(*entry)) for name, entries in WRONG.items() for entry in entries]
FIRST = {(name, right.what) for name, right in {name: right for name, right in reversed(RIGHT)}.items()}
QUICK = {(name, entry[0]) for name, entries in WRONG.items() for entry in entries[: 1 if name in LONG else 3]}
every_wrong_answer = pytest.mark.parametrize(
    ("name", "wrong"),
    [param(name, w, slow=name in WHOLE or (name, w.what) not in QUICK) for name, w in ENTRIES],
)


def code(function):
    """What a function does, whatever its name."""
    own = getattr(function, "__code__", None)
    return (own.co_code, own.co_consts, own.co_names) if own else function


@every_wrong_answer
def test_a_wrong_answer_fails(name, wrong):
    report = check(name, wrong.function)
    assert report.attempted and not report.passed, f"{wrong.what}:\n{report!r}"
    assert re.search(wrong.names, repr(report)), f"expected {wrong.names!r} in\n{report!r}"


@pytest.mark.parametrize(
    "name", [name for name in EXERCISES if name[:2] not in ("11", "12", "13") and name != "15.arrive"]
)
def test_no_two_inputs_of_a_case_are_alike(name):
    """An answer that takes one for the other must not pass. Of tensors of one value, as of no keys, there may be two."""

    def looks(*args):
        inputs = [t.reshape(-1).tolist() for t in args if isinstance(t, torch.Tensor)]
        for a, b in itertools.combinations([one for one in inputs if len(set(one)) > 1], 2):
            short = min(len(a), len(b))
            assert a[:short] != b[:short], f"two inputs that start with {a[:short]}"
        return EXERCISES[name].solution(*args)

    for case in EXERCISES[name].cases:
        case.compare(looks)


@pytest.mark.parametrize("name", EXERCISES)
def test_six_causes_none_of_them_planted(name):
    causes = [what for what, *_ in WRONG.get(name, ())]
    assert len(set(causes)) == len(causes) >= 6
    planted = EXERCISES[name].mistakes
    assert not set(causes) & {mistake.what for mistake in planted}
    assert not {code(function) for _, function, *_ in WRONG[name]} & {code(mistake.function) for mistake in planted}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_file_has_the_name_of_its_notebook_and_no_other_exercises(module):
    notebooks = {notebook.__name__.split(".")[2]: notebook for notebook in checking.NOTEBOOKS}
    notebook = notebooks[module.__name__.rpartition(".")[2]]
    assert set(module.WRONG) == {exercise.name for exercise in notebook.EXERCISES}


@pytest.mark.parametrize(
    ("name", "right"), [param(name, r, slow=name in LONG or (name, r.what) not in FIRST) for name, r in RIGHT]
)
def test_a_right_answer_written_in_another_way_passes(name, right):
    report = check(name, right.function)
    assert report.passed, repr(report)
