"""Recorded measurements: they are read as they stand, and say where they were made."""

import doctest
import json

import pytest

from flashlearn import recorded
from flashlearn.recorded import chosen, geometric_mean, load, provenance, ratios, recordings


def test_examples_in_docstrings():
    assert doctest.testmod(recorded).failed == 0


@pytest.mark.parametrize("name", recordings())
def test_every_recording_says_where_it_was_made(name):
    assert provenance(load(name)).startswith("recorded 20")
    assert load(name)["provenance"]["commit"]


def test_a_recording_that_does_not_is_refused(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps({"provenance": {"gpu": "H200", "date": "2026-11-20"}}))
    with pytest.raises(ValueError, match="got none of driver, torch, triton"):
        provenance(load("x", tmp_path))
    with pytest.raises(FileNotFoundError, match=r"one of \['x'\].*got 'y'"):
        load("y", tmp_path)


def test_rows_and_ratios():
    rows = [{"D": D, "flashlearn": {"forward": 2.0 * D}, "cudnn": {"forward": 100.0}} for D in (50, 100, 200)]
    assert ratios(rows, "forward", "cudnn") == [1, 2, 4]
    assert [row["D"] for row in chosen(rows, D=(50, 200))] == [50, 200]
    assert geometric_mean(ratios(rows, "forward", "cudnn")) == pytest.approx(2)
    with pytest.raises(ValueError, match="expected at least one number"):
        geometric_mean([])


def test_the_recording_covers_the_settings_of_the_targets():
    rows = chosen(load("gpu_attention")["rows"], N=(4096, 16384), dtype="float16")
    assert len(rows) == 8, "D x N x causal"
    for direction in ("forward", "backward"):
        assert all(ratio > 1 for ratio in ratios(rows, direction, "fa2")), "never slower than FlashAttention-2"
