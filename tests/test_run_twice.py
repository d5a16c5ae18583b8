"""The cells of a notebook run again in the same kernel, in any order: no cell depends on what a later one changed."""

import random
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9]*.ipynb"))


def texts(cells):
    """What code cells printed and showed, as text, by their ids; cells whose text may differ are left out."""
    said = {}
    for cell in cells:
        if "nbval-ignore-output" not in cell.metadata.get("tags", []):
            shown = [output.get("text") or output.get("data", {}).get("text/plain") for output in cell.outputs]
            said[cell.id] = [text for text in shown if text is not None]
    return said


def failures(client, cells):
    """Run these cells, (index, cell) each, in this order: one line for each that raises."""
    found = []
    for index, cell in cells:
        try:
            client.execute_cell(cell, index)
        except CellExecutionError as error:
            found.append(f"{cell.id}: {error.ename}: {error.evalue}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs_again_in_any_order(path, monkeypatch):
    """To the end, from the last cell to the first, shuffled, and from the first to the last, with the stored texts."""
    monkeypatch.setenv("FLASHLEARN_REDUCED_MOTION", "1")  # pictures are not compared: only their stills are painted
    notebook = nbformat.read(path, as_version=4)
    cells = [(index, cell) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    stored = texts(cell for _, cell in cells)
    options = {"timeout": 300, "resources": {"metadata": {"path": str(FOLDER)}}, "store_widget_state": False}
    client = NotebookClient(notebook, coalesce_streams=True, kernel_name="python3", **options)
    with client.setup_kernel():
        runs = {
            "first run": failures(client, cells),
            "last to first": failures(client, cells[::-1]),
            "shuffled": failures(client, random.Random(0).sample(cells, len(cells))),
            "first to last": failures(client, cells),
        }
    assert not any(runs.values()), runs
    assert texts(cell for _, cell in cells) == stored


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_cell_run_too_early_names_what_is_missing(path):
    """Python's NameError does; so that it says something, a notebook begins with its imports."""
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert any(re.match("(import|from) flashlearn", line) for cell in cells[:2] for line in cell.splitlines())
