"""The choices of a reader, kept on this computer alone: in `~/.flashlearn`, or the folder that FLASHLEARN_HOME names.

predictions.jsonl   choices made in notebooks; the first choice of a question counts
review.jsonl        answers given to `python -m flashlearn review`
inventory.jsonl     every inventory that was taken

A line of JSON for each. Delete a file to start again.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from flashlearn.exercises.questions import Question

PREDICTIONS, REVIEW, INVENTORY = "predictions.jsonl", "review.jsonl", "inventory.jsonl"
_unwritten: dict[str, list[dict]] = {}  # lines that could not be written, while Python runs


def folder() -> Path:
    """Where the files are."""
    return Path(os.environ.get("FLASHLEARN_HOME") or Path.home() / ".flashlearn")


def now() -> datetime:
    """The local time, with its offset from UTC."""
    return datetime.now().astimezone()


def write(name: str, line: dict[str, Any]) -> str:
    """Add a line to a file. Returns why that failed, or ""; such a line is kept until Python ends."""
    line = {"when": now().isoformat(timespec="seconds"), **line}
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with open(folder() / name, "ab+") as file:
            file.seek(max(0, file.tell() - 1))
            cut_off = file.read() not in (b"", b"\n")  # the last write was interrupted
            file.write(b"\n" * cut_off + json.dumps(line, ensure_ascii=False).encode() + b"\n")
    except OSError as error:
        _unwritten.setdefault(name, []).append(line)
        return f"{error.strerror}: {folder() / name}"
    return ""


def _load(name: str) -> tuple[list[dict[str, Any]], str]:
    """The lines of a file, and the reason why it could not be read, or ""."""
    lines, broken = [], 0
    try:
        texts = (folder() / name).read_bytes().splitlines()
    except FileNotFoundError:
        return [], ""
    except OSError as error:
        return [], f"{error.strerror}: {folder() / name}"
    for text in filter(bytes.strip, texts):
        try:
            line = json.loads(text)
        except ValueError:  # not JSON, or not UTF-8
            line = None
        if isinstance(line, dict):
            lines.append(line)
        else:
            broken += 1
    return lines, f"{broken} broken line{'s' * (broken > 1)} skipped: {folder() / name}" if broken else ""


def read(name: str) -> list[dict[str, Any]]:
    """The lines of a file, in order; broken lines are left out."""
    return [line for line in _load(name)[0] if line] + _unwritten.get(name, [])


def problem(name: str) -> str:
    """The reason why a file cannot be read, or ""."""
    return _load(name)[1]


def predicted(question: Question) -> str | None:
    """The first choice that was made, of those that the question has now; None if there is none."""
    lines = (line for line in read(PREDICTIONS) if line.get("question") == question.name)
    return next((line["choice"] for line in lines if line.get("choice") in question.choices), None)


def note(question: Question, choice: str) -> tuple[str, str]:
    """Keep a choice, unless there is one already. Returns the choice that counts, and why it cannot be kept, or ""."""
    if choice not in question.choices:
        raise ValueError(f"expected one of {question.choices} for {question.name}, got {choice!r}")
    if earlier := predicted(question):
        return earlier, ""
    trouble = write(PREDICTIONS, {"question": question.name, "choice": choice, "right": choice == question.right})
    return choice, trouble
