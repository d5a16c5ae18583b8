"""The measured ladder of notebook 14 (`gpu_ladder.json`): every change, its prediction, its gain, and why.

print(story(load("gpu_ladder"), predicted))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flashlearn.cost import H200_SXM
from flashlearn.measurements.records import chosen, provenance
from flashlearn.measurements.tables import shown

LENGTHS = (4096, 16384)
VERSIONS = ("standard", "fused", "exp2", "skip", "split", "blocks", "descriptors", "op")


class Change(NamedTuple):
    """One change: the version it is compared with, the mask, and why its gain was not the predicted one."""

    before: str
    causal: bool
    why: str


CHANGES = {  # changes of the causal mask are compared under one
    "fused": Change("standard", False, "standard attention is far below its roofline: more passes over S than a bound counts"),
    "exp2": Change("fused", False, "a guess: it is saved where every operation waits for the one before"),
    "skip": Change("exp2", True, "below the prediction at both lengths; the reason was not measured"),
    "split": Change("skip", True, "as the compiler's count of instructions predicts"),
    "blocks": Change("split", False, "right for the wrong reason: no rescaling is saved, a third stage helps"),
    "descriptors": Change("blocks", False, "little, as predicted; the reason for the differences was not measured"),
    "op": Change("descriptors", False, "the model has no barriers, issue slots or caches to wait for"),
}  # fmt: skip


def gain(row: Mapping, version: str) -> float:
    """The rate of a version over that of the one before it."""
    return row[version] / row[CHANGES[version].before]


def rates_by_version(ladder: Mapping) -> str:
    """TFLOP/s of every version, forward."""
    peak = max(H200_SXM.peak.values()) / 1e12
    product = f"a matrix product of 8192 x 8192: {ladder['matmul']:.0f}, {ladder['matmul'] / peak:.0%} of the peak"
    widths = {name: max(len(name), 5) + 2 for name in VERSIONS}
    lines = [f"{provenance(ladder)}\nTFLOP/s, forward", product]
    lines.append("  D      N         " + "".join(f"{name:>{width}}" for name, width in widths.items()))
    for row in ladder["forward"]:
        cells = "".join(f"{shown(row[name]):>{width}}" for name, width in widths.items())
        lines.append(f"{row['D']:3}  {row['N']:5}  {'causal' if row['causal'] else 'no mask':7}" + cells)
    return "\n".join(lines)


def story(ladder: Mapping, predicted: Mapping[str, Mapping[int, float]]) -> str:
    """The gain of every version over the one before it, predicted ({version: {D: factor}}) and measured, and why."""
    lines = [f"{'gain of each':33}" + "".join(f"{f'D = {D}':>11}{'measured, N =':>17}" for D in (64, 128))]
    lines.append(f"{'version / the one before':33}" + f"{'predicted':>11}{4096:9}{16384:8}" * 2)
    for version, (before, causal, why) in CHANGES.items():
        line = f"{version:11} / {before:11} {'causal' if causal else 'no mask':7}"
        for D in (64, 128):
            (short,), (long,) = (chosen(ladder["forward"], D=D, N=N, causal=causal) for N in LENGTHS)
            line += f"{predicted[version][D]:11.2f}{gain(short, version):9.2f}{gain(long, version):8.2f}"
        lines += [line, f"      {why}"]
    return "\n".join(lines)


def passes(ladder: Mapping) -> str:
    """Backward: one pass with five products over two passes with seven, no mask."""
    lines = []
    for D in (64, 128):
        rows = [row for N in LENGTHS for row in chosen(ladder["backward"], D=D, N=N, causal=False)]
        short, long = (row["op"] / row["two sweeps"] for row in rows)
        found = f"predicted {7 / 5:.2f}, measured {short:.2f} and {long:.2f}"
        lines.append(f"D = {D:3}: backward, one pass / two passes: {found}")
    return "\n".join(lines)


def candidates(ladder: Mapping, D: int) -> dict[tuple[int, ...], float]:
    """{(queries, keys, warps, stages): TFLOP/s} of every launch that was tried, causal, N = 4096."""
    (row,) = chosen(ladder["sweep"], D=D)
    return {tuple(each["launch"]): each["forward"] for each in row["candidates"]}


def launches(ladder: Mapping, taken: Mapping[int, tuple[int, ...]]) -> str:
    """Every launch that was tried, the fastest first; `taken` ({D: launch}) is marked."""
    lines = ["(queries, keys, warps, stages): TFLOP/s, causal, N = 4096"]
    for D in (64, 128):
        rates = sorted(candidates(ladder, D).items(), key=lambda item: -item[1])
        words = (f"{launch} {rate:.0f}{' taken' if launch == tuple(taken[D]) else ''}" for launch, rate in rates)
        lines += [f"D = {D}:", *(f"    {each}" for each in words)]
    return "\n".join(lines)


def third_stage(ladder: Mapping, D: int) -> dict[tuple[int, ...], float]:
    """{(queries, keys, warps): the gain of a third stage, as a part} where both were tried."""
    rates = candidates(ladder, D)
    return {
        launch[:3]: rates[(*launch[:3], 3)] / rate - 1
        for launch, rate in rates.items()
        if launch[3] == 2 and (*launch[:3], 3) in rates
    }
