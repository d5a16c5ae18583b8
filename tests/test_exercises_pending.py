"""Exercises whose mistakes are still in tests/mistakes, in the old format. Goes away when all have moved."""

import importlib
from pathlib import Path

import pytest

from flashlearn.exercises import EXERCISES, check

PLANTED = [
    (name, *planted)
    for path in sorted((Path(__file__).parent / "mistakes").glob("*.py"))
    for name, several in getattr(importlib.import_module(f"tests.mistakes.{path.stem}"), "MISTAKES", {}).items()
    if name in EXERCISES and not EXERCISES[name].mistakes
    for planted in several
]


@pytest.mark.parametrize(("name", "wrong", "function", "case"), PLANTED)
def test_mistake_is_caught_by_the_case_meant_for_it(name, wrong, function, case):
    failed = {row.case for row in check(name, function).rows if not row.passed}
    assert case in failed, f"{wrong}: expected {case!r} to fail, failed were {failed or 'none'}"
