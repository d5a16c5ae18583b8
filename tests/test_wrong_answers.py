"""Wrong answers that nobody planted: the check of every exercise fails each of them."""

import itertools
import re

import pytest
import torch

from flashlearn.exercises import EXERCISES, check
from tests.named import every
from tests.test_exercises import LONG, WHOLE, param

RIGHT, WRONG = list(every("right")), list(every("wrong"))
FIRST = {name: answer.id for name, answer in reversed(RIGHT)}.values()
QUICK = {answer.id for name in EXERCISES for answer in [a for n, a in WRONG if n == name][: 1 if name in LONG else 3]}
every_wrong_answer = pytest.mark.parametrize(
    ("name", "wrong"),
    [param(name, wrong, slow=name in WHOLE or wrong.id not in QUICK) for name, wrong in WRONG],
)


def code(function):
    """What a function does, whatever its name, with the values of the function that made it and the kernels it launches."""
    own = getattr(function, "__code__", None)
    if not own:
        return function
    inner = [cell.cell_contents for cell in function.__closure__ or ()]
    cells = tuple(getattr(value, "__code__", repr(value)) for value in inner)
    kernels = (getattr(function.__globals__.get(name), "fn", None) for name in own.co_names)
    return own.co_code, own.co_consts, own.co_names, cells, *(code(kernel) for kernel in kernels if kernel)


@every_wrong_answer
def test_a_wrong_answer_fails(name, wrong):
    report = check(name, wrong.function)
    assert report.attempted and not report.passed, f"{wrong.what}:\n{report!r}"
    assert re.search(wrong.says, repr(report)), f"expected {wrong.says!r} in\n{report!r}"


@pytest.mark.parametrize(
    "name", [name for name in EXERCISES if name[:2] not in ("11", "12", "13") and name not in ("15.arrive", "15.wide")]
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


@pytest.mark.parametrize("name", [param(name) for name in EXERCISES])
def test_six_causes_none_of_them_planted(name):
    wrong = [answer for each, answer in WRONG if each == name]
    assert len({answer.what for answer in wrong}) == len(wrong) >= 6
    planted = EXERCISES[name].mistakes
    assert not {answer.what for answer in wrong} & {mistake.what for mistake in planted}
    assert not {code(answer.function) for answer in wrong} & {code(mistake.function) for mistake in planted}


@pytest.mark.parametrize(
    ("name", "right"), [param(name, right, slow=name in LONG or right.id not in FIRST) for name, right in RIGHT]
)
def test_a_right_answer_written_in_another_way_passes(name, right):
    report = check(name, right.function)
    assert report.passed, repr(report)
