"""`launch` and `launch_hopper` without a GPU: what is compiled anew, what is found again, what is forgotten."""

from __future__ import annotations

import importlib
import importlib.util

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

launching = importlib.import_module("flashlearn.kernels.launcher")


class Kernel:
    """Stands for a Triton kernel: kernel[grid](...) compiles, and what it returns launches without compiling."""

    def __init__(self):
        self.fn, self.compiled, self.launched = object(), [], []

    def __getitem__(self, grid):
        def compile_and_launch(*arguments, **constants):
            self.compiled.append((grid, arguments, constants))
            return {grid: lambda *given: self.launched.append(given)}

        return compile_and_launch


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(launching, "INTERPRETED", False)
    monkeypatch.setattr(launching, "_compiled", {})
    return Kernel()


def test_a_kernel_is_compiled_once_for_a_key_and_constants(kernel):
    for x in (1, 2, 3):
        launching.launch(kernel, (4, 1, 1), (x,), {"D": 64}, key=("float16",), num_warps=8)
    assert kernel.compiled == [((4, 1, 1), (1,), {"D": 64, "enable_fp_fusion": True, "num_warps": 8})]
    assert kernel.launched == [(2, 64), (3, 64)], "arguments and then constants, in order"


@pytest.mark.parametrize("change", ({"key": ("bfloat16",)}, {"constants": {"D": 128}}))
def test_what_differs_is_compiled_anew(kernel, change):
    given = {"constants": {"D": 64}, "key": ("float16",)}
    launching.launch(kernel, (1, 1, 1), (1,), **given)
    launching.launch(kernel, (1, 1, 1), (1,), **given | change)
    assert len(kernel.compiled) == 2 and not kernel.launched


def test_two_kernels_are_not_taken_for_each_other(kernel):
    other = Kernel()
    for each in (kernel, other):
        launching.launch(each, (1, 1, 1), (1,), {"D": 64}, key=())
    assert len(kernel.compiled) == len(other.compiled) == 1


def test_only_the_first_launch_prepares_its_arguments(kernel):
    for x in (1, 2):
        launching.launch(kernel, (1, 1, 1), (x,), {}, key=(), first=lambda given: tuple(-x for x in given))
    assert kernel.compiled[0][1] == (-1,) and kernel.launched == [(2,)]


def test_what_is_kept_has_an_end(kernel, monkeypatch):
    monkeypatch.setattr(launching, "MOST", 3)
    for size in range(10):
        launching.launch(kernel, (1, 1, 1), (), {}, key=(size,))
        assert len(launching._compiled) <= 3
    assert len(kernel.compiled) == 10


def test_the_interpreter_is_called_every_time(kernel, monkeypatch):
    monkeypatch.setattr(launching, "INTERPRETED", True)
    for _ in range(2):
        launching.launch(kernel, (1, 1, 1), (1,), {"D": 64}, key=())
    assert len(kernel.compiled) == 2 and not launching._compiled


def test_tiles_say_what_a_descriptor_says():
    """The launcher reads base, shape, strides and padding: of `Tiles` as of Triton's own descriptor."""
    hopper = pytest.importorskip("flashlearn.kernels.hopper.tiles")
    t = torch.zeros(1, 3, 40, 64, dtype=torch.float16).transpose(1, 2)
    tiles = hopper.in_tiles(t, (1, 1, 64, 64))
    (descriptor, number) = hopper.with_descriptors((tiles, 7))
    for name in ("base", "padding", "layout"):
        assert getattr(tiles, name) is getattr(descriptor, name) or getattr(tiles, name) == getattr(descriptor, name)
    for name in ("shape", "strides", "block_shape"):
        assert list(getattr(tiles, name)) == list(getattr(descriptor, name))
    assert number == 7 and tiles.strides == (8, 64, 2560, 1), "any stride will do in a dimension of size 1"


@pytest.mark.parametrize("resident", (132, 114, 78, 7))
def test_no_program_gets_the_short_units_alone(resident):
    """Pairs of tiles are a unit of work 2, of an odd number of tiles one of each row is of work 1."""
    from flashlearn.kernels.hopper.forward import programs

    for tiles in range(1, 40):
        pairs = (tiles + 1) // 2
        units = [1 if tiles % 2 and unit % pairs == pairs - 1 else 2 for unit in range(60 * resident // pairs * pairs)]
        taken = programs(len(units), tiles, resident, True)
        assert resident - 8 <= taken <= resident
        work = [sum(units[first::taken]) for first in range(taken)]
        assert max(work) <= sum(work) / taken + 3, f"{tiles} tiles, {taken} of {resident} programs"
    assert programs(5, 3, resident, True) == 5 and programs(1000, 3, resident, False) == resident


def test_triton_is_prepared_where_kernels_are_compiled_and_its_errors_wait_for_a_launch(monkeypatch):
    assert (launching.prepared.ident is None) == launching.INTERPRETED, "started, unless kernels are interpreted"
    monkeypatch.setattr(launching.triton.runtime, "driver", None)
    assert launching.prepare() is None
