"""Ask again what notebooks have asked, after 1, 3, 7 and 21 days.

    python -m flashlearn review                  what is due today, at most 10 questions
    python -m flashlearn review --notebook 03    and all questions on notebook 03
    python -m flashlearn review --all            and all questions on all notebooks

A question is due one day after your first choice in a notebook. After a right answer it is asked again in 3 days, then
in 7, then every 21 days. After a wrong answer it is asked again the next day. The questions that are due longest come first.

Without --notebook or --all, only notebooks count in which you have made a choice. Questions that you have not
predicted there yet are left out, so that no prediction is given away.

Every answer is kept at once on this computer, in ~/.flashlearn or the folder that FLASHLEARN_HOME names. Nothing is sent
anywhere. Ctrl+D and Ctrl+C end the review, and the answers so far count.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Set
from dataclasses import dataclass
from datetime import date, timedelta

from flashlearn.course import NUMBERS
from flashlearn.exercises import log
from flashlearn.exercises.questions import QUESTIONS, Question
from flashlearn.grading.asking import KEYS, answered_in, ask, feedback

DAYS = (1, 3, 7, 21)  # Leitner's boxes: how long a question rests in each
COUNT = 10


@dataclass(frozen=True)
class Card:
    """The state of a question: its box, and the day on which it came there, None if unknown."""

    box: int = 0
    since: date | None = None

    def due(self, today: date) -> date:
        """When it is asked again: at once if its day is unknown or, after a clock was set back, in the future."""
        known = self.since and self.since <= today
        return self.since + timedelta(DAYS[self.box]) if known and self.since else today

    def answered(self, right: bool, today: date) -> Card:
        return Card(min(self.box + 1, len(DAYS) - 1) if right else 0, today)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    today = log.now().date()
    problems = [problem for name in (log.PREDICTIONS, log.REVIEW) if (problem := log.problem(name))]
    cards = known(_numbers(options))
    due = sorted(
        (question for question in cards if cards[question].due(today) <= today),
        key=lambda question: (cards[question].due(today), question),
    )
    status, trouble = 0, ""
    if not due:
        print(f"Nothing is due. {_next(cards, today)}" if cards else NOTHING)
    else:
        chosen = due[: options.questions]
        print(f"{len(due)} due, {len(chosen)} now. {KEYS}")
        status, trouble = _review([QUESTIONS[name] for name in chosen], cards, today)
    for problem in problems + ([f"not all answers are kept: {trouble}"] if trouble else []):
        print(problem, file=sys.stderr)
    return status or int(bool(trouble))


NOTHING = (
    "No notebook has a choice of yours yet. Answer a question in a notebook, or choose: --notebook 03 for one notebook, "
    "--all for all of them."
)


def known(chosen: Set[str]) -> dict[str, Card]:
    """The questions that may be asked, by name: those that were answered, and more of notebooks that were met.

    A question on a notebook of `chosen` counts even if it was never answered, a recall question also if a choice was
    made in the notebook that it is about.
    """
    cards: dict[str, Card] = {}
    met: dict[str, Card] = {}
    for name, right, day in _answers():
        cards[name] = cards[name].answered(right, day or date.min) if name in cards else Card(0, day)
        if ".recall." not in name:
            met.setdefault(name[:2], Card(0, day))
    for name, question in QUESTIONS.items():
        notebook = answered_in(question)
        if notebook in chosen:
            cards.setdefault(name, Card())
        elif ".recall." in name and notebook in met:
            cards.setdefault(name, met[notebook])
    return cards


def _answers() -> Iterator[tuple[str, bool, date | None]]:
    """Name, whether it was right, and day of every answer that was kept, predictions first."""
    for line in log.read(log.PREDICTIONS) + log.read(log.REVIEW):
        name, day = line.get("question"), None
        with contextlib.suppress(ValueError):
            day = date.fromisoformat(str(line.get("when"))[:10])
        if isinstance(name, str) and name in QUESTIONS:
            yield name, line.get("right") is True, day


def _review(questions: list[Question], cards: dict[str, Card], today: date) -> tuple[int, str]:
    """Ask, keep every answer and show the right one. Returns the exit status, and why an answer is not kept, or ""."""
    answered, right, trouble, status = 0, 0, "", 0
    try:
        for question, choice in ask(questions):
            if choice is None:
                continue
            good = choice == question.right
            line = {"question": question.name, "choice": choice, "right": good}
            trouble = log.write(log.REVIEW, line) or trouble
            old = cards[question.name]
            cards[question.name] = old.answered(good, today) if old.since else Card(0, today)
            answered, right = answered + 1, right + good
            print(feedback(question, choice))
    except KeyboardInterrupt:
        print()
        status = 130
    print(f"\n{right} right of {answered} answered. {_next(cards, today)}")
    return status, trouble


def _next(cards: dict[str, Card], today: date) -> str:
    """The number of questions left, or the time when the next are due."""
    days = [card.due(today) for card in cards.values()]
    left = sum(day <= today for day in days)
    first = min(days)
    count = left or days.count(first)
    when = "still due today" if left else f"due on {first.isoformat()}"
    return f"{count} question{'s are' if count > 1 else ' is'} {when}."


def _numbers(options: argparse.Namespace) -> set[str]:
    """The notebooks that were named, as numbers."""
    return set(NUMBERS.values()) if options.all else set(options.notebook)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m flashlearn review", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--notebook", action="append", default=[], metavar="NN", help="a notebook, by its number")
    parser.add_argument("--all", action="store_true", help="all notebooks")
    parser.add_argument("--questions", type=int, default=COUNT, help=f"how many at most (default: {COUNT})")
    options = parser.parse_args(arguments)
    options.notebook = [number.zfill(2) for number in options.notebook]
    if wrong := set(options.notebook) - set(NUMBERS.values()):
        parser.error(f"expected --notebook from 00 to {max(NUMBERS.values())}, got {min(wrong)}")
    if options.questions < 1:
        parser.error(f"expected --questions above 0, got {options.questions}")
    return options
