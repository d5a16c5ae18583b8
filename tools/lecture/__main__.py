"""Build the lecture: build/lecture/index.html, to be opened in a browser without a network.

python -m tools.lecture                90 minutes, in the order of notebooks/INSTRUCTORS.md
python -m tools.lecture --minutes 45
python -m tools.lecture --no-pdf       without slides.pdf (slides with notes) and handout.pdf, which Chromium prints
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.lecture.slides import Planned

OUT = Path(__file__).parents[2] / "build" / "lecture"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def sections():
    """The whole lecture, in order."""
    from tools.lecture import softmax, tiles  # here: `--help` needs no PyTorch

    return [softmax.NAIVE, softmax.SAFE, softmax.ONLINE, softmax.ONE_PASS, *tiles.sections()]


def build(minutes: int, out: Path, pdf: bool = True) -> list[Path]:
    """Write the deck, its notes and the handout into the folder `out`, which is made anew; the files to open."""
    from flashlearn.show.frame import look
    from tools.lecture.handout import handout
    from tools.lecture.page import deck, notes
    from tools.lecture.slides import planned

    plan = planned(sections(), minutes)
    shutil.rmtree(out, ignore_errors=True)
    (out / "frames").mkdir(parents=True)
    library(out / "reveal")
    look.scale, look.lines = 1.5, 1.6  # as in projector mode
    try:
        (out / "index.html").write_text(deck(plan, out), encoding="utf-8")
    finally:
        look.scale, look.lines = 1.0, 1.0
    (out / "slides.html").write_text(notes(plan), encoding="utf-8")
    (out / "handout.html").write_text(handout(pictures(plan)), encoding="utf-8")
    pages = ["slides", "handout"] if pdf else []
    for name in pages:
        print_pdf(out / f"{name}.html", out / f"{name}.pdf")
    return [out / "index.html", *(out / f"{name}.pdf" for name in pages)]


def pictures(plan: Planned) -> dict[str, tuple[str, str]]:
    """The two pictures of the handout, from the deck's."""
    from tools.lecture.page import still
    from tools.lecture.slides import Run

    shown = {
        slide.title: (still(n), slide.shows.alt) for n, (_, slide, _) in enumerate(plan) if isinstance(slide.shows, Run)
    }
    return {"online": shown["Online softmax"], "tiles": shown["FlashAttention-1 and -2"]}


def library(folder: Path) -> None:
    """Copy reveal.js, which the package sphinx-revealjs brings."""
    source = files("sphinx_revealjs") / "_static" / "revealjs"
    folder.mkdir()
    for name in ("dist/reveal.js", "dist/reveal.css", "LICENSE"):
        (folder / Path(name).name).write_bytes((source / name).read_bytes())
    (folder / "notes").mkdir()
    for name in ("notes.js", "speaker-view.html"):
        (folder / "notes" / name).write_bytes((source / "plugin" / "notes" / name).read_bytes())


def print_pdf(page: Path, file: Path) -> None:
    """Print a page to a PDF file."""
    with tempfile.TemporaryDirectory() as profile:
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            f"--user-data-dir={profile}",
        ]
        flags += ["--no-pdf-header-footer", f"--print-to-pdf={file}"]
        subprocess.run([str(CHROMIUM), *flags, page.as_uri()], check=True, capture_output=True, timeout=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.lecture", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--minutes", type=int, choices=(90, 45), default=90, help="how long the lecture is (default: 90)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="the folder to write; it is made anew")
    parser.add_argument("--no-pdf", action="store_true", help="without the two files to print, which need Chromium")
    given = parser.parse_args(arguments)
    if not given.no_pdf and CHROMIUM is None:
        parser.error("expected Chromium or Chrome to print slides.pdf and handout.pdf, found none; or give --no-pdf")
    for file in build(given.minutes, given.out, not given.no_pdf):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
