"""Build the lecture: build/lecture/index.html, to be opened in a browser without a network.

python -m tools.lecture                90 minutes, in the order of notebooks/INSTRUCTORS.md
python -m tools.lecture --minutes 45   or 2x45: the long one in two halves, with a break
python -m tools.lecture --slides DIR   slides of your own: a copy of the folder lecture, changed
python -m tools.lecture --no-pdf       without slides.pdf (slides with notes) and handout.pdf, which Chromium prints
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.lecture.slides import LENGTHS

ROOT = Path(__file__).parents[2]
SLIDES, OUT = ROOT / "lecture", ROOT / "build" / "lecture"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def build(minutes: str, out: Path, pdf: bool = True, slides: Path = SLIDES) -> list[Path]:
    """Write the deck and the handout into the folder `out`, which is made anew; the files to open."""
    from flashlearn.show.frame import look
    from tools.lecture.page import deck, handout
    from tools.lecture.runs import NUMBERS
    from tools.lecture.slides import planned, read

    plan = planned(read(slides, NUMBERS), minutes)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(slides, out, ignore=shutil.ignore_patterns("*.md", "*.css"))  # a logo, pictures
    (out / "frames").mkdir()
    brand = slides / "brand.css"
    look.scale, look.lines = 1.5, 1.6  # as in projector mode
    try:
        page = deck(plan, out, brand.read_text(encoding="utf-8") if brand.exists() else "")
    finally:
        look.scale, look.lines = 1.0, 1.0
    (out / "index.html").write_text(page, encoding="utf-8")
    prints = {"slides": out / "index.html"}
    if (slides / "handout.md").exists():
        prints["handout"] = out / "handout.html"
        prints["handout"].write_text(handout(slides / "handout.md", plan, out), encoding="utf-8")
    for name, source in prints.items() if pdf else ():
        print_pdf(source, out / f"{name}.pdf")
    return [out / "index.html", *(out / f"{name}.pdf" for name in prints if pdf)]


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
    parser.add_argument("--minutes", choices=LENGTHS, default="90", help="how long the lecture is (default: 90)")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder to write; it is made anew")
    parser.add_argument("--slides", type=Path, default=SLIDES, help="the folder of slides (default: lecture)")
    parser.add_argument("--no-pdf", action="store_true", help="without the two files to print, which need Chromium")
    given = parser.parse_args(arguments)
    if not given.no_pdf and CHROMIUM is None:
        parser.error("expected Chromium or Chrome to print slides.pdf and handout.pdf, found none; or give --no-pdf")
    for file in build(given.minutes, given.out, not given.no_pdf, given.slides):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
