"""`in_a_sentence`: ours is shown once the reader has written, and is not in what is stored as text."""

import html

import pytest

from flashlearn.exercises.questions import SENTENCES, sentences
from flashlearn.exercises.sentences import SENTENCE, in_a_sentence

TEXT = """# Questions of online_softmax

## why
Why does one factor do?
- what all terms share
- which maximum replaces which
Model: Every old term holds the same e^m, so one factor replaces it in all.

## other
A question?
- [x] yes
"""


def test_a_file_holds_questions_and_sentences():
    (task,) = sentences(TEXT, "online_softmax")
    assert (task.name, task.text) == ("03.why", "Why does one factor do?")
    assert task.points == ("what all terms share", "which maximum replaces which")
    with pytest.raises(ValueError, match="one Model in online_softmax.why"):
        list(sentences(TEXT.replace("Why does", "Second line\nWhy does"), "online_softmax"))


@pytest.mark.parametrize("name", SENTENCES)
def test_ours_is_shown_after_the_readers(name):
    task = SENTENCES[name]
    before, after = in_a_sentence(name), in_a_sentence(name, "because it is so, I think")
    assert task.model not in repr(before) and task.model in repr(after) and "because it is so" in repr(after)
    page = before._repr_mimebundle_()
    assert "<details>" in page["text/html"] and html.escape(task.model) in page["text/html"]
    assert page[SENTENCE]["model"] == task.model and 2 <= len(task.points) <= 4
    assert "<details>" not in after._repr_mimebundle_()["text/html"]


def test_what_is_no_sentence_is_rejected():
    name = next(iter(SENTENCES), "none")
    with pytest.raises(ValueError, match="expected the name of a task"):
        in_a_sentence("03.no_such_task")
    if name != "none":
        with pytest.raises(ValueError, match="at least 5 words, got 2"):
            in_a_sentence(name, "too short")
        with pytest.raises(TypeError, match="got int"):
            in_a_sentence(name, 5)
