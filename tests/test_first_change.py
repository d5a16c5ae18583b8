"""The first change of CONTRIBUTING.md, followed as it is written, in a copy of the package."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = GUIDE[GUIDE.index("## Your first change") : GUIDE.index("## Set-up")]


def block(language: str) -> str:
    (found,) = re.findall(rf"   ```{language}\n(.*?)   ```", SECTION, flags=re.DOTALL)
    return found.replace("\n   ", "\n").strip() + "\n"


def said(folder: Path) -> str:
    command = [sys.executable, "-c", block("python")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, encoding="utf-8").stdout


def test_the_first_change_does_what_it_says(tmp_path):
    shutil.copytree(ROOT / "flashlearn", tmp_path / "flashlearn", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / re.search(r"In `(flashlearn/course/[\w/.]+)`", SECTION)[1]
    (heading,) = re.findall(r"below the line `(.*?)`", SECTION)
    promised = " ".join(re.search(r'the report now says "(.*?)"', SECTION, flags=re.DOTALL)[1].split())
    assert promised not in said(tmp_path)
    text = file.read_text(encoding="utf-8")
    assert text.count(heading) == 1
    file.write_text(text.replace(heading, f"{heading}\n{block('toml')}"), encoding="utf-8")
    assert promised in said(tmp_path)


def test_its_command_runs_tests():
    (options,) = re.findall(r"-m pytest -q (tests/\S+) -k \"(.*?)\"", SECTION)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        options[0],
        "-k",
        options[1],
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0 and "01.softmax: one sum is taken over all rows" in done.stdout
