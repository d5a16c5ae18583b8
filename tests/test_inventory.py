"""The inventory: what is believed is listed at the end, by notebook, and compared with the first time, idea by idea."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashlearn.exercises import log
from flashlearn.grading import asking, inventory
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
    return asking.LETTERS[question.choices.index(question.right)]


def wrong(question):
    return asking.LETTERS[question.choices.index(question.wrong[0].text)]


def idea(name):
    return inventory.IDEAS[name]


def report(printed):
    """The lines after the last question: its choices begin with a letter and a bracket."""
    return re.split(r"\n  [a-e]\) [^\n]*(?=\n)", printed)[-1][1:]


def test_all_right_leaves_nothing_to_unlearn(take):
    names, printed, status = take(right)
    assert status == 0 and len(names) == len(set(names)) == inventory.COUNT
    assert f"{len(names)} right of {len(names)} answered, 0 skipped" in printed and "No misconception" in printed
    assert not any(each.believes in report(printed) for name in names for each in inventory.ITEMS[name].wrong)
    names, printed, _ = take(wrong)  # what is new since
    assert printed[printed.index("New since") :].count(": that ") == len(names)


@pytest.mark.parametrize("form", inventory.FORMS)
def test_all_wrong_lists_every_belief_under_its_notebook_at_the_end(take, form):
    names, printed, _ = take(wrong, "--form", form)
    assert set(names) == {question.name for question in inventory.FORMS[form].values()}
    before = printed[: printed.index(report(printed))]  # no belief and no reason between the questions
    for question in map(inventory.ITEMS.get, names):
        # a belief of one question may be words of another's choices: it is printed as "that ..."
        assert question.why not in before and not any(f": that {each.believes}" in before for each in question.wrong)
    lines = report(printed).splitlines()
    assert lines[1].startswith(f"0 right of {len(names)} answered")
    for name in names:
        at = lines.index(f"    {idea(name)}: that {inventory.ITEMS[name].wrong[0].believes.rstrip('.')}")
        heading = next(line for line in reversed(lines[:at]) if line.startswith("  notebook"))
        assert heading == f"  notebook {asking.answered_in(inventory.ITEMS[name])}"


def test_answers_at_random_are_distinguished(take):
    chance, chosen = random.Random(5), {}

    def answer(question):
        chosen[question.name] = chance.choice(question.choices)
        return asking.LETTERS[question.choices.index(chosen[question.name])]

    names, printed, _ = take(answer)
    good = [name for name in names if chosen[name] == inventory.ITEMS[name].right]
    assert 0 < len(good) < len(names) and f"{len(good)} right of {len(names)} answered" in printed
    for name in names:
        assert (f"    {idea(name)}: that " in report(printed)) == (name not in good)


@pytest.mark.parametrize("first, second", ["AB", "BA", "AA"])
def test_before_and_after_are_compared_idea_by_idea(take, first, second):
    asked, _, _ = take(wrong, "--form", first)
    half = {idea(name) for name in asked[: len(asked) // 2]}
    options = () if first != second else ("--form", second)  # the other form comes by itself
    again, printed, _ = take(lambda item: right(item) if idea(item.name) in half else wrong(item), *options)
    assert {idea(name) for name in again} == {idea(name) for name in asked} and again != asked
    assert all((name in asked) == (first == second) for name in again)
    assert f"0 right of {len(asked)} ideas answered both times; now: {len(half)}." in printed
    unlearned = printed[printed.index("Unlearned since") :]
    assert all((f"    {idea(name)}: that " in unlearned) == (idea(name) in half) for name in asked)


def test_a_short_inventory_asks_about_the_same_ideas_the_next_time(take):
    first, _, _ = take(wrong, "--questions", "5")
    second, _, _ = take(right, "--questions", "5")
    assert {idea(name) for name in first} == {idea(name) for name in second} and len(second) == 5
    assert not set(first) & set(second)


def test_a_result_from_before_there_were_forms_is_left_out(take, tmp_path):
    line = {"asked": ["03.correction"], "answers": {"03.correction": "nothing"}}
    (tmp_path / log.INVENTORY).write_text(json.dumps(line), encoding="utf-8")
    asked, printed, _ = take(right)
    assert set(asked) == {question.name for question in inventory.FORMS["A"].values()} and "Before" not in printed


def test_a_seed_draws_the_same_questions_again(take):
    names, _, _ = take(right, "--seed", "3", "--questions", "5", "--form", "A")
    again, _, _ = take(right, "--seed", "3", "--questions", "5", "--form", "A")
    other, _, _ = take(right, "--seed", "4", "--questions", "5", "--form", "A")
    assert names == again != other and len(names) == 5


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
        assert "0 right of 2 answered, 4 skipped or not reached." in printed
        assert list(inventory.earlier()[-1]["answers"]) == names[:2]


def test_nothing_answered_is_not_kept(take):
    _, printed, status = take(lambda question: "", "--questions", "3")
    assert status == 0 and "0 right of 0 answered, 3 skipped" in printed and inventory.earlier() == []


def test_what_is_no_letter_is_asked_again(monkeypatch, capsys):
    question = next(iter(inventory.ITEMS.values()))
    typed = iter(["", "z", " B ", "ab", "1", "a"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    assert asking.read_choice(question) is None
    assert asking.read_choice(question) == question.choices[1] and "got 'z'" in capsys.readouterr().out
    assert asking.read_choice(question) == question.choices[0]
    printed = capsys.readouterr().out
    assert "got 'ab'" in printed and "got '1'" in printed


def test_a_folder_that_cannot_be_written_is_reported(take, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("FLASHLEARN_HOME", str(tmp_path / "file"))
    _, printed, status = take(right, "--questions", "2")
    assert status == 1 and "2 right of 2 answered" in printed


def test_lines_of_another_form_are_left_out(take, tmp_path):
    lines = ["{}", '{"form": "A", "asked": 3, "answers": {}}', '{"form": "A", "asked": [[1]], "answers": {"a": []}}']
    lines += ['{"form": [], "asked": [], "answers": {}}', "no JSON"]
    (tmp_path / log.INVENTORY).write_text("\n".join(lines), encoding="utf-8")
    _, printed, _ = take(right, "--questions", "2")
    assert "Before" not in printed


@pytest.mark.parametrize(
    "options", [["--questions", "0"], ["--questions", "few"], ["--seed", "x"], ["--form", "C"], ["more"]]
)
def test_options_that_are_none_are_rejected(options, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["inventory", *options])
    assert stopped.value.code == 2 and "inventory" in capsys.readouterr().err


@pytest.mark.slow  # a process of its own
def test_it_works_piped(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "flashlearn", "inventory", "--questions", "4", "--seed", "0"],
        input="a\n\nnot a letter\nb\n",
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "FLASHLEARN_HOME": str(tmp_path)},
        encoding="utf-8",
    )
    assert done.returncode == 0 and done.stderr == ""
    assert "4 of 4." in done.stdout and "of 2 answered, 2 skipped or not reached." in done.stdout
    assert "got 'not a letter'" in done.stdout and (tmp_path / log.INVENTORY).exists()
