"""tests/gpu/sanitize.py, as far as it can be tested without a GPU: a race is let pass only if it is a known one."""

from __future__ import annotations

import re

import pytest
import torch

from tests.gpu import sanitize

NAME = "hopper/backward"
DISPATCH = "def attention_backward_hopper_kernel("
PART = "gl.warp_specialize("
STORE, LOAD = "cta.dq.index(CONSUMER).reshape([128, 32]).store(", "dq = warpgroup_mma("
KNOWN = [("Write", DISPATCH, "Read", DISPATCH), ("Write", PART, "Read", DISPATCH)]


def place(start: str) -> str:
    """Where racecheck would say that the line of the kernel with this start is."""
    lines = (sanitize.KERNELS / f"{NAME}.py").read_text(encoding="utf-8").splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.strip().startswith(start))
    return f"attention_backward_hopper_kernel+0x1230 in /somewhere/flashlearn/fast/{NAME}.py:{number}"


def report(*races: tuple[str, str, str, str], displayed: int | None = None) -> str:
    lines = ["========= COMPUTE-SANITIZER"]
    for kind, at, other_kind, other_at in races:
        lines.append(f"========= Error: Race reported between {kind} access at {place(at)}")
        lines.append(f"=========     and {other_kind} access at {place(other_at)} [32 hazards]")
        lines.append("=========")
    count = len(races) if displayed is None else displayed
    return "\n".join([*lines, f"========= RACECHECK SUMMARY: {count} hazards displayed ({count} errors, 0 warnings)"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_says_so():
    with pytest.raises(SystemExit, match="expected a Hopper GPU to look for races on, found none"):
        sanitize.main([])


def test_known_races_pass():
    assert sanitize.unknown_races(report(*KNOWN)) == []
    assert sanitize.unknown_races(report()) == []


def test_what_one_group_hands_over_to_the_other_passes_and_nothing_else_of_it():
    lines = (sanitize.KERNELS / "hopper/backward_wide.py").read_text(encoding="utf-8").splitlines()
    read, write = ([line.strip() for line in lines].index(line) + 1 for line in sanitize.P_HANDED_OVER)
    where = "attention_backward_wide_kernel+0x10 in /somewhere/flashlearn/fast/hopper/backward_wide.py:"

    def told(kind, number, other_kind, other):
        race = f"Race reported between {kind} access at {where}{number}\n and {other_kind} access at {where}{other} [1 hazards]"
        return sanitize.unknown_races(f"{race}\nRACECHECK SUMMARY: 1 hazards displayed (1 errors, 0 warnings)")

    assert told("Read", read, "Write", write) == told("Write", write, "Read", read) == []
    assert (
        told("Write", read, "Write", write)
        and told("Read", read, "Write", read)
        and told("Read", read - 1, "Write", write)
    )


def test_a_file_that_is_named_without_its_folder_is_that_of_the_kernel():
    bare = report(*KNOWN).replace(f"/somewhere/flashlearn/fast/{NAME}.py", "backward.py")
    assert "/" not in re.search(r" in (.*backward\.py)", bare)[1]
    assert sanitize.unknown_races(bare) == []
    for other in ("attention_forward_hopper_kernel", "another_kernel"):  # no file of this name defines them
        assert len(sanitize.unknown_races(bare.replace("attention_backward_hopper_kernel+", f"{other}+"))) == len(KNOWN)


@pytest.mark.parametrize(
    "race",
    (
        ("Write", STORE, "Write", STORE),
        ("Write", STORE, "Read", LOAD),
        ("Write", "cta.ds.index(t % DS_STAGES * 2 + CONSUMER).store(", "Read", LOAD),
        ("Write", DISPATCH, "Read", LOAD),
        ("Write", DISPATCH, "Write", DISPATCH),
        ("Read", PART, "Write", DISPATCH),
        ("Write", PART, "Read", LOAD),
    ),
)
def test_new_races_are_told(race):
    (fault,) = sanitize.unknown_races(report(*KNOWN, race))
    assert "a new race" in fault


def test_a_second_access_of_a_race_is_looked_at_too():
    more = f"=========     and Read access at {place('def consume(')} [1 hazards]"
    text = report(KNOWN[0]).replace("[32 hazards]", f"[32 hazards]\n{more}")
    assert len(sanitize.unknown_races(text)) == 1


def test_reports_that_cannot_be_read_are_faults():
    assert "expected a summary of 2 hazards" in sanitize.unknown_races(report(*KNOWN, displayed=4))[0]
    assert "expected a summary of 0 hazards, got None" in sanitize.unknown_races("========= COMPUTE-SANITIZER")[0]
    without_lines = report(KNOWN[0]).replace(".py:", ".py ")
    assert "a new race" in sanitize.unknown_races(without_lines)[0]
