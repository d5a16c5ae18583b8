"""Choose, before anything imports Triton, to interpret kernels on the CPU or to compile them.

Triton reads TRITON_INTERPRET while it is imported, and PyTorch imports Triton in unexpected places, such as an
optimiser. So `import flashlearn` leaves a finder where imports look first: without a GPU it has Triton interpret
kernels in this process, unless TRITON_INTERPRET is set and not empty. Neither Triton nor PyTorch is imported for it:
PyTorch says whether there is a GPU when Triton is about to run. The environment stays as it is, so child processes make
their own choice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Interpreting(MetaPathFinder):
    """Finds Triton as those after it do, and has it interpret kernels if there is no GPU."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "triton" or os.environ.get("TRITON_INTERPRET"):
            return None
        others = (finder for finder in sys.meta_path if not isinstance(finder, Interpreting))
        spec = next(filter(None, (finder.find_spec(name, None) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: chosen(execute, module)  # type: ignore[method-assign]
        return spec


def chosen(execute: Callable[[ModuleType], None], triton: ModuleType) -> None:
    """Import Triton as this machine has it. Not in `find_spec`: PyTorch looks for Triton while it is imported itself."""
    import torch

    if torch.cuda.is_available():
        execute(triton)
    else:
        interpret(execute, triton)


def interpret(execute: Callable[[ModuleType], None], triton: ModuleType) -> None:
    """Import Triton as TRITON_INTERPRET=1 would have it; from then on its setting says so, and the variable is as it was."""
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"  # the setting that `triton.language` reads while it is imported
    try:
        execute(triton)
    finally:
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before
    knobs: Any = sys.modules["triton.knobs"]
    propagate, knobs.propagate_env = knobs.propagate_env, False  # else the setting would set the variable
    knobs.runtime.interpret = True
    knobs.propagate_env = propagate


if not any(isinstance(finder, Interpreting) for finder in sys.meta_path):
    sys.meta_path.insert(0, Interpreting())
