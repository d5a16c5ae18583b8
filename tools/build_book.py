"""Build the static book from the stored outputs of the notebooks: build/book/index.html.

    python tools/build_book.py

The pages are copies of the notebooks in which every picture has its alternative text where Sphinx looks for it, and
every animation the table of its steps below it. Readers who have asked their system for less motion get its still.
Nothing is run, and a warning is an error.
"""

import re
import shutil
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_output
from PIL import Image
from sphinx.cmd.build import main as sphinx

from flashlearn.show.frame import table_html

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
    """Copy one notebook, the alt text of each picture moved to its cell, the steps of an animation made a table."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for output in list(cell.get("outputs", [])):
            steps = output.get("metadata", {}).get("image/png", {}).get("steps")
            if steps:
                table = table_html(steps, output.metadata["image/png"]["alt"])
                folded = f"<details><summary>This animation in words</summary>{table}</details>"
                at = cell.outputs.index(output) + 1
                cell.outputs.insert(at, new_output("display_data", {"text/html": folded}))
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


def stills() -> None:
    """Put a still beside every animation, and let pages show it to readers who have asked for less motion."""
    moving = set()
    for path in (PAGES / "_images").glob("*.png"):
        with Image.open(path) as image:
            if getattr(image, "is_animated", False):
                moving.add(path.name)
                image.copy().save(path.with_suffix(".still.png"))
    for path in PAGES.rglob("*.html"):
        text = path.read_text()
        path.write_text(
            re.sub(r'<img [^>]*src="([^"]*/)?([^"/]+\.png)"[^>]*>', lambda tag: _picture(tag, moving), text)
        )


def _picture(tag: re.Match, moving: set[str]) -> str:
    folder, name = tag.group(1) or "", tag.group(2)
    if name not in moving:
        return tag.group()
    still = f"{folder}{name.removesuffix('.png')}.still.png"
    source = f'<source srcset="{still}" media="(prefers-reduced-motion: reduce)">'
    return f"<picture>{source}{tag.group()}</picture>"


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
    status = sphinx(["-W", "--keep-going", "-q", "-b", "html", str(SOURCE), str(PAGES)])
    stills()
    return status


if __name__ == "__main__":
    sys.exit(build())
