"""The command that grades submitted notebooks: every way in which a submission may go wrong is one line."""

import csv
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from flashlearn.course.triton_forward.mutation_lab import MUTANTS, run_lab
from flashlearn.exercises import EXERCISES, check
from flashlearn.grading import kernel
from flashlearn.grading.__main__ import cell, grade_notebook, grades, main, table
from flashlearn.grading.notebook import NotANotebook, chapter, code_cells
from flashlearn.grading.record import FILE, TOKEN, Entry, Record
from flashlearn.grading.strict import MOST_TRIES
from tests.slow import slow

RIGHT = "from flashlearn.course.online_softmax.solutions import merge_solution as my_merge"
WRONG = "def my_merge(a, b):\n    return max(a[0], b[0]), a[1] + b[1]"
STUB = "def my_tree(x, block_size):\n    raise NotImplementedError"
CHECK = 'check("03.merge", my_merge)'
IMPORT = "from flashlearn.exercises import check"
ENDLESS = "while True: pass"
TESTS = {name: len(exercise.cases) for name, exercise in EXERCISES.items()}
OF_03 = [name for name in TESTS if name.startswith("03.")]


def of_merge(graded):
    return next(one for one in graded if one.exercise == "03.merge")


def submission(path, *cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    nbformat.write(notebook, path)
    return path


def hasten(monkeypatch, source, seconds):
    """That cell alone has no more than these seconds: the others, which import PyTorch, have the hundred given to all."""
    run = kernel._run

    def hastened(sandbox, client, cell, timeout):
        assert timeout == 100
        return run(sandbox, client, cell, seconds if cell == source else timeout)

    monkeypatch.setattr(kernel, "_run", hastened)


# What a notebook may do


@pytest.mark.parametrize("endless", [(), slow((ENDLESS,))], ids=["", "endless"])
def test_everything_that_may_happen_in_a_notebook(endless, tmp_path, monkeypatch):
    """An error is no reason to stop, nor is a loop without end, which takes the seconds that it is given."""
    path = submission(
        tmp_path / "anna_03_online_softmax.ipynb",
        IMPORT,
        "1 / 0",
        *endless,
        f"{WRONG}\n\n{CHECK}",
        f"{RIGHT}\n\ndisplay({CHECK})\nprint({CHECK});",
        f"{WRONG}\n\nreport = {CHECK}",
        f'{STUB}\n\ncheck("03.tree", my_tree), check("00.scores", lambda q, k: q @ k.T);',
        'import sys\ncheck("01.softmax", lambda x: sys.exit(1))',
        "sys.exit(1)",
        'check("01.overflow", lambda dtype: float(len(sys.path[0])))',
    )
    (tmp_path / "torch.py").write_text("raise ImportError('of the submission')", encoding="utf-8")
    before = path.read_bytes()
    hasten(monkeypatch, ENDLESS, 2)
    graded = {grade.exercise: grade[2:] for grade in grade_notebook(path, timeout=100)}
    best = TESTS["03.merge"], TESTS["03.merge"], 100, ""
    assert graded["03.merge"] == best, "the best counts, wherever it is shown"
    assert graded["03.tree"] == (0, TESTS["03.tree"], 0, "not attempted")
    passed, tests, percent, remark = graded["00.scores"]
    assert passed == percent == 0 and tests == TESTS["00.scores"]
    assert remark.startswith("This is what you get if the scores are not divided by sqrt(D)")
    assert graded["01.softmax"] == (0, TESTS["01.softmax"], 0, ""), "check lets no SystemExit out"
    assert graded["01.overflow"][:2] == (0, TESTS["01.overflow"]), "nor does one in a cell end the notebook"
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_kernel_that_dies_and_outputs_that_were_stored(tmp_path, capsys):
    """A forged output counts for nothing; neither does a `flashlearn` beside the notebook, nor one in its folder."""
    path = submission(tmp_path / "03_online_softmax.ipynb", IMPORT, CHECK, "import os; os._exit(1)")
    notebook = nbformat.read(path, as_version=4)
    claim = {"text/plain": "Exercise 03.merge: 6 of 6 tests passed"}
    notebook.cells[1].outputs = [nbformat.v4.new_output("execute_result", data=claim, execution_count=1)]
    notebook.cells[1].source = "print('Exercise 03.merge: 6 of 6 tests passed')"
    nbformat.write(notebook, path)
    (tmp_path / "05_x.ipynb").write_text("no JSON", encoding="utf-8")
    (tmp_path / "flashlearn").mkdir()
    (tmp_path / "flashlearn" / "__init__.py").write_text("raise ImportError('of the submission')", encoding="utf-8")
    assert main(["--csv", str(path), str(tmp_path / "05_x.ipynb")]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[0] == ["notebook", "exercise", "passed", "tests", "score", "remark"]
    died, unread = rows[1 : 1 + len(OF_03)], rows[1 + len(OF_03) :]
    assert [row[1:] for row in died] == [
        [name, "0", str(TESTS[name]), "0", "the kernel died"] for name in sorted(OF_03)
    ]
    assert [row[1] for row in unread] == sorted(name for name in TESTS if name.startswith("05."))
    assert all("not a notebook" in row[5] for row in unread)


SPAWN = """
import subprocess, sys
from pathlib import Path
for apart in (False, True):  # in our group, and in one of its own
    subprocess.Popen([sys.executable, "-c", "import subprocess, sys, time; "
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', 'NAME'], start_new_session=True); "
        "time.sleep(600)", "NAME"], start_new_session=apart)
while not len([1 for p in Path('/proc').glob('[0-9]*/cmdline') if b'NAME' in p.read_bytes()]) >= 4: pass
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


def running(name):
    """Numbers of the processes that were started with this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def gone(name, seconds=20):
    end = time.monotonic() + seconds
    while running(name) and time.monotonic() < end:
        time.sleep(0.05)
    return not running(name)


def heeds_an_interrupt():
    """A shell that starts tests in the background has them ignore Ctrl-C, and what they start inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


STUBBORN = "import time\nwhile True:\n    try:\n        while True: time.sleep(1)\n    except BaseException: pass"


@linux
@pytest.mark.parametrize("end", ["", slow(STUBBORN), slow("quit()")], ids=["end", "stubborn", "quit"])
def test_nothing_that_a_notebook_started_goes_on_after_it(end, tmp_path, monkeypatch):
    hasten(monkeypatch, STUBBORN, 3)
    monkeypatch.setattr(kernel, "GRACE", 2)
    name = f"grandchild-{os.getpid()}-{len(end)}"
    path = submission(tmp_path / "03_online_softmax.ipynb", SPAWN.replace("NAME", name), f"open({name!r}, 'w')", end)
    merge = of_merge(grade_notebook(path, timeout=100))
    assert not running(name)
    assert not (tmp_path / name).exists(), "it does not start in its folder"
    assert merge.remark == (
        "a cell took longer than 3 s, and could not be interrupted" if end == STUBBORN else merge.remark
    )


@linux
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_nothing_goes_on_after_the_command_is_ended(number, tmp_path):
    name = f"grandchild-{os.getpid()}-{number}"
    path = submission(tmp_path / "03_online_softmax.ipynb", SPAWN.replace("NAME", name), "while True: pass")
    command = subprocess.Popen(
        [sys.executable, "-m", "flashlearn.grading", str(path)], stdout=subprocess.PIPE, preexec_fn=heeds_an_interrupt
    )
    end = time.monotonic() + 100
    while len(running(name)) < 4 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(running(name)) >= 4
    command.send_signal(number)
    assert command.wait(60) == (130 if number == signal.SIGINT else -number)
    assert gone(name)


# The record


def test_a_check_leaves_its_outcome_only_in_a_grading_run(tmp_path, monkeypatch):
    record = Record(tmp_path)
    check("03.merge", EXERCISES["03.merge"].solution)
    assert record.read(TESTS) == [] and not record.path.exists()
    for name, value in record.environment.items():
        monkeypatch.setenv(name, value)
    count = TESTS["03.merge"]
    check("03.merge", EXERCISES["03.merge"].solution)
    check("03.merge", EXERCISES["03.merge"].mistakes[0].function)
    check("03.merge", lambda a, b: {}[0])
    assert run_lab(stub := lambda attention: stub.missing).rejected
    with pytest.raises(ValueError):
        check("03.mergers", print)
    right, mistake, wrong = record.read(TESTS)
    assert right == ("03.merge", count, count, "", True)
    assert mistake.passed < count and mistake.remark.startswith("This is what you get if")
    assert wrong == ("03.merge", 0, count, "", False) and not mistake.core
    assert record.read({"12.mutants": len(MUTANTS)}) == [("12.mutants", 0, len(MUTANTS), "", True)]


@pytest.mark.parametrize(
    "line",
    [
        '["TOKEN", "03.mergers", 6, 6, "", true]',
        '["TOKEN", "03.merge", 7, 6, "", true]',
        '["TOKEN", "03.merge", 7, 7, "", true]',
        '["TOKEN", "03.merge", -1, 6, "", true]',
        '["TOKEN", "03.merge", true, 6, "", true]',
        '["TOKEN", "03.merge", 6.0, 6, "", true]',
        '["TOKEN", "03.merge", 6, 6, true]',
        '["TOKEN", ["03.merge"], 6, 6, "", true]',
        '["TOKEN", "03.merge", 6, 6, null, true]',
        '["guessed", "03.merge", 6, 6, "", true]',
        '["\\udcff", "03.merge", 6, 6, "", true]',
        '["TOKEN", "03.merge", 6, 6, ""]',
        '["TOKEN", "03.merge", 6, 6, "", 1]',
        "Exercise 03.merge: 6 of 6 tests passed",
        "[" * 100_000,
        "6",
        "\xff",
    ],
)
def test_a_record_is_read_with_care(line, tmp_path):
    """Only known exercises, with as many tests as they have, and no more of them passed."""
    assert FILE == "FLASHLEARN_RECORD" and TOKEN == "FLASHLEARN_RECORD_TOKEN"  # in GRADING.md
    record = Record(tmp_path)
    good = f'["{record.token}", "03.merge", 5, 6, "", false]'
    record.path.write_bytes(f"{line.replace('TOKEN', record.token)}\n{good}\n".encode("latin-1", "replace"))
    assert record.read({"03.merge": 6}) == [("03.merge", 5, 6, "", False)]


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_a_notebook_of_many_slow_cells_has_an_end(strict, tmp_path, monkeypatch):
    start, folder, seen = time.monotonic(), tmp_path / "minutes", set()
    folder.mkdir()

    def monotonic():
        seen.update(file.name for file in folder.glob("*/[abc]"))
        return time.monotonic() + 60 * len(seen)

    clock = SimpleNamespace(sleep=time.sleep, monotonic=monotonic)
    for module in ("kernel", "strict"):
        monkeypatch.setattr(
            f"flashlearn.grading.{module}.empty_folder", lambda: tempfile.TemporaryDirectory(dir=folder)
        )
        monkeypatch.setattr(f"flashlearn.grading.{module}.NOTEBOOK", 1)
        monkeypatch.setattr(f"flashlearn.grading.{module}.time", clock)
    # a minute goes by with each file, in the folder of its process
    minutes = [f"open({name!r}, 'w').close()" for name in "abc"]
    path = submission(tmp_path / "03_online_softmax.ipynb", f"{IMPORT}\n{WRONG}\n{CHECK}", *minutes)
    graded = grade_notebook(path, timeout=100, strict=strict)
    merge = of_merge(graded)
    others = [other for other in graded if other is not merge]
    assert "was multiplied by nothing" in merge.remark
    assert {other.remark for other in others} == {"the notebook took longer than 100 s"}
    assert seen == {"a", "b"}, "the first left time for the second"
    assert time.monotonic() - start < 100


# Names, files and cells


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("03_online_softmax", "03"),
        ("anna_03_online_softmax", "03"),
        ("2024_10_12 Anna 03_online_softmax (1)", "03"),
        ("group_05-03-Online-Softmax-Copy1", "03"),
        ("Anna Roth_12345_assignsubmission_file_12_triton_forward", "12"),
        ("anna.roth.07_tiled_attention.final", "07"),
        ("103_online_softmax_06_tiled_matmul", "06"),
        ("anna_03_exam", "03"),
        ("17_03_exam", "03"),
        ("05_group_03_exam", ""),
        ("online_softmax", ""),
        ("1003_exam", ""),
        ("99_exam", ""),
        ("03", ""),
    ],
)
def test_the_number_and_title_are_anywhere_in_the_name(name, number):
    assert chapter(Path("05_somewhere") / f"{name}.ipynb") == number


def test_every_notebook_of_the_course_is_known_by_its_name():
    names = sorted(Path("notebooks").glob("*.ipynb"))
    assert {chapter(path) for path in names} >= {name[:2] for name in EXERCISES}
    assert all(chapter(path) in ("", path.name[:2]) for path in names)


@pytest.mark.parametrize(
    "content", ["", "no JSON", "[]", "3", '{"cells": 3}', '{"nbformat": 4}', "[" * 100_000, "\xff"]
)
def test_what_is_no_notebook_is_a_line(content, tmp_path):
    path = tmp_path / "03_online_softmax.ipynb"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(NotANotebook):
        code_cells(path)
    assert {grade.exercise: grade.remark[:14] for grade in grade_notebook(path)} == dict.fromkeys(
        OF_03, "not a notebook"
    )


def test_tags_and_outputs_of_a_cell_do_not_count(tmp_path):
    path = submission(tmp_path / "x.ipynb", "1 + 1")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].metadata["tags"] = ["skip-execution"]
    notebook.cells.append(nbformat.v4.new_markdown_cell("text"))
    nbformat.write(notebook, path)
    assert code_cells(path) == ["1 + 1"]


@pytest.mark.parametrize("name", ["gone.ipynb", "", "a folder"])
def test_a_missing_file_is_an_error_before_anything_runs(name, tmp_path, capsys):
    (tmp_path / "a folder").mkdir()
    good = submission(tmp_path / "03_online_softmax.ipynb", "1")
    with pytest.raises(SystemExit) as error:
        main([str(good), str(tmp_path / name)])
    assert error.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and f"expected files that can be read, got {str(tmp_path / name)!r}" in err


@pytest.mark.parametrize("value", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"])
def test_no_cell_is_a_formula(value, capsys, monkeypatch, tmp_path):
    assert cell(value) == f"'{value}" and cell(" =1") == " =1"
    for separator in (";", "\t", "|", "; ", ';"', "\n"):  # what divides cells elsewhere
        inside = value.lstrip()
        assert cell(f"a{separator}{inside}") == f"a{separator}'{inside}"
    assert cell("a = 1, -2; b = 3") == "a = 1, -2; b = 3"
    assert cell(-1) == -1 and cell("") == "" and cell("\udcff") == "\\udcff"
    name = value.replace("/", "")
    monkeypatch.chdir(tmp_path)
    submission(Path(f"{name}_03_x.ipynb"), "1").write_text("no JSON", encoding="utf-8")
    monkeypatch.setattr("flashlearn.grading.__main__.Path", Path)
    arguments = ["--csv", "--", f"{name}_03_x.ipynb"]
    assert main(arguments) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert {row[0] for row in rows[1:]} == {f"'{name}_03_x.ipynb"}


def test_a_remark_may_be_a_formula_or_move_the_cursor(capsys):
    graded = grades(Path("\x1b[2Jx_03_y"), [Entry("03.merge", 1, 6, "=1\x1b[31m")], "")
    assert of_merge(graded).remark == "=1\x1b[31m"
    assert [line.split("  ")[0] for line in table(graded)] == ["?[2Jx_03_y"] * len(OF_03)
    assert "\x1b" not in "".join(table(graded)) and list(table([])) == []


def test_of_several_checks_the_best_counts_and_others_are_missing():
    checks = [Entry("03.merge", 0, 6, "not attempted"), Entry("03.merge", 0, 6, "x"), Entry("12.mutants", 3, 10, "")]
    graded = {grade.exercise: grade[2:] for grade in grades(Path("05_one_pass_attention"), checks, "")}
    assert graded["03.merge"] == (0, 6, 0, "x") and graded["03.tree"][3] == "missing"
    assert set(graded) == {n for n in [*EXERCISES, "12.mutants"] if n[:2] in ("03", "05", "12")}
    assert graded["12.causal"] == (0, TESTS["12.causal"], 0, "missing")
    assert [grade[1:4] for grade in grades(Path("x"), [], "")] == [("none", 0, 0)]


def test_an_answer_that_misses_the_idea_has_a_quarter_at_most():
    """The sums added without rescaling pass 4 of 11 tests, 36 %: so they did before there were core tests."""
    report = check("03.merge", lambda a, b: (torch.maximum(a[0], b[0]), a[1] + b[1]))
    passed = sum(row.passed for row in report.rows)
    assert passed / len(report.rows) > 0.25 == report.score and not report.core_passed
    entries = [Entry("03.merge", 9, 11, "x", core=False), Entry("03.merge", 3, 11, "y", core=True)]
    merge = of_merge(grades(Path("x"), entries, ""))
    assert merge[2:] == (3, 11, 27, "y"), "the better score counts"
    assert check("03.merge", EXERCISES["03.merge"].solution).score == 1.0


@pytest.mark.parametrize("name", EXERCISES)
def test_core_tests_are_tests_of_the_exercise(name):
    exercise = EXERCISES[name]
    assert set(exercise.core) <= {case.name for case in exercise.cases[1:]}, "the first is one without being named"
    assert len(set(exercise.core)) == len(exercise.core) < len(exercise.cases) - 1, "not every test is one"


IDEAS = {  # what a well-known wrong answer passes, and yet misses
    "05.recurrence": "a new maximum",
    "07.update": "every maximum rises",
    "10.dq": "several blocks of keys",
}


@pytest.mark.parametrize("name", IDEAS)
def test_a_known_mistake_about_the_idea_has_a_quarter_at_most(name):
    wrong = next(mistake for mistake in EXERCISES[name].mistakes if mistake.caught_by == IDEAS[name])
    report = check(name, wrong.function)
    assert report.score <= 0.25 and report.rows[0].passed


def test_a_notebook_that_vanishes_is_a_line(tmp_path, capsys, monkeypatch):
    first, gone = tmp_path / "03_online_softmax.ipynb", submission(tmp_path / "05_one_pass_attention.ipynb", "1")
    first.write_text("no JSON", encoding="utf-8")
    code = code_cells

    def reads(path):
        try:
            return code(path)
        finally:
            gone.unlink(missing_ok=True)  # while the first is read

    monkeypatch.setattr("flashlearn.grading.notebook.code_cells", reads)
    assert main([str(first), str(gone)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("05.recurrence" in line and "cannot be read any more: No such file" in line for line in lines)
    assert any("03.merge" in line and "not a notebook" in line for line in lines)


def test_on_windows_the_command_says_what_it_needs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    path = submission(tmp_path / "03_online_softmax.ipynb", "1")
    assert main([str(path)]) == main(["--strict", "--csv", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("expected Linux, macOS or WSL, got Windows") == 2 and "wsl --install" in err


def test_a_table_for_people_and_progress_for_those_who_watch(tmp_path, capsys, monkeypatch):
    """Nothing of it where standard error is no terminal; in one a bar that counts notebooks, removed at the end."""
    (tmp_path / "03_empty.ipynb").write_text("{}", encoding="utf-8")
    assert main([str(tmp_path / "03_empty.ipynb")]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == "" and len(lines) == len(OF_03) and re.search(rf"03\.merge +0 of +{TESTS['03.merge']}  ", out)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main([str(tmp_path / "03_empty.ipynb")]) == 0
    shown = capsys.readouterr().err
    assert "Grading" in shown and "0/1" in shown and "notebook" in shown
    assert shown.rpartition("\r")[2].strip() == ""


def test_numbers_of_the_guide():
    """What GRADING.md says of limits."""
    guide = " ".join(Path("notebooks/GRADING.md").read_text(encoding="utf-8").split())
    assert MOST_TRIES == 10 and "the first ten functions count" in guide


@pytest.mark.slow
def test_mutants_killed_in_an_untouched_notebook_12():
    guide = " ".join(Path("notebooks/GRADING.md").read_text(encoding="utf-8").split())
    (example,) = (
        source for source in code_cells(Path("notebooks/12_triton_forward.ipynb")) if "run_lab(looks" in source
    )
    space = {"torch": torch, "run_lab": run_lab, "scaled_dot_product_attention": scaled_dot_product_attention}
    exec(example, space)
    killed = len(MUTANTS) - len(space["lab"].survivors)
    assert f"`12.mutants` has {killed} of {len(MUTANTS)} in a notebook that nobody has touched" in guide


def test_usage(capsys):
    with pytest.raises(SystemExit):
        main([])
    assert "python -m flashlearn grade" in capsys.readouterr().err
    with pytest.raises(SystemExit) as error:
        main(["--help"])
    usage = capsys.readouterr().out
    assert error.value.code == 0 and "notebook, exercise, tests passed, tests, score in percent, remark" in usage
    with pytest.raises(SystemExit) as error:
        main(["--timeout", "0", __file__])
    assert error.value.code == 2
    for memory in ("inf", "1e10", "nan"):
        with pytest.raises(SystemExit):
            main(["--memory", memory, __file__])
        assert "error: expected --memory" in capsys.readouterr().err
