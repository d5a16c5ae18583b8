"""The 5-gram model that the GPT must beat, and the part of the benchmark that compares them."""

import itertools
import json
import math
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from flashlearn.models.gpt import encode, read_text
from flashlearn.models.ngram import longest_copy, ngram_loss


def by_hand(train, held_out, order, vocabulary):
    """The formula of the docstring, one character at a time."""
    counts = Counter(tuple(train[i : i + n]) for n in range(1, order + 1) for i in range(len(train) - n + 1))

    def p(history, c):
        if history is None:
            return 1 / vocabulary
        followed = {
            run[-1]: count for run, count in counts.items() if len(run) == len(history) + 1 and run[:-1] == history
        }
        shorter = p(history[1:] if history else None, c)
        if not followed:
            return shorter
        return (followed.get(c, 0) + len(followed) * shorter) / (sum(followed.values()) + len(followed))

    positions = range(order - 1, len(held_out))
    return -sum(math.log(p(tuple(held_out[i - order + 1 : i]), held_out[i])) for i in positions) / len(positions)


@pytest.mark.parametrize(("order", "vocabulary"), list(itertools.product((1, 2, 3, 5), (3, 7))))
def test_counted_at_once_as_one_by_one(order, vocabulary):
    generator = torch.Generator().manual_seed(order)
    train, held_out = (torch.randint(vocabulary, (n,), generator=generator) for n in (60, 23))
    train[-1], held_out[5] = 0, vocabulary - 1
    found = ngram_loss(train, held_out, order=order, vocabulary=vocabulary)
    assert found == pytest.approx(by_hand(train.tolist(), held_out.tolist(), order, vocabulary), abs=1e-12)


@pytest.mark.slow  # six tables of a poem of half a million characters
def test_of_the_poem():
    """Each order up to five knows more; one that predicts what it was trained on knows too much."""
    text = read_text()
    alphabet = "".join(sorted(set(text)))
    tokens = encode(text, alphabet)
    split = len(tokens) * 9 // 10
    losses = [ngram_loss(tokens[:split], tokens[split:], order=n, vocabulary=len(alphabet)) for n in (1, 2, 3, 4, 5)]
    assert losses == sorted(losses, reverse=True) and losses[0] < math.log(len(alphabet))
    assert 1.5 < losses[4] < 2.0
    assert ngram_loss(tokens[:split], tokens[:split], order=5, vocabulary=len(alphabet)) < losses[4] - 0.3


def test_bad_input_is_rejected():
    text = torch.arange(10) % 3
    with pytest.raises(ValueError, match="expected order of at least 1, got 0"):
        ngram_loss(text, text, order=0, vocabulary=3)
    with pytest.raises(ValueError, match="expected tokens of train from 0 to 1, got 0 to 2"):
        ngram_loss(text, text, order=1, vocabulary=2)
    with pytest.raises(ValueError, match="expected tokens of held_out from 0 to 2, got -1 to 1"):
        ngram_loss(text, text - 1, order=1, vocabulary=3)
    for wrong in (text.float(), text.reshape(2, 5), [0, 1]):
        with pytest.raises(TypeError, match="expected train to be a tensor of integers with one dimension, got"):
            ngram_loss(wrong, text, order=1, vocabulary=3)
    with pytest.raises(ValueError, match="expected an order .* got 50, 3"):
        ngram_loss(text, text, order=50, vocabulary=3)
    with pytest.raises(ValueError, match="expected texts of 5 characters or more, got 10 and 4"):
        ngram_loss(text, text[:4], order=5, vocabulary=3)


@pytest.mark.parametrize(
    ("words", "text", "found"),
    (("xabcy", "abc ab", "abc"), ("abxcd", "cd ab", "ab"), ("abc", "abc", "abc"), ("abc", "xyz", ""), ("", "a", ""), ("a", "", "")),
)  # fmt: skip
def test_the_longest_copy(words, text, found):
    assert longest_copy(words, text) == found


@pytest.mark.slow  # trains, in Triton's interpreter
def test_the_benchmark_in_miniature(tmp_path, monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed here: there is no attention of ours to train with")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import gpu_gpt

    monkeypatch.setattr(gpu_gpt, "read_text", lambda: read_text()[:3000])
    monkeypatch.setattr(sys, "argv", ["gpu_gpt.py", str(tmp_path / "verse.json"), "--tiny", "--parts", "verse"])
    gpu_gpt.main()
    found = json.loads((tmp_path / "verse.json").read_text(encoding="utf-8"))["verse"]
    for run in found["runs"].values():
        assert (
            len(run["losses"]) == 6
            and list(run["texts"]) == ["0", "2", "6"]
            and list(run["validation"]) == ["0", "2", "4", "6"]
        )
        assert run["best"] == min(run["validation"].values()) == run["validation"][str(run["best_step"])]
        assert all(len(text) == 64 + 8 for text in (*run["texts"].values(), run["best_text"]))
    ours, theirs = (found["runs"][name]["losses"] for name in ("flash_attention", "PyTorch"))
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 0.05
    assert found["held_out"] == 300 and found["ngram"] < math.log(65)
