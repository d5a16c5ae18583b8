"""What a picture takes from the tensors of a step, as numbers; and whether they are the steps it can show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from flashlearn.core.steps import Step


def not_of(what: str, wanted: str, got: Iterable[str], run: bool = False) -> ValueError:
    """The error for a step, or for the steps of a run, of another algorithm than a picture shows."""
    steps, picture = (
        ("steps", "are they another picture's steps") if run else ("a step", "is it another picture's step")
    )
    return ValueError(f"expected {steps} of {what}, with {wanted}, got {', '.join(got) or 'none'}: {picture}?")


def check_step(what: str, step: Step) -> None:
    """Raise TypeError for what is no step."""
    if not isinstance(step, Step):
        hint = ": are ax and step swapped?" if hasattr(step, "get_xlim") else ""
        raise TypeError(f"expected a step of {what}, got {type(step).__name__}{hint}")


def check_steps_of(
    what: str,
    step: Step,
    *,
    shapes: Sequence[str] = (),
    values: Sequence[str] = (),
    writes: Sequence[str] = (),
    dims: int | None = None,
    never: Sequence[str] = (),
    phases: Sequence[str] = (),
) -> None:
    """Raise ValueError for a step of another algorithm than those that a picture shows.

    shapes, values   the names that the step must have there
    writes           the matrix that some step of its run must write, unless the run wrote only those after it here
    dims             how many dimensions each of `shapes` must have; any unless given
    never            the matrices that no step of the run may write
    phases           the only phases that the run may have; any unless given
    """
    check_step(what, step)
    for where, wanted in (("shapes", shapes), ("values", values)):
        there = getattr(step, where)
        if not all(name in there for name in wanted):
            raise not_of(what, f"{', '.join(wanted)} in its {where}", there)
    flat = [f"{name} {tuple(step.shapes[name])}" for name in shapes if dims and len(step.shapes[name]) != dims]
    if flat:
        raise not_of(what, f"{', '.join(shapes)} of {dims} dimensions in its shapes", flat)
    run = step.run or (step,)
    written = list(dict.fromkeys(tile.name for s in step.run for tile in s.writes))
    if writes and writes[0] not in written and not set(written) <= set(writes):
        raise not_of(what, f"{writes[0]} in their writes", written, run=True)
    written = list(dict.fromkeys(tile.name for s in run for tile in s.writes))
    if not set(written).isdisjoint(never):
        raise not_of(what, f"no {', '.join(never)} in their writes", written, run=True)
    passed = list(dict.fromkeys(s.phase for s in run))
    if phases and not set(passed) <= set(phases):
        raise not_of(what, f"only {', '.join(phases)} in their phases", passed, run=True)


def first(t: Tensor) -> float:
    """The first number."""
    return t.detach().flatten()[0].item()


def first_row(t: Tensor) -> list[float]:
    """The first row, as numbers."""
    return t.detach().double().reshape(-1, t.shape[-1])[0].tolist() if t.numel() else []


def first_head(t: Tensor) -> list[list[float]]:
    """The rows of the first head of the first batch entry, as numbers."""
    return t.detach()[0, 0].double().tolist()


def running_name(values: Mapping[str, Any]) -> str:
    """What the sum of a loop over keys is called: acc before its division, o' if divided always, o in two passes."""
    return "o" if "normalised" not in values else "o'" if values["normalised"] else "acc"


def running_sum(values: Mapping[str, Any]) -> Tensor | None:
    """That sum, if the step has one."""
    return values.get("acc", values.get("o'"))
