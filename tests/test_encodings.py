"""Texts are UTF-8 on every machine: files and pipes name their encoding, and the course runs where the locale is another."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.slow import slow

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path for folder in ("flashlearn", "tools", "benchmarks", "tests", "book") for path in (ROOT / folder).rglob("*.py")
)
TEMPORARY = ("NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile")


def constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    return given.get(name, call.args[place] if place < len(call.args) else None)


def is_mode(value: object) -> bool:
    return isinstance(value, str) and bool(value) and set(value) <= set("rwaxbt+")


def is_text(call: ast.Call) -> bool:
    """Whether a call reads or writes text, in the encoding of the machine unless it names one."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "read_text":
        return isinstance(call.func, ast.Attribute) and not call.args
    if name in ("write_text", "FileHandler", "popen", "getoutput", "getstatusoutput"):
        return True
    if name == "open" and isinstance(call.func, ast.Name) or name == "fdopen":
        return "b" not in str(constant(argument(call, 1, "mode")) or "r")
    if name == "open":  # of a path: its first argument is a mode; others open pictures, pages, archives
        mode = argument(call, 0, "mode")
        return mode is None or is_mode(constant(mode)) and "b" not in str(constant(mode))
    if name in TEMPORARY:
        return "b" not in str(constant(argument(call, 0, "mode")) or "w+b")
    asked = (argument(call, 99, key) for key in ("text", "universal_newlines"))
    return any(constant(value) is True for value in asked)


def without_encoding(tree: ast.AST) -> list[ast.Call]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_text(node))
    return [call for call in calls if not any(keyword.arg == "encoding" for keyword in call.keywords)]


def parsed(path: Path) -> ast.AST:
    with warnings.catch_warnings(action="ignore"):  # of Python sources in strings: not what is looked for here
        return ast.parse(path.read_text(encoding="utf-8"))


TEXTS = """path.read_text(); path.write_text(text); open(name); open(name, 'a'); open(name, mode='w'); path.open()
path.open('w'); os.fdopen(3, 'w'); subprocess.run(command, text=True); subprocess.Popen(command, universal_newlines=True)
tempfile.NamedTemporaryFile('w'); NamedTemporaryFile(mode='w+', suffix='.py'); logging.FileHandler(path)
subprocess.getoutput('ls')"""
BYTES = "path.read_bytes(); open(name, 'rb'); path.open('rb'); NamedTemporaryFile(suffix='.cubin'); Image.open(io)"


@pytest.mark.parametrize("code", [ast.unparse(node) for node in ast.parse(TEXTS).body])
def test_a_text_without_an_encoding_is_found(code):
    assert len(without_encoding(ast.parse(code))) == 1
    assert not without_encoding(ast.parse(f"{code[:-1]}{'' if code.endswith('()') else ', '}encoding='utf-8')"))


@pytest.mark.parametrize("code", [ast.unparse(node) for node in ast.parse(BYTES).body])
def test_bytes_need_no_encoding(code):
    assert not without_encoding(ast.parse(code))


@pytest.mark.parametrize("folder", ["flashlearn", slow("tools"), slow("benchmarks"), slow("tests"), slow("book")])
def test_every_text_is_read_and_written_with_its_encoding(folder):
    files = [path for path in FILES if path.is_relative_to(ROOT / folder)]
    found = [f"{path.relative_to(ROOT)}:{call.lineno}" for path in files for call in without_encoding(parsed(path))]
    assert files and not found, f"expected encoding='utf-8' in {len(found)} calls: {', '.join(found)}"


ESSENTIAL = """
import contextlib, io, locale, pathlib, tempfile
import torch
import flashlearn as fl
from flashlearn.exercises import check, predict
from flashlearn.exercises import log
from flashlearn.measurements import load, recordings
from flashlearn.models.gpt import read_text
from flashlearn.ring.processes import processes
from flashlearn.show import course_map, play
from flashlearn.show.draw import draw_row
from flashlearn.show.explorers import tiling_explorer

def spoken(group):
    print("ℓ und Prüfung")  # its source goes to a file, its words come back through a pipe
    return "δ"

assert locale.getencoding().lower() != "utf-8", "this test is about the other encodings"
x = torch.tensor([3.0, 2.0])
folder = pathlib.Path(tempfile.mkdtemp())
shown = play({"fünf": fl.online_softmax_steps(x)}, draw_row, alt="zwei Säulen, ℓ", figsize=(4, 2))
assert "ℓ" in shown.in_words() and shown.png
tiling_explorer().paint()
assert "ℓ" in repr(predict("03.recall.lse")) and len(read_text()) > 1000
assert all(load(name)["provenance"] for name in recordings())
course_map.main([str(folder / "map.html")])
assert "×" in (folder / "map.html").read_text(encoding="utf-8")
with contextlib.redirect_stdout(io.StringIO()) as said:
    assert processes(1, spoken) == ["δ"]
assert said.getvalue() == "[0] ℓ und Prüfung\\n"
"""


def locale_of(name: str, folder: Path) -> dict[str, str]:
    """The environment of a machine with this locale, made in `folder` unless it is there from the beginning."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG"))}
    given = {**plain, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": name, "FLASHLEARN_HOME": str(folder)}
    if name != "C":
        if not shutil.which("localedef"):
            pytest.skip("needs localedef, which makes locales")
        made = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(folder / name)]
        if subprocess.run(made, capture_output=True).returncode:
            pytest.skip("needs the sources of locales (Debian: locales)")
        given["LOCPATH"] = str(folder)
    return given


@pytest.mark.slow
@pytest.mark.parametrize("name", ["C", "de_DE"])
def test_essential_modules_under_another_locale(tmp_path, name):
    program = tmp_path / "program.py"
    program.write_text(ESSENTIAL, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program], cwd=ROOT, env=locale_of(name, tmp_path), capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
