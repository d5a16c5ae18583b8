"""Every picture of the course as SVG and PDF, for slides of your own, and a page that shows them all.

    python -m tools.figures          build/figures/index.html, of all notebooks
    python -m tools.figures 03 07    of these alone

A file is named after its notebook, its place there and the name of its cell, if that has one: `03_online_softmax-2.svg` is the
second picture, `03_online_softmax-1-shows-wrong.svg` the first. Of a run it is the step that represents the whole; those with
`-step1` and so on at the end are its first and its last step, and those that ask a question.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure
from tqdm import tqdm

from flashlearn.show.animation import DPI, STYLE
from flashlearn.show.draw.scene import Scene
from flashlearn.show.draw.style import stylesheet
from flashlearn.show.frame import drawn, layouts
from tools.book.gallery import AT_ONCE
from tools.book.rerun import Gallery, run

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "figures"
FILES = {"svg.fonttype": "none", "pdf.fonttype": 42}  # text that can be searched and edited


class Exhibit(Gallery):
    """Writes what the cells of a notebook display into a folder."""

    def __init__(self, notebook: str, folder: Path):
        super().__init__()
        self.notebook, self.folder, self.count = notebook, folder, 0

    def run(self, shown: Any) -> None:
        """A run: some of its steps."""
        self.count += 1
        last = len(next(iter(sorted(shown.runs.values(), key=len, reverse=True)))) - 1
        still = getattr(shown, "still", 0) % (last + 1)
        asked = map(int, getattr(shown, "run", {}).get("questions", {}))
        self._write("", shown, still)
        for step in sorted({0, last, *asked} - {still}):
            self._write(f"-step{step + 1}", shown, step)

    def plot(self, shown: Any) -> None:
        """A plot."""
        self.count += 1
        plot, figsize = shown.drawn_by
        if isinstance(plot, Scene):
            self._path("", "svg").write_text(alone(plot.svg(), [plot.width, plot.height]), encoding="utf-8")
            figsize, plot = (figsize[0], figsize[0] * plot.height / plot.width), plot.axes
        with style.context([STYLE, FILES]):
            figure = Figure(figsize=figsize, dpi=DPI, layout="constrained")
            plot(figure.add_subplot())
            for kind in ("svg", "pdf"):
                if not self._path("", kind).exists():
                    figure.savefig(self._path("", kind))

    def _write(self, which: str, shown: Any, step: int) -> None:
        with style.context([STYLE, FILES]):
            figure = drawn(shown.runs, step, shown.draw_step, shown.figsize).figure
            figure.savefig(self._path(which, "pdf"))
            scenes = layouts(shown.runs, step, shown.draw_step)
            if scenes:
                self._path(which, "svg").write_text(alone(scenes[0].svg(), scenes[0].size), encoding="utf-8")
            else:
                figure.savefig(self._path(which, "svg"))

    def _path(self, which: str, kind: str) -> Path:
        cell = "" if re.fullmatch(r"cell-\d+", self.cell) else f"-{self.cell}"
        return self.folder / f"{self.notebook}-{self.count}{cell}{which}.{kind}"


def alone(svg: str, size: Sequence[float]) -> str:
    """A scene as a file: with its name space, its size and its colours.

    >>> alone('<svg class="scene" viewBox="0 0 2 1"></svg>', [2, 1])[:62]
    '<svg xmlns="http://www.w3.org/2000/svg" width="2" height="1" c'
    """
    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
    svg = svg.replace("<svg ", start, 1).replace(' aria-hidden="true"', "", 1)
    return svg.replace(">", f"><style>{stylesheet(plain=True)}</style>", 1)


def contact_sheet(folder: Path) -> None:
    """Write a page with every SVG in the folder, its name and its PDF."""
    files = sorted(
        folder.glob("*.svg"),
        key=lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.stem)],
    )
    each = "".join(
        f'<figure><a href="{path.name}"><img src="{path.name}" alt="{path.stem}" loading="lazy"></a>'
        f'<figcaption>{path.stem} <a href="{path.name}">SVG</a> <a href="{path.stem}.pdf">PDF</a></figcaption></figure>\n'
        for path in files
    )
    look = (
        "body{font:16px sans-serif;margin:2rem;display:grid;gap:1.5rem;grid-template-columns:repeat(auto-fill,minmax(24rem,1fr))}"
        "h1{grid-column:1/-1}figure{margin:0}img{width:100%;border:1px solid #ccc}"
    )
    title = html.escape(f"{len(files)} pictures of the course")
    page = f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{look}</style><h1>{title}</h1>\n{each}</html>\n'
    (folder / "index.html").write_text(page, encoding="utf-8")


def export(path: Path) -> None:
    """Run one notebook in a process of its own, which writes its pictures."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "FLASHLEARN_HOME": home, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tools.figures", "--run", str(path), str(OUT)]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise SystemExit(f"{path.name} could not be run for its pictures:\n{done.stderr[-2000:]}")


def main(numbers: list[str]) -> None:
    """Export the notebooks with these numbers, or all."""
    paths = [path for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if not numbers or path.stem[:2] in numbers]
    if not paths:
        raise SystemExit(f"expected numbers of notebooks, 00 to 19, got {' '.join(numbers)}")
    OUT.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(tqdm(pool.map(export, paths), "notebooks", len(paths), unit="notebook", disable=None))
    contact_sheet(OUT)
    print(OUT / "index.html")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        notebook, folder = map(Path, sys.argv[2:4])
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # what the cells print
        run(notebook, Exhibit(notebook.stem, folder))
    else:
        main(sys.argv[1:])
