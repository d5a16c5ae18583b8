"""Examples in docstrings are run."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEED_TRITON = (
    "flashlearn.kernels",
    "flashlearn.fast",
    "flashlearn.models.transformers",
    "flashlearn.models.continuous",
)
OF_THE_BOOK = ("docutils", "fontTools", "latex2mathml", "sphinx")  # what tools.book imports
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("flashlearn", "benchmarks", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if any(">>> " in line and "+SKIP" not in line for line in path.read_text(encoding="utf-8").splitlines())
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    if name.startswith(NEED_TRITON):
        pytest.importorskip("triton")
    if name.startswith("tools.book."):
        for package in OF_THE_BOOK:
            pytest.importorskip(package, reason=f"{package} is not installed here: it comes with the extra `book`")
    result = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert result.attempted and not result.failed


def test_there_are_examples():
    assert len(MODULES) >= 4
