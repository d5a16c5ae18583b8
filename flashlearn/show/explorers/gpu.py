"""Two explorers for the ideas that every kernel starts with: strides and offsets, program ids and masks."""

from __future__ import annotations

from typing import Any

import torch

from flashlearn.core.steps import Step
from flashlearn.gpu import layout_steps, program_steps
from flashlearn.show.draw.programs import draw_programs
from flashlearn.show.draw.strides import draw_strides
from flashlearn.show.explorers.explorer import Control, Explorer, Setting, Shown, numbers

BLOCKS = (1, 2, 4, 8, 16)
X = torch.arange(24.0).reshape(2, 4, 3)


class StrideExplorer(Explorer):
    """The elements of x (2, 4, 3), with a slider per index and a box that swaps two strides."""

    function = "stride_explorer"
    i = Setting(numbers("i", 0, 1, "index 0"), 0)
    j = Setting(numbers("j", 0, 3, "index 1"), 0)
    k = Setting(numbers("k", 0, 3, "index 2"), 0)
    transposed = Setting(
        Control("transpose", "show x.transpose(1, 2): the same memory, other strides", (False, True)), False
    )

    def __init__(self, start: dict[str, Any], **how: Any):
        super().__init__(start, seconds=0.5, **how)
        self.observe(lambda change: self._follow(), "step")

    def _show(self) -> Shown:
        view = X.transpose(1, 2) if self.transposed else X
        alt = "The 24 elements of a tensor in memory order and in index order, one of them picked out."
        return Shown({"": list(layout_steps(view))}, draw_strides, alt, "")

    def _changed(self, name: str = "") -> None:
        """A slider goes to the step of its index; the box loads the other view."""
        if name not in tuple("ijk"):
            super()._changed(name)
        elif not self._quiet:
            shape = self._run[0].values["shape"]
            wanted = tuple(min(at, size - 1) for at, size in zip((self.i, self.j, self.k), shape, strict=True))
            self.step = next(number for number, step in enumerate(self._run) if step.values.get("index") == wanted)
        self._follow()

    @property
    def _run(self) -> list[Step]:
        return self.runs[""]

    def _follow(self) -> None:
        """The sliders follow the step."""
        if not self._quiet and (index := self._run[self.step].values.get("index")):
            with self._together():
                self.i, self.j, self.k = index


class ProgramExplorer(Explorer):
    """The programs of a launch, with sliders for N, BLOCK, heads and batch entries."""

    function = "program_explorer"
    N = Setting(numbers("N", 1, 32, "rows of Q: elements to be cut into blocks"), 10)
    block = Setting(Control("BLOCK", "elements of one program", BLOCKS), 4)
    H = Setting(numbers("heads", 1, 3, "heads: the second axis"), 2)
    B = Setting(numbers("batch", 1, 2, "batch entries: the third axis"), 2)

    def __init__(self, start: dict[str, Any], **how: Any):
        super().__init__(start, seconds=0.7, **how)

    def _show(self) -> Shown:
        run = list(program_steps(self.N, self.block, H=self.H, B=self.B, name="Q"))
        alt = "A launch grid of programs by batch entry, head and block, and the elements of the current program."
        return Shown({"": run}, draw_programs, alt, "")


def stride_explorer(**start: Any) -> StrideExplorer:
    """Pick an element of x (2, 4, 3) by index or walk over all; swap two strides and see it transposed.

    `start` may set the first values: transposed, step.
    """
    return StrideExplorer(start, step=start.pop("step", 0))


def program_explorer(**start: Any) -> ProgramExplorer:
    """Pick a program of a launch grid and see its block, head, batch entry and masked elements.

    `start` may set the first values: N, block, H, B, step.
    """
    return ProgramExplorer(start, step=start.pop("step", 0))
