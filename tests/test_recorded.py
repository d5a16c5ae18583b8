"""Recorded measurements: they are read as they stand, and say where they were made."""

import doctest
import json

import pytest

from flashlearn.measurements import records
from flashlearn.measurements.records import chosen, geometric_mean, load, provenance, ratios, recordings


def test_examples_in_docstrings():
    assert doctest.testmod(records).failed == 0


@pytest.mark.parametrize("name", recordings())
def test_every_recording_says_where_it_was_made(name):
    assert provenance(load(name)).startswith("recorded 20")
    assert load(name)["provenance"].get("commit") or "machine" in load(name)["provenance"]


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


def test_peers_that_do_not_run_are_left_out_but_ours_is_missed():
    rows = [{"D": D, "flashlearn": {"forward": 2.0, "backward": 1.0}, "math": {"forward": 1.0}} for D in (64, 128, 256)]
    rows[0]["math"], rows[1]["math"] = None, {"forward": None, "backward": 4.0}
    assert ratios(rows, "forward", "math") == [2]
    assert ratios(rows, "backward", "math") == [0.25]
    rows[2]["flashlearn"] = None
    with pytest.raises(ValueError, match=r"expected flashlearn .* got none, forward, at {'D': 256}"):
        ratios(rows, "forward", "math")


def test_a_recording_of_a_laptop_names_the_machine():
    where = {"machine": "a laptop, 4 cores", "date": "2026-11-21", "torch": "2.13", "triton": "3.7"}
    assert provenance({"provenance": where}) == "recorded 2026-11-21: a laptop, 4 cores, PyTorch 2.13, Triton 3.7"


def test_the_recording_covers_the_settings_of_the_targets():
    rows = chosen(load("gpu_attention")["rows"], N=(4096, 16384), dtype="float16")
    assert len(rows) == 8, "D x N x causal"
    for direction in ("forward", "backward"):
        assert all(ratio > 1 for ratio in ratios(rows, direction, "fa2")), "never slower than FlashAttention-2"
