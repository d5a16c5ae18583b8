"""The engineering log's table of measured paths is that of its record."""

import doctest

import pytest

from flashlearn.measurements import load
from tools import engineering_log


def test_the_table_is_that_of_the_record():
    assert engineering_log.main(["--check"]) == 0, "run `python -m tools.engineering_log`"
    assert not doctest.testmod(engineering_log).failed


def test_a_stale_table_is_noticed_and_made_anew(tmp_path):
    path = tmp_path / "log.md"
    path.write_text("A\n<!-- measured paths -->\nstale\n<!-- end of measured paths -->\nB\n", encoding="utf-8")
    assert engineering_log.main(["--check"], path) == 1 and "stale" in path.read_text(encoding="utf-8")
    assert engineering_log.main([], path) == 0 and engineering_log.main(["--check"], path) == 0
    text = path.read_text(encoding="utf-8")
    assert "stale" not in text and text.startswith("A\n<!--") and text.endswith("-->\nB\n")
    with pytest.raises(ValueError, match="section"):
        engineering_log.filled("nothing", load("gpu_paths_h200"))


def test_what_was_left_out_gained_less_than_the_limits():
    """1 % in the geometric mean of the main settings and 5 % in each; settings that a path does not change count as 1."""
    gone = [path for path in load("gpu_paths_h200")["paths"] if path["decision"].startswith("left out")]
    assert len(gone) == 4
    for path in gone:
        for direction in "fb":
            if gain := engineering_log.of_direction(path["ratios"], direction):
                mean, most = (float(number.replace("−", "-")) for number in gain.split(", "))
                assert mean < 1 and most < 5, path["name"]
