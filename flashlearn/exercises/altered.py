"""A program with some of its text replaced: mutants of kernels, and answers one line from the right one.

altered(bugs_solution, ("tl.maximum(m_i, tl.max(s, 1))", "tl.max(s, 1)"))
"""

from __future__ import annotations

import functools
import inspect
import linecache
import textwrap
import zlib
from collections.abc import Callable
from typing import Any

Change = tuple[str, str]  # the old text, which is there once, and the new one


def replaced(source: str, where: str, *changes: Change) -> str:
    """The text with every change made. RuntimeError if what is to be replaced is not in it exactly once."""
    for old, new in changes:
        if source.count(old) != 1:
            raise RuntimeError(f"expected {old!r} once in {where}, got it {source.count(old)} times: mend the change")
        source = source.replace(old, new)
    return source


def run(source: str, filename: str, names: dict[str, Any]) -> dict[str, Any]:
    """Execute a text under a name of its own, with `names` and what it defines; Triton finds its lines by that name."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), names)
    return names


def altered(function: Callable, *changes: Change) -> Callable:
    """The function with pieces of its source replaced, as if it had been written so in a module of its own."""
    source = replaced(_source(function), function.__name__, *changes)
    texts = "; ".join(new for _, new in changes)
    filename = f"<{function.__name__} {zlib.crc32(source.encode()):08x}: {texts}>"  # two texts, two names
    return run(source, filename, dict(function.__globals__))[function.__name__]


@functools.cache  # a kernel has a dozen mutants, and reading its source takes some 10 ms
def _source(function: Callable) -> str:
    return textwrap.dedent(inspect.getsource(function))
