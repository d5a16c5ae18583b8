"""Hand out a working copy of the notebooks in my_course/: outputs cleared, ignored by git, never overwritten.

    python tools/my_course.py              what is not there yet
    python tools/my_course.py --refresh    and new versions of what you have not changed; `git pull` first

A notebook counts as changed when the text of its cells is: running it changes nothing. What was handed out is noted in
my_course/.handed_out.json. A notebook that you delete or rename is handed out again.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS, MINE = ROOT / "notebooks", ROOT / "my_course"
NOTE = ".handed_out.json"
NOT_FOR_STUDENTS = ("INSTRUCTORS.md", "GRADING.md")


def cleared(text: str) -> str:
    """A notebook without outputs; another text as it is."""
    if not text.startswith("{"):
        return text
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def mark(text: str) -> str:
    """The mark of a version: the text of the cells, however often they were run."""
    try:
        cells = json.loads(text)["cells"]
        text = json.dumps([(cell["cell_type"], "".join(cell["source"])) for cell in cells])
    except (ValueError, KeyError, TypeError):
        pass  # no notebook, or one that is broken: the text itself
    return hashlib.sha256(text.encode()).hexdigest()


def noted(note: Path) -> dict[str, str]:
    """The mark of every file that was handed out; SystemExit if the note is broken."""
    try:
        return dict(json.loads(note.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise SystemExit(
            f"expected an object of JSON in {note}, got: {error}. Delete it and run this again: notebooks that differ from "
            "their new version then count as changed by you, and are kept"
        ) from error


def hand_out(source: Path, mine: Path, refresh: bool) -> Iterator[str]:
    """Copy what is missing, with `refresh` also what is out of date and unchanged; a line for each that it did or kept."""
    mine.mkdir(exist_ok=True)
    note = mine / NOTE
    handed_out = noted(note) if note.exists() else {}
    for path in sorted([*source.glob("*.ipynb"), *source.glob("*.md")]):
        copy = mine / path.name
        if path.name in NOT_FOR_STUDENTS or copy.exists() and not refresh:
            continue
        new, old = cleared(path.read_text(encoding="utf-8")), handed_out.get(path.name)
        if copy.exists():
            now = mark(copy.read_text(encoding="utf-8", errors="replace"))  # yours may be anything
            if mark(new) in (old, now):
                continue
            if now != old:
                yield f"{copy.name}: kept, since you changed it. Rename yours and run this again for the new version."
                continue
        yield f"{copy.name}: {'new version' if copy.exists() else 'handed out'}"
        copy.write_text(new, encoding="utf-8")
        note.write_text(json.dumps(handed_out | {path.name: mark(new)}, indent=1) + "\n", encoding="utf-8")
        handed_out[path.name] = mark(new)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refresh", action="store_true", help="replace what you have not changed by its new version")
    refresh = parser.parse_args(arguments).refresh
    try:
        line = ""
        for line in hand_out(NOTEBOOKS, MINE, refresh):
            print(f"my_course/{line}")
        if not line:
            print(
                "my_course/ is up to date"
                if refresh
                else "my_course/ has every notebook: --refresh (make refresh) takes new versions"
            )
    except OSError as error:
        parser.error(f"expected a folder {MINE} that can be read and written, got: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
