"""Build the book: pages, frames and recorded runs, then Sphinx, then what closes the pages."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import main as sphinx
from tqdm import tqdm

from flashlearn.show.draw import style
from tools.book import api, colab, faces, finish, gallery, pages, runs

ROOT = Path(__file__).parents[2]
SOURCE, PAGES = ROOT / "build" / "book-source", ROOT / "build" / "book"
BROWSER = ROOT / "flashlearn" / "show" / "browser"
COLAB = ROOT / "build" / "book-colab"
CACHE = ROOT / "build" / "book-cache"  # what takes long to make, by what it was made from
STATIC = ROOT / "book" / "_static"
SCRIPTS = [STATIC / f"{name}.js" for name in ("dom", "cost", "hardware", "grid")]  # in this order
SCRIPTS += [BROWSER / f"{name}.js" for name in ("picture", "player", "explorer", "recorded", "tiling", "question")]
SCRIPTS += [STATIC / f"{name}.js" for name in ("pictures", "bytes", "runs", "folds", "predict", "search", "start")]


def build(numbers: Sequence[str] = ()) -> int:
    """Write the source of the book, run Sphinx over it; its exit status.

    With the numbers of notebooks only these become pages, for a quick look at a change: links to others lead nowhere.
    """
    for folder in (SOURCE, PAGES, COLAB):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "book", SOURCE)
    every = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    notebooks = [path for path in every if not numbers or path.stem[:2] in numbers]
    book = pages.Book(ROOT, SOURCE, gallery.of(notebooks, CACHE / "shown"))
    for path in tqdm(notebooks, "chapters", unit="notebook", disable=None):
        book.chapter(path)
    book.front(notebooks)
    api.write(SOURCE)
    colab.write(notebooks, COLAB, book.address)
    static = SOURCE / "_static"
    runs.write(static, CACHE / "runs", 1 if numbers else None)
    faces.write(static, CACHE / "faces")
    for sheet in ("player.css", "explorer.css", "question.css"):
        shutil.copy(BROWSER / sheet, static)
    (static / "scene.css").write_text(style.stylesheet(), encoding="utf-8")
    written = {
        script.name: script for script in static.glob("*.js")
    }  # hardware.js and grid.js too, which runs.write made
    finish.bundle([written.get(script.name, script) for script in SCRIPTS], static / "book.js")
    quiet = [] if sys.stderr.isatty() else ["-q"]  # on a terminal Sphinx says how far it is
    folders = ["-d", str(SOURCE / "doctrees"), str(SOURCE), str(PAGES)]
    status = sphinx([*([] if numbers else ["-W"]), "--keep-going", *quiet, "-b", "html", *folders])
    for name in ("frames", "download"):
        shutil.copytree(SOURCE / name, PAGES / name)
    finish.close(PAGES)
    return status
