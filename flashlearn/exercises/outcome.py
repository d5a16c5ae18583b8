"""What `check` and `run_lab` found, left in a file for a grading run (`flashlearn.grading`), one line of JSON each.

A grading run names the file and a token in the environment of the notebook's process. Without these nothing is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

FILE, TOKEN = "FLASHLEARN_RECORD", "FLASHLEARN_RECORD_TOKEN"


def leave(exercise: str, passed: Sequence[bool], remark: str = "", core: bool = True) -> None:
    """Note which tests passed, none if the exercise was not attempted; `core` says whether all core tests passed."""
    if path := os.environ.get(FILE):
        token = os.environ.get(TOKEN, "")
        line = json.dumps([token, exercise, sum(map(bool, passed)), len(passed), remark, core])
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
