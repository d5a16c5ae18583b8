"""The map of the code is made from the files, and what README and docs say holds."""

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from flashlearn.__main__ import COMMANDS
from flashlearn.course import MINUTES, NOTEBOOKS
from flashlearn.exercises import EXERCISES
from tools import code_map, readme_picture

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


DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/kernels.md",
    "docs/notebooks.md",
    "docs/setup.md",
    "AGENTS.md",
)


def text_of(document):
    return (ROOT / document).read_text(encoding="utf-8")


def anchors(text):
    """What a heading is called in a link."""
    titles = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    prose = re.sub(r"```.*?```", "", text_of(document), flags=re.S)
    targets = re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose) + re.findall(r'<img src="([^"]+)"', prose)
    assert targets or document == "docs/setup.md"
    for target in targets:
        name, _, anchor = target.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        assert path.exists(), f"{document}: {target}"
        assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), f"{document}: {target}"


def test_the_readme_is_short_and_starts_on_its_first_screen():
    text = text_of("README.md")
    assert len(text.encode()) <= 8 * 1024
    assert "make lab" in "".join(text.splitlines(keepends=True)[:15])
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    assert {f"{name}.md" for name in ("kernels", "notebooks", "setup", "MAP", "models", "engineering_log")} <= set(
        re.findall(r"\(docs/(\w+\.md)", prose)
    )


def test_the_readme_says_how_many_notebooks_there_are_and_how_long_they_take():
    words = {20: "Twenty", 21: "Twenty-one", 22: "Twenty-two"}
    assert f"**{words[len(NOTEBOOKS)]} notebooks" in text_of("README.md")
    (hours,) = re.findall(r"All notebooks take about (\d+) hours", text_of("README.md"))
    assert abs(int(hours) - sum(MINUTES.values()) / 60) <= 1


def test_its_badges_and_its_address_are_those_of_the_project():
    for file, picture in readme_picture.badges().items():
        assert (ROOT / "docs/badges" / file).read_text(encoding="utf-8") == picture, "run tools/readme_picture.py"
        assert f"(docs/badges/{file})" in text_of("README.md")
    urls = tomllib.loads(text_of("pyproject.toml"))["project"]["urls"]
    assert f"git clone --depth 1 {urls['Repository']} && cd {urls['Repository'].rpartition('/')[2]}" in text_of(
        "README.md"
    )


def test_every_make_target_that_is_named_exists_and_every_extra_too():
    text = "".join(map(text_of, DOCUMENTS[:2] + DOCUMENTS[3:]))
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), flags=re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, flags=re.MULTILINE)) <= targets
    assert targets - {"help", "setup", "test-all"} <= set(re.findall(r"`make ([a-z-]+)`", text_of("docs/setup.md")))
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    named = {name for group in re.findall(r"""["']\.\[([a-z,]+)\]["']""", text) for name in group.split(",")}
    assert named and named <= set(extras)


def test_what_tutors_are_told_to_call_is_there():
    text = text_of("AGENTS.md")
    (block,) = re.findall(r"(?:^ {4}.*\n)+", text, flags=re.M)
    exec(textwrap.dedent(block), {})
    assert all(name in EXERCISES for name in re.findall(r'(?:check|hint)\("([\w.]+)"', text))
    assert "the first of three hints" in text and {len(each.hints) for each in EXERCISES.values()} == {3}
    assert "review" in COMMANDS and list((ROOT / "flashlearn/course").glob("*/solutions.py"))


def test_every_notebook_is_in_the_list():
    rows = re.findall(r"^\| \[(\d\d) (.*?)\]\(\.\./notebooks/(\S+)\)", text_of("docs/notebooks.md"), flags=re.M)
    assert [row[2] for row in rows] == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    for number, title, file in rows:
        cells = json.loads(text_of(f"notebooks/{file}"))["cells"]
        heading = next(line for cell in cells for line in "".join(cell["source"]).splitlines() if line.startswith("# "))
        assert f"{number} · {title}" in heading.replace("`", ""), heading


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
    for document in ("README.md", "docs/setup.md"):
        assert f"notebooks {min(needing)} to {max(needing)} need the dev container" in text_of(document)


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


def blocks_of_python(document):
    return re.findall(r"```python\n(.*?)```", text_of(document), flags=re.S)


@pytest.mark.parametrize("document", ("README.md", "docs/notebooks.md", "docs/kernels.md"))
def test_the_first_block_of_python_runs(document, capsys):
    pytest.importorskip("triton")
    block = blocks_of_python(document)[0]
    assert document != "README.md" or len(list(filter(None, block.splitlines()))) == 5
    exec(block, {})
    assert capsys.readouterr().out


USED = """
import sys
q, k, v = torch.randn(2, 4, 50, 24), torch.randn(2, 2, 70, 24), torch.randn(2, 2, 70, 24)
o, lse = forward(q, k, v, causal=True)
mask = torch.ones(50, 70, dtype=torch.bool).tril(20)
torch.testing.assert_close(o, torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True))
assert not any(name.startswith("flashlearn") for name in sys.modules)
"""


def test_a_kernel_that_is_copied_runs_by_itself(tmp_path):
    """In an empty folder: the lines of docs/kernels.md, and in place of one what that names, cut from the file."""
    pytest.importorskip("triton")
    launch = blocks_of_python("docs/kernels.md")[1]
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
