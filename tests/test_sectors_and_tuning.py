"""What a warp reads, how many programs fit, and what tuning shows: computed, not typed."""

import pytest

from flashlearn.compiler.compiled import Compiled
from flashlearn.core.steps import record
from flashlearn.cost.occupancy import occupancy
from flashlearn.cost.sectors import sector_steps, sectors
from flashlearn.gpu import tuning
from flashlearn.measurements.records import load


@pytest.mark.parametrize(
    "stride, itemsize, count",
    [(1, 4, 4), (2, 4, 8), (8, 4, 32), (9, 4, 32), (1000, 4, 32), (0, 4, 1), (1, 2, 2), (3, 4, 12)],
)
def test_sectors_are_those_of_all_addresses(stride, itemsize, count):
    addresses = [thread * stride * itemsize for thread in range(32)]
    assert {address // 32 for address in addresses} == set(sectors(stride, itemsize))
    assert len(sectors(stride, itemsize)) == count
    wanted = {
        32 * sector + itemsize * element for sector, found in sectors(stride, itemsize).items() for element in found
    }
    assert wanted == set(addresses)


def test_steps_count_what_moves():
    steps = record(sector_steps((1, 2, 1000)))
    assert steps[-1].output == (128, 256, 1024)
    assert [step.values["wanted"] for step in steps[:-1]] == [128] * 3
    with pytest.raises(ValueError, match="expected a stride of 0 or more"):
        sectors(-1)


@pytest.mark.parametrize("number", (1.5, float("nan"), True, "1", None))
@pytest.mark.parametrize("name", ("stride", "itemsize"))
def test_strides_and_sizes_are_whole_numbers(name, number):
    with pytest.raises(TypeError, match=f"expected {name} to be an int, got {number!r}"):
        sectors(**{"stride": 1, name: number})


@pytest.mark.parametrize(
    "threads, registers, shared, gpu, programs, limit",
    [
        (128, 32, 0, "H100", 16, "threads and registers"),
        (128, 16, 0, "H100", 16, "threads"),
        (128, 128, 0, "H100", 4, "registers"),
        (128, 32, 100 * 1024, "H100", 2, "shared memory"),
        (128, 32, 100 * 1024, "A100", 1, "shared memory"),
        (32, 16, 0, "H100", 32, "programs"),
        (
            128,
            114,
            56 * 1024,
            "H100",
            4,
            "registers and shared memory",
        ),  # 120 registers a thread, as warps get 256 at a time
        (256, 42, 0, "H100", 5, "registers"),  # 48
    ],
)
def test_what_ends_first_limits_the_programs(threads, registers, shared, gpu, programs, limit):
    found = occupancy(Compiled(threads, shared, registers, 0, {}), gpu)
    assert (found.programs, found.limit, found.warps) == (programs, limit, programs * threads // 32)


def test_no_other_gpu_is_known():
    with pytest.raises(ValueError, match="expected a GPU of"):
        occupancy(Compiled(128, 0, 32, 0, {}), "T4")


def test_without_a_gpu_tuning_shows_what_was_recorded(monkeypatch):
    monkeypatch.setattr(tuning.torch.cuda, "is_available", lambda: False)
    rates, where = tuning.tuned(64)
    row = load("gpu_ladder")["sweep"][0]
    assert rates == {tuple(one["launch"]): one["forward"] for one in row["candidates"]}
    assert where.startswith("recorded ") and "NVIDIA H200" in where and "Triton" in where
    with pytest.raises(ValueError, match=r"expected D and N of \[\(64, 4096\), \(128, 4096\)\], got \(96, 4096\)"):
        tuning.tuned(96)
