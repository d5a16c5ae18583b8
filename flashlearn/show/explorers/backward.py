"""The backward explorer: the gradient of one row of softmax, and the tiles that a block of keys or queries meets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from flashlearn.algorithms.gradients import softmax_backward_steps
from flashlearn.algorithms.softmax import safe_softmax
from flashlearn.algorithms.tiled import tiled_attention_v2
from flashlearn.algorithms.tiled_backward import tiled_attention_backward_steps
from flashlearn.core.steps import Step, hbm_bytes, matmul_flops, record
from flashlearn.show.draw.backward_chip import draw_backward_chip
from flashlearn.show.draw.gradients import draw_gradient_row
from flashlearn.show.explorers.explorer import Control, Explorer, Setting, Shown

ROW, TILES = "one row", "tiles"
N, D, BLOCK = 8, 2, 2  # tokens, head dimension, rows of a block of Q and of K
BLOCKS = range(N // BLOCK)
EVERY = "all blocks"
FOLLOWED = (*(f"K{j}, V{j}" for j in BLOCKS), *(f"Q{i}" for i in BLOCKS), EVERY)
TWO_PASSES, FUSED = "two passes", "fused"
SCORES, ARRIVED = (1.0, 0.0, 2.0, -1.0), (0.5, -1.0, 2.0, 3.0)  # of the row that is shown first
LARGEST = 3  # of a score and of dP, either way
ALT = {
    ROW: "Four groups of bars, one for each key: the scores, p, dp with the level of δ, and ds.",
    TILES: "The square of pairs of blocks with those that are met, and beside it the equations on chip in numbers.",
}


def amount(label: str, help: str) -> Control:
    """A slider over scores or over dP."""
    return Control(label, help, tuple(half / 2 for half in range(-2 * LARGEST, 2 * LARGEST + 1)))


class BackwardExplorer(Explorer):
    """Two views: one row whose scores and dP can be moved, and the tiles that a chosen block meets."""

    function = "backward_explorer"
    view = Setting(Control("view", "what is shown: tiles, or one row of scores", (TILES, ROW)), TILES)
    follow = Setting(Control("follow", "the block whose steps are shown", FOLLOWED), "K0, V0")
    form = Setting(Control("form", "two passes, or one that adds to dQ in HBM", (TWO_PASSES, FUSED)), TWO_PASSES)
    causal = Setting(Control("causal", "queries attend to no later keys", (False, True)), True)
    s0, s1, s2, s3 = (Setting(amount(f"s{key}", f"score of key {key}"), SCORES[key]) for key in range(4))
    dp0, dp1, dp2, dp3 = (Setting(amount(f"dp{key}", f"dP of key {key}"), ARRIVED[key]) for key in range(4))

    def _show(self) -> Shown:
        row = self.view == ROW
        amounts = [f"{kind}{key}" for kind in ("s", "dp") for key in range(4)]
        self.hidden = ["follow", "form", "causal"] if row else amounts
        return self._row() if row else self._tiles()

    def _changed(self, name: str = "") -> None:
        """A row is shown from its last step."""
        super()._changed(name)
        if not self._quiet and self.view == ROW:
            self.step = len(next(iter(self.runs.values()))) - 1

    def _row(self) -> Shown:
        """The steps of softmax's gradient of the row that the sliders say."""
        s, dp = (
            torch.tensor([getattr(self, f"{kind}{key}") for key in range(4)], dtype=torch.float64)
            for kind in ("s", "dp")
        )
        run = record(
            replace(step, values={**step.values, "S": s}) for step in softmax_backward_steps(dp, safe_softmax(s))
        )
        total = run[-1].output.sum().item()
        text = f"ds adds up to {abs(total):.2f}; δ = {run[0].values['delta'].item():.2f}, the mean of dp weighted by p."
        return Shown({"": run}, draw_gradient_row, ALT[ROW], text)

    def _tiles(self) -> Shown:
        """The steps in which the chosen block takes part, as a run of their own."""
        q, k, v, do = _tensors()
        options: dict[str, Any] = {"block_q": BLOCK, "block_k": BLOCK, "causal": self.causal}
        o, lse = tiled_attention_v2(q, k, v, **options, return_lse=True)
        whole = record(tiled_attention_backward_steps(do, q, k, v, o, lse, **options, fused=self.form == FUSED))
        run = record(step for step in whole if _takes_part(self.follow, step))
        parts = [(_named(run), run), *([("the whole run", whole)] if self.follow != EVERY else [])]
        counts = (f"{name}: {hbm_bytes(r).total:,} B, {matmul_flops(r):,} FLOPs of products" for name, r in parts)
        text = f"{self.form.capitalize()}, {self.follow}: {'; '.join(counts)}."
        return Shown({"": run}, draw_backward_chip, ALT[TILES], text)


def backward_explorer(**start: Any) -> BackwardExplorer:
    """The backward pass in two views: one row with its delta, and the tiles that a block of keys or queries meets.

    `start` may set the first values: view ("tiles", "one row"), follow ("K0, V0" to "K3, V3", "Q0" to "Q3",
    "all blocks"), form ("two passes", "fused"), causal, s0 to s3, dp0 to dp3, step.
    """
    return BackwardExplorer(start, step=start.pop("step", 0))


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
