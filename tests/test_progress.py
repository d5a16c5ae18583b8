"""Long work says how far it is on a terminal, and says nothing where standard error is a file."""

import ast
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONG = (
    "benchmarks/gpu_ladder.py",
    "benchmarks/gpu_lesson.py",
    "benchmarks/gpu_profile.py",
    "benchmarks/laptop.py",
    "tools/book/build.py",
    "tools/book/runs.py",
    "tools/compile_table.py",
    "tools/lecture/page.py",
    "tools/run_notebooks.py",
)
RECORD = """
import sys
from pathlib import Path
from tools.book import runs
runs.SIDES = {3: {4: (2,)}}
runs.write(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("path", LONG)
def test_every_bar_is_for_terminals_alone(path):
    calls = [
        node for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
    ]
    bars = [call for call in calls if getattr(call.func, "id", "") == "tqdm"]
    assert bars
    for bar in bars:
        assert [ast.unparse(each.value) for each in bar.keywords if each.arg == "disable"] == ["None"]


def recorded(folder, stderr):
    command = [sys.executable, "-c", RECORD, str(folder)]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, timeout=120, check=True)


@pytest.mark.slow
def test_a_file_has_no_bar(tmp_path):
    assert recorded(tmp_path, subprocess.PIPE).stderr == b""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
def test_a_terminal_has_one(tmp_path):
    import termios

    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    recorded(tmp_path, theirs)
    os.close(theirs)
    said = ""
    with contextlib.suppress(OSError):  # Linux's end of what a terminal was told
        while part := os.read(ours, 10_000):
            said += part.decode()
    os.close(ours)
    assert "recorded runs: 100%" in said
    assert list((tmp_path / "runs").glob("*.js"))
