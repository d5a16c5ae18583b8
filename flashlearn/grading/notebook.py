"""A submitted notebook: its cells, and which exercises are expected in it."""

from __future__ import annotations

import re
from pathlib import Path

from flashlearn.course import NUMBERS
from flashlearn.course.triton_forward.mutation_lab import EXERCISE as LAB
from flashlearn.course.triton_forward.mutation_lab import MUTANTS
from flashlearn.exercises.checking import EXERCISES

TITLES = {f"{number}_{title}": number for title, number in NUMBERS.items()}  # -> its number
LARGEST = 64 * 2**20  # bytes of a file that is read: the course's own notebooks have less than 4 MB


def tests() -> dict[str, int]:
    """The number of tests of every exercise, now: an instructor may have added some."""
    return {name: len(exercise.cases) for name, exercise in EXERCISES.items()} | {LAB: len(MUTANTS)}


class NotANotebook(ValueError):
    """A file that cannot be read as a notebook."""


def code_cells(path: Path) -> list[str]:
    """The source of every cell of code; NotANotebook says what is wrong with the file."""
    import nbformat

    try:
        if path.stat().st_size > LARGEST:
            raise NotANotebook(f"not a notebook: more than {LARGEST} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:  # it was available when the command began
        raise NotANotebook(f"cannot be read any more: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NotANotebook("not a notebook: expected text in UTF-8") from None
    try:
        notebook = nbformat.reads(text, as_version=4)
        sources = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NotANotebook(f"not a notebook: {type(error).__name__}") from None
    except nbformat.ValidationError:
        raise NotANotebook("not a notebook: ValidationError") from None
    if not all(isinstance(source, str) for source in sources):
        raise NotANotebook("not a notebook: the source of a cell is no text")
    return sources


def chapter(path: Path) -> str:
    """The number of the course's notebook that a file is, by its name: "03" of "anna 2 - 03_online_softmax (1).ipynb".

    The number and the title may be anywhere in it. Without a title a number followed by a word counts, if no other such
    number is a chapter's; "" if none is found.
    """
    words = re.sub(r"[\W_]+", "_", path.stem.lower())
    for title, number in TITLES.items():
        if re.search(rf"(?<!\d){title}(?![a-z])", words):
            return number
    numbers = set(re.findall(r"(?<!\d)\d\d(?=_[a-z])", words)) & {name[:2] for name in EXERCISES}
    return numbers.pop() if len(numbers) == 1 else ""


def exercises_of(chapter: str) -> list[str]:
    """The names of a chapter's exercises, the lab among them."""
    return [name for name in tests() if chapter and name.startswith(f"{chapter}.")]
