"""The tiling explorer: FlashAttention-1, -2 and standard attention from the same inputs, with every size under control.

One definition of what fits, that of `sram_elements`: elements of the tiles Q_i, O_i, K_j, V_j and S_ij, and not m and l.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import ipywidgets as widgets
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
from flashlearn.show.animation import moving
from flashlearn.show.draw import paint as paint_on
from flashlearn.show.draw.memory import budget_step, draw_budget
from flashlearn.show.draw.tiling import draw_tiling
from flashlearn.show.explorers.controls import Explorer, check_choice, look, row, slider, slider_look
from flashlearn.show.frame import paint, png, rescales, words

D, LONGEST, LARGEST = 4, 16, 12  # head dimension at first, the most tokens, the most rows of a block
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
IN_BETWEEN = (0.3, 0.65)  # how far tiles have come in the frames between two steps
CALM = 0.6  # seconds since the last step, or there are no such frames: whoever hurries is not held up
ALT = "HBM with Q, K, V and O, and the tiles on chip, for FlashAttention-1 and FlashAttention-2 side by side."


class TilingExplorer(Explorer):
    """A stepper over both versions, and controls that record both anew.

    All controls work from the keyboard. Blocks that do not fit in the SRAM are shown with what they would need.
    """

    def __init__(
        self,
        N: int = 12,
        D: int = D,
        block_q: int = 3,
        block_k: int = 3,
        sram: int = 59,
        causal: bool = True,
        mask: str | None = None,
    ):
        self.dimension = slider(
            "D", (3, 8), D, "head dimension: columns of Q, K, V and O; d in the paper", slider_look(24)
        )
        self.length = slider("N", (1, LONGEST), N, "tokens: rows of Q, K and V", slider_look(24))
        self.block_q = slider("B_r", (1, LARGEST), block_q, "rows in a block of Q", slider_look(30), "block_q")
        self.block_k = slider("B_c", (1, LARGEST), block_k, "rows in a block of K and V", slider_look(30), "block_k")
        fits = "elements of tiles that fit on chip; m and ℓ are not counted"
        self.sram = slider("SRAM", (10, 128), sram, fits, slider_look(46), "sram")
        rules, who = [BY_HAND, FITTING, PAPER], "who chooses B_r and B_c"
        self.rule = widgets.Dropdown(description="blocks", options=rules, tooltip=who, **look(190, 46))
        seen = "which keys a query sees: all, those up to its own, its own and the three before, those of its document"
        check_bool(causal, "causal")
        chosen = (CAUSAL if causal else FULL) if mask is None else mask
        check_choice("mask", list(MASKS), chosen)
        masks = {"options": list(MASKS), "value": chosen, "tooltip": seen}
        self.mask = widgets.Dropdown(description="mask", **masks, **look(190, 38))
        panels = {"tooltip": "what is shown side by side", **look(190, 48)}
        self.beside = widgets.Dropdown(description="beside", options=list(BESIDE), **panels)
        narrow = {"indent": False, "layout": {"width": "130px"}, "tooltip": "show tiles on their way at every step on"}
        self.travel = widgets.Checkbox(description="tiles travel", value=moving(), **narrow)
        self.travel.add_class("flashlearn-travel")
        next_one = "go on to the next step in which a maximum rises and a row is scaled"
        wide = {"layout": {"width": "160px"}, "tooltip": next_one}
        self.rescaling = widgets.Button(description="next rescaling ▶", **wide)
        self.fit = widgets.HTML()
        self.fit.add_class("flashlearn-fit")
        self._choosing, self._shown, self._last = False, 0, 0.0
        super().__init__(self._runs(), self._draw, alt=ALT, figsize=(12.8, 4.4))
        self._arrange()

    def _arrange(self) -> None:
        """The controls below the sentence, and what they do."""
        self.rescaling.on_click(lambda button: self._next_rescaling())
        sizes = (self.length, self.dimension, self.block_q, self.block_k, self.sram)
        for control in (*sizes, self.rule, self.mask, self.beside):
            control.observe(lambda change: self._changed(), "value")
        steps = row(self.play, self.back, self.next, self.rescaling, self.slider)
        self.controls.children = (steps, row(*sizes, self.mask, self.rule, self.beside, self.travel))
        self.children = (self.picture, self.fit, self.sentence, self.controls, self.names)

    def _changed(self) -> None:
        """Record both versions anew, unless this change is part of another one."""
        if not self._choosing:
            self.show(self._runs())

    def _runs(self) -> dict:
        """What is to be shown, with the sizes that the controls say, or one step that says why it cannot run."""
        verdict = self._choose_blocks()
        if verdict:
            return {"": self._no_run(verdict)}
        N, block_q, block_k = self.length.value, self.block_q.value, self.block_k.value
        mask = MASKS[self.mask.value](N)
        tensors = self._tensors()
        blocks: dict[str, Any] = {"block_q": block_q, "block_k": block_k}
        runs = {
            title: record(steps(*tensors, **mask, **({} if title == STANDARD else blocks)))
            for title, steps in STEPS.items()
        }
        moved = {title: hbm_bytes(run) for title, run in runs.items()}
        shown = BESIDE[self.beside.value]
        self._full = max(max(moved[title]) for title in shown)
        visits, pairs = (runs[V2][-1].values[name] for name in ("visits", "pairs"))
        need = sram_elements(block_q, block_k, self.dimension.value)
        totals = ", ".join(f"{name} {moved[title].total:,} B" for title, name in TOTALS.items())
        self._report(
            f"{block_q} × {block_k} blocks need {need} of {self.sram.value} elements: they fit. {visits} of {pairs} pairs "
            f"visited. In all: {totals}.",
            need,
        )
        return {SHORT[title] if len(shown) > 2 else title: runs[title] for title in shown}

    def _tensors(self) -> list:
        """Q, K and V with N rows and D columns; the same numbers for the same D."""
        generator = torch.Generator().manual_seed(94)  # maxima rise at many steps, by factors that can be seen
        every = [1.3 * torch.randn(1, 1, LONGEST, self.dimension.value, generator=generator) for _ in range(3)]
        return [t[:, :, : self.length.value] for t in every]

    def _choose_blocks(self) -> str:
        """Set B_r and B_c as the rule wants; returns what is wrong with them, or nothing."""
        D, M = self.dimension.value, self.sram.value
        rule = {FITTING: fitting_block_sizes, PAPER: paper_block_sizes}.get(self.rule.value)
        self.block_q.disabled = self.block_k.disabled = rule is not None
        if rule and M < 4 * D + 1:
            return f"No blocks fit: even 1 × 1 needs 4 × {D} + 1 = {4 * D + 1} elements, and the SRAM holds {M}."
        if rule:
            self._choosing = True
            self.block_q.value, self.block_k.value = rule(M, D)
            self._choosing = False
        block_q, block_k = self.block_q.value, self.block_k.value
        need = sram_elements(block_q, block_k, D)
        if need <= M:
            return ""
        return (
            f"Blocks {block_q} × {block_k} do not fit: they need {need} elements, and the SRAM holds {M}. "
            "Make a block smaller or the SRAM larger."
        )

    def _no_run(self, verdict: str) -> list[Step]:
        """The one step of blocks that do not fit: the tiles that would have to be on chip together."""
        self._full = 0
        block_q, block_k = (1, 1) if verdict.startswith("No") else (self.block_q.value, self.block_k.value)
        self._report("Nothing was run.", sram_elements(block_q, block_k, self.dimension.value))
        return [replace(budget_step(block_q, block_k, self.dimension.value, self.sram.value), sentence=verdict)]

    def _report(self, text: str, need: int) -> None:
        """The bar of what is needed, filled as far as the SRAM goes, and the text beside it."""
        part = min(100, round(100 * need / self.sram.value))
        fill = "#0072B2" if need <= self.sram.value else "repeating-linear-gradient(45deg,#D55E00 0 6px,#fff 6px 9px)"
        self.fit.value = (
            '<div style="display:flex;gap:12px;align-items:center">'
            '<div aria-hidden="true" style="flex:none;width:120px;height:14px;border:2px solid #1A1A1A;background:#fff">'
            f'<div style="width:{part}%;height:100%;background:{fill}"></div></div>'
            f'<div role="status" style="font-size:16px;line-height:18px">{text}</div></div>'
        )

    def _draw(self, ax, step, travelled: float = 1.0) -> None:
        if "capacity" in step.values:
            draw_budget(ax, step)
        else:
            paint_on(partial(draw_tiling, full=self._full, capacity=self.sram.value), ax, step)

    def paint(self) -> None:
        """The step that the slider is at; one step on, first its tiles on their way."""
        number = self.slider.value - 1
        calm = time.monotonic() - self._last > CALM
        if self.travel.value and moving() and calm and number == self._shown + 1:
            for part in IN_BETWEEN:
                draw = partial(self._draw, travelled=part)
                self.picture.value = png(paint(self.runs, number, draw, self.figsize))
        super().paint()
        self._shown, self._last = number, time.monotonic()

    def _said(self, title: str, step: Step) -> str:
        return words(step) if title else step.sentence

    def _next_rescaling(self) -> None:
        """Go to the next step in which a maximum rises in either version, from the start again after the last."""
        frames = rescalings(self.runs)
        here = self.slider.value - 1
        if frames:
            self.slider.value = 1 + next((frame for frame in frames if frame > here), frames[0])


def tiling_explorer(**start) -> TilingExplorer:
    """FlashAttention-1, -2 and standard attention, with sliders for N, D, B_r, B_c and the SRAM, and with masks.

    `start` sets the first values: N, D, block_q, block_k, sram, causal, mask ("full", "causal", "window of 4", "two
    documents", "documents, window").
    """
    return TilingExplorer(**start)


def two_documents(N: int) -> torch.Tensor:
    """Offsets of two documents in N tokens, of about five twelfths and seven: no multiple of a usual block."""
    return torch.tensor([0, (5 * N + 6) // 12, N], dtype=torch.int32)


def rescalings(runs: dict[str, list[Step]]) -> list[int]:
    """The frames, from 0, in which the maximum of some row rises from a number to a higher one."""
    return sorted({step.number for run in runs.values() for step in run if rescales(step)})
