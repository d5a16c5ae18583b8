"""The inventory of misconceptions, to be taken before the course and after it.

    python -m flashlearn.grading inventory
    python -m flashlearn.grading inventory --questions 10 --seed 3 < answers.txt

It asks 30 of the questions of all notebooks in random order. A letter answers, and Enter skips a question. The right
answers are never shown; at the end it lists by notebook the beliefs that your wrong answers suggest. The result is kept
(`flashlearn.exercises.log`). The next time it asks the same questions in another order and compares before and after;
--seed draws others. Ctrl+D and Ctrl+C end it early, and the answers so far count.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flashlearn.course import NUMBERS
from flashlearn.exercises import log
from flashlearn.exercises.questions import QUESTIONS, Question

COUNT = 30
LETTERS = "abcde"
Answers = Mapping[str, str]  # name of a question -> the choice, without skipped questions


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    before = earlier()
    questions = drawn(options.questions, options.seed, before)
    print(f"{len(questions)} questions. A letter answers, Enter passes over one, Ctrl+D ends.")
    answers: dict[str, str] = {}
    status = 0
    try:
        ask(questions, answers)
    except KeyboardInterrupt:
        status = 130
    print()
    trouble = keep(questions, answers) if answers else ""
    print("\n".join(report(questions, answers, before)))
    if trouble:
        print(f"This result is not kept: {trouble}", file=sys.stderr)
    return status or int(bool(trouble))


def drawn(count: int, seed: int | None, before: Sequence[Mapping[str, Any]]) -> list[Question]:
    """The questions in order: drawn by the seed, or else those of the first inventory, and more if it had fewer."""
    generator = random.Random(seed)
    names = generator.sample(list(QUESTIONS), len(QUESTIONS))
    if seed is None and before:
        first = [name for name in before[0]["asked"] if name in QUESTIONS]
        names = [*first, *(name for name in names if name not in first)]
    chosen = names[:count]
    generator.shuffle(chosen)
    return [QUESTIONS[name] for name in chosen]


def ask(questions: Sequence[Question], answers: dict[str, str]) -> None:
    """Put the answers into `answers`, until the last question or the end of the input."""
    for number, question in enumerate(questions, start=1):
        print(f"\n{number} of {len(questions)}. {question.text}")
        for letter, text in zip(LETTERS, question.choices, strict=False):
            print(f"  {letter}) {text}")
        try:
            choice = _read(question)
        except EOFError:
            return
        if choice is not None:
            answers[question.name] = choice


def _read(question: Question) -> str | None:
    """The choice that is typed, None for an empty line; other input is rejected, and read again."""
    letters = LETTERS[: len(question.choices)]
    while True:
        typed = input(f"{letters[0]} to {letters[-1]}: ").strip().lower()
        if not typed:
            return None
        if typed in tuple(letters):
            return question.choices[letters.index(typed)]
        print(f"expected a letter from {letters[0]} to {letters[-1]}, or nothing to pass over it, got {typed!r}")


def keep(questions: Sequence[Question], answers: Answers) -> str:
    """Add this inventory to the log; what prevented it, "" if nothing did."""
    return log.write(log.INVENTORY, {"asked": [each.name for each in questions], "answers": dict(answers)})


def earlier() -> list[dict[str, Any]]:
    """The inventories that were taken, the first one first."""
    lines = log.read(log.INVENTORY)
    return [each for each in lines if isinstance(each.get("asked"), list) and isinstance(each.get("answers"), dict)]


def beliefs(answers: Answers) -> dict[str, str]:
    """The beliefs behind wrong answers, by the name of the question; choices that a question no longer has are left out."""
    known = ((name, choice, QUESTIONS[name].wrong) for name, choice in answers.items() if name in QUESTIONS)
    return {name: wrong.believes for name, choice, wrongs in known for wrong in wrongs if wrong.text == choice}


def right(answers: Answers) -> int:
    """How many answers are right."""
    return sum(name in QUESTIONS and choice == QUESTIONS[name].right for name, choice in answers.items())


def report(questions: Sequence[Question], answers: Answers, before: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The result, line by line: how many are right, the beliefs by notebook, and how they changed since the first time."""
    guessed = sum(1 / len(QUESTIONS[name].choices) for name in answers)
    yield f"{right(answers)} right of {len(answers)} answered, {len(questions) - len(answers)} passed over or not reached."
    yield f"Guessing alone would give about {guessed:.0f}."
    now = beliefs(answers)
    yield from _by_notebook("Left to unlearn", now) if now else ["No misconception showed."]
    if before and answers:
        yield from _compared(before[0], answers, now)


def _compared(first: Mapping[str, Any], answers: Answers, now: Mapping[str, str]) -> Iterator[str]:
    """Before and after, for the questions that were answered both times."""
    both = {name: choice for name, choice in first["answers"].items() if name in answers and name in QUESTIONS}
    then = beliefs(both)
    after = {name: answers[name] for name in both}
    yield f"Before ({str(first.get('when'))[:10]}): {right(both)} right of the {len(both)} answered both times; now: {right(after)}."
    gone = {name: text for name, text in then.items() if name not in now}
    new = {name: text for name, text in now.items() if name in both and name not in then}
    yield from _by_notebook("Unlearned since", gone)
    yield from _by_notebook("New since", new)


def _by_notebook(title: str, found: Mapping[str, str]) -> Iterator[str]:
    """Beliefs under their notebooks."""
    if found:
        yield f"{title}:"
    for number in sorted({notebook(name) for name in found}):
        yield f"  notebook {number}"
        for name in sorted(name for name in found if notebook(name) == number):
            yield f"    {name}: that {found[name]}"


def notebook(name: str) -> str:
    """The notebook that shows the answer: of a recall question the earlier one, which it names."""
    return NUMBERS[QUESTIONS[name].shown] if ".recall." in name else name[:2]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m flashlearn.grading inventory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--questions", type=int, default=COUNT, help=f"how many (default: {COUNT})")
    parser.add_argument("--seed", type=int, help="draws the questions, and their order")
    options = parser.parse_args(arguments)
    if options.questions < 1:
        parser.error(f"expected --questions above 0, got {options.questions}")
    return options
