"""The backward explorer: the gradient of one row of softmax, and the tiles that a block of keys or queries meets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ipywidgets as widgets
import torch

from flashlearn.algorithms.gradients import softmax_backward_steps
from flashlearn.algorithms.softmax import safe_softmax
from flashlearn.algorithms.tiled import tiled_attention_v2
from flashlearn.algorithms.tiled_backward import tiled_attention_backward_steps
from flashlearn.core.inputs import check_bool
from flashlearn.core.steps import Step, hbm_bytes, matmul_flops, record
from flashlearn.show.draw.backward_chip import draw_backward_chip
from flashlearn.show.draw.gradients import draw_gradient_row
from flashlearn.show.draw.scene import paint
from flashlearn.show.explorers.controls import Explorer, check_choice, look, row, slider_look

ROW, TILES = "one row", "tiles"
N, D, BLOCK = 8, 2, 2  # tokens, head dimension, rows of a block of Q and of K
BLOCKS = range(N // BLOCK)
EVERY = "all blocks"
FOLLOWED = (*(f"K{j}, V{j}" for j in BLOCKS), *(f"Q{i}" for i in BLOCKS), EVERY)
TWO_PASSES, FUSED = "two sweeps", "fused"
SCORES, ARRIVED = (1.0, 0.0, 2.0, -1.0), (0.5, -1.0, 2.0, 3.0)  # of the row that is shown first
LARGEST = 3.0  # of a score and of dP, either way
ALT = {
    ROW: "Four groups of bars, one for each key: the scores, p, dp with the level of δ, and ds.",
    TILES: "The square of pairs of blocks with those that are met, and beside it the equations on chip in numbers.",
}


class BackwardExplorer(Explorer):
    """A stepper with two views: one row whose scores and dP can be moved, and the tiles that a chosen block meets.

    All controls work from the keyboard.
    """

    def __init__(self, view: str = TILES, follow: str = "K0, V0", form: str = TWO_PASSES, causal: bool = True):
        self.view = _choice("view", (TILES, ROW), view, "what is shown: tiles, or one row of scores", 150)
        self.follow = _choice("follow", FOLLOWED, follow, "the block whose steps are shown", 170)
        self.form = _choice("form", (TWO_PASSES, FUSED), form, "two sweeps, or one that adds to dQ in HBM", 190)
        check_bool(causal, "causal")
        narrow = {"indent": False, "layout": {"width": "90px"}, "tooltip": "queries see no later keys"}
        self.causal = widgets.Checkbox(description="causal", value=causal, **narrow)
        self.scores = [_amount(f"s{key}", value, f"score of key {key}") for key, value in enumerate(SCORES)]
        self.arrived = [_amount(f"dp{key}", value, f"dP of key {key}") for key, value in enumerate(ARRIVED)]
        self.fit = widgets.HTML()
        self.fit.add_class("flashlearn-fit")
        super().__init__(self._run(), self._draw, alt=ALT[view], figsize=(12.8, 4.6), interval=1500)
        self._arrange()

    def _arrange(self) -> None:
        """The controls below the sentence; those of the other view are not shown."""
        for control in (self.view, self.follow, self.form, self.causal, *self.scores, *self.arrived):
            control.observe(lambda change: self._changed(), "value")
        first = row(self.play, self.back, self.next, self.view, self.slider)
        self.tiles_bar = row(self.follow, self.form, self.causal)
        self.row_bar = row(*self.scores, *self.arrived)
        self.controls.children = (first, self.tiles_bar, self.row_bar)
        self.children = (self.picture, self.fit, self.sentence, self.controls, self.names)
        self._show_bars()

    def _show_bars(self) -> None:
        row = self.view.value == ROW
        self.row_bar.layout.display, self.tiles_bar.layout.display = ("flex", "none") if row else ("none", "flex")

    def _changed(self) -> None:
        """Record what the controls say, and show it from its first step, a row from its last."""
        self.alt = ALT[self.view.value]
        self.show(self._run())
        self._show_bars()
        if self.view.value == ROW:
            self.slider.value = self.slider.max

    def _run(self) -> list[Step]:
        return self._row() if self.view.value == ROW else self._tiles()

    def _row(self) -> list[Step]:
        """The steps of softmax's gradient of the row that the sliders say."""
        s, dp = (torch.tensor([c.value for c in row], dtype=torch.float64) for row in (self.scores, self.arrived))
        run = record(
            replace(step, values={**step.values, "S": s}) for step in softmax_backward_steps(dp, safe_softmax(s))
        )
        total = run[-1].output.sum().item()
        self._report(
            f"ds adds up to {abs(total):.2f}; δ = {run[0].values['delta'].item():.2f}, the mean of dp weighed by p."
        )
        return run

    def _tiles(self) -> list[Step]:
        """The steps in which the chosen block takes part, as a run of their own."""
        q, k, v, do = _tensors()
        options: dict[str, Any] = {"block_q": BLOCK, "block_k": BLOCK, "causal": self.causal.value}
        o, lse = tiled_attention_v2(q, k, v, **options, return_lse=True)
        fused = self.form.value == FUSED
        whole = record(tiled_attention_backward_steps(do, q, k, v, o, lse, **options, fused=fused))
        run = record(step for step in whole if _takes_part(self.follow.value, step))
        parts = [(_named(run), run), *([("the whole run", whole)] if self.follow.value != EVERY else [])]
        counts = (f"{name}: {hbm_bytes(r).total:,} B, {matmul_flops(r):,} FLOPs of products" for name, r in parts)
        self._report(f"{self.form.value.capitalize()}, {self.follow.value}: {'; '.join(counts)}.")
        return run

    def _report(self, text: str) -> None:
        self.fit.value = f'<div role="status" style="font-size:16px;line-height:22px">{text}</div>'

    def _draw(self, ax, step) -> None:
        paint(draw_gradient_row if self.view.value == ROW else draw_backward_chip, ax, step)


