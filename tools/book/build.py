"""Build the book: pages, frames and recorded runs, then Sphinx, then what closes the pages."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx
from tqdm import tqdm

from tools.book import api, colab, faces, finish, pages, runs

ROOT = Path(__file__).parents[2]
SOURCE, PAGES = ROOT / "build" / "book-source", ROOT / "build" / "book"
BROWSER = ROOT / "flashlearn" / "show" / "browser"
COLAB = ROOT / "build" / "book-colab"
CACHE, FACES = ROOT / "build" / "book-frames", ROOT / "build" / "book-faces"
STATIC = ROOT / "book" / "_static"
SCRIPTS = [STATIC / f"{name}.js" for name in ("dom", "cost", "hardware", "grid")]  # in this order
SCRIPTS += [BROWSER / "picture.js", BROWSER / "player.js", BROWSER / "question.js"]
SCRIPTS += [
    STATIC / f"{name}.js" for name in ("pictures", "bytes", "tiles", "tiling", "figures", "predict", "search", "start")
]


def build() -> int:
    """Write the source of the book, run Sphinx over it; its exit status."""
    for folder in (SOURCE, PAGES, COLAB):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "book", SOURCE)
    notebooks = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    book = pages.Book(ROOT, SOURCE, CACHE)
    for path in tqdm(notebooks, "chapters", unit="notebook", disable=None):
        book.chapter(path)
    book.front(notebooks)
    api.write(SOURCE)
    colab.write(notebooks, COLAB, book.address)
    static = SOURCE / "_static"
    runs.write(static)
    faces.write(static, FACES)
    for style in ("player.css", "question.css"):
        shutil.copy(BROWSER / style, static)
    written = {
        script.name: script for script in static.glob("*.js")
    }  # hardware.js and grid.js too, which runs.write made
    finish.bundle([written.get(script.name, script) for script in SCRIPTS], static / "book.js")
    quiet = [] if sys.stderr.isatty() else ["-q"]  # on a terminal Sphinx says how far it is
    folders = ["-d", str(SOURCE / "doctrees"), str(SOURCE), str(PAGES)]
    status = sphinx(["-W", "--keep-going", *quiet, "-b", "html", *folders])
    for name in ("frames", "download"):
        shutil.copytree(SOURCE / name, PAGES / name)
    finish.close(PAGES)
    return status
