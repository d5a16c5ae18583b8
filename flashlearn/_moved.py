"""Module paths of release 0.1, importable for one release more: each leads to where the module is now."""

from __future__ import annotations

import importlib
import importlib.abc
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "animate": "show.animation",
    "attention": "rungs.attention",
    "compiled": "gpu.compiled",
    "draw": "show.draw",
    "environment": "core.environment",
    "explorer": "show.explorers.tiling",
    "gpt": "models.gpt",
    "gpu_explorer": "show.explorers.gpu",
    "gradients": "rungs.gradients",
    "inputs": "core.inputs",
    "interpreter": "core.interpreter",
    "kernels.attention_backward_hopper": "kernels.hopper.backward",
    "kernels.attention_forward_hopper": "kernels.hopper.forward",
    "kernels.launch": "kernels.launcher",
    "kernels.rungs": "kernels.dispatch",
    "matmul": "rungs.matmul",
    "ops": "kernels.op",
    "overlap": "gpu.overlap",
    "recorded": "measurements.records",
    "softmax": "rungs.softmax",
    "steps": "core.steps",
    "tiled": "rungs.tiled",
    "tiled_backward": "rungs.tiled_backward",
    "transformers": "models.transformers",
    "widgets": "show.widgets",
}
# In `flashlearn.kernels` functions have the names of their old modules, which an import would put in their place: these
# are entered where imports look first.
KERNELS = {
    "attention_backward": "teaching.backward",
    "attention_decode": "decode",
    "attention_forward": "teaching.forward",
    "backend": "target",
    "matmul": "teaching.matmul",
    "softmax": "teaching.softmax",
    "vector_add": "teaching.vector_add",
}
IN_DRAW = {
    "frame": "show.frame",
    "grid": "show.draw.sheet",
    "launch": "show.draw.programs",
    "recorded": "show.draw.from_kernel",
}


class Later(ModuleType):
    """An old module in whose place an import would put itself before the function of its name: imported when used."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # asked for by whoever looks through all modules
            raise AttributeError(name)
        return getattr(importlib.import_module("flashlearn.show.projection"), name)


def moved(name: str) -> str | None:
    """Where the module of that old path is now; None if it did not move.

    >>> moved("flashlearn.tiled"), moved("flashlearn.draw.style"), moved("flashlearn.cost")
    ('flashlearn.rungs.tiled', 'flashlearn.show.draw.style', None)
    """
    old = name.removeprefix("flashlearn.")
    part = old.removeprefix("draw.")
    if old != part:
        return f"flashlearn.{IN_DRAW.get(part, f'show.draw.{part}')}"
    return f"flashlearn.{MOVED[old]}" if old in MOVED else None


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers `import` of an old path with the module itself, not a copy, and a DeprecationWarning."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        new = moved(name) if name.startswith("flashlearn.") else None
        return ModuleSpec(name, self, origin=new) if new else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        assert spec.origin  # set above
        warnings.warn(f"{spec.name} is {spec.origin} now; the old path ends with 0.3", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run already; its own spec, which `import` has just replaced, is put back."""
        if module.__spec__:
            module.__spec__ = module.__spec__.loader_state
