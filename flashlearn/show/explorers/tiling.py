"""The tiling explorer: FlashAttention-1 and -2 side by side from the same inputs, with every size under control."""

from __future__ import annotations

import html
from dataclasses import replace

import ipywidgets as widgets
import torch

from flashlearn.core.steps import Step, hbm_bytes, record, sram_peak
from flashlearn.rungs.tiled import (
    fitting_block_sizes,
    paper_block_sizes,
    sram_elements,
    tiled_attention_v1_steps,
    tiled_attention_v2_steps,
    visited_blocks,
)
from flashlearn.show.draw.budget import budget_step, draw_budget
from flashlearn.show.draw.tiling import draw_tiling
from flashlearn.show.explorers.controls import look, slider
from flashlearn.show.frame import at, rescales, words
from flashlearn.show.widgets import Stepper

D, LONGEST, LARGEST = 4, 16, 8  # head dimension, the most tokens, the most rows of a block
LOOK = look(270, 42)
TITLES = {
    "FlashAttention-1 · K, V outside": tiled_attention_v1_steps,
    "FlashAttention-2 · Q outside": tiled_attention_v2_steps,
}
BY_HAND, FITTING, PAPER = "as set here", "largest that fit", "the paper's rule"
ALT = "HBM with Q, K, V and O, and the tiles on chip, for FlashAttention-1 and FlashAttention-2 side by side."


class TilingExplorer(Stepper):
    """A stepper over both versions, and controls that record both anew.

    All controls work from the keyboard. Blocks that do not fit in the SRAM are shown with what they would need.
    """

    def __init__(self, N: int = 12, block_q: int = 3, block_k: int = 3, sram: int = 59, causal: bool = True):
        generator = torch.Generator().manual_seed(94)  # maxima rise at many steps, by factors that can be seen
        self.qkv = tuple(1.3 * torch.randn(1, 1, LONGEST, D, generator=generator) for _ in range(3))
        self.length = slider("N", (1, LONGEST), N, "tokens: rows of Q, K and V", LOOK)
        self.block_q = slider("B_r", (1, LARGEST), block_q, "rows in a block of Q", LOOK)
        self.block_k = slider("B_c", (1, LARGEST), block_k, "rows in a block of K and V", LOOK)
        self.sram = slider("SRAM", (10, 128), sram, "elements of tiles that fit on chip; m and l are not counted", LOOK)
        rules, who = [BY_HAND, FITTING, PAPER], "who chooses B_r and B_c"
        self.rule = widgets.Dropdown(description="blocks", options=rules, tooltip=who, **look(220, 50))
        narrow = {"indent": False, "layout": {"width": "80px"}, "tooltip": "query i sees keys 0 to i only"}
        self.causal = widgets.Checkbox(description="causal", value=causal, **narrow)
        next_one = "go on to the next step in which a maximum rises and a row is scaled"
        wide = {"layout": {"width": "150px"}, "tooltip": next_one}
        self.rescaling = widgets.Button(description="next rescaling ▶", **wide)
        self.fit = widgets.HTML()
        self.fit.add_class("flashlearn-fit")
        self._choosing = False
        super().__init__(self._runs(), self._draw, alt=ALT, figsize=(12.8, 4.4))
        self._arrange()

    def _arrange(self) -> None:
        """The controls in two rows below the sentence, and what they do."""
        self.slider.layout.width = "280px"
        self.rescaling.on_click(lambda button: self._next_rescaling())
        for control in (self.length, self.block_q, self.block_k, self.sram, self.rule, self.causal):
            control.observe(lambda change: self._changed(), "value")
        steps = widgets.HBox([self.play, self.back, self.next, self.rescaling, self.slider, self.rule, self.causal])
        sizes = widgets.HBox([self.length, self.block_q, self.block_k, self.sram])
        self.controls.children = (steps, sizes)
        self.children = (self.picture, self.fit, self.sentence, self.controls, self.names)

    def _changed(self) -> None:
        """Record both versions anew, unless this change is part of another one."""
        if not self._choosing:
            self.show(self._runs())

    def _runs(self) -> dict:
        """Both versions with the sizes that the controls say, or one step that says why they cannot run."""
        verdict = self._choose_blocks()
        N, block_q, block_k, causal = (c.value for c in (self.length, self.block_q, self.block_k, self.causal))
        if verdict:
            return {"": self._no_run(verdict)}
        tensors = [t[:, :, :N] for t in self.qkv]
        options = {"block_q": block_q, "block_k": block_k, "causal": causal}
        runs = {title: record(steps(*tensors, **options)) for title, steps in TITLES.items()}
        v1, v2 = (hbm_bytes(run) for run in runs.values())
        self._full = max(*v1, *v2)
        visits, pairs = (visited_blocks(N, N, block_q, block_k, c) for c in (causal, False))
        need, peak = sram_elements(block_q, block_k, D), max(map(sram_peak, runs.values()))
        self._report(
            f"{block_q} × {block_k} blocks need {need} of {self.sram.value} elements: they fit ({peak} B with m and l). {visits} "
            f"of {pairs} pairs of blocks visited. In all: FA-1 {v1.total:,} B, FA-2 {v2.total:,} B."
        )
        return runs

    def _choose_blocks(self) -> str:
        """Set B_r and B_c as the rule wants; returns what is wrong with them, or nothing."""
        M, rule = self.sram.value, {FITTING: fitting_block_sizes, PAPER: paper_block_sizes}.get(self.rule.value)
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
        self._report("Nothing was run.")
        block_q, block_k = (1, 1) if verdict.startswith("No") else (self.block_q.value, self.block_k.value)
        return [replace(budget_step(block_q, block_k, D, self.sram.value), sentence=verdict)]

    def _report(self, text: str) -> None:
        self.fit.value = f'<div role="status" style="font-size:16px;line-height:18px">{text}</div>'

    def _draw(self, ax, step) -> None:
        if "capacity" in step.values:
            draw_budget(ax, step)
        else:
            draw_tiling(ax, step, self._full)

    def _tell(self, number: int) -> str:
        """Each sentence below its own panel."""
        columns = "".join(
            f'<div style="flex:1"><span style="position:absolute;left:-9999px">{title}: </span>'
            f"{html.escape(words(step) if title else step.sentence)}</div>"
            for title, step in at(self.runs, number).items()
        )
        style = "display:flex;gap:24px;max-width:1280px;font-size:16px;line-height:18px;min-height:72px"
        return f'<div role="status" aria-live="polite" style="{style}">{columns}</div>'

    def _next_rescaling(self) -> None:
        """Go to the next step in which a maximum rises in either version, from the start again after the last."""
        frames = rescalings(self.runs)
        here = self.slider.value - 1
        if frames:
            self.slider.value = 1 + next((frame for frame in frames if frame > here), frames[0])


def tiling_explorer(**start) -> TilingExplorer:
    """FlashAttention-1 and -2 side by side: sliders for N, B_r, B_c and the SRAM, causal or not, bytes live.

    `start` may set the first values: N, block_q, block_k, sram, causal.
    """
    return TilingExplorer(**start)


def rescalings(runs: dict[str, list[Step]]) -> list[int]:
    """The frames, from 0, in which the maximum of some row rises from a number to a higher one."""
    return sorted({step.number for run in runs.values() for step in run if rescales(step)})
