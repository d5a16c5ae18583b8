"""The inventory of misconceptions, to be taken before the course and after it.

    python -m flashlearn inventory
    python -m flashlearn inventory --form B
    python -m flashlearn inventory --questions 10 --seed 3 < answers.txt

There are two forms of 30 questions. An item of form B tests the same idea as its partner in form A by another example. Take
one form before the course and the other one after it. The first time form A is asked, and later the form that you did not
begin with. --form chooses another one.

A letter answers, and Enter skips a question. The right answers are not shown. At the end the beliefs that your wrong
answers suggest are listed by notebook, and compared with the first time, idea by idea. The result is kept on this computer
(`flashlearn.exercises.log`). Ctrl+D and Ctrl+C end the inventory early, and the answers so far count.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from flashlearn.exercises import log
from flashlearn.exercises.questions import Question, read
from flashlearn.grading.asking import KEYS, answered_in, ask, belief


def _form(name: str) -> dict[str, Question]:
    """The questions of a form, by idea."""
    text = (files("flashlearn.course") / f"{name}.md").read_text(encoding="utf-8")
    return {question.id.removeprefix(f"{name}."): question for question in read(text, name)}


FORMS = {"A": _form("form_a"), "B": _form("form_b")}
IDEAS = {question.name: idea for form in FORMS.values() for idea, question in form.items()}
ITEMS = {question.name: question for form in FORMS.values() for question in form.values()}
COUNT = len(FORMS["A"])
Answers = Mapping[str, str]  # name of a question -> the choice, without skipped questions


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    before = earlier()
    questions = drawn(options.questions, options.seed, options.form or next_form(before), before)
    print(f"{len(questions)} questions. {KEYS}")
    answers: dict[str, str] = {}
    status = 0
    try:
        for question, choice in ask(questions):
            if choice is not None:
                answers[question.name] = choice
    except KeyboardInterrupt:
        status = 130
    print()
    trouble = keep(questions, answers) if answers else ""
    print("\n".join(report(questions, answers, before)))
    if trouble:
        print(f"This result is not kept: {trouble}", file=sys.stderr)
    return status or int(bool(trouble))


def next_form(before: Sequence[Mapping[str, Any]]) -> str:
    """A the first time, then the form that was not the first."""
    return "B" if before and before[0].get("form") == "A" else "A"


def drawn(count: int, seed: int | None, form: str, before: Sequence[Mapping[str, Any]]) -> list[Question]:
    """The questions in order: drawn by the seed, or else on the ideas of the first inventory, and more if it had fewer."""
    generator = random.Random(seed)
    ideas = generator.sample(list(FORMS[form]), COUNT)
    if seed is None and before:
        first = list(filter(None, map(IDEAS.get, before[0]["asked"])))
        ideas = [*first, *(idea for idea in ideas if idea not in first)]
    chosen = ideas[:count]
    generator.shuffle(chosen)
    return [FORMS[form][idea] for idea in chosen]


def keep(questions: Sequence[Question], answers: Answers) -> str:
    """Add this inventory to the log; what prevented it, or ""."""
    form = "A" if questions[0].id.startswith("form_a.") else "B"
    return log.write(
        log.INVENTORY, {"form": form, "asked": [each.name for each in questions], "answers": dict(answers)}
    )


def earlier() -> list[dict[str, Any]]:
    """The inventories that were taken, the first one first."""
    return [
        line
        for line in log.read(log.INVENTORY)
        if line.get("form") in list(FORMS)
        and isinstance(line.get("asked"), list)
        and isinstance(line.get("answers"), dict)
        and all(isinstance(each, str) for each in (*line["asked"], *line["answers"].values()))
    ]


def beliefs(answers: Answers) -> dict[str, str]:
    """The beliefs behind wrong answers, by idea; choices that a question no longer has are left out."""
    known = ((IDEAS[name], ITEMS[name], choice) for name, choice in answers.items() if name in ITEMS)
    return {idea: belief(question, choice) for idea, question, choice in known if choice in question.beliefs}


def right(answers: Answers) -> int:
    """The number of right answers."""
    return sum(name in ITEMS and choice == ITEMS[name].right for name, choice in answers.items())


def report(questions: Sequence[Question], answers: Answers, before: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The result, line by line: how many are right, the beliefs by notebook, and how they changed since the first time."""
    guessed = sum(1 / len(ITEMS[name].choices) for name in answers)
    yield f"{right(answers)} right of {len(answers)} answered, {len(questions) - len(answers)} skipped or not reached."
    yield f"Guessing alone would give about {guessed:.0f}."
    now = beliefs(answers)
    yield from _by_notebook("You may be thinking", now) if now else ["No misconception showed."]
    if before and answers:
        yield from _compared(before[0], answers, now)


def _compared(first: Mapping[str, Any], answers: Answers, now: Mapping[str, str]) -> Iterator[str]:
    """Before and after, on the ideas that were answered both times."""
    ideas = {IDEAS[name] for name in first["answers"] if name in IDEAS} & {IDEAS[name] for name in answers}
    was, is_now = (
        {name: choice for name, choice in each.items() if IDEAS.get(name) in ideas}
        for each in (first["answers"], answers)
    )
    then = beliefs(was)
    yield f"Before ({str(first.get('when'))[:10]}): {right(was)} right of {len(ideas)} ideas answered both times; now: {right(is_now)}."
    yield from _by_notebook("Unlearned since", {idea: text for idea, text in then.items() if idea not in now})
    new = {idea: text for idea, text in now.items() if idea in ideas and idea not in then}
    yield from _by_notebook("New since", new)


def _by_notebook(title: str, found: Mapping[str, str]) -> Iterator[str]:
    """Beliefs under their notebooks."""
    if found:
        yield f"{title}:"
    numbers = {idea: answered_in(FORMS["A"][idea]) for idea in found}
    for number in sorted(set(numbers.values())):
        yield f"  notebook {number}"
        yield from (f"    {idea}: that {found[idea]}" for idea in sorted(found) if numbers[idea] == number)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m flashlearn inventory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--form", choices=sorted(FORMS), help="which form (default: the one to take next)")
    parser.add_argument("--questions", type=int, default=COUNT, help=f"how many (default: {COUNT})")
    parser.add_argument("--seed", type=int, help="draws the questions, and their order")
    options = parser.parse_args(arguments)
    if options.questions < 1:
        parser.error(f"expected --questions above 0, got {options.questions}")
    return options
