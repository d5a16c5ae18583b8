"""What a type checker sees of the package from outside, and that none of its rooms is waved through."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]

RIGHT = """
from typing import assert_type
import torch
from torch import Tensor
import flashlearn as fl

q = k = v = torch.ones(1, 1, 4, 16)
assert_type(fl.flash_attention(q, k, v), Tensor)
assert_type(fl.flash_attention(q, k, v, return_lse=True), tuple[Tensor, Tensor])
assert_type(fl.flash_attention(q, k, v, causal=True, return_lse=False), Tensor)
assert_type(fl.tiled_attention_v2(q, k, v), Tensor)
assert_type(fl.tiled_attention_v2(q, k, v, block_q=2, return_lse=True), tuple[Tensor, Tensor])
assert_type(fl.attention_backward(q, q, k, v), tuple[Tensor, Tensor, Tensor])
assert_type(fl.attention_backward(q, q, k, v, softcap=5.0), tuple[Tensor, Tensor, Tensor])
assert_type(fl.attention_backward(q, q, k, v, sinks=q[0, 0, 0]), tuple[Tensor, ...])
assert_type(fl.__version__, str)
fl.projector(False)
"""
WRONG = [
    'fl.standard_attention(q, k, v, causal="no")',
    "fl.tiled_attention_v2(q, k, v, return_lse=True).shape",
    'fl.tiled_attention_v2(q, k, v, softcap="50")',
    "fl.one_pass_attention(q, k, v, slopes=q)",
    "fl.flash_attention(q, k, v, return_lse=True).shape",
    "fl.online_softmax([1.0, 2.0])",
    "fl.no_such_function(q)",
]


@pytest.fixture(scope="module")
def complaints(tmp_path_factory) -> dict[str, list[str]]:
    """What mypy says of the right file and of the wrong lines after it; it keeps the project's cache."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "right.py").write_text(RIGHT, encoding="utf-8")
    (folder / "wrong.py").write_text(RIGHT + "\n".join(WRONG) + "\n", encoding="utf-8")
    options = ["--no-error-summary", "--no-pretty"]
    said = {}
    for name in ("right", "wrong"):
        command = [sys.executable, "-m", "mypy", *options, str(folder / f"{name}.py")]
        env = {**os.environ, "MYPYPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500, encoding="utf-8")
        assert not done.stderr, done.stderr
        said[name] = [line for line in done.stdout.splitlines() if ": error:" in line]
    return said


@pytest.mark.slow
def test_return_lse_decides_the_type_of_the_result(complaints):
    assert complaints["right"] == []


@pytest.mark.slow
@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_call_is_rejected(complaints, line):
    number = len(RIGHT.splitlines()) + WRONG.index(line) + 1
    assert any(f"wrong.py:{number}: error:" in said for said in complaints["wrong"]), complaints["wrong"]


def test_no_room_is_waved_through():
    assert SETTINGS["files"] == ["flashlearn", "tools"] and SETTINGS["check_untyped_defs"]
    assert "ignore-without-code" in SETTINGS["enable_error_code"] and SETTINGS["warn_unused_ignores"]
    loose = [each for each in SETTINGS["overrides"] if not each.get("disallow_untyped_defs")]
    ours = {module for override in loose for module in override["module"] if module.startswith("flashlearn")}
    assert ours <= {"flashlearn.course.*.wrong", "flashlearn.course.gpu_and_triton.wrong_kernels"}, "wrong on purpose"
    assert not [
        path
        for path in (ROOT / "flashlearn").rglob("*.py")
        if "# mypy: ignore-errors" in path.read_text(encoding="utf-8")
    ]
    assert (ROOT / "flashlearn/py.typed").exists()
