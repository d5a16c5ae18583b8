"""The record of a grading run: the findings of every check in a notebook (`flashlearn.exercises.report`)."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from flashlearn.exercises.report import FILE, TOKEN

LIMIT, REMARK = 2**20, 300  # bytes of a record that are read, characters of a remark
NOT_ATTEMPTED = "not attempted"


class Entry(NamedTuple):
    """The findings of one check of one exercise."""

    exercise: str
    passed: int
    tests: int
    remark: str
    core: bool = True  # whether all core tests passed


class Record:
    """A record of one run, in `folder`: `environment` is for the process that writes it, `read` for the one that grades."""

    def __init__(self, folder: Path):
        self.path, self.token = folder / "record", secrets.token_hex(16)

    @property
    def environment(self) -> dict[str, str]:
        return {FILE: str(self.path), TOKEN: self.token}

    def read(self, known: Mapping[str, int]) -> list[Entry]:
        """The entries, in order; `known` has the number of tests of every exercise, and lines that disagree are left out."""
        try:
            with open(self.path, "rb") as file:
                lines = file.read(LIMIT).splitlines()
        except OSError:
            return []
        entries = (self._entry(line, known) for line in lines)
        return [entry for entry in entries if entry is not None]

    def _entry(self, line: bytes, known: Mapping[str, int]) -> Entry | None:
        try:
            token, exercise, passed, tests, remark, core = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            return None
        if not all(isinstance(text, str) for text in (token, exercise, remark)):
            return None
        if not all(type(number) is int for number in (passed, tests)) or type(core) is not bool:
            return None
        if not hmac.compare_digest(token.encode(errors="replace"), self.token.encode()) or exercise not in known:
            return None
        if tests == passed == 0:
            return Entry(exercise, 0, known[exercise], NOT_ATTEMPTED)
        fits = 0 <= passed <= tests == known[exercise]
        return Entry(exercise, passed, tests, remark[:REMARK], core) if fits else None
