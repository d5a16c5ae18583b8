"""Recorded measurements: flashlearn/measurements/*.json, with their place and date.

    results = load("gpu_attention_h200")
    print(provenance(results))            recorded 2026-11-20: NVIDIA H200, driver 580.159.04, ...
    ratios(results["rows"], "forward", "cudnn")

No number in a notebook is typed from them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent


def recordings(folder: Path = FOLDER) -> list[str]:
    """The names of all recordings."""
    return sorted(path.stem for path in folder.glob("*.json"))


def load(name: str, folder: Path = FOLDER) -> dict:
    """The recording of that name; FileNotFoundError lists the others."""
    path = folder / f"{name}.json"
    if not path.exists():
        raise FileNotFoundError(f"expected a recording, one of {recordings(folder)}, in {folder.name}, got {name!r}")
    return json.loads(path.read_text(encoding="utf-8"))


def provenance(results: Mapping) -> str:
    """One line: date, GPU or machine, and versions. A recording without them is rejected."""
    where = results["provenance"]
    place = ("machine",) if "machine" in where else ("gpu", "driver")
    missing = [key for key in ("date", *place, "torch", "triton") if not where.get(key)]
    if missing:
        raise ValueError(f"expected a recording that says where it was made, got none of {', '.join(missing)}")
    machine = where["machine"] if "machine" in where else f"{where['gpu']}, driver {where['driver']}"
    return f"recorded {where['date']}: {machine}, PyTorch {where['torch']}, Triton {where['triton']}"


def chosen(rows: Iterable[Mapping], **wanted) -> list[Mapping]:
    """The rows in which every key has the wanted value, or one of a tuple of wanted values.

    >>> chosen([{"D": 64, "N": 512}, {"D": 128, "N": 512}], D=64, N=(512, 1024))
    [{'D': 64, 'N': 512}]
    """

    def agrees(row) -> bool:
        return all(row[key] in (value if isinstance(value, tuple) else (value,)) for key, value in wanted.items())

    return [row for row in rows if agrees(row)]


def ratios(rows: Iterable[Mapping], direction: str, peer: str, ours: str = "flashlearn") -> list[float]:
    """Our rate over a peer's, for every row: above 1 ours is faster.

    Rows that the peer does not run are left out: there it is None, as a whole or in this direction, and the row's
    "reasons" say why. ValueError if ours is missing in a row.
    """
    found = []
    for row in rows:
        mine, theirs = ((row[name] or {}).get(direction) for name in (ours, peer))
        if mine is None:
            setting = {key: value for key, value in row.items() if isinstance(value, (bool, int, str))}
            raise ValueError(f"expected {ours} to be measured in every row, got none, {direction}, at {setting}")
        if theirs is not None:
            found.append(mine / theirs)
    return found


def geometric_mean(values: Iterable[float]) -> float:
    """The mean of ratios: that of 2 and 1/2 is 1.

    >>> geometric_mean([2, 0.5])
    1.0
    """
    values = list(values)
    if not values:
        raise ValueError("expected at least one number, got none")
    return math.exp(sum(map(math.log, values)) / len(values))
