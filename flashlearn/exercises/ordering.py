"""Lines to put in order: the body of a loop, shuffled, with known mistakes among its lines.

The student gives the letters of the lines, from top to bottom: `check("03.order", "CAB")`, a list of them, or a function
that returns either. The program is put together from these lines and *run*: every order that computes the same passes.

How to make one, as online_softmax does:

1. solutions.py: the right program, a plain function (or a generator of steps) whose innermost loop is the one in question.
2. wrong.toml: its decoys in `[order.decoys]`, and wrong orders that have a name, by their letters, in `[order.known]`.
3. exercises.py: `ORDER = puzzle("online_softmax", "order", running_pair)`, and
   `Ordering("order", task, order_solution, (ORDER.case(name, inputs, hint), ...), hints=..., puzzle=ORDER)`, where the
   solution returns the letters, and `inputs` are what the program takes, a tuple.
4. the notebook: a cell `lines("03.order")` that shows them, and a stub without arguments.

`print(ORDER)` shows the letters, `ORDER.answer` is the right order in letters.
"""

from __future__ import annotations

import ast
import copy
import functools
import html
import inspect
import io
import random
import string
import textwrap
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from flashlearn.core.steps import run as run_to_its_end
from flashlearn.course import NUMBERS
from flashlearn.exercises.altered import run
from flashlearn.exercises.answers import Answer, tables
from flashlearn.exercises.assessment import Case, Causes, Exercise

TOO_MANY = "no line too many"


class Decoy(NamedTuple):
    """A line that is a known mistake."""

    id: str
    line: str
    instead_of: int  # the number of a right line
    what: str  # completes "This is what you get if ..."
    case: str  # the one that fails with it


@dataclass(frozen=True)
class Puzzle:
    """The lines of the innermost loop of `program`, shuffled among `decoys`, each with a letter.

    `given` statements at the start and at the end of the loop's body stay where they are, and are shown there.
    """

    name: str
    program: Callable
    decoys: tuple[Decoy, ...]
    given: tuple[int, int] = (0, 0)

    def _cut(self, loop: ast.For) -> slice:
        """Which statements of the loop are in question."""
        first, last = self.given
        return slice(first, len(loop.body) - last)

    @functools.cached_property
    def right(self) -> tuple[str, ...]:
        """The lines of the program that are in question, in their order; a statement of several as one."""
        _, loop = _parsed(self.program)
        text = _text(self.program)
        return tuple(
            (ast.get_source_segment(text, node) if node.lineno == node.end_lineno else None) or ast.unparse(node)
            for node in loop.body[self._cut(loop)]
        )

    @functools.cached_property
    def lines(self) -> dict[str, str]:
        """{letter: line}, in an order that depends on the name alone."""
        every = self.every
        if len(set(every)) < len(every):
            raise ValueError(f"expected lines that differ, got {every} for {self.name}")
        shuffled = random.Random(self.name).sample(every, len(every))
        return dict(zip(string.ascii_uppercase, shuffled, strict=False))

    @property
    def every(self) -> list[str]:
        """The lines of the program in their order, then the decoys."""
        return [*self.right, *(decoy.line for decoy in self.decoys)]

    @property
    def answer(self) -> str:
        """The letters of the right lines in their order."""
        return self.letters(range(len(self.right)))

    def letters(self, order: Iterable[int]) -> str:
        """The letters of lines by their numbers in `every`."""
        letter = {line: letter for letter, line in self.lines.items()}
        return "".join(letter[self.every[number]] for number in order)

    def read(self, answer: Any) -> str:
        """The letters of an answer, a text or a list. TypeError or ValueError if they name no lines."""
        joined = "".join(answer) if _texts(answer) else answer
        if not isinstance(joined, str):
            raise TypeError(f"expected the letters of lines, in a text, got {type(answer).__name__}")
        letters = "".join(c for c in joined.upper() if c not in " ,")
        for letter in letters:
            if letter not in self.lines:
                raise ValueError(f"expected letters from A to {max(self.lines)}, got {letter!r}")
            if letters.count(letter) > 1:
                raise ValueError(f"expected every line once at most, got {letter} {letters.count(letter)} times")
        return letters

    def source(self, letters: str) -> str:
        """The program with these lines in its loop."""
        tree, loop = _parsed(self.program)
        loop.body[self._cut(loop)] = ast.parse("\n".join(self.lines[letter] for letter in letters)).body
        loop.body = loop.body or [ast.Pass()]
        return ast.unparse(tree) + "\n"

    def assembled(self, letters: str) -> Callable:
        """The program with these lines in its loop, as a function."""
        space = run(self.source(letters), f"<{self.name}: {letters}>", dict(self.program.__globals__))
        return _plain(space[self.program.__name__])

    def case(self, name: str, inputs: tuple, hint: str, tolerance: float = 1e-5) -> Case:
        """A test: the program of the answer against the right one, on these inputs."""

        def compare(answer: Callable) -> tuple[Any, Any]:
            letters = self.read(answer())
            return self.assembled(letters)(*_copied(inputs)), _plain(self.program)(*_copied(inputs))

        return Case(name, compare, hint, tolerance)

    def no_line_too_many(self) -> Case:
        """A test that fails for a line that changes nothing where it is."""

        def compare(answer: Callable) -> tuple[Any, Any]:
            count, most = (torch.tensor(n) for n in (len(self.read(answer())), len(self.right)))
            return torch.maximum(count, most), most

        hint = f"{len(self.right)} lines are enough: leave one out, and look whether it was needed"
        return Case(TOO_MANY, compare, hint)

    @property
    def mistakes(self) -> tuple[Answer, ...]:
        """One for each decoy, in place of the line that it imitates."""
        return tuple(
            Answer(decoy.id, "known", decoy.what, functools.partial(self._with, number), decoy.case)
            for number, decoy in enumerate(self.decoys)
        )

    def _with(self, number: int) -> Callable[[], str]:
        """The right answer with one decoy in it."""
        order = list(range(len(self.right)))
        order[self.decoys[number].instead_of] = len(self.right) + number
        return functools.partial(str, self.letters(order))

    @property
    def causes(self) -> Causes:
        """Questions to an answer that is wrong: is a line a decoy, are there enough of them?"""
        return (self._a_decoy, self._too_few)

    def _a_decoy(self, answer: Callable) -> str:
        letters = self.read(answer())
        for number, decoy in enumerate(self.decoys):
            letter = self.letters([len(self.right) + number])
            if letter in letters:
                return f"line {letter}, {decoy.line}, is a mistake that is often made: {decoy.what}"
        return ""

    def _too_few(self, answer: Callable) -> str:
        count = len(self.read(answer()))
        return f"the loop needs {len(self.right)} lines, and {count} were given" if count < len(self.right) else ""

    def __str__(self) -> str:
        function, loop = _parsed(self.program)
        text = _text(self.program).splitlines()
        wanted = loop.body[self._cut(loop)]
        text[wanted[0].lineno - 1 : wanted[-1].end_lineno] = [" " * wanted[0].col_offset + "...  # your lines"]
        head = (function.body[0].end_lineno or 0) if ast.get_docstring(function) else 0
        body = [line for number, line in enumerate(text) if line and not 1 <= number < head]
        return "\n".join([*body, "", *(f"{letter}   {line}" for letter, line in self.lines.items())])


