"""`--help` answers at once: nothing that takes long to import is imported on the way to it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITHOUT = """
import runpy, sys
from importlib.machinery import ModuleSpec

class Blocker:
    def find_spec(self, name, path=None, target=None):  # it may be looked for, not imported
        if name in ("torch", "numpy", "IPython", "matplotlib", "triton", "transformers"):
            return ModuleSpec(name, self)

    def create_module(self, spec):
        raise AssertionError(f"--help imports {spec.name}")

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Blocker())
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
PARTS = {"review", "inventory", "export"}  # commands of `python -m flashlearn`, in modules of the grading
LONG = {"tools.model_families"}  # it is about what it imports


def commands() -> list[str]:
    """The modules of the package and of the tools that take `--help`."""
    files = (path for room in ("flashlearn", "tools") for path in sorted((ROOT / room).rglob("*.py")))
    texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in files}
    names = {".".join(path.with_suffix("").parts) for path, text in texts.items() if "ArgumentParser(" in text}
    names = {re.sub(r"\.__main__$", "", name) for name in names}
    parts = {f"flashlearn.grading.{part}" for part in PARTS}
    assert parts <= names
    return sorted(names - LONG - parts | {f"flashlearn {part}" for part in PARTS | {"grade"}} | {"flashlearn"})


def test_the_commands_are_found():
    assert {"flashlearn.grading", "flashlearn.show.course_map", "tools.lecture", "tools.pins"} <= set(commands())


@pytest.mark.parametrize("command", commands())
def test_help_imports_nothing_that_takes_long(command):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *command.split(), "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0 and done.stdout.startswith("usage: "), done.stderr
