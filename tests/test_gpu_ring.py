"""The benchmark of rings of GPUs: its table and targets, and a rehearsal by two processes without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu_ring

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def found(ms: float, one: float = 100.0) -> dict:
    return {"forward": 0.3 * ms, "backward": 0.7 * ms, "bytes": 10**9, "error": 1e-3, "efficiency": one / (2 * ms)}


def recording(zigzag: float, peer: float) -> dict:
    one = {"forward": 30.0, "backward": 70.0, "bytes": 2 * 10**9}
    row = {"N": 131072, "P": 2, "one": one, "zigzag": found(zigzag), "context_parallel": found(peer), "reasons": {}}
    short = {"N": 65536, "P": 2, "one": one, "zigzag": found(90.0), "reasons": {"plain": "OutOfMemoryError: x"}}
    return {"rows": [row, short]}


@pytest.mark.parametrize(
    ("zigzag", "peer", "met"),
    [(52.0, 90.0, ["met", "met"]), (60.0, 100.0, ["MISSED", "met"]), (52.0, 70.0, ["met", "MISSED"])],
)
def test_targets(zigzag, peer, met):
    lines = gpu_ring.targets(recording(zigzag, peer))
    assert [line.rpartition(": ")[2] for line in lines] == met, lines
    assert all("131,072" in line for line in lines), "shorter rows have no target"


def test_table_shows_every_number_and_every_reason():
    text = gpu_ring.table(recording(52.0, 90.0))
    assert "zigzag" in text and "52.0" in text and "0.96" in text and "OutOfMemoryError: x" in text
    assert text.index("65,536") < text.index("131,072"), "by length"


def test_without_torchrun_it_says_what_to_run(capsys, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit):
        gpu_ring.main([])
    assert "torchrun --nproc-per-node 2" in capsys.readouterr().err


@pytest.mark.slow
def test_rehearsal(tmp_path):
    """All backends but PyTorch's, which wants GPUs, on two processes; results are compared before anything is timed."""
    out = tmp_path / "ring.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29655"]
    given = ["--out", str(out), "--lengths", "256", "--commit", "x"]
    done = subprocess.run(
        [*command, "gpu_ring.py", *given], cwd=BENCHMARKS, capture_output=True, text=True, timeout=300, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = json.loads(out.read_text(encoding="utf-8"))["rows"]
    for name in ("zigzag", "plain", "ulysses"):
        assert row[name]["error"] < gpu_ring.BOUND and row[name]["forward"] > 0
    assert "context_parallel" in row["reasons"] or "context_parallel" in row