def puzzle(notebook: str, exercise: str, program: Callable, given: tuple[int, int] = (0, 0)) -> Puzzle:
    """The puzzle of an exercise, with the decoys of the notebook's `wrong.toml`."""
    decoys = tables(notebook)[exercise]["decoys"].items()
    found = tuple(Decoy(f"{notebook}.{exercise}.{name}", **decoy) for name, decoy in decoys)
    return Puzzle(f"{NUMBERS[notebook]}.{exercise}", program, found, given)


@dataclass(frozen=True, kw_only=True)
class Ordering(Exercise):
    """An exercise whose answer is the order of lines."""

    puzzle: Puzzle

    def __post_init__(self) -> None:
        if self.cases[-1].name != TOO_MANY:  # not yet: `dataclasses.replace` comes here, too
            object.__setattr__(self, "cases", (*self.cases, self.puzzle.no_line_too_many()))


class Lines:
    """The program with a gap and the lines to fill it, as an output."""

    def __init__(self, puzzle: Puzzle):
        self.puzzle = puzzle

    def __repr__(self) -> str:
        return str(self.puzzle)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self.puzzle))}</pre>"


def as_function(answer: Any) -> Any:
    """A text or a list of texts as a function that returns it; anything else as it is."""
    return (lambda: answer) if isinstance(answer, str) or _texts(answer) else answer


def _texts(answer: Any) -> bool:
    return isinstance(answer, list | tuple) and all(isinstance(one, str) for one in answer)


def _plain(function: Callable) -> Callable:
    """A generator of steps as the function that runs it to its end."""
    if not inspect.isgeneratorfunction(function):
        return function
    return lambda *inputs: run_to_its_end(function(*inputs))


def _copied(inputs: tuple) -> tuple:
    return tuple(one.clone() if isinstance(one, torch.Tensor) else copy.copy(one) for one in inputs)


def _text(program: Callable) -> str:
    """The source of the program, without its comments, line by line."""
    lines = textwrap.dedent(inspect.getsource(program)).splitlines()
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
        if token.type == tokenize.COMMENT:
            number, column = token.start
            lines[number - 1] = lines[number - 1][:column].rstrip()
    return "\n".join(lines)


def _parsed(program: Callable) -> tuple[ast.FunctionDef, ast.For]:
    """The function without decorators and annotations, and its innermost loop, of several the first."""
    function = ast.parse(_text(program)).body[0]
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list, function.returns = [], None
    for argument in (*function.args.args, *function.args.kwonlyargs):
        argument.annotation = None
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For)]  # level by level
    for loop in loops:
        if sum(isinstance(node, ast.For) for node in ast.walk(loop)) == 1:
            return function, loop
    raise ValueError(f"expected a loop in {program.__name__}, got none")
