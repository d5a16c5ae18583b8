"""`launch` and `launch_hopper` without a GPU: what is compiled anew, what is found again, what is forgotten."""

from __future__ import annotations

import importlib
import importlib.util
import statistics

import pytest
import torch

from tests.balance import last_over_mean

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here", allow_module_level=True)

launching = importlib.import_module("flashlearn.fast.launcher")


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
    monkeypatch.setattr(launching, "MAX_KEPT", 3)
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
    hopper = pytest.importorskip("flashlearn.fast.hopper.tiles")
    t = torch.zeros(1, 3, 40, 64, dtype=torch.float16).transpose(1, 2)
    tiles = hopper.in_tiles(t, (1, 1, 64, 64))
    (descriptor, number) = hopper.with_descriptors((tiles, 7))
    for name in ("base", "padding", "layout"):
        assert getattr(tiles, name) is getattr(descriptor, name) or getattr(tiles, name) == getattr(descriptor, name)
    for name in ("shape", "strides", "block_shape"):
        assert list(getattr(tiles, name)) == list(getattr(descriptor, name))
    assert number == 7 and tiles.strides == (8, 64, 2560, 1), "any stride will do in a dimension of size 1"


def balance(tiles: int, rows: int, side: int, resident: int) -> float:
    """The time of the program that ends last over the mean, if each takes the next causal tile when it is through."""
    groups = [min(side, rows - first) for first in range(0, rows, side)]
    return last_over_mean(
        (length for width in groups for length in range(tiles, 0, -1) for _ in range(width)), resident
    )


@pytest.mark.parametrize("resident", (132, 114, 78))
def test_causal_tiles_are_shared_out_evenly(resident):
    """Of sixteen tiles for each program: the last ends at most 11 % after the mean, 6 % in the mean."""
    from flashlearn.fast.hopper.tile_scheduler import heads_of_a_wave, heads_with_masks

    assert [heads_of_a_wave(tiles, 132) for tiles in (1, 8, 16, 32, 64, 128, 1024)] == [16, 16, 8, 4, 2, 2, 2]
    assert [heads_with_masks(rows, 2**20) for rows in (1, 7, 9, 1000)] == [1, 7, 8, 8]
    assert [heads_with_masks(1000, nbytes) for nbytes in (0, 2**21, 2**22, 2**25)] == [8, 8, 4, 2]
    last = []
    for tiles in (3, 4, 5, 8, 16, 31, 32, 43, 64, 85, 128):
        last.append(balance(tiles, 16 * resident // tiles, heads_of_a_wave(tiles, resident), resident))
    assert max(last) < 1.11 and statistics.mean(last) < 1.065, last


def test_rows_of_shared_keys_come_in_sets_that_are_about_as_large():
    """Each of a wave of programs or more; one row after the other where rows are too short, or one fills the GPU."""
    from flashlearn.fast.hopper.tile_scheduler import heads_of_shared_keys

    assert [heads_of_shared_keys(64, blocks, 132) for blocks in (4, 7, 8, 16, 32, 64, 66, 67, 128)] == [
        None, None, 16, 8, 4, 2, 2, None, None,
    ]  # fmt: skip
    assert [heads_of_shared_keys(rows, 32, 132) for rows in (1, 2, 5, 7, 8, 9, 11, 12)] == [None, 2, 5, 7, 4, 5, 6, 4]
    for blocks in range(8, 67):
        for rows in range(2, 100):
            side = heads_of_shared_keys(rows, blocks, 132)
            sets = -(-rows // side)
            assert rows == side or side >= 132 // blocks, "no set but the last is less than a wave"
            assert sets * side - rows < sets, "the last lacks less than one row for each set"


def test_triton_is_prepared_where_kernels_are_compiled_and_its_errors_wait_for_a_launch(monkeypatch):
    assert (launching.prepared.ident is None) == launching.INTERPRETED, "started, unless kernels are interpreted"
    monkeypatch.setattr(launching.triton.runtime, "driver", None)
    assert launching.prepare() is None


def test_memory_that_kernels_write_is_not_filled_first(request):
    """Where algorithms are deterministic PyTorch fills what it allocates with NaN, which kernels would only write over."""
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    q = torch.randn(2, 300, 4, 64).transpose(1, 2)
    wanted = ((), ((2, 4, 300), torch.float32), ((0, 3), torch.int32))
    plain = [launching.uninitialised(q, *what) for what in wanted]
    torch.use_deterministic_algorithms(True)
    assert torch.empty_like(q).isnan().all() and not launching.uninitialised(q).isnan().all()
    for what, like in zip(wanted, plain, strict=True):
        got = launching.uninitialised(q, *what)
        assert (got.shape, got.stride(), got.dtype, got.device) == (like.shape, like.stride(), like.dtype, like.device)
    there = launching.uninitialised(q.device, (10**6,), torch.float32)
    assert there.shape == (10**6,) and there.device == q.device and not there.isnan().all()
    assert plain[0].stride() == q.stride() and torch.utils.deterministic.fill_uninitialized_memory
