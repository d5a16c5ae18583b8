"""A notebook run twice in the same kernel says the same both times: no cell depends on what a later one left behind."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.slow import slow

FOLDER = Path(__file__).parent.parent / "notebooks"


def texts(notebook):
    """What every code cell printed and showed, as text; that of a cell whose text may differ is left out."""
    said = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and "nbval-ignore-output" not in cell.metadata.get("tags", []):
            said.append([output.get("text") or output.get("data", {}).get("text/plain") for output in cell.outputs])
    return said


@pytest.mark.parametrize("name", [slow("01_naive_softmax"), slow("00_start_here"), slow("03_online_softmax")])
def test_run_twice_in_one_kernel(name, monkeypatch):
    monkeypatch.setenv("FLASHLEARN_REDUCED_MOTION", "1")  # of pictures nothing is compared: the stills are painted
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    stored = texts(notebook)
    options = {"timeout": 120, "resources": {"metadata": {"path": str(FOLDER)}}, "store_widget_state": False}
    client = NotebookClient(notebook, coalesce_streams=True, kernel_name="python3", **options)
    with client.setup_kernel():
        for _ in range(2):
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)
            said = texts(notebook)
            for one, other in zip(said, stored, strict=True):
                assert [text for text in one if text is not None] == other


@pytest.mark.parametrize("path", sorted(FOLDER.glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_a_cell_run_too_early_names_what_is_missing(path):
    """Python's NameError does; so that it says something, a notebook begins with its imports."""
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert any(re.match("(import|from) flashlearn", line) for cell in cells[:2] for line in cell.splitlines())
    readme = (FOLDER.parent / "README.md").read_text()
    assert "**Names are not defined.**" in readme  # what to do then
