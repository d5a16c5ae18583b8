"""What `play`, `picture` and `stepper` take; errors say what was expected and what came."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from flashlearn.core.steps import Step

SMALLEST, LARGEST = 1, 100  # inches along a side: 100 and 10,000 pixels
SHORTEST, LONGEST = 0.001, 60  # seconds that a frame may stand; times are stored in whole milliseconds


def check_alt(alt: str) -> str:
    """ValueError for a picture without words for those who cannot see it."""
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(f"expected alt text that says what the picture shows, got {alt!r}")
    return alt


def check_draw(draw: Any, *signatures: str) -> None:
    """TypeError for what cannot be called as draw(step) or draw(ax, step), or as given, such as steps in its place."""
    signatures = signatures or ("draw(step)", "draw(ax, step)")
    expected = f"expected a function {' or '.join(signatures)}"
    if not callable(draw):
        hint = "; are steps and draw swapped?" if "step" in expected else ""
        raise TypeError(f"{expected}, got {type(draw).__name__}{hint}")
    own = _signature(draw)
    if not any(_takes(own, signature) for signature in signatures):
        name = getattr(draw, "__name__", type(draw).__name__)
        raise TypeError(f"{expected}, got {name}({', '.join(own.parameters)})")


def _takes(own: inspect.Signature, signature: str) -> bool:
    try:
        own.bind(*signature.split(","))
    except TypeError:
        return False
    return True


def _signature(function: Callable) -> inspect.Signature:
    """What a function takes; anything, if it does not say so."""
    try:
        return inspect.signature(function)
    except ValueError:
        return inspect.signature(lambda *anything: None)


def check_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """The same steps; TypeError if it is no iterable, or something in it is no `Step`."""
    if callable(steps):
        name = getattr(steps, "__name__", type(steps).__name__)
        raise TypeError(f"expected steps, got the function {name}: call it, or are steps and draw swapped?")
    if not isinstance(steps, Iterable):
        raise TypeError(f"expected an iterable of steps, got {type(steps).__name__}")
    return map(_check_step, steps)


def _check_step(step: Any) -> Step:
    if not isinstance(step, Step):
        raise TypeError(f"expected steps, each a flashlearn.Step, got {type(step).__name__} among them: {step!r:.60}")
    return step


def check_figsize(figsize: tuple[float, float]) -> None:
    """ValueError for what is no width and height in inches."""
    sides = tuple(figsize) if isinstance(figsize, Sequence | np.ndarray) else ()  # no iterator: it is read again
    if len(sides) != 2 or not all(_is_number(side) and SMALLEST <= side <= LARGEST for side in sides):
        expected = f"figsize (width, height) in inches, from {SMALLEST} to {LARGEST}"
        raise ValueError(f"expected {expected}, got {figsize!r}")


def check_frame(number: int, count: int) -> None:
    """ValueError for the number of a frame that does not exist; negative numbers count from the end."""
    if not _is_whole(number) or not -count <= number < count:
        raise ValueError(f"expected still to be the number of a frame, from {-count} to {count - 1}, got {number!r}")


def check_predict(predict: bool | Mapping[int, str], count: int) -> dict[int, str]:
    """The questions by the number of their step; an error for what is neither bool nor questions about steps.

    Step 0 is what everything begins with: it is never hidden.
    """
    if isinstance(predict, bool):
        return {}
    if not isinstance(predict, Mapping):
        raise TypeError(f"expected predict to be True, False or {{step: question}}, got {predict!r}")
    for number, text in predict.items():
        if not _is_whole(number) or not 1 <= number < count or not isinstance(text, str) or not text.strip():
            raise ValueError(f"expected questions {{step from 1 to {count - 1}: text}}, got {number!r}: {text!r}")
    return dict(predict)


def check_seconds(seconds: float) -> None:
    """ValueError for a time that no frame can be shown for."""
    if not _is_number(seconds) or not SHORTEST <= seconds <= LONGEST:
        raise ValueError(f"expected seconds from {SHORTEST} to {LONGEST}, got {seconds!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
