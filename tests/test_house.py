"""The house: few rooms, no name for two things, functions that fit on a screen."""

from __future__ import annotations

import ast
import graphlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import flashlearn

ROOT = Path(flashlearn.__file__).parent
FILES = sorted(
    path for path in ROOT.rglob("*.py") if not re.fullmatch(r"wrong|\w+_kernels", path.stem)
)  # wrong on purpose
TOP = {
    ".ci", ".devcontainer", ".github", ".gitignore", ".pre-commit-config.yaml", "AGENTS.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile",
    "Dockerfile", "README.md", "benchmarks", "book", "constraints.txt", "docs", "environment.yml", "flashlearn", "lecture", "notebooks", "pyproject.toml",
    "tests", "tools",
}  # fmt: skip
MOST_LINES, MOST_PARAMETERS, MOST_OF_A_GENERATOR, MOST_OF_A_KERNEL = 50, 8, 30, 120
# Kernels (`@triton.jit`, `@gluon.jit`), their launchers, and the problems of an exercise have the parameters that they need.
OF_KERNELS = (ROOT / "kernels", ROOT / "fast", *(ROOT / "course").glob("*/*.py"))
SIGNATURES = {
    "flash_attention",
    "flash_attention_paged",
    "flash_attention_varlen",
    "kernel_solution",
    "ring_attention",
    "ring_attention_steps",
    "tiled_attention_v2",
    "tiled_attention_backward",
    "tiled_attention_backward_steps",
    "dv_kernel",
    "ulysses_attention",
}


def packages() -> list[ModuleType]:
    names = [m.name for m in pkgutil.walk_packages([str(ROOT)], "flashlearn.") if m.ispkg]
    if not importlib.util.find_spec("triton"):
        names = [name for name in names if not name.startswith(("flashlearn.kernels", "flashlearn.fast"))]
    return [flashlearn, *map(importlib.import_module, names)]


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)]


def is_kernel(node: ast.FunctionDef) -> bool:
    return node.name.endswith("_kernel") or any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)


def lines_of_code(node: ast.FunctionDef) -> int:
    """Without its docstring."""
    words = ast.get_docstring(node, clean=False)
    return node.end_lineno - node.lineno + 1 - (len(words.splitlines()) if words else 0)


def test_at_most_sixteen_rooms():
    assert len([path for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"]) <= 16


@pytest.mark.skipif(not (ROOT.parent / ".git").exists() or shutil.which("git") is None, reason="not a git checkout")
def test_nothing_but_what_a_project_needs_stands_at_the_top():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT.parent, capture_output=True, text=True, check=True, encoding="utf-8"
    ).stdout
    assert {path.split("/")[0] for path in tracked.splitlines()} - TOP == set()


# A room imports from its own floor and from those above it in this list, never from those below: grading comes last.
FLOORS = (
    "core", "algorithms compiler fast simulator", "kernels", "models ring", "cost serving", "measurements", "gpu", "show",
    "course exercises", "grading",
)  # fmt: skip


def imported(path: Path) -> set[str]:
    """The rooms that a module imports from, in its functions too."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{path}: expected absolute imports, got {ast.unparse(node)}"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("flashlearn.")}


def test_imports_run_one_way():
    floors = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms.split()}
    assert set(floors) == {path.parent.name for path in ROOT.glob("*/__init__.py")}
    for path in FILES:
        room = path.relative_to(ROOT).parts[0]
        for other in imported(path) & set(floors) if room in floors else ():
            assert floors[other] <= floors[room], f"{path.relative_to(ROOT)} imports from {other}"


def test_the_fast_kernels_need_core_torch_and_triton_alone():
    for path in (ROOT / "fast").rglob("*.py"):
        assert imported(path) <= {"core", "fast"}, path
        names = {name.split(".")[0] for name in imported_at_once(ast.parse(path.read_text(encoding="utf-8")))}
        assert names - sys.stdlib_module_names <= {"flashlearn", "torch", "triton"}, path


def test_fast_kernels_have_few_parameters_and_short_docstrings():
    for path in (ROOT / "fast").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                words = ast.get_docstring(node) or ""
                assert len(words.splitlines()) <= 20, f"{path.name}: {getattr(node, 'name', 'the module')}"
        for node in functions(path):
            if node.name.endswith("_kernel"):
                run_time = [arg for arg in node.args.args if "constexpr" not in ast.unparse(arg)]
                described = [arg for arg in run_time if not arg.arg.endswith("_desc")]
                assert len(described) <= 20, f"{node.name}: {len(described)} parameters"


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
try:
    import flashlearn.fast
except ImportError as error:
    print(error)
"""


def test_without_triton_the_fast_kernels_say_what_to_install():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRITON], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    assert "pip install triton" in done.stdout


