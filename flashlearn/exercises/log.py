"""What a reader predicted, kept in `~/.flashlearn` or the folder that FLASHLEARN_HOME names.

predictions.jsonl   the choices made in notebooks, one line of JSON each, the first of a question counts
inventory.jsonl     every inventory that was taken, one line each (`flashlearn.grading.inventory`)

Delete a file to begin anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from flashlearn.exercises.questions import Question

PREDICTIONS, INVENTORY = "predictions.jsonl", "inventory.jsonl"
_unwritten: dict[str, list[dict]] = {}  # lines that no file took, while Python runs


def folder() -> Path:
    """Where it is kept."""
    return Path(os.environ.get("FLASHLEARN_HOME") or Path.home() / ".flashlearn")


def write(name: str, line: dict[str, Any]) -> str:
    """Add a line to a file; why that failed, or "". A line that no file takes is kept until Python ends."""
    line = {"when": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **line}
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with open(folder() / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    except OSError as error:
        _unwritten.setdefault(name, []).append(line)
        return f"{error.strerror}: {folder() / name}"
    return ""


def read(name: str) -> list[dict[str, Any]]:
    """The lines of a file, in order; what is no line of ours is left out."""
    try:
        texts = (folder() / name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        texts = []
    lines = []
    for text in texts:
        with contextlib.suppress(ValueError):
            lines.append(json.loads(text))
    return [line for line in lines if line and isinstance(line, dict)] + _unwritten.get(name, [])


def predicted(question: Question) -> str | None:
    """The choice that was made first, of those that the question has by now; None if there is none."""
    lines = (line for line in read(PREDICTIONS) if line.get("question") == question.name)
    return next((line["choice"] for line in lines if line.get("choice") in question.choices), None)


def note(question: Question, choice: str) -> tuple[str, str]:
    """Keep a choice, unless one is kept already: the one that counts, and why it cannot be kept, or ""."""
    if choice not in question.choices:
        raise ValueError(f"expected one of {question.choices} for {question.name}, got {choice!r}")
    if earlier := predicted(question):
        return earlier, ""
    trouble = write(PREDICTIONS, {"question": question.name, "choice": choice, "right": choice == question.right})
    return choice, trouble
