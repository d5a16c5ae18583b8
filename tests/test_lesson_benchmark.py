"""benchmarks/gpu_lesson.py: everything but the clock and the GPU."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu_lesson
from side_by_side import measure
from side_by_side.backends import Rejected

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: nothing is timed", allow_module_level=True)

from flashlearn.kernels import INTERPRETED

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="a GPU is here: kernels are not interpreted")


class Simulated:
    """A kernel of the lesson, launched in the simulator."""

    def __init__(self, kernel, spoil=0.0, **replaced):
        self.kernel, self.spoil, self.replaced = kernel, spoil, replaced

    def __getitem__(self, grid):
        def launch(*args, num_warps, **constants):
            from flashlearn.simulator.simulated import simulate

            simulate(self.kernel, *args, grid=grid, replaced=self.replaced, **constants)
            args[1 if len(args) == 2 else 3].tensor[-1, -1] += self.spoil

        return launch


@pytest.fixture
def simulated(monkeypatch):
    """The kernels in the simulator; every call is made once, and takes 64 microseconds."""
    from flashlearn.kernels import lesson
    from flashlearn.simulator.simulated import tiles

    monkeypatch.setattr(gpu_lesson, "descriptor", lambda t: tiles("tile", t, (64, 64)))
    monkeypatch.setattr(gpu_lesson, "STAGES", {"double": (1,), "alone": (1, 3), "shared": (2,), "attend": (2,)})
    monkeypatch.setattr(measure, "median_ms", lambda call: (call(), 0.064)[1])
    monkeypatch.setattr(measure, "ROUNDS", 1)
    kernels = {"double": lesson.double_kernel, "alone": lesson.alone_kernel, "shared": lesson.shared_kernel}
    return {name: Simulated(kernel) for name, kernel in kernels.items()} | {
        "attend": Simulated(lesson.shared_kernel, consume=lesson.attend)
    }


def test_rows_are_checked_and_complete(simulated):
    rows = gpu_lesson.measured(simulated, programs=2, keys=256, device="cpu")
    assert [(row["kernel"], row["stages"], row["tiles"]) for row in rows] == [
        ("double", 1, 1), ("alone", 1, 4), ("alone", 3, 4), ("shared", 2, 4), ("attend", 2, 4),
    ]  # fmt: skip
    assert {row["us"] for row in rows} == {64.0} and [row["ns_per_tile"] for row in rows] == [64e3, *[16e3] * 4]
    words = gpu_lesson.table({"provenance": {"gpu": "none"}, "rows": rows})
    assert "gpu none" in words and "alone    3 stages      64.0 us  16000.0 ns a tile" in words


@pytest.mark.parametrize("name", ["double", "alone", "shared", "attend"])
def test_what_is_wrong_is_not_timed(simulated, name):
    simulated[name].spoil = 8.0
    with pytest.raises(Rejected, match=f"{name} is wrong"):
        gpu_lesson.measured(simulated, programs=2, keys=256, device="cpu")


def test_the_source_that_is_timed_is_the_lessons(tmp_path):
    """`attend` stands in the place of `consume`, and everything else is there."""
    text = gpu_lesson.lesson_of(str(tmp_path))["attend"].fn
    source = Path(text.__code__.co_filename).read_text(encoding="utf-8")
    assert "consume = attend" in source and source.index("def attend") < source.index("def shared_kernel")
    assert "warpgroup_mma_wait" in source and "\ndef consume" not in source


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu_lesson.main([])
    assert "GPU" in capsys.readouterr().err


def test_a_recorded_run_is_printed(tmp_path, capsys):
    row = gpu_lesson.row("shared", 3, 0.1, 132, 65536)
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"provenance": {"gpu": "none"}, "rows": [row]}), encoding="utf-8")
    gpu_lesson.main(["--table", str(path)])
    assert "shared   3 stages     100.0 us     97.7 ns a tile" in capsys.readouterr().out
