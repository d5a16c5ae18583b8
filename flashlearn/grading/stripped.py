"""The package as students have it in an examination: a copy without answers.

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
# What runs answers and watches them
WHOLE = (
    *("__init__.py", "core/inputs.py", "core/interpreter.py", "core/signs.py", "core/steps.py"),
    *(
        "cost/hardware.py",
        "simulator/barriers.py",
        "simulator/gluon_names.py",
        "compiler/refused.py",
        "simulator/simulated.py",
        "simulator/turns.py",
    ),
    *("kernels/__init__.py", "kernels/recorder.py", "fast/target.py"),
)
OF_EXERCISES = ("altered", "elsewhere", "launching", "raised", "recording", "simulating", "watching", "whole_kernels")
OF_GRADING = ("__init__", "stand_ins", "landlock", "messages", "worker")
COPIED = {
    *(f"exercises/{name}.py" for name in OF_EXERCISES),
    *(f"grading/{name}.py" for name in OF_GRADING),
    *("course/__init__.py", "course/triton_forward/__init__.py"),
}
KEPT = {"cost/formulas.py": ("bytes", "intensity"), "cost/roofline.py": ("placement",)}  # functions left as they are
OTHERS = {  # functions that have another body
    "flashlearn.core.mask.causal_mask": "return torch.ones(N_q, N_k, dtype=torch.bool, device=device).tril(N_k - N_q)",
    "flashlearn.core.mask.crosses": "return False",  # these are asked for pictures of recorded kernels alone
    "flashlearn.core.mask.sees": "return True",
}
# Functions that an answer may use, by exercise: the process that grades computes them, for that exercise alone
ASKED = {"08.block": ("flashlearn.cost.formulas.v2_cost",)}
OF_METHODS = ("property", "staticmethod", "classmethod", ".setter")  # decorators that a function keeps


def stripped(folder: Path) -> Path:
    """Put a copy of the package into the folder; where it is now."""
    return shutil.copytree(_made().name + f"/{PACKAGE.name}", folder / PACKAGE.name)


@functools.cache
def _made() -> tempfile.TemporaryDirectory:
    """The copy, made once in a process and removed at its end."""
    folder = tempfile.TemporaryDirectory(prefix="flashlearn-")
    package = Path(folder.name) / PACKAGE.name
    for file in PACKAGE.rglob("*"):
        place = file.relative_to(PACKAGE).as_posix()
        if not file.is_file() or "__pycache__" in place or _left_out(place):
            continue
        target = package / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".py" or place in WHOLE or place in COPIED:
            shutil.copyfile(file, target)
        else:
            target.write_text(without_bodies(file.read_text(encoding="utf-8"), place), encoding="utf-8")
    compileall.compile_dir(package, quiet=2)
    return folder


def _left_out(place: str) -> bool:
    return place.startswith(("course/", "exercises/", "grading/")) and place not in COPIED


def without_bodies(source: str, place: str) -> str:
    """The source of a module, `place` in the package, whose functions are closed."""
    module = f"{PACKAGE.name}.{place.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in KEPT.get(place, ()):
            _close(node, f"{module}.{node.name}")
    return ast.unparse(tree)


def _close(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> None:
    """Put another body in the place of its own."""
    body = f"from flashlearn.grading.stand_ins import closed\nreturn closed({name!r})"
    if function.name == "__post_init__":  # records can be made
        body = "pass"
    elif name in OTHERS:
        body = OTHERS[name]
    elif any(name in names for names in ASKED.values()):
        function.args = ast.arguments([], [], ast.arg("args"), [], [], ast.arg("options"), [])
        body = f"from flashlearn.grading.stand_ins import asked\nreturn asked({name!r}, args, options)"
    function.body = ast.parse(body).body
    function.decorator_list = [one for one in function.decorator_list if ast.unparse(one).endswith(OF_METHODS)]
