"""The command that grades submitted notebooks: every way in which a submission may go wrong is one line."""

import csv
import io

import nbformat
import pytest

from flashlearn.exercises.__main__ import grade_notebook, main
from tests.slow import slow

RIGHT = "from flashlearn.exercises.solutions.online_softmax import merge_solution as my_merge"
WRONG = "def my_merge(a, b):\n    return max(a[0], b[0]), a[1] + b[1]"
STUB = "def my_tree(x, block_size):\n    raise NotImplementedError"
CHECK = 'check("03.merge", my_merge)'


def submission(path, *cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    nbformat.write(notebook, path)
    return path


@pytest.mark.parametrize("endless", [(), slow(("while True: pass",))], ids=["", "endless"])
def test_everything_that_may_happen_in_a_notebook(endless, tmp_path):
    """An error is no reason to stop, nor is a loop without end, which takes the ten seconds that it is given."""
    path = submission(
        tmp_path / "anna_03_online_softmax.ipynb",
        "from flashlearn.exercises import check",
        "1 / 0",
        *endless,
        f"{WRONG}\n\n{CHECK}",
        f"{RIGHT}\n\n{CHECK}",
        f"{WRONG}\n\n{CHECK}",
        f'{STUB}\n\ncheck("03.tree", my_tree)',
        'check("00.scores", lambda q, k: q @ k.T)',
    )
    before = path.read_bytes()
    scores, merge, tree = grade_notebook(path, timeout=10)
    assert merge[1:] == ("03.merge", 6, 6, ""), "the best of three counts"
    assert tree[1:] == ("03.tree", 0, 5, "not attempted")
    assert scores[1:] == ("00.scores", 0, 4, "This is what you get if the scores are not divided by sqrt(D).")
    assert path.read_bytes() == before


def test_a_kernel_that_dies_and_outputs_that_were_stored(tmp_path, capsys):
    path = submission(tmp_path / "03_online_softmax.ipynb", CHECK, "import os; os._exit(1)")
    notebook = nbformat.read(path, as_version=4)
    claim = {"text/plain": "Exercise 03.merge: 6 of 6 tests passed"}
    notebook.cells[0].outputs = [nbformat.v4.new_output("execute_result", data=claim, execution_count=1)]
    nbformat.write(notebook, path)
    (tmp_path / "05_x.ipynb").write_text("no JSON")
    assert main(["--csv", str(path), str(tmp_path / "05_x.ipynb"), str(tmp_path / "gone.ipynb")]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[0] == ["notebook", "exercise", "passed", "tests", "remark"]
    assert rows[1][1:] == ["03.merge", "0", "6", "the kernel died"]
    assert rows[2][1:] == ["03.tree", "0", "5", "the kernel died"]
    assert rows[3][1] == "05.merge_outputs" and all("not a notebook" in row[4] for row in rows[3:])
    assert rows[-1][1] == "-"


def test_a_table_for_people(tmp_path, capsys):
    (tmp_path / "03_empty.ipynb").write_text("{}")
    assert main([str(tmp_path / "03_empty.ipynb")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "03.merge   0 of  6  " in lines[0]


def test_usage(capsys):
    with pytest.raises(SystemExit):
        main([])
    assert "python -m flashlearn.exercises" in capsys.readouterr().err
