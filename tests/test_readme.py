"""The map of the code is made from the files, and what the README says holds."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools import code_map

ROOT = Path(__file__).parents[1]


@pytest.fixture
def small(tmp_path):
    """A project of three rooms, each but the lowest with an import."""
    for name, text in {
        "flashlearn/core/__init__.py": '"""The room.\n\nMore of it.\n"""',
        "flashlearn/core/b.py": '"""Second."""',
        "flashlearn/core/a.py": '"""First: of\ntwo."""',
        "flashlearn/core/inner/__init__.py": '"""Inside"""',
        "flashlearn/cost/__init__.py": '"""Costs."""\nfrom flashlearn.core import a',
        "flashlearn/show/__init__.py": '"""Shows."""\nimport flashlearn.cost\n\ndef f():\n    from flashlearn.show2 import x',
        "tools/__init__.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "docs").mkdir()
    return tmp_path


def test_the_map_is_that_of_the_files():
    assert code_map.main(["--check"]) == 0, "run `python -m tools.code_map`"


def test_check_notices_a_stale_map_and_writing_mends_it(small, monkeypatch):
    monkeypatch.setattr(code_map, "ROOT", small)
    assert code_map.main(["--check"]) == 1
    assert code_map.main([]) == code_map.main(["--check"]) == 0
    written = (small / "docs/MAP.md").read_text(encoding="utf-8")
    assert (
        "### flashlearn/core\n\nThe room.\n\n- `a.py`: First: of two\n- `b.py`: Second\n\n### flashlearn/core/inner"
        in written
    )
    (small / "flashlearn/core/a.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected a docstring in .*a\.py, got none"):
        code_map.main([])


def test_rooms_stand_above_what_they_import(small):
    package = small / "flashlearn"
    assert code_map.layers(package) == [["core"], ["cost"], ["show"]]
    (package / "core/b.py").write_text("from flashlearn.cost import x", encoding="utf-8")
    assert code_map.layers(package) == [["core", "cost"], ["show"]]
    assert code_map.picture([["core", "cost"], ["show"]]).count("<rect") == 3


def test_links_of_the_readme_lead_somewhere():
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        prose = re.sub(r"```.*?```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.S)
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
            assert (ROOT / target).exists(), f"{document}: {target}"


def test_every_make_target_of_the_readme_exists_and_every_extra_too():
    text = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= targets
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {name for group in re.findall(r"'\.\[([a-z,]+)\]'", text) for name in group.split(",")}
    assert named and named <= set(extras)


def imported(cell):
    """The modules that a code cell imports, and the names from them: `flashlearn.fast.api`, `flashlearn.flash_attention`."""
    for node in ast.walk(ast.parse(cell)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needs_triton(cells):
    wanted = r"(triton|flashlearn\.(kernels|fast)|flashlearn\.flash_attention\w*)(\.|$)"
    return any(re.match(wanted, name) for cell in cells for name in imported(cell))


def test_the_notebooks_that_need_triton_are_those_that_are_named():
    needing = set()
    for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        if needs_triton("".join(cell["source"]) for cell in cells):
            needing.add(path.stem[:2])
    assert needing == {str(n) for n in range(11, 19)}


def test_what_needs_triton_is_seen():
    for cell in (
        "import triton.language as tl",
        "from flashlearn import cost, flash_attention_paged",
        "from flashlearn.fast.api import f",
    ):
        assert needs_triton(["x = 1", cell])
    assert not needs_triton(
        ["import torch", "from flashlearn.ring import ring_attention", "from flashlearn import cost"]
    )


def blocks_of_python():
    """The README's blocks of Python, by the section that they stand in."""
    sections = re.split(r"^## ", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    return {section.splitlines()[0]: re.findall(r"```python\n(.*?)```", section, flags=re.S) for section in sections}


@pytest.mark.parametrize("section, block", (("One idea", 0), ("Use it, and take it home", 0)))
def test_blocks_of_python_run(section, block, capsys):
    pytest.importorskip("triton")
    exec(blocks_of_python()[section][block], {})
    assert capsys.readouterr().out


USED = """
import sys
q, k, v = torch.randn(2, 4, 50, 24), torch.randn(2, 2, 70, 24), torch.randn(2, 2, 70, 24)
o, lse = forward(q, k, v, causal=True)
mask = torch.ones(50, 70, dtype=torch.bool).tril(20)
torch.testing.assert_close(o, torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True))
assert not any(name.startswith("flashlearn") for name in sys.modules)
"""


def test_a_kernel_copied_as_the_readme_says_runs_by_itself(tmp_path):
    """In an empty folder: the README's lines, and in place of one what that names, cut from the file, and nothing else."""
    pytest.importorskip("triton")
    launch = blocks_of_python()["Use it, and take it home"][1]
    (line,) = re.findall(r"^# here: the constants, .*$", launch, flags=re.M)
    wanted = set(re.findall(r"\w+", line)) - {"here", "the", "constants", "and"}
    source = (ROOT / "flashlearn/kernels/forward.py").read_text(encoding="utf-8")
    lines, parts = source.splitlines(), []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) or getattr(node, "name", "") in wanted:
            first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", ()))])
            parts.append("\n".join(lines[first - 1 : node.end_lineno]))
            wanted -= {getattr(node, "name", "")}
    assert not wanted, f"not in the file: {wanted}"
    (tmp_path / "copied.py").write_text(launch.replace(line, "\n".join(parts)) + USED, encoding="utf-8")
    command = [sys.executable, "-P", "copied.py"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
