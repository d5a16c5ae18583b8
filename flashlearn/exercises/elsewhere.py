"""Answers that are in another process, as in an examination (`flashlearn.grading`): what watches them runs there, too.

Such an answer has two methods. `run_there(function, *args)` returns what `function(answer, *args)` returns there, and
`launch_there(kernel, args, options)` launches a kernel of ours around it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def is_elsewhere(answer: Any) -> bool:
    """Whether an answer is in another process."""
    return hasattr(answer, "run_there")


def with_the_answer(function: F) -> F:
    """Run `function(answer, *args)` in the answer's process. What it returns arrives as tuples, lists, numbers, tensors and steps."""

    @functools.wraps(function)
    def run(answer: Any, *args: Any) -> Any:
        return answer.run_there(function, *args) if is_elsewhere(answer) else function(answer, *args)

    return run  # type: ignore[return-value]
