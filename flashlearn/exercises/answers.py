"""The prepared answers of a notebook: known mistakes, which `check` names, and answers that only tests load.

They are in `wrong.toml`, in the notebook's folder of `flashlearn/course`:

    [merge.known]
    not_rescaled = { what = "the sums are added without rescaling", case = "one maximum rises", edit = ["alpha * l", "l"] }

`[EXERCISE.KIND]` with a kind of `KINDS`, then one line an answer: its id, `what` completes "This is what you get if ...".

edit      [old, new] or several such pairs: the solution with that text replaced; each old text is in it once
code      an expression in the names of `wrong.py` next to the file and in `solution`; without both it is the function EXERCISE_ID there
letters   of an exercise that puts lines in order: the answer
case      (known) the case that must fail
says      (variant, wrong) a regular expression that the report must match;  never (variant)  one that it must not match

`[EXERCISE.decoys]` are the wrong lines of such an exercise: `line`, `instead_of` (the number of a right line, from 0), `what`
and `case`. Each is a known mistake, too.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import Any

from flashlearn.exercises.altered import altered

KINDS = ("known", "variant", "wrong", "right")  # the last three are for tests alone
ALLOWED = {"what", "case", "edit", "code", "letters", "says", "never"}


@dataclass(frozen=True)
class Answer:
    """An answer to an exercise; `function` gives it, and the case named `caught_by` must fail."""

    id: str  # NOTEBOOK.EXERCISE.ID
    kind: str
    what: str
    make: Callable[[], Callable]
    caught_by: str = ""
    says: str = ""
    never: str = ""

    @functools.cached_property
    def function(self) -> Callable:
        return self.make()


@functools.cache
def tables(notebook: str) -> dict[str, Any]:
    """What `wrong.toml` of a notebook says, by exercise and kind."""
    return tomllib.loads((files("flashlearn.course") / notebook / "wrong.toml").read_text(encoding="utf-8"))


def answers(notebook: str, exercise: str, solution: Callable, *kinds: str) -> tuple[Answer, ...]:
    """The answers of these kinds to an exercise, "merge" of "online_softmax" for one, in the order of the file."""
    found = []
    for kind in kinds:
        for name, entry in tables(notebook).get(exercise, {}).get(kind, {}).items():
            where = f"{notebook}.{exercise}.{name}"
            if not entry.keys() <= ALLOWED or "what" not in entry:
                raise ValueError(
                    f"expected `what` and no more than {', '.join(sorted(ALLOWED))} in {where}, got {', '.join(entry)}"
                )
            make = functools.partial(_function, notebook, f"{exercise}_{name}", solution, entry)
            more = {key: entry.get(key, "") for key in ("says", "never")}
            found.append(Answer(where, kind, entry["what"], make, entry.get("case", ""), **more))
    return tuple(found)


def _function(notebook: str, name: str, solution: Callable, entry: dict[str, Any]) -> Callable:
    """The answer that an entry describes."""
    if "letters" in entry:
        return functools.partial(str, entry["letters"])
    if "edit" in entry:
        edit = entry["edit"]
        return altered(solution, *([edit] if isinstance(edit[0], str) else edit))
    names = vars(import_module(f"flashlearn.course.{notebook}.wrong"))
    return eval(entry["code"], names | {"solution": solution}) if "code" in entry else names[name]
