"""Ask questions in a terminal or a pipe: a letter answers, Enter skips a question, Ctrl+D ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashlearn.course import NUMBERS
from flashlearn.exercises.questions import Question

LETTERS = "abcde"
KEYS = "A letter answers, Enter skips a question, Ctrl+D ends."


def ask(questions: Sequence[Question]) -> Iterator[tuple[Question, str | None]]:
    """Every question with the choice, or None if it was skipped, until the last one or the end of the input."""
    for number, question in enumerate(questions, start=1):
        print(f"\n{number} of {len(questions)}. {question.text}")
        for letter, text in zip(LETTERS, question.choices, strict=False):
            print(f"  {letter}) {text}")
        try:
            choice = read_choice(question)
        except EOFError:
            print()
            return
        yield question, choice


def read_choice(question: Question) -> str | None:
    """The choice that is typed, None for an empty line; other input is rejected, and the question repeated."""
    letters = LETTERS[: len(question.choices)]
    while True:
        typed = input(f"{letters[0]} to {letters[-1]}: ").strip().lower()
        if not typed:
            return None
        if typed in tuple(letters):
            return question.choices[letters.index(typed)]
        print(f"expected a letter from {letters[0]} to {letters[-1]}, or Enter to skip the question, got {typed!r}")


def belief(question: Question, choice: str) -> str:
    """The belief behind this wrong choice."""
    return question.beliefs[choice].rstrip(".")


def feedback(question: Question, choice: str) -> str:
    """The feedback after a choice."""
    if choice == question.right:
        return f"Right. {question.why}"
    return (
        f"Not quite. You may be thinking that {belief(question, choice)}. The answer: {question.right}. {question.why}"
    )


def answered_in(question: Question) -> str:
    """The number of the notebook that shows the answer; recall questions ask about an earlier notebook."""
    return NUMBERS.get(question.shown) or question.name[:2]
