"""The roofline: the part of a GPU's peak that an algorithm can reach, given its FLOPs and its bytes.

    intensity = FLOPs / bytes of HBM traffic                          FLOP/B
    ridge     = peak FLOP/s / HBM bytes/s                             FLOP/B, 201 on an A100
    attainable FLOP/s = min(peak, intensity * HBM bytes/s)            compute-bound from the ridge on

Source: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from flashlearn.cost.formulas import Cost
from flashlearn.cost.hardware import Hardware, fp16


@dataclass(frozen=True)
class Placement:
    """A cost under a roofline; `seconds` is the minimum time that the two limits allow."""

    intensity: float
    attainable: float
    seconds: float
    bound: str  # "compute-bound" or "memory-bound"


def placement(cost: Cost, hardware: Hardware, dtype: torch.dtype = fp16) -> Placement:
    """Place a cost under the roofline of a GPU."""
    compute, memory = cost.flops / hardware.peak_of(dtype), cost.bytes / hardware.bandwidth
    bound = "compute-bound" if compute >= memory else "memory-bound"
    return Placement(cost.intensity, hardware.attainable(cost.intensity, dtype), max(compute, memory), bound)


def placement_table(
    cost: Callable[..., Cost],
    lengths: Iterable[int],
    head_dims: Iterable[int],
    hardware: Hardware,
    *,
    dtype: torch.dtype = fp16,
    **options: Any,
) -> dict[tuple[int, int], Placement]:
    """Place self-attention of one head for every (N, D); `options` go to the cost function."""
    cases = itertools.product(lengths, head_dims)
    return {(N, D): placement(cost(1, 1, N, N, D, dtype=dtype, **options), hardware, dtype) for N, D in cases}


def intensities(title: str, table: Mapping[tuple[int, int], Placement]) -> str:
    """A `placement_table` as text: FLOP per byte, a row for every N, a column for every D, * where compute-bound."""
    lengths, dims = ([*dict.fromkeys(key[axis] for key in table)] for axis in (0, 1))
    lines = [title.ljust(44) + "".join(f"d = {D:<7}" for D in dims)]
    for N in lengths:
        cells = (table[N, D] for D in dims)
        numbers = (f"{at.intensity:6.0f}{' *'[at.bound == 'compute-bound']}    " for at in cells)
        lines.append(f"{f'N = {N}':40}    " + "".join(numbers))
    return "\n".join(lines)
