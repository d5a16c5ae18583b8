"""Build the static book from the stored outputs of the notebooks: build/book/index.html.

    python tools/build_book.py

The pages are copies of the notebooks in which every picture has its alternative text where Sphinx looks for it.
Nothing is run, and a warning is an error.
"""

import re
import shutil
import sys
from pathlib import Path

import nbformat
from sphinx.cmd.build import main as sphinx

ROOT = Path(__file__).parent.parent
SOURCE, PAGES = ROOT / "build" / "book-source", ROOT / "build" / "book"
PARTS = {
    "One row of softmax": range(1, 4),
    "One query, all keys": range(4, 6),
    "Tiles": range(6, 9),
    "Gradients": range(9, 11),
    "Triton": range(11, 16),
}


def page(path: Path) -> None:
    """Copy one notebook, the alt text of each picture moved to its cell."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            alt = output.get("metadata", {}).get("image/png", {}).get("alt")
            if alt is None and "image/png" in output.get("data", {}):
                alt = output.data.get("text/plain", "")
            if alt:
                cell.metadata["mystnb"] = {"image": {"alt": alt, "width": "100%"}}
    nbformat.write(notebook, SOURCE / "notebooks" / path.name)


def first_page(notebooks: list[Path]) -> str:
    """The README, its links turned into the book's, and the table of contents."""
    text = (ROOT / "README.md").read_text()
    text = re.sub(r"\]\((?!https?:|docs/|notebooks/|#)[^)]*\)", "]", text)
    lines = [text, "```{toctree}", ":hidden:", f"notebooks/{notebooks[0].stem}", "```"]
    for part, numbers in PARTS.items():
        inside = [f"notebooks/{path.stem}" for path in notebooks if int(path.stem[:2]) in numbers]
        if inside:
            lines += ["", "```{toctree}", ":hidden:", f":caption: {part}", *inside, "```"]
    return "\n".join(lines) + "\n"


def build() -> int:
    """Write the source of the book, run Sphinx over it; its exit status."""
    for folder in (SOURCE, PAGES):
        shutil.rmtree(folder, ignore_errors=True)
    (SOURCE / "notebooks").mkdir(parents=True)
    notebooks = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    for path in notebooks:
        page(path)
    shutil.copytree(ROOT / "book", SOURCE, dirs_exist_ok=True)
    shutil.copytree(ROOT / "docs", SOURCE / "docs")
    (SOURCE / "index.md").write_text(first_page(notebooks))
    return sphinx(["-W", "--keep-going", "-q", "-b", "html", str(SOURCE), str(PAGES)])


if __name__ == "__main__":
    sys.exit(build())
