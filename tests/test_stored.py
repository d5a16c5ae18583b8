"""tools/run_notebooks.py: what it stores is the same every time, and nothing that only a running notebook can show."""

import importlib.util
import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).parents[1]
CELLS = [
    "import flashlearn as fl, torch\n"
    "from flashlearn.show import picture, play\n"
    "from flashlearn.show.draw import draw_row\n"
    "from flashlearn.show.explorers import stride_explorer",
    "play(fl.online_softmax_steps(torch.tensor([3.0, 2.0])), draw_row, alt='two bars', figsize=(6, 3))",
    "def dots(ax, step):\n    ax.scatter(step.number, 0)\n"
    "play([fl.Step(sentence=f'Dot {n}') for n in range(50)], dots, alt='fifty dots', figsize=(2, 1))",
    "picture(lambda ax: ax.plot([1, 2]), alt='a rising line', figsize=(2, 1))",
    "stride_explorer()",
]
NAMES = ("imports", "two", "cell-07", "line", "explorer")


@pytest.mark.slow  # two kernels
def test_a_run_that_changes_nothing_changes_no_file(tmp_path):
    spec = importlib.util.spec_from_file_location("run_notebooks", ROOT / "tools" / "run_notebooks.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    path = tmp_path / "small.ipynb"
    cells = [new_code_cell(source, id=name) for source, name in zip(CELLS, NAMES, strict=True)]
    nbformat.write(new_notebook(cells=cells), path)
    tool.run(path)
    first, written = path.read_bytes(), path.stat().st_mtime_ns
    tool.run(path)
    assert path.read_bytes() == first and path.stat().st_mtime_ns == written

    notebook = json.loads(first)
    assert tuple(cell["id"] for cell in notebook["cells"]) == NAMES, "a cell keeps its id wherever it moves"
    assert "widget" not in first.decode() and set(notebook["metadata"]) == {"kernelspec", "language_info"}
    outputs = [cell["outputs"] for cell in notebook["cells"][1:]]
    assert [len(each) for each in outputs] == [2, 2, 1, 2], "beside the picture of a run its words"
    assert all(each[1]["metadata"] == {"flashlearn": "words"} for each in outputs if len(each) == 2)
    two, fifty, line, explorer = (each[0] for each in outputs)
    named = ["".join(each["data"]["text/plain"]) for each in (two, fifty, line)]
    assert named == ["[animation, 5 steps] two bars", "[animation, 50 steps] fifty dots", "[picture] a rising line"]
    assert line["metadata"]["image/png"]["alt"] == "a rising line"
    assert "image/png" in explorer["data"]
