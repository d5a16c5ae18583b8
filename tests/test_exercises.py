"""Every exercise: its solution passes, known mistakes are caught and named, stubs and solutions agree."""

import ast
import copy
import importlib.util
import inspect
import math
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

if importlib.util.find_spec("triton"):
    import flashlearn.kernels

import flashlearn as fl
from flashlearn import course
from flashlearn.course.serving.solutions import waste_solution
from flashlearn.exercises import EXERCISES, assessment, check, checking, hint, lines
from flashlearn.exercises.assessment import alike, grade, largest_error, relative_error

ROOT = Path(course.__file__).parents[2]
MISTAKES = [(name, mistake) for name, exercise in EXERCISES.items() for mistake in exercise.mistakes]
WHOLE = ("12.kernel", "13.kernel")  # each check compiles, and runs a dozen launches
# Exercises whose answers take no tensor: their inputs are numbers, lists, or nothing
NUMBERS_ALONE = set("overflow order loop blocks visited met paths bounds padding waste splits owners zigzag".split())
LONG = {name for name in EXERCISES if name[:2] in ("11", "12", "13")} | {"04.decode", "08.block", "15.wide"}


def param(name, *values, slow=False):
    """A parameter of a test; where Triton is missing, the exercises on kernels are skipped.

    Those of notebook 11, and whole kernels, look at what a kernel reads and writes, which the interpreter alone shows: the notebook asks for
    it before it imports Triton, and in a process that compiles kernels they are skipped.
    """
    missing = (name[:2] in ("11", "12", "13") or name == "15.wide") and importlib.util.find_spec("triton") is None
    unseen = (name[:2] == "11" or name in WHOLE) and not missing and not flashlearn.kernels.INTERPRETED
    marks = [
        pytest.mark.skipif(missing, reason="Triton is not installed here"),
        pytest.mark.skipif(unseen, reason="kernels are compiled here: what they read is not seen"),
        *[pytest.mark.slow] * slow,
    ]
    return pytest.param(name, *values, marks=marks, id=": ".join((name, *(value.what for value in values))))


every_exercise = pytest.mark.parametrize("name", [param(name) for name in EXERCISES])
# What asks the same of all, and more than once: a third stays quick, of the long ones one; of the mistakes, two or one
ASKED_MORE = {*list(EXERCISES)[::3], "11.row_lse"} - (LONG - {"11.row_lse"})
some_exercises = pytest.mark.parametrize("name", [param(name, slow=name not in ASKED_MORE) for name in EXERCISES])
every_mistake = pytest.mark.parametrize(
    ("name", "mistake"),
    [
        param(name, m, slow=name in WHOLE or m not in EXERCISES[name].mistakes[: 1 if name in LONG else 2])
        for name, m in MISTAKES
    ],
)


@every_exercise
def test_solution_passes_and_mistakes_are_known(name):
    mistakes = EXERCISES[name].mistakes
    assert 3 <= len(mistakes) == len({mistake.what for mistake in mistakes})
    report = check(name, EXERCISES[name].solution)
    assert report.passed, repr(report)
    assert not report.remarks and not any(row.hint for row in report.rows), "a right answer is accused of nothing"


@every_exercise
def test_stub_is_not_attempted(name):
    def stub(*args, **kwargs):
        raise NotImplementedError("your turn")

    report = check(name, stub)
    assert not report.attempted and not report.passed
    assert repr(report) == f"Exercise {name}: not attempted"
    assert "not attempted" in report._repr_html_()


@some_exercises
def test_nothing_a_student_writes_raises_or_is_taken_for_a_known_mistake(name):
    meta = torch.empty(3, device="meta")
    for function in (lambda *a, **k: 1 / 0, lambda *a, **k: None, lambda *a, **k: "?", lambda: 0, lambda *a: meta):
        report = check(name, function)
        assert report.attempted and not report.passed
        assert not report.diagnosis or name == "02.shift", "where '?' counts as True, always"


@some_exercises
def test_an_answer_that_spoils_its_inputs_harms_nobody(name):
    def spoils(*args):
        for arg in args:
            if isinstance(arg, torch.Tensor):
                arg.zero_()

    check(name, spoils)
    assert check(name, EXERCISES[name].solution).passed


CALLED = [name for name, exercise in EXERCISES.items() if not exercise.in_a_kernel and name != "02.shift"]
WITH_TENSORS = [name for name in CALLED if name[3:] not in NUMBERS_ALONE and name[:2] not in ("08", "14")]


