"""The package for students in an examination: a copy without answers.

The copy has no solutions, known mistakes, causes or cases. A function of the package raises PermissionError there, unless
a check needs it: neither its source nor its code is in the process that runs the answers.
"""

from __future__ import annotations

import ast
import compileall
import functools
import shutil
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
# Files that run and watch answers
WHOLE = (
    "__init__.py", "core/inputs.py", "core/interpreter.py", "core/interpreter_patches.py", "core/signs.py", "core/steps.py",
    "cost/hardware.py", "simulator/barriers.py", "simulator/gluon_names.py", "simulator/simulated.py",
    "simulator/scheduler.py", "compiler/process.py", "compiler/rejected.py", "compiler/compile_only.py", "compiler/compiled_source.py",
    "fast/hopper/versions.py", "kernels/__init__.py", "kernels/lesson.py", "kernels/recorder.py", "core/target.py",
)  # fmt: skip
OF_EXERCISES = ("altered", "launching", "raised", "simulating", "watching")
OF_GRADING = ("__init__", "stand_ins", "landlock", "messages", "worker")
COPIED = {
    *(f"exercises/{name}.py" for name in OF_EXERCISES),
    *(f"grading/{name}.py" for name in OF_GRADING),
    *("course/__init__.py", "course/triton_forward/__init__.py"),
}
KEPT = {"cost/formulas.py": ("bytes", "intensity"), "cost/roofline.py": ("placement",)}  # functions left as they are
OTHERS = {  # functions that have another body
    "flashlearn.core.mask.causal_mask": "return torch.ones(N_q, N_k, dtype=torch.bool, device=device).tril(N_k - N_q)",
    "flashlearn.core.mask.crosses": "return False",  # these are only for pictures of recorded kernels
    "flashlearn.core.mask.attends": "return True",
}
# Functions that an answer may use: the process that grades computes them, for that exercise alone
PROVIDED = {"08.block": ("flashlearn.cost.formulas.v2_cost",)}
OF_METHODS = ("property", "staticmethod", "classmethod", ".setter")  # decorators that a function keeps


def stripped(folder: Path) -> Path:
    """Put a copy of the package into the folder; returns its path."""
    return shutil.copytree(_made().name + f"/{PACKAGE.name}", folder / PACKAGE.name)


@functools.cache
def _made() -> tempfile.TemporaryDirectory:
    """The copy, made once in a process and removed at its end."""
    folder = tempfile.TemporaryDirectory(prefix="flashlearn-")
    package = Path(folder.name) / PACKAGE.name
    for file in PACKAGE.rglob("*"):
        path = file.relative_to(PACKAGE).as_posix()
        left_out = path.startswith(("course/", "exercises/", "grading/")) and path not in COPIED
        if not file.is_file() or "__pycache__" in path or left_out:
            continue
        target = package / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".py" or path in WHOLE or path in COPIED:
            shutil.copyfile(file, target)
        else:
            target.write_text(without_bodies(file.read_text(encoding="utf-8"), path), encoding="utf-8")
    compileall.compile_dir(package, quiet=2)
    return folder


def without_bodies(source: str, path: str) -> str:
    """The source of a module, `path` in the package, whose functions are closed."""
    module = f"{PACKAGE.name}.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in KEPT.get(path, ()):
            _close(node, f"{module}.{node.name}")
    return ast.unparse(tree)


def _close(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> None:
    """Replace the body of a function."""
    body = f"from flashlearn.grading.stand_ins import closed\nreturn closed({name!r})"
    if function.name == "__post_init__":  # records can be made
        body = "pass"
    elif name in OTHERS:
        body = OTHERS[name]
    elif any(name in names for names in PROVIDED.values()):
        function.args = ast.arguments([], [], ast.arg("args"), [], [], ast.arg("options"), [])
        body = f"from flashlearn.grading.stand_ins import provided\nreturn provided({name!r}, args, options)"
    function.body = ast.parse(body).body
    function.decorator_list = [one for one in function.decorator_list if ast.unparse(one).endswith(OF_METHODS)]
