"""The error of an answer, in plain words (raised.toml), with the line of the answer that raised it."""

from __future__ import annotations

import functools
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

PACKAGE = Path(__file__).parents[1]
# and whatever is installed
OURS = (
    str(PACKAGE),
    *(str(Path(str(module.__file__)).parent) for module in (traceback, torch)),
    "<frozen ",
    "<string>",
)
DROPS = re.compile(r"\.(sum|max|amax|min|mean|logsumexp)\(|lse|delta")  # values with one number for each row
KEEP = ". A sum or maximum over a dimension drops it: keepdim=True or [..., None] gives it back"


class Raised(NamedTuple):
    """An error: its text in one line, the line of the answer, and its meaning, where that is known."""

    error: str
    line: str
    plain: str

    @property
    def text(self) -> str:
        lines = [self.error, f"    {self.line}" if self.line else "", f"That is: {self.plain}" if self.plain else ""]
        return "\n".join(filter(None, lines))


def explain(problem: BaseException) -> Raised:
    """The error without the interpreter's wrapping, in plain words, and where the answer was when it was raised."""
    inner, line = unwrapped(problem), own_line(problem)
    message = next(iter(str(inner).strip().splitlines()), "")
    return Raised(f"{type(inner).__name__}: {message}".removesuffix(": "), line, in_plain_words(str(inner), line))


def in_plain_words(message: str, line: str) -> str:
    """The meaning of the message, empty if it is not known; `line` is empty if the check itself raised it."""
    meanings = _meanings()
    for pattern, meaning in (meanings["answers"] if line else meanings["checks"] | meanings["answers"]).items():
        if found := re.search(pattern, message):
            sizes = meaning.startswith("tensors of different sizes meet")
            return found.expand(meaning) + (KEEP if sizes and DROPS.search(line) else "")
    return ""


@functools.cache
def _meanings() -> dict[str, dict[str, str]]:
    """{"checks" or "answers": {regular expression: what a message that it matches means}}"""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _chain(problem: BaseException) -> Iterator[BaseException]:
    """The error, and those inside it as long as what is around them is Triton's wrapping."""
    yield problem
    inner = problem.__cause__ or problem.__context__
    if inner is not None and type(problem).__name__ in ("InterpreterError", "CompilationError"):
        yield from _chain(inner)


def unwrapped(problem: BaseException) -> BaseException:
    """The error inside InterpreterError and CompilationError."""
    return list(_chain(problem))[-1]


def own_line(problem: BaseException) -> str:
    """The innermost line of the answer itself, "line 3 of name: ...", wherever below it the error was raised."""
    frames = [frame for each in _chain(problem) for frame in traceback.extract_tb(each.__traceback__)]
    own = [frame for frame in frames if frame.line and not foreign(frame.filename)]
    return f"line {own[-1].lineno} of {own[-1].name}: {own[-1].line}" if own else ""


def by_the_check(problem: BaseException) -> bool:
    """Whether the check raised it about the result, and the answer raised nothing."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = bool(frames) and Path(frames[-1].filename).parent == Path(__file__).parent
    return ours and str(problem).startswith("expected ")


def foreign(filename: str) -> bool:
    """Whether a file is part of this package, of Python or of what is installed, and so not of an answer."""
    return (
        (filename.startswith(OURS) and not filename.endswith(f"{os.sep}wrong.py"))  # those are answers
        or any(part in filename for part in ("site-packages", "dist-packages", "/ipykernel/", "/IPython/"))
        or filename.startswith(f"{sys.base_prefix}/lib/python")
    )
