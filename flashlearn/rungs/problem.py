"""An attention problem: the caller's tensors and options, checked once, and the memory that an algorithm starts with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flashlearn.core.hbm import HBM, OnChip
from flashlearn.core.inputs import Sizes, check_qkv, resolve_scale
from flashlearn.core.mask import Mask, Window
from flashlearn.core.numerics import INF, Span, accumulator
from flashlearn.core.steps import Step


@dataclass(frozen=True, eq=False)
class Problem:
    """What every rung of attention needs to know besides its matrices, which only `HBM` hands out."""

    sizes: Sizes
    mask: Mask
    scale: float
    given: dict[str, Tensor]

    @classmethod
    def of(
        cls,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        causal: bool,
        window: Window | None,
        scale: float | None,
        **more: Tensor,
    ) -> Problem:
        """Check the tensors and options that all rungs share; `more` are further matrices by name."""
        sizes = check_qkv(q, k, v)
        mask = Mask.of(sizes, causal, window)
        return cls(sizes, mask, resolve_scale(scale, sizes.D), {"Q": q, "K": k, "V": v, **more})

    @property
    def dtype(self) -> torch.dtype:
        return self.given["Q"].dtype

    @property
    def wide(self) -> torch.dtype:
        return accumulator(self.dtype)

    def memory(
        self, told: Callable[[Step], str], made: Mapping[str, torch.dtype], whole: bool = False, **shapes: tuple
    ) -> HBM:
        """HBM with the inputs, and room for what is made; `shapes` of matrices besides those of `matrix_shapes`."""
        return HBM(self.given, made, {**matrix_shapes(self.sizes), **shapes}, told, whole=whole)

    @property
    def column(self) -> tuple[int, ...]:
        """The shape of a matrix with one number for each query."""
        return (*matrix_shapes(self.sizes)["Q"][:3], 1)

    def place(self, i: int | None, rows: Span, j: int | None = None, cols: Span = (0, 0)) -> dict[str, Any]:
        """Where a step stands, for its values: in block Q_i and, unless it sees none, in block K_j."""
        masked = i is None or j is None or self.mask.crosses(rows, cols)
        return {"i": i, "j": j, "rows": rows, "cols": cols, "masked": masked}


def start(hbm: HBM, rows: Span) -> tuple[OnChip, OnChip, OnChip]:
    """(m, l, acc) = (-inf, 0, 0) for a block of queries, of shapes (..., 1), (..., 1) and (..., D), before any key."""
    return hbm.fill("Q", rows, (0, 1), -INF), hbm.fill("Q", rows, (0, 1)), hbm.fill("Q", rows)


def matrix_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices of an attention picture; S is a place, stored only by standard_attention."""
    B, H_q, H_kv, N_q, N_k, D = sizes
    q, kv = (B, H_q, N_q, D), (B, H_kv, N_k, D)
    return {"Q": q, "K": kv, "V": kv, "S": (B, H_q, N_q, N_k), "O": q}


def backward_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices of a backward picture; lse and delta are columns."""
    forward = matrix_shapes(sizes)
    column, pairs = (*forward["Q"][:3], 1), forward["S"]
    return {
        **forward,
        **{name: pairs for name in ("P", "dP", "dS")},
        **{"dO": forward["O"], "dQ": forward["Q"], "dK": forward["K"], "dV": forward["V"]},
        **{"lse": column, "delta": column},
    }
