"""What the explorers of the book show: runs recorded by flashlearn itself, small and loaded one setting at a time.

    hardware.js         GPUs, as `flashlearn.cost.hardware` has them
    grid.js             the settings of which there are runs: {D: {N: [[block_q, block_k], ...]}}, and the masks
    runs/<setting>.js   flashlearnRun("<setting>", {...}): both versions of FlashAttention under every mask

A script and not JSON: browsers load no JSON from a folder. Of a step are kept its sentence, the tiles read, written and
on chip as [name, first row, last row] (S: and its columns), whether a maximum rises, and the bytes moved so far.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import torch
from tqdm import tqdm

import flashlearn as fl
from flashlearn.core.inputs import Sizes
from flashlearn.core.mask import Mask
from flashlearn.core.steps import Step, Tile, hbm_bytes, record
from flashlearn.cost import HARDWARE
from flashlearn.show.explorers.tiling import MASKS
from flashlearn.show.frame import rescales

LENGTHS, WIDTHS, SIDES = (4, 5, 6, 8, 12, 16), (3, 4), (1, 2, 3, 4, 5, 6, 8)
MOST = 64  # pairs of blocks in a run
VERSIONS = {"FlashAttention-1": fl.tiled_attention_v1_steps, "FlashAttention-2": fl.tiled_attention_v2_steps}


def grid() -> dict[int, dict[int, list[tuple[int, int]]]]:
    """The blocks (block_q, block_k) recorded for every D and N: all that are not too many."""

    def fine(N: int, block_q: int, block_k: int) -> bool:
        if 5 in (block_q, block_k) and N != 5:
            return False
        return max(block_q, block_k) <= N and math.ceil(N / block_q) * math.ceil(N / block_k) <= MOST

    pairs = list(itertools.product(SIDES, SIDES))
    return {D: {N: [pair for pair in pairs if fine(N, *pair)] for N in LENGTHS} for D in WIDTHS}


def problem(N: int, D: int) -> tuple[torch.Tensor, ...]:
    """Q, K and V of one head whose maxima rise at many steps, by factors that can be seen."""
    generator = torch.Generator().manual_seed(94)
    return tuple(1.3 * torch.randn(1, 1, 16, 4, generator=generator)[:, :, :N, :D] for _ in range(3))


def tile(each: Tile) -> list:
    """A tile by its rows; scores by their columns too."""
    return [each.name, *each.rows, *(each.cols if each.name == "S" else ())]


def described(run: list[Step]) -> list[dict]:
    """The steps of a run as the explorer draws them."""
    steps, read, written = [], 0, 0
    for step in run:
        here = hbm_bytes([step])
        read, written = read + here.read, written + here.written
        moved = {"r": step.reads, "w": step.writes, "c": step.on_chip}
        tiles = {key: [tile(each) for each in these] for key, these in moved.items()}
        steps.append({"s": step.sentence, **tiles, "up": rescales(step), "b": [read, written]})
    return steps


def setting(N: int, D: int, block_q: int, block_k: int) -> dict:
    """Both versions and the keys (start, stop) that each query sees, by mask; the bytes of standard attention."""
    qkv, runs, seen = problem(N, D), {}, {}
    for mask, options in MASKS.items():
        blocks = {"block_q": block_q, "block_k": block_k, **options(N)}
        runs[mask] = {name: described(record(steps(*qkv, **blocks))) for name, steps in VERSIONS.items()}
        seen[mask] = spans(N, options(N))
    standard = hbm_bytes(fl.standard_attention_steps(*qkv))
    return {
        "N": N, "D": D, "blockQ": block_q, "blockK": block_k, "standard": list(standard), "seen": seen, "runs": runs
    }  # fmt: skip


def spans(N: int, options: dict) -> list[tuple[int, int]]:
    """The keys (start, stop) that each query sees."""
    mask = Mask.of(Sizes(1, 1, 1, N, N, 1), **options)
    return [mask.keys((query, query + 1)) for query in range(N)]


def hardware() -> list[dict]:
    """What the real-size explorer knows of each GPU: FLOP/s in float16, bytes/s, bytes of shared memory of an SM."""
    return [
        {"name": gpu.name, "peak": gpu.peak[torch.float16], "bandwidth": gpu.bandwidth, "shared": gpu.shared_per_sm}
        for gpu in HARDWARE.values()
    ]


def write(static: Path, most: int | None = None) -> None:
    """Write it all into the folder of static files, or the runs of the first `most` settings."""
    (static / "runs").mkdir(parents=True, exist_ok=True)
    (static / "hardware.js").write_text(f"export const HARDWARE = {json.dumps(hardware())};\n", encoding="utf-8")
    (static / "grid.js").write_text(
        f"export const GRID = {json.dumps(grid())};\nexport const MASKS = {json.dumps(list(MASKS))};\n",
        encoding="utf-8",
    )
    settings = [(N, D, *pair) for D, lengths in grid().items() for N, blocks in lengths.items() for pair in blocks]
    for blocks in tqdm(settings[:most], "recorded runs", unit="run", disable=None):
        name = "-".join(map(str, blocks))
        data = json.dumps(setting(*blocks), ensure_ascii=False, separators=(",", ":"))
        (static / "runs" / f"{name}.js").write_text(f'flashlearnRun("{name}",{data});\n', encoding="utf-8")
