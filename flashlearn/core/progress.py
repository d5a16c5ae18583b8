"""A progress bar for long work, on standard error: in a terminal, and in a running notebook, which does not keep it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Collection, Iterable
from typing import TypeVar

T = TypeVar("T")
DELAY = 1.0  # seconds of work before the bar appears: short work shows none


def progress(items: Collection[T], what: str, unit: str, delay: float = DELAY) -> Iterable[T]:
    """The items, one after another, under a bar that says `what` and counts in `unit`; it is removed at the end.

    The items alone if standard error is not watched, or tqdm is not installed: the extra `notebooks` brings it.
    """
    if not watched() or importlib.util.find_spec("tqdm") is None:
        return items
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(items, desc=what, unit=unit, delay=delay, leave=False, file=sys.stderr, dynamic_ncols=True)
    return bar


def watched() -> bool:
    """Whether standard error is a terminal, or the output of a cell."""
    return sys.stderr.isatty() or type(sys.stderr).__module__ == "ipykernel.iostream"
