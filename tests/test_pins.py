"""`make pins` moves the pins to what pip finds, keeps what this machine cannot know, and says what broke."""

import sys
from pathlib import Path

import pytest

from tools import pins

TEXT = """\
# Comment, with a==1 in it.

beta_x==1.0
gone==2.0
torch==2.13.0

# Linux only.
triton==3.7.1; sys_platform == "linux"

# Another system's.
appnope==1.0.0; sys_platform == "darwin"
"""


def test_move_renews_adds_and_drops():
    found = {"beta-x": "1.1", "alpha": "3.0", "torch": "2.14.0+cpu", "triton": "3.8.0"}
    text, moves = pins.move(TEXT, found)
    assert text == TEXT.replace(
        "beta_x==1.0\ngone==2.0\ntorch==2.13.0", "alpha==3.0\nbeta_x==1.1\ntorch==2.14.0"
    ).replace("triton==3.7.1;", "triton==3.8.0;")
    assert moves.moved == {"beta_x": ("1.0", "1.1"), "torch": ("2.13.0", "2.14.0"), "triton": ("3.7.1", "3.8.0")}
    assert (moves.added, moves.dropped, moves.untouched) == ({"alpha": "3.0"}, ["gone"], ["appnope"])


def test_what_is_new_already_stays_as_it_is():
    found = {"beta-x": "1.0", "gone": "2.0", "torch": "2.13.0+cpu", "triton": "3.7.1"}
    text, moves = pins.move(TEXT, found)
    assert text == TEXT and not (moves.moved or moves.added or moves.dropped)
    assert pins.told(moves).startswith("nothing newer\n") and "appnope" in pins.told(moves)


def test_the_file_itself_is_understood():
    text = (pins.ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    parsed = [pin for pin in map(pins.PIN.match, lines) if pin]
    assert len(parsed) == len(lines) > 100
    assert pins.move(text, {pins.canonical(pin["name"]): pin["version"] for pin in parsed})[0] == text
    assert set(pins.HELD) <= {pin["name"] for pin in parsed}


def test_broken_names_the_command_and_the_tests(capsys):
    script = "print('FAILED tests/test_x.py::test_y - no'); print('a.py:1: error: no such type'); print('fine')"
    failed = pins.broken([[sys.executable, "-c", script + "; raise SystemExit(1)"], [sys.executable, "-c", script]])
    assert failed[0].endswith("raise SystemExit(1) broke:")
    assert failed[1:] == ["    FAILED tests/test_x.py::test_y - no", "    a.py:1: error: no such type"]
    assert capsys.readouterr().out.count("fine\n") == 2


@pytest.mark.parametrize(("options", "held"), [([], ["torch==2.13.0", "triton==3.7.1"]), (["--all"], [])])
def test_main_holds_the_recorded_pair_unless_told(options, held, tmp_path, monkeypatch, capsys):
    (tmp_path / "constraints.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr(pins, "ROOT", Path(tmp_path))
    monkeypatch.setattr(pins, "CHECKS", [[sys.executable, "-c", "raise SystemExit(3)"]])
    asked = []
    monkeypatch.setattr(pins, "newest", lambda held: asked.extend(held) or {"beta-x": "9"})
    assert pins.main(options) == 1
    assert [line.partition(";")[0] for line in asked] == held
    assert "beta_x==9\n" in (tmp_path / "constraints.txt").read_text(encoding="utf-8")
    assert "beta_x 1.0 -> 9" in capsys.readouterr().out
    assert pins.main(["--no-run"]) == 0
    assert capsys.readouterr().out.endswith("pins: what broke\nnothing\n")