@pytest.mark.parametrize("name", [param(name, slow=name[:2] == "11") for name in WITH_TENSORS])
def test_a_right_answer_that_overwrites_its_input_fails_and_says_so(name):
    """Every exercise whose answer takes tensors; each input is changed after the right result is made."""
    exercise = EXERCISES[name]
    names = list(inspect.signature(exercise.solution).parameters)

    for index, changed in enumerate(names):

        def spoils(*args, index=index):
            result = copy.deepcopy(exercise.solution(*args))
            inner = args[index] if isinstance(args[index], tuple | list) else (args[index],)
            for t in inner:
                if isinstance(t, torch.Tensor) and t.is_contiguous():
                    t += 1
            return result

        report = check(name, spoils)
        if changed in exercise.writes or report.passed:
            continue
        assert f"expected the input {changed} as it was, got other numbers" in repr(report), repr(report)
        assert any(row.detail == "changes its input" for row in report.rows)
        return
    pytest.fail("no input was changed, or nobody saw it")


WAYS = {
    "+=": lambda x: x.__iadd__(1),
    ".data": lambda x: x.data.mul_(2),
    "numpy": lambda x: x.numpy().fill(7),
    "view": lambda x: x[..., :1].fill_(3.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_input_that_is_changed_behind_pytorchs_back_is_seen_too(way):
    def spoils(x):
        result = EXERCISES["01.softmax"].solution(x)
        WAYS[way](x)
        return result

    report = check("01.softmax", spoils)
    assert not any(row.passed for row in report.rows)
    assert "expected the input x as it was, got other numbers in it afterwards" in repr(report)


LIBRARY = {
    "01.softmax": (lambda x: torch.nn.Softmax(-1)(x), "torch.softmax"),
    "02.safe": (lambda x: x.log_softmax(-1).exp(), "torch.log_softmax"),
    "02.lse": (lambda x: torch.special.logsumexp(x, -1), "torch.logsumexp"),
    "03.merge": (fl.merge, "flashlearn.merge"),
    "03.tree": (lambda x, n: tuple(t[0] for t in fl.merge_tree(x, n)), "flashlearn.merge_tree"),
    "04.attention": (scaled_dot_product_attention, "torch.nn.functional.scaled_dot_product_attention"),
    "07.visited": (lambda N_q, N_k, B_r, B_c: fl.visited_blocks(N_q, N_k, B_r, B_c, True), "flashlearn.visited_blocks"),
    "09.matmul_backward": (fl.matmul_backward, "flashlearn.matmul_backward"),
    "09.softmax_backward": (fl.softmax_backward, "flashlearn.softmax_backward"),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_an_answer_by_the_library_passes_with_a_remark(name):
    function, call = LIBRARY[name]
    report = check(name, function)
    said = f"right; the library did the work: {call}. Write the steps yourself to practise them."
    assert report.passed, repr(report)
    assert report.remarks == (f"library: {said}",) and report.summary == said
    report = grade(EXERCISES[name], function, own_work=True)
    assert not report.passed and f"got a call of {call}" in repr(report)


def test_what_is_allowed_is_not_remarked():
    """softmax as a step of attention, logaddexp as a step of a merge, a wrong answer by the library."""
    soft = lambda q, k, v: torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v  # noqa: E731
    assert check("04.attention", soft).passed and not check("04.attention", soft).remarks
    assert not any("library" in remark for remark in check("01.softmax", lambda x: torch.softmax(x, 0)).remarks)


@some_exercises
def test_the_random_numbers_of_the_notebook_stay(name):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    check(name, lambda *args: torch.rand(1))
    assert torch.equal(torch.rand(2), expected)


@every_mistake
def test_mistake_is_caught_by_the_case_meant_for_it_and_named(name, mistake):
    assert mistake.caught_by in {case.name for case in EXERCISES[name].cases}
    report = check(name, mistake.function)
    failed = {row.case for row in report.rows if not row.passed}
    assert mistake.caught_by in failed, f"expected {mistake.caught_by!r} to fail, failed were {failed or 'none'}"
    assert sum(bool(row.hint) for row in report.rows) <= 1, "a hint belongs to the cause, not to the row"
    if report.misconceptions:
        assert report.misconceptions == (mistake.what,)
        assert f"This is what you get if {mistake.what}." in repr(report)
        assert "<p>This is what you get if " in report._repr_html_()
    else:  # where all that comes back is NaN, a verdict or an error, a question knows better
        assert "  why: " in repr(report) and "<p>why: " in report._repr_html_()


@pytest.fixture
def no_rubbish():
    """What an answer leaves unwritten is NaN each time, not what lay in memory before."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", [param(name, slow=name in LONG) for name in EXERCISES if name not in WHOLE])
def test_a_known_mistake_is_run_once_and_reported_as_if_it_ran_again(name, monkeypatch, no_rubbish):
    """What it returns in each case is kept: random numbers are the same at every check, and answers change nothing."""
    known = assessment._run_known
    reports = [repr(check(name, mistake.function)) for mistake in EXERCISES[name].mistakes[:2]]
    runs = known.cache_info().misses
    assert reports == [repr(check(name, mistake.function)) for mistake in EXERCISES[name].mistakes[:2]]
    assert known.cache_info().misses == runs
    monkeypatch.setattr(assessment, "_run_known", assessment._run)
    assert reports == [repr(check(name, mistake.function)) for mistake in EXERCISES[name].mistakes[:2]]


def test_neither_an_unknown_mistake_nor_a_right_answer_by_another_way_is_named():
    report = check("03.merge", lambda a, b: (torch.maximum(a[0], b[0]), a[1] * b[1]))
    assert report.attempted and not report.passed and not report.diagnosis
    assert "This is what you get" not in repr(report) + report._repr_html_()

    def merge_by_logarithms(a, b):
        lse = torch.logaddexp(a[0] + a[1].log(), b[0] + b[1].log())
        m = torch.maximum(a[0], b[0])
        return [m, (lse - m).exp() if m > -math.inf else torch.zeros_like(m)]

    report = check("03.merge", merge_by_logarithms)
    assert report.passed and not report.diagnosis


def test_same_mistake_in_other_words_is_named():
    def softmax_of_attention(q, k, v):  # a loop, in float32, without the division
        rows = [torch.softmax((k @ row[..., None]).squeeze(-1), -1) for row in q.unbind(-2)]
        return torch.stack([(p[..., None] * v).sum(-2) for p in rows], -2).float()

    report = check("04.attention", softmax_of_attention)
    assert report.diagnosis == "This is what you get if the scores are not divided by sqrt(D)."


@every_exercise
def test_three_hints(name, monkeypatch):
    monkeypatch.setattr(checking, "_hints_shown", {})
    assert len(set(EXERCISES[name].hints)) == 3
    shown = [repr(hint(name)) for _ in range(5)]
    assert all(f"hint {number} of 3" in text for number, text in enumerate(shown[:3], start=1))
    assert shown[3] == shown[4] and EXERCISES[name].solution_file in shown[3]
    assert not any("solutions" in text for text in shown[:3])
    assert f"# {name}\n" in (ROOT / EXERCISES[name].solution_file).read_text(encoding="utf-8")
    assert repr(hint(name, 2)) == shown[1] and repr(hint(name)) == shown[2], "the next after a chosen one"
    for text in EXERCISES[name].hints:
        assert 20 < len(text) < 200
        assert text not in {case.hint for case in EXERCISES[name].cases}


@pytest.mark.parametrize("number", (0, 4, 1.5, "1"))
def test_no_such_hint(number):
    assert "m &gt;" not in hint("03.merge", 1)._repr_html_() and "&lt;=" in hint("03.tree", 3)._repr_html_()
    with pytest.raises(ValueError, match=f"expected the number of a hint, 1 to 3, got {number!r}"):
        hint("03.merge", number)


def test_every_module_is_listed_and_has_its_solutions_and_mistakes():
    folder = Path(course.__file__).parent
    assert {path.name for path in folder.iterdir() if (path / "__init__.py").exists()} == set(course.NOTEBOOKS)
    for name in course.NOTEBOOKS:
        files = {path.stem for path in (folder / name).glob("*.py")}
        assert {"causes", "exercises", "solutions", "wrong"} <= files


def stubs():
    """{exercise: (stub, the call of check)} for every stub in a notebook."""
    found = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type != "code" or "check(" not in cell.source:
                continue
            tree = ast.parse(cell.source)
            functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
            functions = {name: node for name, node in functions.items() if "NotImplementedError" in ast.unparse(node)}
            for call in ast.walk(tree):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "check":
                    if isinstance(call.args[1], ast.Name) and call.args[1].id in functions:
                        found[ast.literal_eval(call.args[0])] = functions[call.args[1].id], call
    return found


STUBS = stubs()


@every_exercise
def test_stub_solution_and_check_agree(name):
    """So what the notebook checks is what `test_solution_passes` checks."""
    if name not in STUBS:
        pytest.skip(f"no notebook asks for {name} yet")
    stub, call = STUBS[name]
    solution = EXERCISES[name].solution
    expected = inspect.signature(getattr(solution, "fn", solution)).parameters
    assert [arg.arg for arg in stub.args.args] == list(expected)
    assert ast.unparse(call) == f"check({name!r}, {stub.name})"


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_names_the_solutions_and_the_hints_and_shows_none(path):
    """The output of hint() would depend on what was run before."""
    cells = nbformat.read(path, as_version=4).cells
    text, code = ("\n".join(c.source for c in cells if c.cell_type == kind) for kind in ("markdown", "code"))
    assert "hint(" not in code
    files = {exercise.solution_file for name, exercise in EXERCISES.items() if name[:2] == path.name[:2]}
    if files:
        assert "`flashlearn/course/`" in text or all(file in text for file in files)
        assert f'`hint("{path.name[:2]}.' in text
        assert re.search(r"^from flashlearn\.exercises import .*\bhint\b", code, re.MULTILINE)


@pytest.mark.parametrize("name", [["03.merge"], None, 3, print])
def test_a_name_is_a_text_and_an_answer_a_function(name):
    with pytest.raises(TypeError, match="expected a function for exercise 03.merge, got int"):
        check("03.merge", 3)
    for function in (lambda name: check(name, print), hint, lines):
        with pytest.raises(TypeError, match=f"expected the name of an exercise, a text, got {type(name).__name__}"):
            function(name)


def test_partly_written_answer_is_attempted():
    def half(x):
        if x.ndim == 1:
            return torch.softmax(x, -1)
        raise NotImplementedError

    report = check("01.softmax", half)
    assert report.attempted and not report.passed


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64), ids=str)
def test_the_edge_of_overflow_is_one(dtype):
    x = torch.tensor(EXERCISES["01.overflow"].solution(dtype), dtype=torch.float64)
    edge = x.to(dtype)
    below = (edge.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]) - 1).view(dtype)
    assert edge.double() == x and torch.exp(edge).isinf() and torch.exp(below).isfinite()


def test_errors_of_results():
    inf, nan, empty = math.inf, math.nan, torch.empty(2, 0, 4)  # the cache of a first token is empty
    assert largest_error((1.0, torch.tensor([2.0, nan])), (1.0, torch.tensor([2.5, nan]))) == 0.5
    assert largest_error(torch.tensor(inf), torch.tensor(inf)) == 0
    assert (
        largest_error(torch.tensor(nan), torch.tensor(0.0)) == largest_error(torch.tensor(inf), torch.ones(())) == inf
    )
    with pytest.raises(ValueError, match=r"expected shape \(2,\), got \(1,\)"):
        largest_error(torch.zeros(1), torch.zeros(2))
    assert relative_error(empty, empty) == 0 and relative_error(empty, torch.empty(2, 1, 4)) == inf
    assert relative_error((empty, torch.ones(2)), (empty, 2 * torch.ones(2))) == 0.5


def test_alike():
    assert alike((1, [torch.tensor(2.0), math.nan]), [1.0, (2.0 + 1e-7, torch.tensor(math.nan))])
    assert alike(ValueError("a"), ValueError("a")) and not alike(ValueError("a"), TypeError("a"))
    assert not alike(ValueError("a"), ValueError("b"))
    assert not alike(1_000_000, 1_000_001) and alike(1_000_000.0, 1_000_001.0)
    assert not alike(torch.zeros(2), torch.zeros(1)) and not alike(None, None)
    assert not alike((1, 2), (1, 2, 3)) and not alike((1,), 1)


def test_numpys_numbers_are_numbers():
    report = check("18.waste", lambda *given: tuple(map(np.int64, waste_solution(*given))))
    assert report.passed, repr(report)
    assert not check("18.waste", lambda *given: tuple(np.int64(n + 1) for n in waste_solution(*given))).passed


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("03.mergers", "03.merge"), ("3.merge", "03.merge"), ("12.kernal.1", "12.kernel.1"), ("03_tree", "03.tree")],
)
def test_an_unknown_name_suggests_the_nearest(typed, meant):
    for call in (lambda: check(typed, print), lambda: hint(typed)):
        with pytest.raises(ValueError, match=f"got '{typed}': do you mean '{meant}'"):
            call()
    with pytest.raises(ValueError, match=r"expected the name of an exercise, one of 00\.scores.*got 'zzz'$"):
        check("zzz", print)
