"""The pictures of every notebook, by cell: notebooks are run again, two at a time, and what they show is kept.

What is kept is named after the cells' sources and the package's code, so a changed sentence runs nothing again, and a
changed line of code runs everything.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from tqdm import tqdm

from tools.book import rerun

ROOT = Path(__file__).parents[2]
AT_ONCE = min(os.cpu_count() or 1, 4)
Shown = list[dict[str, Any]]  # what a cell displays, see `rerun`


def of(notebooks: list[Path], kept: Path) -> dict[str, dict[str, Shown]]:
    """{notebook: {cell: what it shows}}. SystemExit, with its words, for a notebook that fails."""
    kept.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        files = list(
            tqdm(
                pool.map(lambda path: _run(path, kept), notebooks),
                "runs of notebooks",
                len(notebooks),
                unit="notebook",
                disable=None,
            )
        )
    found: dict[str, dict[str, Shown]] = {}
    for path, file in zip(notebooks, files, strict=True):
        cells = found.setdefault(path.stem, {})
        for shown in json.loads(file.read_text(encoding="utf-8")):
            cells.setdefault(shown["cell"], []).append(shown)
    return found


def _run(path: Path, kept: Path) -> Path:
    """The file with the pictures of a notebook, which is run if there is none."""
    file = kept / f"{path.stem}-{key(path)}.json"
    if not file.exists():
        with tempfile.TemporaryDirectory() as home:
            env = {**os.environ, "FLASHLEARN_HOME": home, "OMP_NUM_THREADS": "1"}
            part = file.with_suffix(".part")
            command = [sys.executable, "-m", "tools.book.rerun", str(path), str(part)]
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, encoding="utf-8")
            if done.returncode:
                raise SystemExit(f"{path.name} could not be run again for its pictures:\n{done.stderr[-2000:]}")
            part.rename(file)
    return file


def key(path: Path) -> str:
    """A name for what a notebook shows: from the sources of its code cells, and from the code that they call."""
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join([*cells, code()]).encode()).hexdigest()[:16]


@cache
def code(*folders: str) -> str:
    """The package's code and data as one hash, or that of some of its folders, and the code that collects the pictures."""
    roots = [ROOT / "flashlearn" / folder for folder in folders or ("",)]
    kinds = (".py", ".toml", ".json", ".mplstyle")
    files = [path for root in roots for path in root.rglob("*") if path.suffix in kinds]
    found = hashlib.sha256()
    for file in [*sorted(files), Path(rerun.__file__)]:
        found.update(file.read_bytes())
    return found.hexdigest()
