"""The tiling explorer: FlashAttention-1, -2 and standard attention from the same inputs, with every size under control.

One definition of what fits, that of `sram_elements`: elements of the tiles Q_i, O_i, K_j, V_j and S_ij, and not m and l.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch

from flashlearn.algorithms.attention import standard_attention_steps
from flashlearn.algorithms.tiled import (
    fitting_block_sizes,
    paper_block_sizes,
    sram_elements,
    tiled_attention_v1_steps,
    tiled_attention_v2_steps,
)
from flashlearn.core.inputs import check_bool
from flashlearn.core.steps import Step, hbm_bytes, record
from flashlearn.show.draw.memory import budget_step, draw_budget
from flashlearn.show.draw.tiling import draw_tiling
from flashlearn.show.explorers.explorer import Control, Explorer, Setting, Shown, numbers
from flashlearn.show.frame import rescales

LONGEST, LARGEST = 16, 12  # the most tokens, the most rows of a block
V1, V2, STANDARD = "FlashAttention-1 · K, V outside", "FlashAttention-2 · Q outside", "Standard · S, P stored"
SHORT = {V1: "FlashAttention-1", V2: "FlashAttention-2", STANDARD: STANDARD}  # for three panels
STEPS: dict[str, Callable[..., Iterable[Step]]] = {
    STANDARD: standard_attention_steps,
    V1: tiled_attention_v1_steps,
    V2: tiled_attention_v2_steps,
}
BESIDE = {"FA-1, FA-2": (V1, V2), "standard, FA-2": (STANDARD, V2), "all three": (STANDARD, V1, V2)}
TOTALS = {STANDARD: "standard", V1: "FA-1", V2: "FA-2"}
BY_HAND, FITTING, PAPER = "as set here", "largest that fit", "the paper's rule"
FULL, CAUSAL, WINDOW, DOCUMENTS, BOTH = "full", "causal", "window of 4", "two documents", "documents, window"
BAND = {"window": (3, 0)}  # a query and the three keys before it
MASKS: dict[str, Callable[[int], dict[str, Any]]] = {  # the options of the algorithms, for N tokens
    FULL: lambda N: {},
    CAUSAL: lambda N: {"causal": True},
    WINDOW: lambda N: BAND,
    DOCUMENTS: lambda N: {"causal": True, "documents": two_documents(N)},
    BOTH: lambda N: {**BAND, "documents": two_documents(N)},
}
ALT = "HBM with Q, K, V and O, and the tiles on chip, for FlashAttention-1 and FlashAttention-2 side by side."
NEXT = "go on to the next step in which a maximum rises and a row is scaled"
SEEN = "which keys a query attends to: all, those up to its own, its own and the three before, those of its document"


class TilingExplorer(Explorer):
    """Both versions side by side, recorded anew with every setting.

    Blocks that do not fit in the SRAM are shown with what they would need.
    """

    function = "tiling_explorer"
    N = Setting(numbers("N", 1, LONGEST, "tokens: rows of Q, K and V"), 12)
    D = Setting(numbers("D", 3, 8, "head dimension: columns of Q, K, V and O; d in the paper"), 4)
    block_q = Setting(numbers("B_r", 1, LARGEST, "rows in a block of Q"), 3)
    block_k = Setting(numbers("B_c", 1, LARGEST, "rows in a block of K and V"), 3)
    sram = Setting(numbers("SRAM", 10, 128, "elements of tiles that fit on chip; m and ℓ are not counted"), 59)
    mask = Setting(Control("mask", SEEN, tuple(MASKS)), CAUSAL)
    blocks = Setting(Control("blocks", "who chooses B_r and B_c", (BY_HAND, FITTING, PAPER)), BY_HAND)
    beside = Setting(Control("beside", "what is shown side by side", tuple(BESIDE)), "FA-1, FA-2")
    buttons: ClassVar = {"next_rescaling": ("next rescaling ▶", NEXT)}

    def _show(self) -> Shown:
        """Both versions with the sizes that the settings say, or one step that says why they cannot run."""
        verdict = self._choose_blocks()
        if verdict:
            rows, cols = (1, 1) if verdict.startswith("No") else (self.block_q, self.block_k)
            step = replace(budget_step(rows, cols, self.D, self.sram), sentence=verdict)
            need = sram_elements(rows, cols, self.D)
            return Shown({"": [step]}, draw_budget, ALT, "Nothing was run.", need, self.sram)
        runs = recorded(self.N, self.D, self.block_q, self.block_k, self.mask)
        shown = BESIDE[self.beside]
        draw = partial(draw_tiling, full=max(max(hbm_bytes(runs[title])) for title in shown))
        need = sram_elements(self.block_q, self.block_k, self.D)
        fits = f"{self.block_q} × {self.block_k} blocks need {need} of {self.sram} elements: they fit."
        titles = {title: SHORT[title] if len(shown) > 2 else title for title in shown}
        return Shown(
            {titles[title]: runs[title] for title in shown}, draw, ALT, f"{fits} {described(runs)}", need, self.sram
        )

    def _choose_blocks(self) -> str:
        """Set B_r and B_c as the rule wants; returns what is wrong with them, or nothing."""
        D, M = self.D, self.sram
        rule = {FITTING: fitting_block_sizes, PAPER: paper_block_sizes}.get(self.blocks)
        self.chosen = ["block_q", "block_k"] if rule else []
        if rule and M < 4 * D + 1:
            return f"No blocks fit: even 1 × 1 needs 4 × {D} + 1 = {4 * D + 1} elements, and the SRAM holds {M}."
        if rule:
            self.block_q, self.block_k = rule(M, D)
        need = sram_elements(self.block_q, self.block_k, D)
        if need <= M:
            return ""
        return (
            f"Blocks {self.block_q} × {self.block_k} do not fit: they need {need} elements, and the SRAM holds {M}. "
            "Make a block smaller or the SRAM larger."
        )

    def next_rescaling(self) -> None:
        """Go to the next step in which a maximum rises in either version, from the start again after the last."""
        if steps := rescalings(self.runs):
            self.step = next((step for step in steps if step > self.step), steps[0])


def tiling_explorer(*, causal: bool | None = None, **start: Any) -> TilingExplorer:
    """FlashAttention-1, -2 and standard attention, with sliders for N, D, B_r, B_c and the SRAM, and with masks.

    `start` sets the first values: N, D, block_q, block_k, sram, mask ("full", "causal", "window of 4", "two documents",
    "documents, window"), blocks, beside, step; `causal` is short for one of the first two masks.
    """
    if causal is not None:
        check_bool(causal, "causal")
        start.setdefault("mask", CAUSAL if causal else FULL)
    return TilingExplorer(start, step=start.pop("step", 0))


def recorded(N: int, D: int, block_q: int, block_k: int, mask: str) -> dict[str, list[Step]]:
    """All three algorithms on the same inputs, by title."""
    blocks = {"block_q": block_q, "block_k": block_k}
    how: dict[str, dict[str, Any]] = {STANDARD: {}, V1: blocks, V2: blocks}
    tensors = problem(N, D)
    return {title: record(steps(*tensors, **MASKS[mask](N), **how[title])) for title, steps in STEPS.items()}


def problem(N: int, D: int) -> list[torch.Tensor]:
    """Q, K and V with N rows and D columns; the same numbers for the same D."""
    generator = torch.Generator().manual_seed(94)  # maxima rise at many steps, by factors that can be seen
    return [1.3 * torch.randn(1, 1, LONGEST, D, generator=generator)[:, :, :N] for _ in range(3)]


def described(runs: dict[str, list[Step]]) -> str:
    """What the three did, in bytes and in pairs of blocks."""
    visits, pairs = (runs[V2][-1].values[name] for name in ("visits", "pairs"))
    totals = ", ".join(f"{name} {hbm_bytes(runs[title]).total:,} B" for title, name in TOTALS.items())
    return f"{visits} of {pairs} pairs visited. In all: {totals}."


def two_documents(N: int) -> torch.Tensor:
    """Offsets of two documents in N tokens, of about five twelfths and seven: no multiple of a usual block."""
    return torch.tensor([0, (5 * N + 6) // 12, N], dtype=torch.int32)


def rescalings(runs: dict[str, list[Step]]) -> list[int]:
    """The frames, from 0, in which the maximum of some row rises from a number to a higher one."""
    return sorted({step.number for run in runs.values() for step in run if rescales(step)})
