"""benchmarks/gpu_masks.py: everything but the clock."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu_masks
from gpu_masks import LENGTHS, OURS, SETTINGS, Setting
from side_by_side import measure

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed here: nothing is timed", allow_module_level=True)

from flashlearn.kernels import INTERPRETED

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="a GPU is here: kernels are not interpreted")
TINY = {mask: Setting(mask, "float16", 50, 20, (1, 21, 28), 16, 2) for mask in ("window", "documents")}


@pytest.fixture
def stub(monkeypatch):
    """Every call is made once, and takes a millisecond."""
    monkeypatch.setattr(measure, "median_ms", lambda call: (call(), 1.0)[1])
    monkeypatch.setattr(measure, "ROUNDS", 1)


def test_the_settings_are_those_that_are_said():
    assert sum(LENGTHS) == 16384 == 1024 * len(LENGTHS) and (min(LENGTHS), max(LENGTHS)) == (64, 3000)
    assert {(s.mask, s.dtype, s.N, s.window) for s in SETTINGS} == {
        (mask, dtype, 16384, 1024) for mask in ("window", "documents") for dtype in ("float16", "bfloat16")
    }


@pytest.mark.parametrize("mask", TINY)
def test_pairs_are_those_that_are_seen(mask):
    setting = TINY[mask]
    i = torch.arange(50)
    seen = (i[:, None] >= i) & (i[:, None] - i < 20)
    if mask == "documents":
        document = torch.arange(3).repeat_interleave(torch.tensor(setting.lengths))
        seen = (i[:, None] >= i) & (document[:, None] == document)
    assert setting.pairs == seen.sum()


@pytest.mark.parametrize("mask", TINY)
def test_a_row_is_checked_and_says_why_others_are_missing(mask, stub):
    row = gpu_masks.row_of(TINY[mask], [OURS, "fa4"], "cpu")
    assert row[OURS] == {
        "forward": pytest.approx(1e-9 * TINY[mask].flops(False), rel=1e-4),
        "backward": pytest.approx(1e-9 * TINY[mask].flops(True), rel=1e-4),
    }
    assert row["fa4"] is None and "flash_attn" in row["reasons"]["fa4"]
    assert gpu_masks.line(row).startswith(mask)
    other = TINY[mask]._replace(window=21, lengths=(2, 20, 28))
    want = gpu_masks.reference(other, *gpu_masks.inputs(other, "cpu"))
    with pytest.raises(gpu_masks.Rejected, match="o is wrong"):
        gpu_masks.calls_of(OURS, TINY[mask], gpu_masks.inputs(TINY[mask], "cpu"), want, "cpu")


def test_a_run_saves_goes_on_and_stops_in_time(stub, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_masks, "installed", lambda: [OURS])
    args = gpu_masks.arguments().parse_args(["--out", str(tmp_path / "out.json"), "--minutes", "1"])
    results = {"provenance": {"gpu": "none", "commit": "abc"}, "rows": []}
    clock = iter((0.0, 0.0, 1.0, 61.0)).__next__
    assert gpu_masks.run(args, results, tuple(TINY.values()), "cpu", clock) == 1
    saved = json.loads(args.out.read_text(encoding="utf-8"))
    assert [row["mask"] for row in saved["rows"]] == ["window"]
    assert gpu_masks.run(args, results, tuple(TINY.values()), "cpu", lambda: 0.0) == 0
    assert [row["mask"] for row in results["rows"]] == ["window", "documents"]


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu_masks.main([])
    assert "expected a CUDA GPU" in capsys.readouterr().err
