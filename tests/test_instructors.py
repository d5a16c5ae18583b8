"""The guide for instructors speaks of exercises, notebooks and files that are there."""

import re
from pathlib import Path

from flashlearn.exercises import EXERCISES

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "notebooks" / "INSTRUCTORS.md").read_text()


def test_exercises_are_there():
    named = set(re.findall(r"`(\d\d\.[a-z_]+)`", GUIDE))
    assert named - {"12.mutants"} <= set(EXERCISES), named - set(EXERCISES)
    assert len(named) > 20


def test_files_are_there():
    for name in re.findall(r"`(flashlearn/[a-z_/]+)`", GUIDE):
        assert (ROOT / name).exists(), name


def test_headings_do_not_skip_a_level():
    levels = [len(mark) for mark in re.findall(r"^(#+) ", GUIDE, flags=re.MULTILINE)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
