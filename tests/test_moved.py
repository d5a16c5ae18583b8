"""The module paths of release 0.1 lead to the modules themselves, with a DeprecationWarning, until 0.3."""

import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import flashlearn
from flashlearn import _moved
from tests.slow import slow

TOP = """animate attention compiled cost draw environment exercises explorer gpt gpu gpu_explorer gradients inputs interpreter
kernels matmul ops overlap recorded softmax steps tiled tiled_backward transformers widgets""".split()
DRAW = """backward budget converge frame grid jacobian launch matmul memory overlap pipeline query rates recorded roofline
row strides style tiling traffic tree""".split()
KERNELS = """attention_backward attention_backward_hopper attention_decode attention_forward attention_forward_hopper
backend hopper ladder launch matmul recorder rungs softmax vector_add""".split()
OLD = [*TOP, *(f"draw.{name}" for name in DRAW), *(f"kernels.{name}" for name in KERNELS)]
NEED_TRITON = ("kernels", "ops", "transformers")
AGED = [name for name in OLD if _moved.moved(f"flashlearn.{name}")]


def need_triton(name: str) -> None:
    if name.startswith(NEED_TRITON):
        pytest.importorskip("triton")


@pytest.fixture
def forgotten():
    """The old paths as if none had been imported; afterwards all is as it was."""
    olds = [f"flashlearn.{name}" for name in AGED]
    before = {old: sys.modules.pop(old) for old in olds if old in sys.modules}
    yield
    for old in olds:
        sys.modules.pop(old, None)
    sys.modules.update(before)


@pytest.mark.parametrize("name", [slow(name) if name == "transformers" else name for name in OLD])
def test_a_path_of_the_old_release_imports(name):
    need_triton(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module(f"flashlearn.{name}")


@pytest.mark.parametrize("name", [slow(name) if name == "transformers" else name for name in AGED])
def test_it_warns_and_leads_to_the_module_itself(name, forgotten):
    need_triton(name)
    old, new = f"flashlearn.{name}", _moved.moved(f"flashlearn.{name}")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        module = importlib.import_module(old)
    assert module is sys.modules[new] is sys.modules[old]
    assert module.__name__ == module.__spec__.name == new
    mine = [each for each in told if f"{old} is {new} now" in str(each.message)]
    assert len(mine) == 1 and mine[0].category is DeprecationWarning


def test_the_warning_points_at_the_line_that_imports(forgotten):
    with pytest.warns(DeprecationWarning) as told:
        import flashlearn.tiled  # noqa: F401
    assert told[0].filename == __file__


@pytest.mark.parametrize("name", sorted(_moved.KERNELS))
def test_kernels_that_share_a_name_with_their_old_module_stay_functions(name):
    pytest.importorskip("triton")
    kernels = importlib.import_module("flashlearn.kernels")
    module = importlib.import_module(f"flashlearn.kernels.{name}")
    assert module is importlib.import_module(f"flashlearn.kernels.{_moved.KERNELS[name]}")
    assert getattr(kernels, name) is getattr(module, name)


def test_the_projector_stays_a_function():
    old = importlib.import_module("flashlearn.projector")
    assert flashlearn.projector is old.projector is importlib.import_module("flashlearn.show.projection").projector


@pytest.mark.slow  # a process of its own
def test_a_submodule_of_an_old_package_is_not_a_second_copy():
    code = (
        "import flashlearn.draw.style as old, flashlearn.show.draw.style as new, flashlearn.draw\n"
        "from flashlearn.draw import draw_row as a\n"
        "from flashlearn.show.draw import draw_row as b\n"
        "assert old is new is flashlearn.draw.style and a is b"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr


def test_a_path_that_never_was_is_still_an_error():
    with pytest.raises(ModuleNotFoundError, match="flashlearn.tilde"):
        importlib.import_module("flashlearn.tilde")


def test_every_new_path_exists_and_no_old_one_does():
    root = Path(flashlearn.__file__).parents[1]
    for path in AGED:
        new = root / _moved.moved(f"flashlearn.{path}").replace(".", "/")
        assert new.with_suffix(".py").exists() or (new / "__init__.py").exists(), new
        assert not (root / "flashlearn" / path.replace(".", "/")).with_suffix(".py").exists(), path


def test_the_package_has_few_rooms():
    top = [path for path in Path(flashlearn.__file__).parent.iterdir() if path.name != "__pycache__"]
    assert len(top) <= 14, sorted(path.name for path in top)
