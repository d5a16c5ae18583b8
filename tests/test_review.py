"""`review`: what is due is asked, on a schedule that survives interruptions, broken files and clocks that are set back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from flashlearn.__main__ import COMMANDS, main
from flashlearn.exercises import log
from flashlearn.exercises.questions import QUESTIONS, Question, Wrong
from flashlearn.grading import asking, review

ROOT = Path(__file__).parents[1]


class Ordered(Question):
    """A question whose right choice is the first one."""

    choices = property(lambda self: [self.right, *(wrong.text for wrong in self.wrong)])


WRONG = (Wrong("no", "it is not", "x"), Wrong("never", "it never is", "x"))
COURSE = {
    name: Ordered(id, "Is it?", "yes", WRONG, "It is.", shown)
    for name, id, shown in (
        ("03.a", "online_softmax.a", "cell"),
        ("03.b", "online_softmax.b", "cell"),
        ("05.recall.c", "one_pass_attention.recall.c", "online_softmax"),
        ("05.d", "one_pass_attention.d", "cell"),
    )
}


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """clock.day: the number of a day, from which on all is counted; a course of four questions."""

    class Clock:
        day = 0

        def __call__(self):
            return datetime(2027, 2, 1, 12).astimezone() + timedelta(days=self.day)

    clock = Clock()
    monkeypatch.setenv("FLASHLEARN_HOME", str(tmp_path / "kept"))
    monkeypatch.setattr(log, "_unwritten", {})
    monkeypatch.setattr(log, "now", clock)
    monkeypatch.setattr(review, "QUESTIONS", COURSE)
    return clock


@pytest.fixture
def take(clock, monkeypatch, capsys):
    """take(answers, *options): a review, answered by "yes", "no", "" or an exception; how many were asked, what was said."""

    def take(*answers, options=(), status=0):
        left, asked = list(answers), []

        def typed(prompt):
            asked.append(prompt)
            answer = left.pop(0) if left else EOFError
            if answer in (EOFError, KeyboardInterrupt):
                raise answer
            return {"yes": "a", "no": "b"}.get(answer, answer)

        monkeypatch.setattr("builtins.input", typed)
        assert main(["review", *options]) == status
        out, err = capsys.readouterr()
        return len(asked), out, err

    return take


def predict(name, choice):
    log.note(COURSE[name], choice)


def test_before_any_choice_it_says_what_to_do(take):
    asked, out, err = take()
    assert asked == 0 and "--notebook" in out and "--all" in out and err == ""


def test_right_answers_come_after_one_three_seven_and_twenty_one_days(take, clock):
    predict("05.d", "no")
    assert take()[0] == 0, "not on the same day"
    days = []
    for clock.day in range(80):
        asked, out, _ = take("yes")
        assert asked <= 1
        days += [clock.day] * asked
        if asked:
            assert "Right." in out and "1 right of 1 answered" in out
    assert days == [1, 4, 11, 32, 53, 74]


def test_a_wrong_answer_moves_a_question_back_to_one_day(take, clock):
    predict("05.d", "yes")
    days = []
    for clock.day in range(20):
        asked, out, _ = take("no" if clock.day == 4 else "yes")
        days += [clock.day] * asked
        if asked and clock.day == 4:
            assert "Not quite. You may be thinking that it is not. The answer: yes. It is." in out
    assert days == [1, 4, 5, 8, 15]


def test_only_notebooks_that_were_met_and_nothing_that_is_still_to_be_predicted(take, clock):
    predict("03.a", "no")
    clock.day = 1
    asked = take("yes", "yes", "yes", "yes")[0]
    assert asked == 2, "03.a, and what a later notebook asks about 03"
    assert set(review.known(set())) == {"03.a", "05.recall.c"}
    predict("05.recall.c", "yes")
    assert "05.d" not in review.known(set()), "a recall question is answered before its notebook is read"
    assert set(review.known({"05"})) == {"03.a", "05.recall.c", "05.d"}


def test_a_notebook_or_all_of_them_can_be_asked_for(take):
    assert take(options=("--notebook", "5"))[1].startswith("1 due")
    assert take(options=("--notebook", "03"))[1].startswith("3 due")
    assert take(options=("--all",))[1].startswith("4 due")
    assert take(*["yes"] * 4, options=("--all", "--questions", "3"))[0] == 3
    assert take(options=("--all",))[1].startswith("1 due"), "what was answered is not due again today"


def test_the_longest_overdue_comes_first(clock):
    for clock.day, name in enumerate(("03.b", "05.d", "03.a")):
        predict(name, "yes")
    clock.day = 9
    cards = review.known(set())
    order = sorted(("03.a", "03.b", "05.d"), key=lambda name: cards[name].due(clock().date()))
    assert order == ["03.b", "05.d", "03.a"]


@pytest.mark.parametrize("end, status", [(EOFError, 0), (KeyboardInterrupt, 130)])
def test_ctrl_d_and_ctrl_c_lose_nothing(take, end, status):
    asked, out, _ = take("yes", "", end, options=("--all",), status=status)
    assert asked == 3 and "1 right of 1 answered" in out and "3 questions are still due today" in out
    assert len(log.read(log.REVIEW)) == 1


def test_a_clock_that_was_wrong_does_no_harm(take, clock):
    clock.day = 900
    predict("05.d", "yes")
    clock.day = 0  # set right
    asked, out, _ = take("yes")
    assert asked == 1 and "due on 2027-02-04" in out
    assert take()[0] == 0
    clock.day = -300  # set back
    assert take("yes")[0] == 1 and take()[0] == 0
    clock.day = -293
    assert take("yes")[0] == 1


def test_broken_lines_are_reported_and_stay(take, clock, tmp_path):
    predict("05.d", "yes")
    file = tmp_path / "kept" / log.PREDICTIONS
    broken = b'no JSON\n\xff\xfe\n[1]\n{"question": ["x"], "when": 3}\n{"question": "03.a", "right": true, "when": "?"}\n{"que'
    file.write_bytes(file.read_bytes() + broken)
    before = file.read_bytes()
    clock.day = 1
    asked, _, err = take("yes", "yes")
    assert asked == 2 + 1 and "4 broken lines skipped" in err and str(file) in err, "03.a has no day: it is due"
    assert file.read_bytes() == before
    predict("03.b", "yes")  # after half a line
    assert file.read_bytes().startswith(before + b"\n") and json.loads(file.read_bytes().splitlines()[-1])


def test_a_file_that_cannot_be_read_or_written_is_reported(take, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / log.REVIEW).mkdir()
    asked, out, err = take("yes", "yes", options=("--notebook", "5"), status=1)
    assert asked == 1 and "1 right of 1" in out and "not all answers are kept" in err and log.REVIEW in err


@pytest.mark.parametrize("options", [["--notebook", "20x"], ["--notebook", "99"], ["--questions", "0"], ["more"]])
def test_options_that_are_none_are_rejected(options, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["review", *options])
    assert stopped.value.code == 2 and "review" in capsys.readouterr().err


def test_a_belief_is_a_sentence_in_every_question():
    for question in QUESTIONS.values():
        for wrong in question.wrong:
            said = asking.feedback(question, wrong.text)
            assert f"thinking that {wrong.believes.rstrip('.')}. The answer: " in said and question.why in said


def test_alone_the_command_says_what_there_is(capsys):
    assert main([]) == 0
    alone = capsys.readouterr().out
    assert main(["--help"]) == 0 and capsys.readouterr().out == alone
    assert all(f"flashlearn {name}" in alone for name in COMMANDS)
    assert main(["reviev"]) == 2 and "got 'reviev'" in capsys.readouterr().err


@pytest.mark.slow  # processes of their own
@pytest.mark.parametrize("command", (["flashlearn", "grade"], ["flashlearn.grading"]))
def test_both_names_of_grading_work(command):
    done = subprocess.run(
        [sys.executable, "-m", *command, "missing.ipynb"], cwd=ROOT, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 2 and "missing.ipynb" in done.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_works_piped(encoding, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "flashlearn", "review", "--notebook", "03", "--questions", "3"],
        input="a\n\nnot a letter\nb\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "FLASHLEARN_HOME": str(tmp_path), "PYTHONIOENCODING": encoding},
        encoding="utf-8",
    )
    assert done.returncode == 0 and done.stderr == ""
    assert "3 of 3." in done.stdout and "of 2 answered" in done.stdout and "got 'not a letter'" in done.stdout
    assert len((tmp_path / log.REVIEW).read_text(encoding="utf-8").splitlines()) == 2