def test_no_function_hides_a_module_of_its_name():
    for package in packages():
        for module in pkgutil.iter_modules(package.__path__):
            there = inspect.getattr_static(package, module.name, None)
            assert there is None or isinstance(there, ModuleType), f"{package.__name__}.{module.name} is {there!r}"


def imported_at_once(node: ast.AST) -> Iterator[str]:
    """What is imported when a module is read, under TYPE_CHECKING too; not what its functions import."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.module:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imported_at_once(child)


def test_no_modules_import_each_other_in_a_circle():
    names = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in FILES}
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {
        name: {
            found if found in modules else found.rpartition(".")[0]
            for found in imported_at_once(ast.parse(path.read_text("utf-8")))
        }
        & (modules.keys() - {name})
        for name, path in modules.items()
    }
    assert any("flashlearn.core.steps" in found for found in graph.values())
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the circle


def test_the_groups_of_warps_fit_on_a_screen_too():
    """What a kernel hands its warps is no signature that a launcher fills: tuples hold what belongs together."""
    for path in (ROOT / "fast" / "hopper").glob("*.py"):
        for node in functions(path):
            if is_kernel(node) and not node.name.endswith("_kernel"):
                parameters = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
                assert lines_of_code(node) <= MOST_LINES, f"{node.name}: {lines_of_code(node)} lines"
                assert parameters <= MOST_PARAMETERS, f"{node.name}: {parameters} parameters"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_functions_fit_on_a_screen(path):
    for node in functions(path):
        if is_kernel(node):
            long = node.end_lineno - node.lineno + 1  # with the signature, which a reader goes through too
            assert long <= MOST_OF_A_KERNEL, f"{node.name}: {long} lines"
            continue
        most = 12 if any(path.is_relative_to(place) for place in OF_KERNELS) else MOST_PARAMETERS
        parameters = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
        assert lines_of_code(node) <= MOST_LINES, f"{node.name}: {lines_of_code(node)} lines"
        assert parameters <= most or node.name in SIGNATURES, f"{node.name}: {parameters} parameters"


def test_algorithms_are_as_short_as_the_pseudocode():
    longest = {
        node.name: lines_of_code(node)
        for path in (ROOT / "algorithms").glob("*.py")
        for node in functions(path)
        if node.name.endswith("_steps")
    }
    assert max(longest.values()) <= MOST_OF_A_GENERATOR, longest
    assert longest["tiled_attention_v2_steps"] > 10  # they were found


@pytest.mark.parametrize("package", ("flashlearn", "flashlearn.exercises"))
def test_names_that_are_imported_later_are_known_to_editors_and_type_checkers(package):
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    known = {alias.name: node.module for node in block.body for alias in node.names}
    homes = (
        {name: f"{package}.{home}" for name, home in module.HOMES.items()} if package != "flashlearn" else module.LATER
    )
    assert known == homes and set(known) == set(module.__all__) <= set(dir(module))


# What a program asks for with numbers alone is made where PyTorch's default device says: there it is the caller's choice.
ON_THE_DEFAULT_DEVICE = {"flashlearn/models/gpt.py: encode", "flashlearn/algorithms/softmax.py: _floating"}
OWN_INPUTS = ("course", "exercises", "grading", "show")  # exercises and pictures make their own inputs
FACTORIES = set("arange as_tensor empty eye full linspace ones rand randint randn tensor zeros".split())


def without_a_device(source: str) -> set[str]:
    """The functions in which tensors are made that a default device would move."""
    found = set()
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            made = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "torch"
            placed = any(keyword.arg in ("device", None) for keyword in call.keywords)  # None: **options
            if made and call.func.attr in FACTORIES and not placed:
                found.add(function.name)
    return found


def test_tensors_are_made_on_the_device_of_the_inputs():
    rooms = [path for path in FILES if path.relative_to(ROOT).parts[0] not in OWN_INPUTS]
    found = {
        f"{path.relative_to(ROOT.parent)}: {name}"
        for path in rooms
        for name in without_a_device(path.read_text(encoding="utf-8"))
    }
    assert found <= ON_THE_DEFAULT_DEVICE, found - ON_THE_DEFAULT_DEVICE
    assert without_a_device("def f():\n    return torch.zeros(3), torch.zeros(3, device=d)") == {"f"}
