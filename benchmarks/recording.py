"""Shared by all benchmarks: provenance, reading and writing of records, and arguments."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

RECORDS = Path(__file__).parents[1] / "flashlearn/measurements"


def parser_of(doc: str | None, *, minutes: float | None = None, new: bool = False) -> argparse.ArgumentParser:
    """The arguments that benchmarks share. new: a run can go on with a file."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="print the tables and targets of a recorded run")
    parser.add_argument("--out", type=Path, help="the file for this GPU in flashlearn/measurements unless given")
    parser.add_argument("--commit", help="what to record where there is no git checkout")
    if new:
        parser.add_argument("--new", action="store_true", help="write over what is in the file, not go on with it")
    if minutes is not None:
        parser.add_argument("--minutes", type=float, default=minutes, help="begin no row after so many")
    return parser


def ask(*command: str) -> str:
    """The first line that a command prints; nothing where there is no such command."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8").stdout.partition("\n")[0].strip()


def provenance(commit: str | None) -> dict:
    """GPU, driver, versions of ours and of all that it is compared with, commit, date."""
    import torch
    import triton
    from side_by_side.backends import versions

    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "driver": ask("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "peers": versions(),
        "commit": commit or ask("git", "rev-parse", "--short", "HEAD") or "unknown",
        "date": datetime.date.today().isoformat(),
    }


def commits(row: dict, results: dict, names: Iterable[str]) -> dict[str, str]:
    """{backend: commit} of what was measured in a row, so that one record can have rows of several runs."""
    return {name: results["provenance"]["commit"] for name in names if row.get(name)}


def file_of(part: str, gpu: str | None = None) -> Path:
    """A file for each GPU, this one unless given: that of "NVIDIA H100 80GB HBM3" is gpu_attention_h100.json."""
    import torch

    gpu = gpu or torch.cuda.get_device_name()
    return RECORDS / f"gpu_{part}_{gpu.removeprefix('NVIDIA ').split()[0].lower()}.json"


def save(results: dict, out: Path) -> None:
    """Write all, or nothing: a run may be cut off at any time."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    os.replace(part, out)


def recorded(path: Path, parser: argparse.ArgumentParser, *sections: str, row: str = "") -> dict:
    """The run that a file records, with these sections, and in the first of them rows that have a `row`; ends with one line if not."""
    if not path.is_file():
        parser.error(f"expected a recorded run, found no file {path}")
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of JSON, and of what is not text
        parser.error(f"expected a recorded run in {path}, got no JSON: {error}")
    missing = [key for key in ("provenance", *sections) if not isinstance(results, dict) or key not in results]
    if missing:
        parser.error(f"expected a recorded run with {', '.join(missing)} in {path}, got none")
    if row and not all(row in each for each in results[sections[0]]):
        parser.error(f"expected {sections[0]} with {row!r} in {path}, got a record of something else")
    return results


def check_gpu(parser: argparse.ArgumentParser, instead: str = "") -> None:
    """End with one line where there is nothing to measure on."""
    import torch

    if not torch.cuda.is_available():
        parser.error(f"expected a CUDA GPU to measure on, found none{instead}")
