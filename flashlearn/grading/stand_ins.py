"""Replacements of the package's functions where a student's code runs in an examination (stripped.py)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

PACKAGE = __name__.partition(".")[0]
request: Callable[[str, tuple, dict[str, Any]], Any] | None = None  # has the process that grades compute a function


class Closed:
    """A function of the package that is not there: PermissionError when it is called."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise PermissionError(f"expected a function of your own, got {self.name} of the package")


def closed(name: str) -> Closed:
    """PermissionError; while the package is imported, which calls some of its functions, what raises it when called."""
    frame = sys._getframe(2)
    while frame:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__", "").startswith(f"{PACKAGE}."):
            return Closed(name)
        frame = frame.f_back  # type: ignore[assignment]
    return Closed(name)()


def provided(name: str, args: tuple, options: dict[str, Any]) -> Any:
    """The result of the grading process for a function that the exercise may use."""
    return request(name, args, options) if request else Closed(name)()