def backward_explorer(**start) -> BackwardExplorer:
    """The backward pass in two views: one row with its delta, and the tiles that a block of keys or queries meets.

    `start` may set the first values: view ("tiles", "one row"), follow ("K0, V0" to "K3, V3", "Q0" to "Q3",
    "all blocks"), form ("two sweeps", "fused"), causal.
    """
    return BackwardExplorer(**start)


def _takes_part(follow: str, step: Step) -> bool:
    """Whether the block is worked on in this step; delta belongs to the queries."""
    i, j = step.values.get("i"), step.values.get("j")
    return follow == EVERY or ((j == int(follow[1])) if follow[0] == "K" else (i == int(follow[1])))


def _named(run: list[Step]) -> str:
    """How many steps there are, and how many tiles of the forward pass they meet."""
    pairs = {(step.values["i"], step.values["j"]) for step in run if "P" in step.values}
    return f"{len(run)} steps, which meet {len(pairs)} tiles"


def _tensors() -> list[torch.Tensor]:
    """Q, K, V and dO, the same at every call."""
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(1, 1, N, D, generator=generator) for _ in range(4)]


def _choice(name: str, options: tuple[str, ...], value: str, tooltip: str, width: int) -> widgets.Dropdown:
    check_choice(name, options, value)
    return widgets.Dropdown(description=name, options=options, value=value, tooltip=tooltip, **look(width, 48))


def _amount(name: str, value: float, tooltip: str) -> widgets.FloatSlider:
    """A slider for a score or for dP; it acts when it is let go, or at each press of an arrow key."""
    acts = {"continuous_update": False, "tooltip": tooltip, "readout_format": ".1f"}
    bounds = {"min": -LARGEST, "max": LARGEST, "step": 0.5}
    return widgets.FloatSlider(description=name, value=value, **bounds, **acts, **slider_look(28))
