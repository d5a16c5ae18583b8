"""Which wrong answers `check` names: `python -m tests.named` prints what it says of every variant, and counts.

A report *names* a wrong answer if some sentence of it says the true cause, and none of its advice says another.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections import Counter
from collections.abc import Iterator

from flashlearn.exercises import EXERCISES, Answer, check
from flashlearn.exercises.answers import answers


def every(*kinds: str) -> Iterator[tuple[str, Answer]]:
    """(name of the exercise, answer) for all answers of these kinds; without Triton, for those that need none."""
    missing = ("11", "12", "13", "15.wide") if importlib.util.find_spec("triton") is None else ()
    for name, exercise in EXERCISES.items():
        if not name.startswith(missing or ("-",)):
            notebook, _, local = exercise.id.partition(".")
            yield from ((name, answer) for answer in answers(notebook, local, exercise.solution, *kinds))


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


def says_the_cause(variant: Answer, report: str) -> bool:
    """Whether any sentence says it, whatever the others say."""
    return any(re.search(variant.says, text, re.IGNORECASE) for texts in sentences(report) for text in texts)


def verdict(variant: Answer, report: str) -> str:
    """ "named", "misled" (some advice is about something else), or "unnamed" (nothing says the cause)."""
    facts, advice = sentences(report)
    says = re.compile(variant.says, re.IGNORECASE)
    false = re.compile(variant.never, re.IGNORECASE) if variant.never else None
    if any(not says.search(text) for text in advice) or (false and any(map(false.search, facts + advice))):
        return "misled"
    return "named" if says_the_cause(variant, report) else "unnamed"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.named", description=__doc__)
    parser.add_argument("prefix", nargs="?", default="", help="of the exercises to look at, e.g. 04 or 04.decode")
    parser.add_argument("--all", action="store_true", help="print the reports of those that are named, too")
    options = parser.parse_args()
    found: Counter[str] = Counter()
    for name, variant in every("variant"):
        if name.startswith(options.prefix):
            report = repr(check(name, variant.function))
            outcome = verdict(variant, report)
            found[outcome] += 1
            found["say it"] += says_the_cause(variant, report)
            if "0 of" not in report and "FAIL" not in report:
                raise SystemExit(f"expected a wrong answer, got one that passes: {variant.id}: {variant.what}")
            print(f"{outcome:8} {variant.id}: {variant.what}", flush=True)
            if options.all or outcome != "named":
                print("\n".join(f"    {line}" for line in report.splitlines()), flush=True)
    total = sum(found[outcome] for outcome in ("named", "misled", "unnamed"))
    print(f"{found['named']} of {total} named, {found['misled']} misled, {found['unnamed']} unnamed")
    print(f"{found['say it']} say the cause somewhere, with or without false advice beside it")


if __name__ == "__main__":
    main()
