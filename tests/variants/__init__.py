"""Plausible wrong answers, about three an exercise, that `check` should name: a file a notebook, none taken from mistakes/.

A report *names* a wrong answer if some sentence of it says the true cause, and none of its advice says another.
`python -m tests.variants` prints for each what was said, and counts.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable
from typing import NamedTuple


class Variant(NamedTuple):
    """A wrong answer to an exercise, its true cause in words, and what a sentence that names this cause contains."""

    exercise: str
    cause: str
    says: str  # a regular expression
    function: Callable
    never: str  # what no sentence may contain, because it would be false


VARIANTS: list[Variant] = []


def variant(exercise: str, cause: str, says: str, never: str = "") -> Callable[[Callable], Callable]:
    """Note the function below as a wrong answer."""

    def note(function: Callable) -> Callable:
        VARIANTS.append(Variant(exercise, cause, says, function, never))
        return function

    return note


def collect() -> list[Variant]:
    """All variants, in the order of the notebooks; without Triton, those that need none."""
    for module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if module not in ("__main__", "judge") and not module.endswith("_kernels"):
            importlib.import_module(f"{__name__}.{module}")
    missing = ("11", "12", "13") if importlib.util.find_spec("triton") is None else ()
    return sorted((v for v in VARIANTS if not v.exercise.startswith(missing or ("-",))), key=lambda v: v.exercise)


def sentences(report: str) -> tuple[list[str], list[str]]:
    """What a report says, after its first line: facts (errors, findings), and advice (hints, causes, diagnoses).

    A line that begins with "That is: " goes on with the one before it.
    """
    facts, advice = [], []
    for line in map(str.strip, re.sub(r"\n *That is: ", " That is: ", report).splitlines()[1:]):
        row = re.match(r"(?:pass|FAIL)  .*?(?:  +(?P<detail>\S.*))?$", line)
        text = (row["detail"] or "") if row else line
        if text.startswith(("hint: ", "why: ")):
            advice.append(text.partition(": ")[2])
        elif text.startswith("This is what you get if "):
            advice += re.split(r", or if ", text)
        elif text and not re.fullmatch(r"inf|nan|[-+.e\d]+", text):
            facts.append(text)
    return facts, advice


def says_the_cause(variant: Variant, report: str) -> bool:
    """Whether any sentence says it, whatever the others say."""
    return any(re.search(variant.says, text, re.IGNORECASE) for text in sum(sentences(report), []))


def verdict(variant: Variant, report: str) -> str:
    """ "named", "misled" (some advice is about something else), or "unnamed" (nothing says the cause)."""
    facts, advice = sentences(report)
    says = re.compile(variant.says, re.IGNORECASE)
    false = re.compile(variant.never, re.IGNORECASE) if variant.never else None
    if any(not says.search(text) for text in advice) or (false and any(map(false.search, facts + advice))):
        return "misled"
    return "named" if says_the_cause(variant, report) else "unnamed"
