"""Questions that find the cause of a wrong answer: each takes the answer and says what it gets wrong, or nothing."""

from flashlearn.exercises.grading import Cause

CAUSES: dict[str, tuple[Cause, ...]] = {}
