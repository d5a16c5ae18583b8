"""Notebooks for Colab, which installs nothing by itself: copies whose first cell installs the package.

The workflow that publishes the book puts them on the branch `colab`, where the book's links lead.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell

from tools.book.address import Address


def without_outputs(notebook: Any) -> Any:
    """A copy of a notebook without outputs."""
    bare = copy.deepcopy(notebook)
    for cell in bare.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return bare


def write(notebooks: list[Path], folder: Path, address: Address) -> None:
    """Write the copies into a folder: a cell that installs, then the notebook without its outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in notebooks:
        notebook = without_outputs(nbformat.read(path, as_version=4))
        install = new_code_cell(f'%pip install -q "{address.package}"', id="install")
        notebook.cells.insert(0, install)
        nbformat.write(notebook, folder / path.name)
