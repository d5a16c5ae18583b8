"""An attention problem: the caller's tensors and options, checked once, and the memory that an algorithm starts with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor

from flashlearn.core.hbm import HBM, OnChip
from flashlearn.core.inputs import Sizes, check_qkv
from flashlearn.core.mask import Mask
from flashlearn.core.numerics import INF, Span, accumulator, maximum
from flashlearn.core.options import AttentionKwargs, AttentionOptions
from flashlearn.core.scores import Scores
from flashlearn.core.steps import Step

# One number for every query head, (1, H_q, 1, 1) in HBM, and the name of its gradient.
PER_HEAD = {"sinks": "dsinks", "alibi": "dslopes"}


@dataclass(frozen=True, eq=False)
class Problem:
    """The inputs of every algorithm of attention except its matrices, which come from `HBM` alone."""

    sizes: Sizes
    options: AttentionOptions
    mask: Mask
    given: dict[str, Tensor]

    @classmethod
    def of(
        cls,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        matrices: Mapping[str, Tensor] | None = None,
        **more: Unpack[AttentionKwargs],
    ) -> Problem:
        """Check the tensors and options that all algorithms share; `matrices` are further ones by name."""
        for name in more.keys() - AttentionKwargs.__annotations__.keys():
            raise TypeError(f"expected options of {', '.join(AttentionKwargs.__annotations__)}, got {name!r}")
        sizes = check_qkv(q, k, v)
        options = AttentionOptions.of(sizes, q, **more)
        mask = options.mask(sizes)
        per_head = {name: t[None, :, None, None] for name in PER_HEAD if (t := getattr(options, name)) is not None}
        if mask.key_range is not None:  # keys that do not exist may hold anything, and 0 times NaN is NaN
            k, v = (t.masked_fill(~mask.exist((0, sizes.N_k), t.device).mT, 0) for t in (k, v))
        return cls(sizes, options, mask, {"Q": q, "K": k, "V": v, **(matrices or {}), **per_head})

    @property
    def dtype(self) -> torch.dtype:
        return self.given["Q"].dtype

    @property
    def wide(self) -> torch.dtype:
        return accumulator(self.dtype)

    @property
    def scale(self) -> float:
        return self.options.scale

    @property
    def scores(self) -> Scores:
        return self.options.scores

    @property
    def learned(self) -> list[str]:
        """Those of "sinks" and "alibi" that were given, in the order in which their gradients are returned."""
        return [name for name in PER_HEAD if name in self.given]

    def memory(
        self,
        caption: Callable[[Step], str],
        made: Mapping[str, torch.dtype],
        whole: bool = False,
        **shapes: tuple[int, ...],
    ) -> HBM:
        """HBM with the inputs, and room for the results; `shapes` of matrices that are not in `matrix_shapes`."""
        per_head = {n: tuple(self.given[name].shape) for name in self.learned for n in (name, PER_HEAD[name])}
        return HBM(self.given, made, {**matrix_shapes(self.sizes), **per_head, **shapes}, caption, whole=whole)

    def load_queries(self, hbm: HBM, rows: Span, programs: int = 1) -> OnChip:
        """A block of queries, and with `alibi` the slopes of the heads, which each program reads for itself."""
        Q_i = hbm.load("Q", rows)
        self.load_slopes(hbm, programs)
        return Q_i

    def load_slopes(self, hbm: HBM, programs: int = 1) -> None:
        """With `alibi`, the slopes (1, H_q, 1, 1), for `score` and `lower`."""
        if "alibi" in self.given:
            hbm.load("alibi", times=programs * self.sizes.B)

    def score(self, product: OnChip, rows: Span, cols: Span) -> OnChip:
        """A block of Q K^T as softmax takes it: scaled, capped, lowered with distance, -inf where it is hidden."""
        return self.mask.hide(self.lower(self.scores.cap(product)), rows, cols)

    def lower(self, S: OnChip) -> OnChip:
        """S - slope |i + N_k - N_q - j| with `alibi`, S without."""
        return S - S.distance(self.mask.diagonal) * S.hbm.loaded("alibi") if "alibi" in self.given else S

    def add_per_head(self, hbm: HBM, name: str, column: OnChip) -> None:
        """Add a column (B, H_q, n, 1) to one number for each head in HBM, by one program for every sequence."""
        so_far = hbm.load(name, times=self.sizes.B)
        hbm.store(name, None, so_far + column.sum_rows(), times=self.sizes.B)
        hbm.drop(so_far)

    def gradients(self, hbm: HBM) -> tuple[Tensor, ...]:
        """dQ, dK, dV, then those of sinks and slopes if these were given, (H_q,)."""
        per_head = [hbm.output(PER_HEAD[name]).flatten() for name in self.learned]
        return (*(hbm.output(name) for name in ("dQ", "dK", "dV")), *per_head)

    @property
    def column(self) -> tuple[int, ...]:
        """The shape of a matrix with one number for each query."""
        return (*matrix_shapes(self.sizes)["Q"][:3], 1)

    def coordinates(self, i: int | None, rows: Span, j: int | None = None, cols: Span = (0, 0)) -> dict[str, Any]:
        """The tile coordinates of a step, for its values: block Q_i and, unless it attends to none, block K_j."""
        masked = i is None or j is None or self.mask.crosses(rows, cols)
        return {"i": i, "j": j, "rows": rows, "cols": cols, "masked": masked}


def start(hbm: HBM, rows: Span, programs: int = 1) -> tuple[OnChip, OnChip, OnChip]:
    """(m, l, acc) for a block of queries, of shapes (..., 1), (..., 1) and (..., D), before any key.

    They are -inf, 0 and 0. With sinks the first term is included: m = sink, l = 1, and no value. `programs` of a
    sequence read the sinks for themselves.
    """
    m_i, l_i, acc = hbm.fill("Q", rows, (0, 1), -INF), hbm.fill("Q", rows, (0, 1)), hbm.fill("Q", rows)
    if "sinks" in hbm.given:
        sinks = hbm.load("sinks", times=programs * hbm.shapes["Q"][0])
        m_i, l_i = maximum(m_i, sinks), l_i + 1
        hbm.drop(sinks)
    return m_i, l_i, acc


def matrix_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices of an attention picture; S is stored only by standard_attention."""
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
