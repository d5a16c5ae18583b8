"""Lines to put in order: taken from the program itself, shuffled the same way every time, graded by running them."""

import pytest
import torch

from flashlearn.algorithms.attention import one_pass_attention, one_pass_attention_steps
from flashlearn.exercises import EXERCISES, check, lines
from flashlearn.exercises.ordering import Decoy, Ordering, Puzzle

ORDERINGS = {name: exercise for name, exercise in EXERCISES.items() if isinstance(exercise, Ordering)}
every_ordering = pytest.mark.parametrize("name", ORDERINGS)


def doubled(x, by=2):
    """A docstring, which is not shown."""
    out = []
    for row in x:  # of one or two
        total = 0
        for entry in row:
            total = total + entry  # the running sum
            entry = by * entry
            out.append(
                (total, entry),
            )
        out.append(total)
    return out


PUZZLE = Puzzle("99.order", doubled, (Decoy("forgets", "total = entry", 0, "the sum is forgotten", "plain"),), (0, 1))


@every_ordering
def test_the_lines_are_those_of_the_program_and_decoys_and_not_in_order(name):
    puzzle = ORDERINGS[name].puzzle
    shown = list(puzzle.lines.values())
    assert sorted(shown) == sorted([*puzzle.right, *(decoy.line for decoy in puzzle.decoys)])
    assert tuple(line for line in shown if line in puzzle.right) != puzzle.right
    assert puzzle.decoys and len(puzzle.lines) <= 12
    assert all(f"{letter}   {line}" in repr(lines(name)) for letter, line in puzzle.lines.items())
    assert check(name, puzzle.answer).passed and check(name, list(puzzle.answer)).passed
    assert not check(name, puzzle.answer[::-1]).passed


@every_ordering
def test_every_right_line_is_needed(name):
    answer = ORDERINGS[name].puzzle.answer
    for at in range(len(answer)):
        assert not check(name, answer[:at] + answer[at + 1 :]).passed, f"line {answer[at]} changes nothing"


def test_the_innermost_loop_without_comments_and_docstring():
    assert PUZZLE.right == ("total = total + entry", "entry = by * entry")
    shown = str(PUZZLE)
    assert "docstring" not in shown and "#" not in shown.replace("# your lines", "")
    assert "            ...  # your lines\n            out.append(" in shown and "def doubled(x, by=2):" in shown
    assert "total = total" not in shown.split("\n\n")[0]


def test_the_program_is_run_as_it_is_put_together():
    assert PUZZLE.assembled(PUZZLE.answer)([[1, 2]], by=3) == doubled([[1, 2]], by=3) == [(1, 3), (3, 6), 3]
    assert PUZZLE.assembled(PUZZLE.letters((2, 1)))([[1, 2]]) == [(1, 2), (2, 4), 2]
    assert PUZZLE.assembled("")([[1, 2]]) == [(0, 1), (0, 2), 0]


def test_a_generator_of_steps_is_run_to_its_end():
    q, k, v = torch.randn(3, 1, 1, 5, 2, generator=torch.Generator().manual_seed(0)).unbind(0)
    puzzle = Puzzle("99.steps", one_pass_attention_steps, (), (0, 1))
    assert torch.equal(puzzle.assembled(puzzle.answer)(q, k, v), one_pass_attention(q, k, v))


def test_a_program_without_a_loop():
    with pytest.raises(ValueError, match="expected a loop in one_pass_attention, got none"):
        _ = Puzzle("99.none", one_pass_attention, ()).right


def test_other_exercises_take_no_letters_and_have_no_lines():
    with pytest.raises(TypeError, match="expected a function for exercise 03.merge, got str"):
        check("03.merge", "AB")
    with pytest.raises(ValueError, match=r"expected an exercise with lines .* 03\.order.*got '03.merge'"):
        lines("03.merge")


@pytest.mark.parametrize(
    ("answer", "said"),
    [("CGBEAX", "expected letters from A to G, got 'X'"), ("AA", "got A 2 times"), ([1, 2], "got list")],
)
def test_what_is_no_order_is_told(answer, said):
    report = check("03.order", answer if isinstance(answer, str) else lambda: answer)
    assert report.attempted and not report.passed and said in repr(report) and not report.diagnosis
