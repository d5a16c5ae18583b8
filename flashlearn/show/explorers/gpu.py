"""Two explorers for the ideas that every kernel starts with: strides and offsets, program ids and masks."""

from __future__ import annotations

import ipywidgets as widgets
import torch

from flashlearn.gpu import layout_steps, program_steps
from flashlearn.show.draw.programs import draw_programs
from flashlearn.show.draw.strides import draw_strides
from flashlearn.show.explorers.controls import Explorer, check_choice, row, slider, slider_look

BLOCKS = (1, 2, 4, 8, 16)
LOOK = slider_look(50)


class StrideExplorer(Explorer):
    """A stepper over the elements of x (2, 4, 3), with a slider per index and a box that swaps two strides."""

    def __init__(self):
        self.x = torch.arange(24.0).reshape(2, 4, 3)
        self.index = [
            slider(name, (0, size - 1), 0, f"index {d}", LOOK)
            for d, (name, size) in enumerate(zip("ijk", self.x.shape, strict=True))
        ]
        about = "show x.transpose(1, 2): the same memory, other strides"
        wide = {"indent": False, "layout": {"width": "320px"}, "tooltip": about}
        self.transposed = widgets.Checkbox(description="transpose: swap the last two strides", **wide)
        alt = "The 24 elements of a tensor in memory order and in index order, one of them picked out."
        super().__init__(layout_steps(self.x), draw_strides, alt=alt, figsize=(12.8, 4.6), interval=500)
        self.slider.observe(lambda change: self._show_index(), "value")
        self.transposed.observe(lambda change: self._transpose(), "value")
        for control in self.index:
            control.observe(lambda change: self._go_to_index(), "value")
        self.controls.children += (row(*self.index, self.transposed),)

    def _transpose(self) -> None:
        view = self.x.transpose(1, 2) if self.transposed.value else self.x
        self.show(layout_steps(view))
        for control, size in zip(self.index, view.shape, strict=True):
            control.max = size - 1
        self._show_index()

    def _steps(self):
        return next(iter(self.runs.values()))

    def _show_index(self) -> None:
        """The index sliders follow the step."""
        index = self._steps()[self.slider.value - 1].values.get("index")
        if index is None or index == tuple(control.value for control in self.index):
            return
        self._following = True
        for control, value in zip(self.index, index, strict=True):
            control.value = value
        self._following = False

    _following = False

    def _go_to_index(self) -> None:
        """The step follows the index sliders, unless they are following it."""
        wanted = tuple(control.value for control in self.index)
        if not self._following:
            steps = enumerate(self._steps(), start=1)
            self.slider.value = next(n for n, step in steps if step.values.get("index") == wanted)


class ProgramExplorer(Explorer):
    """A stepper over the programs of a launch, with sliders for N, BLOCK, heads and batch entries."""

    def __init__(self, N: int = 10, block: int = 4, H: int = 2, B: int = 2):
        self.N = slider("N", (1, 32), N, "rows of Q: elements to be cut into blocks", LOOK)
        check_choice("block", BLOCKS, block)
        acts = {"continuous_update": False, "tooltip": "lanes of one program"}
        self.block = widgets.SelectionSlider(
            description="BLOCK", options=BLOCKS, value=block, **acts, **slider_look(60)
        )
        self.H = slider("heads", (1, 3), H, "heads: the second axis", LOOK, "H")
        self.B = slider("batch", (1, 2), B, "batch entries: the third axis", LOOK, "B")
        alt = "A launch grid of programs by batch entry, head and block, and the lanes of the current program."
        super().__init__(self._programs(), draw_programs, alt=alt, figsize=(12.8, 4.6), interval=700)
        for control in (self.N, self.block, self.H, self.B):
            control.observe(lambda change: self.show(self._programs()), "value")
        self.controls.children += (row(self.N, self.block, self.H, self.B),)

    def _programs(self):
        return program_steps(self.N.value, self.block.value, H=self.H.value, B=self.B.value, name="Q")


def stride_explorer() -> StrideExplorer:
    """Pick an element of x (2, 4, 3) by index or walk over all; swap two strides and see it transposed."""
    return StrideExplorer()


def program_explorer(**start) -> ProgramExplorer:
    """Pick a program of a launch grid and see its block, head, batch entry and masked lanes.

    `start` may set the first values: N, block, H, B.
    """
    return ProgramExplorer(**start)
