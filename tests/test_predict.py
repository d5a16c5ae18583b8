"""`predict`: a choice is kept before the answer is shown, and stays; what a notebook stores does not depend on it."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from flashlearn.exercises import log, predict, predicting
from flashlearn.exercises.questions import QUESTIONS, Question, Wrong
from flashlearn.show.quiz import Quiz

MADE = (
    Question("99.a", "Is 1 < 2?", "yes", (Wrong("no", "1 is large", "x"), Wrong("<b>", "2 & 3", "x")), "It is.", ""),
    Question("99.b", "And 2?", "so", (Wrong("not so", "it is not.", "x"), Wrong("?", "all is vain", "x")), "Two.", ""),
)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A folder of its own for what is kept, and two questions that are no part of the course."""
    monkeypatch.setenv("FLASHLEARN_HOME", str(tmp_path / "kept"))
    monkeypatch.setattr(log, "_unwritten", {})
    for question in MADE:
        monkeypatch.setitem(QUESTIONS, question.name, question)
    return tmp_path / "kept"


def live(monkeypatch) -> Quiz:
    """The two questions as their widget."""
    monkeypatch.setattr(predicting, "has_kernel", lambda: True)
    asked = predict("99.a", "99.b")
    assert "application/vnd.jupyter.widget-view+json" in asked._repr_mimebundle_()[0]
    return asked.quiz


def choose(quiz: Quiz, name: str, text: str) -> None:
    quiz._receive(quiz, {"question": name, "chosen": index(name, text)}, [])


def index(name: str, text: str) -> int:
    return QUESTIONS[name].choices.index(text)


def test_what_is_stored_does_not_answer(home):
    asked = predict("99.a", "99.b")
    text = asked._repr_mimebundle_()[0]["text/plain"]
    assert text.splitlines()[0] == "Predict: Is 1 < 2?" and repr(asked) == text
    assert not predicting.has_kernel() and not home.exists()
    for question in MADE:
        assert all(f") {choice}" in text for choice in question.choices)
        assert question.why not in text and not any(wrong.believes in text for wrong in question.wrong)


def test_the_answer_is_folded_away_on_a_page():
    class Reader(HTMLParser):
        inside, outside, folded = 0, "", ""

        def handle_starttag(self, tag, attributes):
            self.inside += tag == "details"
            assert tag != "b", "a choice is no markup"

        def handle_endtag(self, tag):
            self.inside -= tag == "details"

        def handle_data(self, data):
            if self.inside:
                self.folded += data
            else:
                self.outside += data

    reader = Reader()
    reader.feed(predict("99.a", "99.b")._repr_mimebundle_()[0]["text/html"])
    for question in MADE:
        assert question.text in reader.outside and all(choice in reader.outside for choice in question.choices)
        assert question.why in reader.folded and question.why not in reader.outside
        assert all(wrong.believes in reader.folded for wrong in question.wrong)
    assert ".." not in reader.folded


def test_the_data_are_whole():
    data = json.loads(json.dumps(predict("99.a")._repr_mimebundle_()[0][predicting.PREDICT]))
    (asked,) = data["questions"]
    assert (asked["name"], asked["question"], asked["why"]) == ("99.a", "Is 1 < 2?", "It is.")
    assert [choice["text"] for choice in asked["choices"]] == MADE[0].choices
    assert [choice["text"] for choice in asked["choices"] if choice.get("right")] == ["yes"]
    assert {choice["text"]: choice["believes"] for choice in asked["choices"] if "believes" in choice} == {
        "no": "1 is large",
        "<b>": "2 & 3",
    }


def test_the_browser_is_sent_no_answer_before_the_choice(monkeypatch):
    quiz = live(monkeypatch)
    sent = json.dumps([quiz.questions, quiz.answers])
    assert "Is 1 < 2?" in sent and "right" not in sent
    assert not any(words in sent for each in MADE for words in (each.why, *(wrong.believes for wrong in each.wrong)))


def test_a_choice_is_kept_before_the_answer_and_stays(monkeypatch, home):
    quiz, seen, view = live(monkeypatch), [], live(monkeypatch)
    quiz.observe(lambda change: seen.append(log.read(log.PREDICTIONS)), "answers")
    choose(quiz, "99.a", "no")
    assert [(line["question"], line["choice"], line["right"]) for line in seen[0]] == [("99.a", "no", False)]
    assert quiz.answers["99.a"] == {**predicting.feedback(MADE[0], "no"), "trouble": ""} and "99.b" not in quiz.answers
    choose(quiz, "99.a", "yes")
    assert quiz.answers["99.a"]["chosen"] == index("99.a", "no") and len(log.read(log.PREDICTIONS)) == 1

    choose(view, "99.a", "yes")
    assert view.answers["99.a"]["chosen"] == index("99.a", "no"), "as in another view"

    again = live(monkeypatch)
    assert again.answers == {"99.a": predicting.feedback(MADE[0], "no")}, "and on another day"
    choose(again, "99.b", "so")
    assert again.answers["99.b"]["right"] == again.answers["99.b"]["chosen"] and log.predicted(MADE[1]) == "so"


def test_what_is_stored_is_the_same_after_a_choice(monkeypatch):
    stored = predict("99.a", "99.b")._repr_mimebundle_()[0]
    quiz = live(monkeypatch)
    choose(quiz, "99.a", MADE[0].choices[0])
    after = predict("99.a", "99.b")._repr_mimebundle_()[0]
    after.pop("application/vnd.jupyter.widget-view+json")
    assert after == stored


def test_a_choice_that_the_question_has_no_more_is_forgotten():
    log.note(MADE[0], "no")
    changed = Question("99.a", MADE[0].text, "yes", (Wrong("never", "b", "x"), Wrong("?", "c", "x")), "", "")
    assert log.predicted(changed) is None
    with pytest.raises(ValueError, match="expected one of .* for 99.a, got 'no'"):
        log.note(changed, "no")


def test_a_folder_that_cannot_be_written_is_reported(monkeypatch, home):
    home.write_text("a file", encoding="utf-8")
    quiz = live(monkeypatch)
    choose(quiz, "99.a", MADE[0].choices[0])
    assert "is not kept" in quiz.answers["99.a"]["trouble"] and "predictions.jsonl" in quiz.answers["99.a"]["trouble"]
    assert log.predicted(MADE[0]) == MADE[0].choices[0], "until Python ends it is"


def test_lines_that_are_none_are_left_out(home):
    home.mkdir()
    (home / log.PREDICTIONS).write_text(
        'no JSON\n[1]\n{"question": "99.a"}\n{"question": "99.a", "choice": "yes"}\n', encoding="utf-8"
    )
    assert log.predicted(MADE[0]) == "yes" and log.predicted(MADE[1]) is None


@pytest.mark.parametrize("names", [(), ("99.z",), ("99.a", "99.z")])
def test_names_of_no_question_are_rejected(names):
    with pytest.raises(TypeError, match="expected the names of questions, each a text, got list"):
        predict(["99.a"])
    with pytest.raises(ValueError, match="expected the names of questions, .*got (none|'99.z')"):
        predict(*names)
