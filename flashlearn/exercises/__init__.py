"""Exercises: a specification, a stub in the notebook, and `check(name, function)` to grade it.

One file per notebook holds its exercises, each with its solution beside its tests:

    from flashlearn.exercises import check
    check("03.merge", merge)
"""

from flashlearn.exercises import (
    gradients_by_hand,
    naive_softmax,
    one_pass_attention,
    online_softmax,
    safe_softmax,
    start_here,
    tiled_attention,
    tiled_backward,
    tiled_matmul,
    two_pass_attention,
    why_it_is_fast,
)
from flashlearn.exercises.grading import Case, Exercise, Report, grade

NOTEBOOKS = (
    start_here,
    naive_softmax,
    safe_softmax,
    online_softmax,
    two_pass_attention,
    one_pass_attention,
    tiled_matmul,
    tiled_attention,
    why_it_is_fast,
    gradients_by_hand,
    tiled_backward,
)
EXERCISES = {exercise.name: exercise for notebook in NOTEBOOKS for exercise in notebook.EXERCISES}


def check(name: str, function) -> Report:
    """Grade `function` as an answer to the exercise `name`: a table of tests, and a hint for each that fails.

    A stub that still raises `NotImplementedError` is "not attempted". Nothing that `function` does raises here.
    """
    if name not in EXERCISES:
        raise ValueError(f"expected the name of an exercise, one of {', '.join(EXERCISES)}, got {name!r}")
    return grade(EXERCISES[name], function)


__all__ = ["EXERCISES", "Case", "Exercise", "Report", "check"]
