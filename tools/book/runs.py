"""What the explorers of the book show: runs recorded by flashlearn itself, small and loaded one setting at a time.

    hardware.js         GPUs, as `flashlearn.cost.hardware` has them
    grid.js             the controls of the tiling explorer, and the settings of which there are runs: {D: {N: [[block_q, block_k], ...]}}
    runs/<setting>.js   flashlearnRuns.set("<setting>", "<JSON, gzip, base64>"): the run as `player.mount` takes it, with its
                        sentence, the elements that its blocks need, and the steps in which a maximum rises

A script and not JSON: browsers load no JSON from a folder. The scenes are those of the notebook's explorer.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from flashlearn.algorithms.tiled import sram_elements
from flashlearn.core.steps import Step, hbm_bytes
from flashlearn.cost import HARDWARE
from flashlearn.show.draw.scene import Scene
from flashlearn.show.draw.tiling import draw_tiling
from flashlearn.show.explorers import tiling
from flashlearn.show.explorers.explorer import Control
from flashlearn.show.player import page_run
from tools.book import gallery

SIDES: dict[int, dict[int, tuple[int, ...]]] = {
    4: {4: (1, 2, 4), 8: (1, 2, 4), 12: (1, 2, 3, 4, 6), 16: (1, 2, 4)},
    3: {5: (1, 2, 3, 5), 12: (2, 3, 4, 6)},
}
MOST = 64  # pairs of blocks in a run
SHOWN = tiling.V1, tiling.V2
START = {"N": 12, "D": 4, "block_q": 3, "block_k": 3, "sram": 59, "mask": tiling.CAUSAL}


Grid = dict[int, dict[int, list[tuple[int, int]]]]


def grid() -> Grid:
    """The blocks (block_q, block_k) recorded for every D and N: all that are not too many."""

    def pairs(N: int, sides: tuple[int, ...]) -> list[tuple[int, int]]:
        return [(q, k) for q in sides for k in sides if math.ceil(N / q) * math.ceil(N / k) <= MOST]

    return {D: {N: pairs(N, sides) for N, sides in lengths.items()} for D, lengths in SIDES.items()}


def controls(there: Grid) -> list[dict[str, Any]]:
    """Those of the notebook's explorer that there are runs for, with the values that there are runs for."""
    values: dict[str, set[int]] = {
        "N": {N for lengths in there.values() for N in lengths},
        "D": set(there),
        "block_q": {q for lengths in there.values() for pairs in lengths.values() for q, _ in pairs},
        "block_k": {k for lengths in there.values() for pairs in lengths.values() for _, k in pairs},
    }
    shown = []
    for name in START:
        control: Control = getattr(tiling.TilingExplorer, name).control
        shown.append(control._replace(values=tuple(sorted(values.get(name, ()))) or control.values).described(name))
    label, help = tiling.TilingExplorer.buttons["next_rescaling"]
    return [*shown, {"press": "next_rescaling", "label": label, "help": help}]


def constants(there: Grid) -> str:
    """What tiling.js imports from grid.js."""
    every = {"CONTROLS": controls(there), "GRID": there, "START": START}
    return "".join(f"export const {name} = {json.dumps(each, ensure_ascii=False)};\n" for name, each in every.items())


def named(N: int, D: int, block_q: int, block_k: int, mask: str) -> str:
    """The name of a setting, as tiling.js makes it."""
    return "-".join(map(str, (N, D, block_q, block_k, re.sub(r"\W+", "_", mask))))


def once(draw: Callable[..., Scene]) -> Callable[..., Scene]:
    """The same scene for the same step: next to each other, both layouts of a page are made of the narrow one."""

    @cache
    def kept(step: int, narrow: bool) -> Scene:
        scene = draw(steps[step], narrow=narrow)
        scene.svg = cache(scene.svg)  # type: ignore[method-assign]
        return scene

    steps: dict[int, Step] = {}

    def drawn(step: Step, *, narrow: bool = False) -> Scene:
        steps[id(step)] = step
        return kept(id(step), narrow)

    return drawn


def setting(N: int, D: int, block_q: int, block_k: int, mask: str) -> dict[str, Any]:
    """One run for a page, both versions next to each other."""
    every = tiling.recorded(N, D, block_q, block_k, mask)
    runs = {title: every[title] for title in SHOWN}
    draw = once(partial(draw_tiling, full=max(max(hbm_bytes(run)) for run in runs.values())))
    run = page_run(runs, draw, alt=tiling.ALT)
    del run["table"]
    need = sram_elements(block_q, block_k, D)
    return {**run, "text": tiling.described(every), "need": need, "rises": tiling.rescalings(runs)}


def hardware() -> list[dict]:
    """What the real-size explorer knows of each GPU: FLOP/s in float16, bytes/s, bytes of shared memory of an SM."""
    return [
        {"name": gpu.name, "peak": gpu.peak[torch.float16], "bandwidth": gpu.bandwidth, "shared": gpu.shared_per_sm}
        for gpu in HARDWARE.values()
    ]


MADE_BY = ("algorithms", "core", "cost", "show")  # folders of the package: what is recorded follows from them


def write(static: Path, kept: Path | None = None, most: int | None = None) -> None:
    """Write it all into the folder of static files, at most so many runs.

    kept   a folder for all runs, by the code that made them, so that they are recorded once
    """
    static.mkdir(parents=True, exist_ok=True)
    (static / "grid.js").write_text(constants(grid()), encoding="utf-8")
    (static / "hardware.js").write_text(f"export const HARDWARE = {json.dumps(hardware())};\n", encoding="utf-8")
    if kept is None or most is not None:
        return record(grid(), static / "runs", most)
    there = kept / gallery.code(*MADE_BY)[:16]
    if not there.exists():
        shutil.rmtree(kept, ignore_errors=True)
        record(grid(), part := kept / "part")
        part.rename(there)
    shutil.copytree(there, static / "runs")


def record(there: Grid, folder: Path, most: int | None = None) -> None:
    """Write the runs of these blocks under all masks."""
    folder.mkdir(parents=True, exist_ok=True)
    blocks = [(N, D, *pair) for D, lengths in there.items() for N, pairs in lengths.items() for pair in pairs]
    settings = [(*each, mask) for each in blocks for mask in tiling.MASKS]
    for each in tqdm(settings[:most], "recorded runs", unit="run", disable=None):
        data = json.dumps(setting(*each), ensure_ascii=False, separators=(",", ":")).encode()
        text = base64.b64encode(gzip.compress(data, mtime=0)).decode()
        script = f'(window.flashlearnRuns ??= new Map()).set("{named(*each)}","{text}");\n'
        (folder / f"{named(*each)}.js").write_text(script, encoding="utf-8")
