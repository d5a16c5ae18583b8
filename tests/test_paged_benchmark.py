"""The benchmark of attention over pages: everything but the clock."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from pathlib import Path

import pytest
import torch

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: there is nothing to time", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu_paged
from gpu_paged import OURS, Problem, Setting

from flashlearn.kernels import INTERPRETED

HERE = {"gpu": "NVIDIA H200", "commit": "abc"}
SMALL = (Setting(1, 40, "uniform"), Setting(3, 300, "skewed"))


@pytest.fixture
def small(monkeypatch):
    """Heads and widths that the interpreter gets through."""
    sizes = {"H_Q": 4, "H_KV": 2, "D": 16, "TOKEN": 128, "L2": 128 * 45, "ROOM": 128 * 50}
    for name, value in sizes.items():
        monkeypatch.setattr(gpu_paged, name, value)


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled: nothing is rehearsed on the CPU")
def test_a_rehearsal(small, tmp_path, capsys):
    out = tmp_path / "results.json"
    args = gpu_paged.arguments().parse_args(["--out", str(out)])
    args.settings = SMALL
    results = gpu_paged.start(args, HERE)
    assert gpu_paged.run(results, args, device="cpu") == 0
    assert results == json.loads(out.read_text(encoding="utf-8")) == gpu_paged.start(args, HERE)
    uniform, skewed = results["rows"]
    for name in (OURS, "flashlearn 64", "flashlearn 16"):
        assert uniform[name]["us"] == skewed[name]["us"] == 1.0
        assert uniform[name]["GB/s"] == pytest.approx(40 * 128 / 1e3)
    assert uniform["flashlearn dense"] and skewed["flashlearn dense"] is None
    assert skewed["reasons"]["sdpa dense"] == "Rejected: lengths differ"
    assert skewed["reasons"]["flashinfer"].startswith("ModuleNotFoundError")
    assert uniform["layers"] == 2 and skewed["layers"] == 1
    assert gpu_paged.main(["--table", str(out)]) == 0
    assert "3 x    300 skewed" in capsys.readouterr().out


def test_what_is_wrong_is_not_timed(small):
    problem = Problem(Setting(3, 300, "skewed"), "cpu", layers=1)
    q = problem.layers[0].q
    for name in (OURS, "varlen_attn"):
        with pytest.raises(gpu_paged.Rejected, match="is wrong, relative error"):
            gpu_paged.check(name, problem, torch.zeros_like(q))


def test_every_page_is_in_one_place_and_in_no_order(small):
    problem = Problem(Setting(3, 600, "skewed"), "cpu", layers=2)
    for page in (16, 64, 256):
        tables = [problem.table(layer, page) for layer in problem.layers]
        used = [-(-n // 256) * 256 // page for n in problem.lengths]
        numbers = [int(n) for table in tables for row, some in zip(table, used, strict=True) for n in row[:some]]
        assert sorted(numbers) == list(range(len(numbers))) and numbers != sorted(numbers)


def test_a_graph_has_enough_calls_and_its_layers_fit():
    """At least 8 calls; K and V of all layers need more than the L2 cache holds, and 20 GB at most, but for a single layer."""
    layers = {setting: setting.layers() for setting in gpu_paged.SETTINGS}
    for setting, count in layers.items():
        size = sum(setting.lengths()) * gpu_paged.TOKEN
        assert count == 32 or (count * size > gpu_paged.L2 and (count + 1) * size > 20e9), setting
        assert count * size <= max(20e9, size), setting
        calls = gpu_paged.enough(list(range(count)))
        assert 8 <= len(calls) < count + 8 and len({calls.count(layer) for layer in range(count)}) == 1, setting
    assert layers[Setting(1, 65536, "uniform")] == 32 and layers[Setting(128, 65536, "uniform")] == 1


def test_lengths():
    for setting in gpu_paged.SETTINGS:
        lengths = setting.lengths()
        assert len(lengths) == setting.B and max(lengths) == setting.longest and min(lengths) >= 128
        assert (sum(lengths) < setting.B * setting.longest / 2) == (setting.shape == "skewed")


def test_targets():
    row = {"B": 1, "longest": 65536, "shape": "uniform", "bytes": 2**28, "reasons": {}}
    row |= {OURS: {"us": 100.0, "GB/s": 4000.0}, "fa4": {"us": 91.0, "GB/s": 1.0}, "varlen_attn": None}
    results = {"provenance": HERE, "rows": [row], "plans": {}}
    assert [line[:6] for line in gpu_paged.targets(results)] == ["met   ", "met   "]
    row[OURS] = {"us": 103.0, "GB/s": 3800.0}
    assert [line[:6] for line in gpu_paged.targets(results)] == ["MISSED", "MISSED"]
    row[OURS], row["reasons"] = None, {OURS: "wrong"}
    assert gpu_paged.targets(results) == ["MISSED  B 1, 65536 keys, uniform: wrong"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to measure on")
def test_without_a_gpu(capsys):
    with pytest.raises(SystemExit):
        gpu_paged.main([])
    assert "expected a CUDA GPU to measure on, found none" in capsys.readouterr().err


def test_notebook_18_says_how_the_peers_are_called():
    notebook = (Path(__file__).parents[1] / "notebooks/18_serving.ipynb").read_text(encoding="utf-8")
    fa4, flashinfer = (inspect.getsource(bind) for bind in (gpu_paged.bind_fa4, gpu_paged.bind_flashinfer))
    assert "num_splits" not in fa4 and "FlashAttention-4 over pages of 128, called with its defaults" in notebook
    assert "use_tensor_cores=True" in flashinfer and "called with `use_tensor_cores=True`" in notebook
    assert "on Hopper it rejects split keys. FlashAttention-3, which splits them there, was not measured." in notebook
    assert set(gpu_paged.PEERS) == {"varlen_attn", "fa4", "flashinfer"}, "FlashAttention-3 is not among them"
