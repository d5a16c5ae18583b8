"""The inventory: what is believed is listed at the end, by notebook, and compared with the first time."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashlearn.exercises import log
from flashlearn.exercises.questions import QUESTIONS
from flashlearn.grading import inventory
from flashlearn.grading.__main__ import main

ROOT = Path(__file__).parents[1]


@pytest.fixture
def take(monkeypatch, tmp_path, capsys):
    """take(answer, *options): an inventory whose questions `answer` answers; (names asked, what was printed, status)."""
    monkeypatch.setenv("FLASHLEARN_HOME", str(tmp_path))
    monkeypatch.setattr(log, "_unwritten", {})
    draw, asked, left = inventory.drawn, [], []

    def drawn(*given):
        asked[:] = left[:] = draw(*given)
        return list(asked)

    def take(answer, *options):
        monkeypatch.setattr(inventory, "drawn", drawn)
        monkeypatch.setattr("builtins.input", lambda prompt: answer(left.pop(0)))
        status = main(["inventory", *options])
        return [each.name for each in asked], capsys.readouterr().out, status

    return take


def right(question):
    return inventory.LETTERS[question.choices.index(question.right)]


def wrong(question):
    return inventory.LETTERS[question.choices.index(question.wrong[0].text)]


def report(printed):
    """The lines after the last question: its choices begin with a letter and a bracket."""
    return re.split(r"\n  [a-e]\) [^\n]*(?=\n)", printed)[-1][1:]


def test_all_right_leaves_nothing_to_unlearn(take):
    names, printed, status = take(right)
    count = min(inventory.COUNT, len(QUESTIONS))
    assert status == 0 and len(names) == len(set(names)) == count
    assert f"{count} right of {count} answered, 0 passed over" in printed and "No misconception showed." in printed
    assert not any(each.believes in report(printed) for name in names for each in QUESTIONS[name].wrong)
    names, printed, _ = take(wrong)  # what is new since
    assert printed[printed.index("New since") :].count(": that ") == len(names)


def test_all_wrong_lists_every_belief_under_its_notebook_at_the_end(take):
    names, printed, _ = take(wrong)
    before = printed[: printed.index(report(printed))]  # no belief and no reason between the questions
    for question in map(QUESTIONS.get, names):
        # a belief of one question may be words of another's choices: it is printed as "that ..."
        assert question.why not in before and not any(f": that {each.believes}" in before for each in question.wrong)
    lines = report(printed).splitlines()
    assert lines[1].startswith(f"0 right of {len(names)} answered") and "Left to unlearn:" in lines
    for name in names:
        at = lines.index(f"    {name}: that {QUESTIONS[name].wrong[0].believes}")
        heading = next(line for line in reversed(lines[:at]) if line.startswith("  notebook"))
        assert heading == f"  notebook {inventory.notebook(name)}"


def test_answers_at_random_are_distinguished(take):
    chance, chosen = random.Random(5), {}

    def answer(question):
        chosen[question.name] = chance.choice(question.choices)
        return inventory.LETTERS[question.choices.index(chosen[question.name])]

    names, printed, _ = take(answer)
    good = [name for name in names if chosen[name] == QUESTIONS[name].right]
    assert 0 < len(good) < len(names) and f"{len(good)} right of {len(names)} answered" in printed
    for name in names:
        assert (f"    {name}: that " in report(printed)) == (name not in good)


def test_before_and_after_are_compared_on_the_same_questions(take):
    first, _, _ = take(wrong)
    half = set(first[: len(first) // 2])
    second, printed, _ = take(lambda question: right(question) if question.name in half else wrong(question))
    assert set(second) == set(first) and second != first
    assert f"0 right of the {len(first)} answered both times; now: {len(half)}." in printed
    unlearned = printed[printed.index("Unlearned since") :]
    assert all((f"    {name}: that " in unlearned) == (name in half) for name in first)
    third, printed, _ = take(right)
    assert set(third) == set(first) and f"now: {len(first)}." in printed


def test_a_seed_draws_the_same_questions_again(take):
    names, _, _ = take(right, "--seed", "3", "--questions", "5")
    again, _, _ = take(right, "--seed", "3", "--questions", "5")
    other, _, _ = take(right, "--seed", "4", "--questions", "5")
    assert names == again != other and len(names) == 5
    every, _, _ = take(right, "--questions", "100000")
    assert sorted(every) == sorted(QUESTIONS)


def test_ctrl_d_and_ctrl_c_lose_nothing(take):
    for error, status in ((EOFError, 0), (KeyboardInterrupt, 130)):
        count = 0

        def answer(question, error=error):
            nonlocal count
            count += 1
            if count == 3:
                raise error
            return wrong(question)

        names, printed, ended = take(answer, "--seed", "1", "--questions", "6")
        assert ended == status
        assert "0 right of 2 answered, 4 passed over or not reached." in printed
        assert list(inventory.earlier()[-1]["answers"]) == names[:2]


def test_nothing_answered_is_not_kept(take):
    _, printed, status = take(lambda question: "", "--questions", "3")
    assert status == 0 and "0 right of 0 answered, 3 passed over" in printed and inventory.earlier() == []


def test_what_is_no_letter_is_asked_again(monkeypatch, capsys):
    question = next(iter(QUESTIONS.values()))
    typed = iter(["", "z", " B ", "ab", "1", "a"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    assert inventory._read(question) is None
    assert inventory._read(question) == question.choices[1] and "got 'z'" in capsys.readouterr().out
    assert inventory._read(question) == question.choices[0]
    printed = capsys.readouterr().out
    assert "got 'ab'" in printed and "got '1'" in printed


def test_a_folder_that_cannot_be_written_is_reported(take, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("FLASHLEARN_HOME", str(tmp_path / "file"))
    _, printed, status = take(right, "--questions", "2")
    assert status == 1 and "2 right of 2 answered" in printed


def test_lines_of_another_form_are_left_out(take, tmp_path):
    (tmp_path / log.INVENTORY).write_text('{}\n{"asked": 3, "answers": {}}\nno JSON\n', encoding="utf-8")
    _, printed, _ = take(right, "--questions", "2")
    assert "Before" not in printed


@pytest.mark.parametrize("options", [["--questions", "0"], ["--questions", "few"], ["--seed", "x"], ["more"]])
def test_options_that_are_none_are_rejected(options, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["inventory", *options])
    assert stopped.value.code == 2 and "inventory" in capsys.readouterr().err


@pytest.mark.slow  # a process of its own
def test_it_works_piped(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "flashlearn.grading", "inventory", "--questions", "4", "--seed", "0"],
        input="a\n\nnot a letter\nb\n",
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "FLASHLEARN_HOME": str(tmp_path)},
        encoding="utf-8",
    )
    assert done.returncode == 0 and done.stderr == ""
    assert "4 of 4." in done.stdout and "of 2 answered, 2 passed over or not reached." in done.stdout
    assert "got 'not a letter'" in done.stdout and (tmp_path / log.INVENTORY).exists()
